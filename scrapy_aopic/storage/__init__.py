"""Remembers: stores of bytes under bytes, in folders or on a server.

* :mod:`.registry`: the kinds of store, and what a kind must be able to do
* :mod:`.opening`: opens the store of a job
* :mod:`.copying`: copies a store row by row
* :mod:`.rocksdb`: RocksDB
* :mod:`.rocksdb_log`: reads the write-ahead log of a damaged RocksDB
* :mod:`.sqlite`: SQLite
* :mod:`.memory`: memory
* :mod:`.redis`: Redis and Valkey
* :mod:`.address`: where a job on a server is
* :mod:`.store_folder`: what a folder says of its store without opening it
* :mod:`.commit_number`: the number of the last commit, in a file
* :mod:`.disk_shard`: a shard's store on a worker's disk
* :mod:`.folder_workers`: what workers of one machine share in a job folder
* :mod:`.board`: the file by which they hear of each other
* :mod:`.homes`: in which folder each shard is, when a job has several
* :mod:`.known_bodies`: bodies that an earlier crawl has archived
* :mod:`.lock`: one writer at a time
* :mod:`.named_files`: files, pipes and devices that a user names

docs/library.md shows how to write a kind of your own.
"""

from __future__ import annotations

from .address import Address
from .copying import arrange, copy_store, finish_store, make_store
from .lock import lock_job, lock_store
from .opening import (
    check_in_folder,
    closing_all,
    exists,
    note_server,
    open_for_salvage,
    open_snapshot,
    open_store,
)
from .registry import Backend, Compacts, Locked, Salvages, VerifiesStructure, is_safe, use

__all__ = [
    "Address",
    "Backend",
    "Compacts",
    "Locked",
    "Salvages",
    "VerifiesStructure",
    "arrange",
    "check_in_folder",
    "closing_all",
    "copy_store",
    "exists",
    "finish_store",
    "is_safe",
    "lock_job",
    "lock_store",
    "make_store",
    "note_server",
    "open_for_salvage",
    "open_snapshot",
    "open_store",
    "use",
]

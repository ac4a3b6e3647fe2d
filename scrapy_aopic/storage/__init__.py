"""Remembers: stores of bytes under bytes, in folders.

In reading order: :mod:`.registry` (which kinds of store there are, and what a kind must be able to do), :mod:`.opening`,
:mod:`.copying`; :mod:`.rocksdb`, :mod:`.sqlite` and :mod:`.memory` (the kinds of this package),
:mod:`scrapy_aopic.storage.redis.store` with :mod:`.address` (a store on a server); :mod:`.store_folder` and
:mod:`.commit_number` (what a folder says of its store, without opening it), :mod:`.lock` (one writer at a time).
docs/stores.md shows how to write a kind of your own.
"""

from __future__ import annotations

from .address import Address
from .copying import arrange, copy_store, finish_store, is_finished, make_store
from .lock import lock_job, lock_store
from .opening import check_in_folder, exists, note_server, open_for_repair, open_snapshot, open_store
from .registry import Backend, Compacts, Leased, Repairs, VerifiesStructure, is_safe, use

__all__ = [
    "Address",
    "Backend",
    "Compacts",
    "Leased",
    "Repairs",
    "VerifiesStructure",
    "arrange",
    "check_in_folder",
    "copy_store",
    "exists",
    "finish_store",
    "is_finished",
    "is_safe",
    "lock_job",
    "lock_store",
    "make_store",
    "note_server",
    "open_for_repair",
    "open_snapshot",
    "open_store",
    "use",
]

"""Opens the store of a folder: for a crawl, to look at it, or to salvage what is left of it.

A folder keeps the kind of store that it was made with; a new one gets the best kind that can be imported.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.exceptions import StorageError, plainly, plainly_said, storage_errors

from .commit_number import forget_landed, read_landed
from .lock import sync_names
from .named_files import read_given
from .redis.connect import needs_library
from .registry import KINDS, SERVER, Kind, Salvages, backend_of, find, kind_in, kind_of, make, note_kind
from .store_folder import check_format, forget_sizes, replace_file, write_format

if TYPE_CHECKING:
    from pathlib import Path

    from .address import Address
    from .redis.store import RedisStore, StoreGroup

logger = logging.getLogger(__name__)

COPY_MB = 16
"""Megabytes for the cache of a store that is only written, or read once from its beginning to its end."""

_WARNED: set[str] = set()
"""Why the best kind could not be imported, of which the log has told: each shard of a job opens a store."""


def exists(folder: Path) -> bool:
    """Whether there is a store of any kind in *folder*.

    Raises:
        StorageError: If the folder does not say which it is although it should.
    """
    return kind_of(folder) is not None


def open_store(folder: Path | None, kind: str = "auto", *, memory_mb: int = 64) -> Store:
    """Open the store in *folder* for reading and writing; make it if there is none.

    Args:
        folder: The folder that belongs to the store, or ``None`` to keep the crawl in memory.
        kind: ``rocksdb``, ``sqlite``, ``memory``, the import path of a :class:`~.registry.Backend`, or ``auto``: the
            kind that is in the folder, else the best that can be imported.
        memory_mb: The size of the caches, in megabytes.

    Raises:
        StorageError: If the folder holds a store of another kind, is in use, or cannot be opened.
        SettingError: If there is no such kind.
    """
    wanted = find(kind) if kind != "auto" else None
    if wanted is not None and wanted.name == SERVER:
        raise StorageError("A redis store needs the address of a server, not a folder.")
    if folder is None:
        return _open_in_memory(wanted or KINDS["memory"])
    found = kind_of(folder)
    if found and wanted and wanted.name != found:
        raise StorageError(
            f"The folder {folder} holds a {found} store, so it cannot be opened as {kind}; "
            f"ask for {found} or auto, or choose another folder."
        )
    if wanted and wanted.load is None:
        return _open_in_memory(wanted)
    if found is None:
        return _make_new(folder, wanted or best_kind(), memory_mb)
    _check_not_on_server(folder, found)
    check_format(folder)
    return make(folder, wanted or _kind_in(folder), memory_mb)


def open_store_at(
    address: Address, *, is_one_of_many: bool = False, group: StoreGroup | None = None
) -> RedisStore:
    """Open the store of the job at *address*, or of one of its shards, for reading and writing; make it if there is none.

    Args:
        is_one_of_many: Whether the job has other stores, too: then it does not wait until the lock of another process expires.
        group: The stores with which it shares connections; by default it has its own.

    Raises:
        InUseError: If another process has the lock.
        StorageError: If it cannot be opened.
    """
    try:
        from .redis.store import RedisStore  # noqa: PLC0415 (only for jobs on a server)
    except ImportError as error:
        raise needs_library(address, error) from error
    return RedisStore(address, is_one_of_many=is_one_of_many, group=group)


def open_snapshot(folder: Path, *, memory_mb: int = COPY_MB) -> Store:
    """Open a read-only view of the store in *folder* as it is now, even while another process writes to it.

    The view does not move; close it soon, for the files that it needs are kept until then.

    Raises:
        StorageError: If there is no store, or it cannot be opened.
    """
    kind = kind_in(folder)
    if kind is None:
        _check_not_gone(folder)
        marks = f"*/{folder.name}/format", "*/aopic-shards/cut.json"
        if jobs := sorted(str(each.parents[1]) for mark in marks for each in folder.parent.glob(mark)):
            raise StorageError(f"No job is in the folder {folder.parent}; name one of {', '.join(jobs)}.")
        raise StorageError(f"There is no store in the folder {folder}; start a crawl with it first.")
    _check_not_on_server(folder, kind.name)
    check_format(folder)
    return make(folder, kind, memory_mb, read_only=True)


@contextmanager
def closing_all(stores: Sequence[Store]) -> Iterator[Sequence[Store]]:
    """*stores*, which are closed in the end."""
    with ExitStack() as opened:
        for store in stores:
            opened.callback(store.close)
        yield stores


class Damaged(NamedTuple):
    """What is left of a store.

    Attributes:
        store: A copy of it, as far as that can be read.
        kind: Of what kind it is made anew; ``None`` for the best.
        reason: Why it cannot be opened as it is; empty if it can.
        gaps: Rows that are known to be lost, by family.
    """

    store: Store
    kind: Kind | None = None
    reason: str = ""
    gaps: Mapping[Family, int] = {}


def open_for_salvage(folder: Path, copy: Path) -> Damaged:
    """Copy the store in *folder* to the folder *copy*, and open what is left of it there.

    Raises:
        StorageError: If there is no store, it is of another format, or nothing of it can be opened.
    """
    kind = kind_in(folder)
    if kind is None:
        _check_not_gone(folder)
        raise StorageError(f"There is no store in the folder {folder}.")
    _check_not_on_server(folder, kind.name)
    check_format(folder, is_damaged=True)
    try:
        shutil.copytree(folder, copy)
    except OSError as error:
        # shutil.Error names every file that it could not copy, in words only.
        why = plainly_said(str(error)) or plainly(error)
        raise StorageError(f"The store in {folder} cannot be copied to {copy}: {why}.") from error
    try:
        return Damaged(open_snapshot(copy), kind)
    except StorageError as error:
        reason = str(error).replace(str(copy), str(folder))
    backend = backend_of(copy, kind)
    if not isinstance(backend, Salvages):
        raise StorageError(
            f"{reason} Nothing of it can be salvaged, because {kind.name} has no open_for_salvage: go on with a copy "
            "('scrapy aopic backup' makes them), or begin a new job."
        )
    forget_sizes(copy)
    forget_landed(copy)
    return Damaged(backend.open_for_salvage(copy, memory_mb=COPY_MB), kind, reason)


def note_server(folder: Path, address: Address) -> None:
    """Let *folder* remember that the store of its job is at *address*, without user and password.

    Raises:
        StorageError: If it remembers another store, or cannot be written.
    """
    found = kind_of(folder)
    with storage_errors(f"Cannot open the store in {folder}"):
        if found is None:
            _check_not_gone(folder)
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / SERVER, f"{address}\n")
            return
        noted = read_given(folder / SERVER).decode().strip() if found == SERVER else ""
    if noted != str(address):
        raise StorageError(
            f"The folder {folder} belongs to a job whose store is {noted or f'a {found} store in it'}, and not {address}: "
            "choose another JOBDIR, or none."
        )


def check_in_folder(folder: Path) -> None:
    """Do nothing if the store of a job is, or will be, in *folder*.

    Raises:
        StorageError: If it is on a server.
    """
    _check_not_on_server(folder, kind_of(folder) or "")


def _check_not_on_server(folder: Path, kind: str) -> None:
    """Raise an error if the store of *folder* is on a server."""
    if kind == SERVER:
        try:
            where = read_given(folder / SERVER).decode().strip()
        except (OSError, UnicodeDecodeError):
            where = "redis://HOST:PORT/DATABASE#KEY"
        raise StorageError(
            f"The store of the job in {folder} is on a server: crawl with AOPIC_STORE=redis, and give commands {where} "
            "instead of the folder."
        )


def _kind_in(folder: Path) -> Kind:
    kind = kind_in(folder)
    if kind is None:
        raise StorageError(f"The files of the store in {folder} are gone while it was opened; try again.")
    return kind


def _check_not_gone(folder: Path) -> None:
    """Raise an error if there was a store in *folder*, of which no file is left."""
    if landed := read_landed(folder):
        raise StorageError(
            f"The files of the store in {folder} are gone, but its commits up to number {landed:,} had landed: "
            "bring them back, or remove the folder to begin anew."
        )


def best_kind() -> Kind:
    """The best kind for a new store that can be imported; the first time that this is not the best of all, the log says why."""
    why = ""
    for kind in KINDS.values():
        try:
            if kind.load is not None:
                kind.load()
        except ImportError as error:
            why = f"{kind.needs} {plainly(error)}"
            continue
        if why and why not in _WARNED:
            _WARNED.add(why)
            logger.warning(
                "New stores are of the kind %(kind)s, which writes some 30 times as much to the disk as rocksdb, because "
                "%(why)s. Install it, or set AOPIC_STORE to %(kind)s, and this warning goes.",
                {"kind": kind.name, "why": why},
            )
        return kind
    raise AssertionError("no kind is part of Python")


def _make_new(folder: Path, kind: Kind, memory_mb: int) -> Store:
    backend_of(folder, kind)  # nothing is made for one that is missing
    _check_not_gone(folder)
    with storage_errors(f"Cannot open the store in {folder}"):
        write_format(folder)  # first: without the other file there is no store
        note_kind(folder, kind)
        sync_names(folder)
    return make(folder, kind, memory_mb)


def _open_in_memory(kind: Kind) -> Store:
    if kind.load is not None:
        raise StorageError(f"A {kind.name} store needs a folder; set one, or ask for memory.")
    from .memory import MemoryStore  # noqa: PLC0415 (only for crawls that keep nothing)

    return MemoryStore()

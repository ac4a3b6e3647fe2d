"""Stores that keep a crawl, and the choice between them.

1. A folder keeps the kind of store it was made with; the kind is told by the files in it.
2. A new folder gets RocksDB where rocksdict can be imported, else SQLite.
3. A backend is imported when it is used, so that a missing one hurts nobody else.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import SettingError, StorageError

from .folder import check_format, forget_sizes, write_format
from .landed import forget_landed, read_landed
from .lock import lock_job, sync_folder, sync_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

    from .rocksdb import RocksStore
    from .sqlite import SqliteStore

__all__ = [
    "arrange",
    "copy_store",
    "exists",
    "finish_store",
    "is_finished",
    "lock_job",
    "make_store",
    "open_damaged",
    "open_snapshot",
    "open_store",
]

logger = logging.getLogger(__name__)

# The file that a store of each kind always has, once it has been opened.
_FILES = {"rocksdb": "CURRENT", "sqlite": "store.sqlite3"}

_REMAINS = {"rocksdb": ("*.sst", "[0-9]*.log"), "sqlite": ("store.sqlite3-wal",)}
"""Files that only a store of each kind has, so that they say what was there if its own file is gone."""

_COPIED_AT_ONCE = 5_000
_COPY_MB = 16

_KINDS = ("auto", *_FILES, "memory")


def exists(folder: Path) -> bool:
    """Tell whether *folder* holds a store of any kind."""
    return _kind_of(folder) is not None


def open_store(folder: Path | None, kind: str = "auto", *, memory_mb: int = 64) -> Store:
    """Open the store in *folder* for reading and writing; make it if there is none.

    Args:
        folder: The folder that belongs to the store, or ``None`` to keep the crawl in memory.
        kind: ``rocksdb``, ``sqlite``, ``memory``, or ``auto``: the kind that is in the folder, else the best
            that can be imported.
        memory_mb: The size of the caches, in megabytes.

    Raises:
        StorageError: If the folder holds a store of another kind, is in use, or cannot be opened.
        SettingError: If there is no such kind.
    """
    if kind not in _KINDS:
        raise SettingError(f"The kind of store ({kind}) must be one of {', '.join(_KINDS)}.")
    if folder is None:
        return _open_in_memory(kind)
    found = _kind_of(folder)
    if found and kind not in {"auto", found}:
        raise StorageError(
            f"The folder {folder} holds a {found} store, so it cannot be opened as {kind}; "
            f"ask for {found} or auto, or choose another folder."
        )
    if kind == "memory":
        return _open_in_memory(kind)
    if kind == "auto":
        kind = found or _best_kind(folder)
    return _open(folder, kind, memory_mb, is_new=found is None)


def open_snapshot(folder: Path, *, memory_mb: int = 16) -> Store:
    """Open a read-only view of the store in *folder* as it is now, even while another process writes to it.

    The view does not move; close it soon, for the files that it needs are kept until then.

    Raises:
        StorageError: If the folder holds no store, or it cannot be opened.
    """
    kind = _kind_of(folder)
    if kind is None:
        _check_not_gone(folder)
        raise StorageError(f"There is no store in the folder {folder}; start a crawl with it first.")
    check_format(folder)
    return _make(folder, kind, memory_mb, read_only=True)


def copy_store(
    source: Store, folder: Path, target: Path, progress: Callable[[int], object] = lambda _: None
) -> int:
    """Copy *source*, the store in *folder* or a snapshot of it, to the folder *target*; returns the number of rows.

    What is in *target* is a store only once it is whole.
    """
    kind = _kind_of(folder)
    assert kind is not None, "an open store without its files"
    copied = 0
    with closing(_make(target, kind, _COPY_MB)) as copy:
        for family in Family:
            rows, last = source.scan(family), list[bytes]()
            while chunk := list(islice(rows, _COPIED_AT_ONCE)):
                # A block in the place of another one has the right checksums.
                keys = [*last, *(key for key, _ in chunk)]
                if not all(map(lt, keys, keys[1:])):
                    raise StorageError(
                        f"Cannot read the store in {folder}: the rows of {family.name} are not in their order."
                    )
                copy.write({family: dict(chunk)}, sync=False)
                copied += len(chunk)
                last = keys[-1:]
                progress(len(chunk))
        arrange(copy)
        copy.write({}, sync=True)
    finish_store(target)
    return copied


def open_damaged(folder: Path, copy: Path) -> tuple[Store, str]:
    """Copy the store in *folder*, whose lock the caller has, to the folder *copy*, and open what is left of it there.

    Returns:
        The copy, and why the store itself cannot be opened; empty if it can.

    Raises:
        StorageError: If there is no store, it is of another format, or nothing of it can be opened.
    """
    kind = _kind_of(folder)
    if kind is None:
        _check_not_gone(folder)
        raise StorageError(f"There is no store in the folder {folder}.")
    check_format(folder, is_damaged=True)
    try:
        shutil.copytree(folder, copy)
    except OSError as error:
        # shutil.Error names every file that it could not copy.
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise StorageError(
            f"The store in {folder} cannot be copied to {copy}: {why}. It was not changed."
        ) from error
    reason = ""
    try:
        open_snapshot(copy).close()
    except StorageError as error:
        reason = str(error).replace(str(copy), str(folder))
    forget_sizes(copy)
    forget_landed(copy)
    if not reason:
        try:
            return _make(copy, kind, _COPY_MB), reason
        except StorageError as error:
            reason = str(error).replace(str(copy), str(folder))
    if kind == "rocksdb":
        from .rocksdb import RocksStore, mend_files  # noqa: PLC0415 (rule 3)

        mend_files(copy)
        return RocksStore(copy, memory_mb=_COPY_MB, is_damaged=True), reason
    from .sqlite import mend_files  # noqa: PLC0415 (rule 3)

    mend_files(copy)
    return _make(copy, kind, _COPY_MB), reason


def make_store(folder: Path, like: Store) -> Store:
    """Make a new store of the kind of *like* in *folder*, which is opened by nobody before :func:`finish_store`."""
    return type(like)(folder, memory_mb=_COPY_MB)  # type: ignore[call-arg]


def arrange(store: Store) -> None:
    """Arrange what was written to *store* in the order of its keys as it is best read; it may take long."""
    compact = getattr(store, "compact", None)
    if compact is not None:
        compact()


def finish_store(folder: Path) -> None:
    """Say that the store in *folder* is whole; without it nobody opens it."""
    write_format(folder)
    sync_folder(folder.parent)


def is_finished(folder: Path) -> bool:
    """Whether the store in *folder* is whole."""
    try:
        check_format(folder)
    except StorageError:
        return False
    return exists(folder)


def _kind_of(folder: Path) -> str | None:
    for kind, name in _FILES.items():
        # The file itself, or others without it; the store says itself that it is gone.
        if (folder / name).is_file() or any(any(folder.glob(pattern)) for pattern in _REMAINS[kind]):
            return kind
    return None


def _check_not_gone(folder: Path) -> None:
    """Raise an error if there was a store in *folder*, of which no file is left."""
    if landed := read_landed(folder):
        raise StorageError(
            f"The files of the store in {folder} are gone, but its commits up to number {landed:,} had landed: "
            "bring them back, or remove the folder to begin anew."
        )


def _best_kind(folder: Path) -> str:
    try:
        import rocksdict  # noqa: F401, PLC0415 (the question is whether it can be imported)
    except ImportError as error:
        logger.info(
            "The new store in %(folder)s is of the kind sqlite, which writes much more to the disk "
            "than rocksdb, because rocksdict cannot be imported: %(error)s",
            {"folder": folder, "error": error},
        )
        return "sqlite"
    return "rocksdb"


def _open(folder: Path, kind: str, memory_mb: int, *, is_new: bool) -> Store:
    if not is_new:
        check_format(folder)
        return _make(folder, kind, memory_mb)
    _backend(folder, kind)  # nothing is made for one that is missing
    _check_not_gone(folder)
    try:
        write_format(folder)
        sync_names(folder)
    except OSError as error:
        raise StorageError(f"Cannot open the store in {folder}: {error}.") from error
    return _make(folder, kind, memory_mb)


def _make(folder: Path, kind: str, memory_mb: int, *, read_only: bool = False) -> Store:
    return _backend(folder, kind)(folder, memory_mb=memory_mb, read_only=read_only)


def _backend(folder: Path, kind: str) -> type[RocksStore | SqliteStore]:
    if kind == "sqlite":
        from .sqlite import SqliteStore  # noqa: PLC0415 (rule 3)

        return SqliteStore
    try:
        from .rocksdb import RocksStore  # noqa: PLC0415 (rule 3)
    except ImportError as error:
        raise StorageError(
            f"The rocksdb store in the folder {folder} needs rocksdict ({error}); "
            "install rocksdict, or choose another folder and sqlite."
        ) from error
    return RocksStore


def _open_in_memory(kind: str) -> Store:
    if kind in _FILES:
        raise StorageError(f"A {kind} store needs a folder; set one, or ask for memory.")
    from .memory import MemoryStore  # noqa: PLC0415 (rule 3)

    return MemoryStore()

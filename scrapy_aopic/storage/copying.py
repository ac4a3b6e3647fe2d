"""Makes one store out of another, row by row, so that the two share no file.

A folder holds a store only once :func:`finish_store` has noted that it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import islice
from operator import lt
from pathlib import Path

from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.exceptions import StorageError

from .lock import sync_folder
from .opening import COPY_MB, best_kind
from .registry import Compacts, Kind, VerifiesStructure, make, note_kind
from .store_folder import write_format

_ROWS_AT_ONCE = 5_000
"""Rows in a batch of a copy: some megabyte."""


def copy_store(
    source: Store,
    target: Path,
    *,
    name: str,
    kind: Kind | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> int:
    """Copy *source*, a store or a snapshot of one, to the folder *target*; returns the number of rows.

    Args:
        name: What messages call the source.
        kind: Of the copy; see :func:`make_store`.

    Raises:
        StorageError: If the source cannot be read, or the copy not be written.
    """
    if isinstance(source, VerifiesStructure):
        source.verify_structure()
    with closing(make_store(target, kind)) as copy:
        n = copy_rows(source, copy, name=name, at_once=_ROWS_AT_ONCE, progress=progress)
        arrange(copy)
        copy.write({}, sync=True)
    finish_store(target)
    return n


def copy_rows(
    source: Store,
    target: Store,
    *,
    name: str,
    at_once: int,
    progress: Callable[[int], object] = lambda _: None,
) -> int:
    """Write all rows of *source* to *target*, which is empty; returns how many.

    Args:
        name: What messages call the source.
        at_once: Rows in a batch.
        progress: Called with the rows of each batch.

    Raises:
        StorageError: If one cannot be read, or the other not be written.
    """
    n = 0
    for family in Family:
        rows, last = source.scan(family), list[bytes]()
        while chunk := list(islice(rows, at_once)):
            # A block in the place of another one has the right checksums.
            keys = [*last, *(key for key, _ in chunk)]
            if not all(map(lt, keys, keys[1:])):
                raise StorageError(
                    f"Cannot read the store of {name}: the rows of {family.name} are not in their order."
                )
            target.write({family: dict(chunk)}, sync=False)
            n += len(chunk)
            last = keys[-1:]
            progress(len(chunk))
    return n


def make_store(folder: Path, kind: Kind | None = None) -> Store:
    """Make a new store in *folder*, of this *kind*; of the best that can be imported if it is ``None``.

    Raises:
        StorageError: If none can be made.
    """
    kind = kind or best_kind()
    if kind.is_foreign:
        folder.mkdir(parents=True, exist_ok=True)
        note_kind(folder, kind)
    return make(folder, kind, COPY_MB)


def arrange(store: Store) -> None:
    """Arrange what was written to *store* as it is best read, if it can be arranged; may take long."""
    if isinstance(store, Compacts):
        store.compact()


def finish_store(folder: Path) -> None:
    """Note that the store in *folder* is whole; without that note it is never opened."""
    write_format(folder)
    sync_folder(folder.parent)

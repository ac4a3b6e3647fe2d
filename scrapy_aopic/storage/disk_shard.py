"""The store of a shard on a worker's disk: a store of any kind in a folder, which counts its commits.

Rule: the number of a commit is written with it. So what others have seen of a shard can be compared with what is on the
disk, and a folder that was put back to an older state is noticed before anything is done with it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import COMMIT_KEY, Family
from scrapy_aopic.core.ports import Batch, Store, StoreAround
from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.exceptions import StorageError, closed_on_error

from .lock import lock_job
from .opening import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


LEAST_MB = 4
"""Megabytes for the cache of a shard's store, at least."""


class DiskShard(StoreAround):
    """The store in *folder*, which is made if there is none; it is a job folder's store of its own.

    Args:
        kind: Of the store; see :func:`~.opening.open_store`.
        memory_mb: Size of its cache, in megabytes.

    Attributes:
        number: Of the last commit; 0 if there was none.

    Raises:
        StorageError: If it is in use, or cannot be opened.
    """

    run = b""  # no server has its rows

    def __init__(self, folder: Path, kind: str = "auto", *, memory_mb: int) -> None:
        self._token = secrets.token_hex(4)
        self._lock = lock_job(folder, "crawl")
        with closed_on_error(self._lock.release):
            super().__init__(open_store(folder, kind, memory_mb=memory_mb))
            with closed_on_error(self.store.close):
                self.number = _read_number(self.store)

    @property
    def head(self) -> bytes:
        """What names the last commit: this opening, and the number."""
        return f"{self._token} {self.number}".encode()

    def check_lock(self) -> None:
        """Nothing can be lost: the folder is this process's own as long as it has the lock."""

    @property
    def is_fading(self) -> bool:
        """Never, likewise."""
        return False

    def write(self, batch: Batch, *, sync: bool) -> None:
        after = self.number + 1
        rows = {**batch.get(Family.META, {}), COMMIT_KEY: pack((after,))}
        self.store.write({**batch, Family.META: rows}, sync=sync)
        self.number = after

    def close(self) -> None:
        self.store.close()
        self._lock.release()


def _read_number(store: Store) -> int:
    """Number of the last commit of the shard in *store*; 0 if there was none.

    Raises:
        StorageError: If it cannot be read.
    """
    data = store.get_many(Family.META, (COMMIT_KEY,))[0]
    try:
        return int(unpack(data)[0]) if data is not None else 0
    except NO_RECORD as error:
        raise StorageError("The number of the last commit of a shard is damaged.") from error


def number_of(head: str) -> int:
    """Number of the commit that *head* names; 0 if it names none."""
    number = head.rpartition(" ")[2]
    return int(number) if number.isdecimal() else 0


def one_by_one(batches: Sequence[tuple[Store, Batch]]) -> list[Exception | None]:
    """Write *batches* one after another: to stores in files of their own, which share nothing.

    Returns:
        For each, the error for which it was not stored; ``None`` if it was.
    """
    return [_failure(store, batch) for store, batch in batches]


def _failure(store: Store, batch: Batch) -> Exception | None:
    try:
        store.write(batch, sync=True)
    except Exception as error:  # noqa: BLE001 - it is that of this store, and others have landed
        return error
    return None

"""Commits of the shards of a process, written together: one request to the server where each for itself would be one for
every shard.

Commits that are taken one after another wait here until nothing else is due, some milliseconds, and are then written by one task
of the thread. They are stored, or fail, each for itself.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from scrapy_aopic.core.ports import Batch
    from scrapy_aopic.place.shard_store import ShardStore

    from .side_files import SideFiles

    Batches = Sequence[tuple[ShardStore, Batch]]

MOST_ROWS = 4_000
"""Rows that are written together, at most, unless one commit has more: for a server some 5 to 15 ms, for which all its readers
wait."""


class Writes(Protocol):
    """What writes batches to several stores."""

    def __call__(self, batches: Batches, /) -> Sequence[Exception | None]:
        """Write *batches*, each to a store of its own; returns why each was not stored, ``None`` if it was."""
        ...


class Together:
    """Commits that are to be written together by *write*, in a thread of *executor*, once the *side_files* are on the disk."""

    def __init__(self, executor: Executor, write: Writes, side_files: SideFiles) -> None:
        self._executor = executor
        self._side_files = side_files
        self._write = write
        self._waiting: list[tuple[ShardStore, Batch]] = []
        self._futures: list[Future[None]] = []
        self._n_rows = 0

    def writer_of(self, store: ShardStore) -> ShardWriter:
        """What writes the commits of *store*."""
        return ShardWriter(self, store)

    def add(self, store: ShardStore, batch: Batch) -> Future[None]:
        """Write *batch* to *store*, for which none waits, with those that are added before :meth:`flush` is called."""
        n_rows = sum(map(len, batch.values()))
        if self._n_rows + n_rows > MOST_ROWS:
            self.flush()
        future: Future[None] = Future()
        self._waiting.append((store, batch))
        self._futures.append(future)
        self._n_rows += n_rows
        return future

    def flush(self) -> None:
        """Begin to write what was added."""
        if self._waiting:
            sync = self._side_files.flush()
            self._executor.submit(self._carry_out, self._waiting, self._futures, sync)
            self._waiting, self._futures, self._n_rows = [], [], 0

    def _carry_out(self, batches: Batches, futures: Sequence[Future[None]], sync: Callable[[], None]) -> None:
        try:
            sync()
            failures: Sequence[BaseException | None] = self._write(batches)
        except BaseException as error:  # noqa: BLE001 - it is the caller's, by the futures
            failures = [error] * len(futures)
        for future, failure in zip(futures, failures, strict=True):
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)


class ShardWriter:
    """Writes the commits of *store*, with those of others."""

    def __init__(self, together: Together, store: ShardStore) -> None:
        self._together = together
        self._store = store

    def write(self, batch: Batch) -> Future[None]:
        """Write *batch*, when the others are there."""
        return self._together.add(self._store, batch)

    def flush(self) -> None:
        """Begin to write, with what others are there."""
        self._together.flush()


def one_by_one(batches: Batches) -> list[Exception | None]:
    """Write *batches* one after another, as stores have nothing in common that lie in files of their own.

    Returns:
        Why each was not stored, whatever that is; ``None`` if it was.
    """
    return [_failure(store, batch) for store, batch in batches]


def _failure(store: ShardStore, batch: Batch) -> Exception | None:
    try:
        store.write(batch, sync=True)
    except Exception as error:  # noqa: BLE001 - it is that of this store, and others have landed
        return error
    return None

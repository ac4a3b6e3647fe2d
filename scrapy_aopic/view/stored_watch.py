"""Takes snapshots of a stored job repeatedly, with the speeds that its commits show; any process may crawl it."""

from __future__ import annotations

from collections import deque
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.exceptions import AopicError

from .shard_states import ShardStates, read_states, with_states
from .snapshot import Rate, Snapshot, forecast
from .stored import read_stores, with_surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.place.place import Place


EVERY = 2.0
"""Seconds for which a snapshot is remembered: to open a store takes some 20 ms, and to ask a server a few."""

_COMPARED = 60.0
"""Seconds over which the commits of a job are compared, at most."""

_STORES_EVERY = 10.0
"""Seconds for which the stores of shards are not read again, whose states say most: it reads all hosts that the workers have
in memory, and while they are open these copy what they change."""


class Speeds:
    """How fast a stored job is crawled, as its snapshots of the last minute show."""

    def __init__(self) -> None:
        self._earlier: deque[Snapshot] = deque()

    def added_to(self, now: Snapshot) -> Snapshot:
        """*now* with the speeds of the job and of each of its workers, if there are earlier snapshots to compare it with.

        The speed of a worker is that of the shards that it holds now.
        """
        earlier = self._earlier
        if earlier and not 0 <= now.at - earlier[-1].at <= _COMPARED:
            earlier.clear()  # no earlier snapshot, no commit since, or the clock was set
        if not earlier or earlier[-1].at != now.at:
            earlier.append(now)
        while len(earlier) > 2 and now.at - earlier[0].at > _COMPARED:
            earlier.popleft()
        then = earlier[0]
        seconds = now.at - then.at
        if seconds <= 0 or (now.is_closed and not now.shards.alive):
            return now
        before = {row.shard: row.visited + row.failed for row in then.shards.each}
        done = {
            row.shard: max(row.visited + row.failed - before.get(row.shard, 0), 0) for row in now.shards.each
        }
        by_worker: dict[str | None, int] = {}
        for row in now.shards.each:
            by_worker[row.worker] = by_worker.get(row.worker, 0) + done[row.shard]
        workers = [
            replace(worker, rate=by_worker.get(worker.worker, 0) / seconds) for worker in now.shards.workers
        ]
        n = sum(done.values())
        rate = Rate(
            seconds=seconds,
            pages=n / seconds,
            growth=(now.pages.queued - then.pages.queued) / n if n else None,
        )
        return replace(
            now, rate=rate, forecast=forecast(now.pages, rate), shards=replace(now.shards, workers=workers)
        )


class StoredWatch:
    """Looks at the stored *job*, for any number of threads.

    Args:
        states: :func:`.shard_states.read_states`, or a function like it.
        stores: :func:`.stored.read_stores`, or a function like it.
    """

    def __init__(
        self,
        job: Place,
        *,
        states: Callable[[Place], ShardStates | None] = read_states,
        stores: Callable[[Place, ShardStates | None], Snapshot] = read_stores,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._job = job
        self._states = states
        self._stores = stores
        self._clock = clock
        self._lock = Lock()
        self._speeds = Speeds()
        self._last: Snapshot | None = None
        self._last_at = 0.0
        self._read: Snapshot | None = None
        self._read_at = 0.0

    def snapshot(self) -> Snapshot:
        """The figures of the last commit; if it cannot be read, those of the snapshot before, with the error.

        Raises:
            StorageError: At the first look, if there is no job, or it cannot be read.
        """
        with self._lock:
            now = self._clock()
            if self._last is None or not 0 <= now - self._last_at < EVERY:
                try:
                    self._last = self._look(now)
                except AopicError as error:
                    if self._last is None:
                        raise
                    self._last = replace(self._last, problem=str(error))
                self._last_at = now
            return self._last

    def _look(self, now: float) -> Snapshot:
        states = self._states(self._job)
        if states is None or self._read is None or now - self._read_at >= _STORES_EVERY:
            self._read, self._read_at = self._stores(self._job, states), now
        found = with_states(self._read, states) if states is not None else self._read
        return with_surroundings(self._speeds.added_to(found), self._job)

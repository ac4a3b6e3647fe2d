"""Writes the changes of a crawl to its store, batch by batch, in a thread.

Rule 1: the event loop never waits for the disk. A commit is taken in one step and written by a thread, while the crawl goes
on; there is one at a time.

Rule 2: work is durable within about the interval that is set. If the disk is slower than that, no page is leased
until it has caught up, so that a crash never leaves more unknown than ``Policy.commit_within`` says.

Rule 3: the commits of the shards of a process are written together: one request to a server instead of one for each shard.
They wait some milliseconds until no other is due, and each is stored, or fails, on its own.

Rule 4: a commit is taken only of a state that a crawl can be in. A read that fails may have stopped a step halfway; after
that nothing is committed any more, and the job ends as if its process had died.
"""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

from scrapy_aopic.core.layout import CLOCK_KEY, SEEDS_KEY, Family
from scrapy_aopic.core.ports import Batch, Store, StoreAround, prefetching
from scrapy_aopic.core.records import pack
from scrapy_aopic.exceptions import StorageError, plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_aopic.core.api import Committed
    from scrapy_aopic.seeds.offsets import Offsets

    from .clock import JobClock
    from .side_files import SideFiles

MAX_UNCOMMITTED = 50_000
"""Steps after which a commit is due however long the interval is, so that memory stays flat."""

MAX_CHANGED = 10_000
"""Pages that have changed after which a commit is due, too: the event loop waits while it is taken, some 15 ms for as many,
with their queue rows. Ordinary pages change fewer in half a second; a few with thousands of links change more."""

MOST_ROWS = 4_000
"""Rows that are written together, at most, unless one commit has more: for a server some 5 to 15 ms, for which all its readers
wait."""


class WatchedStore(StoreAround):
    """*store* as the crawl reads it.

    Attributes:
        read_ahead: As of the store.
        prefetch, has_come: Methods of the store; ``None`` if it has none.
        most_steps: Steps of the crawl after which a commit is due however long the interval is.
        failed_read: The error of the first read that failed, maybe in the middle of a step, so that memory holds no state that a
            crawl can be in; ``None`` if none has failed.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read_ahead: int = getattr(store, "read_ahead", 0)
        self.most_steps: int = getattr(store, "most_steps", MAX_UNCOMMITTED)
        self.failed_read: StorageError | None = None
        ahead = prefetching(store)
        self.prefetch = ahead.prefetch if ahead is not None else None
        self.has_come = ahead.has_come if ahead is not None else None

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return self.store.get_many(family, keys)
        except StorageError as error:
            self.failed_read = self.failed_read or error
            raise

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from self.store.scan(family, start, stop)
        except StorageError as error:
            self.failed_read = self.failed_read or error
            raise


Batches: TypeAlias = "Sequence[tuple[Store, Batch]]"
"""Each for a store of its own."""


class JointCommits:
    """Commits that are written together, once what lies beside the stores is on the disk.

    Args:
        submit: Runs a task with its arguments, in a thread.
        write: Writes batches to several stores, and returns why each was not stored; ``None`` if it was.
        side_files: The files beside the stores.
    """

    def __init__(
        self,
        submit: Callable[..., object],
        write: Callable[[Batches], Sequence[Exception | None]],
        side_files: SideFiles,
    ) -> None:
        self._submit = submit
        self._write = write
        self._side_files = side_files
        self._waiting: list[tuple[Store, Batch]] = []
        self._futures: list[Future[None]] = []
        self._n_rows = 0

    def add(self, store: Store, batch: Batch) -> Future[None]:
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
            self._submit(self._carry_out, self._waiting, self._futures, sync)
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


class ShardCommits:
    """Writes the changes of *crawl*, with the clock and the offsets of seed lists in the same batch.

    Args:
        store: Written to.
        watched: The same store, as the crawl reads it.
        interval: Seconds between commits; 0 for one after another, infinite for none before the job is closed.
        shift: Seconds by which the instants at which commits are due, one in each *interval*, are shifted; ``None`` to have each
            commit due an interval after the last one.
        within: Seconds; a commit that landed longer ago than this is too old for another lease.
        name: Name of the job in messages.

    Attributes:
        joint: Writes them together with those of other shards.
        failure: Why the last commit was not stored; ``None`` if it was.
        taken_at: Instant at which the last one was taken.
        on_taken: Called with each batch that is about to be written.
        on_landed: Called when it is stored.
        n_landed: Commits that were stored.
        slowest: Seconds that the slowest of them took.
        last: Seconds that the last of them took.
    """

    def __init__(
        self,
        store: Store,
        watched: WatchedStore,
        crawl: Committed,
        clock: JobClock,
        *,
        offsets: Offsets,
        joint: JointCommits,
        interval: float,
        shift: float | None = None,
        within: float,
        name: str,
    ) -> None:
        self._store = store
        self._watched = watched
        self._crawl = crawl
        self._clock = clock
        self._offsets = offsets
        self._interval = interval
        self._shift = shift
        self._within = within
        self._name = name
        self.joint = joint
        self._write: Future[None] | None = None
        self.taken_at = clock()
        self._saved_at = self.taken_at
        self._steps = 0
        self._is_urgent = False
        self.failure: StorageError | None = None
        self.on_taken: Callable[[Batch], object] = _ignore
        self.on_landed: Callable[[], object] = _ignore
        self.n_landed = 0
        self.slowest = self.last = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether the last commit that landed is too old to lease another page."""
        return self._clock() - self._saved_at > self._within

    @property
    def waits_for_disk(self) -> bool:
        """Whether that is because the disk has not taken the next one yet, and not because there was nothing to commit."""
        return self.is_behind and self._write is not None and not self._write.done()

    @property
    def age(self) -> float:
        """Seconds since the moment of the last commit that landed."""
        return self._clock() - self._saved_at

    @property
    def is_full(self) -> bool:
        """Whether so many pages have changed that a commit is due."""
        return self._crawl.n_changed > MAX_CHANGED

    @property
    def is_writing(self) -> bool:
        """Whether a commit is under way."""
        return self._write is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing is being written, and nothing will be before the end unless more changes."""
        return self._write is None and (not self._crawl.has_changes or self._interval == math.inf)

    def tick(self, steps: int = 1) -> None:
        """Take note of a commit that ended; start the next one when it is due. Never waits.

        Args:
            steps: Steps of the crawl since the last tick; 0 if there will be another one soon.
        """
        self._steps += steps
        if self._write is not None:
            if not self._write.done():
                return
            self.land()
            if not steps and self.is_full:
                return  # to land a commit takes as long as to take one, which the next tick does
        if self._watched.failed_read is not None:
            return
        now = self._clock()
        is_due = (
            self._is_time(now) or self._steps > self._watched.most_steps or self.is_full or self._is_urgent
        )
        if (self._crawl.has_changes and is_due) or (now - self._saved_at > self._within):
            self.take()

    def _is_time(self, now: float) -> bool:
        """Whether another commit is due by the clock."""
        interval, shift = self._interval, self._shift
        if shift is None or not 0 < interval < math.inf:
            return now - self.taken_at >= interval
        return (now - shift) // interval > (self.taken_at - shift) // interval

    def look(self) -> None:
        """Take note of a commit that ended, and begin none."""
        if self._write is not None and self._write.done():
            self.land()

    def commit_soon(self) -> None:
        """Let the next commit begin as soon as none is under way, unless there is to be none before the end."""
        self._is_urgent = self._interval != math.inf

    def take(self, *, is_clean: bool = False) -> None:
        """Start a commit of all that has changed; *is_clean* says that it is the last one."""
        self.taken_at, self._steps, self._is_urgent = self._clock(), 0, False
        changes = self._crawl.take_changes(self.taken_at, is_clean=is_clean)
        rows = {SEEDS_KEY: self._offsets.take(), CLOCK_KEY: pack(self._clock.mark())}
        batch = {**changes, Family.META: {**changes.get(Family.META, {}), **rows}}
        self.on_taken(batch)
        self._write = self.joint.add(self._store, batch)

    def land(self) -> None:
        """Take note of how the commit that was under way ended; waits for it."""
        write, self._write = self._write, None
        if write is None:
            return
        if not write.done():
            self.joint.flush()
        error = write.exception()
        if error is None:
            self._crawl.changes_landed()
            self._offsets.land()
            self._saved_at = self.taken_at
            self.n_landed += 1
            self.last = self._clock() - self.taken_at
            self.slowest = max(self.slowest, self.last)
            self.failure = None
            self.on_landed()
            return
        self._crawl.changes_failed()
        if not isinstance(error, StorageError):
            error = StorageError(f"The job folder {self._name} cannot be written: {plainly(error)}.")
        self.failure = error

    def begin(self, *, is_clean: bool = False) -> None:
        """Start a commit now, once the one that is under way has ended, unless a read has failed."""
        self.land()
        if self._watched.failed_read is None:
            self.take(is_clean=is_clean)

    def commit(self, *, is_clean: bool = False) -> None:
        """Commit now and wait for it, unless a read has failed."""
        self.begin(is_clean=is_clean)
        self.land()


def _ignore(*_: object) -> None:
    """Do nothing."""

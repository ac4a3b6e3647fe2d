"""A job: one crawl on one store, committed in groups from a thread of its own.

The event loop never waits for the disk to take a commit. Group commit makes work durable within about the
interval asked for; if the disk is slower than that, no page is leased until it has caught up, so that a crash
never leaves more unknown than :attr:`Policy.commit_within` says.
"""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.layout import CLOCK_KEY, SEEDS_KEY
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import pack, unpack
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import lock_job, open_store

from .clock import JobClock
from .folder import store_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_aopic.core.graph import Ranking
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Batch, Store
    from scrapy_aopic.storage.lock import Lock

logger = logging.getLogger(__name__)

_JUMP = 5.0
"""Seconds by which the machine's clock may differ from the job's before this is said."""

_RANKED_AT_ONCE = 500
"""Pages that get a new score in one step, some milliseconds of work."""

MAX_UNCOMMITTED = 50_000
"""Steps after which a commit is due however long the interval is, so that memory stays flat."""


def read_taken(store: Store) -> dict[str, int]:
    """Bytes taken up of each list of seeds, as of the last commit in *store*."""
    taken = store.get_many(Family.META, (SEEDS_KEY,))[0]
    return unpack(taken) if taken is not None else {}


class _Watched:
    """What the crawl reads of *store*; a read that fails is told to *failed*."""

    def __init__(self, store: Store, failed: Callable[[StorageError], None]) -> None:
        self._store = store
        self._failed = failed

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return self._store.get_many(family, keys)
        except StorageError as error:
            self._failed(error)
            raise

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from self._store.scan(family, start, stop)
        except StorageError as error:
            self._failed(error)
            raise

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._store.write(batch, sync=sync)

    def size_bytes(self) -> int:
        return self._store.size_bytes()

    def verify(self) -> None:
        self._store.verify()

    def close(self) -> None:
        self._store.close()


class Job:
    """Opens the store of a job, and keeps it up to date with its :class:`~scrapy_aopic.core.crawl.Crawl`.

    Args:
        folder: Job folder; ``None`` for a temporary one that :meth:`close` removes.
        lock: The lock of the job, which the caller holds until :meth:`close` is over; ``None`` to take it here.
        kind: Kind of store (``AOPIC_STORE``).
        interval: Seconds between commits; 0 for one after another, infinite for none before :meth:`close`.
        memory_mb: Size of the store's cache.

    Attributes:
        taken: Bytes taken up of each list of seeds; every commit holds it beside what those seeds changed.
        landed: The same as of the last commit that landed.
        failure: Why the store cannot be used, ``None`` if it can.
        is_torn: Whether a read failed, maybe in the middle of a step. What is in memory is then no state that a crawl
            can be in, so it is never committed: the job ends as if its process had died.

    Raises:
        StorageError: If the store cannot be opened, or does not take the first commit.
    """

    def __init__(
        self,
        folder: Path | None,
        policy: Policy,
        *,
        lock: Lock | None = None,
        kind: str = "auto",
        interval: float = 0.5,
        memory_mb: int = 64,
    ) -> None:
        self._interval = interval
        self._commit_within = policy.commit_within
        self._temporary = None
        self._lock = lock
        self._own_lock: Lock | None = None
        if folder is None and kind != "memory":
            folder = Path(tempfile.mkdtemp(prefix="scrapy-aopic-"))
            self._temporary = folder
        self.folder = folder
        self.failure: StorageError | None = None
        self.is_torn = False
        try:
            if folder is not None and lock is None:
                self._lock = self._own_lock = lock_job(store_folder(folder), "crawl")
            self._store: Store = open_store(
                store_folder(folder) if folder else None, kind, memory_mb=memory_mb
            )
            try:
                self.clock = self._clock()
                self.crawl = Crawl(_Watched(self._store, self._tear), policy, self.clock())
                self.taken = read_taken(self._store)
            except BaseException:
                self._store.close()
                raise
        except BaseException:
            self._let_go()
            raise
        self.landed = self._taken_in_flight = dict(self.taken)
        self._writer = ThreadPoolExecutor(1, "aopic-commit")
        self._write: Future[None] | None = None
        self._ranker: ThreadPoolExecutor | None = None
        self._ranking: Future[Ranking] | None = None
        self._ranked = 0
        self._taken_at = self._saved_at = self.clock()
        self._steps = 0
        self._is_urgent = False
        self.commits = 0
        self.slowest_commit = 0.0
        # Before the first lease, so that a crash is told from a clean stop however soon it comes.
        self._commit()
        assert self._write is not None
        self._write.exception()  # waits
        self._land()
        if self.failure is not None:
            self._writer.shutdown()
            self._store.close()
            self._let_go()
            raise self.failure

    def _clock(self) -> JobClock:
        mark = self._store.get_many(Family.META, (CLOCK_KEY,))[0]
        clock = JobClock(unpack(mark) if mark is not None else ())
        if abs(clock.jump) > _JUMP:
            logger.warning(
                "The clock of this machine is %(jump)+.0f s off that of the job in %(folder)s, because it was set: "
                "the crawl goes on by its own time",
                {"jump": clock.jump, "folder": self.folder},
            )
        return clock

    @property
    def is_behind(self) -> bool:
        """Whether the last commit that landed is too old to lease another page."""
        return self.clock() - self._saved_at > self._commit_within

    def tick(self, steps: int = 1) -> None:
        """Take note of a commit that ended; start the next one when it is due. Never waits.

        Args:
            steps: Of the crawl since the last tick.
        """
        self._steps += steps
        if self._write is not None:
            if not self._write.done():
                return
            self._land()
        if self.is_torn:
            return
        now = self.clock()
        is_due = now - self._taken_at >= self._interval or self._steps > MAX_UNCOMMITTED or self._is_urgent
        if (self.crawl.has_changes and is_due) or (now - self._saved_at > self._commit_within):
            self._commit()

    @property
    def is_lost(self) -> bool:
        """Whether paths lead to another job than this one, which must not be touched."""
        return self._lock is not None and not self._lock.around.is_followed and self._lock.around.is_lost

    def run(self, task: Callable[[], object]) -> Future[object]:
        """Run *task*, which may wait for the disk, between two commits."""
        return self._writer.submit(task)

    def hurry(self) -> None:
        """Let the next commit begin as soon as none is under way, unless there is to be none before the end."""
        self._is_urgent = self._interval != math.inf

    def _tear(self, error: StorageError) -> None:
        if not self.is_torn:
            self.is_torn, self.failure = True, error

    def rank(self) -> None:
        """For an order that looks at the whole graph: compute scores in a thread, give them out bit by bit."""
        if self.is_torn:
            return
        if self._ranking is None:
            task = self.crawl.rescoring()
            if task is not None:
                self._ranker = self._ranker or ThreadPoolExecutor(1, "aopic-rank")
                self._ranking, self._ranked = self._ranker.submit(task), 0
        elif self._ranking.done():
            ranking, self._ranking = self._ranking, None  # one that failed is not looked at again
            scores = ranking.result()
            self._ranked = self.crawl.rescored(scores, self.clock(), self._ranked, _RANKED_AT_ONCE)
            if self._ranked < len(scores):
                self._ranking = ranking

    def _commit(self, *, is_clean: bool = False) -> None:
        self._taken_at, self._steps, self._is_urgent = self.clock(), 0, False
        batch = self.crawl.take_changes(self._taken_at, is_clean=is_clean)
        self._taken_in_flight = dict(self.taken)
        batch[Family.META][SEEDS_KEY] = pack(self.taken)
        batch[Family.META][CLOCK_KEY] = pack(self.clock.mark())
        self._write = self._writer.submit(self._write_to_store, batch)

    def _write_to_store(self, batch: Batch) -> None:
        if self._lock is not None:
            self._lock.check()
        self._store.write(batch, sync=True)

    def _land(self) -> None:
        assert self._write is not None
        write, self._write = self._write, None
        error = write.exception()
        if error is None:
            self.crawl.changes_landed()
            self.landed = self._taken_in_flight
            self._saved_at = self._taken_at
            self.commits += 1
            self.slowest_commit = max(self.slowest_commit, self.clock() - self._taken_at)
            if not self.is_torn:
                self.failure = None
            return
        self.crawl.changes_failed()
        if self.is_torn:
            return
        if not isinstance(error, StorageError):
            error = StorageError(f"The job folder {self.folder} cannot be written: {error!r}.")
        self.failure = error

    def close(self, inspect: Callable[[Store], None] | None = None) -> None:
        """Commit what is left, waiting for it, let *inspect* look at the result, and release the store.

        Raises:
            StorageError: If the last commit failed, or was not made because of a read that failed; the folder then
                holds the state of the one before.
        """
        try:
            if self._write is not None:
                self._write.exception()  # waits
                self._land()
            if not self.is_torn:
                self._commit(is_clean=True)
                assert self._write is not None
                self._write.exception()
                self._land()
            if self.failure:
                raise self.failure
            if inspect is not None:
                inspect(self._store)
        finally:
            self._writer.shutdown()
            if self._ranker is not None:
                self._ranker.shutdown()
            self._store.close()
            self._let_go()

    def _let_go(self) -> None:
        if self._own_lock is not None:
            self._own_lock.release()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

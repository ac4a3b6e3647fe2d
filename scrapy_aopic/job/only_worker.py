"""The worker of a job in one piece: it has the only shard, so what is wrong with that is wrong with the job."""

from __future__ import annotations

import logging
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from scrapy_aopic.core.shards.cut import WHOLE
from scrapy_aopic.exceptions import StorageError, closed_on_error
from scrapy_aopic.storage import Locked
from scrapy_aopic.storage.disk_shard import one_by_one

from .clock import JobClock, read_mark
from .commit_thread import Batches, JointCommits
from .open_shard import OpenShard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic.core.api import Lease
    from scrapy_aopic.core.crawl import Crawl
    from scrapy_aopic.core.graph import Ranking
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.shard import Shard

    from .side_files import SideFiles

_AT_ONCE = 500
"""Pages that get a new score in one step, some milliseconds of work."""


class _Rescoring:
    """Computes scores for the pages of *crawl*, whose order looks at the whole graph, in a thread, and gives them out bit by bit."""

    def __init__(self, crawl: Crawl, clock: Callable[[], float]) -> None:
        self._crawl = crawl
        self._clock = clock
        self._thread: ThreadPoolExecutor | None = None
        self._ranking: Future[Ranking] | None = None
        self._n_given = 0

    def step(self) -> None:
        """Begin when it is time, or give out some scores. Never waits."""
        if self._ranking is None:
            task = self._crawl.scores.task()
            if task is not None:
                self._thread = self._thread or ThreadPoolExecutor(1, "aopic-rank")
                self._ranking, self._n_given = self._thread.submit(task), 0
        elif self._ranking.done():
            ranking, self._ranking = self._ranking, None  # one that failed is not looked at again
            scores = ranking.result()
            self._n_given = self._crawl.rescored(scores, self._clock(), self._n_given, _AT_ONCE)
            if self._n_given < len(scores):
                self._ranking = ranking

    def close(self) -> None:
        """End the thread, waiting for it."""
        if self._thread is not None:
            self._thread.shutdown()


logger = logging.getLogger(__name__)

_JUMP = 5.0
"""Seconds by which the machine's clock may differ from the job's before this is logged."""


class _NoLock:
    """The lock of a store that no other process can take: the lock of the job's folder prevents it."""

    is_fading = False

    def check_lock(self) -> None:
        """Nothing can be lost."""


class OnlyWorker:
    """The worker of the job in *store*, which it closes by :meth:`release`, or if it cannot begin.

    Args:
        name: Name of the job in messages.
        check: Raises an error if the job is no longer ours; called before each write, in the thread that writes.
        interval: Seconds between commits.

    Attributes:
        part: The part of the job that is open in this process; ``None``, as it is in one piece.
        learning: Exchange with other workers of lessons about the topic; ``None``, as there are no others.
        is_quiet: Whether no shard of the job has anything to do, wherever it is, beside what :meth:`~scrapy_aopic.core.api.Figures.has_work` says.
        n_landed: Commits that landed of shards that are no longer open here.
        slowest: Seconds that the slowest of these took.
        clock: The time of the crawl.
        crawl: The shards that are open here, as one crawl.
        shards: These shards by number.

    Raises:
        StorageError: If the store cannot be read, or does not take the first commit.
    """

    part = None
    learning = None
    is_quiet = True
    n_landed = 0
    slowest = 0.0

    def __init__(
        self,
        store: Store,
        name: str,
        policy: Policy,
        *,
        check: Callable[[], object],
        executor: Executor,
        side_files: SideFiles,
        interval: float,
    ) -> None:
        self._check = check
        self._can_be_lost = isinstance(store, Locked)
        with closed_on_error(store.close):
            self.clock = _clock_of(store, name)
            check()
        self._joint = JointCommits(executor.submit, self._write, side_files)
        self._shard = shard = OpenShard(
            store,
            store if isinstance(store, Locked) else _NoLock(),
            policy,
            self.clock,
            WHOLE,
            name=name,
            joint=self._joint,
            interval=interval,
        )
        self.crawl: Shard = shard.shard
        self.shards = {shard.number: shard}
        self._rescoring = _Rescoring(self.crawl, self.clock)
        if self.crawl.is_resumed:
            self._say_how_it_goes_on(name)

    def _write(self, batches: Batches) -> Sequence[Exception | None]:
        self._check()
        return one_by_one(batches)

    def _say_how_it_goes_on(self, name: str) -> None:
        counts, pause = self.crawl.counts, max(self.crawl.paused_until - self.clock(), 0.0)
        logger.info(
            "Resuming the crawl in %(folder)s%(how)s: pages queued: %(queued)d, visited: %(visited)d, hosts: %(hosts)d",
            {
                "folder": name,
                "how": ""
                if self.crawl.was_clean
                else ", which was not closed: what was in flight is queued again, and no host gets a request for "
                f"{pause:.0f} s",
                "queued": counts.queued,
                "visited": counts.visited,
                "hosts": counts.hosts,
            },
        )

    @property
    def failure(self) -> StorageError | None:
        """Why the store cannot be used; ``None`` if it can."""
        return self._shard.failure

    @property
    def is_broken(self) -> bool:
        """Whether a read failed, so that nothing is committed any more: see :mod:`.commit_thread`."""
        return self._shard.watched.failed_read is not None

    @property
    def is_behind(self) -> bool:
        """Whether the last commit that landed is too old to lease another page, or the right to the store may soon be lost."""
        return self._shard.commits.is_behind or (self._can_be_lost and self._shard.is_fading)

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """See :meth:`.job.Job.permit`; a store whose lock cannot expire is always ours."""
        del host
        return partial(self._shard.is_safe, lease) if self._can_be_lost else None

    def tick(self, steps: int) -> bool:
        """Let a commit begin or end, if it is time."""
        self._shard.commits.tick(steps)
        self._joint.flush()
        return False

    def size_bytes(self) -> int | None:
        """Size of the store; ``None`` if that takes a question to a server."""
        return None if self._can_be_lost else self._shard.store.size_bytes()

    def rank(self) -> None:
        """See :meth:`.job.Job.rank`."""
        if not self.is_broken:
            self._rescoring.step()

    def close(self, inspect: Callable[[Store], None] | None) -> None:
        """Commit what is left, waiting for it, though the last commit failed; and let *inspect* look at the store."""
        self._shard.commits.commit(is_clean=True)
        if self.failure is not None:
            raise self.failure
        if inspect is not None:
            inspect(self._shard.store)

    def release(self) -> None:
        """Let others have the store."""
        self._rescoring.close()
        self._shard.close()


def _clock_of(store: Store, name: str) -> JobClock:
    """The clock of the job in *store*."""
    clock = JobClock(read_mark(store))
    if abs(clock.jump) > _JUMP:
        logger.warning(
            "The clock of this machine is %(jump)+.0f s off that of the job in %(folder)s, because it was set: "
            "the crawl goes on by its own time",
            {"jump": clock.jump, "folder": name},
        )
    return clock

"""A job: one crawl on one store, from its opening to its last commit.

What it is made of: the lock of its folder, the store, the crawl with its clock, and the commits that keep the store up to
date with the crawl.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.layout import CLOCK_KEY
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import unpack
from scrapy_aopic.exceptions import LostError
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.seeds.offsets import read_offsets
from scrapy_aopic.storage import Leased, is_safe, lock_job, note_server, open_store
from scrapy_aopic.storage.opening import open_store_at

from .clock import JobClock
from .commit_thread import Commits, OwnWriter, WatchedStore
from .rescoring import Rescoring
from .side_files import SideFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from scrapy_aopic.core.api import Lease, SessionPort
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.records import Link, Page
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.seeds.server_seeds import ServerSeeds
    from scrapy_aopic.storage import Address
    from scrapy_aopic.storage.lock import Lock

    from .shared_learning import SharedLearning

logger = logging.getLogger(__name__)

_JUMP = 5.0
"""Seconds by which the machine's clock may differ from the job's before this is said."""


class PartOfJob(NamedTuple):
    """What a process has of a job in shards.

    Attributes:
        shards: Of the job.
        held: Those of this process.
        workers: Processes that crawl the job.
    """

    shards: int
    held: int
    workers: int


class Job:
    """Opens the store of a job, and keeps it up to date with its :class:`~scrapy_aopic.core.crawl.Crawl`.

    Args:
        folder: Job folder; ``None`` for a temporary one that :meth:`close` removes, or none if there is an *address*.
        address: Of the store, if it is on a server.
        lock: The lock of the job, which the caller holds until :meth:`close` is over; ``None`` to take it here.
        kind: Kind of store (``AOPIC_STORE``).
        interval: Seconds between commits; 0 for one after another, infinite for none before :meth:`close`.
        memory_mb: Size of the store's cache.

    Attributes:
        name: What messages call it.
        clock: The time by which the crawl goes.
        server_seeds: The seeds that wait on a server, if the store is on one.
        offsets: How far the lists of seeds were taken up; each commit holds it beside what those seeds changed.
        side_files: What is written beside the store.

    Raises:
        StorageError: If the store cannot be opened, or does not take the first commit.
    """

    commits_class: ClassVar[type[Commits]] = Commits

    learning: SharedLearning | None = None
    """What other processes learn from its pages for a topic, and what they tell; ``None`` if there are none."""

    def __init__(
        self,
        folder: Path | None,
        policy: Policy,
        *,
        address: Address | None = None,
        lock: Lock | None = None,
        kind: str = "auto",
        interval: float = 0.5,
        memory_mb: int = 64,
    ) -> None:
        self.side_files = SideFiles()
        with ExitStack() as opened:
            if folder is None and address is None and kind != "memory":
                folder = Path(tempfile.mkdtemp(prefix="scrapy-aopic-"))
                opened.callback(partial(shutil.rmtree, folder, ignore_errors=True))
            self.folder = folder
            if folder is not None and lock is None:
                lock = lock_job(store_folder(folder), "crawl")
                opened.callback(lock.release)
            self._lock = lock
            if address is not None and folder is not None:
                note_server(store_folder(folder), address)
            self.server_seeds: ServerSeeds | None = None
            self.name = str(address or folder)
            self._store: Store = (
                open_store_at(address)
                if address is not None
                else open_store(store_folder(folder) if folder else None, kind, memory_mb=memory_mb)
            )
            opened.callback(self._store.close)
            self._leased = self._store if isinstance(self._store, Leased) else None
            self._watched = WatchedStore(self._store)
            self.clock = self._open_clock()
            crawl = Crawl(self._watched, policy, self.clock())
            self.crawl: SessionPort = crawl
            self._crawl = crawl
            self.offsets = read_offsets(self._store)
            self._rescoring = Rescoring(crawl, self.clock)
            opened.callback(self._rescoring.close)
            self._writer = OwnWriter(
                self._watched, lock.check if lock is not None else lambda: None, self.side_files
            )
            opened.callback(self._writer.close)
            self._commits = self.commits_class(
                self._watched,
                crawl,
                self.clock,
                self.offsets,
                writer=self._writer,
                interval=interval,
                within=policy.commit_within,
                name=self.name,
            )
            # Before the first lease, so that a crash is distinguished from a clean stop however soon it comes.
            self._commits.commit()
            if self.failure is not None:
                raise self.failure
            if crawl.is_resumed:
                self._say_how_it_goes_on(crawl)
            self._opened = opened.pop_all()

    def _open_clock(self) -> JobClock:
        mark = self._store.get_many(Family.META, (CLOCK_KEY,))[0]
        clock = JobClock(unpack(mark) if mark is not None else ())
        if abs(clock.jump) > _JUMP:
            logger.warning(
                "The clock of this machine is %(jump)+.0f s off that of the job in %(folder)s, because it was set: "
                "the crawl goes on by its own time",
                {"jump": clock.jump, "folder": self.name},
            )
        return clock

    def _say_how_it_goes_on(self, crawl: Crawl) -> None:
        counts, pause = crawl.counts, max(crawl.paused_until - self.clock(), 0.0)
        logger.info(
            "Resuming the crawl in %(folder)s%(how)s: %(queued)d pages queued, %(visited)d visited, %(hosts)d hosts",
            {
                "folder": self.name,
                "how": ""
                if crawl.was_clean
                else ", which was not closed: what was in flight is queued again, and no host is asked for "
                f"{pause:.0f} s",
                "queued": counts.queued,
                "visited": counts.visited,
                "hosts": counts.hosts,
            },
        )

    @property
    def part(self) -> PartOfJob | None:
        """What this process has of it; ``None`` if it is in one piece."""
        return None

    @property
    def is_torn(self) -> bool:
        """Whether a read failed, so that nothing is committed any more: see :mod:`.commit_thread`."""
        return self._watched.torn is not None

    @property
    def has_torn_shards(self) -> bool:
        """Whether a read of one of its shards failed, about which the job soon decides."""
        return False

    @property
    def failure(self) -> StorageError | None:
        """Why the store cannot be used; ``None`` if it can."""
        return self._watched.torn or self._commits.failure or self.side_files.failure or self._lease_lost()

    def _lease_lost(self) -> LostError | None:
        """Why a store on a server is no longer ours, which may be known before a commit is due."""
        if self._leased is None:
            return None
        try:
            self._leased.check_lease()
        except LostError as error:
            return error
        return None

    @property
    def is_lost(self) -> bool:
        """Whether paths lead to another job than this one, which must not be touched."""
        return self._lock is not None and not self._lock.around.is_followed and self._lock.around.is_lost

    @property
    def is_behind(self) -> bool:
        """Whether the last commit that landed is too old to lease another page, or the right to the store may soon be lost."""
        return self._commits.is_behind or (self._leased is not None and self._leased.is_fading)

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """What says, later, whether the host called *host* may still be requested; ``None`` if it always may.

        It may not while another process may have the store, or may soon have it.

        Args:
            lease: Of the page that is requested; ``None`` if it is none.
        """
        del host, lease
        return None if self._leased is None else partial(is_safe, self._leased)

    @property
    def waits_for_disk(self) -> bool:
        """Whether that is because the disk has not taken the next one yet."""
        return self._commits.waits_for_disk

    @property
    def commits(self) -> int:
        """Commits that were stored."""
        return self._commits.n_landed

    @property
    def slowest_commit(self) -> float:
        """Seconds that the slowest of them took."""
        return self._commits.slowest

    @property
    def last_commit(self) -> float:
        """Seconds that the last of them took."""
        return self._commits.last

    @property
    def commit_age(self) -> float:
        """Seconds since the moment of the last commit that landed."""
        return self._commits.age

    def size_bytes(self) -> int | None:
        """Size of the store; ``None`` if that takes a question to a server."""
        return None if isinstance(self._store, Leased) else self._store.size_bytes()

    @property
    def is_quiet(self) -> bool:
        """Whether nobody else has anything to do for the job."""
        return True

    @property
    def takes_seeds(self) -> bool:
        """Whether lists of seeds are taken up here."""
        return True

    def seed(self, link: Link, now: float, *, worth: float, enriches: bool) -> bool:
        """Queue a page of a list of seeds; see :meth:`scrapy_aopic.core.crawl.Crawl.seed`."""
        del enriches  # the caller sees whether it is known
        return self.crawl.seed(link, now, worth=worth)

    def enrich(self, key: bytes, now: float, worth: float) -> None:
        """Give the known page under *key* the cash of *worth* seeds."""
        self._crawl.enrich(key, now, worth)

    def seeded(self, key: bytes, host: str) -> Page | None:
        """The page of a seed, if it is known."""
        del host
        return self.crawl.page(key)

    def tick(self, steps: int = 1) -> bool:
        """Take note of a commit that ended; start the next one when it is due. Never waits.

        Args:
            steps: Of the crawl since the last tick.

        Returns:
            Whether there may be something to lease now that was not there before.
        """
        self._commits.tick(steps)
        return False

    @property
    def is_full(self) -> bool:
        """Whether so many pages have changed that a commit is due."""
        return self._commits.is_full

    def hurry(self) -> None:
        """Let the next commit begin as soon as none is under way, unless there is to be none before the end."""
        self._commits.hurry()

    def run(self, task: Callable[[], object]) -> Future[object]:
        """Run *task*, which may wait for the disk, between two commits."""
        return self._writer.run(task)

    def rank(self) -> None:
        """For an order that looks at the whole graph: compute scores in a thread, give them out bit by bit."""
        if not self.is_torn:
            self._rescoring.step()

    def close(self, inspect: Callable[[Store], None] | None = None) -> None:
        """Commit what is left, waiting for it, let *inspect* look at the result, and release the store.

        Raises:
            StorageError: If the last commit failed, or was not made because of a read that failed; the folder then
                holds the state of the one before.
        """
        with self._opened:
            self._commits.commit(is_clean=True)
            if self.failure is not None:
                raise self.failure
            if inspect is not None:
                inspect(self._store)

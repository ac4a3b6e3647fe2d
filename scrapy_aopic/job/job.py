"""A job: N shards of a crawl, one for a job in one piece, from their opening to their last commits.

It has the lock of its folder and a worker that opens its shards here (:mod:`.only_worker` or :mod:`.cluster_worker`); each open shard has a store, a crawl, and
the commits that bring the changes of the crawl to the store (:mod:`.open_shard`).
"""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.seeds.offsets import Offsets
from scrapy_aopic.storage import Address, lock_job, note_server, open_store
from scrapy_aopic.storage.opening import open_store_at

from .cluster_worker import ClusterWorker, PartOfJob
from .only_worker import OnlyWorker
from .side_files import SideFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.core.api import Lease, SessionPort
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.records import Link, Page
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.place.shard_places import ShardPlaces
    from scrapy_aopic.seeds.server_seeds import ServerSeeds
    from scrapy_aopic.storage.lock import Lock

    from .open_shard import OpenShard
    from .shared_learning import SharedLearning


class Job:
    """Opens the stores of a job, or this worker's part of them, and keeps them up to date with their crawls.

    Args:
        folder: Job folder; ``None`` for a temporary one that :meth:`close` removes, or none if there is an *address*.
        address: Address of the store, if it is on a server.
        shards: Their number, 1 for a job in one piece. More need an *address*.
        places: Where several shards are; by default on the server. It is closed with the job, or if that cannot be opened.
        lock: The lock of the job, which the caller holds until :meth:`close` is over; ``None`` to take it here.
        kind: Kind of store (``AOPIC_STORE``).
        interval: Seconds between commits; 0 for one after another, infinite for none before :meth:`close`.
        memory_mb: Size of the store's cache.
        server_seeds: The seeds that wait on the server, if there is an *address*.
        topic: The number of the topic that pages are graded for, so that workers share what they learn; ``None`` for none.

    Attributes:
        name: Its name in messages.
        clock: The time of the crawl.
        crawl: All shards that are open here, as one crawl.
        shards: These shards by number.
        learning: Exchange with other workers of lessons about the topic; ``None`` without a topic or other workers.
        server_seeds: The seeds that wait on a server, if the store is on one.
        side_files: Files that are written beside the store.

    Raises:
        StorageError: If a store cannot be opened, or does not take the first commit; of several shards, if the server cannot be
            reached.
    """

    def __init__(
        self,
        folder: Path | None,
        policy: Policy,
        *,
        address: Address | None = None,
        shards: int = 1,
        places: ShardPlaces | None = None,
        lock: Lock | None = None,
        kind: str = "auto",
        interval: float = 0.5,
        memory_mb: int = 64,
        server_seeds: ServerSeeds | None = None,
        topic: int | None = None,
    ) -> None:
        self.side_files = SideFiles()
        self.server_seeds = server_seeds
        self._no_offsets = Offsets({})
        with ExitStack() as opened:
            if folder is None and address is None and kind != "memory":
                folder = Path(tempfile.mkdtemp(prefix="scrapy-aopic-"))
                opened.callback(partial(shutil.rmtree, folder, ignore_errors=True))
            self.folder = folder
            if folder is not None and lock is None:
                lock = lock_job(store_folder(folder), "crawl")
                opened.callback(lock.release)
            self._lock = lock
            self.name = str(address or folder)
            self._executor = ThreadPoolExecutor(1, "aopic-commit")
            worker: OnlyWorker | ClusterWorker
            if address is not None and shards > 1:
                worker = ClusterWorker(
                    folder,
                    policy,
                    address,
                    shards,
                    places=places,
                    executor=self._executor,
                    side_files=self.side_files,
                    interval=interval,
                    server_seeds=server_seeds,
                    topic=topic,
                )
            else:
                if address is not None and folder is not None:
                    note_server(store_folder(folder), address)
                store: Store = (
                    open_store_at(address)
                    if address is not None
                    else open_store(store_folder(folder) if folder else None, kind, memory_mb=memory_mb)
                )
                worker = OnlyWorker(
                    store,
                    self.name,
                    policy,
                    check=lock.check if lock is not None else lambda: None,
                    executor=self._executor,
                    side_files=self.side_files,
                    interval=interval,
                )
            opened.callback(worker.release)
            opened.callback(self._executor.shutdown)
            self._worker = worker
            self.clock = worker.clock
            self.crawl: SessionPort = worker.crawl
            self.shards: Mapping[int, OpenShard] = worker.shards
            self.learning: SharedLearning | None = worker.learning
            self._opened = opened.pop_all()

    # -- state

    @property
    def part(self) -> PartOfJob | None:
        """The part of it that is open in this process; ``None`` if it is in one piece."""
        return self._worker.part

    @property
    def is_broken(self) -> bool:
        """Whether nothing is committed any more, because a read failed; see :mod:`.commit_thread`."""
        return self._worker.is_broken

    @property
    def has_broken_shards(self) -> bool:
        """Whether a read of one of its shards failed: that is dropped if it was lost, else the crawl ends."""
        return any(shard.is_broken for shard in self.shards.values())

    @property
    def failure(self) -> StorageError | None:
        """Why it cannot be used; ``None`` if it can."""
        return self._worker.failure or self.side_files.failure

    @property
    def is_lost(self) -> bool:
        """Whether paths lead to another job than this one, which must not be touched."""
        return self._lock is not None and not self._lock.around.is_followed and self._lock.around.is_lost

    @property
    def is_behind(self) -> bool:
        """Whether nothing may be leased: what landed last is too old, or the right to the stores may soon be lost."""
        return self._worker.is_behind

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """A function that says, whenever it is called, whether the host called *host* may still be requested.

        It may not while another process may have the store, or may soon have it.

        Args:
            lease: Lease of the page that is requested; ``None`` for a request that is not for a page.

        Returns:
            ``None`` if the host may always be requested.
        """
        return self._worker.permit(host, lease)

    @property
    def waits_for_disk(self) -> bool:
        """Whether nothing may be leased of a shard because its store has not taken the next commit yet."""
        return any(shard.commits.waits_for_disk for shard in self.shards.values())

    @property
    def is_full(self) -> bool:
        """Whether so many pages of a shard have changed that a commit is due."""
        return any(shard.commits.is_full for shard in self.shards.values())

    @property
    def commits(self) -> int:
        """Commits of all shards that were stored."""
        return self._worker.n_landed + sum(shard.commits.n_landed for shard in self.shards.values())

    @property
    def slowest_commit(self) -> float:
        """Seconds that the slowest of them took."""
        return max([self._worker.slowest, *(shard.commits.slowest for shard in self.shards.values())])

    @property
    def last_commit(self) -> float:
        """Seconds that the last commit of some shard took."""
        return max((shard.commits.last for shard in self.shards.values()), default=0.0)

    @property
    def commit_age(self) -> float:
        """Seconds since the oldest last commit of a shard that has something to do."""
        now, shards = self.clock(), self.shards.values()
        return max((shard.commits.age for shard in shards if shard.has_work(now)), default=0.0)

    def size_bytes(self) -> int | None:
        """Size of the store; ``None`` if that takes a question to a server."""
        return self._worker.size_bytes()

    @property
    def is_quiet(self) -> bool:
        """Whether no other worker has anything to do for the job."""
        return self._worker.is_quiet

    # -- seeds

    @property
    def takes_seeds(self) -> bool:
        """Whether lists of seeds are taken up here: where shard 0 is, with whose commits their offsets are stored."""
        shard = self.shards.get(0)
        return shard is not None and not shard.is_leaving

    @property
    def offsets(self) -> Offsets:
        """How far the lists of seeds were taken up; each commit of shard 0 holds it beside what those seeds changed."""
        shard = self.shards.get(0)
        return shard.offsets if shard is not None else self._no_offsets

    def seed(self, link: Link, now: float, *, worth: float, enriches: bool) -> bool:
        """Queue a page of a list of seeds; see :meth:`scrapy_aopic.core.shard.Shard.seed`."""
        shard = self.shards[0]
        shard.touch()
        return shard.shard.seed(link, now, worth=worth, enriches=enriches)

    def enrich(self, key: bytes, now: float, worth: float) -> None:
        """Give the known page under *key* of shard 0 the cash of *worth* seeds."""
        shard = self.shards[0]
        shard.touch()
        shard.shard.enrich(key, now, worth)

    def seeded(self, key: bytes, host: str) -> Page | None:
        """The page of a seed, if shard 0 knows it; others know theirs."""
        shard = self.shards.get(0)
        return shard.shard.page(key) if shard is not None and shard.shard.shard_of(host) == 0 else None

    # -- what is due

    def tick(self, steps: int = 1) -> bool:
        """Take note of commits that ended; start the next ones when they are due. Never waits.

        Args:
            steps: Steps of the crawl since the last tick.

        Returns:
            Whether there may be something to lease now that was not there before.
        """
        return self._worker.tick(steps)

    def commit_soon(self) -> None:
        """Let the next commit of each shard begin as soon as none is under way, unless there is to be none before the end."""
        for shard in self.shards.values():
            shard.commits.commit_soon()

    def run(self, task: Callable[[], object]) -> Future[object]:
        """Run *task*, which may wait for the disk, between two commits."""
        return self._executor.submit(task)

    def rank(self) -> None:
        """For an order that looks at the whole graph: compute scores in a thread, give them out bit by bit."""
        self._worker.rank()

    def close(self, inspect: Callable[[Store], None] | None = None) -> None:
        """Commit what is left, waiting for it, let *inspect* look at the result, and release the stores.

        Raises:
            StorageError: If the last commit failed, or was not made because of a read that failed; the job then is in the state
                of the one before.
        """
        with self._opened:
            self._worker.close(inspect)

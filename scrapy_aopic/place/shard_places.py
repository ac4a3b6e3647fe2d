"""What a worker reaches: the rows of shards on the server, which are anybody's, or the shards in a job folder."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.ports import Batch, Store
from scrapy_aopic.core.revisits.rounds import last_round
from scrapy_aopic.core.shards.cut import ShardId
from scrapy_aopic.core.shards.rebuilt_mail import start_lost_shard
from scrapy_aopic.exceptions import InUseError, LostError, StorageError, closed_on_error
from scrapy_aopic.storage import Address, closing_all, exists, note_server
from scrapy_aopic.storage.disk_shard import LEAST_MB, DiskShard, number_of, one_by_one
from scrapy_aopic.storage.folder_workers import await_end, registry_of
from scrapy_aopic.storage.homes import claim, machine_path, read_homes, read_lost_shard
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.worker_registry import ClusterState, WorkerRegistry

from .folder_place import FolderPlace, store_folder
from .server_place import ServerPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.storage.lock import Lock
    from scrapy_aopic.storage.redis.sharding import Sharding


logger = logging.getLogger(__name__)


class ShardStore(Store, Protocol):
    """The store of a shard, which nobody else may change."""

    @property
    def run(self) -> bytes:
        """The run of the server that has its rows: it is lost after that, and what other runs have said of it does not count.

        Empty if its rows are on a disk of this machine.
        """

    @property
    def head(self) -> bytes:
        """What names its last commit, as no other commit is named."""

    def check_lock(self) -> None:
        """Do nothing if nobody else may change it, as far as that is known without waiting.

        Raises:
            LostError: If it is lost to somebody else.
        """

    @property
    def is_fading(self) -> bool:
        """Whether it may soon be lost, so that nothing new should be begun."""


class ShardPlaces:
    """Where the shards of a job are, as one worker sees it: on the server, or in job folders.

    Attributes:
        registry: This worker's way to the others; whoever uses it closes it.
        reach: The shards that this worker may open, and all others that have the same home.
        failure: Why this worker may go on with no shard at all; ``None`` if it may go on.
    """

    registry: WorkerRegistry
    reach: Sequence[int]
    failure: StorageError | None = None

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> ShardStore:
        """Open the store of a shard, in a thread; *cluster* is what the last exchange read.

        Raises:
            InUseError: If another worker has it open, or it cannot be opened yet.
            StorageError: If it cannot be opened.
        """
        raise NotImplementedError

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> Sequence[Exception | None]:
        """Write *batches*, in a thread, each to a store that it has opened: one after another if they are in files of their own.

        Returns:
            Why each was not stored; ``None`` if it was.
        """
        return one_by_one(batches)

    def last_round(self) -> tuple[int, float, float]:
        """Number, beginning and end of the last round of revisits that the shards know; the end is 0 if it is not over."""
        with suppress(StorageError), closing_all(self._snapshots()) as stores:  # one was never open
            return last_round(stores)
        return 0, 0.0, 0.0

    def _snapshots(self) -> Sequence[Store]:
        raise NotImplementedError

    def log_unowned(self, numbers: Sequence[int]) -> None:
        """Log where the shards *numbers* are, which nobody has open and this worker cannot reach; in a thread."""

    def close(self) -> None:
        """Let others have what this worker has, all of which is closed."""


class InFolder(ShardPlaces):
    """Shards whose stores are in one job folder, for all workers of this machine: whoever has the lock of one has the shard.

    The disk decides what a shard is like: one that was open elsewhere, and is there as of an earlier commit, is an old copy.

    Args:
        job: The folder, which has such a job, or a part of it.
        board: Where the workers of the job hear of each other.
        lock: A lock beside it that this worker has; if that is lost, the folder was moved or replaced.
        policy: Policy of the crawl.
        kind: Kind of the stores (``AOPIC_STORE``).
        memory_mb: Size of the caches of all stores together.

    Raises:
        StorageError: If the board of the workers cannot be used, or, of a part, the folder has no shards or another place has it.
    """

    def __init__(
        self,
        job: FolderPlace,
        board: Address,
        lock: Lock,
        sharding: Sharding,
        policy: Policy,
        *,
        kind: str,
        memory_mb: int,
    ) -> None:
        self._job = job
        self._board = board
        self._lock = lock
        self._sharding = sharding
        self._policy = policy
        self._kind = kind
        self._anew: Mapping[int, int] = {}
        self._said: set[tuple[int, str]] = set()
        self._stores = dict(enumerate(job.stores(sharding)))
        part = job.read_part()
        home, path = (part.name, machine_path(job.folder)) if part is not None else ("", "")
        self.registry = registry_of(board, sharding, self._stores, home, path)
        with closed_on_error(self.registry.close):
            if part is not None:
                await_end(self.registry, {home}, board.lock_timeout, path)
                self._claim(home, path)
        self.reach = [*self._stores]
        self._memory_mb = max(memory_mb // len(self.reach), LEAST_MB)

    def _claim(self, home: str, path: str) -> None:
        """Find out which shards are this folder's, or get some."""
        here = self._job.shards_here()
        homes = claim(self._board, self._sharding, home, path, here)
        self._anew = homes.anew
        elsewhere = [number for number in here if homes.of[number] != home]
        for number in [*self._stores]:
            if homes.of.get(number) != home:
                del self._stores[number]
        if not self._stores:
            raise StorageError(
                f"The folder {self._job} has no shard of the job in {self._board}: they are "
                f"{homes.where(elsewhere or range(self._sharding.shards))}. 'scrapy aopic move' moves some to it. Nothing was changed."
            )
        if elsewhere:
            logger.warning(
                "Ignoring the local copies of shards %(shards)s in %(folder)s: they are %(where)s",
                {
                    "folder": self._job,
                    "shards": ", ".join(map(str, elsewhere)),
                    "where": homes.where(elsewhere),
                },
            )

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> ShardStore:
        """Open the store of a shard, if no other worker has it open, unless others have seen more of it than it holds."""
        last = cluster.states.get(number) if cluster is not None else None
        seen, folder = number_of(last.head) if last is not None else 0, self._stores[number]
        is_lost = bool(seen) and self._anew.get(number) == seen
        if seen and not is_lost and not exists(folder):
            raise StorageError(
                f"Shard {number} of the job in {self._board} is not in {folder} any more: put it back, or, if it is lost, let it begin "
                "anew with 'scrapy aopic move --lost'. Nothing was changed."
            )
        store = DiskShard(folder, self._kind, memory_mb=self._memory_mb)
        with closed_on_error(store.close):
            if is_lost and store.number == 0:
                store.number = seen
                self._start_lost(store, number, clock(), cluster.workers if cluster is not None else ())
            elif store.number < seen:
                raise StorageError(
                    f"Shard {number} in {folder} is as of its commit {store.number:,}, and others have seen number {seen:,}: it is an "
                    "older copy. Put the last one back, or, if that is lost, go on with what this one has: 'scrapy aopic salvage' says "
                    "how. Nothing was changed."
                )
        return store

    def _start_lost(self, store: DiskShard, number: int, now: float, alive: Iterable[str]) -> None:
        """Begin the shard of that *number* anew in *store*, by what the server knows of it and with what was salvaged there.

        Args:
            now: Seconds since the epoch.
            alive: Tokens of the workers that live.

        Raises:
            InUseError: If others may know more of it, and are to be opened first; nothing was written then.
            StorageError: If the server cannot be reached, or something is damaged.
        """
        shard = ShardId(number, self._sharding.shards)
        known, state, awaited = read_lost_shard(self._board, shard, alive)
        if awaited:
            self._say_awaited(number, awaited)
            raise InUseError(f"Shard {number} waits for others.")
        saved = read_totals(store)
        store.write(start_lost_shard(shard, known, self._policy, now, store), sync=True)
        counts = state.counts if state is not None else (0, 0, 0, 0)
        logger.warning(
            "Shard %(number)d of the crawl in %(folder)s begins anew, because its disk is lost: of its %(pages)d pages, %(visited)d "
            "of them visited, %(salvaged)d were salvaged; all others are found again as links and seeds lead to them, and their cash "
            "is with the virtual page",
            {
                "number": number,
                "folder": self._board,
                "pages": sum(counts[:3]),
                "visited": counts[1],
                "salvaged": saved.pages if saved is not None else 0,
            },
        )

    def _snapshots(self) -> Sequence[Store]:
        stores = self._job.open_snapshots()
        return [stores[number] for number in self._job.shards_here()]

    def _say_awaited(self, number: int, awaited: Sequence[int]) -> None:
        """Log which shards the lost one with this *number* waits for, if that is new."""
        named = ", ".join(map(str, awaited))
        if (number, named) not in self._said:
            self._said.add((number, named))
            logger.warning(
                "Shard %(number)d of the crawl in %(folder)s will be rebuilt once shards %(shards)s have been opened again: they may "
                "know more of it, and are %(where)s. Start their workers, or declare them lost as well",
                {
                    "number": number,
                    "folder": self._board,
                    "shards": named,
                    "where": read_homes(self._board).where(awaited),
                },
            )

    def log_unowned(self, numbers: Sequence[int]) -> None:
        """Log it."""
        with suppress(StorageError):  # it is logged elsewhere that the server is out of reach
            logger.warning(
                "No worker has shards %(shards)s open, so what they get waits: they are %(where)s",
                {"shards": ", ".join(map(str, numbers)), "where": read_homes(self._board).where(numbers)},
            )

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> Sequence[Exception | None]:
        """Write *batches* one after another, between two looks of others at the job (:meth:`.folder_place.FolderPlace.open_snapshots`)."""
        try:
            self._lock.check()
            with self._job.committing():
                return one_by_one(batches)
        except LostError as error:
            self.failure = error
            raise


class OnServer(ShardPlaces):
    """Shards whose stores are on the server: whoever has the lock of one may open it, for so long.

    Args:
        folder: Job folder of the worker, if it has one.
        shards: Of the job at *address*.

    Raises:
        StorageError: If the server cannot be reached, or the folder is of another job.
    """

    def __init__(self, folder: Path | None, address: Address, shards: int) -> None:
        from scrapy_aopic.storage.redis.store import StoreGroup  # noqa: PLC0415 (only for jobs on a server)

        if folder is not None:
            note_server(store_folder(folder), address)
        self.reach = range(shards)
        self._address = address
        self._group = StoreGroup(address)
        with closed_on_error(self._group.close):
            self.registry = WorkerRegistry(address, shards)

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> ShardStore:
        """Open the store of a shard, if no other worker has it open."""
        del cluster, clock
        return open_store_at(self._address.of_shard(number), is_one_of_many=True, group=self._group)

    def _snapshots(self) -> Sequence[Store]:
        return ServerPlace(self._address).open_snapshots()

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> Sequence[Exception | None]:
        """Write *batches* as one transaction; see :mod:`scrapy_aopic.storage.redis.transaction`."""
        return self._group.write(batches)

    def close(self) -> None:
        """Close the connections that the stores share."""
        self._group.close()

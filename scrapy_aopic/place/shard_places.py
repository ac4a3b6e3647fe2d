"""Where the shards of a job are, and which of them a worker may open: those on the server are anybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scrapy_aopic.core.ports import Batch, Store
from scrapy_aopic.exceptions import LostError, closed_on_error
from scrapy_aopic.storage import Address, note_server
from scrapy_aopic.storage.disk_shard import LEAST_MB, DiskShard, one_by_one
from scrapy_aopic.storage.folder_workers import registry_in
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.worker_registry import ClusterState, WorkerRegistry

from .paths import store_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.storage.lock import Lock
    from scrapy_aopic.storage.redis.sharding import Sharding

    from .folder_place import FolderPlace


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
        registry: This worker's way to the server; whoever uses it closes it.
        pause: Seconds between exchanges with the other workers: what a hand-over takes.
        own: The shards that this worker has, which no other may open; ``None`` if any worker may open any.
    """

    registry: WorkerRegistry
    pause = 0.2
    own: Sequence[int] | None = None
    _lost: StorageError | None = None

    @property
    def failure(self) -> StorageError | None:
        """Why this worker may go on with no shard at all; ``None`` if it may go on."""
        return self._lost

    @property
    def is_fading(self) -> bool:
        """Whether that may soon be so, so that nothing new should be begun in any shard."""
        return False

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> ShardStore:
        """Open the store of a shard, in a thread; *cluster* is what the last exchange read.

        Raises:
            InUseError: If another worker has it open.
            StorageError: If it cannot be opened.
        """
        raise NotImplementedError

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> Sequence[Exception | None]:
        """Write *batches*, in a thread, each to a store that it has opened: one after another if they are in files of their own.

        Returns:
            Why each was not stored; ``None`` if it was.
        """
        return one_by_one(batches)

    def log_unowned(self, numbers: Sequence[int]) -> None:
        """Log where the shards *numbers* are, which no worker has open, unless somebody soon has; in a thread."""

    def close(self) -> None:
        """Let others have what this worker has, all of which is closed."""


class InFolder(ShardPlaces):
    """Shards whose stores are in one job folder, for all workers of this machine: whoever has the lock of one has the shard.

    Args:
        job: The folder, which has such a job.
        lock: A lock beside it that this worker has; if that is lost, the folder was moved or replaced.
        kind: Kind of the stores (``AOPIC_STORE``).
        memory_mb: Size of the caches of all stores together.

    Raises:
        StorageError: If the board of the workers cannot be opened.
    """

    def __init__(
        self, job: FolderPlace, lock: Lock, sharding: Sharding, *, kind: str, memory_mb: int
    ) -> None:
        self._job = job
        self._stores = job.stores(sharding)
        self._lock = lock
        self._kind = kind
        self._memory_mb = max(memory_mb // len(self._stores), LEAST_MB)
        self.registry = registry_in(job.folder, self._stores)

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> ShardStore:
        """Open the store of a shard, if no other worker has it open."""
        del cluster, clock
        return DiskShard(self._stores[number], self._kind, memory_mb=self._memory_mb)

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> Sequence[Exception | None]:
        """Write *batches* one after another, between two looks of others at the job (:meth:`.folder_place.FolderPlace.open_snapshots`)."""
        try:
            self._lock.check()
            with self._job.committing():
                return one_by_one(batches)
        except LostError as error:
            self._lost = error
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
        self._address = address
        self._group = StoreGroup(address)
        with closed_on_error(self._group.close):
            self.registry = WorkerRegistry(address, shards)

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> ShardStore:
        """Open the store of a shard, if no other worker has it open."""
        del cluster, clock
        return open_store_at(self._address.of_shard(number), is_one_of_many=True, group=self._group)

    def write(self, batches: Sequence[tuple[Store, Batch]]) -> Sequence[Exception | None]:
        """Write *batches* as one transaction; see :mod:`scrapy_aopic.storage.redis.transaction`."""
        return self._group.write(batches)

    def close(self) -> None:
        """Close the connections that the stores share."""
        self._group.close()

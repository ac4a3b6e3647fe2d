"""A job in shards that are on the disks of the workers: each worker has those in its job folder.

Rule 1: a shard has a home, and is opened nowhere else: there is no hand-over, and no worker takes the shards of one that has
died. Their mail waits until it is back, or until an operator declares them lost (:mod:`scrapy_aopic.copies.moving`).

Rule 2: the disk decides. A worker that comes back after its lock has expired, or after a crash, opens its shards at their last
commits and shows those. If others have seen later ones, the folder is an old copy, and it is refused.

Rule 3: a worker that has lost its lock, or cannot reach the server for as long, ends: an operator may have declared its
shards lost.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.shard import ShardId
from scrapy_aopic.core.shards.rebuilt_mail import start_lost_shard
from scrapy_aopic.exceptions import InUseError, LostError, StorageError, closed_on_error
from scrapy_aopic.place.paths import Home, read_home, shard_folder, shards_on_disk, store_folder, write_home
from scrapy_aopic.place.shard_places import ShardPlaces
from scrapy_aopic.storage import Address, exists
from scrapy_aopic.storage.disk_shard import LEAST_MB, DiskShard, number_of
from scrapy_aopic.storage.disk_workers import (
    Homes,
    InHomes,
    claim,
    machine_path,
    new_name,
    read_homes,
    read_lost_shard,
)
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.server_lock import ServerLock
from scrapy_aopic.storage.redis.worker_registry import ClusterState, WorkerRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.storage.redis.sharding import Sharding


logger = logging.getLogger(__name__)

_PAUSE = 0.5
"""Seconds between exchanges with the other workers: as long as a commit takes to be due. No shard waits for a hand-over here, and
what is left for the server to do is mostly this."""


class OnDisk(ShardPlaces):
    """The shards of the job at *address* that are in *folder*, with the lock of it.

    Args:
        sharding: How the job is cut.
        policy: Policy of its crawl.
        kind: Kind of the stores (``AOPIC_STORE``).
        memory_mb: Size of the caches of all stores together.

    Attributes:
        own: Shards that are at home in the folder.

    Raises:
        StorageError: If the server cannot be reached, the folder is of another job or in use, or it has no shard.
    """

    def __init__(
        self, folder: Path, address: Address, sharding: Sharding, policy: Policy, *, kind: str, memory_mb: int
    ) -> None:
        self.pause = _PAUSE
        self._folder = folder
        self._address = address
        self._sharding = sharding
        self._policy = policy
        self._kind = kind
        self._awaited: dict[int, Sequence[int]] = {}
        home = open_home(folder, address, sharding.shards)
        where = address.of_home(home.name)
        self._lock = ServerLock(where, Keys(where), task="crawl")
        with closed_on_error(self._lock.close):
            self._homes, own = self._claim(home.name)
            self.own: Sequence[int] | None = own
            self._memory_mb = max(memory_mb // len(own), LEAST_MB)
            places = InHomes(address, sharding.shards, self._lock, home.name)
            self.registry = WorkerRegistry(address, sharding.shards, places)

    def _claim(self, name: str) -> tuple[Homes, Sequence[int]]:
        """Where all shards are, and which of them are in the folder."""
        folder, on_disk = self._folder, shards_on_disk(self._folder)
        homes = claim(self._address, self._sharding, name, machine_path(folder), on_disk)
        own = sorted(number for number, each in homes.of.items() if each == name)
        elsewhere = [number for number in on_disk if number not in own]
        if not own:
            where = _where(homes, elsewhere or [*range(self._sharding.shards)])
            raise StorageError(
                f"The folder {folder} has no shard of the job in {self._address}: {where}. "
                "'scrapy aopic move' moves some to it. Nothing was changed."
            )
        if elsewhere:
            logger.warning(
                "Ignoring the local copies of shards %(shards)s in %(folder)s: %(where)s",
                {
                    "folder": folder,
                    "shards": ", ".join(map(str, elsewhere)),
                    "where": _where(homes, elsewhere),
                },
            )
        return homes, own

    @property
    def failure(self) -> StorageError | None:
        """Why the folder may not be crawled any more; ``None`` if it may."""
        try:
            self._lock.check()
        except LostError as error:
            return error
        return None

    @property
    def is_fading(self) -> bool:
        """Whether half of the lock's time has passed without a renewal."""
        return self._lock.is_fading

    def open_store(self, number: int, cluster: ClusterState | None, clock: Callable[[], float]) -> DiskShard:
        """Open the store of a shard, unless others have seen more of it than it holds."""
        last = cluster.states.get(number) if cluster is not None else None
        seen = number_of(last.head) if last is not None else 0
        job = shard_folder(self._folder, number)
        is_lost = self._homes.anew.get(number) == seen
        if seen and not is_lost and not exists(store_folder(job)):
            raise StorageError(
                f"Shard {number} of the job in {self._address} is at home in {self._folder}, and is not there any more: put "
                f"{job} back, or, if it is lost, let it begin anew with 'scrapy aopic move --lost'. Nothing was changed."
            )
        store = DiskShard(store_folder(job), self._kind, memory_mb=self._memory_mb)
        with closed_on_error(store.close):
            if is_lost and store.number == 0:
                self._begin_anew(number, store, seen, clock(), cluster.workers if cluster is not None else ())
            elif store.number < seen:
                raise StorageError(
                    f"Shard {number} in {job} is as of its commit {store.number:,}, and others have seen number {seen:,}: it is an "
                    "older copy. Put the last one back, or, if that is lost, remove this one and let the shard begin anew "
                    "with 'scrapy aopic move --lost'. Nothing was changed."
                )
        return store

    def _begin_anew(
        self, number: int, store: DiskShard, seen: int, now: float, alive: Collection[str]
    ) -> None:
        record = read_lost_shard(self._address, self._sharding, number)
        ended = record.state.worker if record.state is not None else ""
        awaited = [n for n, worker in record.unsure.items() if worker == ended or worker not in alive]
        if awaited:
            self._say_awaited(number, awaited)
            raise InUseError(f"Shard {number} waits for others.")
        store.number = seen
        saved = read_totals(store)
        shard = ShardId(number, self._sharding.shards)
        store.write(start_lost_shard(shard, record, self._policy, now, store), sync=True)
        counts = record.state.counts if record.state is not None else (0, 0, 0, 0)
        logger.warning(
            "Shard %(number)d of the crawl in %(folder)s begins anew, because its disk is lost: of its %(pages)d pages, %(visited)d "
            "of them visited, %(salvaged)d were salvaged; all others are found again as links and seeds lead to them, and their cash "
            "is with the virtual page",
            {
                "number": number,
                "folder": self._address,
                "pages": sum(counts[:3]),
                "visited": counts[1],
                "salvaged": saved.pages if saved is not None else 0,
            },
        )

    def _say_awaited(self, number: int, awaited: Sequence[int]) -> None:
        if self._awaited.get(number) == awaited:
            return
        self._awaited[number] = awaited
        logger.warning(
            "Shard %(number)d of the crawl in %(folder)s will be rebuilt once shards %(shards)s have been opened again: they may "
            "hold letters that the server no longer has, and %(where)s. Start their workers, or declare them lost as well",
            {
                "number": number,
                "folder": self._address,
                "shards": ", ".join(map(str, awaited)),
                "where": _where(read_homes(self._address), awaited),
            },
        )

    def log_unowned(self, numbers: Sequence[int]) -> None:
        """Log where the shards *numbers* are, which no worker has open."""
        with suppress(StorageError):  # it is logged elsewhere that the server is out of reach
            logger.warning(
                "No worker has shards %(shards)s open, so what they get waits: %(where)s",
                {"shards": ", ".join(map(str, numbers)), "where": _where(read_homes(self._address), numbers)},
            )

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()


def open_home(folder: Path, address: Address, shards: int) -> Home:
    """The record of the shards in *folder*, whose lock the caller has; a new folder becomes a home of some.

    Raises:
        StorageError: If it has shards of another job.
    """
    home = read_home(folder)
    if home is None:
        home = Home(new_name(), str(address), shards)
        write_home(folder, home)
    elif (home.job.partition("#")[2], home.shards) != (address.key, shards):
        raise StorageError(
            f"The folder {folder} holds shards of the job in {home.job}, which has {home.shards}, and not of {address}: choose "
            "another JOBDIR."
        )
    return home


def _where(homes: Homes, numbers: Sequence[int]) -> str:
    """Where the shards *numbers* are, as the end of a sentence."""
    places = sorted({homes.place(number) for number in numbers})
    return f"{'they are' if len(numbers) > 1 else 'it is'} at home in {', '.join(places)}"

"""A shard that this process has open: its store, its crawl and its commits. A job in one piece is one shard.

Rule: it is open up to the commit that says that a crash from here on is one. Any thread may do that; from there on the event
loop alone touches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.api import Ending, Lease
from scrapy_aopic.core.shard import Shard, ShardId
from scrapy_aopic.exceptions import LostError, StorageError, closed_on_error
from scrapy_aopic.seeds.offsets import read_offsets
from scrapy_aopic.storage import Locked, is_safe
from scrapy_aopic.storage.disk_shard import one_by_one

from .commit_thread import JointCommits, ShardCommits, WatchedStore
from .side_files import SideFiles

if TYPE_CHECKING:
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store

    from .clock import JobClock


class OpenShard:
    """The shard *shard_id* of a job, whose *store* is the caller's own.

    Args:
        owner: Says whether *store* is still this process's.
        policy: How its cash is spent; not shared with other shards.
        name: Its name in messages.
        joint: Writes its commits together with those of other shards, from the second on.
        interval: Seconds between commits.
        shift: See :class:`~.commit_thread.ShardCommits`.

    Attributes:
        number: Which shard it is.
        store: Its store.
        watched: The same store, as the crawl reads it.
        shard: Its crawl.
        offsets: How far lists of seeds were taken up.
        commits: Writes the changes of its crawl.
        is_leaving: Whether it is to be handed over; nothing is leased from it then.

    Raises:
        StorageError: If it cannot be opened; the store is closed then.
    """

    def __init__(
        self,
        store: Store,
        owner: Locked,
        policy: Policy,
        clock: JobClock,
        shard_id: ShardId,
        *,
        name: str,
        joint: JointCommits,
        interval: float,
        shift: float | None = None,
    ) -> None:
        self.number = shard_id.number
        self.is_leaving = False
        self.store = store
        self._owner = owner
        with closed_on_error(store.close):
            self.watched = WatchedStore(store)
            self.shard = Shard(self.watched, policy, clock(), shard_id)
            self.offsets = read_offsets(store)
            self.commits = ShardCommits(
                store,
                self.watched,
                self.shard,
                clock,
                offsets=self.offsets,
                joint=JointCommits(lambda task, *args: task(*args), one_by_one, SideFiles()),
                interval=interval,
                shift=shift,
                within=policy.commit_within,
                name=name,
            )
            self.commits.commit()
            if self.commits.failure is not None:
                raise self.commits.failure
        self.commits.joint = joint

    @property
    def failure(self) -> StorageError | None:
        """Why it cannot be used any more; ``None`` if it can. A :class:`LostError` concerns this shard only."""
        return self._loss or self.watched.failed_read or self.commits.failure

    @property
    def _loss(self) -> LostError | None:
        """Why its store is no longer this process's, which may be known before a commit is due."""
        try:
            self._owner.check_lock()
        except LostError as error:
            return error
        return None

    @property
    def is_lost(self) -> bool:
        """Whether its store is no longer this process's."""
        return self._loss is not None

    @property
    def is_broken(self) -> bool:
        """Whether it cannot be used any more: a read failed, or what was read is at odds with what other shards have."""
        return self.watched.failed_read is not None

    def mark_broken(self, error: StorageError) -> None:
        """Use it no more because of *error*: what is in memory may be wrong, so nothing is committed."""
        self.watched.failed_read = self.watched.failed_read or error

    @property
    def is_fading(self) -> bool:
        """Whether its store may soon be lost to another process."""
        return self._owner.is_fading

    def is_safe(self, lease: Lease | None) -> bool:
        """Whether a host of it may still be requested, because no other process can have the shard meanwhile.

        Args:
            lease: Lease of the page that is requested; ``None`` for a request that is not for a page.
        """
        is_held = lease is None or self.shard.leases.standing(lease) == Ending.OK
        return is_safe(self._owner) and is_held

    def has_work(self, now: float) -> bool:
        """Whether it has pages to fetch, or changes to store that are not stored yet."""
        return self.shard.has_changes or self.commits.is_writing or self.shard.has_work(now)

    def touch(self) -> None:
        """Something changes that the session does not report by a tick."""

    def close(self) -> None:
        """Let others have it. May take long, and may be called by any thread."""
        self.store.close()

"""A worker: this process, as one that crawls shards of a job. It has the only shard (:mod:`.only_worker`), or some of several
(:mod:`.cluster_worker`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.core.api import Lease, SessionPort
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.exceptions import StorageError

    from .clock import JobClock
    from .open_shard import OpenShard
    from .shared_learning import SharedLearning


class PartOfJob(NamedTuple):
    """The part of a job in shards that a process has.

    Attributes:
        shards: Number of shards of the job.
        held: Number of those that this process has.
        workers: Number of processes that crawl the job.
    """

    shards: int
    held: int
    workers: int


class Worker(Protocol):
    """Decides which shards of a job are open here, and whether they may be used.

    Attributes:
        clock: The time of the crawl.
        crawl: The shards that are open here, as one crawl.
        shards: These shards by number.
        learning: Exchange with other workers of lessons about the topic; ``None`` without a topic or other workers.
    """

    @property
    def clock(self) -> JobClock: ...

    @property
    def crawl(self) -> SessionPort: ...

    @property
    def shards(self) -> Mapping[int, OpenShard]: ...

    @property
    def learning(self) -> SharedLearning | None: ...

    @property
    def part(self) -> PartOfJob | None:
        """The part of the job that is open in this process; ``None`` if it is in one piece."""

    @property
    def failure(self) -> StorageError | None:
        """Why it cannot go on; ``None`` if it can. A shard that others may open is no reason."""

    @property
    def is_broken(self) -> bool:
        """Whether nothing may be changed any more, because a read failed that was needed."""

    @property
    def is_behind(self) -> bool:
        """Whether nothing may be leased: what landed last is too old, or the right to the stores may soon be lost."""

    @property
    def is_quiet(self) -> bool:
        """Whether no shard of the job has anything to do, wherever it is, beside what :meth:`SessionPort.has_work` says."""

    @property
    def n_landed(self) -> int:
        """Commits that landed of shards that are no longer open here."""

    @property
    def slowest(self) -> float:
        """Seconds that the slowest of these took."""

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """See :meth:`.job.Job.permit`."""

    def tick(self, steps: int) -> bool:
        """See :meth:`.job.Job.tick`."""

    def size_bytes(self) -> int | None:
        """Size of the stores; ``None`` if that takes a question to a server."""

    def rank(self) -> None:
        """See :meth:`.job.Job.rank`."""

    def close(self, inspect: Callable[[Store], None] | None) -> None:
        """See :meth:`.job.Job.close`; stores may stay open until :meth:`release`."""

    def release(self) -> None:
        """Let others have the shards that were open."""

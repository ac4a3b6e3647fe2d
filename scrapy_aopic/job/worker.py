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
    """What a process has of a job in shards.

    Attributes:
        shards: Of the job.
        held: Those of this process.
        workers: Processes that crawl the job.
    """

    shards: int
    held: int
    workers: int


class Worker(Protocol):
    """What decides which shards of a job are open here, and whether they may be used.

    Attributes:
        clock: The time by which the crawl goes.
        crawl: The shards that are open here, as one crawl.
        shards: Them, by number.
        learning: What other workers learn from its pages for a topic, and what they tell; ``None`` if there is no topic, or
            nobody else.
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
        """What this process has of the job; ``None`` if that is in one piece."""
        ...

    @property
    def failure(self) -> StorageError | None:
        """Why it cannot go on; ``None`` if it can. A shard that others may open is no reason."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether nothing may be changed any more, because a read failed that was needed."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether nothing may be leased: what landed last is too old, or the right to the stores may soon be lost."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether no shard of the job has anything to do, wherever it is, beside what :meth:`SessionPort.has_work` says."""
        ...

    @property
    def n_landed(self) -> int:
        """Commits that landed of shards that are no longer open here."""
        ...

    @property
    def slowest(self) -> float:
        """Seconds that the slowest of these took."""
        ...

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """See :meth:`.job.Job.permit`."""
        ...

    def tick(self, steps: int) -> bool:
        """See :meth:`.job.Job.tick`."""
        ...

    def size_bytes(self) -> int | None:
        """Size of the stores; ``None`` if that takes a question to a server."""
        ...

    def rank(self) -> None:
        """See :meth:`.job.Job.rank`."""
        ...

    def close(self, inspect: Callable[[Store], None] | None) -> None:
        """See :meth:`.job.Job.close`; stores may stay open until :meth:`release`."""
        ...

    def release(self) -> None:
        """Let others have whatever was open."""
        ...

"""The states of shards on the server or the board of a job: who crawls each, and its figures at its last commit."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from scrapy_aopic.core.ledger import TOTAL, Sums
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.folder_workers import board_address, has_board, registry_of
from scrapy_aopic.storage.redis.sharding import Sharding
from scrapy_aopic.storage.redis.shared_lessons import LessonBoard
from scrapy_aopic.storage.redis.worker_registry import ClusterState

from .snapshot import (
    LedgerFigures,
    PageCounts,
    ShardFigures,
    ShardRow,
    Snapshot,
    StoreState,
    TopicFigures,
    WorkerRow,
    forecast,
    visits_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_aopic.place.place import Place


class ShardStates(NamedTuple):
    """The shards of a job at one moment.

    Attributes:
        address: Where the job is.
        sharding: How the job is cut.
        cluster: Their states, and the workers that are alive.
    """

    address: Address
    sharding: Sharding
    cluster: ClusterState

    def workers(self) -> list[str]:
        """The worker of each shard; empty for one that no worker has."""
        names = {token: _name_of(worker) for token, worker in self.cluster.workers.items()}
        found = []
        for number, is_owned in enumerate(self.cluster.is_owned):
            state = self.cluster.states.get(number)
            owner = names.get(state.worker, "a worker that has died") if state is not None else "a worker"
            found.append(owner if is_owned else "")
        return found

    def rows(self) -> list[ShardRow]:
        """The shards, with their figures as of their last commits."""
        states = self.cluster.states
        sent, got = (
            {number: getattr(state, name) for number, state in states.items()} for name in ("sent", "got")
        )
        waiting = letters_on_the_way(sent, got)
        rows = []
        for number, worker in enumerate(self.workers()):
            state = states.get(number)
            queued, visited, failed, hosts = state.counts if state is not None else (0, 0, 0, 0)
            rows.append(
                ShardRow(
                    shard=number,
                    worker=worker,
                    is_idle=state is not None and state.is_idle,
                    queued=queued,
                    visited=visited,
                    failed=failed,
                    hosts=hosts,
                    letters=waiting.get(number, 0),
                )
            )
        return rows

    def worker_rows(self) -> list[WorkerRow]:
        """The workers that are alive."""
        owned = self.cluster.is_owned
        shards = Counter(state.worker for number, state in self.cluster.states.items() if owned[number])
        return [
            WorkerRow(
                worker=_name_of(worker),
                shards=shards[token],  # two workers, each in a container, may have one name
                seconds=round(self.cluster.now - worker["since"]),
            )
            for token, worker in self.cluster.workers.items()
        ]


def _name_of(worker: Mapping[str, Any]) -> str:
    return f"{worker['host']}:{worker['pid']}"


def read_states(job: Place, board: Address | None = None) -> ShardStates | None:
    """The states of the shards of *job*, as its workers show them; ``None`` for a job in one piece, or that never had workers.

    Args:
        board: Where these hear of each other, if it is no file of the job folder.

    Raises:
        StorageError: If the server cannot be reached.
    """
    if (sharding := job.read_sharding()) is None:
        return None
    stores = None
    if isinstance(job, ServerPlace):
        board = job.address
    elif isinstance(job, FolderPlace) and has_board(job.folder):
        board, stores = board_address(job.folder), dict(enumerate(job.stores(sharding)))
    if board is None or (board.folder is not None and stores is None):  # its workers have not made it yet
        return None
    try:
        registry = registry_of(board, sharding, stores)
    except StorageError:
        if board.folder is not None:  # who looks may not be allowed to write
            return None
        raise
    with closing(registry):
        return ShardStates(board, sharding, registry.read({}, joins=False))


def letters_on_the_way(
    sent: Mapping[int, Mapping[int, int]], got: Mapping[int, Mapping[int, int]]
) -> dict[int, int]:
    """Letters to each shard that it has not applied.

    Args:
        sent: By sender and receiver, the number of the last letter that was sent.
        got: By receiver and sender, the number of the last letter that was applied.
    """
    waiting: dict[int, int] = {}
    for sender, letters in sent.items():
        for to, last in letters.items():
            waiting[to] = waiting.get(to, 0) + max(last - got.get(to, {}).get(sender, 0), 0)
    return waiting


def shard_figures(
    rows: Sequence[ShardRow], *, sent: int, is_quiet: bool, workers: Sequence[WorkerRow] | None = None
) -> ShardFigures:
    """The shards with *rows* in a snapshot.

    Args:
        workers: Workers that are alive; ``None`` if that is not known.
    """
    return ShardFigures(
        n=len(rows),
        held=sum(bool(row.worker) for row in rows) if workers is not None else None,
        alive=len(workers) if workers is not None else None,
        sent=sent,
        on_the_way=sum(row.letters for row in rows),
        is_quiet=is_quiet,
        each=list(rows),
        workers=list(workers or ()),
    )


def with_states(stored: Snapshot, states: ShardStates) -> Snapshot:
    """The snapshot *stored* of the stores, with who crawls the shards, and all else that is newer in *states*."""
    rows, cluster = states.rows(), states.cluster
    pages = PageCounts(
        known=sum(row.queued + row.visited + row.failed for row in rows),
        queued=sum(row.queued for row in rows),
        visited=sum(row.visited for row in rows),
        failed=sum(row.failed for row in rows),
        dead=stored.pages.dead,
    )
    sums = [Sums(*state.sums) for state in cluster.states.values()]
    return replace(
        stored,
        at=cluster.now,
        pages=pages,
        visits=visits_of(pages, stored.outcomes),
        forecast=forecast(pages, stored.rate),
        hosts=replace(stored.hosts, known=sum(row.hosts for row in rows)),
        ledger=replace(
            stored.ledger,
            total=states.sharding.shards * TOTAL,
            pages=sum(each.held for each in sums),
            virtual=sum(each.virtual for each in sums) + (states.sharding.shards - len(sums)) * TOTAL,
        ),
        shards=shard_figures(
            rows,
            sent=sum(last for state in cluster.states.values() for last in state.sent.values()),
            is_quiet=cluster.is_quiet,
            workers=states.worker_rows(),
        ),
    )


def with_workers(stored: Snapshot, states: ShardStates) -> Snapshot:
    """The snapshot *stored* of the stores, with who crawls the shards."""
    shards = stored.shards
    each = [
        replace(row, worker=new.worker, is_idle=new.is_idle)
        for row, new in zip(shards.each, states.rows(), strict=True)
    ]
    return replace(
        stored,
        shards=shard_figures(
            each, sent=shards.sent or 0, is_quiet=states.cluster.is_quiet, workers=states.worker_rows()
        ),
    )


def unread_snapshot(states: ShardStates, why: str) -> Snapshot:
    """A snapshot of a job whose stores cannot be read from here, without the figures that *states* have.

    Args:
        why: Why not, in a sentence.

    Raises:
        StorageError: If the server cannot be reached.
    """
    with closing(LessonBoard(states.address)) as board:
        pages, relevant = board.graded()
    topic = (
        TopicFigures(pages=pages, relevant=relevant, harvest=min(relevant / pages, 1.0)) if pages else None
    )
    return Snapshot(
        at=0.0,
        unread=why,
        order=short_order(states.sharding.order),
        counted_since=None,
        topic=topic,
        ledger=LedgerFigures(),
        store=StoreState(name=str(states.address)),
    )


def short_order(name: str) -> str:
    """The order with a class called *name*, without the module of those of this package."""
    return name.removeprefix("scrapy_aopic.core.order.")

"""Takes a snapshot of a store: the figures of a job as of its last commit, whether a crawl runs or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.core.counters import Counters, read_counters
from scrapy_aopic.core.focus.harvest import Harvest, read_harvest
from scrapy_aopic.core.layout import ACTIVE, Family
from scrapy_aopic.core.records import unpack_host
from scrapy_aopic.core.saved import read_saved

from .host_walk import HostWalk
from .snapshot import Ledger, Pages, Snapshot, StoreState, Topic, Transfers, forecast

if TYPE_CHECKING:
    from scrapy_aopic.core.ledger import Totals
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.records import HostRecord


def snapshot_of(store: Store, *, name: str = "") -> Snapshot | None:
    """The figures of the job in *store* as of its last commit; ``None`` if there is no job.

    Reads the hosts that were in memory, no more than ``AOPIC_MAX_ACTIVE`` of them, and no page: it takes the same moment
    however many pages there are.

    Args:
        name: What messages call the job.

    Raises:
        StorageError: If the store cannot be read, or was written in another format.
    """
    saved = read_saved(store)
    if saved is None:
        return None
    counters = read_counters(store, saved.saved_at) or Counters(since=saved.saved_at)
    walk = HostWalk(active_hosts(store), None)
    walk.step(1 << 60, saved.saved_at)
    pages = Pages(
        known=saved.pages,
        queued=saved.queued,
        visited=saved.visited,
        failed=saved.failed,
        dead=saved.dead_pages,
    )
    return Snapshot(
        at=saved.saved_at,
        is_closed=saved.is_clean,
        created_at=saved.created_at,
        not_before=saved.not_before,
        order=saved.order_name.rpartition(".")[2],
        counted_since=counters.since,
        pages=pages,
        forecast=forecast(pages, None),
        hosts=replace(
            walk.hosts(),
            known=saved.hosts,
            ready=walk.states.get("ready", 0),
            waiting=walk.states.get("waiting", 0),
            shelved=sum(saved.shelved.values()),
            parked=saved.parked,
            dead=saved.dead,
            ceiling=0.0,  # the settings are not known here
        ),
        outcomes=dict(counters.outcomes),
        transfers=transfers_of(counters),
        put_back=counters.put_back,
        deferred=dict(counters.deferred),
        refused=dict(counters.refused),
        queue_seconds=counters.queue_seconds,
        topic=topic_of(read_harvest(store)),
        ledger=ledger_of(saved.ledger),
        store=StoreState(name=name, size_bytes=store.size_bytes()),
        slow=walk.slow,
        failing=walk.failing,
        waiting=walk.waiting,
    )


def active_hosts(store: Store) -> list[HostRecord]:
    """The hosts that were in memory as of the last commit."""
    keys = [row[1:] for row, _ in store.scan(Family.META, ACTIVE, bytes((ACTIVE[0] + 1,)))]
    return [unpack_host(data) for data in store.get_many(Family.HOSTS, keys) if data is not None]


def ledger_of(totals: Totals) -> Ledger:
    """The ledger in a snapshot."""
    return Ledger(
        total=totals.whole,
        pages=totals.held,
        virtual=totals.virtual,
        history=totals.history,
        distributed=totals.distributed,
        virtual_distributed=totals.virtual_distributed,
        turns=totals.turn,
        convergence=1 / totals.turn if totals.turn else None,
    )


def topic_of(harvest: Harvest) -> Topic | None:
    """The topic in a snapshot."""
    if not harvest.pages:
        return None
    return Topic(
        pages=harvest.pages,
        relevant=harvest.relevant,
        harvest=harvest.rate,
        lately=harvest.rate_lately,
    )


def transfers_of(counters: Counters) -> Transfers:
    """The transfers in a snapshot."""
    return Transfers(
        n=counters.transfers,
        seconds=counters.transfer_seconds,
        bytes=counters.received,
        durations=list(counters.durations),
        errors=counters.errors,
        down=counters.down,
    )

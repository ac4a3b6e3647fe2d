"""What a job can be asked whose stores are several, put together of what each of them says; of one store, just that.

Takes what :func:`.views.opened_views` opens. All hosts of a registered domain are in one shard, so no page and no host is in two.
"""

from __future__ import annotations

import heapq
from itertools import chain, zip_longest
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scrapy_aopic.core.focus.harvest import LATELY

from . import queries
from .snapshot import N_LISTED, Hosts, Ledger, Pages, StoreState, Topic, Transfers, forecast
from .stored import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_aopic.core.ports import Store

    from .snapshot import HostRow, Snapshot

_importance = itemgetter("importance")


def top_pages(stores: Sequence[Store], n: int, *, everything: bool = False) -> list[dict[str, Any]]:
    """The *n* most important pages; see :func:`.queries.top_pages`."""
    rows = chain.from_iterable(queries.top_pages(store, n, everything=everything) for store in stores)
    return heapq.nlargest(n, rows, key=_importance)


def top_hosts(stores: Sequence[Store], n: int) -> list[dict[str, Any]]:
    """The *n* most important hosts; see :func:`.queries.top_hosts`."""
    return heapq.nlargest(
        n, chain.from_iterable(queries.top_hosts(store, n) for store in stores), key=_importance
    )


_BY: dict[str, Callable[[HostRow], float]] = {
    "slow": attrgetter("transfer"),
    "failing": attrgetter("errors"),
    "waiting": attrgetter("wait"),
    "budget": attrgetter("queued"),
}
"""By what the hosts of several stores are ordered, as :func:`.queries.hosts_by` orders those of one."""


def hosts_by(stores: Sequence[Store], kind: str, n: int) -> list[HostRow]:
    """The *n* hosts that come first of a *kind*; see :func:`.queries.hosts_by`."""
    rows = chain.from_iterable(queries.hosts_by(store, kind, n) for store in stores)
    return heapq.nlargest(n, rows, key=_BY[kind])


def count_pages(stores: Sequence[Store]) -> int:
    """Pages that the job knows."""
    return sum(map(queries.count_pages, stores))


def each_page(stores: Sequence[Store], n: int) -> Iterator[list[queries.KnownPage]]:
    """All pages, shard by shard and host by host, at most *n* at a time."""
    return chain.from_iterable(queries.each_page(store, n) for store in stores)


def each_link(stores: Sequence[Store], n: int) -> Iterator[list[tuple[str, str]]]:
    """All links that were kept; see :func:`.queries.each_link`."""
    return chain.from_iterable(queries.each_link(store, n) for store in stores)


# -- a snapshot


def whole_snapshot(stores: Sequence[Store], *, name: str = "") -> Snapshot | None:
    """The figures of the whole job; see :func:`scrapy_aopic.view.stored.snapshot_of`.

    Instants are those of the shard that committed last; the job was closed if all shards were.
    """
    each = [found for store in stores if (found := snapshot_of(store, name=name)) is not None]
    if len(each) < 2:
        return each[0] if each else None
    last = max(each, key=attrgetter("at"))
    pages = Pages(
        known=sum(one.pages.known for one in each),
        queued=sum(one.pages.queued for one in each),
        visited=sum(one.pages.visited for one in each),
        failed=sum(one.pages.failed for one in each),
        dead=sum(one.pages.dead for one in each),
    )
    sizes = [one.store.size_bytes for one in each if one.store.size_bytes is not None]
    waited = [
        (one.queue_seconds, sum(one.outcomes.values())) for one in each if one.queue_seconds is not None
    ]
    n_waited = sum(n for _, n in waited)
    return replace(
        last,
        is_closed=all(one.is_closed for one in each),
        created_at=min(one.created_at for one in each),
        not_before=min(one.not_before for one in each),
        counted_since=max(one.counted_since for one in each),
        pages=pages,
        forecast=forecast(pages, None),
        hosts=_hosts([one.hosts for one in each]),
        outcomes=_sums(one.outcomes for one in each),
        transfers=_transfers([one.transfers for one in each]),
        put_back=sum(one.put_back for one in each),
        deferred=_sums(one.deferred for one in each),
        refused=_sums(one.refused for one in each),
        queue_seconds=sum(seconds * n for seconds, n in waited) / n_waited if n_waited else None,
        topic=_topic([one.topic for one in each if one.topic is not None]),
        ledger=_ledger([one.ledger for one in each]),
        store=StoreState(name=name, size_bytes=sum(sizes) if sizes else None),
        slow=_first((one.slow for one in each), "slow"),
        failing=_first((one.failing for one in each), "failing"),
        waiting=_first((one.waiting for one in each), "waiting"),
    )


def _first(lists: Iterable[list[HostRow]], kind: str) -> list[HostRow]:
    return heapq.nlargest(N_LISTED, chain.from_iterable(lists), key=_BY[kind])


def _sums(counts: Iterable[dict[Any, int]]) -> dict[Any, int]:
    whole: dict[Any, int] = {}
    for each in counts:
        for name, n in each.items():
            whole[name] = whole.get(name, 0) + n
    return whole


def _columns(lists: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*lists, fillvalue=0)]


def _hosts(each: Sequence[Hosts]) -> Hosts:
    numbers = [
        field
        for field in Hosts.__struct_fields__
        if field not in ("waits", "due_in", "front_queues", "ready_queues", "flight_queues", "ceiling")
    ]
    return Hosts(
        **{name: sum(getattr(one, name) for one in each) for name in numbers},
        waits=_sums(one.waits for one in each),
        due_in=_columns(one.due_in for one in each),
        front_queues=_sums(one.front_queues for one in each),
        ready_queues=_sums(one.ready_queues for one in each),
        flight_queues=_sums(one.flight_queues for one in each),
    )


def _transfers(each: Sequence[Transfers]) -> Transfers:
    return Transfers(
        n=sum(one.n for one in each),
        seconds=sum(one.seconds for one in each),
        bytes=sum(one.bytes for one in each),
        durations=_columns(one.durations for one in each),
        errors=sum(one.errors for one in each),
        down=sum(one.down for one in each),
    )


def _topic(each: Sequence[Topic]) -> Topic | None:
    n, last = sum(one.pages for one in each), sum(min(one.pages, LATELY) for one in each)
    if not n:
        return None
    relevant = sum(one.relevant for one in each)
    lately = sum(one.lately * min(one.pages, LATELY) for one in each) / last
    return Topic(pages=n, relevant=relevant, harvest=relevant / n, lately=lately)


def _ledger(each: Sequence[Ledger]) -> Ledger:
    turns = max(one.turns for one in each)
    return Ledger(
        total=sum(one.total for one in each),
        pages=sum(one.pages for one in each),
        virtual=sum(one.virtual for one in each),
        history=sum(one.history for one in each),
        distributed=sum(one.distributed for one in each),
        virtual_distributed=sum(one.virtual_distributed for one in each),
        turns=turns,
        convergence=1 / turns if turns else None,
    )

"""What a job folder can be asked: its most important pages and hosts, and the state of its queues.

Reads a :class:`~scrapy_aopic.core.ports.Store`, also a snapshot of one that a crawl is writing, and returns
plain values; commands print them.
"""

from __future__ import annotations

import heapq
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.core.control import covering
from scrapy_aopic.core.counters import UNREADABLE, Counters, read_counters
from scrapy_aopic.core.focus.harvest import read_harvest
from scrapy_aopic.core.kept_links import split_links
from scrapy_aopic.core.layout import ACTIVE, BEHIND, DEAD, LATE, PARKED, SHELVED
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import (
    HOST_BYTES,
    PAGE_BYTES,
    Page,
    State,
    front_queue_of,
    host_key,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.saved import read_saved
from scrapy_aopic.web.request_rows import url_of

from .host_walk import row_of
from .snapshot import Pages, forecast
from .stored import topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_aopic.core.records import HostRecord
    from scrapy_aopic.core.saved import Saved

    from .snapshot import HostRow, Topic

_MOST_HOSTS = 300_000
"""Hosts that are looked at to find one by a part of its name: about a second."""

_SHOWN = 5
"""Waiting hosts that are named, the longest wait first."""

_PLACES = {ACTIVE: "active", SHELVED: "shelved", PARKED: "parked", DEAD: "dead"}

_STATUS = (
    "pages",
    "rate",
    "forecast",
    "topic",
    "outcomes",
    "set_aside",
    "put_back",
    "refused",
    "hosts",
    "back_queues",
    "waits",
    "longest_waits",
    "slow_hosts",
    "failing_hosts",
    "transfers",
    "front_queues",
    "order",
    "created_at",
    "saved_at",
    "closed",
    "size_bytes",
    "cash",
    "turns",
    "convergence",
)
"""What is said of a job, in this order."""


def top_pages(store: Store, n: int, *, everything: bool = False) -> list[dict[str, Any]]:
    """The *n* most important pages, best first, as ``url``, ``importance`` (0 to 1), ``cash``, ``history``, ``visits``.

    Redirects, errors and pages that failed are left out unless *everything*.
    """
    saved = read_saved(store)
    if saved is None:
        return []
    ledger = saved.ledger
    estimate = saved.estimate(store)
    pages = ((key, unpack_page(data)) for key, data in store.scan(Family.PAGES))
    best = heapq.nlargest(
        n,
        ((estimate.weight(page), key, page) for key, page in pages if everything or not page.outcome),
        key=lambda row: row[0],
    )
    requests = store.get_many(Family.REQUESTS, [key for _, key, _ in best])
    return [
        {
            "url": url_of(request or b""),
            "importance": estimate.importance(weight),
            "cash": page.cash + ledger.owed(page),
            "history": page.history,
            "visits": page.visits,
            "state": page.outcome or State(page.state).name.lower(),
        }
        for (weight, _, page), request in zip(best, requests, strict=True)
    ]


def top_hosts(store: Store, n: int) -> list[dict[str, Any]]:
    """The *n* hosts whose pages are most important together, best first."""
    saved = read_saved(store)
    if saved is None:
        return []
    ledger = saved.ledger
    estimate = saved.estimate(store)
    sums = []
    for key, rows in groupby(store.scan(Family.PAGES), lambda row: row[0][:HOST_BYTES]):
        weight = cash = history = pages = 0
        for _, data in rows:
            page = unpack_page(data)
            weight += estimate.weight(page)
            cash += page.cash + ledger.owed(page)
            history += page.history
            pages += 1
        sums.append((weight, key, cash, history, pages))
    best = heapq.nlargest(n, sums)
    hosts = store.get_many(Family.HOSTS, [key for _, key, *_ in best])
    result = []
    for (weight, _, cash, history, pages), found in zip(best, hosts, strict=True):
        record = unpack_host(found) if found is not None else None
        result.append(
            {
                "host": record.name if record else "",
                "importance": estimate.importance(weight),
                "cash": cash,
                "history": history,
                "pages": pages,
                "visited": record.visited if record else 0,
                "queued": record.queued if record else 0,
            }
        )
    return result


def count_pages(store: Store) -> int:
    """Pages that the job knows."""
    saved = read_saved(store)
    return saved.pages if saved is not None else 0


class KnownPage(NamedTuple):
    """A page as the job knows it.

    Attributes:
        host: Name of its host.
        importance: Its part of the importance of all pages, 0 to 1.
        cash: Units that it holds, with what the virtual page owes it.
        root_url: URL of the page that it was merged into; empty for a page that stands for itself.
    """

    url: str
    host: str
    importance: float
    cash: int
    record: Page
    root_url: str


def each_page(store: Store, n: int) -> Iterator[list[KnownPage]]:
    """All pages, host by host, at most *n* at a time."""
    saved = read_saved(store)
    if saved is None:
        return
    ledger = saved.ledger
    estimate = saved.estimate(store)
    rows = store.scan(Family.PAGES)
    while chunk := list(islice(rows, n)):
        known = {key: unpack_page(data) for key, data in chunk}
        roots = _roots(store, known)
        urls = _urls(store, [*known, *(roots.values() - known.keys())])
        hosts = _hosts(store, {key[:HOST_BYTES] for key in known})
        yield [
            KnownPage(
                urls[key],
                hosts[key[:HOST_BYTES]],
                estimate.importance(estimate.weight(page)),
                page.cash + ledger.owed(page),
                page,
                urls[roots[key]] if key in roots else "",
            )
            for key, page in known.items()
        ]


def _roots(store: Store, pages: dict[bytes, Page]) -> dict[bytes, bytes]:
    """Keys of the pages that stand for *pages*, by the keys of those that were merged into others."""
    roots = {key: page.canonical for key, page in pages.items() if page.canonical}
    for _ in range(MAX_HEIGHT):
        ends = list(set(roots.values()))
        records = zip(ends, store.get_many(Family.PAGES, ends), strict=True)
        hops = {
            end: page.canonical for end, data in records if data and (page := unpack_page(data)).canonical
        }
        if not hops:
            break
        roots = {key: hops.get(root, root) for key, root in roots.items()}
    return roots


def each_link(store: Store, n: int) -> Iterator[list[tuple[str, str]]]:
    """All links that were kept, as URLs of source and target, about *n* at a time."""
    links: list[tuple[bytes, bytes]] = []
    for source, targets in store.scan(Family.LINKS):
        links += [(source[:PAGE_BYTES], target) for target in split_links(source, targets)]
        if len(links) >= n:
            yield _named(store, links)
            links = []
    if links:
        yield _named(store, links)


def _named(store: Store, links: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    urls = _urls(store, list({key for link in links for key in link}))
    return [(urls[source], urls[target]) for source, target in links]


def _urls(store: Store, keys: list[bytes]) -> dict[bytes, str]:
    requests = store.get_many(Family.REQUESTS, keys)
    return {key: url_of(request or b"") for key, request in zip(keys, requests, strict=True)}


def _hosts(store: Store, keys: Iterable[bytes]) -> dict[bytes, str]:
    wanted = list(keys)
    found = store.get_many(Family.HOSTS, wanted)
    return {key: unpack_host(data).name if data else "" for key, data in zip(wanted, found, strict=True)}


def status(store: Store) -> dict[str, Any]:
    """Counts, the ledger, and how many pages wait in each front queue and hosts in each place; reads all of them."""
    saved = read_saved(store)
    if saved is None:
        return {}
    front: dict[int, int] = {}
    for key, _ in store.scan(Family.QUEUE):
        level = front_queue_of(key[HOST_BYTES:])
        front[level] = front.get(level, 0) + 1
    outcomes: dict[str, int] = {}
    set_aside: dict[str, tuple[int, bytes]] = {}
    for key, data in store.scan(Family.PAGES):
        outcome, _, reason = unpack_page(data).outcome.partition(": ")
        if outcome:
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome == UNREADABLE:
            n, example = set_aside.get(reason, (0, key))
            set_aside[reason] = (n + 1, example)
    urls = _urls(store, [example for _, example in set_aside.values()])
    places = dict.fromkeys(_PLACES.values(), 0)
    waits: dict[str, int] = {}
    waiting: list[HostRecord] = []  # those that wait longest
    slow: list[HostRecord] = []
    failing: list[HostRecord] = []
    for _, data in store.scan(Family.HOSTS):
        host = unpack_host(data)
        slow = _with(slow, host, host.transfer, _transfer)
        failing = _with(failing, host, max(host.errors, host.unanswered), _errors)
        if host.row:
            place = _PLACES[host.row[:1]]
            places[place] += 1
            if host.opens_at > saved.saved_at:
                why = _why_it_waits(host)
                waits[why] = waits.get(why, 0) + 1
                waiting = heapq.nlargest(_SHOWN, [*waiting, host], key=lambda host: host.opens_at)
    counted = {
        "outcomes": dict(sorted(outcomes.items(), key=lambda pair: -pair[1])),
        "set_aside": [
            {"reason": reason, "pages": n, "example": urls[example]}
            for reason, (n, example) in set_aside.items()
        ],
        "back_queues": {**places, "waiting": sum(waits.values())},
        "waits": waits,
        "longest_waits": [
            {
                "host": host.name,
                "until": host.opens_at,
                "why": _why_it_waits(host),
                "in_a_row": host.unanswered or host.errors,
            }
            for host in waiting
        ],
        "slow_hosts": [{"host": host.name, "seconds": host.transfer} for host in slow],
        "failing_hosts": [
            {"host": host.name, "errors_in_a_row": host.errors, "down_in_a_row": host.unanswered}
            for host in failing
        ],
        "front_queues": dict(sorted(front.items(), reverse=True)),
    }
    known = {**_totals(store, saved), **counted}
    return {name: known[name] for name in _STATUS if name in known}


_transfer, _errors = attrgetter("transfer"), attrgetter("errors")


def _with(
    most: list[HostRecord], host: HostRecord, value: float, value_of: Callable[[HostRecord], float]
) -> list[HostRecord]:
    """*most*, the few hosts with the largest values, with *host* if its *value* is one of these."""
    if not value or (len(most) == _SHOWN and value <= value_of(most[-1])):
        return most
    return heapq.nlargest(_SHOWN, [*most, host], key=value_of)


_KINDS: dict[str, Callable[[HostRecord, float], float]] = {
    "slow": lambda host, _: host.transfer,
    "failing": lambda host, _: max(host.errors, host.unanswered),
    "waiting": lambda host, now: max(host.opens_at - now, 0.0) if host.row else 0.0,
    "budget": lambda host, _: host.queued if host.row[:2] in (LATE, BEHIND) else 0,
}
"""By what hosts are ordered that are asked for; those for which it is 0 are left out."""


def hosts_by(store: Store, kind: str, n: int) -> list[HostRow]:
    """The *n* hosts that come first of a *kind*.

    Args:
        kind: ``slow`` by their last transfer, ``failing`` by errors in a row, ``waiting`` by the time that they must be left
            alone, ``budget`` by queued pages of those on the disk whose domains are over their budgets.
    """
    saved = read_saved(store)
    if saved is None:
        return []
    now, measure = saved.saved_at, _KINDS[kind]
    hosts = (unpack_host(data) for _, data in store.scan(Family.HOSTS))
    found = ((measure(host, now), host) for host in hosts)
    best = heapq.nlargest(n, (pair for pair in found if pair[0]), key=itemgetter(0))
    return [row_of(host, now) for _, host in best]


def unmet(stores: Sequence[Store], names: Iterable[str]) -> list[str]:
    """Those of *names* that cover no host of the job in *stores*, in their order; none if there are too many hosts to look at."""
    left = {
        name: None
        for name in names
        if not any(store.get_many(Family.HOSTS, (host_key(name),))[0] for store in stores)
    }
    looked = 0
    for store in stores:
        if not left:
            break
        for _, data in store.scan(Family.HOSTS):
            looked += 1
            if looked > _MOST_HOSTS:
                return []
            host = unpack_host(data).name
            while name := covering(left, host):
                del left[name]
    return [*left]


def totals(store: Store) -> dict[str, Any]:
    """What :func:`status` says that need not be counted: it takes the same moment however many pages there are."""
    saved = read_saved(store)
    known = _totals(store, saved) if saved is not None else {}
    return {name: known[name] for name in _STATUS if name in known}


def _totals(store: Store, saved: Saved) -> dict[str, Any]:
    ledger = saved.ledger
    counters = read_counters(store, saved.saved_at) or Counters(since=saved.saved_at)
    queue_seconds = counters.queue_seconds
    lasted = saved.saved_at - saved.created_at
    topic = topic_of(read_harvest(store))
    return {
        **({"topic": _topic(topic)} if topic is not None else {}),
        "rate": {"since_begin": round((saved.visited + saved.failed) / lasted, 3) if lasted > 0 else None},
        "forecast": forecast(
            Pages(known=saved.pages, queued=saved.queued, dead=saved.dead_pages), None
        ).because,
        "put_back": {"all": counters.put_back, **counters.deferred},
        "refused": dict(sorted(counters.refused.items(), key=lambda pair: -pair[1])),
        "transfers": {
            "all": counters.transfers,
            "errors": counters.errors,
            "down": counters.down,
            "bytes": counters.received,
            "mean_seconds": round(counters.transfer_seconds / counters.transfers, 3)
            if counters.transfers
            else None,
            "mean_seconds_queued": round(queue_seconds, 1) if queue_seconds is not None else None,
        },
        "pages": {name: getattr(saved, name) for name in ("queued", "visited", "failed")},
        "hosts": saved.hosts,
        "back_queues": {
            "active": sum(
                1 for _ in store.scan(Family.META, ACTIVE, _after(ACTIVE))
            ),  # no more than are in memory
            "shelved": sum(saved.shelved.values()),
            "parked": saved.parked,
            "dead": saved.dead,
        },
        "cash": {"total": TOTAL, "virtual_page": ledger.virtual, "pages": TOTAL - ledger.virtual},
        "turns": ledger.turn,
        "convergence": 1 / ledger.turn if ledger.turn else None,
        "order": saved.order_name,
        "created_at": saved.created_at,
        "saved_at": saved.saved_at,
        "closed": saved.is_clean,
        "size_bytes": store.size_bytes(),
    }


def _topic(topic: Topic) -> dict[str, Any]:
    return {
        "pages": topic.pages,
        "relevant": topic.relevant,
        "harvest": round(topic.harvest, 4),
        "lately": round(topic.lately, 4),
    }


def _after(letter: bytes) -> bytes:
    """The key behind all that begin with *letter*."""
    return bytes((letter[0] + 1,))


def _why_it_waits(host: HostRecord) -> str:
    """Why no request is made to *host* now."""
    if host.unanswered:
        return "no response, or one that asks to come later"
    if host.errors:
        return "errors"
    return "crawl delay" if host.crawl_delay else "gap"

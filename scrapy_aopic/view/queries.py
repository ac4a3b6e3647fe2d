"""Lists of pages, links and hosts of a job, in any number of shards.

All hosts of a registered domain are in one shard, so no page and no host is in two.
"""

from __future__ import annotations

import heapq
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.core.control import covering
from scrapy_aopic.core.kept_links import split_links
from scrapy_aopic.core.layout import BEHIND, LATE
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import (
    HOST_BYTES,
    PAGE_BYTES,
    Page,
    PageState,
    host_key,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.saved import read_saved
from scrapy_aopic.web.request_rows import url_of

from .host_walk import Largest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy_aopic.core.records import HostRecord

    from .job_view import View
    from .snapshot import HostRow

_MOST_HOSTS = 300_000
"""Hosts that are looked at to find one by a part of its name: about a second."""

_importance = itemgetter("importance")


def top_pages(view: View, n: int, *, everything: bool = False) -> list[dict[str, Any]]:
    """The *n* most important pages, best first, as ``url``, ``importance`` (0 to 1), ``cash``, ``history``, ``visits``.

    Redirects, errors and pages that failed are left out unless *everything*.
    """
    rows = chain.from_iterable(_top_pages(store, n, everything=everything) for store in view.stores)
    return heapq.nlargest(n, rows, key=_importance)


def top_hosts(view: View, n: int) -> list[dict[str, Any]]:
    """The *n* hosts whose pages are most important together, best first."""
    rows = chain.from_iterable(_top_hosts(store, n) for store in view.stores)
    return heapq.nlargest(n, rows, key=_importance)


def _top_pages(store: Store, n: int, *, everything: bool) -> list[dict[str, Any]]:
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
            "state": page.outcome or PageState(page.state).name.lower(),
        }
        for (weight, _, page), request in zip(best, requests, strict=True)
    ]


def _top_hosts(store: Store, n: int) -> list[dict[str, Any]]:
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


def count_pages(view: View) -> int:
    """Pages that the job knows."""
    return sum(saved.pages for saved in view.saved if saved is not None)


class KnownPage(NamedTuple):
    """A page as the job knows it.

    Attributes:
        host: Name of its host.
        importance: Its importance as a part of that of all pages, 0 to 1.
        cash: Units that it holds, with what the virtual page owes it.
        root_url: URL of the page that it was merged into; empty for a page that stands for itself.
    """

    url: str
    host: str
    importance: float
    cash: int
    record: Page
    root_url: str


def each_page(view: View, n: int) -> Iterator[list[KnownPage]]:
    """All pages, shard by shard and host by host, at most *n* at a time."""
    return chain.from_iterable(_each_page(store, n) for store in view.stores)


def _each_page(store: Store, n: int) -> Iterator[list[KnownPage]]:
    saved = read_saved(store)
    if saved is None:
        return
    ledger = saved.ledger
    estimate = saved.estimate(store)
    rows = store.scan(Family.PAGES)
    while chunk := list(islice(rows, n)):
        known = {key: unpack_page(data) for key, data in chunk}
        roots = _roots(store, known)
        urls = urls_of(store, [*known, *(roots.values() - known.keys())])
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


def each_link(view: View, n: int) -> Iterator[list[tuple[str, str]]]:
    """All links that were kept, as URLs of source and target, about *n* at a time."""
    return chain.from_iterable(_each_link(store, n) for store in view.stores)


def _each_link(store: Store, n: int) -> Iterator[list[tuple[str, str]]]:
    links: list[tuple[bytes, bytes]] = []
    for source, targets in store.scan(Family.LINKS):
        links += [(source[:PAGE_BYTES], target) for target in split_links(source, targets)]
        if len(links) >= n:
            yield _named(store, links)
            links = []
    if links:
        yield _named(store, links)


def _named(store: Store, links: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    urls = urls_of(store, list({key for link in links for key in link}))
    return [(urls[source], urls[target]) for source, target in links]


def urls_of(store: Store, keys: list[bytes]) -> dict[bytes, str]:
    requests = store.get_many(Family.REQUESTS, keys)
    return {key: url_of(request or b"") for key, request in zip(keys, requests, strict=True)}


def _hosts(store: Store, keys: Iterable[bytes]) -> dict[bytes, str]:
    wanted = list(keys)
    found = store.get_many(Family.HOSTS, wanted)
    return {key: unpack_host(data).name if data else "" for key, data in zip(wanted, found, strict=True)}


_MEASURES: dict[str, Callable[[HostRecord, float], float]] = {
    "slow": lambda host, _: host.transfer,
    "failing": lambda host, _: max(host.errors, host.unanswered),
    "waiting": lambda host, now: max(host.opens_at - now, 0.0) if host.row else 0.0,
    "budget": lambda host, _: host.queued if host.row[:2] in (LATE, BEHIND) else 0,
}
"""The figure by which hosts of a kind are ordered, as of an instant; hosts with 0 are left out."""


class HostLists:
    """Hosts that come first of some *kinds*, *n* of each kind, as of the instant *now*.

    Args:
        kinds: ``slow`` by their last transfer, ``failing`` by errors in a row, ``waiting`` by the time that they must be
            left alone, ``budget`` by queued pages of those on the disk whose domains are over their budgets.
    """

    def __init__(self, kinds: Iterable[str], n: int, now: float) -> None:
        self._now = now
        self._lists = {kind: Largest(n) for kind in kinds}

    def offer(self, host: HostRecord) -> None:
        """List *host* where it is among the first."""
        for kind, largest in self._lists.items():
            if value := _MEASURES[kind](host, self._now):
                largest.offer(value, host)

    def rows(self, kind: str) -> list[HostRow]:
        """The rows of a *kind*, in its order."""
        return self._lists[kind].rows(self._now)


def hosts_by(view: View, kind: str, n: int) -> list[HostRow]:
    """The *n* hosts that come first of a *kind*; see :class:`HostLists`."""
    lists = HostLists([kind], n, view.at)
    for host in each_host(view):
        lists.offer(host)
    return lists.rows(kind)


def each_host(view: View) -> Iterator[HostRecord]:
    """All hosts, shard by shard."""
    for store in view.stores:
        for _, data in store.scan(Family.HOSTS):
            yield unpack_host(data)


def unmet(view: View, names: Iterable[str]) -> list[str]:
    """The *names* that cover no host of the job, in their order; an empty list if there are too many hosts to look at."""
    left = {
        name: None
        for name in names
        if not any(store.get_many(Family.HOSTS, (host_key(name),))[0] for store in view.stores)
    }
    if left:
        for looked, host in enumerate(each_host(view)):
            if looked == _MOST_HOSTS:
                return []
            while name := covering(left, host.name):
                del left[name]
    return [*left]

"""Lists of pages, links and hosts of a job, in any number of shards.

Each host is in one shard, so no page and no host is in two.
"""

from __future__ import annotations

import heapq
from datetime import datetime, timezone
from functools import partial
from itertools import chain, groupby, islice
from math import inf
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.duplicates import digest_of
from scrapy_aopic.core.fetched import read_fetched
from scrapy_aopic.core.kept_links import elsewhere_key, split_links
from scrapy_aopic.core.layout import BEHIND, GISTS, LATE, TEXTS, WISHES
from scrapy_aopic.core.operator_control import covering
from scrapy_aopic.core.order import relevance_of
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import (
    HOST_BYTES,
    PAGE_BYTES,
    ROW_PAGE_BYTES,
    Changes,
    HostRecord,
    Page,
    PageState,
    host_key,
    read_wishes,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.revisits.found import Found, found_last, shown
from scrapy_aopic.core.revisits.rates import Rates
from scrapy_aopic.core.revisits.rounds import Round, read_rounds, together
from scrapy_aopic.core.walk import find_order
from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.place.file_formats import CHUNK
from scrapy_aopic.version import __version__
from scrapy_aopic.web.request_rows import url_and_depth, url_of

from .host_walk import Largest, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_aopic.core.focus.calibration import Calibration
    from scrapy_aopic.core.ledger import Estimate, Totals

    from .job_view import View
    from .snapshot import HostRow

_DRAWN = 2_000
"""Known pages of a host that say how relevant it is. Keys are digests of URLs, so the first are as good as any."""

_LAST_PAGE = b"\xff" * ROW_PAGE_BYTES

_MOST_HOSTS = 300_000
"""Hosts that are looked at to find one by a part of its name: about a second."""

_STATES = {int(state): state.name.lower() for state in PageState}

_UNCHANGED = Changes()

_importance = attrgetter("importance")


class PageRow(NamedTuple):
    """A page as the job knows it, as of the last commit.

    What is not known is ``None``, or ``""`` of a text.

    Attributes:
        url: Empty for a request that cannot be read, such as one that was kept in memory.
        host: Name of its host.
        importance: Its part of the importance of all pages, 0 to 1.
        cash: Units that it holds, with what the virtual page owes it.
        history: Units that its visits have spent, inside the window; a whole number of any size, a double in tables.
        visits: Visits so far, failed ones included.
        state: ``visited``, ``queued`` or ``failed``.
        outcome: Why it is no ordinary page: ``redirect``, ``http 404``, ``robots.txt`` ...
        merged_into: URL of the page that stands for it.
        relevance: How relevant it is to the topic, 0 to 1; only if it was graded.
        visited_at: Time of its last visit, in UTC.
        status, content_type, bytes: HTTP status, content type and size of its last response, the body unpacked. The size is
            not known of redirects, and of what was not read to its end.
        depth: Links from a seed to it, along the way on which it was found first.
        inlinks: Visits of other pages that found a link to it; only in orders that count them, as ``aopic`` does.
        outlinks: Pages to which it linked at its last visit; only if links are kept (``AOPIC_KEEP_LINKS``).
        digest: Digest of its body, in hexadecimal digits; only if pages are visited again (``AOPIC_RECRAWL``).
        text_digest: The same of its words, links and data; pages in which they agree are the same. Only if duplicates are
            looked for (``AOPIC_CONTENT_SEEN``), and it has enough words.
        found: What its last visit found, or of a difference all visits in it: ``new``, ``changed``, ``unchanged``, ``moved``,
            ``gone`` or ``failed``.
        first_seen, last_changed: Times of its first visit, and of that which found its present version, or that it is gone; this
            and the next only if pages are visited again.
        previous_digest: The digest before that.
        changes_a_day: How often it seems to change; only if it was visited again.
        robots: What its owner asks of robots, such as ``noindex, nofollow``.
        content_usage: How its owner wants it to be used, such as ``train-ai=n``.
    """

    url: str
    host: str
    importance: float
    cash: int
    history: float
    visits: int
    state: str
    outcome: str
    merged_into: str
    relevance: float | None
    visited_at: datetime | None
    status: int | None
    content_type: str
    bytes: int | None
    depth: int | None
    inlinks: int | None
    outlinks: int | None
    digest: str
    text_digest: str
    found: str
    first_seen: datetime | None
    last_changed: datetime | None
    previous_digest: str
    changes_a_day: float | None
    robots: str
    content_usage: str


class SiteRow(NamedTuple):
    """A host with what its pages have together, as of the last commit.

    Attributes:
        host: Its name.
        importance: Part of the importance of all pages that its own have, 0 to 1.
        cash: Units that they hold.
        history: Units that their visits have spent, inside the window.
        pages: Pages that are known.
        visited: Pages that were visited or failed at least once.
        queued: Pages that wait.
        state: ``ready``, ``waiting``, ``shelved``, ``parked`` or ``dead``; ``idle`` if it has nothing queued.
        opens_at: Time before which it must be left alone, in UTC; ``None`` before its first transfer.
        transfer: Seconds that its last transfer took, 0 if there was none.
        errors: Transfers in a row after which it did not respond as it should.
        crawl_delay: Seconds between requests that its robots.txt asks for.
    """

    host: str
    importance: float
    cash: int
    history: float
    pages: int
    visited: int
    queued: int
    state: str
    opens_at: datetime | None
    transfer: float
    errors: int
    crawl_delay: float


class LinkRow(NamedTuple):
    """A link that was kept, as the URLs of its two pages."""

    source: str
    target: str


class _PageReader:
    """Makes rows of the pages of *store*, whose totals are *saved*, with what the *probability* of relevance is by a grade.

    Attributes:
        estimate: How important its pages are.
        has_values: Whether it is crawled for a topic.
    """

    def __init__(self, store: Store, saved: CrawlTotals, calibration: Calibration) -> None:
        self._calibration = calibration
        self.estimate = saved.estimate()
        self._store = store
        self._ledger = saved.ledger
        self._rates = Rates(saved.rates)
        order = find_order(saved.order_name)
        self._one_link = order.one_link if order is not None and order.counts_links else 0
        self.has_values = order is not None and order.values_links
        self._has_links = next(store.scan(Family.LINKS), None) is not None

    def rows(self, pages: dict[bytes, Page], since: float = inf) -> list[PageRow]:
        """One for each of *pages*, by their keys, which have changed *since* an instant if one is given."""
        keys = list(pages)
        roots = roots_of(self._store, pages)
        urls = urls_of(self._store, list(roots.values()))
        requests = self._store.get_many(Family.REQUESTS, keys)
        hosts = _hosts(self._store, {key[:HOST_BYTES] for key in keys})
        texts = self._store.get_many(Family.CONTENT, [TEXTS + key for key in keys])
        n_links = count_links(self._store, keys) if self._has_links else [None] * len(keys)
        wishes, relevances = wishes_of(self._store, keys), self.relevances(pages)
        return [
            self._row(
                page,
                host=hosts[key[:HOST_BYTES]],
                request=request,
                root_url=urls[roots[key]] if key in roots else "",
                text=text,
                n_links=n,
                wishes=wishes[key],
                relevance=relevances[key],
                found=found_last(page, since),
            )
            for (key, page), request, text, n in zip(pages.items(), requests, texts, n_links, strict=True)
        ]

    def _row(
        self,
        page: Page,
        *,
        host: str,
        request: bytes | None,
        root_url: str,
        text: bytes | None,
        n_links: int | None,
        wishes: tuple[str, str],
        relevance: float | None,
        found: Found,
    ) -> PageRow:
        changes, outcome = page.changes, page.outcome
        fetched = read_fetched(page.fetched)
        url, depth = url_and_depth(request or b"")
        return PageRow(
            url=url,
            host=host,
            importance=self.estimate.importance(self.estimate.weight(page)),
            cash=page.cash + self._ledger.owed(page),
            history=page.history,
            visits=page.visits,
            state=_STATES[page.state],
            outcome=outcome,
            merged_into=root_url,
            relevance=relevance,
            visited_at=_utc(page.visited_at),
            status=fetched.status if fetched is not None else None,
            content_type=fetched.content_type if fetched is not None else "",
            bytes=fetched.size if fetched is not None else None,
            depth=depth,
            inlinks=page.score // self._one_link if self._one_link else None,
            outlinks=n_links,
            digest=shown(changes.digest).hex() if changes is not None else "",
            text_digest=digest_of(text).hex() if text is not None else "",
            found=found.what,
            first_seen=_utc(found.first_seen),
            last_changed=_utc(found.last_changed),
            previous_digest=found.previous_digest.hex(),
            changes_a_day=self._rates.mean(changes.evidence) * 86_400
            if changes is not None and changes.evidence
            else None,
            robots=wishes[0],
            content_usage=wishes[1],
        )

    def relevances(self, pages: dict[bytes, Page]) -> dict[bytes, float | None]:
        """How likely each of *pages* is relevant to the topic, 0 to 1; ``None`` if it was not graded."""
        if not self.has_values:
            return dict.fromkeys(pages)
        gists = gists_of(self._store, list(pages)) if self._calibration.gist else {}
        grades = {key: relevance_of(page) for key, page in pages.items()}
        return {
            key: self._calibration.probability(grade, gists.get(key, b"")) if grade is not None else None
            for key, grade in grades.items()
        }


def count_links(store: Store, keys: Sequence[bytes]) -> list[int | None]:
    """Links of the pages under *keys*, to pages of other shards included; ``None`` if they were not kept."""
    counts: list[int | None] = []
    found = store.get_many(Family.LINKS, [*keys, *map(elsewhere_key, keys)])
    n = len(keys)
    for key, own, other in zip(keys, found[:n], found[n:], strict=True):
        counts.append(
            None
            if own is None and other is None
            else len(split_links(key, own or b"")) + len(split_links(elsewhere_key(key), other or b""))
        )
    return counts


def _utc(instant: float) -> datetime | None:
    """*instant* as a time; ``None`` if it is 0."""
    return datetime.fromtimestamp(instant, timezone.utc) if instant else None


def top_pages(view: View, n: int, *, everything: bool = False, by: str = "importance") -> list[PageRow]:
    """The *n* most important pages, best first; or those most likely relevant to the topic, *by* ``"relevance"``.

    Redirects, errors and pages that failed are left out unless *everything*.
    """
    find = partial(_top_pages, n, view.calibration, by=by, everything=everything)
    rows = chain.from_iterable(map(find, view.stores))
    return heapq.nlargest(n, rows, key=lambda row: (getattr(row, by) or 0.0, row.importance))


def _top_pages(n: int, calibration: Calibration, store: Store, *, by: str, everything: bool) -> list[PageRow]:
    saved = read_totals(store)
    if saved is None:
        return []
    reader, rows = _PageReader(store, saved, calibration), store.scan(Family.PAGES)
    each_page = ((key, unpack_page(data)) for key, data in rows)
    wanted = (row for row in each_page if not row[1].repeat_of and (everything or not row[1].outcome))
    best: list[tuple[tuple[float, float], bytes, Page]] = []
    while chunk := dict(islice(wanted, CHUNK)):
        first = reader.relevances(chunk) if by == "relevance" else {}
        each = (
            ((first.get(key) or 0.0, reader.estimate.weight(page)), key, page) for key, page in chunk.items()
        )
        best = heapq.nlargest(n, chain(best, each), key=lambda row: row[0])
    return reader.rows({key: page for _, key, page in best})


def top_hosts(view: View, n: int) -> list[SiteRow]:
    """The *n* hosts whose pages are most important together, best first."""
    return heapq.nlargest(n, chain.from_iterable(each_site(view, CHUNK)), key=_importance)


def each_site(view: View, n: int) -> Iterator[list[SiteRow]]:
    """All hosts with what their pages have together, shard by shard, at most *n* at a time."""
    return chain.from_iterable(_each_site(store, view.at, n) for store in view.stores)


def _each_site(store: Store, now: float, n: int) -> Iterator[list[SiteRow]]:
    saved = read_totals(store)
    if saved is None:
        return
    estimate = saved.estimate()
    sums = (
        _sums(key, rows, saved.ledger, estimate)
        for key, rows in groupby(store.scan(Family.PAGES), lambda row: row[0][:HOST_BYTES])
    )
    while chunk := list(islice(sums, n)):
        records = store.get_many(Family.HOSTS, [each.key for each in chunk])
        yield [
            _site(each, unpack_host(data) if data is not None else HostRecord(""), now)
            for each, data in zip(chunk, records, strict=True)
        ]


class _Sums(NamedTuple):
    """What the pages of the host under *key* have together."""

    key: bytes
    importance: float
    cash: int
    history: int
    pages: int


def _sums(key: bytes, rows: Iterable[tuple[bytes, bytes]], ledger: Totals, estimate: Estimate) -> _Sums:
    weight = cash = history = pages = 0
    for _, data in rows:
        page = unpack_page(data)
        weight += estimate.weight(page)
        cash += page.cash + ledger.owed(page)
        history += page.history
        pages += 1
    return _Sums(key, estimate.importance(weight), cash, history, pages)


def _site(sums: _Sums, host: HostRecord, now: float) -> SiteRow:
    return SiteRow(
        host=host.name,
        importance=sums.importance,
        cash=sums.cash,
        history=sums.history,
        pages=sums.pages,
        visited=host.visited,
        queued=host.queued,
        state=state_of(host, now),
        opens_at=_utc(host.opens_at),
        transfer=host.transfer,
        errors=host.errors,
        crawl_delay=host.crawl_delay,
    )


def facts_of(view: View) -> dict[str, str]:
    """What a file with rows of *view* says of it: version, time of the last commit, beginning of the job, order."""
    saved = [each for each in view.saved if each is not None]
    return {
        "version": __version__,
        "at": _text_of(view.at),
        "created_at": _text_of(min((each.created_at for each in saved), default=0.0)),
        "order": saved[0].order_name if saved else "",
    }


def _text_of(instant: float) -> str:
    """*instant* in ISO 8601; empty if it is 0."""
    time = _utc(instant)
    return time.isoformat(timespec="seconds") if time is not None else ""


def rounds_in(view: View) -> list[Round]:
    """The rounds of revisits of the job, in order."""
    return together(chain.from_iterable(map(read_rounds, view.stores)))


def count_pages(view: View) -> int:
    """Pages that the job knows."""
    return sum(saved.pages for saved in view.saved if saved is not None)


def pages_in(view: View, n: int) -> Iterator[list[PageRow]]:
    """All pages, shard by shard and host by host, at most *n* at a time; further requests for one once more while they wait."""
    return changes_in(view, n, [-1.0] * len(view.stores))


def changes_in(view: View, n: int, after: list[float]) -> Iterator[list[PageRow]]:
    """Those of *n* pages at a time that are new, changed, moved or gone since the instants *after*, one for each shard.

    In the end these are the instants of the last changes that were there.
    """
    for number, store in enumerate(view.stores):
        saved, since = read_totals(store), after[number]
        if saved is None:
            continue
        reader, rows = _PageReader(store, saved, view.calibration), store.scan(Family.PAGES)
        while chunk := list(islice(rows, n)):
            each_page = ((key, unpack_page(data)) for key, data in chunk)
            pages = {key: page for key, page in each_page if not (page.repeat_of and page.canonical)}
            changes = {key: page.changes or _UNCHANGED for key, page in pages.items()}
            changed = {key: each.noted_at or each.changed_at for key, each in changes.items()}
            if given := {key: page for key, page in pages.items() if changed[key] > since}:
                yield reader.rows(given, since if since >= 0 else inf)
            after[number] = max((after[number], *changed.values()))


def instants_of(view: View, since: str | datetime | int) -> list[float]:
    """An instant for each shard: that of a cursor, of a time, or of the beginning of a round, of the last one if it is 0.

    Raises:
        ExchangeError: If there was no such round, no visit has noted what it found, or it is no cursor of this job.
    """
    if isinstance(since, datetime):
        rows = chain.from_iterable(store.scan(Family.PAGES) for store in view.stores)
        if not any(unpack_page(data).changes for _, data in rows):
            raise ExchangeError(
                "No visit of this job has noted what it found: AOPIC_RECRAWL ('scrapy aopic crawl --again') notes it from the next ones on."
            )
        return [since.timestamp()] * len(view.stores)
    if isinstance(since, int):
        rounds = rounds_in(view)
        began = {each.number * (each is not rounds[-1] or since > 0): each.began for each in rounds}
        if since not in began:
            there = f"its rounds are 1 to {rounds[-1].number}" if rounds else "--again makes the first one"
            raise ExchangeError(f"This job has no round {since or ''}".strip() + f": {there}.")
        return [began[since]] * len(view.stores)
    try:
        found = [float(each) for each in since.split(",")] if since else [0.0] * len(view.stores)
    except ValueError:
        found = []
    if len(found) != len(view.stores):
        raise ExchangeError(f"{since[:100]!r} is no cursor that the changes of this job have given.")
    return found


def roots_of(store: Store, pages: dict[bytes, Page]) -> dict[bytes, bytes]:
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


def each_link(view: View, n: int) -> Iterator[list[LinkRow]]:
    """All links that were kept, about *n* at a time.

    Raises:
        ExchangeError: If none were.
    """
    if all(next(store.scan(Family.LINKS), None) is None for store in view.stores):
        raise ExchangeError(
            "This job has kept no links. AOPIC_KEEP_LINKS = True keeps those of the pages that are visited from then on."
        )
    return chain.from_iterable(_each_link(store, n) for store in view.stores)


def _each_link(store: Store, n: int) -> Iterator[list[LinkRow]]:
    links: list[tuple[bytes, bytes]] = []
    for source, targets in store.scan(Family.LINKS):
        links += [(source[:PAGE_BYTES], target) for target in split_links(source, targets)]
        if len(links) >= n:
            yield _named(store, links)
            links = []
    if links:
        yield _named(store, links)


def _named(store: Store, links: list[tuple[bytes, bytes]]) -> list[LinkRow]:
    urls = urls_of(store, list({key for link in links for key in link}))
    return [LinkRow(urls[source], urls[target]) for source, target in links]


def urls_of(store: Store, keys: list[bytes]) -> dict[bytes, str]:
    requests = store.get_many(Family.REQUESTS, keys)
    return {key: url_of(request or b"") for key, request in zip(keys, requests, strict=True)}


def wishes_of(store: Store, keys: list[bytes]) -> dict[bytes, tuple[str, str]]:
    """What the owners of the pages under *keys* ask of robots, and how these may be used; empty texts for nothing."""
    rows = store.get_many(Family.CONTENT, [WISHES + key for key in keys])
    return {key: (row and read_wishes(row)) or ("", "") for key, row in zip(keys, rows, strict=True)}


def gists_of(store: Store, keys: list[bytes]) -> dict[bytes, bytes]:
    """What the pages under *keys* are about; empty if that is not known."""
    rows = store.get_many(Family.CONTENT, [GISTS + key for key in keys])
    return {key: row or b"" for key, row in zip(keys, rows, strict=True)}


def _hosts(store: Store, keys: Iterable[bytes]) -> dict[bytes, str]:
    wanted = list(keys)
    found = store.get_many(Family.HOSTS, wanted)
    return {key: unpack_host(data).name if data else "" for key, data in zip(wanted, found, strict=True)}


_MEASURES: dict[str, Callable[[HostRecord, float], float]] = {
    "slow": lambda host, _: host.transfer,
    "failing": lambda host, _: max(host.errors, host.unanswered),
    "waiting": lambda host, now: max(host.opens_at - now, 0.0) if host.row else 0.0,
    "budget": lambda host, _: host.queued if host.row[:2] in (LATE, BEHIND) else 0,
    "queued": lambda host, _: host.queued,
    "fetched": lambda host, _: host.visited,
}
"""The figure by which hosts of a kind are ordered, as of an instant; hosts with 0 are left out."""

KINDS = tuple(_MEASURES)
"""Words for these."""


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


def hosts_by(view: View, kind: str, n: int, part: str = "") -> list[HostRow]:
    """The *n* hosts that come first of a *kind*, of those with *part* in their names; see :class:`HostLists`."""
    lists = HostLists([kind], n, view.at)
    for host in hosts_in(view):
        if part in host.name:
            lists.offer(host)
    rows = lists.rows(kind)
    found = dict(_relevances(view, [row.name for row in rows]))
    return [replace(row, relevance=found.get(row.name)) for row in rows]


def _relevances(view: View, names: list[str]) -> Iterator[tuple[str, float]]:
    """Mean relevance of the graded pages of those hosts called *names* that have some."""
    for store in view.stores:
        saved = read_totals(store)
        if saved is not None and (reader := _PageReader(store, saved, view.calibration)).has_values:
            for name in names:
                first = host_key(name)
                rows = islice(store.scan(Family.PAGES, first, first + _LAST_PAGE), _DRAWN)
                found = reader.relevances({key: unpack_page(data) for key, data in rows}).values()
                if graded := [each for each in found if each is not None]:
                    yield name, fmean(graded)


def hosts_in(view: View) -> Iterator[HostRecord]:
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
        for looked, host in enumerate(hosts_in(view)):
            if looked == _MOST_HOSTS:
                return []
            while name := covering(left, host.name):
                del left[name]
    return [*left]

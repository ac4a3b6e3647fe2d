"""The end of a visit: which pages its links lead to, what they are paid, and what follows from the rest of the response.

Links to pages of other shards of the job are paid like all others, and what they get leaves by mail
(:mod:`.shards.mail`).

Rule: everything that is given is checked before anything is changed; a :class:`~scrapy_aopic.exceptions.CallError` has
done nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nextafter
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from scrapy_aopic.exceptions import CallError

from .api import Ending, Findings, Lease, Settled
from .duplicates import Claim
from .layout import GISTS, SHARES, WISHES
from .records import FAILED, HOST_BYTES, PAGE_BYTES, QUEUED, Link, Page, host_key, pack, unpack
from .revisits.fruit import DAY
from .revisits.rates import Version
from .shards.cut import address, shard_of_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .domain_links import DomainLinks
    from .frontier.frontier import Frontier
    from .frontier.host_state import HostState
    from .kept_links import KeptLinks, Scores
    from .leases import Leases
    from .ledger import Ledger
    from .merging import Merging
    from .order import Order
    from .pages import Finder, Pages
    from .revisits.revisits import Revisits
    from .shards.mail import Mail
    from .tables import BlobTable

_NO_VERSION = Version()


@dataclass(slots=True)
class _Targets:
    """The pages that a visited page links to, without itself.

    Attributes:
        links: The first link to each page, by its key.
        pages: Those pages in the same order, ``None`` if they are not known.
        repeats: Further links that ask for a fetch of their own.
        weights: What the links are paid in proportion to; 0 for those that are not paid.
        n: Distinct links, at least those that are here.
        whole: Weight of all of these.
        away: Links to pages of other shards, and their shards, by key; their weights follow those of *links*.
        keys: Page keys of all links in document order, if some are of other shards.
        paid_away: What the links to pages of other shards were paid.
    """

    links: dict[bytes, Link]
    pages: list[Page | None]
    repeats: list[Link]
    weights: list[int]
    n: int
    whole: int
    away: dict[bytes, tuple[Link, int]]
    keys: list[bytes]
    paid_away: list[int] = field(default_factory=list)


class _Kept(NamedTuple):
    """The links of an earlier visit: to pages here, to pages of other shards by key, and what they shared."""

    links: list[Link]
    away: dict[bytes, tuple[Link, int]]
    n: int = 0
    whole: int = 0


_NONE_KEPT = _Kept([], {})


class Settling:
    """Ends visits: what a leased page has shown becomes cash, queued pages and notes."""

    def __init__(
        self,
        *,
        leases: Leases,
        pages: Pages,
        ledger: Ledger,
        order: Order,
        frontier: Frontier,
        domain_links: DomainLinks | None,
        merging: Merging,
        revisits: Revisits,
        links: KeptLinks,
        scores: Scores,
        mail: Mail,
        wishes: BlobTable,
    ) -> None:
        self._instant = 0.0
        self._mail = mail
        self._wishes = wishes
        self._leases = leases
        self._pages = pages
        self._ledger = ledger
        self._order = order
        self._n_found = order.one_link if order.counts_links else 0
        self._frontier = frontier
        self._domain_links = domain_links
        self._merging = merging
        self._revisits = revisits
        self._links = links
        self._scores = scores
        # Of pages that leased pages have announced, by the numbers of the leases: how far they were moved up by themselves.
        self._shifts: dict[int, dict[bytes, int]] = {}

    def settle(self, lease: Lease, links: Sequence[Link], now: float, found: Findings) -> Settled:
        """End the visit of a leased page; see :meth:`scrapy_aopic.core.api.CrawlPort.settle`."""
        if (standing := self._leases.standing(lease)) != Ending.OK:
            return Settled(standing)
        key, pages, frontier = lease.key, self._pages, self._frontier
        page = pages.expect(key, "a lease")
        first, copy, _ = self._merging.verdict(key)
        to = self._targets(lease, page, links, found, is_duplicate=bool(first))
        hosts = list({target[:HOST_BYTES]: None for target in to.links})  # in their order, which may decide
        self._leases.end(lease)
        self._merging.drop_verdict(key)
        frontier.preload(hosts)
        host = frontier.finish(key, page.front_queue, page.place)
        if self._domain_links is not None:
            hosts = self._domain_links.preload(host, hosts)
        group = pages.branches.group_of(lease.request)
        pages.branches.count(key, page, group)
        self._revisits.found(page, found, now)
        n_new = self._news(page, to, found, now)
        finder = self._as_finder(lease, page, host, group)
        paid = self._ledger.visit(
            page,
            0 if first and not to.n else lease.cash,  # a duplicate hands its cash on whole
            to.weights,
            to.n,
            now,
            whole=to.whole,
            domain_visited=None if found.outcome else self._endowed_before(host, copy),
            is_plain=not found.outcome,
        )
        # Later than all before: who has read the changes up to one commit finds the others by it.
        self._instant = ended = max(now, nextafter(self._instant, inf))
        at, failed = found.version.at if found.version is not None else 0.0, found.is_failure
        pages.visited(
            key, page, found.outcome, found.value, fetched=found.fetched, is_failure=failed, at=at, now=ended
        )
        self._link_to_itself(key, page, links)
        self._revisits.visited(key, page, found.version or _NO_VERSION, ended, n_new=n_new, n_links=to.n)
        is_first = page.visits == 1
        self._note(
            WISHES + key, pack(found.wishes) if found.wishes else b"", _shows_page(found) and not is_first
        )
        self._note(GISTS + key, found.gist, found.value and not is_first)
        if is_first:
            frontier.count(host)
            pages.directories.count(key, lease.request)
        self._let_down(lease, to)
        n_found = self._n_found if is_first else 0
        if to.away:
            paid = self._pay_away(to, paid, host, found=n_found)
        pages.pay(to.links.values(), to.pages, paid, now, found=n_found, finder=finder)
        for link in to.repeats:
            if link.key not in to.away:
                pages.repeat(link, pages.expect(link.key, "a link"), now)
        if self._domain_links is not None:
            self._domain_links.linked(host, hosts, now)
        self._keep_links(key, to, found, is_first=is_first)
        page_itself = key[:HOST_BYTES] + page.repeat_of if page.repeat_of else b""
        other = page_itself or first or self._named(found, to)
        self._merging.visited(key, page, _claim(key, page, first, found), other, now)
        if to.away:
            by_key = dict(zip([*to.links, *to.away], [*paid, *to.paid_away], strict=True))
            paid = [by_key[each] for each in to.keys]
        return Settled(Ending.OK, paid)

    def announce(self, lease: Lease, links: Sequence[Link], now: float, n_links: int) -> list[Link]:
        """Queue what a leased page links to before its visit ends; see :meth:`scrapy_aopic.core.api.SessionPort.announce`."""
        if self._leases.standing(lease) != Ending.OK:
            return list(links)
        pages, frontier = self._pages, self._frontier
        finder = pages.expect(lease.key, "a lease")
        unknown = [link for link in links if link.request]
        away = self._mail.elsewhere(unknown)
        targets, repeats = _distinct(unknown, lease.key)
        here = [link for link in targets.values() if link.key not in away]
        known = pages.get_many([link.key for link in here])
        check_links("announce", [link for link, page in zip(here, known, strict=True) if page is None])
        hosts = list({link.key[:HOST_BYTES]: None for link in here})
        frontier.preload(hosts)
        host = frontier.places.expect(lease.key[:HOST_BYTES], "a lease")
        if self._domain_links is not None:
            hosts = self._domain_links.preload(host, hosts)
        as_finder = self._as_finder(lease, finder, host, pages.branches.group_of(lease.request))
        here = self._lifted(lease, finder, here, known, host, n_links=max(n_links, len(targets)))
        pages.pay(here, known, [0] * len(here), now, found=0, finder=as_finder)
        for link in repeats:
            if link.key not in away:
                pages.repeat(link, pages.expect(link.key, "a link"), now)
        if self._domain_links is not None:
            self._domain_links.linked(host, hosts, now)
        if away:
            domain = self._domain_links.domain_of(host) if self._domain_links is not None else b""
            for link in (*targets.values(), *repeats):
                if link.key in away:
                    self._mail.pay(away[link.key], link, 0, finder=domain)
        # What is known of pages of other shards is only known there, so the payment brings the request once more.
        return [
            replace(link, again=False, request=link.request if link.key in away else b"") for link in links
        ]

    def _link_to_itself(self, key: bytes, page: Page, links: Sequence[Link]) -> None:
        """Let *page* be known to links if one of its own leads to it, and is for the same."""
        for link in links if page.purpose else ():
            if link.key == key:
                self._pages.is_for_more(link, page)

    def _as_finder(self, lease: Lease, page: Page, host: HostState, group: int) -> Finder:
        """What pages take from the leased *page* of *host* and *group* by its links."""
        is_new = not page.visits and lease.number not in self._shifts
        return self._pages.finder(lease.key, page, group, host.visited, is_new=is_new)

    def _lifted(
        self,
        lease: Lease,
        finder: Page,
        links: list[Link],
        known: list[Page | None],
        host: HostState,
        *,
        n_links: int,
    ) -> list[Link]:
        """*links* of the page *finder*, lifted so that their pages wait where they would if they were paid now.

        Else they would wait behind all others, and whatever waits for them would hold up its page and its cash.
        """
        if not links:
            return links
        copy = self._merging.verdict(lease.key).copy
        units = self._ledger.units_a_link(
            lease.cash, n_links, self._endowed_before(host, copy), finder.clicks
        )
        shifts, lifted = self._shifts.setdefault(lease.number, {}), []
        for link, page in zip(links, known, strict=True):
            alone = Page(QUEUED, 0, shift=link.shift, score=link.value)
            lift = self._order.front_queue(alone, units) - self._order.front_queue(alone, 0)
            if page is None or (link.again and page.state != QUEUED):
                shifts[link.key] = link.shift
            lifted.append(replace(link, shift=link.shift + lift))
        return lifted

    def _news(self, page: Page, to: _Targets, found: Findings, now: float) -> float:
        """Pages that a visit has brought, and dates of pages, which are noted; only of this shard."""
        # A first visit brings what there was before, but dates are sure to change.
        # A feed says how often it brings something.
        n = to.pages.count(None) if page.visits else DAY / found.every if found.every else bool(found.dates)
        for key, at in (found.dates or {}).items():
            known = self._pages.get(key)
            n += known is not None and self._revisits.dated(key, known, at, now)
        return n

    def _let_down(self, lease: Lease, to: _Targets) -> None:
        """Let the pages that were lifted wait where their cash says, once it is paid."""
        if lease.number not in self._shifts:
            return
        shifts = self._shifts.pop(lease.number)
        for key, page in zip(to.links, to.pages, strict=True):
            if page is not None and key in shifts:
                self._pages.shift(key, page, shifts[key])

    def put_back(self, lease: Lease) -> None:
        """*lease* ended without a visit."""
        self._shifts.pop(lease.number, None)

    def _pay_away(self, to: _Targets, paid: list[int], host: HostState, *, found: int) -> list[int]:
        """Send what the links to pages of other shards are *paid*; returns what is paid to the others."""
        finder = self._domain_links.domain_of(host) if self._domain_links is not None else b""
        n = len(to.links)
        for (link, shard), units in zip(to.away.values(), paid[n:], strict=True):
            self._mail.pay(shard, link, units, found=found, finder=finder)
        for link in to.repeats:
            if link.key in to.away:
                self._mail.pay(to.away[link.key][1], link, 0)
        to.paid_away = paid[n:]
        return paid[:n]

    def _named(self, found: Findings, to: _Targets) -> bytes:
        """The page that *found* says it is: its key, or its address if it is of another shard."""
        if found.same_as in to.away:
            return address(found.same_as, to.away[found.same_as][1])
        if not found.same_host:
            return found.same_as
        shard = self._mail.cut.of_host(found.same_host)
        is_here = shard == self._mail.cut.own.number
        return found.same_as if is_here else address(found.same_as, shard)

    def _targets(
        self, lease: Lease, page: Page, links: Sequence[Link], found: Findings, *, is_duplicate: bool
    ) -> _Targets:
        """The pages that *page* links to. Changes nothing.

        Raises:
            CallError: If there cannot be such links, or such findings.
        """
        version = found.version
        has_last_links = (
            version is not None
            and (version.is_same or version.is_missing)
            and page.visits > 0
            and not is_duplicate
        )
        kept = self._kept(lease.key) if has_last_links else _NONE_KEPT
        targets, repeats = _distinct([*links, *kept.links], lease.key)
        everywhere, away = targets, dict(kept.away)
        for each, shard in self._mail.elsewhere(targets.values()).items():
            away[each] = targets[each], shard
        if away:
            everywhere = {**targets, **{key: link for key, (link, _) in away.items()}}
            targets = {key: link for key, link in targets.items() if key not in away}
        known = self._pages.get_many(list(targets))
        weights = []
        new = [link for link, _ in away.values() if link.host]
        for link, target in zip(targets.values(), known, strict=True):
            if target is None:
                new.append(link)
            weights.append(link.weight if target is None or target.state != FAILED or link.again else 0)
        weights += [link.weight for link, _ in away.values()]
        check_links("settle", new)
        _check_findings(found, least_weight=min(weights, default=0))
        n = max(found.n_links, len(everywhere), kept.n)
        whole = max(found.weight or n, sum([link.weight for link in everywhere.values()]), kept.whole)
        keys = list(everywhere) if away else []
        return _Targets(targets, known, repeats, weights, n, whole, away, keys)

    def _kept(self, key: bytes) -> _Kept:
        """The links that the page under *key* had when they were kept, as far as their pages are known."""
        own, elsewhere = self._links.of(key), self._links.elsewhere(key)
        row = self._wishes.get(SHARES + key)
        n, whole, weights = unpack(row) if row else (0, 0, [1] * (len(own) + len(elsewhere)))
        known = zip(own, self._pages.get_many(own), weights, strict=False)
        links = [Link(each, "", b"", weight=weight) for each, page, weight in known if page is not None]
        away = {
            where[:PAGE_BYTES]: (Link(where[:PAGE_BYTES], "", b"", weight=weight), shard_of_address(where))
            for where, weight in zip(elsewhere, weights[len(own) :], strict=False)
        }
        return _Kept(links, away, n, whole)

    def _keep_links(self, key: bytes, to: _Targets, found: Findings, *, is_first: bool) -> None:
        """Keep what the page under *key* links to, and how its cash was shared, for visits that do not show it again."""
        # A redirect is a link of the graph, but none to follow once more when the page has not changed.
        if not self._links.is_on or (found.outcome and (not self._scores.is_on or found.is_failure)):
            return
        targets = list(to.links)
        self._links.keep(key, targets)
        self._scores.add(key, targets)
        self._links.keep_elsewhere(key, [address(away, shard) for away, (_, shard) in to.away.items()])
        if _shows_page(found):
            weights = [link.weight for link in (*to.links.values(), *(link for link, _ in to.away.values()))]
            if to.n > len(weights) or to.whole > to.n or weights.count(1) < len(weights):
                self._wishes.put(SHARES + key, pack((to.n, to.whole, weights)))
            elif not is_first:
                self._wishes.delete(SHARES + key)

    def _note(self, row: bytes, data: bytes, may_have_more: object) -> None:
        """Keep *data* in a *row* of what a page says, or nothing, if it *may have more* of an earlier visit."""
        if data:
            self._wishes.put(row, data)
        elif may_have_more:
            self._wishes.delete(row)

    def _endowed_before(self, host: HostState, copy: bytes) -> int | None:
        """Visited pages for which the endowment of a page of *host* falls; ``None`` if it is not endowed.

        Args:
            copy: Key of a page of another domain with the same text, if there is one.
        """
        if self._domain_links is None:
            return host.visited
        return None if self._domain_links.is_outdone(host, copy) else self._domain_links.n_visited(host)


def _shows_page(found: Findings) -> bool:
    """Whether the visit that ended with *found*, in a crawl with revisits, has shown the page and not only that it is unchanged."""
    return found.version is not None and not (found.version.is_same or found.version.is_missing)


def _claim(key: bytes, page: Page, first: bytes, found: Findings) -> Claim | None:
    """What the visit of *page* says that it is, if that is another page: one with the text of the page *first*, or so."""
    if page.repeat_of:
        return Claim(key, found.outcome, page.visits)
    if first:
        return Claim(key, found.outcome or "duplicate", page.visits)
    if found.same_as:
        return Claim(key, found.outcome or "canonical", page.visits, found.is_if_same)
    return None


def _distinct(links: Sequence[Link], key: bytes) -> tuple[dict[bytes, Link], list[Link]]:
    """The first of the *links* to each page but the one under *key*, and further ones that ask for a fetch."""
    targets = {link.key: link for link in links}  # as it is for most pages
    if len(targets) == len(links) and key not in targets:
        return targets, []
    targets.clear()
    repeats: list[Link] = []
    for link in links:
        if link.key not in targets and link.key != key:
            targets[link.key] = link
        elif link.again:
            repeats.append(link)
        elif link.request and link.key != key and not link.is_unfiltered and targets[link.key].is_unfiltered:
            targets[link.key] = replace(targets[link.key], is_unfiltered=False)  # a link has led to it, too
    return targets, repeats


def check_links(call: str, links: Iterable[Link]) -> None:
    """Refuse *links* to new pages if one of these would be stored where nobody finds it.

    Raises:
        CallError: If its key is not of its host.
    """
    for link in links:
        if len(link.key) != PAGE_BYTES or link.key[:HOST_BYTES] != host_key(link.host):
            raise CallError(
                f"{call}: the key of a page of {link.host!r} must begin with {host_key(link.host)!r} and have {PAGE_BYTES} "
                f"bytes (core.page_key makes one), not {link.key!r}"
            )


def _check_findings(found: Findings, *, least_weight: int) -> None:
    """Refuse what a visit cannot have shown."""
    for name, number in (
        ("n_links", found.n_links),
        ("weight", found.weight),
        ("weight of a link", least_weight),
    ):
        if number < 0:
            raise CallError(f"settle: {name} must be 0 or more, not {number}")
    if found.same_as and len(found.same_as) != PAGE_BYTES:
        raise CallError(
            f"settle: same_as must be the key of a page, {PAGE_BYTES} bytes, not {found.same_as!r}"
        )

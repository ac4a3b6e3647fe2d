"""One crawl's memory: what is known, what is queued, who holds how much cash.

This stands behind the port of :mod:`.api`: :meth:`Crawl.lease` hands out the best page that may be asked now,
:meth:`Crawl.settle` is the whole of one visit in one step. Between two steps the sum of all
cash is :data:`~scrapy_aopic.core.ledger.TOTAL`, the seen-set is the page table, and a queued page has exactly
one queue row, so none of them can disagree with another.

A leased page stays queued in the store until it is settled: a process that dies loses nothing.

Time is given by the caller, in seconds since the epoch; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.exceptions import CallError, StorageError

from .api import Counts, Ending, Lease, Settled
from .caches import ClockCache
from .domains import Domains
from .duplicates import Claim, Contents, Text
from .frontier.frontier import Empty, Frontier, Move, NotBefore, Taken, Unlocated
from .frontier.host_state import LEASED
from .graph import KnownGraph
from .layout import TOTALS_KEY
from .ledger import Ledger, Totals
from .order import Aopic, BatchOrder, Order
from .politeness import Gap, Outcome, Pace, Politeness
from .ports import Family, Store
from .records import (
    FAILED,
    HOST_BYTES,
    PAGE_BYTES,
    QUEUED,
    VISITED,
    Link,
    Page,
    host_key,
    pack_page,
    queue_row,
    repeat_key,
    unpack_page,
)
from .revisits import OVERDUE, Content, Rates, Recrawl, Wheel
from .saved import Saved, read_saved
from .sponsors import FAMILY
from .tables import BlobTable, RecordTable
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .caches import Cache
    from .domains import Domain
    from .frontier.host_state import HostState
    from .graph import Ranking

_COUNTER = (1 << 32) - 1

_MAX_SUPPORTED = 50_000

_LEASES_A_MILLISECOND = 20
"""Binary digits of the leases in a millisecond, so that each run numbers its own behind those of the runs before."""

_MAX_ENDED = 10_000
"""Ended leases that are told apart from those of other runs: several times those that can be in flight."""

MAX_HEIGHT = 32
"""Hops from a page to the one that stands for it: more than the redirects that Scrapy follows."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a crawl spends its cash and treats its hosts; see docs/settings.md for each.

    Attributes:
        order: Which page is next.
        recrawl: How visited pages come back; ``None`` to visit each page once.
        domain_of: Registered domain of a host name.
        chosen: Registered domains, or hosts, that the virtual page spends on if *spending* is ``"chosen"``.
        keep_links: Whether the links of each visited page are kept.
        is_near: Whether pages with nearly the same text count as the same, too.
        same_words: Pages of one registered domain with the same words and other links that count as different ones,
            0 for any number.
        by_domain: Whether hosts of one registered domain count as one for politeness.
        by_address: Whether hosts of one network address do.
        connections: Transfers that may be under way at once, 0 for any number.
        max_active: Hosts kept in memory.
        page_cache: Page records kept in memory.
        cache: Makes what says which of them go when there are more.
        commit_within: Seconds; no page is leased later than this after the last commit that landed, so that a
            crash leaves no request older than that unknown.
    """

    order: Order = field(default_factory=Aopic)
    window: Window = field(default_factory=Window)
    politeness: Politeness = field(default_factory=Politeness)
    share: float | None = 0.15
    endowment: float = 6.0
    spending: str = "endowment"
    recrawl: Recrawl | None = None
    domain_of: Callable[[str], str] = str
    chosen: frozenset[str] = frozenset()
    keep_links: bool = False
    is_near: bool = False
    same_words: int = 0
    by_domain: bool = False
    by_address: bool = False
    connections: int = 0
    max_active: int = 10_000
    page_cache: int = 100_000
    cache: Callable[[], Cache] = ClockCache
    commit_within: float = 1.0

    def is_chosen(self, host: str) -> bool:
        """Whether the virtual page spends on the pages of *host* if it spends on chosen domains."""
        return bool(self.chosen) and (host in self.chosen or self.domain_of(host) in self.chosen)


def _distinct(links: Sequence[Link], key: bytes) -> tuple[dict[bytes, Link], list[Link]]:
    """The first of the *links* to each page but the one under *key*, and further ones that ask for a fetch."""
    targets = {link.key: link for link in links}  # as it is for most pages
    if len(targets) == len(links) and key not in targets:
        return targets, []
    targets.clear()
    extra: list[Link] = []
    for link in links:
        if link.key not in targets and link.key != key:
            targets[link.key] = link
        elif link.again:
            extra.append(link)
    return targets, extra


def _check_link(call: str, link: Link) -> None:
    """Refuse a *link* to a new page that would be stored where nobody finds it."""
    if len(link.key) != PAGE_BYTES or link.key[:HOST_BYTES] != host_key(link.host):
        raise CallError(
            f"{call}: the key of a page of {link.host!r} must begin with {host_key(link.host)!r} and have {PAGE_BYTES} "
            f"bytes (core.page_key makes one), not {link.key!r}"
        )


def _check_visit(new: Iterable[Link], same_as: bytes, **numbers: int) -> None:
    """Refuse what a visit cannot have shown; *new* are its links to pages that are not known."""
    for link in new:
        _check_link("settle", link)
    for name, number in numbers.items():
        if number < 0:
            raise CallError(f"settle: {name} must be 0 or more, not {number}")
    if same_as and len(same_as) != PAGE_BYTES:
        raise CallError(f"settle: same_as must be the key of a page, {PAGE_BYTES} bytes, not {same_as!r}")


def order_name(order: Order) -> str:
    """Name of the class of *order*, by which a job remembers it."""
    return f"{type(order).__module__}.{type(order).__qualname__}"


def split_links(targets: bytes) -> list[bytes]:
    """Page keys in a row of the links family."""
    return [targets[begin : begin + 2 * HOST_BYTES] for begin in range(0, len(targets), 2 * HOST_BYTES)]


class Crawl:
    """The ledger, the frontier and the seen-set of one job, on one store.

    Invariant: for every page, ``QUEUED`` means one queue row, in the front queue of its cash; the cash of all
    pages and of the virtual page is ``TOTAL``; the counts are those of the store. :mod:`.audit` checks it.

    Args:
        store: Where it is remembered. The caller writes what :meth:`take_changes` returns.
        policy: How cash is spent.
        now: Seconds since the epoch.

    Raises:
        StorageError: If the store was written in another format.
    """

    def __init__(self, store: Store, policy: Policy, now: float) -> None:
        self._policy = policy
        self._store = store
        self._pages = RecordTable(
            store, Family.PAGES, pack_page, unpack_page, policy.page_cache, cache=policy.cache()
        )
        self._requests = BlobTable(store, Family.REQUESTS)
        self._links = BlobTable(store, Family.LINKS)
        self._robots = BlobTable(store, Family.ROBOTS)
        self._contents = Contents(store, is_near=policy.is_near, site_of=self._site, most=policy.same_words)
        self._twins: dict[bytes, bytes] = {}
        self._copies: dict[bytes, bytes] = {}
        self._supported: set[bytes] = set()  # hosts with the domains that were noted to link to them
        self._leases: dict[bytes, Lease] = {}
        self._asked: dict[bytes, int] = {}  # number of the lease that asks a host, by its key
        self._ended: dict[int, None] = {}  # numbers of the leases that were ended last
        self._n_leases = int(now * 1000) << _LEASES_A_MILLISECOND
        self._visited = self._failed = self._order = self._visited_once = 0
        self.n_united = 0
        self._changed = False
        self.order = policy.order
        self.order_clock = 0  # what the order remembers
        self._keeps_links = (
            policy.keep_links or policy.recrawl is not None or isinstance(self.order, BatchOrder)
        )
        self._domains = (
            Domains(store, policy.domain_of, self.order.budget, self.order.allowance)
            if self.order.uses_domains
            else None
        )
        self.frontier = Frontier(
            store,
            self.order,
            self._domains,
            politeness=policy.politeness,
            domain_of=policy.domain_of if policy.by_domain else None,
            uses_addresses=policy.by_address,
            connections=policy.connections,
            max_active=policy.max_active,
        )
        saved = read_saved(store)
        self.ledger = Ledger(
            saved.ledger if saved is not None else Totals(),
            policy.window,
            share=policy.share,
            endowment=policy.endowment if self.order.endows else 0.0,
            spending=policy.spending,
            averages=policy.recrawl is not None,
        )
        self._recrawl = policy.recrawl
        self._wheel = Wheel(self.frontier.index, policy.recrawl.share if policy.recrawl else 0.0)
        self._rates = Rates(saved.rates if saved is not None else ())
        self.started_at = now
        self.created_at: float = now
        self._known_before = 0
        self.is_resumed = saved is not None
        self.was_clean = True
        self._not_before = 0.0
        if saved is not None:
            self._resume(saved, now)
        self._graph = KnownGraph()
        self._ranked = 0
        if isinstance(self.order, BatchOrder):
            for key, targets in store.scan(Family.LINKS):
                self._graph.add(key, split_links(targets))

    def _resume(self, saved: Saved, now: float) -> None:
        if saved.order_name != order_name(self.order):
            raise StorageError(
                f"This job was crawled in the order {saved.order_name}, and AOPIC_ORDER is now "
                f"{order_name(self.order)}: set AOPIC_ORDER back, or use a new job folder. Nothing was changed."
            )
        self.order_clock = saved.clock
        self._visited, self._failed = saved.visited, saved.failed
        self._order = self._known_before = saved.order
        self._visited_once = saved.visits
        if self._domains is not None:
            self._domains.seeds = saved.seeds
        self.created_at = saved.created_at
        self.was_clean = saved.is_clean
        leased = self.frontier.load(
            now,
            queued=saved.queued,
            n_hosts=saved.hosts,
            n_shelved=saved.shelved,
            n_parked=saved.parked,
            n_dead=saved.dead,
            dead_pages=saved.dead_pages,
            visits=self._visited_once,
            crashed_at=saved.crashed_at if self.was_clean else now,
        )
        self._not_before = saved.not_before  # a clean stop in the pause after a crash does not end it
        if self.was_clean:
            return
        politeness, seen = self._policy.politeness, saved.saved_at + saved.commit_within
        for key, leased_at in leased:
            host = self.frontier.host(key)
            assert host is not None, "a lease of no host"
            self.frontier.defer_all(key, politeness.of(host.name).pause_after_crash(now, leased_at, seen))
        # Hosts that the dead process first asked after its last commit are not told apart from the others.
        pause = politeness.pause_after_crash(now, saved.saved_at, seen)
        self._not_before = max(self._not_before, pause)

    # -- asking

    @property
    def counts(self) -> Counts:
        """Pages by state and hosts, leased pages counted as queued."""
        return Counts(self.frontier.queued, self._visited, self._failed, self.frontier.n_hosts)

    def __len__(self) -> int:
        """Pages that wait and are not leased."""
        return self.frontier.pending

    @property
    def n_leased(self) -> int:
        """Pages handed out and not settled."""
        return len(self._leases)

    def page(self, key: bytes) -> Page | None:
        """The page under *key*; not to be changed."""
        return self._pages.get(key)

    def is_from_before(self, page: Page) -> bool:
        """Whether *page* was last queued by an earlier run of this job."""
        return page.place & _COUNTER <= self._known_before

    def importance(self, page: Page, now: float = 0.0) -> float:
        """Estimated importance of *page*, 0 to 1; all pages together have 1."""
        return self.ledger.importance(page, now)

    def not_before(self, host: bytes) -> float:
        """Instant before which the host under key *host* must be left alone."""
        return max(self.frontier.not_before(host), self._not_before)

    def longest_gap(self, name: str) -> float:
        """Longest gap of the host called *name* after a transfer that shows nothing special."""
        return self._policy.politeness.longest(self.frontier.host(host_key(name)) or Pace(name))

    def is_dead(self, host: bytes) -> bool:
        """Whether nobody waits for the host under key *host*."""
        known = self.frontier.host(host)
        return known is not None and self._policy.politeness.is_dead(known)

    def down(self, host: bytes) -> int:
        """Transfers in a row that showed the host under key *host* to be down."""
        known = self.frontier.host(host)
        return known.down if known is not None else 0

    @property
    def dead(self) -> tuple[int, int]:
        """Dead hosts that wait for their time, and their pages."""
        return self.frontier.n_dead, self.frontier.dead_pages

    def has_work(self, now: float) -> bool:
        """Whether there are pages to wait for: those of dead hosts count when their time has come."""
        due = self.frontier.dead_due
        return len(self) > self.frontier.dead_pages or due <= max(now, self._not_before)

    def when(self) -> NotBefore | Empty:
        """The earliest instant at which a page may be leased; it may be past."""
        return self._later(self.frontier.when())

    def awaited(self) -> tuple[float, str]:
        """The instant at which the first host may be asked that is not dead, and its name; ``""`` if nobody waits."""
        instant, name = self.frontier.awaited()
        return max(instant, self._not_before), name

    def _later(self, when: NotBefore | Empty) -> NotBefore | Empty:
        """What *when*, which the frontier says, is for the crawl."""
        instant = when.instant if isinstance(when, NotBefore) else inf
        if self._recrawl is not None:
            instant = min(instant, self._wheel.when())
        return NotBefore(max(instant, self._not_before)) if instant != inf else Empty()

    @property
    def cache_hits(self) -> tuple[int, int]:
        """Page look-ups answered from memory, and from the store."""
        return self._pages.hits, self._pages.misses

    # -- what comes from outside

    def seed(
        self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0, found_on: bytes = b""
    ) -> bool:
        """Queue a page that no page in work pays, with a seed's cash from the virtual page if *is_endowed*.

        Args:
            worth: How many seeds' cash it gets.
            found_on: Key of the page in work that links to it, if there is one; for one that is not endowed.

        Returns:
            False if the page is known and need not be fetched again.
        """
        page = self._pages.get(link.key)
        if page is not None and not link.again:
            return False
        _check_link("seed", link)
        if page is None:
            page = self._admit(link, 0)
            if is_endowed:
                self.ledger.grant(page, worth)
            self._queue(link, page, now)
            host = link.key[:HOST_BYTES]
            if found_on and self._domains is not None:
                self._support(host, self._domain(found_on[:HOST_BYTES]), now)
            elif is_endowed and self._domains is not None:  # who names a page vouches for its domain
                domain = self._domain(host)
                self._domains.vouch(domain, link.key)
                self.frontier.supported(domain)
                self.frontier.look_again(host, now)
        else:
            self._again(link, page, now)
        self._changed = True
        return True

    def enrich(self, key: bytes, now: float, worth: float) -> int:
        """Give the known page under *key* the cash of *worth* seeds out of the virtual page; returns the units."""
        key, page = self._root(key)
        if page is None or page.state == FAILED:
            return 0
        self.ledger.catch_up(page)
        units = self.ledger.grant(page, worth)
        self._relevel(key, page, now)
        self._pages.put(key, page)
        self._changed = True
        return units

    def lease(self, now: float) -> Lease | Unlocated | NotBefore | Empty:
        """Hand out the best page whose host may be asked at *now*, or ask for the address of a host first."""
        if now < self._not_before:
            return self.when()
        if self._recrawl is not None:
            self._look(self._recrawl, now)
            self._let_in(now)
        taken = self.frontier.take(now)
        while not isinstance(taken, (Taken, Unlocated)) and self._let_in(now, is_idle=True):
            taken = self.frontier.take(now)
        if isinstance(taken, Unlocated):
            return taken
        if not isinstance(taken, Taken):
            return self._later(taken)
        page = self._pages.get(taken.page)
        assert page is not None, "a queue row without its page"
        self.ledger.catch_up(page)
        if self.ledger.spend_virtual(page.cash):
            self.ledger.catch_up(page)
        self._relevel(taken.page, page, now)
        self.order_clock = self.order.clock_after(page, self.order_clock)
        self._wheel.fetched()
        self._pages.put(taken.page, page)
        host = self.frontier.active[taken.host]
        self._n_leases = number = self._n_leases + 1
        request = self._requests.get(taken.page) or b""
        lease = Lease(taken.page, host.name, request, page.cash, page.visits, number)
        self._leases[taken.page] = lease
        self._asked[taken.host] = number
        self._changed = True
        return lease

    # -- robots.txt

    def robots(self, key: bytes) -> bytes | None:
        """What was kept under *key* by :meth:`keep_robots`."""
        return self._robots.get(key)

    def keep_robots(self, key: bytes, data: bytes) -> None:
        """Keep *data*, what is known of a robots.txt, under *key* (a page key of its host)."""
        self._robots.put(key, data)
        self._changed = True

    # -- what becomes of a lease

    def hold(self, host: bytes, not_before: float) -> None:
        """Leave the host under key *host* alone until *not_before*, if not longer; no transfer has ended."""
        known = self.frontier.host(host)
        if known is not None:
            self.defer(host, not_before, known.transfer)

    def defer(self, host: bytes, not_before: float, transfer: float) -> None:
        """A transfer from the host under key *host* took *transfer* seconds: leave it alone until *not_before*."""
        self.frontier.defer(host, not_before, transfer)
        self._changed = True

    def transferred(
        self,
        name: str,
        transfer: float,
        now: float,
        outcome: Outcome,
        *,
        retry_after: float = 0.0,
        at_least: float = 0.0,
        address: str = "",
    ) -> Gap:
        """A transfer from the host called *name* took *transfer* seconds and is over; returns the gap after it.

        Args:
            retry_after: Seconds for which the host asks to be left alone.
            at_least: Seconds for which somebody else wants it to be left alone.
            address: The address that was asked.
        """
        self._changed = True
        return self.frontier.transferred(
            host_key(name),
            name,
            transfer,
            now,
            outcome,
            retry_after=retry_after,
            at_least=at_least,
            address=address,
        )

    def set_crawl_delay(self, name: str, seconds: float, now: float) -> None:
        """Have *seconds* between requests to the host called *name*, whose robots.txt was just read."""
        self._changed = True
        self.frontier.set_crawl_delay(host_key(name), name, seconds, now)

    def locate(self, host: Unlocated, address: str, now: float) -> None:
        """*host* has *address*; empty if that could not be found out."""
        self._changed = True
        self.frontier.locate(host.key, address, now)

    def _standing(self, lease: Lease) -> Ending:
        """Whether *lease* is held, was ended, or is none of this run's."""
        held = self._leases.get(lease.key)
        if held is not None and held.number == lease.number:
            return Ending.OK
        return Ending.DUP if lease.number in self._ended else Ending.STALE

    def _end(self, lease: Lease) -> None:
        """*lease* is held no more."""
        del self._leases[lease.key]
        self._ended[lease.number] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def release(self, lease: Lease, now: float) -> Ending:
        """Nothing is asked of the lease's host any more; the page itself may still be in work."""
        host = lease.key[:HOST_BYTES]
        if self._asked.get(host) != lease.number:
            return Ending.STALE if self._standing(lease) == Ending.STALE else Ending.DUP
        del self._asked[host]
        self.frontier.release(host, now)
        if self._recrawl is not None and self._is_free(host):
            self._wheel.freed(host)
        self._changed = True
        return Ending.OK

    def settle(
        self,
        lease: Lease,
        links: Sequence[Link],
        now: float,
        *,
        n_links: int = 0,
        outcome: str = "",
        is_failure: bool = False,
        weight: int = 0,
        content: Content | None = None,
        same_as: bytes = b"",
        is_if_same: bool = False,
    ) -> Settled:
        """End the visit of a leased page: its cash goes to its history and to the pages it links to.

        Args:
            links: The requests to make, in document order; of links to one page the first counts, links of the
                page to itself do not.
            n_links: Distinct links found, if filters dropped some; their shares go to the virtual page.
            weight: Weight of all distinct links found, if they differ in weight.
            content: What the answer says of the page's content, if pages are visited again.
            same_as: Key of the page that it says it is, once *links* are paid; a duplicate needs none.
            is_if_same: Whether that only counts if they have the same words.
            outcome: Why it is no ordinary page; ``""`` for an ordinary one.
            is_failure: The page will not be visited any more; later cash for it goes to the virtual page.

        Raises:
            CallError: If an argument cannot be right; nothing was changed.
        """
        if (standing := self._standing(lease)) != Ending.OK:
            return Settled(standing)
        page = self._pages.get(lease.key)
        assert page is not None, "a lease without its page"
        twin = self._twins.get(lease.key, b"")
        copy = self._copies.get(lease.key, b"")
        if content is not None and (content.is_same or content.is_missing) and page.visits and not twin:
            links = [*links, *self._links_kept(lease.key)]
        targets, extra = _distinct(links, lease.key)
        known = self._pages.get_many(list(targets))
        hosts = {key[:HOST_BYTES] for key in targets}
        weights = [
            link.weight if target is None or target.state != FAILED or link.again else 0
            for link, target in zip(targets.values(), known, strict=True)
        ]
        new = (link for link, target in zip(targets.values(), known, strict=True) if target is None)
        _check_visit(new, same_as, n_links=n_links, weight=weight, weight_of_a_link=min(weights, default=0))
        self._end(lease)
        self._unjudge(lease)
        self.frontier.preload(hosts)
        n_distinct = max(n_links, len(targets))
        host = self.frontier.finish(lease.key, page.front_queue, page.place)
        paid = self.ledger.visit(
            page,
            0 if twin and not n_distinct else lease.cash,  # it hands its cash on whole
            weights,
            n_distinct,
            now,
            whole=max(weight or n_distinct, sum([link.weight for link in targets.values()])),
            domain_visited=None if outcome or self._is_outdone(host, copy) else self._site_visited(host),
            is_plain=not outcome,
        )
        page.outcome = outcome
        page.state = VISITED
        if is_failure:
            self.ledger.fail(page)
            self._failed += 1
        else:
            self._visited += 1
        if is_failure:
            self._retire(lease.key, page)
        elif self._recrawl is not None and not page.is_repeat:
            self._plan(self._recrawl, lease.key, page, content or Content(), now)
        if page.visits == 1:
            self._visited_once += 1
            self.frontier.count(host)
        self._pages.put(lease.key, page)
        found = self.order.counts_links and page.visits == 1
        self._pay_all(zip(targets.values(), known, paid, strict=True), now, found=found)
        for link in extra:
            again = self._pages.get(link.key)
            assert again is not None, "a target without its page"
            self._again(link, again, now)
        is_kept = not outcome or (isinstance(self.order, BatchOrder) and not is_failure)  # a redirect
        self._note_links(lease.key, host, targets, hosts, now, is_kept=is_kept)
        # A page that asks for itself once more is queued again: it may say so then.
        if page.state == VISITED and (twin or same_as):
            claim = Claim(
                lease.key,
                outcome or ("duplicate" if twin else "canonical"),
                page.visits,
                is_if_same and not twin,
            )
            self._say_same(claim, twin or same_as, now)
        if page.is_claimed:
            self._unite_claims(lease.key, page, now)
        self._changed = True
        return Settled(Ending.OK, paid)

    def _note_links(
        self,
        key: bytes,
        host: HostState,
        targets: Iterable[bytes],
        hosts: Iterable[bytes],
        now: float,
        *,
        is_kept: bool,
    ) -> None:
        """Note which domains link to which *hosts*, and the links to *targets* themselves if they are kept."""
        if self._domains is not None:
            supporter, known = self._domains.key(host), self._supported
            for target in hosts:
                if target + supporter not in known:
                    self._support(target, supporter, now)
                    known.add(target + supporter)
            if len(known) > _MAX_SUPPORTED:
                known.clear()
        if self._keeps_links and is_kept:
            self._links.put(key, b"".join(targets))
            if isinstance(self.order, BatchOrder):
                self._graph.add(key, list(targets))

    def _pay_all(self, links: Iterable[tuple[Link, Page | None, int]], now: float, *, found: bool) -> None:
        """Pay the *links*, which come with their pages as far as these are known, and with the units for each."""
        united: list[tuple[Link, int]] = []
        new: dict[bytes, tuple[str, dict[bytes, bytes]]] = {}  # by key of the host, with its name
        moves: dict[bytes, list[Move]] = {}  # by key of the host
        for link, target, units in links:
            if target is None:
                page = self._admit(link, units, score=int(found))
                self._keep(link, page, now)
                host = link.key[:HOST_BYTES]
                if host not in new:
                    new[host] = (link.host, {})
                new[host][1][queue_row(page.front_queue, page.place)] = link.key[HOST_BYTES:]
            elif link.again:
                target.score += found
                self._again(link, target, now, units)
            elif target.canonical:
                united.append((link, units))  # later: the page that stands for it may be among the others
            elif target.state != FAILED:
                target.score += found
                self._credit(link.key, target, units, now)
                move = self._move(link.key, target, now)
                if move is not None:
                    moves.setdefault(link.key[:HOST_BYTES], []).append(move)
        for host, (name, rows) in new.items():
            self.frontier.insert_all(host, name, rows, now)
        for host, moved in moves.items():
            self.frontier.move(host, moved, now)
        for link, units in united:
            self._pay_root(link.key, units, now, found=found)

    def _pay_root(self, key: bytes, units: int, now: float, *, found: bool) -> None:
        """Pay *units* to the page that stands for the one under *key*."""
        root, page = self._root(key)
        if page is None or page.state == FAILED:
            self.ledger.forfeit(units)
            return
        page.score += found
        self._credit(root, page, units, now)
        self._relevel(root, page, now)

    def _links_kept(self, key: bytes) -> list[Link]:
        """The links that the page under *key* had at its last visit, as far as their pages are known."""
        keys = split_links(self._links.get(key) or b"")
        known = self._pages.get_many(keys)
        return [Link(target, "", b"") for target, page in zip(keys, known, strict=True) if page is not None]

    def put_back(self, lease: Lease, link: Link, now: float) -> Ending:
        """End a lease without a visit: the page waits again, with its cash, for the request in *link*."""
        if (standing := self._standing(lease)) != Ending.OK:
            return standing
        self._end(lease)
        self._unjudge(lease)
        page = self._pages.get(lease.key)
        assert page is not None, "a lease without its page"
        if link.request != lease.request:
            self._requests.put(lease.key, link.request)
        self.frontier.put_back(lease.key, page.front_queue, page.place, now)
        page.shift = link.shift
        self._relevel(lease.key, page, now)
        self._pages.put(lease.key, page)
        self._changed = True
        return Ending.OK

    # -- pages that are the same

    def judge(self, lease: Lease, text: Text | None, key: bytes = b"") -> bytes:
        """Note the *text* of a leased page.

        Args:
            text: ``None`` for the text that it had at its last visit.
            key: Key of the page itself, if the lease is of one more request for it.

        Returns:
            Key of the page that had the text first, or nearly the same; ``b""`` if this one is the first.
        """
        key = key or lease.key
        text = text or self._contents.text(key)
        if text is None or self._standing(lease) != Ending.OK:
            return b""
        self._changed = True
        found = self._contents.judge(key, text, partial(self._is_other, key))
        self._unjudge(lease)
        if found.twin:
            self._twins[lease.key] = found.twin
        if found.copy:
            self._copies[lease.key] = found.copy
        return found.twin

    def are_same(self, key: bytes, other: bytes) -> bool:
        """Whether the pages under *key* and *other* have the same text, or nearly, and the same links and data."""
        return self._contents.agree(key, other)

    def copy_of(self, lease: Lease) -> bytes:
        """Key of a page of another registered domain that has the text of a leased page; ``b""`` if none is known."""
        return self._copies.get(lease.key, b"")

    def give_way(self, lease: Lease, other: bytes, key: bytes = b"") -> bool:
        """Let a leased page, which was judged and says that it is the one under key *other*, be a duplicate of that.

        Args:
            key: Key of the page itself, if the lease is of one more request for it.

        Returns:
            False if that one is not known to have the same text.
        """
        if self._standing(lease) != Ending.OK:
            return False
        key = key or lease.key
        page = self._pages.get(other)
        is_there = page is not None and page.state != FAILED and self._root(other)[0] != key
        if not is_there or not self._contents.agree(key, other):
            return False
        self._twins[lease.key] = other
        self._copies.pop(lease.key, None)
        return True

    def _unjudge(self, lease: Lease) -> None:
        self._twins.pop(lease.key, None)
        self._copies.pop(lease.key, None)

    def _is_other(self, key: bytes, first: bytes) -> bool:
        """Whether the page under key *first* is there, and another one than that under *key*."""
        root, page = self._root(first)
        is_this = root == key or any(claim.page == first for claim in self._contents.claims(key))
        return page is not None and page.state != FAILED and not is_this

    def _site(self, key: bytes) -> bytes:
        """Key of the registered domain of the page under *key*."""
        host = self.frontier.host(key[:HOST_BYTES])
        return host_key(self._policy.domain_of(host.name)) if host is not None else key[:HOST_BYTES]

    def same_as(self, key: bytes) -> bytes:
        """Key of the page that the one under *key* was found to be the same as, also in work; ``b""`` if none."""
        page = self._pages.get(key)
        other = self._twins.get(key) or (page.canonical if page is not None else b"")
        return self._root(other)[0] if other else b""

    def request(self, key: bytes) -> bytes:
        """The request of the page under *key*; empty if it is not known."""
        return self._requests.get(key) or b""

    def _root(self, key: bytes) -> tuple[bytes, Page | None]:
        """The page that stands for the one under *key*, at most :data:`MAX_HEIGHT` hops away; ``None`` if unknown."""
        at, page, hops = key, self._pages.get(key), 0
        while page is not None and page.canonical:
            at, hops = page.canonical, hops + 1
            page = self._pages.get(at)
        if hops > 1 and (first := self._pages.get(key)) is not None:
            first.canonical = at  # one hop the next time
            self._pages.put(key, first)
        return at, page

    def _say_same(self, claim: Claim, other: bytes, now: float) -> None:
        """The page of *claim*, which was just visited, is the one under *other*: unite them once that was visited."""
        root, page = self._partner(claim.page, other)
        if page is None:
            return
        if page.visits:
            if self._is_backed(claim, other):
                self._unite(claim.page, root, claim.outcome, now)
            return
        page.is_claimed = True
        self._pages.put(root, page)
        self._contents.claim(root, claim)

    def _is_backed(self, claim: Claim, other: bytes) -> bool:
        """Whether *claim* to be the page under key *other* counts."""
        return not claim.is_if_same or self._contents.agree(claim.page, other, with_links=False)

    def _partner(self, key: bytes, other: bytes) -> tuple[bytes, Page | None]:
        """The page to unite the one under *key* with if it is the one under *other*; ``None`` for no other one."""
        root, page = self._root(other)
        is_one = page is not None and page.state != FAILED and root != key
        return root, page if is_one else None

    def _unite_claims(self, key: bytes, page: Page, now: float) -> None:
        """Unite the pages that claim to be *page*, which was just visited, unless it failed."""
        claims = self._contents.claims(key)
        page.is_claimed = False
        self._pages.put(key, page)
        for claim in claims:
            self._contents.settled(key, claim)
            source = self._pages.get(claim.page)
            if source is None or source.state != VISITED or source.visits != claim.visits:
                continue  # it may say something else by now
            root, other = self._partner(claim.page, key)
            if other is not None and self._is_backed(claim, key):
                self._unite(claim.page, root, claim.outcome, now)

    def _unite(self, key: bytes, root: bytes, outcome: str, now: float) -> None:
        """Move cash and history of the page under *key* to the one under *root*, and lead there what is paid to it."""
        page, other = self._pages.get(key), self._pages.get(root)
        assert page is not None, "no page to unite"
        assert other is not None, "no page to unite it with"
        # Each page of an endless chain says that it is the next one. One of other sites that ends here leaves room for
        # the pages of this site: else who leads one to a page could keep it from being one with its canonical page.
        if page.height >= (MAX_HEIGHT if self._site(key) == self._site(root) else MAX_HEIGHT // 2):
            return
        other.height = max(other.height, page.height + 1)
        self.ledger.merge(page, other)
        page.canonical = root
        page.outcome = outcome
        if self.order.counts_links:
            other.score += page.score
        self._pages.put(key, page)
        self._relevel(root, other, now)
        self._pages.put(root, other)
        self.n_united += 1

    # -- visited pages come back

    def _plan(self, recrawl: Recrawl, key: bytes, page: Page, content: Content, now: float) -> None:
        """Note what a visit has shown of *page* and when to look at it again."""
        is_known = page.changes is not None and not content.is_missing
        interval = now - page.changes.seen_at if is_known and page.changes is not None else 0.0
        page.changes = self._rates.learn(page.changes, content, now)
        self._wheel.set(key, page, now + recrawl.first_look(interval))

    def _retire(self, key: bytes, page: Page) -> None:
        """Let *page*, which failed, not come back."""
        if page.changes is not None:
            self._wheel.set(key, page, 0.0)
            page.changes = None

    def _look(self, recrawl: Recrawl, now: float) -> None:
        """Look at the pages whose time has come."""
        keys = self._wheel.looks(now)
        for key, page in zip(keys, self._pages.get_many(keys), strict=True):
            assert page is not None, "a time to look at a page that is not known"
            self._wheel.set(key, page, page.visited_at + recrawl.next_look(now - page.visited_at))
            self.ledger.catch_up(page)
            if page.state == QUEUED:
                self._relevel(key, page, now)
            else:
                self._offer(recrawl, key, page, now)
            self._pages.put(key, page)

    def _offer(self, recrawl: Recrawl, key: bytes, page: Page, now: float) -> None:
        """Let *page*, which was visited and whose cash is up to date, wait to be let in."""
        level = (
            OVERDUE
            if recrawl.is_overdue(page, now)
            else self.order.revisit_queue(page, self._worth(page, now))
        )
        self._wheel.offer(key, level, page.visited_at)

    def _let_in(self, now: float, *, is_idle: bool = False) -> bool:
        """Queue the best visited pages that are due and paid for, or one of a free host for nothing if *is_idle*."""
        is_free = self._is_free if is_idle else None
        is_any = False
        while not (is_any and is_idle) and (key := self._wheel.best(is_free)) is not None:
            page, host = self._pages.get(key), self.frontier.host(key[:HOST_BYTES])
            assert page is not None, "a page that is due and not known"
            assert host is not None, "a page without its host"
            self.ledger.catch_up(page)
            if page.canonical:
                self.ledger.revive(page)
            page.state = QUEUED
            page.place = self._next_place()
            page.front_queue = self._level(page, now)
            self._visited -= 1
            self._pages.put(key, page)
            self.frontier.insert(key, host.name, page.front_queue, page.place, now)
            self._changed = is_any = True
        return is_any

    def _is_free(self, host: bytes) -> bool:
        """Whether no page of the host under key *host* waits in the frontier, and none is asked for."""
        known = self.frontier.host(host)
        return known is None or (known.queued == len(known.in_flight) and known.phase != LEASED)

    def _level(self, page: Page, now: float) -> int:
        """Front queue of *page*, whose cash is up to date, as of now."""
        return self.order.front_queue(page, page.cash if self._recrawl is None else self._worth(page, now))

    def _worth(self, page: Page, now: float) -> int:
        """Units that *page*, whose cash is up to date, counts for if it is visited now."""
        assert self._recrawl is not None, "only pages that come back are worth more or less than their cash"
        expected = self.ledger.window.expected(page, page.cash, self.ledger.totals.turn, now)
        return self._recrawl.worth(page, expected, self._rates, now)

    # -- steps of the above

    def _admit(self, link: Link, cash: int, score: int = 0) -> Page:
        """Let a new page come into being."""
        page = Page(QUEUED, self._next_place(), shift=link.shift, score=score)
        if self._policy.chosen:
            page.is_chosen = self._policy.is_chosen(link.host)
        self.ledger.admit(page, cash)
        return page

    def _next_place(self) -> int:
        self._order += 1
        return self.order.place(self._order, self.order_clock)

    def _is_outdone(self, host: HostState, copy: bytes) -> bool:
        """Whether the page under key *copy*, with the text of one of *host*, is of a domain with no fewer supporters.

        Such a page is not endowed: else the same text could be endowed under any number of names. Who was first does
        not matter, and nothing else depends on it, because supporters can be bought.
        """
        if not copy or self._domains is None:
            return False
        own, other = self._domains.key(host), self._domain(copy[:HOST_BYTES])
        return self._domains.get(own).supporters <= self._domains.get(other).supporters

    def _site_visited(self, host: HostState) -> int:
        """Visited pages of the registered domain of *host*, or its part of those behind a link; of the host alone, if
        domains are not counted."""
        domains = self._domains
        if domains is None:
            return host.visited
        key = domains.key(host)
        route = domains.sponsors.known_route(key, self.frontier.visits)
        behind = route.charge // FAMILY if route.due > self.frontier.visits else 0
        return max(domains.get(key).visited, behind)

    def _support(self, host: bytes, supporter: bytes, now: float) -> None:
        """Let the domain of the host under key *host* be linked to by *supporter*."""
        assert self._domains is not None
        domain = self._domain(host)
        if domain != supporter and self._domains.support(domain, supporter):
            self.frontier.supported(domain)
            self.frontier.look_again(host, now)

    def _domain(self, host: bytes) -> bytes:
        """Key of the domain of the host under key *host*."""
        known = self.frontier.host(host)
        assert self._domains is not None
        assert known is not None, "a page without its host"
        return self._domains.key(known)

    def _queue(self, link: Link, page: Page, now: float) -> None:
        """Let *page*, which has no queue row, wait for the request in *link*."""
        page.state = QUEUED
        page.outcome = ""
        page.shift = link.shift
        self._keep(link, page, now)
        self.frontier.insert(link.key, link.host, page.front_queue, page.place, now)

    def _keep(self, link: Link, page: Page, now: float) -> None:
        """Keep *page*, with the front queue that it is to wait in, and the request in *link*."""
        page.front_queue = self._level(page, now)
        self._requests.put(link.key, link.request)
        self._pages.put(link.key, page)

    def _again(self, link: Link, page: Page, now: float, cash: int = 0) -> None:
        """Queue a request for a page that is known: the page itself if it is done, else a ticket beside it."""
        self.ledger.catch_up(page)
        if page.state != QUEUED:
            if page.state == FAILED:
                self.ledger.revive(page)
                self._failed -= 1
            else:
                self._visited -= 1
                self._wheel.remove(link.key)
                if page.canonical:
                    self.ledger.revive(page)
            page.cash += cash
            page.place = self._next_place()
            self._queue(link, page, now)
            return
        half = 0 if link.key in self._leases else self.ledger.split(page)
        repeat = self._admit(link, cash + half)
        repeat.is_repeat = True
        self._relevel(link.key, page, now)
        self._pages.put(link.key, page)
        self._queue(replace(link, key=repeat_key(link.key, repeat.place)), repeat, now)

    def _credit(self, key: bytes, page: Page, units: int, now: float) -> None:
        """Pay *units* to *page*; the caller moves its queue row."""
        self.ledger.catch_up(page)
        page.cash += units
        recrawl = self._recrawl
        if (
            recrawl is not None
            and page.state != QUEUED
            and page.changes is None
            and not recrawl.is_early(page, now)
        ):
            self._offer(recrawl, key, page, now)  # it was visited before pages came back
        self._pages.put(key, page)

    def _relevel(self, key: bytes, page: Page, now: float) -> None:
        """Move the queue row of *page*, if it has one, to the front queue of its cash."""
        move = self._move(key, page, now)
        if move is not None:
            self.frontier.move(key[:HOST_BYTES], [move], now)

    def _move(self, key: bytes, page: Page, now: float) -> Move | None:
        """Let *page*, if it is queued, wait in the front queue of its cash; returns how its queue row is to be moved."""
        if page.state != QUEUED:
            return None
        level = self._level(page, now)
        if level == page.front_queue:
            return None
        old, page.front_queue = queue_row(page.front_queue, page.place), level
        return old, queue_row(level, page.place), key[HOST_BYTES:]

    # -- orders that look at the whole graph

    def rescoring(self) -> Callable[[], Ranking] | None:
        """What computes the scores of all pages, if it is time; not to be changed: run it in any thread."""
        order, graph = self.order, self._graph
        if not isinstance(order, BatchOrder) or len(graph) <= self._ranked * (1 + order.growth):
            return None
        self._ranked = len(graph)
        return order.ranking(graph)

    def rescored(self, scores: Ranking, now: float, begin: int = 0, n: int | None = None) -> int:
        """Give *n* pages from number *begin* on the *scores* of a :meth:`rescoring`; returns the next *begin*."""
        end = len(scores) if n is None else min(begin + n, len(scores))
        keys = self._graph.keys[begin:end]
        for key, page, score in zip(keys, self._pages.get_many(keys), scores[begin:end], strict=True):
            if page is not None and page.score != score:
                page.score = score
                self._relevel(key, page, now)
                self._pages.put(key, page)
        self._changed = True
        return end

    # -- commits

    @property
    def has_changes(self) -> bool:
        """Whether anything happened since the last :meth:`take_changes`."""
        return self._changed

    def take_changes(self, now: float, *, is_clean: bool = False) -> dict[Family, dict[bytes, bytes | None]]:
        """Everything that changed, as one batch that leaves the store in a state of its own.

        The caller writes it and then calls :meth:`changes_landed` or :meth:`changes_failed`; at most one batch
        is in flight. Steps may go on meanwhile.
        """
        self._changed = False
        batch = self.frontier.take_changes()
        batch[Family.PAGES] = self._pages.take()
        batch[Family.REQUESTS] = self._requests.take()
        batch[Family.LINKS] = self._links.take()
        batch[Family.ROBOTS] = self._robots.take()
        batch[Family.CONTENT] = self._contents.take()
        if self._domains is not None:
            batch[Family.DOMAINS] = self._domains.table.take()
        batch[Family.META] = {**batch[Family.META], TOTALS_KEY: self._saved(now, is_clean=is_clean).pack()}
        return batch

    def _saved(self, now: float, *, is_clean: bool) -> Saved:
        frontier = self.frontier
        return Saved(
            order_name=order_name(self.order),
            created_at=self.created_at,
            saved_at=now,
            ledger=self.ledger.totals,
            window=astuple(self._policy.window) if self._recrawl is not None else None,
            queued=frontier.queued,
            visited=self._visited,
            failed=self._failed,
            hosts=frontier.n_hosts,
            order=self._order,
            clock=self.order_clock,
            visits=self._visited_once,
            rates=self._rates.counts,
            seeds=self._domains.seeds if self._domains is not None else 0,
            shelved=frontier.n_shelved,
            parked=frontier.n_parked,
            dead=frontier.n_dead,
            dead_pages=frontier.dead_pages,
            commit_within=self._policy.commit_within,
            is_clean=is_clean,
            crashed_at=frontier.crashed_at,
            not_before=self._not_before,
        )

    def _tables(self) -> list[RecordTable[Page] | RecordTable[Domain] | BlobTable | Contents]:
        domains = [self._domains.table] if self._domains else []
        return [self._pages, self._requests, self._links, self._robots, self._contents, *domains]

    def changes_landed(self) -> None:
        """The batch in flight is in the store."""
        self.frontier.changes_landed()
        for table in self._tables():
            table.landed()

    def changes_failed(self) -> None:
        """The batch in flight did not reach the store; the next one will hold it too."""
        self.frontier.changes_failed()
        for table in self._tables():
            table.failed()
        self._changed = True

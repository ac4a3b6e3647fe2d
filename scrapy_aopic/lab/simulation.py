"""Crawls a link graph with the production ledger and frontier on a virtual clock: for measuring orders.

A page of the graph is a page of the crawl, and what a session with Scrapy would bring in from outside (links,
transfers, the time) comes from the graph and from arguments. What goes in and out of the crawl is booked apart from it
(:mod:`.books`): at the end its cash is compared with this record page by page, and while it runs its choice of hosts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.records import HOST_BYTES, Link, host_key, page_key
from scrapy_aopic.storage.memory import MemoryStore

from .books import Account, CashBook, HostBook

_COMMIT = 1000
"""Visits between two commits."""


class SimulatedVisit(NamedTuple):
    """A visited page, with the begin and the end of its transfer in virtual seconds."""

    page: int
    begin: float
    end: float


class _Transfer(NamedTuple):
    """A visit under way; the first to end sorts first, and of those the first that began."""

    end: float
    number: int
    begin: float
    lease: Lease


@dataclass
class Simulation:
    """One crawl of a graph; see :func:`simulate` for the arguments.

    Attributes:
        connections: Transfers that may be under way at once.
        now: The virtual clock, in seconds.
        pages: Numbers of the pages that were found, in the order in which they were queued.
    """

    out_links: Callable[[int], Sequence[int]]
    host_of: Callable[[int], str]
    seeds: Sequence[int]
    fetches: int
    policy: Policy
    store: Store = field(default_factory=MemoryStore)
    transfer: Callable[[int], float] | None = None
    connections: int = 1
    now: float = 0.0

    def __post_init__(self) -> None:
        self.crawl = Crawl(self.store, self.policy, self.now)
        self._cash = CashBook(self.crawl.ledger.totals)
        self._hosts = HostBook() if self.transfer is not None else None
        self.pages: list[int] = []
        self._host_keys: dict[str, bytes] = {}
        self._faults: list[str] = []
        self._under_way: list[_Transfer] = []
        self._begun = self._done = 0

    @property
    def idle_though_due(self) -> float:
        """Part of all connections' time in which one was free, a host was due, and nothing was leased."""
        whole = self.connections * self.now
        return self._hosts.idle / whole if self._hosts is not None and whole else 0.0

    def run(self) -> Iterator[SimulatedVisit]:
        """Crawl; yields the visits in the order of their ends."""
        for page in self.seeds:
            self._seed(page)
        while True:
            wake = self._begin_all()
            instant = min(wake, self._under_way[0].end if self._under_way else math.inf)
            if instant == math.inf:
                return
            self._wait(instant)
            while self._under_way and self._under_way[0].end <= self.now:
                yield self._end(heapq.heappop(self._under_way))

    def _begin_all(self) -> float:
        """Lease as many pages as may be under way; returns the instant at which to try again, infinite if at none."""
        while self._begun < self.fetches and len(self._under_way) < self.connections:
            lease = self.crawl.lease(self.now)
            if isinstance(lease, NotBefore):
                return self._checked(lease.instant)
            if not isinstance(lease, Lease):
                break
            taken = 0.0
            if self.transfer is not None and self._hosts is not None:
                taken = self.transfer(page_of(lease.request))
                self._hosts.begin(lease.host, self.now)
            heapq.heappush(self._under_way, _Transfer(self.now + taken, self._begun, self.now, lease))
            self._begun += 1
        return math.inf

    def _wait(self, instant: float) -> None:
        if self._hosts is not None:
            free = self.connections - len(self._under_way) if self._begun < self.fetches else 0
            self._hosts.wait(self.now, instant, free)
        self.now = instant

    def _end(self, transfer: _Transfer) -> SimulatedVisit:
        end, _, begin, lease = transfer
        if self._hosts is not None:
            not_before = end + self.policy.politeness.of(lease.host).gap(end - begin)
            self.crawl.defer(lease.key[:HOST_BYTES], not_before, end - begin)
            self._hosts.end(lease.host, not_before, end)
        self.crawl.release(lease, self.now)
        page = page_of(lease.request)
        self._settle(page, lease)
        self._done += 1
        if self._done % _COMMIT == 0:
            self._commit()
        return SimulatedVisit(page, begin, end)

    def violations(self) -> list[str]:
        """What does not hold at the end of the crawl, a sentence each; reads every page."""
        self._commit()
        found = [*self._faults, *self._cash.faults, *(self._hosts.faults if self._hosts is not None else ())]
        found += audit(self.store, self.policy.order).violations
        return [*found, *self._cash.violations(self.crawl)]

    def _checked(self, wake: float) -> float:
        """Instant at which to ask again: never, with a fault, if the crawl names one that is past."""
        if wake > self.now:
            return wake
        self._faults.append(
            f"at {self.now} s nothing was leased, though it is said to be possible since {wake} s"
        )
        return math.inf

    # -- steps of a visit

    def _account(self, page: int) -> Account:
        """The account of *page*, which is opened when the page is found."""
        account = self._cash.accounts.get(page)
        if account is None:
            host = self.host_of(page)
            key = self._host_keys.get(host)
            if key is None:
                key = self._host_keys[host] = host_key(host)
            request = page.to_bytes(6, "big")
            link = Link(page_key(key, request), host, request)
            account = self._cash.open(page, link, is_chosen=self.policy.is_chosen(host))
            self.pages.append(page)
            if self._hosts is not None:
                self._hosts.queue(host, self.now)
        return account

    def _seed(self, page: int) -> None:
        totals = self.crawl.ledger.totals
        account, before = self._account(page), totals.virtual
        self.crawl.seed(account.link, self.now)
        account.received += before - totals.virtual

    def _settle(self, page: int, lease: Lease) -> None:
        """Let the crawl settle a visit, and book what left the page and did not go to the virtual page."""
        crawl, totals, known = self.crawl, self.crawl.ledger.totals, self._cash.accounts.get
        links = self.out_links(page)
        accounts = [known(target) or self._account(target) for target in links]
        self._cash.spend(self._cash.accounts[page], lease.cash)
        before = totals.virtual
        units = crawl.settle(lease, [target.link for target in accounts], self.now).paid
        targets = dict(zip(links, accounts, strict=True))
        targets.pop(page, None)
        self._cash.pay(page, lease.cash + before - totals.virtual, list(targets.values()), units)
        if (scores := crawl.scores.task()) is not None:
            crawl.rescored(scores(), self.now)

    def _commit(self) -> None:
        self.store.write(self.crawl.take_changes(self.now), sync=False)
        self.crawl.changes_landed()


def simulate(
    out_links: Callable[[int], Sequence[int]],
    host_of: Callable[[int], str],
    seeds: Sequence[int],
    fetches: int,
    policy: Policy,
    *,
    store: Store | None = None,
    transfer: Callable[[int], float] | None = None,
) -> Iterator[int]:
    """Visit pages in the order of *policy*.

    Args:
        out_links: Pages that a page links to.
        host_of: Host of a page.
        seeds: Pages to start from.
        fetches: Most visits.
        store: Where the crawl is remembered; a memory store if ``None``.
        transfer: Seconds that a page's transfer takes, one page at a time; ``None`` if hosts may always be
            requested.

    Yields:
        The visited pages, in order.
    """
    store = store if store is not None else MemoryStore()
    for visit in Simulation(out_links, host_of, seeds, fetches, policy, store, transfer).run():
        yield visit.page


def page_of(request: bytes) -> int:
    """Number of the page of the graph that *request* is for."""
    return int.from_bytes(request, "big")

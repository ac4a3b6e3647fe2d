"""Budgets of registered domains and of the links between them, and the hosts that are late by them.

A host is *late* if its registered domain, or a link that all ways to it lead over, has had its part of all fetches. The
:class:`~scrapy_aopic.core.order.Order` and :mod:`scrapy_aopic.core.sponsors` determine that part, as the number of visits
of the whole crawl before which one more page is over the budget. Late hosts of one domain, or behind one link, share a
shelf (:mod:`.shelves`), on the disk and in memory. All that is kept of a shelf is when its budgets allow its best host to
go on, and how far behind it is; so an endless farm takes little memory. If each domain may take a part b of all
fetches or more, fewer than 1/b of them are late at once.

When only late hosts are left, real sites come by the value of their pages, lowered by how far they are overdrawn. What is
behind an overdrawn link comes after them, and by the overdraft alone: a farm makes pages of high value as it pleases, but
no link to itself from a domain that is not its own.

Source: Lee, Leonard, Wang and Loguinov, "IRLbot: Scaling to 6 Billion Pages and Beyond", WWW 2008.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.layout import BEHIND, LATE
from scrapy_aopic.core.order import ALLOWANCE, Order
from scrapy_aopic.core.records import HOST_BYTES, N_FRONT_QUEUES
from scrapy_aopic.core.sponsors import FAMILY, SMALL
from scrapy_aopic.exceptions import CallError

from .heap import LazyHeap, RisingHeap
from .shelves import SHELF_BYTES, Shelves

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.domain import Domain
    from scrapy_aopic.core.domains import Domains
    from scrapy_aopic.core.shards.spread import DomainCounts

    from .host_state import HostState


_GROWTH = 64
"""One part in so many by which the crawl grows before all shelves are compared anew."""

_MOST_CHARGED = 10_000
"""Domains whose time of the processor is remembered, some megabyte: those that were charged last."""

_FIRST = [-1.0]
"""Before all that a shelf can have in :meth:`Budgets.excess`."""


class UnderWay(NamedTuple):
    """A page that is being fetched.

    Attributes:
        domain: Key of its registered domain.
        links: Links between domains that it will be charged to.
        is_free: Whether it will be charged to no link, because its domain has a budget of its own.
    """

    domain: bytes
    links: list[bytes]
    is_free: bool


class Budgets:
    """The budgets of hosts' domains, and of the links to these.

    Args:
        domains: Registered domains; without them there are no budgets.

    Attributes:
        visits: Visits of the whole crawl so far, in all of its shards.
        elsewhere: Visits of other shards, as far as they are known.
    """

    def __init__(self, order: Order, domains: Domains | None) -> None:
        self._order = order
        self._domains = domains
        self.visits = self.elsewhere = 0
        self._under_way: dict[bytes, UnderWay] = {}  # by page
        self._n_of: dict[bytes, int] = {}  # of these, by domain
        self._charged: dict[bytes, int] = {}  # pages that stand for time of the processor, by domain

    @property
    def own_visits(self) -> int:
        """First visits of pages in this shard."""
        return self.visits - self.elsewhere

    def begin(self, page: bytes, host: HostState) -> None:
        """*page*, of *host*, is fetched: its budgets have it already, for :meth:`count` knows of it only when others have gone out."""
        if self._domains is None:
            return
        key = self._domains.key(host)
        is_free = key in self._domains.budgets
        links = [] if is_free else self._domains.sponsors.begin(key, self.visits)
        self._under_way[page] = UnderWay(key, links, is_free)
        self._n_of[key] = self._n_of.get(key, 0) + 1

    def end(self, page: bytes) -> list[bytes]:
        """*page* is not fetched any more; returns the shelves whose budgets have one page less by that."""
        known = self._under_way.pop(page, None)
        if known is None or self._domains is None:
            return []
        n = self._n_of.pop(known.domain) - 1
        if n:
            self._n_of[known.domain] = n
        if not known.is_free:
            self._domains.sponsors.end(known.links)
        return [LATE + known.domain, *(BEHIND + link[: len(known.domain)] for link in known.links)]

    def charge(self, host: HostState, n: int) -> None:
        """What a page of *host* took of the processor stands for *n* pages more, in this run."""
        if self._domains is not None and n > 0:
            self._charge(self._domains.key(host), n)

    def charge_silent(self, host: HostState, n: int) -> None:
        """A fetch from *host* that brought nothing stands for *n* pages, and for one of the domain that has found an unknown one."""
        self.charge(host, n)
        if self._domains is not None and (finder := self._finder(self._domains.get(self._domains.key(host)))):
            self._charge(finder, 1)

    @staticmethod
    def _finder(domain: Domain) -> bytes:
        """Key of the domain that has found *domain*, of which nothing was visited; empty if it was, or nobody has."""
        return domain.sponsors[0] if domain.sponsors and not domain.visited else b""

    def _charge(self, key: bytes, n: int) -> None:
        self._charged[key] = self._charged.pop(key, 0) + n
        if len(self._charged) > _MOST_CHARGED:
            del self._charged[next(iter(self._charged))]

    def comes_last(self, host: HostState) -> bool:
        """Whether *host* waits behind others, in this run, for what pages took of the processor.

        So it does if its domain, or the one that has found it, was charged for more than its pages, and before its first visit if
        its domain was charged at all.
        """
        if self._domains is None:
            return False
        key = self._domains.key(host)
        is_costly = self._is_costly(key) or self._is_costly(self._finder(self._domains.get(key)))
        return is_costly or (not host.visited and key in self._charged)

    def _is_costly(self, key: bytes) -> bool:
        charged = self._charged.get(key, 0)
        return charged > 0 and self._domains is not None and charged > self._domains.get(key).visited

    def count(self, host: HostState) -> None:
        """A page of *host* was visited for the first time."""
        if self._domains is not None:
            key = self._domains.key(host)
            self._domains.count(key, 1)
            if key not in self._domains.budgets:  # what it may take is not up to those that link to it
                stands_for = self.visits // self.own_visits if self.elsewhere and self.own_visits else 1
                self._domains.sponsors.charge(key, self.visits, stands_for)
        host.visited += 1
        self.visits += 1

    def standing(self, host: HostState) -> tuple[int, bytes]:
        """Visited pages by which *host* is ranked, and the shelf that it is late on; empty if it is in time.

        A page with a positive priority is asked for before all others, so its host is in time while it has one. Unknown domains are
        under the budget of the one that has found them, too, if that was charged for more than its pages: names cost it nothing.
        """
        domains, visits = self._domains, self.visits
        if domains is None:
            return host.visited, b""
        key = host.domain or domains.key(host)
        domain = domains.get(key)
        whole = domains.whole(key) if domains.elsewhere else domain
        if host.best is not None and host.best >= N_FRONT_QUEUES:
            return whole.visited, b""
        due = self._due(domains, key, whole)
        if key in domains.budgets:
            return whole.visited, LATE + key if due > visits else b""
        blocker, most = domains.sponsors.blocker(key, domain, visits)
        if due > visits and (whole.visited + self._charged.get(key, 0)) * SMALL >= most:
            return whole.visited, LATE + key
        finder = self._finder(domain) if self._charged else b""
        if finder and self._is_costly(finder) and self._due(domains, finder, domains.whole(finder)) > visits:
            return 0, LATE + finder
        return whole.visited, blocker and BEHIND + blocker

    def _due(self, domains: Domains, key: bytes, domain: Domain | DomainCounts, more: int = 0) -> float:
        """Visits of the crawl before which *domain*, under *key*, is over its budget with *more* pages than were visited.

        Pages that are fetched count, and so does time of the processor. One that was charged for more than its pages has used its
        allowance, and has nothing for its seeds.
        """
        begun = domain.visited + self._n_of.get(key, 0) + self._charged.get(key, 0) + more
        if key in domains.budgets:
            part = domains.budgets[key]
            return begun / part if part and begun >= ALLOWANCE else 0.0
        if self._charged and self._is_costly(key):
            return self._order.due(begun + int(ALLOWANCE), domain.supporters, 0.0)
        return self._order.due(begun, domain.supporters, domains.seeded(domain) if domain.seeds else 0.0)

    def learn(self, elsewhere: int) -> None:
        """Other shards have made *elsewhere* visits by now."""
        self.visits += elsewhere - self.elsewhere
        self.elsewhere = elsewhere

    def due(self, shelf: bytes, more: int = 0) -> float:
        """Visits of the crawl at which *more* pages than were visited are within the budgets that *shelf* is under."""
        own, behind = self._overdraft(shelf, more)
        return max(own, *behind, 0.0)

    def excess(self, shelf: bytes, best: int) -> list[float]:
        """Where *shelf*, whose best page is in the front queue *best*, stands among late ones, the smallest first.

        What no link to it holds back comes first, by its best page, lowered by one front queue for each doubling of what its
        domain may take, and those domains last that were charged for more than their pages. Behind links, the least overdrawn comes
        first, whatever its pages are worth; of two shelves behind the same link it depends on the rest of their ways.
        """
        own, behind = self._overdraft(shelf)
        if max(behind, default=0.0) <= self.visits:
            return [self._is_costly(shelf[len(LATE) :]) / 2, log2(max(own, 1.0)) - best]
        nearest, *others = behind
        return [1.0, *sorted([max(own, FAMILY * nearest), *[FAMILY * due for due in others]], reverse=True)]

    def _overdraft(self, shelf: bytes, more: int = 0) -> tuple[float, list[float]]:
        """Visits of the crawl at which *more* pages are within the budget of the domain, and of each link to it."""
        domains, key, visits = self._domains, shelf[len(LATE) :], self.visits
        if domains is None:
            raise CallError(
                "A crawl whose order uses no registered domains has no budgets, and so no late hosts."
            )
        own = self._due(domains, key, domains.whole(key), more) if shelf[: len(LATE)] == LATE else 0.0
        if shelf[: len(LATE)] == LATE and key in domains.budgets:
            return own, []
        behind = (
            domains.sponsors.route(key, visits, more) if more else domains.sponsors.known_route(key, visits)
        ).dues
        return own, behind


class Late(NamedTuple):
    """A shelf with late hosts, and the key of the best of them."""

    shelf: bytes
    best: bytes


class LateHosts:
    """The shelves that have late hosts, and those of these hosts that are in memory.

    Args:
        front_queue_of: Front queue of the best page of the host under a key.

    Attributes:
        in_memory: Late hosts in memory by rank, by shelf.
    """

    def __init__(self, budgets: Budgets, shelves: Shelves, front_queue_of: Callable[[bytes], int]) -> None:
        self._budgets = budgets
        self._shelves = shelves
        self._front_queue_of = front_queue_of
        self.in_memory: dict[bytes, LazyHeap[bytes]] = {}
        # By the visits of the crawl at which the budgets allow a page more, and by how far it is behind other shelves.
        self._by_due: RisingHeap[float] = RisingHeap()
        self._by_standing: RisingHeap[list[float]] = RisingHeap()
        self._compared_at = 0

    def __len__(self) -> int:
        """Shelves of which anything is remembered."""
        return len(self._by_due.keys() | self._by_standing.keys() | self.in_memory.keys())

    def hosts_of(self, shelf: bytes) -> LazyHeap[bytes]:
        """The late hosts of *shelf* in memory, to which one is to be added."""
        heap = self.in_memory.get(shelf)
        if heap is None:
            heap = self.in_memory[shelf] = LazyHeap()
        return heap

    def note(self, shelf: bytes) -> None:
        """*shelf* has a late host, or its budgets have grown: look at it when they allow, or it stands first."""
        self._by_due.note(shelf, self._budgets.due(shelf))
        self._by_standing.note(shelf, _FIRST)  # how it stands matters only where nothing is in time

    def note_again(self, shelf: bytes) -> None:
        """The budgets of *shelf* have grown, if it has late hosts."""
        if shelf in self._by_due:
            self.note(shelf)

    def forget(self, shelf: bytes) -> None:
        """*shelf* has no late host any more."""
        self._by_due.void(shelf)
        self._by_standing.void(shelf)
        self._shelves.forget(shelf)

    def first(self) -> Late | None:
        """The shelf with late hosts that stands first, ``None`` if there is none."""
        if self._budgets.visits > self._compared_at + self._compared_at // _GROWTH:
            # As the crawl grows, links hold back less.
            self._compared_at = self._budgets.visits
            for shelf in list(self._by_standing.keys()):
                self._by_standing.note(shelf, _FIRST)
        while (entry := self._by_standing.first_by(self.standing)) is not None:
            shelf = entry[2]
            best = self.best(shelf)
            if best is not None:
                return Late(shelf, best)
            self.forget(shelf)
        return None

    def standing(self, shelf: bytes) -> list[float]:
        """Where *shelf* stands among others, the smallest first; see :meth:`Budgets.excess`."""
        best = self.best(shelf)
        return self._budgets.excess(shelf, self._front_queue_of(best)) if best is not None else _FIRST

    def best(self, shelf: bytes) -> bytes | None:
        """Key of the best late host of *shelf*, in memory or on the disk."""
        heap = self.in_memory.get(shelf)
        entry = heap.first() if heap is not None else None
        shelved = self._shelves.first(shelf)
        if entry is None:
            self.in_memory.pop(shelf, None)
        elif shelved is None or entry[0] <= shelved[SHELF_BYTES:-HOST_BYTES]:
            return entry[2]
        return shelved and shelved[-HOST_BYTES:]

    def take_due(self) -> list[bytes]:
        """The shelves whose budgets allow a page more now; they are to be noted again if a late host is left."""
        found: list[bytes] = []
        if not self._by_due:
            return found
        while (entry := self._by_due.first_by(self._budgets.due)) is not None and entry[
            0
        ] <= self._budgets.visits:
            self._by_due.void(entry[2])
            found.append(entry[2])
        return found

    def wait(self, shelf: bytes, visits: float) -> None:
        """Look at *shelf* again when the crawl has made *visits*."""
        self._by_due.note(shelf, visits)

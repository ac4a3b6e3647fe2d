"""Mercator's frontier: which host is asked next, and for which of its pages.

A page waits in one of 64 *front queues* of its host, at a place that the :class:`~scrapy_aopic.core.order.Order`
gives it. A *host* moves through the frontier as a whole, by the rank of its best page. An active host has a
*back queue* in memory: the best rows of its front queues, best first. A heap of earliest times keeps the hosts
that must be left alone, and ready hosts are served best rank first. Hosts whose registered domain has used up
its budget are *late*: the best of them become ready when the crawl has grown enough for their domain, and when
nobody is ready, the best late host of the least overdrawn domain is served.

Invariant: a host with queued pages has exactly one index row and is in exactly one place,

* active (at most about *max_active* of them): leased, ready, late, waiting for its time, at a gate or for its
  address, or dry because all its pages are leased;
* shelved on the disk under its rank, with no page leased: in one *lane* for all hosts in time, or in the lane of
  its domain if it is late;
* parked on the disk under its time, with no page leased; apart from the others if it is dead.

A host is leased to at most one request, so it is never asked twice at once. What it shares with others (a domain,
an address, the connections for slow hosts) is a *gate* at which it waits if it must; see :mod:`.gates`. Whether a host is in time is looked at
when it is given its place, and again before it is leased; a domain with late hosts, in memory or on the disk, has
one entry in a heap of the numbers of visits at which it is in time again. If each domain may take a part b of all
fetches at least, fewer than 1/b of them are late at once.

Sources: Heydon and Najork, "Mercator: A Scalable, Extensible Web Crawler", 1999; Najork and Heydon,
"High-Performance Web Crawling", 2001; budgets: Lee, Leonard, Wang and Loguinov, "IRLbot", 2008.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy_aopic.core.layout import ACTIVE, BEHIND, DEAD, IN_TIME, OUTSIDERS, PARKED, SHELVED
from scrapy_aopic.core.layout import LATE as LATE_ROWS
from scrapy_aopic.core.order import Aopic, Order
from scrapy_aopic.core.politeness import Gap, Outcome, Politeness
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import (
    HOST_BYTES,
    ROW_BYTES,
    Host,
    pack_host,
    queue_row,
    row_level,
    unpack_host,
)
from scrapy_aopic.core.sponsors import FAMILY, SMALL
from scrapy_aopic.core.tables import RecordTable, RowTable

from .gates import Gates
from .heaps import LazyHeap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy_aopic.core.domains import Domains

BACK_QUEUE_ROWS = 32
"""Rows that a back queue is filled with; Mercator and storage measurements agree on some tens."""

_AT_ONCE = 32
"""Late hosts of a domain let through in one step."""

_MAX_TURNED_AWAY = 100
"""Hosts that one step may find at a gate that is shut."""

_SOON = 0.01
"""Seconds after which such a step goes on."""

_STRANGERS = 10_000
"""Hosts without any page whose pace is remembered."""

_LATE_LANE = len(LATE_ROWS) + HOST_BYTES


class Phase(IntEnum):
    """Where an active host is."""

    DRY = 0
    READY = 1
    WAITING = 2
    LEASED = 3
    LATE = 4
    GATED = 5
    LOCATING = 6


# A look into an enum takes five times as long.
DRY, READY, WAITING, LEASED, LATE, GATED, LOCATING = map(int, Phase)


Entry: TypeAlias = tuple[bytes, int, bytes]
"""Rank, ticket and key of a host that is ready or late; void if the host has another ticket now."""


Move: TypeAlias = tuple[bytes, bytes, bytes]
"""Queue row that a page leaves, the one that it gets, both without the host, and the page."""


class _LateLane(NamedTuple):
    """A lane with late hosts, and the key of the best of them."""

    lane: bytes
    best: bytes


class _Site(NamedTuple):
    """How a host stands by its registered domain.

    Attributes:
        visited: Visited pages of the domain.
        lane: Where it waits if it is late; empty if it is in time.
    """

    visited: int
    lane: bytes


class Taken(NamedTuple):
    """A page taken from the frontier; its host is leased."""

    host: bytes
    row: bytes
    page: bytes


class Unlocated(NamedTuple):
    """A host that cannot be asked before its address is known (:meth:`Frontier.locate`)."""

    key: bytes
    name: str


class NotBefore(NamedTuple):
    """Nothing may be asked before *instant* (seconds since the epoch)."""

    instant: float


class Empty(NamedTuple):
    """Nothing is queued that may be asked before something in work is over."""


def index_bucket(row: bytes) -> bytes:
    """Beginning of an index row that it shares with those that are read, and counted, together."""
    if row[:1] != SHELVED:
        return row[:1]
    return row[:3] if row[:2] == IN_TIME else row[:_LATE_LANE]  # by the first byte of the rank


class Frontier:
    """Hosts and their queues.

    Args:
        store: Where rows and hosts are read; written by :meth:`take_changes`.
        order: Which host is served first.
        domains: Registered domains, if the order uses them.
        politeness: When a host is dead, and how often it may be asked at most.
        domain_of: Registered domain of a host name, if hosts of one domain are kept apart.
        uses_addresses: Whether hosts of one address are kept apart.
        connections: Transfers that may be under way at once, 0 for any number.
        max_active: Hosts kept in memory when more could be.
        host_cache: Records of other hosts kept in memory.
    """

    def __init__(
        self,
        store: Store,
        order: Order | None = None,
        domains: Domains | None = None,
        *,
        politeness: Politeness | None = None,
        domain_of: Callable[[str], str] | None = None,
        uses_addresses: bool = False,
        connections: int = 0,
        max_active: int = 10_000,
        host_cache: int = 50_000,
    ) -> None:
        self.hosts = RecordTable(store, Family.HOSTS, pack_host, unpack_host, host_cache)
        self.rows = RowTable(store, Family.QUEUE, lambda row: row[:HOST_BYTES])
        self.index = RowTable(store, Family.META, index_bucket)
        self.order = order if order is not None else Aopic()
        self.domains = domains
        self.politeness = politeness if politeness is not None else Politeness()
        self.gates = Gates(self.index, domain_of, uses_addresses=uses_addresses, connections=connections)
        self.max_active = max_active
        self.active: dict[bytes, Host] = {}
        self.n_hosts = 0
        self.queued = 0
        self.pending = 0
        self.visits = 0
        self.n_shelved: dict[bytes, int] = {}
        self.n_parked = 0
        self.n_dead = 0
        self.dead_pages = 0
        self._shelves: dict[bytes, list[bytes]] = {}  # by lane, its first rows
        self._ready: list[Entry] = []
        self._late: dict[bytes, list[Entry]] = {}  # by lane
        self._due: LazyHeap[float] = (
            LazyHeap()
        )  # of lanes with late hosts, by the visits of the crawl at which they are in time
        self._by_excess: LazyHeap[list[float]] = LazyHeap()  # of the same
        self._tickets = 0
        self._waiting: list[tuple[float, bytes]] = []
        self._unpark_at = {PARKED: float("inf"), DEAD: float("inf")}
        self._turned_away = 0
        self._strangers: OrderedDict[bytes, Host] = OrderedDict()
        self.crashed_at = 0.0

    # -- life

    def load(
        self,
        now: float,
        *,
        queued: int,
        n_hosts: int,
        n_shelved: dict[bytes, int],
        n_parked: int,
        visits: int,
        n_dead: int = 0,
        dead_pages: int = 0,
        crashed_at: float = 0.0,
    ) -> list[tuple[bytes, float]]:
        """Take up the state that the store holds; what was leased when it was left waits again.

        Args:
            crashed_at: When the job was last opened after a crash, before which hosts may have been asked that
                are not known to; 0 if never.

        Returns:
            The hosts that were leased, with the instant of the lease.
        """
        self.queued = self.pending = queued
        self.n_hosts = n_hosts
        leased = []
        self.n_shelved = n_shelved
        self.n_parked, self.n_dead, self.dead_pages = n_parked, n_dead, dead_pages
        self.visits = visits
        self.crashed_at = crashed_at
        self._unpark_at = {place: self._first_parked(place) for place in (PARKED, DEAD)}
        self.gates.load()
        for row, value in self.index.first(OUTSIDERS, 1 << 60)[0]:
            self._strangers[row[1:]] = unpack_host(value)
        for bucket in n_shelved:
            if bucket[:2] != IN_TIME:
                self._await(bucket)
        keys = [row[1:] for row, _ in self.index.first(ACTIVE, 1 << 60)[0]]
        for key, host in zip(keys, self.hosts.get_many(keys), strict=True):
            assert host is not None, "an index row without its host"
            self.active[key] = host
            self.gates.note_pace(key, host, self.politeness.gap(host.transfer))
            if host.leased_at:
                leased.append((key, host.leased_at))
                host.leased_at = 0.0
                self.hosts.put(key, host)
            self._keep_off(host)
            self._place(key, host, now)
        return leased

    def host(self, key: bytes) -> Host | None:
        """The host under *key*, if the crawl knows it."""
        return self.active.get(key) or self.hosts.get(key)

    def preload(self, keys: Iterable[bytes]) -> None:
        """Bring the hosts under *keys* into memory with one read."""
        wanted = [key for key in keys if key not in self.active]
        if wanted:
            self.hosts.get_many(wanted)

    def __len__(self) -> int:
        return self.pending

    # -- pages come, move up and go

    def insert(self, page: bytes, name: str, level: int, order: int, now: float) -> None:
        """Queue *page* (a page key, not queued) of the host called *name* in front queue *level*."""
        self.insert_all(page[:HOST_BYTES], name, {queue_row(level, order): page[HOST_BYTES:]}, now)

    def insert_all(self, key: bytes, name: str, pages: dict[bytes, bytes], now: float) -> None:
        """Queue *pages*, by their queue rows, none of them queued, of the host under *key* called *name*."""
        host = self.host(key)
        if host is None:
            host = self._strangers.pop(key, None)
            if host is None:
                host = Host(name)
            else:
                self.index.delete(OUTSIDERS + key)
            self.n_hosts += 1
        if not host.queued:
            host.best, host.head, host.complete = -1, [], True
        self.rows.put_all(key, {key + row: page for row, page in pages.items()})
        n = len(pages)
        host.queued += n
        self.queued += n
        self.pending += n
        if host.row[:1] == DEAD:
            self.dead_pages += n
        for row, page in pages.items():
            self._add_to_head(host, row + page)
        self.hosts.put(key, host)
        self._improve(key, host, min(pages), now)

    def move(self, key: bytes, moves: list[Move], now: float) -> None:
        """Move queued pages of the host under *key* from one queue row to another; they keep their place in time."""
        host = self.host(key)
        assert host is not None, "a queued page without its host"
        self.rows.move(key, moves)
        best = b""
        for old, new, page in moves:
            if page in host.held:
                host.held[page] = row_level(new)
                self.hosts.put(key, host)
                continue
            if host.head:
                position = bisect_left(host.head, old)
                if position < len(host.head) and host.head[position] == old + page:
                    del host.head[position]
            self._add_to_head(host, new + page)
            best = min(best, new) if best else new
        if best:
            self._improve(key, host, best, now)

    def finish(self, page: bytes, level: int, order: int) -> Host:
        """Remove a leased *page* for good, whose row is in front queue *level*; returns its host."""
        key = page[:HOST_BYTES]
        host = self.active[key]
        del host.held[page[HOST_BYTES:]]
        host.queued -= 1
        self.queued -= 1
        self.rows.delete(key + queue_row(level, order))
        if not host.queued and host.phase == DRY:
            self._passivate(key, host)
        elif not host.queued:
            self._drop_row(key, host)  # its lease goes on, but there is nothing to come back to
        elif host.phase == WAITING:
            host.phase = DRY
            self._place(key, host, float("-inf"))  # now that no page is in work, it may leave the memory
        self.hosts.put(key, host)
        return host

    def put_back(self, page: bytes, level: int, order: int, now: float) -> None:
        """End the lease of *page* and let it wait again in front queue *level*, where its row is."""
        key, rest = page[:HOST_BYTES], page[HOST_BYTES:]
        host = self.active[key]
        del host.held[rest]
        self.pending += 1
        if host.phase == WAITING and not host.held:
            host.phase = DRY  # now that no page is in work, it may leave the memory
        row = queue_row(level, order)
        self._add_to_head(host, row + rest)
        self.hosts.put(key, host)
        self._improve(key, host, row, now)

    # -- hosts are leased and released

    def take(self, now: float) -> Taken | Unlocated | NotBefore | Empty:
        """Lease the best due host for its best page.

        O(log hosts) in memory; a read of the store when a back queue is empty or a host comes from the disk.
        """
        self._turned_away = 0
        self._wake(now)
        while True:
            ready = self._first(self._ready)
            shelved = self._first_shelved(IN_TIME)
            if shelved is not None and self._turned_away >= _MAX_TURNED_AWAY:
                if ready is None:
                    return NotBefore(now + _SOON)
            elif shelved is not None and (ready is None or shelved[len(IN_TIME) : -HOST_BYTES] < ready[0]):
                self._unshelve(shelved, now)
                continue
            heap, lane = self._ready, b""
            if ready is None:
                late = self._next_late()
                if late is None:
                    return self.when()
                if late.best not in self.active:
                    self._recall(late.best, now)
                    continue
                lane = late.lane
                heap = self._late[lane]
            rank, _, key = heapq.heappop(heap)
            host = self.active[key]
            host.phase, host.ticket = DRY, 0
            self._fill(key, host)
            if (
                not host.head
                or host.not_before > now
                or self._is_worse(host, rank, lane)
                or self.gates.shut(host, now)
            ):
                self._place(key, host, now)  # what put it here has changed
                self._give_way(host, now)
                continue
            if self.gates.must_look_up(host):
                host.phase = LOCATING
                self.gates.look_up()
                self._give_way(host, now)
                return Unlocated(key, host.name)
            # If it did not answer, maybe the page is to blame: try another one.
            best = host.head.pop(host.errors % len(host.head))
            row, page = best[:ROW_BYTES], best[ROW_BYTES:]
            host.held[page] = row_level(row)
            host.phase = LEASED
            host.leased_at = now
            self.gates.enter(key, host, now)
            self.pending -= 1
            self._refresh_best(host)
            self.hosts.put(key, host)
            return Taken(key, row, key + page)

    def _is_worse(self, host: Host, rank: bytes, lane: bytes) -> bool:
        """Whether *host*, which had *rank* among those in *lane* (empty for those in time), has not any more."""
        site = self._site(host)
        return site.lane != lane or self._rank(host, 0 if lane else site.visited) > rank

    def transferred(
        self,
        key: bytes,
        name: str,
        transfer: float,
        now: float,
        outcome: Outcome = Outcome.ANSWER,
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
        host = self.host(key) or self._stranger(key, name)
        if address and address != host.address:
            host.address, host.gates = address, None
        gap = self.politeness.after(host, transfer, outcome, retry_after)
        if at_least > gap.own:
            gap = gap._replace(own=at_least)
        host.transfer = transfer
        self.gates.defer(host, now + gap.shared)
        if key in self.active:
            self.gates.note_pace(key, host, gap.own)
        self._hold(key, host, now + gap.own)
        if host.row[:1] == DEAD and not self.politeness.is_dead(host):
            self._drop_row(key, host)
            self._enter(key, host, now)
        return gap

    def set_crawl_delay(self, key: bytes, name: str, seconds: float, now: float) -> None:
        """Have *seconds* between the requests to the host called *name*, whose robots.txt was just read."""
        host = self.host(key) or self._stranger(key, name)
        is_longer = seconds > host.crawl_delay
        host.crawl_delay = seconds if seconds > 0 else 0.0  # so is no number, too
        self._hold(key, host, now + self.politeness.crawl_delay(host) if is_longer else 0.0)

    def defer(self, key: bytes, not_before: float, transfer: float) -> None:
        """Leave the host under *key*, whose last transfer took *transfer* seconds, alone until *not_before*."""
        host = self.host(key)
        if host is not None:
            host.transfer = transfer
            self._hold(key, host, not_before)

    def defer_all(self, key: bytes, not_before: float) -> None:
        """Leave the host under *key*, and those that share a gate with it, alone until *not_before*."""
        host = self.host(key)
        if host is not None:
            self.gates.defer(host, not_before)
            self._hold(key, host, not_before)

    def _hold(self, key: bytes, host: Host, not_before: float) -> None:
        host.not_before = max(host.not_before, not_before)
        if key in self._strangers:
            self.index.put(OUTSIDERS + key, pack_host(host))
        else:
            self.hosts.put(key, host)  # a host that waits is moved on by _wake, which looks again

    def _stranger(self, key: bytes, name: str) -> Host:
        """The host called *name*, of which the crawl has no page."""
        host = self._strangers.get(key)
        if host is None:
            host = self._strangers[key] = Host(name)
        self._strangers.move_to_end(key)
        if len(self._strangers) > _STRANGERS:
            self.index.delete(OUTSIDERS + self._strangers.popitem(last=False)[0])
        return host

    def not_before(self, key: bytes) -> float:
        """Instant before which the host under *key* must be left alone, as far as that is known."""
        host = self.host(key) or self._strangers.get(key)
        return max(host.not_before, self.gates.not_before(host)) if host is not None else 0.0

    def locate(self, key: bytes, address: str, now: float) -> None:
        """The host under *key* has *address*, empty if that could not be found out."""
        self.gates.looked_up()
        host = self.host(key)
        assert host is not None, "an address of no host"
        if address:
            host.address, host.gates = address, None
        host.is_located = True
        self.hosts.put(key, host)
        if host.phase == LOCATING:
            host.phase = DRY
            self._place(key, host, now)

    def release(self, key: bytes, now: float) -> None:
        """End the lease of the host under *key*: from its time on it may be asked again."""
        host = self.active[key]
        host.phase = DRY
        host.leased_at = 0.0
        self.gates.leave(key, host, now)
        self.hosts.put(key, host)
        self._place(key, host, now)

    @property
    def dead_due(self) -> float:
        """Instant at which a dead host may be asked, infinite if there is none."""
        return self._unpark_at[DEAD]

    def when(self) -> NotBefore | Empty:
        """The earliest instant at which a host may be asked; long past if one may be now."""
        if self._first(self._ready) is not None or self.n_shelved or self._next_late() is not None:
            return NotBefore(0.0)
        instant = min(*self._unpark_at.values(), self.gates.when())
        if self._waiting:
            instant = min(instant, self._waiting[0][0])
        return NotBefore(instant) if instant != float("inf") else Empty()

    def awaited(self) -> tuple[float, str]:
        """The instant at which the first host may be asked that is not dead, and its name; ``""`` if nobody waits.

        O(hosts in memory), for who has nothing else to do.
        """
        found: tuple[float, bytes] = (float("inf"), b"")
        for instant, key in self._waiting:
            host = self.active.get(key)
            if host is not None and host.phase == WAITING and host.wakes_at == instant:
                found = min(found, (instant, key))
        for heap in self.gates.waiting.values():
            entry = self._first(heap)
            if entry is not None:
                found = min(found, (self.gates.not_before(self.active[entry[2]]), entry[2]))
        if self._unpark_at[PARKED] < found[0]:
            rows, _ = self.index.first(PARKED, 1)
            found = min(found, (_instant(rows[0][0]), rows[0][0][-HOST_BYTES:])) if rows else found
        host = self.host(found[1])
        return found[0], host.name if host is not None else ""

    # -- places

    def _place(self, key: bytes, host: Host, now: float) -> None:
        """Put an active host that is not leased where it belongs."""
        assert host.phase == DRY, "a host has one place"
        if host.queued == len(host.held):
            if not host.queued:
                self._passivate(key, host)
        elif host.not_before > now:
            is_out = len(self.active) > self.max_active or self.politeness.is_dead(host)
            if is_out and not host.held:
                self._park(key, host, host.not_before)
            else:
                host.phase = WAITING
                if host.wakes_at != host.not_before:
                    host.wakes_at = host.not_before
                    heapq.heappush(self._waiting, (host.wakes_at, key))
        elif gate := self.gates.shut(host, now):
            self._turned_away += 1
            if len(self.active) > self.max_active and not host.held:
                self._park(key, host, self.gates.reserve(gate, now))
            else:
                host.phase = GATED
                self.gates.wait(gate, self._ticket(key, host, self._site(host).visited))
        else:
            site = self._site(host)
            entry = self._ticket(key, host, 0 if site.lane else site.visited)
            host.phase = LATE if site.lane else READY
            heap = self._late.setdefault(site.lane, []) if site.lane else self._ready
            heapq.heappush(heap, entry)
            if len(heap) > 2 * len(self.active) + 100:  # more than half of the entries are void
                heap[:] = [entry for entry in heap if self._stands(entry)]
                heapq.heapify(heap)
            if site.lane:
                self._await(site.lane)

    def _ticket(self, key: bytes, host: Host, visited: int) -> Entry:
        """A new entry for *host*, which makes others void."""
        self._refresh_best(host)  # so that whatever is better than its best makes its rank better
        self._tickets += 1
        host.ticket, host.rank = self._tickets, self._rank(host, visited)
        return host.rank, host.ticket, key

    def _give_way(self, host: Host, now: float) -> None:
        """*host* was ready and is not leased: let others in at its gates, if it is not ready any more."""
        if host.phase != READY:
            self.gates.look_again(host)
            self._let_in(now)

    def _let_in(self, now: float) -> None:
        """Let the best host in at each gate that is open."""
        for gate in self.gates.opened(now):
            heap = self.gates.waiting.get(gate, [])
            while (entry := self._first(heap)) is not None:
                heapq.heappop(heap)
                host = self.active[entry[2]]
                self._unready(host)
                self._place(entry[2], host, now)
                if host.phase == READY:
                    break

    def _unready(self, host: Host) -> None:
        """Take a host out of the ready, late or waiting ones; its entry there is void from now on."""
        host.phase, host.ticket = DRY, 0

    def _stands(self, entry: Entry) -> bool:
        host = self.active.get(entry[2])
        return host is not None and host.ticket == entry[1]

    def _first(self, heap: list[Entry]) -> Entry | None:
        """The first entry of *heap*, which is rid of void ones in front of it."""
        while heap:
            if self._stands(heap[0]):
                return heap[0]
            heapq.heappop(heap)
        return None

    def _rank(self, host: Host, visited: int) -> bytes:
        """Rank of *host*, as good as can be while its back queue is not in memory.

        Late hosts are compared inside their domain only, without the visited pages that all of it has in common:
        so their ranks stay true while the domain is visited.
        """
        row = host.head[0][:ROW_BYTES] if host.head else queue_row(max(host.best, 0), 0)
        return self.order.rank(row, host, visited)

    def _site(self, host: Host) -> _Site:
        """How *host* stands by its domain."""
        domains, visits = self.domains, self.visits
        if domains is None:
            return _Site(host.visited, b"")
        key = domains.key(host)
        domain = domains.get(key)
        blocker, most = domains.sponsors.blocker(key, visits)
        due = self.order.due(domain.visited, domain.supporters, domains.seeded(domain))
        if due > visits and domain.visited * SMALL >= most:
            return _Site(domain.visited, LATE_ROWS + key)
        return _Site(domain.visited, blocker and BEHIND + blocker)

    def count(self, host: Host) -> None:
        """A page of *host*, which is active, was visited for the first time."""
        if self.domains is not None:
            key = self.domains.key(host)
            self.domains.count(key, 1)
            self.domains.sponsors.charge(key, self.visits)
        host.visited += 1
        self.visits += 1

    # -- late hosts

    def supported(self, domain: bytes) -> None:
        """The number of supporters or seeds of *domain* rose: its late hosts may be due sooner."""
        for lane in (LATE_ROWS + domain, BEHIND + domain):
            if lane in self._due:
                self._await(lane)

    def look_again(self, key: bytes, now: float) -> None:
        """Give the host under *key* another place if it is late and need not be, maybe in the lane of another domain."""
        host = self.host(key)
        if host is None or not (host.phase == LATE or host.row[:2] == BEHIND) or self._site(host).lane:
            return
        if host.phase == LATE:
            self._unready(host)
            self._place(key, host, now)
        else:
            self._drop_row(key, host)
            self._enter(key, host, now)

    def _lane_due(self, lane: bytes, more: int = 0) -> float:
        """Visits of the crawl at which *more* pages than were visited are within the budgets that *lane* is under."""
        own, behind = self._overdraft(lane, more)
        return max(own, *behind, 0.0)

    def _excess(self, lane: bytes) -> list[float]:
        """How much *lane* has taken of all budgets that it is under, in terms of a domain's with one supporter.

        The most overdrawn counts first: of two lanes behind the same link it depends on the rest of their ways.
        """
        own, behind = self._overdraft(lane)
        nearest, *others = behind or [0.0]
        return sorted([max(own, FAMILY * nearest), *[FAMILY * due for due in others]], reverse=True)

    def _overdraft(self, lane: bytes, more: int = 0) -> tuple[float, list[float]]:
        """Visits of the crawl at which *more* pages are within the budget of the domain, and of each link to it."""
        domains, key = self.domains, lane[len(LATE_ROWS) :]
        assert domains is not None, "only domains have budgets"
        sponsors, visits = domains.sponsors, self.visits
        behind = (sponsors.route(key, visits, more) if more else sponsors.known_route(key, visits)).dues
        if lane[: len(LATE_ROWS)] == BEHIND:
            return 0.0, behind
        known = domains.get(key)
        return self.order.due(known.visited + more, known.supporters, domains.seeded(known)), behind

    def _await(self, lane: bytes) -> None:
        """Look at the late hosts of *lane* when its budgets allow, or it is the least overdrawn."""
        self._due.note(lane, self._lane_due(lane))
        self._by_excess.note(lane, self._excess(lane))

    def _next_late(self) -> _LateLane | None:
        """The least overdrawn lane that has late hosts."""
        while (first := self._by_excess.first(self._excess)) is not None:
            best = self._best_late(first[1])
            if best is not None:
                return _LateLane(first[1], best)
            self._forget_lane(first[1])
        return None

    def _forget_lane(self, lane: bytes) -> None:
        """There are no late hosts in *lane* any more."""
        self._due.forget(lane)
        self._by_excess.forget(lane)
        self._shelves.pop(lane, None)
        self.index.forget(lane)

    def _best_late(self, lane: bytes) -> bytes | None:
        """Key of the best late host of *lane*, in memory or on the disk."""
        entry = self._first(self._late.get(lane, []))
        shelved = self._first_shelved(lane)
        if entry is None:
            self._late.pop(lane, None)
        elif shelved is None or entry[0] <= shelved[_LATE_LANE:-HOST_BYTES]:
            return entry[2]
        return shelved and shelved[-HOST_BYTES:]

    def _let_through(self, lane: bytes, now: float) -> None:
        """Let the best late hosts of *lane* be in time, as many as the budget has pages left, some at once."""
        due = 0.0
        for n in range(_AT_ONCE):
            due = self._lane_due(lane, n)
            key = self._best_late(lane)
            if due > self.visits or key is None:
                break
            host = self.active.get(key)
            if host is not None:
                self._unready(host)
                self._place(key, host, now)
            else:
                host = self._from_disk(key)
                self._drop_row(key, host)
                self._enter(key, host, now)
            if self._best_late(lane) == key:
                due = self.visits + 1.0  # by the way that it takes it is not in time
                break
        self._due.note(lane, due)

    def _wake(self, now: float) -> None:
        """Make the hosts ready whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            instant, key = heapq.heappop(self._waiting)
            host = self.active.get(key)
            if host is None or host.wakes_at != instant:
                continue  # it was parked or has another entry
            host.wakes_at = 0.0
            if host.phase == WAITING:
                host.phase = DRY
                self._place(key, host, now)
        in_time = []
        while (first := self._due.first(self._lane_due)) is not None and first[0] <= self.visits:
            self._due.forget(first[1])
            in_time.append(first[1])
        for lane in in_time:
            if self._best_late(lane) is None:
                self._forget_lane(lane)
            else:
                self._let_through(lane, now)
        for place in (PARKED, DEAD):
            while self._unpark_at[place] <= now:
                rows, _ = self.index.first(place, BACK_QUEUE_ROWS)
                for row, _ in rows:
                    if _instant(row) > now:
                        break
                    key = row[-HOST_BYTES:]
                    parked = self._from_disk(key)
                    self._drop_row(key, parked)
                    self._enter(key, parked, now)
                self._unpark_at[place] = self._first_parked(place)
        self._let_in(now)

    def _improve(self, key: bytes, host: Host, row: bytes, now: float) -> None:
        """A page of *host* has the queue row *row* now: move the host if that is its best."""
        level = row_level(row)
        may_rise = level > host.best or not self.order.ranks_by_front_queue
        if level > host.best:
            host.best = level
            self.hosts.put(key, host)
        if key in self.active:
            if not host.row:
                self._set_row(key, host, ACTIVE + key)
            if may_rise and host.phase in (READY, LATE, GATED):
                visited = 0 if host.phase == LATE else self._site(host).visited
                if self._rank(host, visited) < host.rank:
                    self._unready(host)
            if host.phase == DRY:
                self._place(key, host, now)
                if host.phase != READY:
                    self.gates.look_again(host)
        elif not host.row:
            self._enter(key, host, now)
        elif may_rise and host.row[:1] == SHELVED:
            visited = self._site(host).visited if host.row[:2] == IN_TIME else 0
            place = _lane(host.row) + self.order.rank(row, host, visited)
            if place < host.row:
                self._drop_row(key, host)
                self._put_on_shelf(key, host, place)

    def _enter(self, key: bytes, host: Host, now: float) -> None:
        """Give a host that had nothing queued its place."""
        if len(self.active) < self.max_active:
            self._activate(key, host)
            self._place(key, host, now)
        elif host.not_before > now:
            self._park(key, host, host.not_before)
        else:
            self._shelve(key, host)

    def _keep_off(self, host: Host) -> None:
        """Leave a host that comes into memory alone for its shortest gap after a crash, as if it was just asked."""
        if self.crashed_at:
            host.not_before = max(host.not_before, self.crashed_at + self.politeness.floor(host))

    def _activate(self, key: bytes, host: Host) -> None:
        self._drop_row(key, host)
        self._set_row(key, host, ACTIVE + key)
        self._keep_off(host)
        self.active[key] = host
        self.gates.note_pace(key, host, self.politeness.gap(host.transfer))

    def _shelve(self, key: bytes, host: Host) -> None:
        self._refresh_best(host)
        site = self._site(host)
        place = site.lane + self._rank(host, 0) if site.lane else IN_TIME + self._rank(host, site.visited)
        self._passivate(key, host)
        self._put_on_shelf(key, host, place)
        if site.lane:
            self._await(site.lane)

    def _put_on_shelf(self, key: bytes, host: Host, place: bytes) -> None:
        row = place + key
        self._set_row(key, host, row)
        bucket = index_bucket(row)
        self.n_shelved[bucket] = self.n_shelved.get(bucket, 0) + 1
        known = self._shelves.get(_lane(row))
        if known and row < known[-1]:
            insort(known, row)
            if len(known) > 2 * BACK_QUEUE_ROWS:  # the others are on the disk, too
                del known[BACK_QUEUE_ROWS:]

    def _first_shelved(self, lane: bytes) -> bytes | None:
        """The first index row of the hosts shelved in *lane*."""
        if not self.n_shelved:
            return None
        known = self._shelves.get(lane)
        if not known:
            if lane != IN_TIME:  # all hosts of a late domain are in one bucket
                bucket: bytes | None = lane if lane in self.n_shelved else None
            else:
                bucket = min((each for each in self.n_shelved if each.startswith(lane)), default=None)
            if bucket is None:
                return None
            rows, _ = self.index.first(bucket, BACK_QUEUE_ROWS)
            known = self._shelves[lane] = [row for row, _ in rows]
        return known[0]

    def _park(self, key: bytes, host: Host, until: float) -> None:
        place = DEAD if self.politeness.is_dead(host) else PARKED
        self._passivate(key, host)
        self._set_row(key, host, place + int(until * 1000 + 1).to_bytes(8, "big") + key)
        self._unpark_at[place] = min(self._unpark_at[place], until)
        if place == DEAD:
            self.n_dead += 1
            self.dead_pages += host.queued
        else:
            self.n_parked += 1

    def _passivate(self, key: bytes, host: Host) -> None:
        assert not host.held, "a host with a leased page must stay active"
        self._drop_row(key, host)
        self.active.pop(key, None)
        self.gates.forget_pace(key)
        host.phase, host.ticket = DRY, 0
        host.wakes_at = 0.0
        host.head, host.complete = None, False
        self.rows.forget(key)
        self.hosts.put(key, host)

    def _set_row(self, key: bytes, host: Host, row: bytes) -> None:
        self.index.put(row, b"")
        host.row = row[: -len(key)]
        self.hosts.put(key, host)

    def _drop_row(self, key: bytes, host: Host) -> None:
        if not host.row:
            return
        self.index.delete(host.row + key)
        if host.row[:1] == SHELVED:
            row = host.row + key
            bucket = index_bucket(row)
            self.n_shelved[bucket] -= 1
            if not self.n_shelved[bucket]:
                del self.n_shelved[bucket]
            known = self._shelves.get(_lane(row))
            if known and row <= known[-1]:
                del known[bisect_left(known, row)]
        elif host.row[:1] == PARKED:
            self.n_parked -= 1
        elif host.row[:1] == DEAD:
            self.n_dead -= 1
            self.dead_pages -= host.queued
        host.row = b""

    def _unshelve(self, row: bytes, now: float) -> None:
        """Bring the host of the index row *row* from the disk, or put it where the late ones are if it is late."""
        key = row[-HOST_BYTES:]
        host = self._from_disk(key)
        if self._site(host).lane:
            self._drop_row(key, host)
            self._shelve(key, host)
            return
        self._recall(key, now, row[len(IN_TIME) : -HOST_BYTES])

    def _recall(self, key: bytes, now: float, rank: bytes = b"") -> None:
        """Bring a shelved host of *rank* from the disk, and shelve worse ones for it if there is no room."""
        host = self._from_disk(key)
        if len(self.active) >= self.max_active:
            self._make_room(rank)
        self._activate(key, host)
        self._place(key, host, now)

    def _make_room(self, rank: bytes) -> None:
        """Shelve some hosts that are late, or ready but worse than *rank*, the worst first."""
        n = max(self.max_active // 20, 1)  # some at once, because looking for them costs more than shelving
        late = (entry for heap in self._late.values() for entry in heap if self._is_free(entry))
        victims = heapq.nlargest(n, late)
        if not victims:
            ready = (entry for entry in self._ready if entry[0] > rank and self._is_free(entry))
            victims = heapq.nlargest(n, ready)
        for _, _, key in victims:
            host = self.active[key]
            self._unready(host)
            self._shelve(key, host)
            self.gates.look_again(host)

    def _is_free(self, entry: Entry) -> bool:
        """Whether the host of *entry* may leave the memory."""
        return self._stands(entry) and not self.active[entry[2]].held

    def _from_disk(self, key: bytes) -> Host:
        host = self.hosts.get(key)
        assert host is not None, "an index row without its host"
        return host

    def _first_parked(self, place: bytes) -> float:
        rows, _ = self.index.first(place, 1)
        return _instant(rows[0][0]) if rows else float("inf")

    # -- back queues

    def _fill(self, key: bytes, host: Host) -> None:
        """Load the back queue of *host* if nothing of it is in memory."""
        if not host.head and (host.head is None or not host.complete):
            rows, host.complete = self.rows.first(key, BACK_QUEUE_ROWS + len(host.held))
            host.head = [row[HOST_BYTES:] + page for row, page in rows if page not in host.held]
        self._refresh_best(host)

    @staticmethod
    def _add_to_head(host: Host, row: bytes) -> None:
        """Put *row*, with its page, into the back queue of *host* if that is loaded so far."""
        head = host.head
        if head is None or (not host.complete and (not head or row > head[-1])):
            return
        insort(head, row)
        if len(head) > 2 * BACK_QUEUE_ROWS:
            del head[BACK_QUEUE_ROWS:]
            host.complete = False

    @staticmethod
    def _refresh_best(host: Host) -> None:
        """Set ``best`` from the back queue, when that is known."""
        if host.head:
            host.best = row_level(host.head[0])
        elif host.complete and host.head is not None:
            host.best = -1

    # -- commits

    def take_changes(self) -> dict[Family, dict[bytes, bytes | None]]:
        """Move all changes in flight and return them as rows."""
        return {
            Family.HOSTS: self.hosts.take(),
            Family.QUEUE: self.rows.take(),
            Family.META: self.index.take(),
        }

    def changes_landed(self) -> None:
        """The changes in flight are in the store."""
        for table in (self.hosts, self.rows, self.index):
            table.landed()

    def changes_failed(self) -> None:
        """The changes in flight did not reach the store."""
        for table in (self.hosts, self.rows, self.index):
            table.failed()


def _lane(row: bytes) -> bytes:
    """Lane of the index row of a shelved host."""
    return row[: len(IN_TIME) if row[:2] == IN_TIME else _LATE_LANE]


def _instant(parked_row: bytes) -> float:
    return int.from_bytes(parked_row[1:9], "big") / 1000

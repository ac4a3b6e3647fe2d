"""Mercator's frontier: which host is requested next, and for which of its pages.

A page waits in one of 64 *front queues* that its host has for its priority, at a place that the
:class:`~scrapy_aopic.core.order.Order` gives it; all pages of a higher priority come before those of a lower one. Not pages but *hosts* move through the frontier, by the rank of their best page; :mod:`.host_places` decides where a
host waits. The best rows of the front queues of a host in memory are its *back queue* (:mod:`.back_queue`).

Of the hosts that may be requested, those within their budgets come first, best rank first, in memory or on the disk
(:mod:`.shelves`). If there is none, and none is about to be free, the best late host of the shelf that stands first is
served (:mod:`.budgets`). A limit that several hosts share (a domain, an address, the connections for slow hosts) is a
*gate*, at which a host may have to wait (:mod:`.gates`).

For each page that it takes, the caller must :meth:`Frontier.release` its host once its transfer is over, and
:meth:`Frontier.finish` the page or :meth:`Frontier.put_back` it, in either order. A host is leased for at most one
page at a time, unless its politeness gives it several connections.

Sources: Heydon and Najork, "Mercator: A Scalable, Extensible Web Crawler", 1999; Najork and Heydon,
"High-Performance Web Crawling", 2001; budgets: Lee, Leonard, Wang and Loguinov, "IRLbot", 2008.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain, islice, takewhile
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from scrapy_aopic.core.layout import BEHIND, IN_TIME, OUTSIDERS
from scrapy_aopic.core.layout import LATE as LATE_ROWS
from scrapy_aopic.core.order import Aopic, Order
from scrapy_aopic.core.politeness import Gap, Outcome, Politeness, Silence, TransferResult
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import (
    HOST_BYTES,
    NO_RECORD,
    ROW_BYTES,
    ROW_PAGE_BYTES,
    HostRecord,
    front_queue_of,
    pack_host,
    queue_row,
)
from scrapy_aopic.core.tables import RecordTable, RowTable
from scrapy_aopic.exceptions import SALVAGE, CallError, StorageError

from . import back_queue
from .back_queue import BackQueues
from .budgets import Budgets
from .gates import Gates
from .host_places import HostPlaces
from .host_state import (
    DEAD,
    DRY,
    LEASED,
    LOCATING,
    WAITING,
    HostState,
    leave_alone,
    pack_state,
    unpack_state,
    wake,
)
from .shelves import index_bucket, instant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy_aopic.core.crawl_totals import CrawlTotals
    from scrapy_aopic.core.domains import Domains

_SOON = 0.001
"""Seconds after which a :meth:`Frontier.take` that has turned many hosts away is to be repeated."""

_OVERDUE = 1.0
"""Seconds that a transfer may exceed the last one of its host before the host is no longer expected: what a busy machine
adds. A host that was never requested is expected for as long, from the beginning of its transfer."""

_MOST_LOWERED = 8
"""Pages that are lowered before one is taken, at most: each costs some 50 microseconds. The next one is taken as it is, and a trap
has shown hundreds before it is known as one."""

_MOST_EXPECTED = 100
"""Most hosts waiting for an instant for which one step determines whether they are in time."""

ORDINARY = 0.03
"""Seconds of the processor for which an answer counts as one page: three times what most take. If it takes more, its host waits as
after a transfer of that time, and its domain is charged with a page for each :data:`_A_PAGE`."""

_A_PAGE = 0.01
"""Seconds of the processor of an ordinary page."""

_NOWHERE = 10
"""Pages that a host which does not exist counts as: whoever makes up names has as many as they like, and none of them a page."""

_MOST_OUTSIDERS = 10_000
"""Most outsiders that are kept, some 2 MB; the least recently used one is dropped first."""


class Standing(NamedTuple):
    """Compares the best hosts of several frontiers: the smallest is the best.

    Attributes:
        is_late: Whether no host is within its budgets.
        late: If so, where the first shelf of late hosts stands; see :meth:`.budgets.LateHosts.standing`.
        rank: Otherwise, the rank of the best host.
    """

    is_late: bool
    late: tuple[float, ...]
    rank: bytes


Move: TypeAlias = tuple[bytes, bytes, bytes]
"""Old queue row of a page and its new one, both without the host, and the page."""


class Taken(NamedTuple):
    """A page taken from the frontier; its host is leased."""

    host: bytes
    row: bytes
    page: bytes


class Unlocated(NamedTuple):
    """A host that cannot be requested before its address is known (:meth:`Frontier.locate`)."""

    key: bytes
    name: str


class NotBefore(NamedTuple):
    """Nothing may be requested before *instant* (seconds since the epoch).

    Attributes:
        is_held: Whether a host over its budget may be requested before, if the caller has time to spare.
    """

    instant: float
    is_held: bool = False


class Empty(NamedTuple):
    """Nothing is queued that may be requested before something in flight has ended."""


class Outsiders:
    """Hosts of which the crawl has no page, on the *index* of the store: they still get requests, and these are polite.

    Such a host has a robots.txt after a redirect, an image, or a page that a callback downloads. Its pace is kept like that
    of any other host, in a record in the index, so that it survives a restart.
    """

    def __init__(self, index: RowTable) -> None:
        self._index = index
        self._hosts: OrderedDict[bytes, HostState] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._hosts

    def load(self) -> None:
        """Take up those that the store holds.

        Raises:
            StorageError: If a record is not valid.
        """
        rows, _ = self._index.first(OUTSIDERS, 1 << 60)
        try:
            self._hosts.update((row[1:], unpack_state(value)) for row, value in rows)
        except NO_RECORD as error:
            raise StorageError(
                f"What is known of a host without pages cannot be understood: {SALVAGE}"
            ) from error

    def find(self, key: bytes) -> HostState | None:
        """The outsider under *key*, if there is one."""
        return self._hosts.get(key)

    def get(self, key: bytes, name: str) -> HostState:
        """The outsider under *key* called *name*, to be changed and given to :meth:`put`."""
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = HostState(name)
        self._hosts.move_to_end(key)
        if len(self._hosts) > _MOST_OUTSIDERS:
            self._index.delete(OUTSIDERS + self._hosts.popitem(last=False)[0])
        return host

    def put(self, key: bytes, host: HostState) -> None:
        """Write what changed of the outsider under *key*."""
        self._index.put(OUTSIDERS + key, pack_state(host))

    def pop(self, key: bytes) -> HostState | None:
        """The host under *key*, which is no outsider any more if it was one."""
        host = self._hosts.pop(key, None)
        if host is not None:
            self._index.delete(OUTSIDERS + key)
        return host


class Frontier:
    """Hosts and their queues.

    Args:
        store: Where rows and hosts are read.
        order: Which host is served first.
        domains: Registered domains, if the order uses them.
        politeness: When a host is dead, and how often it may be requested.
        domain_of: Registered domain of a host name, if hosts of one domain are kept apart.
        uses_addresses: Whether hosts of one address are kept apart.
        looks_up: Whether the caller looks up the address of a host before it is leased.
        connections: Transfers that may be under way at once, 0 for any number.
        max_active: Hosts kept in memory when more could be.
        host_cache: Records of other hosts kept in memory.
        waits_for: See :class:`.back_queue.BackQueues`.
        most_pages: See :class:`.host_places.HostPlaces`.
        lower: Moves the page under a key, which is next, to where it waits lower as of now; whether it has done so.

    Attributes:
        n_hosts: Hosts of which the crawl knows a page.
        queued: Pages with a queue row.
        pending: Queued pages that are not in flight.
        places: Where each host waits.
        active: Hosts in memory.
        gates: Limits that hosts share.
        budgets: Budgets of domains, with the visits of the whole crawl.
        outsiders: Hosts without a page in the crawl.
        tables: Its rows, with those that wait for a commit.
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
        looks_up: bool = False,
        connections: int = 0,
        max_active: int = 10_000,
        host_cache: int = 50_000,
        waits_for: Callable[[bytes], tuple[str, bool]] = lambda _: ("", True),
        most_pages: Callable[[str], int | None] | None = None,
        lower: Callable[[bytes, float], bool] = lambda *_: False,
    ) -> None:
        self.hosts = RecordTable(store, Family.HOSTS, pack_state, unpack_state, host_cache)
        self.rows = RowTable(store, Family.QUEUE, lambda row: row[:HOST_BYTES])
        self.index = RowTable(store, Family.META, index_bucket)
        self.tables = (self.hosts, self.rows, self.index)
        self._politeness = politeness if politeness is not None else Politeness()
        order = order if order is not None else Aopic()
        self._back_queues = BackQueues(self.rows, waits_for)
        self._lower = lower
        self._ranks_by_front_queue = order.ranks_by_front_queue
        self._left_to_lower = _MOST_LOWERED
        self.budgets = Budgets(order, domains)
        self.gates = Gates(
            self.index, domain_of, uses_addresses=uses_addresses, looks_up=looks_up, connections=connections
        )
        self.outsiders = Outsiders(self.index)
        self.places = HostPlaces(
            self.hosts,
            self.index,
            back_queues=self._back_queues,
            gates=self.gates,
            budgets=self.budgets,
            order=order,
            politeness=self._politeness,
            max_active=max_active,
            most_pages=most_pages,
        )
        self.active = self.places.active
        # Instants of the leases, by page, until that has ended: those in time, and those of other hosts with visited pages.
        self._in_time: dict[bytes, float] = {}
        self._late: dict[bytes, float] = {}
        self.n_hosts = 0
        self.queued = 0
        self.pending = 0

    # -- life

    def load(self, saved: CrawlTotals, now: float, *, crashed_at: float = 0.0) -> list[tuple[bytes, float]]:
        """Take up the state that the store holds; what was in flight when it was left waits again.

        Args:
            saved: The totals of the last commit.
            crashed_at: When the job was last opened after a crash, before which hosts may have been requested that
                are not known to; 0 if never.

        Returns:
            The hosts that were leased, with the instant of the lease.
        """
        self.queued = self.pending = saved.queued
        self.n_hosts = saved.hosts
        self.budgets.visits = saved.visits
        self.budgets.learn(saved.ledger.elsewhere.visits)
        self.gates.load()
        self.outsiders.load()
        self.places.crashed_at = crashed_at
        return self.places.load(saved, now)

    def host(self, key: bytes) -> HostState | None:
        """The host under *key*, if the crawl knows it."""
        return self.active.get(key) or self.hosts.get(key)

    def is_free(self, key: bytes) -> bool:
        """Whether no page of the host under *key* waits to be taken, and none is fetched."""
        host = self.host(key)
        return host is None or (host.queued == len(host.in_flight) and not host.transfers)

    def preload(self, keys: Iterable[bytes]) -> None:
        """Bring the hosts under *keys* into memory with one read."""
        wanted = [key for key in keys if key not in self.active]
        if wanted:
            self.hosts.get_many(wanted)

    def prefetch(self, keys: Iterable[bytes]) -> int:
        """Begin to read the hosts under *keys*, which :meth:`preload` will look at; returns the number of the request."""
        return self.hosts.prefetch([key for key in keys if key not in self.active])

    def __len__(self) -> int:
        return self.pending

    # -- pages come, move up and go

    def insert(self, page: bytes, name: str, front_queue: int, place: int, now: float) -> None:
        """Queue *page* (a page key, not queued) of the host called *name* in a front queue, at its *place* there."""
        self.insert_all(page[:HOST_BYTES], name, {queue_row(front_queue, place): page[HOST_BYTES:]}, now)

    def insert_all(self, key: bytes, name: str, pages: dict[bytes, bytes], now: float) -> None:
        """Queue *pages*, by their queue rows, none of them queued, of the host under *key* called *name*."""
        host = self.active.get(key) or self.hosts.get(key)
        if host is None:
            host = self.outsiders.pop(key) or HostState(name)
            self.n_hosts += 1
        if not host.queued:
            back_queue.begin(host)
        self.rows.change(key, {key + row: page for row, page in pages.items()})
        n = len(pages)
        host.queued += n
        self.queued += n
        self.pending += n
        if host.phase == DEAD:
            self.places.dead_pages += n
        elif key in self.places.blocked:
            self.places.recount(key, host)
        if host.silent or host.held_until:  # few are, and a call for each link would be felt
            for row, page in pages.items():
                self._add(key, host, row + page, now)
        else:
            for row, page in pages.items():
                back_queue.change(host, b"", row + page)
        self.hosts.put(key, host)
        self.places.improve(key, host, min(pages), now)

    def _add(self, key: bytes, host: HostState, row: bytes, now: float) -> None:
        """Let *row*, with its page after it, be taken from the back queue of *host*, unless it waits for a silent origin."""
        if self._back_queues.is_held(host, key + row[-ROW_PAGE_BYTES:], now):
            return
        back_queue.change(host, b"", row)
        if host.held_until:
            self.places.open(key, host, now)

    def move(self, key: bytes, moves: list[Move], now: float) -> None:
        """Move queued pages of the host under *key* from one queue row to another; they keep their place in time."""
        host = self.active.get(key) or self.places.expect(key, "a queued page")
        rows: dict[bytes, bytes | None] = {}
        for old, new, page in moves:
            rows[key + old] = None
            rows[key + new] = page
        self.rows.change(key, rows)
        best = b""
        for old, new, page in moves:
            if page in host.in_flight:
                host.in_flight[page] = front_queue_of(new)
                self.hosts.put(key, host)
                continue
            if host.silent or host.held_until:
                back_queue.change(host, old + page, b"")
                self._add(key, host, new + page, now)
            else:
                back_queue.change(host, old + page, new + page)
            best = min(best, new) if best else new
        if best:
            self.places.improve(key, host, best, now)

    def finish(self, page: bytes, front_queue: int, place: int) -> HostState:
        """Remove *page*, which is in flight, for good; its row is at *place* in a front queue. Returns its host."""
        key = page[:HOST_BYTES]
        host = self._landed(page)
        host.queued -= 1
        self.queued -= 1
        host.tried.discard(page[HOST_BYTES:])
        self.rows.delete(key + queue_row(front_queue, place))
        self.places.ended(key, host)
        self.hosts.put(key, host)
        return host

    def put_back(
        self, page: bytes, front_queue: int, place: int, now: float, *, has_failed: bool = False
    ) -> None:
        """Let *page*, which is in flight, wait again in a front queue, where its row is; behind others if it *has_failed*."""
        key = page[:HOST_BYTES]
        host = self._landed(page)
        self.pending += 1
        row = queue_row(front_queue, place)
        if has_failed:
            host.tried.add(page[HOST_BYTES:])
        self._add(key, host, row + page[HOST_BYTES:], now)
        is_waiting = host.phase == WAITING
        self.hosts.put(key, host)
        self.places.improve(key, host, row, now)
        if is_waiting and not host.in_flight:
            self.places.resettle(key, host, now)  # now that no page is in flight, it may leave the memory
        elif key in self.places.blocked:
            self.places.recount(key, host)

    def _expect_no_more(self, page: bytes) -> None:
        """Hold late hosts back for *page*, and what it may lead to, no longer."""
        self._in_time.pop(page, None)
        self._late.pop(page, None)

    def _landed(self, page: bytes) -> HostState:
        """The host of *page*, which is in flight no more."""
        self._expect_no_more(page)
        for shelf in self.budgets.end(page):
            self.places.late.note_again(shelf)
        host = self.active.get(page[:HOST_BYTES])
        if host is None or host.in_flight.pop(page[HOST_BYTES:], None) is None:
            raise CallError(
                f"The page {page.hex()} was not taken, or has ended: each page taken is ended once."
            )
        return host

    # -- hosts are leased and released

    def take(self, now: float, hold_late: float = 0.0) -> Taken | Unlocated | NotBefore | Empty:
        """Lease the best host that may be requested for its best page.

        The first host is checked again, because it may have changed since it got its place. Four cases:

        1. A shelved host that is in time ranks before all ready ones: it comes into the memory.
        2. A host is ready.
        3. All are late: the best one of the shelf that stands first counts as ready once it is in memory, unless a host in time
           is free soon.
        4. There is no host.

        Args:
            hold_late: Seconds for which late hosts are held back if a host in time is free by then.

        O(log hosts) in memory; a read of the store when a back queue is empty or a host comes from the disk.
        """
        places = self.places
        places.wake(now)
        while True:
            ready = places.ready.first()
            shelved = places.shelves.first(IN_TIME)
            if shelved is not None and (ready is None or shelved[len(IN_TIME) : -HOST_BYTES] < ready[0]):
                if not places.is_turning_away:
                    places.fetch(shelved, now)  # case 1
                    continue
                if ready is None:
                    return NotBefore(now + _SOON)
            if ready is not None:
                key, shelf = ready[2], b""  # case 2
            elif (late := places.late.first()) is None:
                return self.when()  # case 4
            elif hold_late and self.expects(now, hold_late, before=late.best):
                return NotBefore(now + hold_late, is_held=True)
            elif late.best in self.active:
                shelf, key = late  # case 3
            elif places.is_turning_away:
                return NotBefore(now + _SOON)
            else:
                places.recall(late.best, now)
                continue
            taken = self._lease(key, shelf, now)
            if taken is not None:
                return taken
            if places.is_turning_away:
                return NotBefore(now + _SOON)

    def _lease(self, key: bytes, shelf: bytes, now: float) -> Taken | Unlocated | None:
        """Lease the host under *key*, the first of those in time or on *shelf*; ``None`` if it, or its page, got another place."""
        host = self.active[key]
        self._back_queues.fill(key, host, now)
        queue, gates = host.back_queue, self.gates
        if not queue and host.silent:
            self.places.hold(key, host, now)
        if (
            not queue
            or host.opens_at > now
            or self.places.is_worse(host, shelf)
            or (gates.are_used and gates.shut(host, now))
            or (self.places.may_bar and self.places.bar(host))
            or (host.transfers and host.is_full)
        ):
            self.places.turn_away(key, host, now)
            return None
        if gates.are_used and gates.must_look_up(host):
            self.places.seek(key, host, now)
            return Unlocated(key, host.name)
        while True:
            number = _choose(host, queue)
            page = queue[number][-ROW_PAGE_BYTES:]
            if host.transfers and key + page in host.transfers:  # it waits again already
                self.places.wait_for_release(key, host)
                return None
            if not (self._left_to_lower and self._lower(key + page, now)):
                break
            self._left_to_lower -= 1
            is_as_good = self._ranks_by_front_queue and queue and front_queue_of(queue[0]) == host.best
            if host.silent or not is_as_good:  # others may come first now
                return None
        self._left_to_lower = _MOST_LOWERED
        row = queue.pop(number)[:-ROW_PAGE_BYTES]
        self.budgets.begin(key + page, host)
        if not shelf or host.visited:
            (self._late if shelf else self._in_time)[key + page] = now
        host.in_flight[page] = front_queue_of(row)
        self.places.lease(key + page, host, now)
        self.pending -= 1
        back_queue.refresh_best(host)
        self.hosts.put(key, host)
        return Taken(key, row, key + page)

    def expects(self, now: float, within: float, *, has_more: bool = False, before: bytes = b"") -> bool:
        """Whether a host in time is free, or may be, *within* this many seconds.

        It may wait for its gap or at a gate; or be requested, which takes about as long as the last time; or have all of its
        pages in flight, each of which may lead to more.

        Args:
            has_more: Whether to count only hosts with known pages that are not in flight.
            before: Key of the late host that would be next. Late hosts with visited pages come before it if no page of it was visited
                and its domain is charged for others that do not exist or took long, or that is charged for more than its pages.
        """
        until, active = now + within, self.active
        late = self.host(before) if before else None
        comes_last = late is not None and self.budgets.comes_last(late)
        for page, since in chain(self._in_time.items(), self._late.items() if comes_last else ()):
            host = active[page[:HOST_BYTES]]
            if host.phase != LEASED and (has_more or host.phase != DRY):
                continue
            if has_more and host.queued == len(host.in_flight):
                continue
            due = since + host.transfer
            if due <= until and now <= due + _OVERDUE:
                return True
        places = self.places
        if places.parked.opens_at <= until:
            return True
        waiting = (entry[2] for entry in places.waiting.up_to(until))
        keys = islice(chain(waiting, self.gates.best_up_to(until)), _MOST_EXPECTED)
        return any(
            key not in places.blocked
            and ((comes_last and active[key].visited) or not self.budgets.standing(active[key])[1])
            for key in keys
        )

    def next_of(self, key: bytes, n: int) -> list[bytes]:
        """Up to *n* pages that are next on the host *key*, as far as they are in memory."""
        queue = self.active[key].back_queue or ()
        return [key + row[-ROW_PAGE_BYTES:] for row in queue[:n]]

    def release(self, page: bytes, now: float) -> None:
        """End the lease of a host for *page*: from its time on it may be requested again."""
        host = self.active.get(page[:HOST_BYTES])
        if host is None or page not in host.transfers:
            raise CallError(f"No host is leased for the page {page.hex()}: each lease is released once.")
        self.places.release(page, host, now)

    def locate(self, key: bytes, address: str, now: float) -> None:
        """The host under *key* has *address*, empty if that could not be found out."""
        host = self.places.expect(key, "a look-up of its address")
        self.gates.looked_up(host, address)
        self.hosts.put(key, host)
        if host.phase == LOCATING:
            self.places.locate(key, host, now)

    # -- when a host may be requested

    def transferred(self, key: bytes, name: str, result: TransferResult, now: float) -> Gap:
        """A transfer from the host called *name*, under *key*, was over at *now*; returns the gap after it."""
        seconds, outcome, retry_after, at_least, address, origin, _, is_of_proxy, is_nowhere = result
        host = self.host(key) or self.outsiders.get(key, name)
        if address:
            self.gates.locate(host, address)
        outcome = self._politeness.judge(host, outcome)
        waits = host.not_before - now
        gap = self._politeness.after(
            host, seconds, outcome, retry_after, is_of_proxy=is_of_proxy, waits=waits
        )
        if self._politeness.heard(host, origin, outcome, now, is_nowhere=is_nowhere, is_of_proxy=is_of_proxy):
            back_queue.reload(host)
            if outcome != Outcome.SILENT and key not in self.outsiders:  # these have no pages that waited
                self.places.open(key, host, now)
        if at_least > gap.own:
            gap = gap._replace(own=at_least, at_once=1)
        host.rests_until = max(host.rests_until, now + at_least)
        host.transfer, host.at_once = seconds, gap.at_once
        if outcome == Outcome.SILENT:
            self.gates.mislay(host)
            self.budgets.charge_silent(host, _NOWHERE if is_nowhere else 1)
        self.gates.defer(host, now + gap.shared)
        if key in self.active:
            self.gates.note_pace(key, host, gap)
        self._leave_alone(key, host, now + gap.own)
        if host.phase == DEAD and not self.places.is_dead(host):
            self.places.enter(key, host, now)
        return gap

    def hold(self, key: bytes, origin: str, silence: Silence) -> None:
        """Let the pages of *origin*, of the host under *key*, wait by *silence*, if not longer; the others do not."""
        host = self.host(key)
        if host is not None:
            known = (host.silent or {}).get(origin)
            if known is not None:
                silence = Silence(known.n, max(known.until, silence.until), silence.is_for_all)
            self._politeness.hold(host, origin, silence)
            back_queue.reload(host)
            self.hosts.put(key, host)

    def lift(self, key: bytes, origin: str, now: float) -> float:
        """Let the host under *key* wait for an ordinary gap only, and *origin* for none if it is silent; returns the gap.

        What either waits for was for one way to it, and there is another one. What the host's answers have cost, and what a
        rule asks for, holds for each way.
        """
        host = self.host(key)
        if host is None:
            return inf
        own = self._politeness
        until = max(now + own.of(host.name).gap(host.transfer), now + own.crawl_delay(host), host.rests_until)
        wake(host, until)
        silence = host.silent.get(origin) if host.silent else None
        if silence is not None and not silence.is_for_all:
            own.hold(host, origin, silence._replace(until=now))
            back_queue.reload(host)
        self.places.open(key, host, now)
        return until - now

    def set_crawl_delay(self, key: bytes, name: str, seconds: float, now: float) -> None:
        """Have *seconds* between the requests to the host called *name*, whose robots.txt was just read."""
        host = self.host(key) or self.outsiders.get(key, name)
        if seconds > 0:
            host.at_once = 1
        self._leave_alone(key, host, now + self._politeness.delay(host, seconds))

    def allow(self, key: bytes, what: int) -> None:
        """Keep with the host under *key* that *what* is allowed of it, and nothing else."""
        host = self.host(key)
        if host is not None and what != host.allowed:
            host.allowed = what
            self.hosts.put(key, host)

    def defer(self, key: bytes, not_before: float, transfer: float | None = None) -> None:
        """Leave the host under *key* alone until *not_before*; its last transfer took *transfer* seconds, if that is news."""
        host = self.host(key)
        if host is not None:
            if transfer is not None:
                host.transfer = transfer
            self._leave_alone(key, host, not_before)

    def charge(self, key: bytes, seconds: float, before: float, now: float) -> None:
        """The answer of the host under *key* has taken *seconds* of the processor, *before* at the last call.

        It is expected no more: late hosts are held back for what a page may lead to, but not while it is read for long.
        """
        host = self.host(key)
        if host is None or seconds <= ORDINARY:
            return
        charged = int(before / _A_PAGE) if before > ORDINARY else 1
        self.budgets.charge(host, int(seconds / _A_PAGE) - charged)
        for page in host.in_flight:
            self._expect_no_more(key + page)
        host.rests_until = max(host.rests_until, now + self._politeness.of(host.name).gap(seconds))
        self._leave_alone(key, host, host.rests_until)

    def defer_all(self, key: bytes, not_before: float) -> None:
        """Leave the host under *key*, and those that share a gate with it, alone until *not_before*."""
        host = self.host(key)
        if host is not None:
            self.gates.defer(host, not_before)
            self._leave_alone(key, host, not_before)

    def _leave_alone(self, key: bytes, host: HostState, not_before: float) -> None:
        """Leave *host* alone until *not_before*, if not longer; a host that waits looks again when it wakes."""
        leave_alone(host, not_before)
        table = self.outsiders if key in self.outsiders else self.hosts
        table.put(key, host)

    def not_before(self, key: bytes) -> float:
        """Instant before which the host under *key* must be left alone, as far as that is known."""
        host = self.host(key) or self.outsiders.find(key)
        return max(host.not_before, self.gates.not_before(host)) if host is not None else 0.0

    def when(self) -> NotBefore | Empty:
        """The earliest instant at which a host may be requested; long past if one may be now."""
        places = self.places
        if places.ready or places.shelves.counts or places.late.first() is not None:
            return NotBefore(0.0)
        instant = min(places.parked.opens_at, places.dead.opens_at, self.gates.when())
        first = places.waiting.first()
        if first is not None:
            instant = min(instant, first[0])
        return NotBefore(instant) if instant != inf else Empty()

    @property
    def n_stranded(self) -> int:
        """Pages that count as waiting though only dead hosts wait: more than 0 in an inconsistent job only."""
        places = self.places
        if places.active or places.shelves.counts or places.parked.opens_at != inf:
            return 0
        return max(self.pending - places.dead_pages, 0)

    def best(self, now: float) -> Standing | None:
        """The standing of the best host that may be requested at *now*; ``None`` if there is none."""
        places = self.places
        places.wake(now)
        ready, shelved = places.ready.first(), places.shelves.first(IN_TIME)
        ranks = [ready[0]] if ready is not None else []
        if shelved is not None:
            ranks.append(shelved[len(IN_TIME) : -HOST_BYTES])
        if ranks:
            return Standing(is_late=False, late=(), rank=min(ranks))
        late = places.late.first()
        if late is None:
            return None
        return Standing(is_late=True, late=tuple(places.late.standing(late.shelf)), rank=b"")

    def awaited(self) -> tuple[float, str]:
        """The instant at which the first host that is not dead may be requested, and its name; ``""`` if there is none.

        O(gates at which hosts wait), for callers with nothing else to do.
        """
        found: tuple[float, bytes] = (inf, b"")
        first = self.places.waiting.first()
        if first is not None:
            found = (first[0], first[2])
        for heap in self.gates.waiting.values():
            entry = heap.first()
            if entry is not None:
                found = min(found, (self.gates.not_before(self.active[entry[2]]), entry[2]))
        if self.places.parked.opens_at < found[0]:
            row = self.places.parked.first_row()
            found = min(found, (instant_of(row), row[-HOST_BYTES:])) if row is not None else found
        host = self.host(found[1])
        return found[0], host.name if host is not None else ""

    # -- budgets

    def count(self, host: HostState) -> None:
        """A page of *host*, which is active, was visited for the first time."""
        self.budgets.count(host)

    def count_of(self, key: bytes) -> None:
        """A page of the host under *key*, of which no page waits, was visited for the first time by another job."""
        host = self.places.expect(key, "a page")
        self.budgets.count(host)
        self.hosts.put(key, host)

    def acquaint(self, key: bytes, known: HostRecord) -> None:
        """Know the host under *key*, if it is not known, and be as polite to it as another job, whose record of it is *known*."""
        if self.host(key) is None:
            self.n_hosts += 1
            plain = replace(known, queued=0, visited=0, best=None, row=b"")
            self.hosts.put(key, unpack_state(pack_host(plain)))

    def supported(self, domain: bytes) -> None:
        """The number of supporters or seeds of *domain* rose: its late hosts may be due sooner."""
        for shelf in (LATE_ROWS + domain, BEHIND + domain):
            self.places.late.note_again(shelf)

    def look_again(self, key: bytes, now: float) -> None:
        """Give the host under *key* another place if it is late and need not be, maybe on the shelf of another domain."""
        host = self.host(key)
        if host is not None:
            self.places.look_again(key, host, now)


def _choose(host: HostState, queue: list[bytes]) -> int:
    """Which of the rows of *queue*, the back queue of *host*, is next: of the best priority, the first that has not failed lately."""
    if not host.tried and not host.errors:
        return 0
    of_page = -ROW_PAGE_BYTES - ROW_BYTES
    rows = list(takewhile(lambda row: row[:of_page] == queue[0][:of_page], queue))
    if host.tried:
        untried = (number for number, row in enumerate(rows) if row[-ROW_PAGE_BYTES:] not in host.tried)
        number = next(untried, -1)
        if number >= 0:
            return number
        host.tried.clear()
        return 0
    # If it did not respond, maybe the page is to blame: try another one.
    return host.errors % len(rows)

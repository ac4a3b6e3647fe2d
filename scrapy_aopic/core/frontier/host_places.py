"""The places of hosts: where each one waits, and where it goes next.

:class:`HostPlaces` owns the three parts of a host's place, so that they always agree: its phase (:mod:`.host_state` has the
table), its entry in a heap, and its row in the index. Callers only report what happened to a host, and
:meth:`HostPlaces.settle` decides where it goes, by the first of these cases that holds:

0. It is requested as often at once as it may be: it waits for a release (LEASED).
1. Nothing of it can be taken: it leaves the memory if nothing is queued, else it waits for its pages in flight (DRY).
2. It must be left alone: it waits in memory (WAITING), or on the disk if the memory is full or the host is dead
   (PARKED, DEAD).
3. It is blocked, or has had all of its pages: it is put aside on the disk for a while (PARKED), or in memory if a page of it is in flight (WAITING).
4. A gate that it shares is shut: it waits there (GATED), or on the disk if the memory is full (PARKED).
5. It is over its budget: it waits on its shelf (LATE).
6. It may be requested (READY).

A host that enters while the memory is full is not settled but shelved or parked.
"""

from __future__ import annotations

from heapq import nlargest
from itertools import accumulate, count, islice
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core import layout
from scrapy_aopic.core.layout import ACTIVE, BEHIND, IN_TIME
from scrapy_aopic.core.politeness import Gap, Politeness
from scrapy_aopic.core.records import (
    BEST_START,
    HOST_BYTES,
    N_FRONT_QUEUES,
    ROW_BYTES,
    WORST_START,
    front_queue_of,
)
from scrapy_aopic.exceptions import SALVAGE, StorageError

from .back_queue import BackQueues, best_row, raise_best, refresh_best
from .budgets import Budgets, LateHosts
from .heap import LazyHeap
from .host_state import (
    DEAD,
    DRY,
    GATED,
    HAS_ALL_IN_FLIGHT,
    HAS_NO_CONNECTION,
    HAS_NOTHING,
    IDLE,
    IS_BURIED,
    IS_DUE,
    IS_LEASED,
    IS_LOCATED,
    IS_OVER_BUDGET,
    IS_PARKED,
    IS_RELEASED,
    IS_SHELVED,
    IS_SOUGHT,
    IS_TOO_SOON,
    LATE,
    LEASED,
    LEAVES,
    MEETS_A_GATE,
    PARKED,
    READY,
    SHELVED,
    WAITING,
    HostState,
    go,
    leave_alone,
)
from .shelves import Parking, Shelves, shelf_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.crawl_totals import CrawlTotals
    from scrapy_aopic.core.order import Order
    from scrapy_aopic.core.tables import RecordTable, RowTable

    from .gates import Gates

_AT_ONCE = 32
"""Late hosts of a shelf that are let through in one step."""

_MAX_TURNED_AWAY = 100
"""Most hosts that one step may find blocked or at a shut gate; each may have cost a read."""

_BEFORE = 1 << 60
"""More than there are numbers."""

_CROWD = 100
"""Hosts that are ready, from which on new ones wait at their gate, though it is open."""

_BLOCKED_FOR = 60.0
"""Seconds, and up to as many more, after which a blocked host is examined again: for 100,000 such hosts this takes some 3 %
of the time, and after a restart the blocked hosts are known again soon."""

_UNBLOCKED_AT_ONCE = 1_000
"""Hosts that get another place at once when they are unblocked: some 20 ms if they are on the disk."""

_SOON = 0.01
"""Seconds after which a host is examined again if many of its rows in sequence wait for silent origins."""

_NO_PRIORITY = bytes((BEST_START,))
"""How the ranks of hosts begin whose best page has the priority 0; the others begin as the row of that page does."""

LAST = b"\xff"
"""How the ranks of late hosts begin where they wait at a gate, behind all others."""

_MAKE_ROOM = 20
"""One in this many of the hosts in memory is shelved at once: finding them costs more than shelving."""


class Aside(NamedTuple):
    """A host that was put aside because it is blocked.

    Attributes:
        pages: Pages of it that could be taken.
        name: The blocked name that covers it.
    """

    pages: int
    name: str


_NOT_ASIDE = Aside(0, "")


class HostPlaces:
    """The places of all hosts.

    Args:
        hosts: Records of hosts.
        index: Rows that say where each host waits.
        max_active: Hosts kept in memory when more could be.
        most_pages: Pages that the host of a name may have, ``None`` for any number; ``None`` if that is so for all.

    Attributes:
        active: Hosts in memory that have a page queued or in flight, by key.
        ready: Those that are READY, by rank.
        waiting: Those that are WAITING, by time.
        late: Those that are LATE, and the shelves of late hosts.
        shelves: Hosts that are SHELVED.
        parked: Hosts that are PARKED.
        dead: Hosts that are DEAD.
        dead_pages: Pages queued of these.
        crashed_at: When the job was last opened after a crash, in seconds since the epoch; 0 if never. Before it, any host
            may have been requested without a record of it.
        is_blocked: Gives the blocked name that covers a host, empty if there is none; ``None`` if no name is blocked.
        may_bar: Whether :meth:`bar` may bar any host.
        blocked: The hosts that were put aside because they are barred, by key.
        blocked_pages: Pages of these that could be taken.
    """

    def __init__(
        self,
        hosts: RecordTable[HostState],
        index: RowTable,
        *,
        back_queues: BackQueues,
        gates: Gates,
        budgets: Budgets,
        order: Order,
        politeness: Politeness,
        max_active: int,
        most_pages: Callable[[str], int | None] | None = None,
    ) -> None:
        self._hosts = hosts
        self._most_pages = most_pages
        self._index = index
        self._back_queues = back_queues
        self._gates = gates
        self._budgets = budgets
        self._order = order
        self._politeness = politeness
        self._max_active = max_active
        self.active: dict[bytes, HostState] = {}
        self.ready: LazyHeap[bytes] = LazyHeap()
        self.waiting: LazyHeap[float] = LazyHeap()
        self.shelves = Shelves(index)
        self.late = LateHosts(budgets, self.shelves, self._front_queue_of)
        self.parked = Parking(index, layout.PARKED)
        self.dead = Parking(index, layout.DEAD)
        self.crashed_at = 0.0
        self.dead_pages = 0
        self.is_blocked: Callable[[str], str] | None = None
        self.may_bar = most_pages is not None
        self.blocked: dict[bytes, Aside] = {}
        self.blocked_pages = 0
        # Hosts of equal rank come in the order in which they got their places.
        self._number = count(1).__next__
        self._turned_away = 0

    def expect(self, key: bytes, what: str) -> HostState:
        """The host under *key*, which *what* in the store refers to.

        Raises:
            StorageError: If there is no such host.
        """
        host = self.active.get(key) or self._hosts.get(key)
        if host is None:
            raise StorageError(f"The store has {what} of host {key.hex()}, but no such host: {SALVAGE}")
        return host

    def _front_queue_of(self, key: bytes) -> int:
        """Front queue of the best page of the late host under *key*, as far as it is known."""
        return self.expect(key, "an index row").best or 0

    # -- where a host goes

    def load(self, saved: CrawlTotals, now: float) -> list[tuple[bytes, float]]:
        """Take up what the store holds: how many hosts are on the disk, and those that were in memory.

        Returns:
            The hosts that were leased, with the instant of the lease.
        """
        self.shelves.counts = dict(saved.shelved)
        self.parked.n, self.dead.n, self.dead_pages = saved.parked, saved.dead, saved.dead_pages
        for parking in (self.parked, self.dead):
            parking.look()
        for bucket in self.shelves.counts:
            if bucket[:2] != IN_TIME:
                self.late.note(bucket)
        leased = []
        keys = [row[1:] for row, _ in self._index.first(ACTIVE, 1 << 60)[0]]
        for key, known in zip(keys, self._hosts.get_many(keys), strict=True):
            host = known if known is not None else self.expect(key, "an index row")
            if host.leased_at:
                leased.append((key, host.leased_at))
                host.leased_at = 0.0
                self._hosts.put(key, host)
            self._come_in(key, host)
            self.settle(key, host, now)
        return leased

    def enter(self, key: bytes, host: HostState, now: float) -> None:
        """Give a place to *host*, which has none, or one on the disk that it must leave."""
        self.leave(key, host)
        if len(self.active) < self._max_active:
            self._activate(key, host)
            self.settle(key, host, now)
        elif host.opens_at > now:
            self._park(key, host, host.opens_at)
        elif self.may_bar and (name := self.bar(host)):
            self._put_aside(key, host, name, now)
        else:
            self._shelve(key, host)

    def leave(self, key: bytes, host: HostState) -> None:
        """Take *host* out of its place; it must be given another one at once."""
        go(host, LEAVES)
        if self.blocked:
            self.blocked_pages -= self.blocked.pop(key, _NOT_ASIDE).pages
        if host.heap is not None:
            self._leave_heap(key, host)
        elif host.row and host.row[:1] != ACTIVE:
            self.drop_row(key, host)

    @staticmethod
    def _leave_heap(key: bytes, host: HostState) -> None:
        if host.heap is not None:
            host.heap.void(key)
            host.heap = None

    def settle(self, key: bytes, host: HostState, now: float, *, is_let_in: bool = False) -> None:
        """Give *host*, which is in memory and MOVING, its place, or that behind its gate if it *is_let_in*; see the head of this module."""
        if host.transfers and host.is_full:
            go(host, HAS_NO_CONNECTION)
        elif host.queued == len(host.in_flight):
            if host.queued or host.transfers:
                go(host, HAS_ALL_IN_FLIGHT)
            else:
                self._leave_memory(key, host)
                go(host, HAS_NOTHING)
        elif host.opens_at > now:
            if self._is_out(host):
                self._park(key, host, host.opens_at)
            else:
                go(host, IS_TOO_SOON)
                self.waiting.push(key, host.opens_at)
                host.heap = self.waiting
        elif self.may_bar and (name := self.bar(host)):
            self._put_aside(key, host, name, now)
        elif self._gates.are_used and (gate := self._gate(host, now, is_let_in=is_let_in)):
            self._turned_away += 1
            if len(self.active) > self._max_active and not host.is_busy:
                self._park(key, host, self._gates.next_turn(gate, now))
            else:
                go(host, MEETS_A_GATE)
                visited, shelf = self._budgets.standing(host)
                self._queue_up(key, host, self._gates.queue(gate), visited, is_late=bool(shelf))
                self._gates.joined(gate)
        else:
            self._line_up(key, host)

    def _gate(self, host: HostState, now: float, *, is_let_in: bool) -> bytes:
        """The gate at which *host* has to wait: one that is shut, or that of new hosts while many are ready; empty if none."""
        if gate := self._gates.shut(host, now):
            return gate
        is_new = not (is_let_in or host.transfer)
        return self._gates.new_hosts if is_new and self._is_crowded() else b""

    @property
    def n_ready(self) -> int:
        """Hosts that are READY, and new ones in time that wait at their gate though it is open."""
        gates = self._gates
        is_open = gates.free is not None and gates.free.takes_new
        crowd = gates.waiting.get(gates.new_hosts) if is_open else None
        entries = crowd.entries() if crowd is not None else ()
        return len(self.ready) + sum(not rank.startswith(LAST) for rank, _, _ in entries)

    def _is_crowded(self) -> bool:
        """Whether so many hosts are ready that new ones wait at their gate, even if it is open: else all would be turned away from it."""
        # As far as need be: there may be thousands of late domains.
        of_late = map(len, self.late.in_memory.values())
        return any(n >= _CROWD for n in accumulate(of_late, initial=len(self.ready)))

    def _line_up(self, key: bytes, host: HostState) -> None:
        """Give *host*, which may be requested, its place among others."""
        visited, shelf = self._budgets.standing(host)
        if shelf:
            go(host, IS_OVER_BUDGET)
            self._queue_up(key, host, self.late.hosts_of(shelf), 0)
            self.late.note(shelf)
        else:
            go(host, IS_DUE)
            self._queue_up(key, host, self.ready, visited)

    def resettle(self, key: bytes, host: HostState, now: float) -> None:
        """Give *host*, of which something has changed, the place that is due to it now, and its old one to others."""
        self.leave(key, host)
        self.settle(key, host, now)
        if self._gates.are_used and host.phase != READY:
            self._gates.look_again(host)

    def bar(self, host: HostState) -> str:
        """The blocked name that covers *host*, or its own name if it has had all of its pages; empty if it may have more."""
        if self.is_blocked is not None and (name := self.is_blocked(host.name)):
            return name
        left = self.pages_left(host)
        return host.name if left is not None and left <= len(host.in_flight) else ""

    def pages_left(self, host: HostState) -> int | None:
        """Pages that *host* may still have, those in flight included; ``None`` for any number."""
        most = self._most_pages(host.name) if self._most_pages is not None else None
        return max(most - host.visited, 0) if most is not None else None

    def _put_aside(self, key: bytes, host: HostState, name: str, now: float) -> None:
        """Leave *host*, which is MOVING and which *name* bars, alone for a while, on the disk if that is possible."""
        self._turned_away += 1
        # Not all at once again: the key is as good as random.
        until = now + _BLOCKED_FOR * (1 + key[0] / 256)
        if host.is_busy:
            go(host, IS_TOO_SOON)
            self.waiting.push(key, until)
            host.heap = self.waiting
        else:
            self._park(key, host, until)
        if host.phase != DEAD:  # those are counted already
            self.blocked[key] = Aside(0, name)
            self.recount(key, host)

    def recount(self, key: bytes, host: HostState) -> None:
        """Count the pages that could be taken of *host*, which was put aside."""
        before = self.blocked[key]
        n = host.queued - len(host.in_flight)
        self.blocked_pages += n - before.pages
        self.blocked[key] = before._replace(pages=n)

    def block(self, is_blocked: Callable[[str], str] | None, now: float) -> None:
        """Block exactly the hosts for which *is_blocked* gives a name; ``None`` to block none.

        Hosts that are no longer blocked get another place, many of them at once and the rest within two minutes; newly
        blocked ones are put aside when their turn comes.
        """
        self.is_blocked = is_blocked
        self.may_bar = is_blocked is not None or self._most_pages is not None
        free = (
            key for key, aside in self.blocked.items() if is_blocked is None or not is_blocked(aside.name)
        )
        for key in list(islice(free, _UNBLOCKED_AT_ONCE)):
            host = self.expect(key, "a page")
            if host.phase == WAITING:
                self.resettle(key, host, now)
            else:
                self.enter(key, host, now)

    def _is_out(self, host: HostState) -> bool:
        """Whether *host*, which must be left alone, should do so on the disk, and may."""
        is_out = len(self.active) > self._max_active or self.is_dead(host)
        return is_out and not host.is_busy

    def is_dead(self, host: HostState) -> bool:
        """Whether the crawl does not wait for *host*: it is down, or only links to dead origins are left of it."""
        politeness = self._politeness
        return politeness.is_dead(host) or (host.held_until > 0.0 and politeness.are_all_dead(host))

    def _queue_up(
        self, key: bytes, host: HostState, heap: LazyHeap[bytes], visited: int, *, is_late: bool = False
    ) -> None:
        """Enter *host* into *heap* by its rank with *visited* pages, at a gate behind those in time if it *is_late*."""
        refresh_best(host)  # so that whatever is better than its best makes its rank better
        host.rank = rank = self.rank(host, visited)
        host.heap = heap
        # Of equal rank a new host comes first whose address is known: it was looked up for a request.
        is_next = host.is_located and not host.transfer
        heap.push(key, LAST + rank if is_late else rank, self._number() - is_next * _BEFORE)

    def rank(self, host: HostState, visited: int) -> bytes:
        """Rank of *host*, as good as can be while its back queue is not in memory: its best priority, and what the order says.

        Late hosts are compared only on their shelf, without the number of visited pages, which all of it share: so their
        ranks stay valid while the domain is visited.
        """
        row = best_row(host)
        if len(row) == ROW_BYTES:
            return _NO_PRIORITY + self._order.rank(row, host, visited)
        return self._rank_by(row, host, visited)

    def _rank_by(self, row: bytes, host: HostState, visited: int) -> bytes:
        """Rank of *host* with the best queue row *row*."""
        return (row[:-ROW_BYTES] or _NO_PRIORITY) + self._order.rank(row[-ROW_BYTES:], host, visited)

    # -- what happens to a host

    def hold(self, key: bytes, host: HostState, now: float) -> None:
        """Let *host* wait, because all rows examined so far wait for silent origins, and were passed over."""
        silent = host.silent or {}
        if host.is_whole and host.passed_over:
            # Of an origin that is due nothing is left, unless a page of it is in flight, which may come back.
            if not host.in_flight:
                due = {name for name, each in silent.items() if each.until <= now}
                self._politeness.forget(host, due.difference(host.passed_over))
            host.held_until = min(silent[name].until for name in host.passed_over)
        elif not host.is_whole:
            host.held_until = now + _SOON
        self._hosts.put(key, host)

    def open(self, key: bytes, host: HostState, now: float) -> None:
        """Note that a row of *host* that does not wait for a silent origin may be taken again."""
        host.held_until = 0.0
        self._hosts.put(key, host)
        if host.phase == WAITING:
            self.resettle(key, host, now)
        elif host.phase in (PARKED, DEAD):
            self.enter(key, host, now)

    def lease(self, page: bytes, host: HostState, now: float) -> None:
        """*host* is requested for *page*, by its whole key."""
        key = page[:HOST_BYTES]
        self.wait_for_release(key, host)
        host.transfers[page] = now
        host.leased_at, host.held_until = next(iter(host.transfers.values())), 0.0
        self._gates.enter(page, host, now)
        if not host.is_full:
            go(host, IS_RELEASED)
            self.settle(key, host, now)

    def wait_for_release(self, key: bytes, host: HostState) -> None:
        """*host* is requested no more until a lease of it is over."""
        go(host, IS_LEASED)
        self._leave_heap(key, host)

    def release(self, page: bytes, host: HostState, now: float) -> None:
        """The lease of *host* for *page* is over."""
        key = page[:HOST_BYTES]
        del host.transfers[page]
        host.leased_at = next(iter(host.transfers.values()), 0.0)
        self._gates.leave(page, host, now)
        self._hosts.put(key, host)
        if host.phase == LEASED:
            go(host, IS_RELEASED)
            self.settle(key, host, now)
        elif host.phase in (DRY, WAITING) and not host.is_busy:
            self.resettle(key, host, now)  # now it may leave the memory

    def seek(self, key: bytes, host: HostState, now: float) -> None:
        """The address of *host* is looked up before it is leased."""
        go(host, IS_SOUGHT)
        self._leave_heap(key, host)
        self._gates.look_up()
        self._gates.look_again(host)
        self._let_in(now)

    def locate(self, key: bytes, host: HostState, now: float) -> None:
        """The address of *host* was looked up."""
        go(host, IS_LOCATED)
        self.settle(key, host, now, is_let_in=True)

    def turn_away(self, key: bytes, host: HostState, now: float) -> None:
        """*host* came first and may not be requested: give it another place, and its turn to others at its gates."""
        self.resettle(key, host, now)
        if self._gates.are_used and host.phase != READY:
            self._let_in(now)

    def is_worse(self, host: HostState, shelf: bytes) -> bool:
        """Whether *host*, filed on *shelf* (empty if in time), belongs on another one, or ranks worse than it is filed."""
        visited, shelf_now = self._budgets.standing(host)
        return shelf_now != shelf or self.rank(host, 0 if shelf else visited) > host.rank

    def improve(self, key: bytes, host: HostState, row: bytes, now: float) -> None:
        """A page of *host* that can be taken has the queue row *row* now: move the host if that is its best."""
        # Without a call for each host of a page.
        best = WORST_START - row[0] if len(row) == ROW_BYTES else front_queue_of(row)
        is_better = host.best is None or best > host.best
        may_rise = is_better or not self._order.ranks_by_front_queue
        if is_better:
            raise_best(host, best)
            self._hosts.put(key, host)
        phase = host.phase
        if phase in (DRY, LEASED):
            if not host.row:  # it had nothing queued any more
                self._set_row(key, host, ACTIVE)
            if phase == DRY:
                self.resettle(key, host, now)
        elif phase == IDLE:
            self.enter(key, host, now)
        elif may_rise and phase in (READY, LATE, GATED):
            if self.rank(host, 0 if phase == LATE else self._budgets.standing(host)[0]) < host.rank:
                self.resettle(key, host, now)
        elif may_rise and phase == SHELVED and best >= N_FRONT_QUEUES and host.row[:2] != IN_TIME:
            self.enter(key, host, now)  # its budget does not hold it back any more
        elif may_rise and phase == SHELVED:
            visited = self._budgets.standing(host)[0] if host.row[:2] == IN_TIME else 0
            place = shelf_of(host.row) + self._rank_by(row, host, visited)
            if place < host.row:
                self.leave(key, host)
                self._put_on_shelf(key, host, place)
                if place[: len(IN_TIME)] != IN_TIME:
                    self.late.note(shelf_of(place))

    def ended(self, key: bytes, host: HostState) -> None:
        """A page of *host* that was in flight has ended for good."""
        if not host.queued:
            if host.phase == DRY and not host.transfers:
                go(host, LEAVES)
                self._leave_memory(key, host)
                go(host, HAS_NOTHING)
            else:
                self.drop_row(key, host)  # its lease goes on, but there is nothing to come back to
        elif host.phase == WAITING:
            if self._is_out(host):
                self.leave(key, host)
                self._park(key, host, host.opens_at)
            elif key not in self.blocked and self.waiting.value(key) != host.opens_at:
                self.waiting.push(key, host.opens_at)

    def look_again(self, key: bytes, host: HostState, now: float) -> None:
        """Give *host* another place if it is late and need not be; maybe it is on the shelf of another domain."""
        if host.phase == LATE and not self._budgets.standing(host)[1]:
            self.leave(key, host)
            self.settle(key, host, now)
        elif host.row[:2] == BEHIND and not self._budgets.standing(host)[1]:
            self.enter(key, host, now)

    # -- what comes when its time has come

    def wake(self, now: float) -> None:
        """Give other places to the hosts that have waited for an instant, a number of visits or a gate."""
        self._turned_away = 0
        while (entry := self.waiting.first()) is not None and entry[0] <= now:
            key = entry[2]
            host = self.active[key]
            self.leave(key, host)
            self.settle(key, host, now)
        for shelf in self.late.take_due():
            if self.late.best(shelf) is None:
                self.late.forget(shelf)
            else:
                self._let_through(shelf, now)
        for parking in (self.parked, self.dead):
            if parking.opens_at <= now:
                for key in parking.due(now):
                    self.enter(key, self.expect(key, "an index row"), now)
        if self._gates.are_used:
            self._let_in(now)

    def _let_through(self, shelf: bytes, now: float) -> None:
        """Let the best late hosts of *shelf* be in time, as many as the budget has pages left, some at once."""
        visits, due = self._budgets.visits, 0.0
        for n in range(_AT_ONCE):
            due = self._budgets.due(shelf, n)
            key = self.late.best(shelf)
            if due > visits or key is None:
                break
            host = self.active.get(key)
            if host is not None:
                self.leave(key, host)
                self.settle(key, host, now)
            else:
                self.enter(key, self.expect(key, "an index row"), now)
            if self.late.best(shelf) == key:
                due = visits + 1.0  # by the way that it takes it is not in time
                break
        self.late.wait(shelf, due)

    def _let_in(self, now: float) -> None:
        """Let the best host in at each gate that is open.

        Late hosts go in one by one, and those that go on to another gate, but where hosts share a domain or an address, each of
        which is looked at when it opens: else all would, for each connection or look-up that is free, and come back when one of
        them has it.
        """
        for gate in self._gates.opened(now):
            heap = self._gates.waiting.get(gate)
            while heap is not None and (entry := heap.first()) is not None:
                key = entry[2]
                host = self.active[key]
                self.leave(key, host)
                self.settle(key, host, now, is_let_in=True)
                if host.phase == READY or gate[:1] != layout.SHARED_GATES:
                    break

    @property
    def is_turning_away(self) -> bool:
        """Whether so many hosts were turned away since :meth:`wake` that the step should end and go on later."""
        return self._turned_away >= _MAX_TURNED_AWAY

    # -- from the disk and to it

    def fetch(self, row: bytes, now: float) -> None:
        """Bring the host in time with the index row *row* from the disk, or let it lie on its shelf if it is late."""
        key = row[-HOST_BYTES:]
        host = self.expect(key, "an index row")
        if self._budgets.standing(host)[1]:
            self.leave(key, host)
            self._shelve(key, host)
        else:
            self.recall(key, now, row[len(IN_TIME) : -HOST_BYTES])

    def recall(self, key: bytes, now: float, rank: bytes = b"") -> None:
        """Bring a shelved host of *rank* from the disk, and shelve worse ones for it if there is no room."""
        if len(self.active) >= self._max_active:
            self._make_room(rank)
        host = self.expect(key, "an index row")
        self.leave(key, host)
        self._activate(key, host)
        self.settle(key, host, now, is_let_in=True)

    def _make_room(self, rank: bytes) -> None:
        """Shelve some hosts that are late, or ready but worse than *rank*, the worst first."""
        n, active = max(self._max_active // _MAKE_ROOM, 1), self.active
        late = (entry for heap in self.late.in_memory.values() for entry in heap.entries())
        victims = nlargest(n, (entry for entry in late if not active[entry[2]].is_busy))
        if not victims:
            worse = (entry for entry in self.ready.entries() if entry[0] > rank)
            victims = nlargest(n, (entry for entry in worse if not active[entry[2]].is_busy))
        for _, _, key in victims:
            host = active[key]
            self.leave(key, host)
            self._shelve(key, host)
            self._gates.look_again(host)

    def _activate(self, key: bytes, host: HostState) -> None:
        self._set_row(key, host, ACTIVE)
        self._come_in(key, host)

    def _come_in(self, key: bytes, host: HostState) -> None:
        if self.crashed_at:  # leave it alone for its shortest gap, as if it had just been requested
            leave_alone(host, self.crashed_at + self._politeness.floor(host))
        self.active[key] = host
        gap = self._politeness.gap(host.transfer)
        self._gates.note_pace(key, host, Gap(gap, gap))

    def _leave_memory(self, key: bytes, host: HostState) -> None:
        self.drop_row(key, host)
        if self.active.pop(key, None) is not None:
            self._gates.forget_pace(key)
        self._back_queues.unload(key, host)
        self._hosts.put(key, host)

    def _shelve(self, key: bytes, host: HostState) -> None:
        """Let *host*, which is MOVING, lie on its shelf."""
        refresh_best(host)
        visited, shelf = self._budgets.standing(host)
        place = shelf + self.rank(host, 0) if shelf else IN_TIME + self.rank(host, visited)
        self._leave_memory(key, host)
        self._put_on_shelf(key, host, place)
        if shelf:
            self.late.note(shelf)

    def _put_on_shelf(self, key: bytes, host: HostState, place: bytes) -> None:
        go(host, IS_SHELVED)
        self._set_row(key, host, place)
        self.shelves.put(place + key)

    def _park(self, key: bytes, host: HostState, until: float) -> None:
        """Let *host*, which is MOVING, lie on the disk *until* an instant."""
        self._leave_memory(key, host)
        if self.is_dead(host):
            go(host, IS_BURIED)
            parking = self.dead
            self.dead_pages += host.queued
        else:
            go(host, IS_PARKED)
            parking = self.parked
        self._set_row(key, host, parking.place(until))
        parking.put(until)

    # -- index rows

    def _set_row(self, key: bytes, host: HostState, place: bytes) -> None:
        """Write the index row of *host*, which begins with *place*."""
        self._index.put(place + key, b"")
        host.row = place
        self._hosts.put(key, host)

    def drop_row(self, key: bytes, host: HostState) -> None:
        """Delete the index row of *host*, if it has one."""
        place = host.row
        if not place:
            return
        self._index.delete(place + key)
        letter = place[:1]
        if letter == layout.SHELVED:
            self.shelves.drop(place + key)
        elif letter == layout.PARKED:
            self.parked.n -= 1
        elif letter == layout.DEAD:
            self.dead.n -= 1
            self.dead_pages -= host.queued
        host.row = b""

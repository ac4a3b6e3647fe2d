"""Goes through the hosts in memory, in slices, because there may be ten thousand and more.

A :class:`HostWalk` looks at each host once, at different moments.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappush, heappushpop
from itertools import islice
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import ACTIVE, DEAD, PARKED, SHELVED
from scrapy_aopic.core.records import IN_PRIORITY, HostRecord

from .snapshot import DUE_BOUNDS, N_LISTED, HostCounts, HostRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.core.politeness import Politeness

STATES = (
    "idle", "dry", "dry", "ready", "late", "waiting", "gated", "locating", "in flight", "shelved", "parked", "dead",
)  # fmt: skip
"""States of :class:`~.snapshot.HostCounts` by the phase of a host in memory (``core/frontier/host_state.py``). MOVING, which a
host is inside of a call only, is never seen."""

_STORED = {ACTIVE: "active", SHELVED: "shelved", PARKED: "parked", DEAD: "dead"}


def why_it_waits(host: HostRecord) -> str:
    """Why no request is made to *host*, which must be left alone."""
    if host.unanswered:
        return "down"
    if host.errors:
        return "errors"
    return "crawl delay" if host.crawl_delay else "gap"


def opens_at(host: HostRecord) -> float:
    """Instant before which nothing of *host* can be requested.

    One that never answered and whose origins are silent waits for these, also if it was stored before the frontier saw that
    nothing else is left of it.
    """
    if host.silent and not host.transfer and getattr(host, "phase", None) is None:
        return max(host.opens_at, min([silence.until for silence in host.silent.values()]))
    return host.opens_at


def _is_overdue(host: HostRecord, now: float) -> bool:
    """Whether the gap of *host* is over and nobody has looked at it since, as while the crawl waits for the disk."""
    phase = getattr(host, "phase", None)
    return phase is not None and STATES[phase] == "waiting" and opens_at(host) <= now


def state_of(host: HostRecord, now: float) -> str:
    """Where *host* is, in memory or as it was stored."""
    phase = getattr(host, "phase", None)
    if phase is not None:
        return "ready" if _is_overdue(host, now) else STATES[phase]
    state = _STORED.get(host.row[:1], "idle")
    if state == "active":  # its place is not stored: the next process finds one
        return "waiting" if opens_at(host) > now else "ready"
    return state


def row_of(host: HostRecord, now: float) -> HostRow:
    """*host* in a list."""
    wait = max(opens_at(host) - now, 0.0)
    return HostRow(
        name=host.name,
        state=state_of(host, now),
        queued=host.queued,
        visited=host.visited,
        transfer=host.transfer,
        wait=wait,
        why=why_it_waits(host) if wait else "",
        errors=host.errors,
        down=host.unanswered,
        crawl_delay=host.crawl_delay,
    )


class Largest:
    """The *most* hosts with the largest figures of some kind."""

    def __init__(self, most: int = N_LISTED) -> None:
        self._most = most
        self._heap: list[tuple[float, int, HostRecord]] = []
        self._n = 0

    def offer(self, value: float, host: HostRecord) -> None:
        """Keep *host*, if few have a larger *value*."""
        self._n += 1
        if len(self._heap) < self._most:
            heappush(self._heap, (value, -self._n, host))
        elif value > self._heap[0][0]:
            heappushpop(self._heap, (value, -self._n, host))

    @property
    def values(self) -> list[float]:
        """Their values, the largest first."""
        return sorted([value for value, _, _ in self._heap], reverse=True)

    def rows(self, now: float) -> list[HostRow]:
        """Those kept, the largest first."""
        return [row_of(host, now) for _, _, host in sorted(self._heap, reverse=True)]


class HostWalk:
    """Counts *hosts*, some at a time.

    Args:
        politeness: For how long a host is left alone after its transfers.

    Attributes:
        is_over: Whether all were looked at.
        n: Number of hosts that were.
        states: Hosts by state.
        waits: Waiting hosts by reason.
        due_in: Waiting hosts by the time until they are ready.
        front_queues: Hosts by the front queue of their best page.
        ready_queues: Ready hosts by the front queue of their best page.
        flight_queues: Pages in flight by the front queue that they were in.
        backing_off: Number of hosts that wait after errors.
        crawl_delayed: Number of hosts that have a crawl delay.
        overdue: Number of hosts that are ready and count as waiting, as nobody has looked at them since their gap was over.
        unused: Pages a second that ready hosts could have; one without a transfer so far, as the average of the others.
        tail: See :attr:`.snapshot.HostCounts.tail`.
    """

    def __init__(self, hosts: Iterable[HostRecord], politeness: Politeness | None) -> None:
        self._hosts = iter(hosts)
        self._politeness = politeness
        self._slow, self._failing, self._waiting, self._tail = Largest(), Largest(), Largest(), Largest()
        self._now = 0.0
        self.is_over = False
        self.n = 0
        self.states: dict[str, int] = {}
        self.waits: dict[str, int] = {}
        self.due_in = [0] * (len(DUE_BOUNDS) + 1)
        self.front_queues: dict[int, int] = {}
        self.ready_queues: dict[int, int] = {}
        self.flight_queues: dict[int, int] = {}
        self.backing_off = self.crawl_delayed = self.overdue = 0
        self._cycles = self._unused = 0.0
        self._n_cycles = self._n_new = 0

    def step(self, n: int, now: float) -> bool:
        """Look at up to *n* more hosts; returns whether it is over then."""
        self._now = now
        looked = 0
        for host in islice(self._hosts, n):
            looked += 1
            self._look(host, now)
        self.n += looked
        self.is_over = looked < n
        return self.is_over

    def _look(self, host: HostRecord, now: float) -> None:
        state = state_of(host, now)
        self.states[state] = self.states.get(state, 0) + 1
        self.overdue += _is_overdue(host, now)
        if host.best is not None:
            best = host.best & IN_PRIORITY
            self.front_queues[best] = self.front_queues.get(best, 0) + 1
            if state == "ready":
                self.ready_queues[best] = self.ready_queues.get(best, 0) + 1
        for level in list(getattr(host, "in_flight", {}).values()):
            number = level & IN_PRIORITY
            self.flight_queues[number] = self.flight_queues.get(number, 0) + 1
        if host.crawl_delay:
            self.crawl_delayed += 1
        if state == "waiting":
            wait = opens_at(host) - now
            why = why_it_waits(host)
            self.waits[why] = self.waits.get(why, 0) + 1
            self.due_in[bisect_left(DUE_BOUNDS, wait)] += 1
            self.backing_off += host.errors > 0
            self._waiting.offer(wait, host)
        if host.transfer > 0:
            self._slow.offer(host.transfer, host)
            cycle = host.transfer + self._gap(host)
            self._cycles += cycle
            self._n_cycles += 1
            if host.queued and self._politeness is not None:
                wait = max(host.opens_at - now, 0.0)
                self._tail.offer(wait + host.queued * cycle / getattr(host, "at_once", 1), host)
            if state == "ready":
                self._unused += 1 / cycle
        elif state == "ready":
            self._n_new += 1
        if host.errors:
            self._failing.offer(host.errors, host)

    def _gap(self, host: HostRecord) -> float:
        politeness = self._politeness
        if politeness is None:
            return max(host.crawl_delay, 0.0)
        own = politeness.of(host.name) if politeness.rule is not None else politeness
        return max(own.gap(host.transfer), politeness.crawl_delay(host))

    def hosts(self) -> HostCounts:
        """The figures of the hosts for a snapshot, except their numbers by state."""
        return HostCounts(
            backing_off=self.backing_off,
            crawl_delayed=self.crawl_delayed,
            waits=self.waits,
            due_in=self.due_in,
            front_queues=dict(sorted(self.front_queues.items(), reverse=True)),
            ready_queues=dict(sorted(self.ready_queues.items(), reverse=True)),
            flight_queues=dict(sorted(self.flight_queues.items(), reverse=True)),
            seen=self.n,
        )

    @property
    def tail(self) -> list[float]:
        return self._tail.values

    @property
    def unused(self) -> float:
        cycle = self._cycles / self._n_cycles if self._n_cycles else 0.0
        return self._unused + (self._n_new / cycle if cycle else 0.0)

    @property
    def regret(self) -> tuple[int, int]:
        """By how many front queues the pages in flight are below the best page that waits, summed up; and their number."""
        best = max(self.front_queues, default=0)
        queues = sum([max(best - level, 0) * n for level, n in self.flight_queues.items()])
        return queues, sum(self.flight_queues.values())

    def rows(self) -> dict[str, list[HostRow]]:
        """Those with the longest last transfers, with the most errors in a row, and those that wait longest."""
        lists = {"slow": self._slow, "failing": self._failing, "waiting": self._waiting}
        return {name: largest.rows(self._now) for name, largest in lists.items()}

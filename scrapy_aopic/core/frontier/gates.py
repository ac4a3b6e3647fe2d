"""What keeps a host waiting although it might be asked itself: what it shares with other hosts.

A *gate* is shared by hosts. That of a registered domain or of a network address lets one host in at a time, and
stays shut for the gap after each transfer. Two more let in as many as there is room for: slow hosts, so that fast ones
find a free connection, and hosts whose address has to be looked up.

Hosts wait at a gate by their rank, and one is let in when it opens. Who has been let in is ready like any other host,
and is stopped again if another host of the gate is faster; so a gate that is open and has hosts waiting needs to be
looked at only when one of its ready hosts is leased, or leaves its place.
"""

from __future__ import annotations

import heapq
import math
from hashlib import blake2b
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import SHARED_GATES
from scrapy_aopic.core.records import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.records import Host
    from scrapy_aopic.core.tables import RowTable

    from .frontier import Entry

_SLOW, _LOOK_UP = b"S", b"L"
_MAX_LOOK_UPS = 100
_SWEEP = 1000

_BOUNDS = (1.0, 16.0)
"""Seconds from which on a transfer is of the next class."""

N_CLASSES = len(_BOUNDS) + 1

_MOST = 0.75

_SAMPLE = 20
"""Seconds that count for what hosts are like that were never asked."""


class Lanes:
    """How many connections slow hosts may hold, so that fast ones find one when their time comes.

    A transfer cannot be stopped to make room, and who takes 30 seconds holds a connection sixty times as long as who
    takes half a second. So hosts are classed by the time that they take: under a second, under 16, and longer. The
    slower classes leave free what the faster ones need in the mean, and twice the root of that for its ups and downs
    ("square-root staffing"), but three quarters of all connections at most. A host that was never asked counts as slow
    to twice the part that slow ones had of the time for which such hosts held connections of late, of the first second
    of each; wholly at first. All tell after a second, as the slow ones do, so that these are not the last to count, and
    twice because who lets in too few can make up for it at once, and who lets in too many, only when they are done.

    Args:
        connections: Transfers that may be under way at once.
    """

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._under_way: dict[bytes, tuple[float, int]] = {}  # begin and class
        self._rises: list[tuple[float, bytes]] = []
        self._held = [0] * N_CLASSES
        self._unknown: set[bytes] = set()  # never asked before, and not slow so far
        self._untold: dict[tuple[float, bytes], float] = {}  # of the last second, as in _rises: time held
        self._slow_part = 1.0
        self._needs: dict[
            bytes, tuple[int, float]
        ] = {}  # class, and part of the time that it is transferring
        self._needed = [0.0] * N_CLASSES

    @staticmethod
    def class_of(seconds: float) -> int:
        """Class of a host whose transfers take *seconds*."""
        return sum(seconds >= bound for bound in _BOUNDS)

    def note(self, key: bytes, seconds: float, gap: float) -> None:
        """The host under *key*, which has pages waiting, takes *seconds* and is then left alone for *gap*."""
        self.forget(key)
        if seconds > 0:
            number, part = self.class_of(seconds), seconds / (seconds + gap)
            self._needs[key] = (number, part)
            self._needed[number] += part

    def forget(self, key: bytes) -> None:
        """The host under *key* has no pages waiting in memory."""
        number, part = self._needs.pop(key, (0, 0.0))
        self._needed[number] -= part

    def begin(self, key: bytes, seconds: float, now: float) -> None:
        """The host under *key*, which took *seconds* the last time, is leased."""
        self._hold(key, now, self.class_of(seconds))
        if not seconds:
            self._unknown.add(key)
            self._untold[now + _BOUNDS[0], key] = _BOUNDS[0]

    def _hold(self, key: bytes, begin: float, number: int) -> None:
        self._under_way[key] = (begin, number)
        self._held[number] += 1
        if number < N_CLASSES - 1:
            heapq.heappush(self._rises, (begin + _BOUNDS[number], key))

    def end(self, key: bytes, now: float) -> None:
        """The lease of the host under *key* is over."""
        begin, number = self._under_way.pop(key)
        self._held[number] -= 1
        self._unknown.discard(key)
        told = (begin + _BOUNDS[0], key)
        if told in self._untold:
            self._untold[told] = min(now - begin, _BOUNDS[0])

    def full(self, seconds: float, now: float) -> int:
        """A class for which there is no room, if a host that takes *seconds*, 0 if unknown, needs it; or else 0."""
        slowest = self.class_of(seconds) if seconds > 0 else N_CLASSES - 1
        # Who may take longest also holds what those in between leave to the fast ones.
        return next((number for number in range(slowest, 0, -1) if not self.has_room(number, now)), 0)

    def has_room(self, number: int, now: float) -> bool:
        """Whether another host of class *number* may be leased."""
        while self._rises and self._rises[0][0] <= now:
            instant, key = heapq.heappop(self._rises)
            begin, held = self._under_way.get(key, (0.0, N_CLASSES - 1))
            is_slow = (
                held < N_CLASSES - 1 and instant == begin + _BOUNDS[held]
            )  # else it is of an earlier lease
            if is_slow:
                self._held[held] -= 1
                self._hold(key, begin, held + 1)
                self._unknown.discard(key)
            weight = self._untold.pop((instant, key), 0.0)
            self._slow_part += (is_slow - self._slow_part) * weight / _SAMPLE
        need = max(sum(self._needed[:number]), 0.0)
        kept_free = min(round(need + 2 * math.sqrt(need)), int(_MOST * self._connections))
        in_use = sum(self._held[number:]) + min(2 * self._slow_part, 1.0) * len(self._unknown)
        return in_use < self._connections - kept_free


class Gates:
    """All gates.

    Args:
        index: Rows of the store that hold when a gate may be passed again.
        domain_of: Registered domain of a host name, if hosts of one domain are kept apart.
        uses_addresses: Whether hosts of one address are kept apart.
        connections: Transfers that may be under way at once, 0 for any number.

    Attributes:
        waiting: Hosts that wait, a heap for each gate; its entries may be void.
    """

    def __init__(
        self,
        index: RowTable,
        domain_of: Callable[[str], str] | None = None,
        *,
        uses_addresses: bool = False,
        connections: int = 0,
    ) -> None:
        self.waiting: dict[bytes, list[Entry]] = {}
        self._index = index
        self._domain_of = domain_of
        self._uses_addresses = uses_addresses
        self._lanes = Lanes(connections) if connections else None
        self._holders: dict[bytes, bytes] = {}
        self._clocks: dict[bytes, float] = {}
        self._sweep_at = _SWEEP
        self._reserved: dict[bytes, float] = {}
        self._times: list[tuple[float, bytes]] = []
        self._timed: dict[bytes, float] = {}
        self._looks: set[bytes] = set()
        self._look_ups = 0

    def load(self) -> None:
        """Take up the clocks that the store holds."""
        rows, _ = self._index.first(SHARED_GATES, 1 << 60)
        self._clocks = {gate: unpack(value) for gate, value in rows}

    def of(self, host: Host) -> tuple[bytes, ...]:
        """The gates of the domain and the address of *host*."""
        if host.gates is None:
            names = []
            if self._domain_of is not None:
                names.append(f"domain {self._domain_of(host.name)}")
            if self._uses_addresses and host.address:
                names.append(f"address {host.address}")
            host.gates = tuple(
                SHARED_GATES + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                for name in names
            )
        return host.gates

    # -- passing

    def shut(self, host: Host, now: float) -> bytes:
        """A gate that *host* cannot pass at *now*, empty if there is none."""
        for gate in self.of(host):
            if not self._is_open(gate, now):
                return gate
        if self._lanes is not None:
            number = self._lanes.full(host.transfer, now)
            if number:
                return _SLOW + bytes((number,))
        if self.must_look_up(host) and not self._is_open(_LOOK_UP, now):
            return _LOOK_UP
        return b""

    def must_look_up(self, host: Host) -> bool:
        """Whether *host* cannot be asked before its address is known."""
        return self._uses_addresses and not host.is_located

    def _is_open(self, gate: bytes, now: float) -> bool:
        if gate == _LOOK_UP:
            return self._look_ups < _MAX_LOOK_UPS
        return gate not in self._holders and self._clocks.get(gate, 0.0) <= now

    def enter(self, key: bytes, host: Host, now: float) -> None:
        """The host under *key* is leased: its gates are shut until it leaves."""
        host.entered = self.of(host)
        self._holders.update(dict.fromkeys(host.entered, key))
        if self._lanes is not None:
            self._lanes.begin(key, host.transfer, now)

    def leave(self, key: bytes, host: Host, now: float) -> None:
        """The lease of the host under *key* is over."""
        for gate in host.entered:
            if self._holders.get(gate) == key:
                del self._holders[gate]
                self._watch(gate)
        host.entered = ()
        if self._lanes is not None:
            self._lanes.end(key, now)
        if len(self._clocks) > self._sweep_at:
            for gate in [gate for gate, instant in self._clocks.items() if instant <= now]:
                del self._clocks[gate]
                self._index.delete(gate)
            self._sweep_at = max(2 * len(self._clocks), _SWEEP)

    def defer(self, host: Host, not_before: float) -> None:
        """A transfer from *host* is over: its gates stay shut until *not_before*, if not longer."""
        for gate in self.of(host):
            if not_before > self._clocks.get(gate, 0.0):
                self._clocks[gate] = not_before
                self._index.put(gate, pack(not_before))

    def note_pace(self, key: bytes, host: Host, gap: float) -> None:
        """The host under *key*, which has pages waiting in memory, is left alone for *gap* after each transfer."""
        if self._lanes is not None:
            self._lanes.note(key, host.transfer, gap)

    def forget_pace(self, key: bytes) -> None:
        """The host under *key* has no pages waiting in memory any more."""
        if self._lanes is not None:
            self._lanes.forget(key)

    def not_before(self, host: Host) -> float:
        """Instant before which the gates of *host* stay shut."""
        return max((self._clocks.get(gate, 0.0) for gate in self.of(host)), default=0.0)

    def look_up(self) -> None:
        """The address of a host is looked up from now on."""
        self._look_ups += 1

    def looked_up(self) -> None:
        """A look-up is over."""
        self._look_ups -= 1
        self._watch(_LOOK_UP)

    # -- waiting

    def wait(self, gate: bytes, entry: Entry) -> None:
        """Let the host of *entry* wait at *gate*."""
        heapq.heappush(self.waiting.setdefault(gate, []), entry)
        if gate in self._clocks and gate not in self._holders:
            self._watch(gate)

    def reserve(self, gate: bytes, now: float) -> float:
        """Instant at which a host that finds no room to wait may come back to *gate*, one a second."""
        instant = max(self._reserved.get(gate, 0.0), self._clocks.get(gate, 0.0), now) + 1.0
        if len(self._reserved) > _SWEEP:
            self._reserved = {gate: each for gate, each in self._reserved.items() if each > now}
        self._reserved[gate] = instant
        return instant

    def look_again(self, host: Host) -> None:
        """*host*, which was let in, is not leased: others may take its place."""
        for gate in self.of(host):
            self._watch(gate)

    def _watch(self, gate: bytes) -> None:
        """Have *gate* looked at when its clock allows, if a host waits at it."""
        if not self.waiting.get(gate):
            self.waiting.pop(gate, None)
            return
        instant = self._clocks.get(gate, 0.0)
        if instant != self._timed.get(gate):
            self._timed[gate] = instant
            heapq.heappush(self._times, (instant, gate))

    def opened(self, now: float) -> list[bytes]:
        """Gates at which a host may be let in now."""
        found = []
        while self._times and self._times[0][0] <= now:
            instant, gate = heapq.heappop(self._times)
            if self._timed.get(gate) != instant:
                continue
            del self._timed[gate]
            if self._is_open(gate, now):
                found.append(gate)
            elif self._clocks.get(gate, 0.0) > now:
                self._watch(gate)  # it was deferred meanwhile
        if self._lanes is not None:
            slow = ((number, _SLOW + bytes((number,))) for number in range(1, N_CLASSES))
            found += [
                gate for number, gate in slow if self.waiting.get(gate) and self._lanes.has_room(number, now)
            ]
        return found

    def when(self) -> float:
        """Instant at which a gate opens, unless a lease or a look-up must end first; infinite if none does."""
        return self._times[0][0] if self._times else math.inf

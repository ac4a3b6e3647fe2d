"""Gates: limits that several hosts share, such as a domain, an address or the connections for slow hosts.

The gate of a registered domain or of a network address lets one host in at a time, and stays shut for the gap after
each transfer. A host with several connections passes it again while it is inside, unless others wait there. Two other kinds let in as many hosts as there is room for: slow hosts, so that fast ones find a free
connection (:mod:`.free_connections`), and hosts whose address must be looked up.

Hosts wait at a gate by their rank, and the best one is let in when it opens. A host that was let in is ready like any
other, and is stopped again if another host of the gate is leased first. So an open gate at which hosts wait must be
examined only when one of its ready hosts is leased or leaves its place. Those of slow hosts and of look-ups are each time.

Invariant: a gate at which hosts wait, and that no lease keeps shut, has a time at which it is examined.
"""

from __future__ import annotations

from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import SHARED_GATES
from scrapy_aopic.core.records import HOST_BYTES, pack, unpack

from .free_connections import N_CLASSES, FreeConnections
from .heap import LazyHeap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_aopic.core.politeness import Gap
    from scrapy_aopic.core.tables import RowTable

    from .host_state import HostState

_SLOW = [b"S" + bytes((number,)) for number in range(N_CLASSES)]
"""Gates of slow hosts, by the class that has no free connection; fast hosts have no such gate."""

_LOOK_UP = b"L"
"""Gate of the hosts whose address must be looked up."""

_MAX_LOOK_UPS = 256
"""Addresses that are looked up at once: a slow name server must not collect thousands of waiting look-ups."""

_SWEEP = 1000
"""Times of gates that are kept before those in the past are removed."""

_TURN = 1.0
"""Seconds between hosts that return to a shut gate from the disk."""


class Gates:
    """All gates.

    Args:
        index: Rows of the store with the times at which gates open.
        domain_of: Registered domain of a host name, if hosts of one domain are kept apart.
        uses_addresses: Whether hosts of one address are kept apart.
        looks_up: Whether hosts are looked up in any case.
        connections: Transfers that may be under way at once, 0 for any number.

    Attributes:
        are_used: Whether there is any gate.
        waiting: Hosts that wait, by rank, by gate.
        holders: Hosts whose leases keep gates shut, by gate.
        free: Connections kept free for fast hosts, if there is a number of connections.
        new_hosts: Gate of the hosts that were never requested; empty without such a number.
    """

    def __init__(
        self,
        index: RowTable,
        domain_of: Callable[[str], str] | None = None,
        *,
        uses_addresses: bool = False,
        looks_up: bool = False,
        connections: int = 0,
    ) -> None:
        self._looks_up = looks_up or uses_addresses
        self.are_used = domain_of is not None or self._looks_up or connections > 0
        self.waiting: dict[bytes, LazyHeap[bytes]] = {}
        self._index = index
        self._domain_of = domain_of
        self._uses_addresses = uses_addresses
        self.free = FreeConnections(connections) if connections else None
        self.new_hosts = _SLOW[-1] if connections else b""
        self.holders: dict[bytes, bytes] = {}
        self._opens_at: dict[bytes, float] = {}  # by gate
        self._sweep_at = _SWEEP
        self._turns: dict[bytes, float] = {}  # instants at which hosts return from the disk, by gate
        self._looks: LazyHeap[float] = LazyHeap()  # gates by the instant at which they are looked at
        self._look_ups = 0

    def load(self) -> None:
        """Take up what the store holds."""
        rows, _ = self._index.first(SHARED_GATES, 1 << 60)
        self._opens_at = {gate: unpack(value) for gate, value in rows}

    def of(self, host: HostState) -> tuple[bytes, ...]:
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

    def shut(self, host: HostState, now: float) -> bytes:
        """A gate that *host* cannot pass at *now*, empty if there is none."""
        for gate in host.gates if host.gates is not None else self.of(host):
            is_held = gate in self.holders and (gate not in host.entered or self.waiting.get(gate))
            if is_held or self._opens_at.get(gate, 0.0) > now:
                return gate
        if self.free is not None:
            number = self.free.full_class(host.transfer, now)
            if number:
                return _SLOW[number]
        if self._looks_up and not host.is_located and self._look_ups >= _MAX_LOOK_UPS:
            return _LOOK_UP
        return b""

    def must_look_up(self, host: HostState) -> bool:
        """Whether *host* cannot be requested before its address is known."""
        return self._looks_up and not host.is_located

    def _is_open(self, gate: bytes, now: float) -> bool:
        return gate not in self.holders and self._opens_at.get(gate, 0.0) <= now

    def enter(self, page: bytes, host: HostState, now: float) -> None:
        """*host* is leased for *page*: its gates are shut for others until its last lease is over."""
        gates = self.of(host)
        host.entered = tuple({*host.entered, *gates}) if host.entered else gates
        for gate in gates:
            self.holders[gate] = page[:HOST_BYTES]
        if self.free is not None:
            self.free.begin(page, host.transfer, now)

    def leave(self, page: bytes, host: HostState, now: float) -> None:
        """The lease of *host* for *page* is over."""
        if not host.transfers:
            for gate in host.entered:
                if self.holders.get(gate) == page[:HOST_BYTES]:
                    del self.holders[gate]
                    self._watch(gate)
            host.entered = ()
        if self.free is not None:
            self.free.end(page, now, is_silent=not host.transfer)
        if len(self._opens_at) > self._sweep_at:
            for gate in [gate for gate, instant in self._opens_at.items() if instant <= now]:
                del self._opens_at[gate]
                self._index.delete(gate)
            self._sweep_at = max(2 * len(self._opens_at), _SWEEP)

    def defer(self, host: HostState, not_before: float) -> None:
        """A transfer from *host* is over: its gates stay shut until *not_before*, if not longer."""
        for gate in self.of(host):
            if not_before > self._opens_at.get(gate, 0.0):
                self._opens_at[gate] = not_before
                self._index.put(gate, pack(not_before))

    def note_pace(self, key: bytes, host: HostState, gap: Gap) -> None:
        """The host under *key*, which has pages waiting in memory, is left alone for *gap* after each transfer."""
        if self.free is not None:
            self.free.note(key, host.transfer, gap.own, gap.at_once)

    def forget_pace(self, key: bytes) -> None:
        """The host under *key* has no pages waiting in memory any more."""
        if self.free is not None:
            self.free.forget(key)

    def not_before(self, host: HostState) -> float:
        """Instant before which the gates of *host* stay shut."""
        return max((self._opens_at.get(gate, 0.0) for gate in self.of(host)), default=0.0)

    def look_up(self) -> None:
        """The address of a host is looked up from now on."""
        self._look_ups += 1

    def looked_up(self, host: HostState, address: str) -> None:
        """The address of *host* was looked up; empty if that could not be found out."""
        self._look_ups -= 1
        host.is_located = True
        self.locate(host, address)

    @staticmethod
    def mislay(host: HostState) -> None:
        """*host* is silent: its address is looked up again before the next request."""
        host.is_located = False

    def locate(self, host: HostState, address: str) -> None:
        """*host* has *address*, if that is not empty."""
        if address and address != host.address:
            host.address, host.gates = address, None

    # -- waiting

    def queue(self, gate: bytes) -> LazyHeap[bytes]:
        """The hosts that wait at *gate*, to which one is to be added; :meth:`joined` must follow."""
        heap = self.waiting.get(gate)
        if heap is None:
            heap = self.waiting[gate] = LazyHeap()
        return heap

    def joined(self, gate: bytes) -> None:
        """A host waits at *gate* now."""
        if gate in self._opens_at and gate not in self.holders:
            self._watch(gate)

    def next_turn(self, gate: bytes, now: float) -> float:
        """Instant at which a host that finds no room to wait may come back to *gate*, one a second."""
        instant = max(self._turns.get(gate, 0.0), self._opens_at.get(gate, 0.0), now) + _TURN
        if len(self._turns) > _SWEEP:
            self._turns = {gate: each for gate, each in self._turns.items() if each > now}
        self._turns[gate] = instant
        return instant

    def look_again(self, host: HostState) -> None:
        """*host*, which was let in, is not leased: others may take its place."""
        for gate in self.of(host):
            self._watch(gate)

    def _watch(self, gate: bytes) -> None:
        """Have *gate* looked at when it may open, if a host waits at it."""
        if not self.waiting.get(gate):
            self.waiting.pop(gate, None)
            return
        instant = self._opens_at.get(gate, 0.0)
        if instant != self._looks.value(gate):
            self._looks.push(gate, instant)

    def opened(self, now: float) -> list[bytes]:
        """Gates at which a host may be let in now."""
        found: list[bytes] = []
        looks = self._looks
        if not (self.waiting or looks):
            return found
        while (entry := looks.first()) is not None and entry[0] <= now:
            gate = entry[2]
            looks.void(gate)
            if self._is_open(gate, now):
                found.append(gate)
            elif self._opens_at.get(gate, 0.0) > now:
                self._watch(gate)  # it was deferred meanwhile
        if self.free is not None:
            waited_at = [number for number in range(1, N_CLASSES) if self.waiting.get(_SLOW[number])]
            found += [_SLOW[number] for number in waited_at if self.free.has_room(number, now)]
        if self.waiting.get(_LOOK_UP) and self._look_ups < _MAX_LOOK_UPS:
            found.append(_LOOK_UP)
        return found

    def best_up_to(self, instant: float) -> Iterator[bytes]:
        """The best host of each gate that is looked at by *instant*."""
        for _, _, gate in self._looks.up_to(instant):
            heap = self.waiting.get(gate)
            if heap is not None and (entry := heap.first()) is not None:
                yield entry[2]

    def when(self) -> float:
        """Instant at which a gate opens, unless a lease or a look-up must end first; infinite if none does."""
        entry = self._looks.first()
        return entry[0] if entry is not None else inf

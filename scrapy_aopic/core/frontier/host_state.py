"""The state of a host in memory, and the phases that a host goes through.

A host with queued pages is in exactly one place, and its *phase* names it:

========  ==========================================================================  =====================  =========
phase     the host                                                                    entry in               index row
========  ==========================================================================  =====================  =========
IDLE      has nothing queued                                                          --                     none
DRY       has all of its queued pages in flight, or a transfer under way and no page  --                     active
READY     may be requested and is in time                                             the ready hosts        active
LATE      may be requested, but it or its domain is over a budget                     its shelf's hosts      active
WAITING   must be left alone until a time                                             the waiting hosts      active
GATED     waits at a gate that it shares with other hosts                             that gate's hosts      active
LOCATING  waits until the caller has looked up its address                            --                     active
LEASED    is requested right now, for as many pages as it may be at once              --                     active
SHELVED   is on the disk under its rank: there are better hosts for the memory        --                     shelved
PARKED    is on the disk under the time until which it must be left alone             --                     parked
DEAD      the same, but it failed so often that the crawl does not wait for it        --                     dead
MOVING    is between two places, which it is only inside of a call to the frontier    --                     either
========  ==========================================================================  =====================  =========

Rules:

1. A host leaves its place before it gets another one: it is MOVING in between, unless it is requested right away. So
   there is one way out of each phase and one way into it, and nothing is forgotten on the way from any to any other.
2. Only the caller ends LEASED and LOCATING (IS_RELEASED, IS_LOCATED). Anything else that happens to such a host, such as
   new pages or a longer gap, takes effect then.
3. Only a host that is READY or LATE can be LEASED. The caller makes one request for it. A host with one connection, as
   nearly all have, then stays LEASED until that is over, so it is never requested twice at once; one with several gets
   another place at once, as if it had been released, until all of them are taken.
4. A host with pages in flight, or transfers under way, stays in memory: it may be anything but IDLE, SHELVED, PARKED or
   DEAD.
5. A LEASED or DRY host that has nothing queued any more has no index row until pages come.

:data:`TRANSITIONS` says the same; :func:`go` lets nothing else happen.

What is known of a host is changed by one file for each field, see ``tests/test_architecture.py``; whoever calls these files
puts the host back into its table.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import Any

from scrapy_aopic.core import layout
from scrapy_aopic.core.records import HostRecord, pack_host, reader_of
from scrapy_aopic.exceptions import SALVAGE, CallError, StorageError

from .heap import LazyHeap  # noqa: TC001  msgspec looks it up when it makes the decoder


class Phase(IntEnum):
    """Where a host is."""

    IDLE = 0
    MOVING = 1
    DRY = 2
    READY = 3
    LATE = 4
    WAITING = 5
    GATED = 6
    LOCATING = 7
    LEASED = 8
    SHELVED = 9
    PARKED = 10
    DEAD = 11


# A look into an enum takes five times as long.
IDLE, MOVING, DRY, READY, LATE, WAITING, GATED, LOCATING, LEASED, SHELVED, PARKED, DEAD = map(int, Phase)


class Event(IntEnum):
    """What happens to a host."""

    LEAVES = 0
    """What put it into its place may have changed."""
    IS_LEASED = 1
    IS_RELEASED = 2
    IS_SOUGHT = 3
    """Its address is being looked up."""
    IS_LOCATED = 4
    HAS_NOTHING = 5
    """No page of it is queued."""
    HAS_ALL_IN_FLIGHT = 6
    IS_TOO_SOON = 7
    MEETS_A_GATE = 8
    IS_OVER_BUDGET = 9
    IS_DUE = 10
    IS_SHELVED = 11
    IS_PARKED = 12
    IS_BURIED = 13
    HAS_NO_CONNECTION = 14
    """It is requested as often at once as it may be."""


(
    LEAVES, IS_LEASED, IS_RELEASED, IS_SOUGHT, IS_LOCATED, HAS_NOTHING, HAS_ALL_IN_FLIGHT, IS_TOO_SOON, MEETS_A_GATE,
    IS_OVER_BUDGET, IS_DUE, IS_SHELVED, IS_PARKED, IS_BURIED, HAS_NO_CONNECTION,
) = map(int, Event)  # fmt: skip

_LEFT_AT_ANY_TIME = (IDLE, DRY, READY, LATE, WAITING, GATED, SHELVED, PARKED, DEAD)

TRANSITIONS: dict[tuple[int, int], int] = {
    **{(phase, LEAVES): MOVING for phase in _LEFT_AT_ANY_TIME},
    (READY, IS_LEASED): LEASED,
    (LATE, IS_LEASED): LEASED,
    (LEASED, IS_RELEASED): MOVING,
    (READY, IS_SOUGHT): LOCATING,
    (LATE, IS_SOUGHT): LOCATING,
    (LOCATING, IS_LOCATED): MOVING,
    (MOVING, HAS_NOTHING): IDLE,
    (MOVING, HAS_ALL_IN_FLIGHT): DRY,
    (MOVING, IS_TOO_SOON): WAITING,
    (MOVING, MEETS_A_GATE): GATED,
    (MOVING, IS_OVER_BUDGET): LATE,
    (MOVING, IS_DUE): READY,
    (MOVING, IS_SHELVED): SHELVED,
    (MOVING, IS_PARKED): PARKED,
    (MOVING, IS_BURIED): DEAD,
    (MOVING, HAS_NO_CONNECTION): LEASED,
}
"""The phase after an event, by the phase before and the event; what is not here cannot happen."""

_NEXT = [[TRANSITIONS.get((phase, event), -1) for phase in map(int, Phase)] for event in Event]

ROWS: dict[int, bytes] = {SHELVED: layout.SHELVED, PARKED: layout.PARKED, DEAD: layout.DEAD}
"""First byte of the index row of a host that is on the disk, by its phase."""

_AS_READ = {b"": IDLE, layout.ACTIVE: MOVING, **{letter: phase for phase, letter in ROWS.items()}}
"""Phase of a host that was just read, by the first byte of its index row."""


class HostState(HostRecord):
    """A host in memory: its record, and the state that no other process needs.

    Attributes:
        phase: Where it is (:class:`Phase`).
        back_queue: Best queue rows, best first, each with its page after it; ``None`` if they are not loaded.
        is_whole: Whether these are all rows that can be taken.
        in_flight: Front queues of the pages that were taken and not yet ended, by page.
        at_once: Transfers that may be under way at once, as of the end of the last one: one until it has answered.
        transfers: Instants of the leases that were not yet released, oldest first, by page.
        heap: The heap that its entry is in, ``None`` if it has no entry.
        rank: Rank that it was last given a place by.
        domain: Key of its registered domain, empty if it was not looked up.
        is_located: Whether this process has looked up its address.
        gates: Keys of the gates that it shares with other hosts, ``None`` if they were not looked up.
        entered: Those of its gates that its lease keeps shut.
        tried: Pages that were put back because they failed, and wait behind the others.
        looked_up_to: Last queue row that was looked at for its back queue, if origins of it are silent.
        passed_over: Those origins for which rows were left out.
        heard_at: Instant at which the first of them may be requested again.
        rests_until: Instant before which it is left alone by whatever way requests go to it.
    """

    phase: int = IDLE
    back_queue: list[bytes] | None = None
    is_whole: bool = False
    in_flight: dict[bytes, int] = {}  # noqa: RUF012  # msgspec gives each host one of its own
    at_once: int = 1
    transfers: dict[bytes, float] = {}  # noqa: RUF012
    heap: LazyHeap[Any] | None = None  # of ranks or of times
    rank: bytes = b""
    domain: bytes = b""
    is_located: bool = False
    gates: tuple[bytes, ...] | None = None
    entered: tuple[bytes, ...] = ()
    tried: set[bytes] = set()  # noqa: RUF012
    looked_up_to: bytes = b""
    passed_over: tuple[str, ...] = ()
    heard_at: float = inf
    rests_until: float = 0.0

    @property
    def is_full(self) -> bool:
        """Whether as many transfers are under way as may be."""
        return len(self.transfers) >= self.at_once

    @property
    def is_busy(self) -> bool:
        """Whether it must stay in memory."""
        return bool(self.in_flight or self.transfers)


def go(host: HostState, event: int) -> None:
    """Let *event* happen to *host*.

    Raises:
        CallError: If it cannot happen in the host's phase.
    """
    phase = _NEXT[event][host.phase]
    if phase < 0:
        raise CallError(
            f"{Event(event).name} cannot happen to the host {host.name!r}, as it is {Phase(host.phase).name}. After each "
            "page taken its host is released once, and the page finished or put back once, in either order."
        )
    host.phase = phase


def leave_alone(host: HostState, not_before: float) -> None:
    """Leave *host* alone until *not_before*, if not longer."""
    host.not_before = max(host.not_before, not_before)


def wake(host: HostState, not_before: float) -> None:
    """Leave *host* alone until *not_before*, and not longer."""
    host.not_before = min(host.not_before, not_before)


_decode = reader_of(HostState)


def pack_state(host: HostState) -> bytes:
    """Bytes of the record of *host*, whose pages in flight can be taken again."""
    levels = host.in_flight.values()
    return pack_host(
        host, max(levels if host.best is None else (host.best, *levels)) if levels else host.best
    )


def unpack_state(data: bytes) -> HostState:
    """The host whose record was written as *data*."""
    host = _decode(data)
    phase = _AS_READ.get(host.row[:1])
    if phase is None:
        raise StorageError(
            f"The record of the host {host.name!r} says that it waits at {host.row!r}, and there is no such place: "
            f"the job is damaged. {SALVAGE}"
        )
    host.phase = phase
    return host

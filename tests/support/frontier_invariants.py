"""Checks the invariants of a frontier between two calls, over all that it holds in memory.

:mod:`scrapy_aopic.core.audit` checks a store; this checks what is only in memory, and that it agrees with the index.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from scrapy_aopic.core import layout
from scrapy_aopic.core.frontier.host_places import LAST
from scrapy_aopic.core.frontier.host_state import (
    DEAD,
    DRY,
    GATED,
    LATE,
    LEASED,
    LOCATING,
    PARKED,
    READY,
    ROWS,
    WAITING,
    HostState,
    Phase,
)
from scrapy_aopic.core.frontier.shelves import index_bucket
from scrapy_aopic.core.layout import ACTIVE, IN_TIME, SHELVED
from scrapy_aopic.core.records import HOST_BYTES, ROW_PAGE_BYTES, front_queue_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_aopic.core.frontier.frontier import Frontier
    from scrapy_aopic.core.frontier.heap import LazyHeap

_IN_MEMORY = (DRY, READY, LATE, WAITING, GATED, LOCATING, LEASED)


def check(frontier: Frontier) -> list[str]:
    """The violations of *frontier*, in sentences; O(everything that is queued)."""
    return [
        *_wrong_hosts(frontier),
        *_wrong_heaps(frontier),
        *_forgotten_shelves(frontier),
        *_wrong_gates(frontier),
        *_wrong_rows(frontier),
        *_wrong_counts_of_blocked(frontier),
    ]


def _wrong_hosts(frontier: Frontier) -> Iterator[str]:
    in_flight = 0
    for host in frontier.active.values():
        in_flight += len(host.in_flight)
        name = f"{host.name} is {Phase(host.phase).name}"
        free = host.queued - len(host.in_flight)
        if host.phase not in _IN_MEMORY:
            yield f"{name}, and in memory"
        if host.row != (ACTIVE if host.queued else b""):
            yield f"{name}, has {host.queued} pages queued and the index row {host.row!r}"
        if host.phase == LEASED and not host.transfers:
            yield f"{name}, and nothing is under way"
        if host.phase != LEASED and (free > 0) != (host.phase != DRY):
            yield f"{name} with {free} pages that can be taken"
        yield from (f"{name}: {fault}" for fault in _wrong_back_queue(host, free))
    if frontier.pending != frontier.queued - in_flight:
        yield f"{frontier.queued} pages are queued, {in_flight} in flight, and {frontier.pending} said to wait"


def _wrong_back_queue(host: HostState, free: int) -> Iterator[str]:
    queue = host.back_queue
    if queue is None:
        return
    if any(first >= second for first, second in pairwise(queue)):
        yield "its back queue is out of order"
    if any(row[-ROW_PAGE_BYTES:] in host.in_flight for row in queue):
        yield "its back queue holds a page in flight"
    if len(queue) > free or (host.is_whole and len(queue) < free and not host.silent):
        yield f"its back queue holds {len(queue)} of {free} pages, and is {'' if host.is_whole else 'not '}whole"
    if queue and (host.best is None or host.best < front_queue_of(queue[0])):
        yield f"its best page is in front queue {front_queue_of(queue[0])}, not {host.best}"


def _heaps(frontier: Frontier) -> dict[int, list[LazyHeap[bytes] | LazyHeap[float]]]:
    """The heaps that may hold a host, by its phase."""
    places = frontier.places
    return {
        READY: [places.ready],
        WAITING: [places.waiting],
        LATE: [*places.late.in_memory.values()],
        GATED: [*frontier.gates.waiting.values()],
    }


def _wrong_heaps(frontier: Frontier) -> Iterator[str]:
    heaps = _heaps(frontier)
    for host in frontier.active.values():
        if not any(host.heap is each for each in heaps.get(host.phase, [None])):
            yield f"{host.name} is {Phase(host.phase).name}, and its entry is elsewhere"
    for phase, heap in ((phase, heap) for phase, those in heaps.items() for heap in those):
        for value, _, key in heap.entries():
            of = frontier.active.get(key)
            if of is None or of.phase != phase or of.heap is not heap:
                yield f"the host {key.hex()} has an entry among those that are {Phase(phase).name}"
            elif phase != WAITING and value not in (of.rank, LAST + of.rank):
                yield f"{of.name} has the rank {of.rank!r}, and its entry {value!r}"


def _forgotten_shelves(frontier: Frontier) -> Iterator[str]:
    late = frontier.places.late
    on_disk = {bucket for bucket in frontier.places.shelves.counts if bucket[:2] != IN_TIME}
    for shelf in on_disk | {shelf for shelf, heap in late.in_memory.items() if heap}:
        if not (shelf in late._by_due and shelf in late._by_standing):
            yield f"no look is due at the late hosts of {shelf!r}"


def _wrong_gates(frontier: Frontier) -> Iterator[str]:
    leased = {key for key, host in frontier.active.items() if host.transfers}
    for gate, key in frontier.gates.holders.items():
        if key not in leased or gate not in frontier.active[key].entered:
            yield f"the host {key.hex()} keeps the gate {gate!r} shut and is not leased"
    free = frontier.gates.free
    under_way = {page for host in frontier.active.values() for page in host.transfers}
    if free is not None and free.under_way.keys() != under_way:
        yield f"{len(under_way)} transfers are under way, and {len(free.under_way)} hold connections"


def _wrong_rows(frontier: Frontier) -> Iterator[str]:
    buckets = [ACTIVE, layout.PARKED, layout.DEAD, *frontier.places.shelves.counts]
    rows = [row for bucket in buckets for row, _ in frontier.index.first(bucket, 1 << 60)[0]]
    hosts = Counter(row[-HOST_BYTES:] for row in rows)
    yield from (f"the host {key.hex()} has {n} index rows" for key, n in hosts.items() if n > 1)
    queued = sum(host.queued for key, host in frontier.active.items() if not host.row)
    dead_pages = 0
    for row in rows:
        key = row[-HOST_BYTES:]
        host = frontier.host(key)
        letter = row[:1]
        if host is None or host.row + key != row or not host.queued:
            yield f"the index row {row!r} is not that of its host"
            continue
        queued += host.queued
        dead_pages += host.queued if host.phase == DEAD else 0
        if (key in frontier.active) != (letter == ACTIVE) or ROWS.get(host.phase, ACTIVE) != letter:
            yield f"{host.name} is {Phase(host.phase).name}, and its index row {row!r}"
    if queued != frontier.queued:
        yield f"the hosts have {queued} pages queued, and the frontier {frontier.queued}"
    shelved = Counter(index_bucket(row) for row in rows if row[:1] == SHELVED)
    counted = Counter(row[:1] for row in rows)
    said = (frontier.places.parked.n, frontier.places.dead.n, frontier.places.dead_pages)
    found = (counted[layout.PARKED], counted[layout.DEAD], dead_pages)
    if dict(shelved) != frontier.places.shelves.counts or said != found:
        yield f"{said} hosts are said to be parked and dead, not {found}; on shelves {frontier.places.shelves.counts}, not {shelved}"


def _wrong_counts_of_blocked(frontier: Frontier) -> Iterator[str]:
    blocked = frontier.places.blocked
    found = sum(aside.pages for aside in blocked.values())
    if frontier.places.blocked_pages != found:
        yield f"{frontier.places.blocked_pages} pages are said to be blocked, and {found} are"
    for key, (n, _) in blocked.items():
        host = frontier.host(key)
        if host is None or host.phase not in (WAITING, PARKED) or n != host.queued - len(host.in_flight):
            yield f"the host {key.hex()} is said to be blocked with {n} pages"

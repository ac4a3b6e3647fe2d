"""What a crawl of a given speed and size takes: workers, cores, memory, disks, network, and what the server has to do.

All of it is arithmetic with constants that were measured, each with its command. What was measured was small: two cores, pages of 22
links and a few kilobytes, a spider that only follows links. A plan for thousands of pages a second is extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from scrapy_aopic.storage.address import MAX_SHARDS


class Costs(NamedTuple):
    """What a page, and a URL, cost, by where the shards are.

    Attributes:
        worker_ms: Milliseconds of CPU of a worker a page.
        server_us: Microseconds of CPU of the server a page.
        server_kb: Kilobytes to and from the server a page.
        server_url: Bytes of the server's memory a URL.
        disk_url: Bytes of the workers' disks a URL.
        worker_mb: Megabytes of a worker, beside the caches.
        looks: Looks of a worker at all shards a second (:mod:`scrapy_aopic.place.shard_places`, :mod:`scrapy_aopic.job.disks`).
    """

    worker_ms: float
    server_us: float
    server_kb: float
    server_url: float
    disk_url: float
    worker_mb: int
    looks: int


ON_SERVER = Costs(
    worker_ms=3.62, server_us=98, server_kb=3.3, server_url=169, disk_url=0, worker_mb=140, looks=5
)
"""``python benchmarks/capacity.py``; bytes a URL: ``python benchmarks/bench redis``."""

ON_DISKS = Costs(
    worker_ms=3.43, server_us=8, server_kb=0.4, server_url=0, disk_url=60.7, worker_mb=150, looks=2
)
"""``python benchmarks/capacity.py``; bytes a URL: ``make bench PARTS=memory``."""


class TopicCosts(NamedTuple):
    """What a topic adds to :class:`Costs`, in the same units.

    Attributes:
        url: Bytes a URL, wherever its shard is.
    """

    worker_ms: float
    server_us: float
    server_kb: float
    url: float
    worker_mb: int


TOPIC_ON_SERVER = {
    "graded": TopicCosts(0.46, 43, 1.4, 0, 7),
    "focused": TopicCosts(0.89, 24, 1.5, 0, 6),
    "contextual": TopicCosts(2.08, 65, 9.1, 226, 20),
}
"""By the strategy, or ``graded`` for another order: ``python benchmarks/capacity.py --topic graded focused contextual``; bytes a URL:
``python benchmarks/focused_memory.py``, where three of four URLs wait: of the server the rows, of disks what the folder is larger."""

TOPIC_ON_DISKS = {
    "graded": TopicCosts(0.30, 7, 0.1, 0, 6),
    "focused": TopicCosts(0.59, 8, 0.1, 0, 6),
    "contextual": TopicCosts(1.67, 22, 2.8, 251, 20),
}
"""The same."""

LOAD = 0.7
"""Part of a core that is planned with: what is left is for hours in which more is to be done."""

CACHES_MB = 512
"""``AOPIC_MEMORY_MB`` of a worker: several times its default."""

SHARDS_A_WORKER = (4, 3, 2)
"""Shards for each worker: several, so that one more, or one less, can be shared out; fewer if looks at all of them take too much."""

PAIR_BYTES = 26
"""Bytes of a look for each pair of shards: how many letters one has sent to the other, and applied of it; as JSON, with shards of
three digits and letters of six."""

SPARE = 2.0
"""Times of a job that a disk needs, for RocksDB writes a level anew beside the old one; and the memory of a server that rewrites
its log, at the most."""

GIGABIT = 125e6
"""Bytes a second: what a server is planned to send and receive."""

FACTOR = 10
"""Default of ``AOPIC_POLITENESS_FACTOR``: a host is left alone for so many times of the transfer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A crawl.

    Attributes:
        rate: Pages a second.
        urls: URLs that it will know.
        transfer: Seconds of a transfer.
        page_kb: Kilobytes of a page, as transferred.
        page_ms: Milliseconds of CPU that the spider takes for a page beyond following its links.
    """

    rate: float
    urls: float
    transfer: float = 0.3
    page_kb: float = 30.0
    page_ms: float = 0.0


@dataclass(slots=True)
class Plan:
    """What a crawl takes; memory and disks in bytes, network in bytes a second.

    Attributes:
        workers: Processes, of a core each.
        shards: What ``AOPIC_SHARDS`` should be.
        worker_memory, worker_disk: Of each.
        worker_connections: Transfers that each has under way.
        worker_network: Of each, from the web.
        server_cores: Of the server, which uses one for all commands.
        server_memory, server_network: Of the server.
        hosts: That must have pages at any time.
        limits: Why it cannot be done this way, a sentence each.
    """

    workers: int
    shards: int
    worker_memory: float
    worker_disk: float
    worker_connections: int
    worker_network: float
    server_cores: float
    server_memory: float
    server_network: float
    hosts: int
    limits: list[str] = field(default_factory=list)


def for_topic(costs: Costs, added: TopicCosts) -> Costs:
    """*costs* of a crawl for a topic, which has *added* to them."""
    return costs._replace(
        worker_ms=costs.worker_ms + added.worker_ms,
        server_us=costs.server_us + added.server_us,
        server_kb=costs.server_kb + added.server_kb,
        server_url=costs.server_url and costs.server_url + added.url,
        disk_url=costs.disk_url and costs.disk_url + added.url,
        worker_mb=costs.worker_mb + added.worker_mb,
    )


def plan(wanted: Wanted, costs: Costs, *, largest: float) -> Plan:
    """What the crawl *wanted* takes where a page and a URL have these *costs*.

    Args:
        largest: Bytes of memory of the largest server that there is.
    """
    seconds = (costs.worker_ms + wanted.page_ms) / 1000
    workers = max(ceil(wanted.rate * seconds / LOAD), 1)
    each = wanted.rate / workers
    # The server has little but letters where shards are on disks, and these were measured with two workers: half of the
    # letters stay with the worker that writes them.
    crossing = max(2 - 2 / workers, 1.0) if costs.disk_url else 1.0
    for n in SHARDS_A_WORKER:
        shards = min(max(n * workers, 2), MAX_SHARDS)
        network = (
            wanted.rate * costs.server_kb * 1000 * crossing
            + workers * costs.looks * shards * shards * PAIR_BYTES
        )
        if network <= GIGABIT:
            break
    found = Plan(
        workers=workers,
        shards=shards,
        worker_memory=(costs.worker_mb + CACHES_MB) * 1e6,
        worker_disk=wanted.urls * costs.disk_url * SPARE / workers,
        worker_connections=ceil(each * wanted.transfer),
        worker_network=each * wanted.page_kb * 1000,
        server_cores=wanted.rate * costs.server_us * crossing / 1e6,
        server_memory=max(wanted.urls * costs.server_url * SPARE, 256e6),
        server_network=network,
        hosts=ceil(wanted.rate * wanted.transfer * (1 + FACTOR)),
    )
    if workers > MAX_SHARDS:
        found.limits.append(f"a job has {MAX_SHARDS} shards at most, and so many workers")
    if found.server_cores > LOAD:
        most = LOAD / (costs.server_us * crossing) * 1e6
        found.limits.append(f"one core of a server is enough for {most:,.0f} pages a second")
    if found.server_memory > largest:
        most = largest / costs.server_url / SPARE
        found.limits.append(
            f"a server with {largest / 1e9:,.0f} GB is enough for {most / 1e6:,.0f} million URLs"
        )
    if found.server_network > GIGABIT:
        found.limits.append("the server needs more than a gigabit a second")
    return found


def format_plans(wanted: Wanted, plans: dict[str, Plan]) -> str:
    """A table of *plans*, by where the shards are."""
    rows: list[tuple[str, list[str]]] = [
        ("workers, of a core each", [f"{each.workers:,}" for each in plans.values()]),
        ("AOPIC_SHARDS", [f"{each.shards:,}" for each in plans.values()]),
        ("memory of a worker", [_size(each.worker_memory) for each in plans.values()]),
        ("disk of a worker", [_size(each.worker_disk) for each in plans.values()]),
        ("transfers of a worker at once", [f"{each.worker_connections:,}" for each in plans.values()]),
        ("web to a worker, a second", [_size(each.worker_network) for each in plans.values()]),
        ("cores of the server", [f"{each.server_cores:.2f}" for each in plans.values()]),
        ("memory of the server", [_size(each.server_memory) for each in plans.values()]),
        ("to and from the server, a second", [_size(each.server_network) for each in plans.values()]),
        ("hosts that have pages, at any time", [f"{each.hosts:,}" for each in plans.values()]),
    ]
    head = f"{wanted.rate:,.0f} pages a second, {wanted.urls:,.0f} URLs"
    width = max(len(head), *(len(name) for name, _ in rows))
    lines = [f"{head:<{width}}  " + "  ".join(f"{name:>16}" for name in plans)]
    lines += [f"{name:<{width}}  " + "  ".join(f"{value:>16}" for value in values) for name, values in rows]
    for name, each in plans.items():
        lines += [f"{name}: not this way: {limit}" for limit in each.limits]
    return "\n".join(lines)


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 999.5:
            return f"{n:.0f} {unit}" if n >= 10 or not n else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"

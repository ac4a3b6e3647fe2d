"""Queue: one pop and one push a request, as hosts become many."""

from __future__ import annotations

import tempfile
from typing import Any

from measure import Runner, cpu, descriptors, live_by_cpu_time
from stage import OURS, STOCK, Stage
from world import fingerprint, host_name, page_url

from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.requests import encode

_POPS = {100: 5000, 1000: 5000, 10_000: 3000, 100_000: 3000, 1_000_000: 3000}
_STOCK_POPS = {100: 5000, 1000: 3000, 10_000: 400, 100_000: 60}


def ours(hosts: int, each: int, is_durable: bool) -> dict[str, Any]:
    """Microseconds a pop and a push, of what Scrapy needs of them, and open files."""
    live_by_cpu_time()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage({**OURS, **({"JOBDIR": folder} if is_durable else {"AOPIC_STORE": "memory"})})
        crawl = stage.scheduler.job.crawl
        now = stage.scheduler.job.clock()
        for page in range(each):
            for host in range(hosts):
                url = page_url(host, page)
                key = page_key(host_key(host_name(host)), fingerprint(url))
                crawl.seed(Link(key, host_name(host), encode(stage.request(url), stage.spider)), now)
                stage.scheduler.job.tick()
        return _turn(stage, hosts, each, _POPS[hosts])


def stock(hosts: int, each: int, is_durable: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage({**STOCK, **({"JOBDIR": folder} if is_durable else {})})
        for page in range(each):
            for host in range(hosts):
                stage.scheduler.enqueue_request(stage.request(page_url(host, page)))
        return _turn(stage, hosts, each, _STOCK_POPS[hosts])


def _turn(stage: Stage, hosts: int, each: int, pops: int) -> dict[str, Any]:
    number = each
    for n in (pops // 5, pops):  # the first round fills caches
        links = [stage.request(page_url(host % hosts, number + host // hosts)) for host in range(n)]
        number += n // hosts + 1
        with cpu(n) as found:
            for request in links:
                popped = stage.pop()
                stage.link(popped)(request)
                stage.done(popped)
    opened = descriptors()
    stage.scheduler.close("finished")
    return {**found, "descriptors": opened}


def part(run: Runner) -> None:
    """Pop and push beside Scrapy's scheduler, in memory and on disk."""
    first = 0.0
    for hosts, wanted in ((100, 1), (10_000, 20), (100_000, 1000)):
        arguments = {"hosts": hosts, "each": max(10_000 // hosts, 1), "is_durable": False}
        mine, other = run.by_turns(("queues:ours", arguments), ("queues:stock", arguments))
        first = first or mine["us"]
        run.add("queue", f"pop + push in memory, {hosts:,} hosts", "us CPU", mine["us"], peer=other["us"], wanted=wanted, more=True)  # fmt: skip
    mine = run.by_turns(("queues:ours", {"hosts": 1_000_000, "each": 1, "is_durable": False}), repeats=1)[0]
    run.add("queue", "pop + push, 1,000,000 hosts to 100 hosts", "us CPU", mine["us"], peer=first, wanted=1.5)
    arguments = {"hosts": 1000, "each": 10, "is_durable": True}
    mine, other = run.by_turns(("queues:ours", arguments), ("queues:stock", arguments))
    run.add("queue", "pop + push on disk, 1,000 hosts", "us CPU", mine["us"], peer=other["us"], wanted=3, more=True)  # fmt: skip
    run.add("queue", "open files, 1,000 hosts", "files", mine["descriptors"], wanted=64)
    run.note(f"Scrapy's disk queues had {other['descriptors']:.0f} files open at 1,000 hosts.")

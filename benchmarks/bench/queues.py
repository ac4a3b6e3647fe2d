"""Queue: one pop and one push a request, as hosts become many."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from measure import Runner, cpu, descriptors, live_by_cpu_time
from peers import redis, without_redis
from stage import OURS, STOCK, Stage
from world import fingerprint, host_name, page_url

from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.web.request_codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable


_POPS = {100: 5000, 1000: 5000, 10_000: 3000, 100_000: 3000, 1_000_000: 3000}
_STOCK_POPS = {100: 5000, 1000: 3000, 10_000: 400, 100_000: 60}


def _pops(of: dict[int, int], hosts: int) -> int:
    return of.get(hosts, hosts)  # which none of the table has


def ours(hosts: int, each: int, is_durable: bool) -> dict[str, Any]:
    """Microseconds a pop and a push, of what Scrapy needs of them, and open files."""
    live_by_cpu_time()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage({**OURS, **({"JOBDIR": folder} if is_durable else {"AOPIC_STORE": "memory"})})
        assert stage.session is not None
        job = stage.session.job
        now = job.clock()
        for page in range(each):
            for host in range(hosts):
                url = page_url(host, page)
                key = page_key(host_key(host_name(host)), fingerprint(url))
                job.crawl.seed(Link(key, host_name(host), encode(stage.request(url), stage.spider)), now)
                job.tick()
        return _turn(stage, hosts, each, _pops(_POPS, hosts))


def stock(hosts: int, each: int, is_durable: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage({**STOCK, **({"JOBDIR": folder} if is_durable else {})})
        for page in range(each):
            for host in range(hosts):
                stage.scheduler.enqueue_request(stage.request(page_url(host, page)))
        return _turn(stage, hosts, each, _pops(_STOCK_POPS, hosts))


def scrapy_redis(hosts: int, each: int) -> dict[str, Any]:
    """scrapy-redis' scheduler with its defaults: the CPU time of its server is counted, which writes nothing."""
    with redis() as (settings, seconds):
        stage = Stage(settings)
        for page in range(each):
            for host in range(hosts):
                stage.scheduler.enqueue_request(stage.request(page_url(host, page)))
        return _turn(stage, hosts, each, _pops(_POPS, hosts), seconds)


def _turn(
    stage: Stage, hosts: int, each: int, pops: int, others: Callable[[], float] = lambda: 0.0
) -> dict[str, Any]:
    """*others* tells the CPU seconds of the other processes that have a part in it."""
    number = each
    for n in (pops // 5, pops):  # the first round fills caches
        links = [stage.request(page_url(host % hosts, number + host // hosts)) for host in range(n)]
        number += n // hosts + 1
        began = others()
        with cpu(n) as found:
            for request in links:
                popped = stage.pop()
                stage.link(popped)(request)
                stage.done(popped)
        found["us"] += (others() - began) / n * 1e6
    opened = descriptors()
    stage.scheduler.close("finished")
    return {**found, "descriptors": opened}


def part(run: Runner) -> None:
    """Pop and push beside Scrapy's scheduler and scrapy-redis', in memory and on disk."""
    reason = without_redis()
    if reason:
        run.note(reason)
    for hosts in (100, 10_000, 100_000):
        shared = {"hosts": hosts, "each": max(10_000 // hosts, 1)}
        arguments = {**shared, "is_durable": False}
        tasks = [("queues:ours", arguments), ("queues:stock", arguments)]
        mine, other, *others = run.by_turns(*tasks, *_redis(reason, shared))
        run.add("queue", f"schedulers in memory, {hosts:,} hosts", "us CPU", mine["us"], peer=other["us"], more=True)  # fmt: skip
        for other in others:
            run.add("queue", f"schedulers in memory, to scrapy-redis and its server, {hosts:,} hosts", "us CPU", mine["us"], peer=other["us"], more=True)  # fmt: skip
    shared = {"hosts": 1000, "each": 10}
    arguments = {**shared, "is_durable": True}
    tasks = [("queues:ours", arguments), ("queues:stock", arguments)]
    mine, other, *others = run.by_turns(*tasks, *_redis(reason, shared))
    run.add("queue", "schedulers on disk, 1,000 hosts", "us CPU", mine["us"], peer=other["us"], more=True)  # fmt: skip
    for in_redis in others:
        run.add("queue", "schedulers on disk, to scrapy-redis and its server in memory, 1,000 hosts", "us CPU", mine["us"], peer=in_redis["us"], more=True)  # fmt: skip
    run.add("queue", "open files, 1,000 hosts", "files", mine["descriptors"], wanted=64)
    run.note(f"At 1,000 hosts {other['descriptors']:.0f} files were open with Scrapy's disk queues.")


def _redis(reason: str, arguments: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [] if reason else [("queues:scrapy_redis", arguments)]

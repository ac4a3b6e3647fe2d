"""Queue: one pop and one push a request, as hosts become many."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Runner, cpu, descriptors, live_by_cpu_time
from peers import redis, without_redis
from scrapy.pqueues import DownloaderAwarePriorityQueue
from stage import OURS, STOCK, Stage
from world import BEGIN, fingerprint, host_name, page_url, policy

from scrapy_aopic.core.domains import Domains
from scrapy_aopic.core.frontier.frontier import Frontier, Taken
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.core.tables import BlobTable, Commits
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.storage.rocksdb import RocksStore
from scrapy_aopic.web.request_codec import decode, encode
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_aopic.core.ports import Store

_LEVEL, _COMMIT = 20, 2000

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


class Alone:
    """The frontier by itself, requests in and out, on *store*; a commit for every two thousand."""

    def __init__(self, stage: Stage, hosts: int, store: Store, *, is_durable: bool) -> None:
        self._spider = stage.spider
        self._store = store
        self._is_durable = is_durable
        self._domains = Domains(store, registered_domain)
        self._frontier = Frontier(store, Aopic(), self._domains, politeness=policy().politeness)
        self._written = BlobTable(store, Family.REQUESTS)
        self._commits = Commits([*self._frontier.tables, self._domains.table, self._written])
        self._live: dict[bytes, Request] = {}
        self._number = 0
        self._numbers: dict[bytes, int] = {}
        self._hosts = [(host_key(host_name(host)), host_name(host)) for host in range(hosts)]

    def push(self, host: int, request: Request) -> None:
        self._number += 1
        host_of, name = self._hosts[host]
        key = page_key(host_of, request.url.encode())
        if self._is_durable:
            self._written.put(key, encode(request, self._spider))
        else:
            self._live[key] = request
        self._numbers[key] = self._number
        self._frontier.insert(key, name, _LEVEL, self._number, BEGIN)
        if self._number % _COMMIT == 0:
            self._store.write(self._commits.take({}), sync=True)
            self._commits.landed()

    def pop(self) -> Request:
        taken = self._frontier.take(BEGIN)
        assert isinstance(taken, Taken)
        self._frontier.release(taken.host, BEGIN)
        self._frontier.count(self._frontier.active[taken.host])
        self._frontier.finish(taken.page, _LEVEL, self._numbers.pop(taken.page))
        if self._is_durable:
            return decode(self._written.get(taken.page) or b"", self._spider)
        return self._live.pop(taken.page)


def frontier(hosts: int, each: int, is_durable: bool = False) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        store = RocksStore(Path(folder)) if is_durable else MemoryStore()
        stage = Stage(STOCK)  # for its requests
        queue = Alone(stage, hosts, store, is_durable=is_durable)
        found = _alone(stage, queue.pop, queue.push, shape=(hosts, each), pops=_pops(_POPS, hosts))
        store.close()
    return found


def downloader_aware(hosts: int, each: int, is_durable: bool = False) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage({**STOCK, **({"JOBDIR": folder} if is_durable else {})})
        queue = stage.scheduler.dqs if is_durable else stage.scheduler.mqs
        assert type(queue) is DownloaderAwarePriorityQueue
        push = lambda _, request: queue.push(request)
        return _alone(stage, queue.pop, push, shape=(hosts, each), pops=_pops(_STOCK_POPS, hosts))


def _alone(
    stage: Stage,
    pop: Callable[[], object],
    push: Callable[[int, Request], object],
    *,
    shape: tuple[int, int],
    pops: int,
) -> dict[str, Any]:
    """Microseconds a pop and a push of a queue with *shape*: so many hosts, and so many requests for each."""
    hosts, number = shape
    for page in range(number):
        for host in range(hosts):
            push(host, stage.request(page_url(host, page)))
    for n in (pops // 5, pops):  # the first round fills caches
        places = [(each % hosts, number + each // hosts) for each in range(n)]
        links = [(host, stage.request(page_url(host, page))) for host, page in places]
        number += n // hosts + 1
        with cpu(n) as found:
            for host, request in links:
                pop()
                push(host, request)
    return found


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
    first = 0.0
    for hosts, wanted in ((100, 1), (1000, None), (10_000, 20), (100_000, 1000)):
        shared = {"hosts": hosts, "each": max(10_000 // hosts, 1)}
        mine, other = run.by_turns(("queues:frontier", shared), ("queues:downloader_aware", shared))
        first = first or mine["us"]
        run.add("queue", f"pop + push, to DownloaderAwarePriorityQueue, {hosts:,} hosts", "us CPU", mine["us"], peer=other["us"], wanted=wanted, more=True)  # fmt: skip
    mine = run.by_turns(("queues:frontier", {"hosts": 1_000_000, "each": 1}))[0]
    run.add("queue", "pop + push, 1,000,000 hosts to 100 hosts", "us CPU", mine["us"], peer=first, wanted=1.5)
    for hosts in (100, 10_000, 100_000):
        shared = {"hosts": hosts, "each": max(10_000 // hosts, 1)}
        arguments = {**shared, "is_durable": False}
        tasks = [("queues:ours", arguments), ("queues:stock", arguments)]
        mine, other, *others = run.by_turns(*tasks, *_redis(reason, shared))
        run.add("queue", f"schedulers in memory, {hosts:,} hosts", "us CPU", mine["us"], peer=other["us"], more=True)  # fmt: skip
        for other in others:
            run.add("queue", f"schedulers in memory, to scrapy-redis and its server, {hosts:,} hosts", "us CPU", mine["us"], peer=other["us"], more=True)  # fmt: skip
    shared = {"hosts": 1000, "each": 10}
    on_disk = {**shared, "is_durable": True}
    mine, other = run.by_turns(("queues:frontier", on_disk), ("queues:downloader_aware", on_disk))
    run.add("queue", "pop + push on disk, to DownloaderAwarePriorityQueue with JOBDIR, 1,000 hosts", "us CPU", mine["us"], peer=other["us"], wanted=3, more=True)  # fmt: skip
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

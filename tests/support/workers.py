"""Processes that crawl one job in shards, and the judgement of what they did."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from demo_web import server_log
from demo_web.server import Running, Server
from demo_web.server_log import Entry

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.web.suffixes import registered_domain

from . import processes, redis_server
from .killed_crawl import FACTOR, N_HOSTS, N_PAGES, SPIDER, TAKEN_UP, answer, command, pages_of
from .proxy import Proxy
from .waiting import wait_until

SHARDS = 8
LOCK_TIMEOUT = 3.0
"""Seconds."""
IN_A_STEP = 1
"""Requests, at most, that a frozen process still sends when it goes on: one for which it had just looked at its lock."""
DEADLINE = 300.0
"""Seconds after which a crawl counts as one that hangs, on however busy a machine; it takes some five."""


def check(url: str, n_shards: int = SHARDS) -> tuple[int, int, list[str]]:
    """Pages visited and queued in all shards, and what does not hold, in one or between them."""
    return check_views(ServerPlace(Address("aopic:follow", url)).open_snapshots(), n_shards)


def check_views(views: Sequence[Store], n_shards: int) -> tuple[int, int, list[str]]:
    """The same of a job whose shards have these *views*, which are closed."""
    with ExitStack() as opened:
        for view in views:
            opened.callback(view.close)
        assert len(views) == n_shards
        each = [audit(view) for view in views]
        violations = [violation for result in each for violation in result.violations]
        violations += audit_shards(views, registered_domain).violations
    return sum(result.visited for result in each), sum(result.queued for result in each), violations


class Workers:
    """Processes that crawl one job, each behind a proxy of its own.

    Attributes:
        all: The processes that were started.
        proxies: Between each of them and the server.
        stopped: Those that may have ended with an error.
        redis: The server.
        stack: What is closed with them.
        web: What is crawled.
    """

    def __init__(
        self,
        folder: Path,
        redis: redis_server.Server,
        web: Running,
        *,
        lock_timeout: float = LOCK_TIMEOUT,
        spider: Path = SPIDER,
        **settings: object,
    ) -> None:
        self._folder = folder
        self._spider = spider
        self._settings: dict[str, object] = {
            "AOPIC_STORE": "redis", "AOPIC_REDIS_LOCK_TIMEOUT": lock_timeout, "AOPIC_DURABILITY": 50,
            "AOPIC_SHARDS": SHARDS, "LOG_LEVEL": "INFO", "JOBDIR": "", **settings,
        }  # fmt: skip
        self.lock_timeout = lock_timeout
        self.redis = redis
        self.web = web
        self.all: list[processes.Process] = []
        self.proxies: list[Proxy] = []
        self.stopped: list[processes.Process] = []
        self.stack = ExitStack()

    def start(self) -> processes.Process:
        """One more."""
        proxy = self.stack.enter_context(Proxy(self.redis.port))
        self.proxies.append(proxy)
        return self.launch(**self._settings, REDIS_URL=proxy.url)

    def launch(self, **settings: object) -> processes.Process:
        """One more with these *settings*."""
        line, environment = command(self._folder, self.web.url, spider=self._spider, **settings)
        with self.log(len(self.all)).open("wb") as log:
            process = processes.start(line, env=environment, cwd=self._folder, stderr=log)
        self.all.append(process)
        return process

    def close(self) -> None:
        """Kill those that still run."""
        for process in self.all:
            process.kill()
            process.wait()
        self.stack.close()

    def proxy_of(self, process: processes.Process) -> Proxy:
        """Between *process* and the server."""
        return self.proxies[self.all.index(process)]

    def log(self, number: int) -> Path:
        """What a worker says."""
        return self._folder / f"log-{number}"

    def said(self) -> str:
        """What all of them have said."""
        return "".join(self.log(number).read_text() for number in range(len(self.all)))

    @property
    def alive(self) -> list[processes.Process]:
        """Those that run."""
        return [process for process in self.all if process.poll() is None]

    @property
    def ended(self) -> list[int | None]:
        """The exit code of each; ``None`` of those that run."""
        return [process.poll() for process in self.all]

    def wait_for(self, n: int) -> None:
        """Wait until *n* requests were answered."""
        deadline = time.monotonic() + DEADLINE
        while len(self.web.log) < n and time.monotonic() < deadline:
            assert self.alive, self.said()
            time.sleep(0.005)

    @property
    def begun(self) -> list[processes.Process]:
        """Those that run and hold shards, or did; before that, a signal may end one before it can handle any."""
        return [
            process
            for number, process in enumerate(self.all)
            if process.poll() is None and "This worker holds" in self.log(number).read_text()
        ]

    def wait_until_said(self, number: int, what: str, *, after: int = 0) -> None:
        """Wait until the worker that was started as this one says *what* after so many characters."""

        def is_said() -> bool:
            if what in self.log(number).read_text()[after:]:
                return True
            assert self.all[number].poll() is None, self.said()
            return False

        wait_until(is_said, DEADLINE, said=self.said)

    def wait_for_all(self) -> None:
        """Wait until each that runs holds shards, which on a busy machine takes one seconds longer than another."""
        deadline = time.monotonic() + DEADLINE
        while len(self.begun) < len(self.alive) and time.monotonic() < deadline:
            time.sleep(0.02)

    def wait(self) -> None:
        """Wait until all have ended by themselves, or were killed."""
        for number, process in enumerate(self.all):
            ended = process.wait(DEADLINE)
            if ended == -signal.SIGTERM and "Spider closed" in self.log(number).read_text():
                continue  # the signal came when Scrapy no longer handled any
            assert process in self.stopped or ended in {0, -signal.SIGKILL}, (self.ended, self.said())
        assert "Traceback" not in self.said()


@contextmanager
def running(
    folder: Path,
    *,
    kind: type[Workers] = Workers,
    fsync: str = "always",
    delay: float = 0.005,
    **settings: Any,
) -> Iterator[Any]:
    """Nobody is there yet, and a page takes *delay* seconds."""
    with (
        redis_server.Server(folder / "server", appendfsync=fsync) as redis,
        Server(lambda exchange: replace(answer(exchange), delay=delay)).run_in_thread() as web,
    ):
        workers = kind(folder, redis, web, **settings)
        try:
            yield workers
        finally:
            workers.close()


@dataclass
class Verdict:
    """What a crawl has done that ended by itself.

    Attributes:
        violations: What does not hold in the job, and what was not fetched or visited, a sentence each.
        again: How long before one of the *faults* a page was fetched that was fetched again after it, in seconds.
        twice: Pages that were fetched twice without a fault in between.
        n_overlaps: Pairs of requests to a host at the same time.
        n_early: Requests after a gap that was too short.
        impolite: Some of these, in words.
    """

    violations: list[str]
    again: list[float]
    twice: list[tuple[Entry, Entry]]
    n_overlaps: int
    n_early: int
    impolite: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.violations or self.twice or self.n_overlaps or self.n_early)


def judge(workers: Workers, faults: list[float]) -> Verdict:
    """Look at the job, and at the log of the crawled hosts, after *faults* at these instants."""
    visited, queued, violations = check(workers.redis.url)
    pages = pages_of(workers.web.log)
    n = N_HOSTS * N_PAGES
    if (len(pages), visited, queued) != (n, n, 0):
        violations.append(f"{len(pages)} of {n} pages were fetched, {visited} visited, {queued} wait")
    again, twice = [], []
    for entries in pages.values():
        for first, second in pairwise(entries):
            between = [fault for fault in faults if first.start - TAKEN_UP <= fault <= second.start]
            if between:
                again.append(max(between[0] - first.end, 0.0))
            else:
                twice.append((first, second))
    polite = server_log.audit(workers.web.log, FACTOR)
    return Verdict(violations, again, twice, polite.n_overlaps, polite.n_short_gaps, polite.violations)


def check_all(workers: Workers, faults: list[float]) -> None:
    """Each page was fetched, and only once unless a fault was in between, and no host was bothered."""
    verdict = judge(workers, faults)
    assert verdict.holds, (verdict, faults)

"""Several processes crawl the shards of one job in Redis: they come, go, stop and are killed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from support import redis_server
from test_kill import FACTOR, N_HOSTS, N_PAGES, answer, command

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.shards.whole import audit_shards
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.opening import open_snapshots
from scrapy_aopic.testing import server_log
from scrapy_aopic.testing.server import Running, Server
from scrapy_aopic.testing.server_log import Entry
from scrapy_aopic.web.suffixes import registered_domain

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

pytestmark = pytest.mark.slow

SHARDS = 8
LEASE = 3.0
"""Seconds."""
DEADLINE = 90.0
"""Seconds that a crawl may take on a busy machine; it takes some five."""


def check(url: str, n_shards: int = SHARDS) -> tuple[int, int, list[str]]:
    """Pages visited and queued in all shards, and what does not hold, in one or between them."""
    with ExitStack() as opened:
        views = open_snapshots(Address("aopic:follow", url))
        for view in views:
            opened.callback(view.close)
        assert len(views) == n_shards
        each = [audit(view) for view in views]
        whole = audit_shards(views, registered_domain)
    violations = [violation for result in (*each, whole) for violation in result.violations]
    return sum(result.visited for result in each), sum(result.queued for result in each), violations


class Workers:
    """Processes that crawl one job."""

    def __init__(self, folder: Path, redis: redis_server.Server, web: Running) -> None:
        self._folder = folder
        self.redis = redis
        self.web = web
        self.line, self.environment = command(
            folder,
            web.url,
            AOPIC_STORE="redis",
            REDIS_URL=redis.url,
            AOPIC_REDIS_LEASE=LEASE,
            AOPIC_DURABILITY=50,
            AOPIC_SHARDS=SHARDS,
            LOG_LEVEL="INFO",
            JOBDIR="",
        )
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """One more."""
        with self.log(len(self.all)).open("wb") as log:
            process = subprocess.Popen(self.line, env=self.environment, cwd=self._folder, stderr=log)
        self.all.append(process)
        return process

    def log(self, number: int) -> Path:
        """What a worker says."""
        return self._folder / f"log-{number}"

    def said(self) -> str:
        """What all of them have said."""
        return "".join(self.log(number).read_text() for number in range(len(self.all)))

    def wait_for(self, n: int) -> None:
        """Wait until *n* requests were answered."""
        deadline = time.monotonic() + DEADLINE
        while len(self.web.log) < n and time.monotonic() < deadline:
            assert any(process.poll() is None for process in self.all), self.said()
            time.sleep(0.005)

    def wait(self) -> None:
        """Wait until all have ended by themselves, or were killed."""
        for process in self.all:
            process.wait(DEADLINE)
            assert process.returncode in {0, -signal.SIGKILL}, self.said()
        assert "Traceback" not in self.said()


@contextmanager
def running(folder: Path) -> Iterator[Workers]:
    """Nobody is there yet."""
    with (
        redis_server.Server(folder / "server", appendfsync="always") as redis,
        Server(answer).run_in_thread() as web,
    ):
        workers = Workers(folder, redis, web)
        try:
            yield workers
        finally:
            for process in workers.all:
                process.kill()
                process.wait()


def pages_of(log: list[Entry]) -> dict[tuple[str, str], list[Entry]]:
    pages = defaultdict(list)
    for entry in log:
        if entry.status == 200:
            pages[entry.host, entry.target].append(entry)
    return pages


def check_all(workers: Workers, kills: list[float]) -> None:
    """Each page was fetched, and only once unless a worker was killed in between, and no host was bothered."""
    visited, queued, violations = check(workers.redis.url)
    assert violations == []
    pages = pages_of(workers.web.log)
    assert (len(pages), visited, queued) == (N_HOSTS * N_PAGES, N_HOSTS * N_PAGES, 0)
    for entries in pages.values():
        for first, second in pairwise(entries):
            assert any(first.start - 0.5 <= kill <= second.start for kill in kills), (first, second, kills)
    polite = server_log.audit(workers.web.log, FACTOR)
    assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


@pytest.mark.parametrize("n", [1, 2, 3])
def test_workers_that_start_at_once_fetch_each_page_once(tmp_path: Path, n: int) -> None:
    with running(tmp_path) as workers:
        for _ in range(n):
            workers.start()
        workers.wait()
        check_all(workers, [])
        assert f"This worker holds {SHARDS // n} of {SHARDS} shards" in workers.said()


def test_a_worker_that_joins_gets_its_share_and_nothing_pauses(tmp_path: Path) -> None:
    with running(tmp_path) as workers:
        workers.start()
        workers.wait_for(30)
        workers.start()
        workers.wait_for(90)
        during = check(workers.redis.url)
        workers.wait()
        assert during[2] == []
        check_all(workers, [])
        assert f"This worker holds {SHARDS // 2} of {SHARDS} shards" in workers.log(1).read_text()
        assert "was not closed" not in workers.said()


@pytest.mark.parametrize("killed", [1, 2, 3])
def test_workers_that_are_killed_are_taken_over_from_and_nothing_is_lost(tmp_path: Path, killed: int) -> None:
    kills = []
    with running(tmp_path) as workers:
        for _ in range(3):
            workers.start()
        workers.wait_for(70)
        for process in workers.all[:killed]:
            process.kill()
            kills.append(time.monotonic())
        for process in workers.all[:killed]:
            process.wait()
        assert check(workers.redis.url)[2] == []
        if killed == 3:
            workers.start()
        workers.wait()
        check_all(workers, kills)
        assert "was not closed: what was in flight is queued again" in workers.said()


def test_a_worker_that_is_stopped_hands_its_shards_over(tmp_path: Path) -> None:
    with running(tmp_path) as workers:
        first, _ = workers.start(), workers.start()
        workers.wait_for(70)
        first.send_signal(signal.SIGTERM)
        workers.wait()
        check_all(workers, [])
        assert "was not closed" not in workers.said()
        assert f"This worker holds {SHARDS} of {SHARDS} shards" in workers.log(1).read_text()


def test_a_worker_that_was_frozen_drops_its_shards_and_goes_on_with_others(tmp_path: Path) -> None:
    with running(tmp_path) as workers:
        first, _ = workers.start(), workers.start()
        workers.wait_for(50)
        first.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        time.sleep(1.5 * LEASE)
        first.send_signal(signal.SIGCONT)
        thawed = time.monotonic()
        workers.wait()
        visited, queued, violations = check(workers.redis.url)
        assert violations == []
        assert (visited, queued) == (N_HOSTS * N_PAGES, 0)
        assert "The crawl goes on with the other shards" in workers.log(0).read_text()
        for entries in pages_of(workers.web.log).values():
            for one, other in pairwise(entries):
                assert one.start <= thawed, (one, other)
                assert other.start >= frozen, (one, other)


def test_a_server_that_is_killed_stops_all_workers_and_they_go_on_when_it_is_back(tmp_path: Path) -> None:
    with running(tmp_path) as workers:
        for _ in range(2):
            workers.start()
        workers.wait_for(60)
        workers.redis.kill()
        killed = time.monotonic()
        for process in workers.all:
            process.wait(DEADLINE)
        # Where writes and reads fail, that is said once; a worker that lost its lease first says that.
        assert "The crawl stops" in workers.said()
        assert "Traceback" not in workers.said()
        workers.redis.start()
        assert check(workers.redis.url)[2] == []
        for _ in range(2):
            workers.start()
        stopped, workers.all = workers.all[:2], workers.all[2:]
        for process in workers.all:
            process.wait(DEADLINE)
        workers.all = stopped + workers.all
        check_all(workers, [killed])

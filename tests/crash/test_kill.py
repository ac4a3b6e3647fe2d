"""A real crawl in a process of its own, killed with SIGKILL and resumed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import scrapy
from demo_web.server import Answer, Exchange, Server
from demo_web.server_log import Entry, audit
from packaging.version import Version
from support import processes, redis_server, wish_spider, workers
from support.killed_crawl import FACTOR, N_HOSTS, N_PAGES, answer, check_log, command
from support.short_forms import some_of
from support.small_web import Web, ask, ask_view, check

from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import HOST_BYTES, PageState, host_key, unpack_page
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import use
from scrapy_aopic.view.queries import top_pages

JOURNAL = "support.journal_store.JournalStore"
STORES = [("rocksdb", False), ("sqlite", True), ("sqlite", False), ("rocksdb", True), (JOURNAL, False)]


@pytest.mark.parametrize(("store", "is_fast"), some_of(STORES, 2))
def test_a_killed_crawl_goes_on_and_loses_nothing(tmp_path, store, is_fast):
    use(store)
    job = tmp_path / "job"
    rng = random.Random(store)
    kills: list[float] = []
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url, AOPIC_STORE=store, AOPIC_FAST_DOWNLOADS=is_fast)
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            before = len(running.log)
            with processes.start(line, env=environment, cwd=tmp_path) as process:
                kill_after = before + rng.randrange(20, 90)
                while process.poll() is None and (len(kills) >= 3 or len(running.log) < kill_after):
                    time.sleep(0.005)
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    kills.append(time.monotonic())
            result = check(job)
            assert result.violations == []
            if process.returncode == 0:
                break
    assert len(kills) == 3
    assert (result.visited, result.queued) == (N_HOSTS * N_PAGES, 0)
    check_log(running.log, kills)


N_SERVED = 10
"""Pages that are answered before a kill; those after them are not."""

FORBIDDEN = {"/3", "/8"}
UNREACHABLE = "h5.test"


def answer_with_robots(exchange: Exchange) -> Answer:
    """As :func:`answer`, but each host forbids some pages, and the robots.txt of one is unreachable."""
    if exchange.target != "/robots.txt":
        return answer(exchange)
    rules = "".join(f"Disallow: {path}\n" for path in sorted(FORBIDDEN))
    status = 500 if exchange.host == UNREACHABLE else 200
    return Answer(status, body=f"User-agent: *\n{rules}".encode(), delay=0.005)


def hosts_in_store(store: Store) -> tuple[set[str], set[str]]:
    """Hosts whose robots.txt is known, and those of which a page was visited, as of the last commit."""
    names = {host_key(name): name for name in (f"h{number}.test" for number in range(N_HOSTS))}
    known = {names[key[:HOST_BYTES]] for key, _ in store.scan(Family.ROBOTS)}
    pages = ((key, unpack_page(data)) for key, data in store.scan(Family.PAGES))
    return known, {names[key[:HOST_BYTES]] for key, page in pages if page.state == PageState.VISITED}


PATIENT = """
from support.follow_spider import Follow
from scrapy_aopic.downloadermiddlewares import robots

robots.RETRY = 0.1


class Patient(Follow):
    pass
"""


@pytest.mark.parametrize("name", some_of(["sqlite", "rocksdb"]))
def test_a_robots_txt_that_was_committed_outlives_a_kill(tmp_path, name):
    job, tries, spider = tmp_path / "job", 3, tmp_path / "patient.py"
    spider.write_text(PATIENT)
    rng = random.Random(name)
    runs: list[list[Entry]] = []
    known: set[str] = set()
    server = Server(answer_with_robots)
    web = Web(server, {})
    with server.run_in_thread() as running:
        line, environment = command(
            job,
            running.url,
            AOPIC_STORE=name,
            ROBOTSTXT_OBEY=True,
            spider=spider,
            AOPIC_MAX_WAIT=0.3,
            AOPIC_BACKOFF=0.1,
        )
        while len(runs) < 4:
            before = len(web.log)
            with processes.start(line, env=environment, cwd=tmp_path) as process:
                kill_after = before + rng.randrange(40, 75)
                while process.poll() is None and (len(runs) == 3 or len(running.log) < kill_after):
                    time.sleep(0.005)
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
            assert process.returncode == (0 if len(runs) == 3 else -signal.SIGKILL)
            asked = web.log[before:]
            runs.append(asked)
            of_robots = Counter(entry.host for entry in asked if entry.target == "/robots.txt")
            tried = of_robots.pop(UNREACHABLE, 0)
            # Once a run, and not at all in those after the commit that has it.
            assert not of_robots.keys() & known
            assert set(of_robots.values()) <= {1}
            assert tried <= tries
            assert check(job).violations == []
            before_that = known
            known, visited = ask(job, hosts_in_store)
            known.discard(UNREACHABLE)
            assert before_that | visited <= known
            assert known
    log = [entry for run in runs for entry in run]
    assert {entry.target for entry in log if entry.host == UNREACHABLE} == {"/robots.txt"}
    assert not FORBIDDEN & {entry.target for entry in log}
    assert check(job).queued == 0
    outcomes = {
        row.url: row.outcome or row.state
        for row in ask_view(job, top_pages, N_HOSTS * N_PAGES, everything=True)
    }
    for url, outcome in outcomes.items():
        _, _, host, page = url.split("/")
        unreachable = "robots.txt unreachable" if host == UNREACHABLE else ""
        assert outcome == (unreachable or ("robots.txt" if f"/{page}" in FORBIDDEN else "visited"))
    assert len(outcomes) > 200
    polite = audit(log, FACTOR)
    assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


def test_a_second_process_on_the_same_folder_is_refused(tmp_path):
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        # The first must not be through with all pages before the second has begun, however slowly that begins.
        line, environment = command(job, running.url, AOPIC_STORE="rocksdb", AOPIC_MIN_GAP=60)
        with processes.start(line, env=environment, cwd=tmp_path) as first:
            while not running.log and first.poll() is None:
                time.sleep(0.005)
            second = processes.run_and_read(line, env=environment, cwd=tmp_path)
            assert first.poll() is None
            first.send_signal(signal.SIGINT)
        assert f"The store in {store_folder(job)} is in use: process {first.pid} on " in second.stderr
        assert "Traceback" not in second.stderr
    assert check(job).violations == []


@pytest.mark.parametrize("signals", some_of([1, 2]))
def test_ctrl_c_leaves_a_job_that_goes_on(tmp_path, signals):
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url)
        with processes.start(line, env=environment, cwd=tmp_path) as process:
            while len(running.log) < 60 and process.poll() is None:
                time.sleep(0.005)
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.05)
        assert check(job).violations == []
        done = processes.run(line, env=environment, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0
    assert check(job).visited == N_HOSTS * N_PAGES


@pytest.mark.skipif(Version(scrapy.__version__) < Version("2.19"), reason="its handler is of Scrapy 2.19")
def test_it_also_runs_without_a_reactor(tmp_path):
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url, TWISTED_REACTOR_ENABLED=False)
        done = processes.run(line, env=environment, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0
    result = check(job)
    assert result.violations == []
    assert result.visited == N_HOSTS * N_PAGES
    polite = audit(running.log, FACTOR)
    assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


@pytest.mark.parametrize("place", ["sqlite", "rocksdb", "shards"])
def test_what_is_asked_for_on_purpose_outlives_a_kill_with_its_arguments_and_its_priority(tmp_path, place):
    """When the process is killed, a page of each host is on its way and all that was asked for is stored."""
    job, seen, is_killed = tmp_path / "job", tmp_path / "seen.jsonl", False
    begun: list[str] = []

    def slowly(exchange: Exchange) -> Answer:
        begun.append(f"http://{exchange.host}{exchange.target}")
        delay = 600.0 if len(begun) > N_SERVED and not is_killed else 0.0
        return Answer(headers={"Content-Type": "text/html"}, body=b"x", delay=delay)

    with ExitStack() as stack:
        settings: dict[str, Any] = {"JOBDIR": job, "AOPIC_STORE": place}
        if place == "shards":
            redis_server.needed()
            redis = stack.enter_context(redis_server.Server(tmp_path / "server", appendfsync="always"))
            settings = {"JOBDIR": "", "AOPIC_STORE": "redis", "REDIS_URL": redis.url, "AOPIC_SHARDS": 4}

        def look() -> tuple[int, int, list[str]]:
            """Pages visited, pages queued, and what does not hold."""
            with suppress(StorageError):
                if place == "shards":
                    return workers.check(redis.url, 4)
                found = check(job)
                return found.visited, found.queued, found.violations
            return 0, 0, []  # there is no job yet

        running = stack.enter_context(Server(slowly).run_in_thread())
        line, environment = command(
            job, running.url, spider=Path(wish_spider.__file__), AOPIC_POLITENESS_FACTOR=0, **settings
        )
        n_wishes = 2 * len(wish_spider.PAGES)
        with processes.start(line, env=environment, cwd=tmp_path) as process:
            while look()[:2] != (N_SERVED, n_wishes + 1 - N_SERVED):
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        assert look()[2] == []
        is_killed, n_before = True, len(begun)
        assert processes.run(line, env=environment, cwd=tmp_path, check=False, timeout=500).returncode == 0
        assert look()[1:] == (0, [])
    found = Counter(seen.read_text().splitlines())
    wanted = {json.dumps([wish_spider.Wishes.start_urls[0], "parse"])}
    for url in wish_spider.PAGES:
        priority = int(url.rpartition("/")[2])
        wanted |= {json.dumps([url, "parse"]), json.dumps([url, "detail", priority, ["a", {"b": url}]])}
    assert found == dict.fromkeys(wanted, 1)
    for host in wish_spider.HOSTS:
        order = [int(url.rpartition("/")[2]) for url in begun[n_before:] if f"//{host}/" in url]
        assert order == sorted(order, reverse=True), host

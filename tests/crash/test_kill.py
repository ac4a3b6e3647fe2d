"""A real crawl in a process of its own, killed with SIGKILL and resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
import scrapy
from packaging.version import Version
from web import check, html

from scrapy_aopic.job import store_folder
from scrapy_aopic.testing.server import Answer, Exchange, Server, audit

N_HOSTS, N_PAGES, FACTOR = 20, 15, 2
SPIDER = Path(__file__).parents[1] / "support" / "follow.py"


def answer(exchange: Exchange) -> Answer:
    """A page that links to others, all reachable from the first."""
    host, page = int(exchange.host[1:-5]), exchange.target[1:]
    if not page.isdigit():
        return Answer(404)
    rng = random.Random(f"{host}/{page}")
    links = [f"http://h{rng.randrange(N_HOSTS)}.test/{rng.randrange(N_PAGES)}" for _ in range(8)]
    links += [
        f"http://h{(host + 1) % N_HOSTS}.test/{page}",
        f"http://h{host}.test/{(int(page) + 1) % N_PAGES}",
    ]
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.005)


def command(folder: Path, proxy: str, **settings: object) -> tuple[list[str], dict[str, str]]:
    values = {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "JOBDIR": folder,
        "AOPIC_POLITENESS_FACTOR": FACTOR,
        "AOPIC_DURABILITY": 100,
        "LOG_LEVEL": "ERROR",
        "REMOTE_CONTROL_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        **settings,
    }
    options = [option for name, value in values.items() for option in ("-s", f"{name}={value}")]
    line = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *options]
    return line, {**os.environ, "http_proxy": proxy}


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
def test_a_killed_crawl_goes_on_and_loses_nothing(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    rng = random.Random(store)
    kills: list[float] = []
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url, AOPIC_STORE=store)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            before = len(running.log)
            with subprocess.Popen(line, env=environment, cwd=tmp_path) as process:
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
    log = running.log
    assert len(kills) == 3
    assert result.queued == 0
    fetched = defaultdict(list)
    for entry in log:
        if entry.status == 200:
            fetched[entry.host, entry.target].append(entry)
    assert len(fetched) == N_HOSTS * N_PAGES == result.visited
    # Only what was in flight at a kill, or not yet committed, was fetched again: never without a kill in between.
    for entries in fetched.values():
        for first, second in pairwise(entries):
            assert any(first.start <= kill <= second.start for kill in kills), (first, second, kills)
    polite = audit(log, FACTOR)
    assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


def test_a_second_process_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url, AOPIC_STORE="rocksdb")
        with subprocess.Popen(line, env=environment, cwd=tmp_path) as first:
            while not running.log and first.poll() is None:
                time.sleep(0.005)
            second = subprocess.run(
                line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
            )
            assert first.poll() is None
            first.send_signal(signal.SIGINT)
        assert f"The store in {store_folder(job)} is in use: process {first.pid} on " in second.stderr
        assert "Traceback" not in second.stderr
    assert check(job).violations == []


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_leaves_a_job_that_goes_on(tmp_path: Path, signals: int) -> None:
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url)
        with subprocess.Popen(line, env=environment, cwd=tmp_path) as process:
            while len(running.log) < 60 and process.poll() is None:
                time.sleep(0.005)
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.05)
        assert check(job).violations == []
        done = subprocess.run(line, env=environment, cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 0
    assert check(job).visited == N_HOSTS * N_PAGES


@pytest.mark.skipif(Version(scrapy.__version__) < Version("2.19"), reason="its handler is of Scrapy 2.19")
def test_it_also_runs_without_a_reactor(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url, TWISTED_REACTOR_ENABLED=False)
        done = subprocess.run(line, env=environment, cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 0
    result = check(job)
    assert result.violations == []
    assert result.visited == N_HOSTS * N_PAGES
    polite = audit(running.log, FACTOR)
    assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite

"""A crawl for a topic, killed with SIGKILL and resumed: its counts are those of its pages, and cash is whole."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.killed_crawl import N_HOSTS, N_PAGES, answer, command
from support.small_web import ask, check

from scrapy_aopic.core.focus.harvest import Harvest
from scrapy_aopic.core.layout import HARVEST_KEY
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.storage import use
from scrapy_aopic.testing.server import Server


def harvest_of(store: Store) -> Harvest:
    return Harvest.unpack(store.get_many(Family.META, (HARVEST_KEY,))[0])


@pytest.mark.slow
def test_harvest_is_that_of_the_visited_pages_after_every_kill(tmp_path: Path) -> None:
    use("sqlite")
    job = tmp_path / "job"
    n_kills = 0
    with Server(answer).run_in_thread() as running:
        line, environment = command(
            job,
            running.url,
            AOPIC_STORE="sqlite",
            AOPIC_ORDER="focused",
            AOPIC_TOPIC='{"keywords": ["h3"]}',
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            before = len(running.log)
            with subprocess.Popen(line, env=environment, cwd=tmp_path) as process:
                while process.poll() is None and (n_kills >= 2 or len(running.log) < before + 60):
                    time.sleep(0.005)
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    n_kills += 1
            result = check(job)
            assert result.violations == []
            assert result.cash + result.virtual == TOTAL
            assert ask(job, harvest_of).pages == result.visited
            if process.returncode == 0:
                break
    assert n_kills == 2
    assert result.visited == N_HOSTS * N_PAGES
    assert 0 < ask(job, harvest_of).relevant < result.visited

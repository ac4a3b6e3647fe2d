"""A crawl for a topic, killed with SIGKILL and resumed: its counts are those of its pages, and cash is whole."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from demo_web.server import Server
from support import processes
from support.killed_crawl import N_HOSTS, N_PAGES, answer, command
from support.short_forms import some_of
from support.small_web import ask, check

from scrapy_aopic.core.focus.harvest import Harvest
from scrapy_aopic.core.focus.learned import Learned
from scrapy_aopic.core.focus.topic import Topic
from scrapy_aopic.core.layout import HARVEST_KEY, LEADS, STRATEGY_KEY
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import QUEUED, unpack, unpack_page
from scrapy_aopic.storage import use


def harvest_of(store: Store) -> Harvest:
    return Harvest.unpack(store.get_many(Family.META, (HARVEST_KEY,))[0])


def learned_of(store: Store) -> Learned | None:
    data = store.get_many(Family.META, (STRATEGY_KEY,))[0]
    if data is None:
        return None
    strategy = Learned(Topic(), Random(0))
    strategy.restore(unpack(data)[1])
    return strategy


def leads_of(store: Store) -> set[bytes]:
    return {row[1:] for row, _ in store.scan(Family.CONTENT) if row[:1] == LEADS}


def waiting_in(store: Store) -> set[bytes]:
    return {key for key, data in store.scan(Family.PAGES) if unpack_page(data).state == QUEUED}


@pytest.mark.slow
def test_a_crawl_that_is_killed_while_it_learns_goes_on_with_what_it_knew(tmp_path):
    """Commits come one after the other, so every kill is amid one."""
    use("sqlite")
    job = tmp_path / "job"
    n_kills, known = 0, 0

    def is_kept() -> bool:
        """Whether the job has more of what was learned than before this run, so that a kill can lose the rest only."""
        learned = ask(job, learned_of)
        return learned is not None and learned.n_learned > known

    with Server(answer).run_in_thread() as running:
        line, environment = command(
            job,
            running.url,
            AOPIC_ORDER="focused",
            AOPIC_TOPIC='{"keywords": ["h3"]}',
            AOPIC_STORE="sqlite",
            LOG_LEVEL="WARNING",
        )
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            before = len(running.log)
            with processes.start(
                line, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True
            ) as process:
                while process.poll() is None and (
                    n_kills >= 3 or len(running.log) < before + 30 or not is_kept()
                ):
                    time.sleep(0.01)
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    n_kills += 1
                assert "cannot be read" not in process.stderr.read()
            result = check(job)
            assert result.violations == []
            assert result.cash + result.virtual == TOTAL
            assert ask(job, harvest_of).pages == result.visited
            assert ask(job, leads_of) <= ask(job, waiting_in)
            learned = ask(job, learned_of)
            assert learned is not None
            assert learned.n_learned >= known
            known = learned.n_learned
            if process.returncode == 0:
                break
    assert n_kills == 3
    assert result.visited == N_HOSTS * N_PAGES
    assert known > result.visited / 2  # what was learned after the last version before a kill is gone
    assert ask(job, leads_of) == set()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("each", some_of([4, 1]))
def test_what_was_learned_is_that_of_the_visited_pages_after_a_kill_at_any_operation(tmp_path, each, is_torn):
    """Or else the script says so: with commits that may be torn, the control, which must not be whole after each kill."""
    script = Path(__file__).with_name("topic_kill_points.py")
    line = [sys.executable, str(script), "sqlite", str(tmp_path), str(each), *(["--torn"] if is_torn else [])]
    done = processes.run_and_read(line)
    assert (done.returncode, bool(done.stderr)) == (int(is_torn), is_torn), done
    n_points, n_wrong = map(int, re.findall(r"\d+", done.stdout))
    assert n_points > 50
    assert (n_wrong > 10 // each) == is_torn

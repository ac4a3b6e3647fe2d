"""Several processes crawl the shards of one job in Redis: they come, go, stop and are killed."""

from __future__ import annotations

import signal
import time
from itertools import pairwise

import pytest
from support import redis_server
from support.faults import FAULTS, crawl_through
from support.killed_crawl import N_HOSTS, N_PAGES, pages_of
from support.short_forms import some_of
from support.workers import DEADLINE, IN_A_STEP, SHARDS, check, check_all, running

redis_server.needed()

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("n", some_of([3, 1, 2]))
def test_workers_that_start_at_once_fetch_each_page_once(tmp_path, n):
    with running(tmp_path) as workers:
        for _ in range(n):
            workers.start()
        workers.wait()
        check_all(workers, [])
        assert f"This worker holds {SHARDS // n} of {SHARDS} shards" in workers.said()


def test_a_worker_that_joins_gets_its_share_and_nothing_pauses(tmp_path):
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


@pytest.mark.parametrize("killed", some_of([3, 1, 2]))
def test_workers_that_are_killed_are_taken_over_from_and_nothing_is_lost(tmp_path, killed):
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


def test_a_worker_that_is_stopped_hands_its_shards_over(tmp_path):
    with running(tmp_path) as workers:
        both = workers.start(), workers.start()
        workers.wait_for(70)
        stopped = workers.begun[0]  # one may have fetched all that while the other was being started
        stopped.send_signal(signal.SIGTERM)
        workers.wait()
        check_all(workers, [])
        assert "was not closed" not in workers.said()
        other = workers.log(1 - both.index(stopped)).read_text()
        assert f"This worker holds {SHARDS} of {SHARDS} shards" in other


def test_a_worker_that_was_frozen_drops_its_shards_and_goes_on_with_others(tmp_path):
    with running(tmp_path) as workers:
        both = workers.start(), workers.start()
        workers.wait_for(50)
        stopped = workers.begun[0]
        number = both.index(stopped)
        stopped.send_signal(signal.SIGSTOP)
        frozen, said = time.monotonic(), len(workers.log(1 - number).read_text())
        workers.wait_until_said(1 - number, f"This worker holds {SHARDS} of {SHARDS} shards", after=said)
        thawed = time.monotonic()
        stopped.send_signal(signal.SIGCONT)
        workers.wait()
        visited, queued, violations = check(workers.redis.url)
        assert violations == []
        assert (visited, queued) == (N_HOSTS * N_PAGES, 0)
        assert "This worker goes on " in workers.log(number).read_text()
        late = 0
        for entries in pages_of(workers.web.log).values():
            for one, other in pairwise(entries):
                assert other.start >= frozen, (one, other)
                # By now one of the two was sent by the thawed process, to a host that was no longer its own.
                late += one.start > thawed or (one.start > frozen + 0.5 and other.start > thawed)
        assert late <= IN_A_STEP


def test_a_server_that_is_killed_stops_all_workers_and_they_go_on_when_it_is_back(tmp_path):
    with running(tmp_path) as workers:
        for _ in range(2):
            workers.start()
        workers.wait_for(60)
        workers.redis.kill()
        killed = time.monotonic()
        for process in workers.all:
            process.wait(DEADLINE)
        ended = time.monotonic()  # until then pages were fetched whose visits could not be written
        # Where writes and reads fail, that is said once; a worker that lost its lock first says that.
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
        check_all(workers, [killed, ended])


TRIED = "restart-server cut-network lose-reply cut-log fail-over stall-network blink fill-memory come-and-go"


@pytest.mark.parametrize("name", some_of(TRIED.split(), 3))
def test_whatever_happens_the_job_is_whole_and_no_host_is_bothered(tmp_path, name):
    _, verdict = crawl_through(tmp_path, FAULTS[name], 1, lock_timeout=2.0)
    assert verdict.holds, verdict

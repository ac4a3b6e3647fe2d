"""Several processes crawl one job for a topic: one is killed, and no page, no cash and nothing of what was learned is lost."""

from __future__ import annotations

import re
import time
from contextlib import closing
from random import Random

import pytest
from support import redis_server
from support.killed_crawl import N_HOSTS, N_PAGES
from support.workers import Workers, check, check_all, running

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

from scrapy_aopic.core.focus.harvest import Harvest
from scrapy_aopic.core.focus.leads import unpack_lead
from scrapy_aopic.core.focus.learned import Learned
from scrapy_aopic.core.focus.topic import Topic
from scrapy_aopic.core.layout import HARVEST_KEY, LEADS
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import unpack
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.redis.shared_lessons import BEGINNING, LessonBoard
from scrapy_aopic.view.job_view import open_view

pytestmark = pytest.mark.slow

TOPIC = {"AOPIC_ORDER": "focused", "AOPIC_TOPIC": '{"keywords": ["h3"]}'}


def graded_in(workers: Workers) -> tuple[int, int, int]:
    """Pages that were graded and relevant ones, over all shards; and leads that cannot be read, or of pages without."""
    with open_view(ServerPlace(Address("aopic:follow", workers.redis.url))) as view:
        each = [Harvest.unpack(store.get_many(Family.META, (HARVEST_KEY,))[0]) for store in view.stores]
        leads = [
            data for store in view.stores for row, data in store.scan(Family.CONTENT) if row[:1] == LEADS
        ]
        assert all(unpack_lead(data) is not None for data in leads)
    return sum(one.pages for one in each), sum(one.relevant for one in each), len(leads)


def learned_in(workers: Workers) -> int:
    """Pages that the job has learned from, as a worker that starts now would hear."""
    with closing(LessonBoard(Address("aopic:follow", workers.redis.url))) as board:
        place, known = board.known()
    if not known:
        assert place == BEGINNING
        return 0
    strategy = Learned(Topic(), Random(0))
    strategy.restore(unpack(known)[1])
    return strategy.n_learned


def counted(workers: Workers, stat: str) -> list[float]:
    return [float(n) for n in re.findall(rf"'{stat}': ([\d.]+)", workers.said())]


def test_a_worker_that_is_killed_takes_nothing_with_it(tmp_path):
    with running(tmp_path, **TOPIC) as workers:
        for _ in range(3):
            workers.start()
        workers.wait_for(70)
        killed = workers.all[0]
        killed.kill()
        at = time.monotonic()
        killed.wait()
        assert check(workers.redis.url)[2] == []
        workers.wait()
        check_all(workers, [at])
        pages, relevant, waiting = graded_in(workers)
        assert (pages, waiting) == (N_HOSTS * N_PAGES, 0)
        assert 0 < relevant < pages
        # Each of the two that lived on has learned from the others' pages, too.
        assert len(counted(workers, "aopic/topic/lessons")) == 2
        assert learned_in(workers) > pages / 2


def test_workers_that_start_later_go_on_with_what_was_learned(tmp_path):
    with running(tmp_path, **TOPIC) as workers:
        first = workers.start()
        workers.wait_for(150)
        first.terminate()
        first.wait()
        workers.stopped.append(first)
        known = learned_in(workers)
        assert known > 100
        for _ in range(2):
            workers.start()
        workers.wait()
        check_all(workers, [])
        pages, _, waiting = graded_in(workers)
        assert (pages, waiting) == (N_HOSTS * N_PAGES, 0)
        assert learned_in(workers) > known


def test_what_workers_say_of_the_harvest_is_that_of_the_whole_job(tmp_path):
    with running(tmp_path, **TOPIC) as workers:
        for _ in range(2):
            workers.start()
        workers.wait()
        pages, relevant, _ = graded_in(workers)
        assert sum(counted(workers, "aopic/topic/pages")) == pages
        for harvest in counted(workers, "aopic/topic/harvest"):
            assert harvest == pytest.approx(relevant / pages, abs=0.02)

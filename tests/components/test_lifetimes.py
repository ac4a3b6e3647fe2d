"""What is left of a crawl in its process after it has ended: nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from scrapy.crawler import Crawler
from support.crawls import ADDON, OURS, Visits
from support.small_web import Follow, crawl

import scrapy_aopic
from scrapy_aopic._engine.process_memory import GarbageThreshold
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import lock_job

pytestmark = pytest.mark.slow


PAGES = {"http://a.test/": ["http://b.test/", "http://a.test/1"], "http://b.test/": ["http://a.test/"]}
SETTINGS = {"AOPIC_REPORT": False, "ROBOTSTXT_OBEY": True}


def alive() -> Counter[str]:
    """Crawlers, and objects of this package, by class, that the garbage collector knows and cannot collect."""
    gc.collect()
    return Counter(
        type(each).__name__
        for each in gc.get_objects()
        if isinstance(each, Crawler)
        or (
            (module := str(type(each).__module__)).startswith(f"{scrapy_aopic.__name__}.")
            # A connection ends when its peer lets go.
            and not module.startswith(
                tuple(f"{scrapy_aopic.__name__}._engine.{each}" for each in ("connections", "network"))
            )
        )
    )


@pytest.fixture(autouse=True)
def _without_log() -> Iterator[None]:
    """Nothing is logged: pytest keeps the records, and with them their spiders."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.crossed
@pytest.mark.parametrize("store", ["rocksdb", "sqlite", "memory"])
@pytest.mark.parametrize("way", [ADDON, OURS])
async def test_crawls_that_have_ended_leave_nothing_behind(serve, tmp_path, store, way):
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    serve(PAGES)
    settings = {**SETTINGS, **way, "AOPIC_STORE": store, "JOBDIR": str(tmp_path / "job")}
    await crawl(Follow, settings)  # what a process keeps once
    before = alive()
    for _ in range(3):
        await crawl(Follow, settings)
    await crawl(Follow, {**settings, "JOBDIR": None})
    await crawl(Visits, {**settings, "AOPIC_WINDOW": "nothing"}, start_urls=[*PAGES])  # refused
    with lock_job(store_folder(tmp_path / "job"), "crawl"):
        await crawl(Visits, settings, start_urls=[*PAGES])
    for _ in range(1000):
        if not (more := alive() - before):
            break
        await asyncio.sleep(0.01)  # for threads that are about to end
    assert not more


async def test_a_page_is_let_go_when_its_callback_is_over_and_not_by_the_garbage_collector(serve):
    serve({f"http://a.test/{n}": [f"http://a.test/{n + 1}"] for n in range(20)})
    seen: list[weakref.ref[Any]] = []
    alive: list[int] = []

    class Looking(Follow):
        def parse(self, response: Any) -> Iterator[Any]:
            alive.append(sum(ref() is not None for ref in seen))
            seen.append(weakref.ref(response))
            yield from super().parse(response)

    gc.collect()
    gc.disable()
    try:
        await crawl(Looking, {**SETTINGS, **OURS}, start_urls=["http://a.test/0"])
    finally:
        gc.enable()
    assert len(seen) > 15
    assert max(alive) <= 2  # that of the page before is about to be let go


def test_the_last_crawl_that_closes_restores_the_threshold():
    was = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        one, two = GarbageThreshold(5_000), GarbageThreshold(9_000)
        assert gc.get_threshold()[0] == 9_000
        two.release()
        assert gc.get_threshold()[0] == 5_000
        two.release()  # a second time
        one.release()
        assert gc.get_threshold() == (700, 10, 10)
        one = GarbageThreshold(5_000)
        gc.set_threshold(800, 10, 10)  # by somebody else, who wants it so
        one.release()
        assert gc.get_threshold() == (800, 10, 10)
    finally:
        gc.set_threshold(*was)

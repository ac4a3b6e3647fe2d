"""What is left of a crawl in its process after it has ended: nothing."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_f_from_coro_f
from support.small_web import Follow, Web, crawl

import scrapy_aopic
from scrapy_aopic.job.folder import store_folder
from scrapy_aopic.storage import lock_job

pytestmark = pytest.mark.slow

Serve = Callable[[dict[str, Any]], Web]

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
                tuple(
                    f"{scrapy_aopic.__name__}.{each}"
                    for each in ("testing", "_engine.connections", "_engine.network")
                )
            )
        )
    )


@pytest.fixture(autouse=True)
def _without_log() -> Iterator[None]:
    """Nothing is logged: pytest keeps the records, and with them their spiders."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Other(Spider):
    name = "other"
    start_urls = ["http://a.test/"]


@pytest.mark.parametrize("store", ["rocksdb", "sqlite", "memory"])
@pytest.mark.parametrize(
    "way", [{"ADDONS": {"scrapy_aopic.Addon": 1}}, {"SCHEDULER": "scrapy_aopic.Scheduler"}]
)
@deferred_f_from_coro_f
async def test_crawls_that_have_ended_leave_nothing_behind(
    serve: Serve, tmp_path: Path, store: str, way: dict[str, Any]
) -> None:
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    serve(PAGES)
    settings = {**SETTINGS, **way, "AOPIC_STORE": store, "JOBDIR": str(tmp_path / "job")}
    await crawl(Follow, settings)  # what a process keeps once
    before = alive()
    for _ in range(3):
        await crawl(Follow, settings)
    await crawl(Follow, {**settings, "JOBDIR": None})
    await crawl(Other, {**settings, "AOPIC_WINDOW": "nothing"})  # refused
    with lock_job(store_folder(tmp_path / "job"), "crawl"):
        await crawl(Other, settings)
    more = alive() - before
    assert not more

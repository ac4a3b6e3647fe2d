"""The unit tests of Scrapy's scheduler, run on ours: in memory, and on disk with a restart in between."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from scrapy import Request, Spider, signals
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler
from tests.test_scheduler import _URLS_WITH_SLOTS
from tests.test_scheduler import DownloaderAwareSchedulerTestMixin as Fairness
from tests.test_scheduler import TestSchedulerInMemoryBase as InMemory
from tests.test_scheduler import TestSchedulerOnDiskBase as OnDisk
from tests.test_scheduler_base import InterfaceCheckMixin
from tests.utils.decorators import coroutine_test
from tests.utils.downloader import MockDownloader

from scrapy_aopic import Scheduler

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

FILTERS = ["scrapy.dupefilters.RFPDupeFilter", "scrapy.dupefilters.BaseDupeFilter", "scrapy_aopic.DupeFilter"]


class AnySpider(Spider):
    name = "spider"

    def other(self, response: Any) -> None: ...


class Downloader(MockDownloader):
    """Upstream's stand-in and what our scheduler asks for besides; nothing is ever being downloaded."""

    def __init__(self) -> None:
        super().__init__()
        self.active: set[Request] = set()
        self.middleware = MagicMock()


@pytest.fixture(autouse=True)
def no_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a proxy hosts are not looked up before their first request, which the tests want at once."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")


@asynccontextmanager
async def opened(jobdir: Path | None, **settings: Any) -> AsyncGenerator[Scheduler]:
    where = str(jobdir) if jobdir is not None else None
    crawler = get_crawler(AnySpider, {"SCHEDULER": Scheduler, "JOBDIR": where, **settings})
    engine = MagicMock(downloader=Downloader())
    engine._slot.inprogress = set()
    crawler.engine = engine
    scheduler = build_from_crawler(Scheduler, crawler)
    scheduler.crawler = crawler  # type: ignore[attr-defined]  # the stock attribute; a mixin reads it
    spider = crawler.spider = AnySpider.from_crawler(crawler)
    await ensure_awaitable(scheduler.open(spider))
    await crawler.signals.send_catch_log_async(signals.spider_opened, spider=spider)
    try:
        yield scheduler
    finally:
        await ensure_awaitable(scheduler.close("finished"))
        # The state of the spider is written then, and the job released.
        await crawler.signals.send_catch_log_async(signals.spider_closed, spider=spider, reason="finished")
        assert crawler.stats is not None
        assert crawler.stats.get_value("aopic/errors") is None


class Ours:
    """Makes our scheduler where upstream's tests make the stock one."""

    priority_queue_cls = ""  # ours has none

    @pytest.fixture(autouse=True, params=FILTERS)
    def dupefilter(self, request: pytest.FixtureRequest) -> None:
        self.settings = {"AOPIC_STORE": "memory", "DUPEFILTER_CLASS": request.param}

    def create_scheduler(self, jobdir: Path | None) -> AbstractAsyncContextManager[Scheduler]:
        return opened(jobdir, **self.settings)


class OursOnDisk(Ours):
    """Each test fills one scheduler, closes it and looks into a second one on the same job folder."""

    @pytest.fixture(autouse=True, params=["sqlite", "rocksdb"])
    def store(self, request: pytest.FixtureRequest, dupefilter: None) -> None:
        self.settings["AOPIC_STORE"] = request.param


class TestInterface(InterfaceCheckMixin):
    def setup_method(self) -> None:
        self.scheduler = Scheduler(get_crawler(AnySpider))


class TestInMemory(Ours, InMemory):
    pass


class TestOnDisk(OursOnDisk, OnDisk):
    @coroutine_test
    async def test_the_same_set_of_requests(self, tmp_path: Path) -> None:
        requests = [
            Request("http://foo.com/plain"),
            Request("http://foo.com/priority", priority=7, dont_filter=True, flags=["a"]),
            Request("http://foo.com/form", method="POST", body=b"\x00\xff", encoding="latin-1"),
            Request("http://foo.com/names", headers={"X-Many": ["1", "2"]}, cookies={"a": "b"}),
            Request("http://bar.com/", meta={"a": [1, (2, {3})]}, cb_kwargs={"b": None}),
            *(Request(url, meta={"download_slot": slot}) for url, slot in _URLS_WITH_SLOTS),
        ]
        put, got = [], []
        async with self.create_scheduler(tmp_path) as scheduler:
            spider = scheduler.crawler.spider  # type: ignore[attr-defined]
            for request in requests:
                if request.url == "http://bar.com/":
                    request.callback = spider.other
                put.append(request.to_dict(spider=spider))
                assert scheduler.enqueue_request(request)
            assert len(scheduler) == len(requests)
        async with self.create_scheduler(tmp_path) as scheduler:
            assert len(scheduler) == len(requests)
            while scheduler.has_pending_requests():
                request = scheduler.next_request()
                assert request is not None
                got.append(request.to_dict(spider=scheduler.crawler.spider))  # type: ignore[attr-defined]
        for values in got:
            del values["meta"]["_aopic"]
        assert sorted(got, key=lambda values: values["url"]) == sorted(put, key=lambda values: values["url"])
        async with self.create_scheduler(tmp_path) as scheduler:
            assert not scheduler.has_pending_requests()


class TestFairnessInMemory(Ours, Fairness, InMemory):
    pass


class TestFairnessOnDisk(OursOnDisk, Fairness, OnDisk):
    reopen = True

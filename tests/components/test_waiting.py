"""Callbacks that wait for what they have yielded: it goes out meanwhile, and is paid when they end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from support import processes
from support.small_web import Follow, check, crawl

from scrapy_aopic import LinkMiddleware, Links
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.session import intake
from scrapy_aopic.session import session as session_module
from scrapy_aopic.session import visit as visits
from scrapy_aopic.session.links import page_links
from scrapy_aopic.session.session import Session

ADD_ON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
ALONE: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler"}
STOCK: dict[str, Any] = {"SPIDER_MIDDLEWARES": {LinkMiddleware: 1000}}  # which makes requests of Links
HOME, PART = "http://a.test/", "http://a.test/part"
OTHERS = [f"http://a.test/{n}" for n in range(5)]
PAGES: dict[str, Any] = {HOME: [], PART: [], **{url: [] for url in OTHERS}}


@pytest.fixture(autouse=True)
def half_a_second_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_LONG", 2)


@pytest.fixture(params=[ADD_ON, ALONE], ids=["add-on", "alone"])
def how(request: pytest.FixtureRequest) -> dict[str, Any]:
    settings: dict[str, Any] = request.param
    return settings


@pytest.fixture(params=["memory", "folder"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {} if request.param == "memory" else {"JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"}


class HandsOnSlowly:
    """A spider middleware of somebody's own."""

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for each in result:
            await asyncio.sleep(0)
            yield each


class Waits(Follow):
    """Waits for the first of the requests that it yields."""

    start_urls = [HOME]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.done = asyncio.Event()
        self.got: list[str] = []

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        async for each in self.found(response):
            yield each
        await asyncio.wait_for(self.done.wait(), 60)
        yield {"url": "whole"}
        for url in OTHERS:
            yield Request(url, self.other)

    async def found(self, response: Response) -> AsyncIterator[Any]:
        yield response.follow(PART, self.part)

    def part(self, response: Response) -> None:
        self.got.append(response.url)
        self.done.set()

    def other(self, response: Response) -> None:
        self.got.append(response.url)


class WaitsForKnown(Waits):
    async def found(self, response: Response) -> AsyncIterator[Any]:
        yield Request(HOME, self.part, dont_filter=True)


class WaitsForLinks(Waits):
    async def found(self, response: Response) -> AsyncIterator[Any]:
        yield Links(response, [PART], callback=self.part)


class WaitsForManyInTurn(Waits):
    """As one that pages through an API does."""

    async def found(self, response: Response) -> AsyncIterator[Any]:
        for n in range(3):
            for url in (PART, OTHERS[n], f"{PART}?{n}"):
                self.done.clear()
                yield Request(url, self.part, dont_filter=url == PART)
                await asyncio.wait_for(self.done.wait(), 60)


class WaitsForItsOwnRetry(Waits):
    async def start(self) -> AsyncIterator[Any]:
        yield Request("http://a.test/gone", self.parse, errback=self.failed)

    async def failed(self, failure: Any) -> AsyncIterator[Any]:
        yield failure.request.replace(url=PART, callback=self.part)
        await asyncio.wait_for(self.done.wait(), 60)
        yield {"url": "whole"}


class Patient:
    """A pipeline that waits."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        await asyncio.wait_for(self.crawler.spider.done.wait(), 60)
        return item


class PatientMiddleware(Patient):
    """A spider middleware that waits for what it has passed on."""

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for each in result:
            yield each
            if response.url == HOME:
                await asyncio.wait_for(self.crawler.spider.done.wait(), 60)


class WaitsInAPipeline(Waits):
    custom_settings = {"ITEM_PIPELINES": {Patient: 1}}

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield Request(PART, self.part)
        yield {"url": "whole"}


class WaitsInAMiddleware(WaitsInAPipeline):
    custom_settings = {"SPIDER_MIDDLEWARES": {PatientMiddleware: 10}}


KINDS = [Waits, WaitsForKnown, WaitsForLinks, WaitsForManyInTurn, WaitsForItsOwnRetry]
KINDS += [WaitsInAPipeline, WaitsInAMiddleware]
"""What those of ``patterns/waiting.py`` do not wait for."""


async def waited(spider: type[Waits], settings: dict[str, Any]) -> list[str]:
    """What *spider* got, once it ended; cash is whole at each look, and at the end."""
    units: list[int] = []

    def look(sender: Crawler) -> None:
        totals = Session.of(sender).job.crawl.totals
        units.append(totals.virtual + totals.held)

    crawler = await crawl(spider, settings, told={signals.response_received: look})
    assert crawler.stats.get_value("item_scraped_count") >= 1
    assert crawler.stats.get_value("spider_exceptions/count") is None
    assert set(units) == {TOTAL}
    return crawler.spider.got


@pytest.mark.crossed
@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_waits_gets_it(serve, how, where, kind):
    serve({**PAGES, **{f"{PART}?{n}": [] for n in range(3)}})
    ours = sorted(await waited(kind, {**how, **where}))
    stock = await crawl(kind, STOCK)
    assert ours == sorted(stock.spider.got)


@pytest.mark.parametrize("kind", [Waits, WaitsForKnown, WaitsForManyInTurn])
async def test_whatever_waits_gets_it_by_way_of_others(serve, how, kind):
    serve({**PAGES, **{f"{PART}?{n}": [] for n in range(3)}})
    assert await waited(kind, {**how, "SPIDER_MIDDLEWARES": {HandsOnSlowly: 100}})


async def test_one_that_waits_in_a_crawl_for_a_topic(serve, where):
    serve({**PAGES, **{f"{PART}?{n}": [] for n in range(3)}})
    topic = {"AOPIC_TOPIC": {"keywords": ["database", "sql"]}, "AOPIC_ORDER": "focused"}
    got = await waited(WaitsForManyInTurn, {**ADD_ON, **topic, **where})
    assert len(got) == 11


async def test_one_that_pages_for_long_keeps_no_more_than_the_links_that_are_paid(serve, monkeypatch):
    kept: list[int] = []

    class Pages(Waits):
        async def found(self, response: Response) -> AsyncIterator[Any]:
            session = Session.of(self.crawler)
            visit = session.visits.of(response.request)
            assert visit is not None
            for n in range(30):
                self.done.clear()
                yield Request(f"{PART}?{n}", self.part)
                yield Request(f"{PART}?{n}", self.part)  # a duplicate
                yield Request(PART, self.part, dont_filter=True)
                await asyncio.wait_for(self.done.wait(), 60)
                kept.append(len(visit.links) + len(visit.announced))

    monkeypatch.setattr(visits, "MAX_LINKS", 10)
    serve({**PAGES, **{f"{PART}?{n}": [] for n in range(30)}})
    got = await waited(Pages, ALONE)
    assert max(kept) == 10
    assert sorted(got) == sorted([PART] * 30 + [f"{PART}?{n}" for n in range(30)] + OTHERS)


async def test_a_page_of_very_many_links_is_not_queued_in_one_step(serve, how, monkeypatch):
    settled: list[int] = []
    settle = Crawl.settle

    def note(self: Crawl, lease: Any, links: Any, *args: Any) -> Any:
        settled.append(sum(bool(link.request) for link in links))
        return settle(self, lease, links, *args)

    monkeypatch.setattr(Crawl, "settle", note)
    monkeypatch.setattr(page_links, "_MANY", 20)
    monkeypatch.setattr(page_links, "LINKS_A_READ", 5)
    monkeypatch.setattr(page_links, "_LINKS_A_STEP", 5)
    monkeypatch.setattr(intake, "AT_ONCE", 10)
    pages = [f"{PART}?{n}" for n in range(45)]
    serve({HOME: pages, **{url: [] for url in pages}})
    crawler = await crawl(Follow, how)
    assert crawler.stats.get_value("aopic/pages/visited") == 46
    assert max(settled) < 20


KILLED = """
import asyncio, os, signal
from scrapy import Request, Spider
from scrapy_aopic.session.session import Session

class Killed(Spider):
    name = "killed"
    start_urls = ["http://a.test/"]
    custom_settings = {settings!r}

    async def parse(self, response):
        self.done = asyncio.Event()
        for n in range(3):
            yield Request(f"http://a.test/{{n}}", self.part)
        if {waits}:
            await self.done.wait()
            job = Session.of(self.crawler).job
            before = job.commits
            while job.commits < before + 2:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        for n in range(3, 5):
            yield Request(f"http://a.test/{{n}}", self.part)

    def part(self, response):
        self.done.set()
        yield Request("http://a.test/part", self.last)

    def last(self, response):
        pass
"""


@pytest.mark.slow
def test_a_process_that_is_killed_while_one_waits_loses_nothing(serve, tmp_path):
    web = serve(PAGES)
    settings = {**ALONE, "AOPIC_STORE": "sqlite", "AOPIC_POLITENESS_FACTOR": 0, "AOPIC_DURABILITY": 20}
    settings |= {"JOBDIR": str(tmp_path / "job"), "AOPIC_MIN_GAP": 0.01, "LOG_LEVEL": "ERROR"}
    codes = []
    for waits in (True, False):
        (tmp_path / "killed.py").write_text(KILLED.format(settings=settings, waits=waits))
        line = [sys.executable, "-m", "scrapy", "runspider", "killed.py"]
        codes.append(processes.run(line, cwd=tmp_path, timeout=120).returncode)
        audit = check(tmp_path / "job")
        assert audit.violations == []
    assert codes == [-signal.SIGKILL, 0]
    assert (audit.queued, audit.visited) == (0, 7)
    assert set(web.asked) == set(PAGES)
    assert web.asked.count(HOME) == 2

"""Which pages are in memory at once: judged by the pages that callbacks have at the same time, and by the server's log."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response
from scrapy.statscollectors import StatsCollector
from scrapy.utils.test import get_crawler
from support import crawls
from support.small_web import Follow, crawl

from scrapy_aopic._engine import process_memory
from scrapy_aopic.session import bodies, footprint
from scrapy_aopic.session.stats import Stats
from scrapy_aopic.session.visit import Visits

LARGE = 60_000
SETTINGS = {"ADDONS": {"scrapy_aopic.Addon": 1}, "AOPIC_REPORT": False, "ROBOTSTXT_OBEY": False}


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """One large page may be read at a time."""
    monkeypatch.setattr(bodies, "READ", LARGE + 1000)
    monkeypatch.setattr(bodies, "SMALL", LARGE // 4)


def page(size: int, *, packed: bool = False) -> Answer:
    headers = {"Content-Type": "text/html"}
    body = b"<html><p>" + b"x" * size
    if packed:
        body = gzip.compress(body)
        headers["Content-Encoding"] = "gzip"
    return Answer(headers=headers, body=body)


class Reading(Follow):
    """Has its callbacks last until those of others could have begun, and counts those that last at the same time."""

    n_hosts = 12

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.n = self.most = 0

    async def start(self) -> AsyncIterator[Any]:
        for n in range(self.n_hosts):
            yield Request(f"http://h{n}.test/")

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        self.n += 1
        self.most = max(self.most, self.n)
        await asyncio.sleep(0.02)
        yield {"url": response.url}
        self.n -= 1


def hosts(answer: Any) -> dict[str, Any]:
    return {f"http://h{n}.test/": answer for n in range(Reading.n_hosts)}


class Late:
    """A downloader middleware that takes its time with each response, as one that solves riddles does."""

    async def process_response(self, request: Request, response: Response) -> Response:
        await asyncio.sleep(0.05)
        return response


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("way", [SETTINGS, SETTINGS | {"ADDONS": {}, "SCHEDULER": "scrapy_aopic.Scheduler"}])
async def test_large_pages_are_read_one_after_the_other(serve, packed, way):
    # Packed, none of them is larger than a small page: what they become decides.
    serve(hosts(page(LARGE, packed=packed)))
    crawler = await crawl(Reading, way)
    assert crawler.stats.get_value("aopic/pages/visited") == Reading.n_hosts
    assert crawler.spider.most == 1
    assert crawler.stats.get_value("aopic/memory/waited") >= 1  # how many: as fast as they come


class Meeting(Reading):
    """Has no callback end before all have begun."""

    n_hosts = 3

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._all_read = asyncio.Event()

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        self.n += 1
        if self.n == self.n_hosts:
            self._all_read.set()
        await self._all_read.wait()
        yield {"url": response.url}


@pytest.mark.parametrize("packed", [False, True])
async def test_small_pages_do_not_wait_for_each_other(serve, packed):
    serve(hosts(page(100, packed=packed)))
    crawler = await crawl(Meeting, SETTINGS | {"DOWNLOADER_MIDDLEWARES": {Late: 100}})
    assert crawler.stats.get_value("aopic/pages/visited") == Meeting.n_hosts
    assert not crawler.stats.get_value("aopic/memory/overtaken")


class Beside(Reading):
    """Reads no large page before all small ones of another host were asked for."""

    n_hosts, n_small = 8, 10

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.n_held = self.most_held = 0
        self.n_asked: set[int] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Beside:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.received, signals.bytes_received)
        return spider

    def received(self, data: bytes, request: Request) -> None:
        self.n_held += len(data)
        self.most_held = max(self.most_held, self.n_held)

    async def start(self) -> AsyncIterator[Any]:
        async for each in super().start():
            yield each
        yield Request("http://small.test/0")

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        if "small" in response.url:
            self.n += 1
            if self.n < self.n_small:
                yield Request(f"http://small.test/{self.n}")
        else:
            for _ in range(600):
                if self.n == self.n_small:
                    break
                await asyncio.sleep(0.1)
            self.n_asked.add(self.n)
        self.n_held -= len(response.body)


@pytest.mark.parametrize("is_fast", [False, True])
async def test_large_bodies_stop_no_request_and_do_not_come_all_at_once(serve, monkeypatch, is_fast):
    monkeypatch.setattr(bodies, "HELD", 10_000_000)
    size = 3_000_000
    small = {f"http://small.test/{n}": page(100) for n in range(Beside.n_small)}
    large = {f"http://h{n}.test/": page(size) for n in range(Beside.n_hosts)}
    serve(large | small)
    no_gap = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_MIN_GAP": 0}
    crawler = await crawl(Beside, SETTINGS | no_gap | {"AOPIC_FAST_DOWNLOADS": is_fast})
    assert crawler.stats.get_value("aopic/pages/visited") == Beside.n_hosts + Beside.n_small
    assert crawler.spider.n_asked == {Beside.n_small}
    # Half of the limit, one page, and what was read of each other before it was paused; without that all 24 MB.
    assert crawler.spider.most_held < bodies.HELD


async def test_callbacks_that_wait_for_each_other_end_and_the_log_names_the_page(serve, monkeypatch, caplog):
    monkeypatch.setattr(bodies, "PATIENCE", 1)
    serve(hosts(page(LARGE)))
    crawler = await crawl(Meeting, SETTINGS)
    assert crawler.stats.get_value("aopic/pages/visited") == Meeting.n_hosts
    assert crawler.stats.get_value("aopic/memory/overtaken") == 2
    (said,) = [record.getMessage() for record in caplog.records if "takes long" in record.getMessage()]
    assert "http://h" in said
    assert "AOPIC_MEMORY_MB" in said


async def test_a_page_whose_callback_or_middleware_fails_holds_up_no_other(serve):
    pages = hosts(page(LARGE))
    pages["http://h1.test/"] = Answer(500, body=b"x" * LARGE)
    pages["http://h2.test/"] = Answer(200, {"Content-Type": "image/png"}, b"x" * LARGE)
    pages["http://h3.test/"] = Answer(302, {"Location": "http://h4.test/"}, b"x" * LARGE)
    pages["http://h5.test/"] = Answer(404, body=b"x" * LARGE)
    pages["http://h6.test/"] = Answer(200, {"Content-Encoding": "gzip"}, b"no gzip" * 10_000)
    serve(pages)
    read: list[str] = []

    def parse(response: Response) -> Any:
        read.append(response.url)
        raise ValueError

    settings = SETTINGS | {"RETRY_ENABLED": False}
    await crawl(crawls.Visits, settings, start_urls=[*pages], parse=parse)
    assert {f"http://h{n}.test/" for n in (0, 4, 7, 8, 9, 10, 11)} <= set(read)


async def test_a_callback_that_fails_leaves_no_tree_behind(serve):
    serve(hosts(page(100)))
    roots: list[Any] = []

    def parse(response: Any) -> Any:
        assert response.selector is not None
        roots.append(response)
        raise ValueError

    gc.disable()
    try:
        await crawl(
            crawls.Visits, SETTINGS | {"CONCURRENT_REQUESTS": 1}, start_urls=[*hosts(None)], parse=parse
        )
    finally:
        gc.enable()
    assert len(roots) == Reading.n_hosts
    # At the end, as Scrapy 2.16 calls process_spider_exception some turns later; with the collector off, what is gone was let go.
    assert sum(response._cached_selector is not None for response in roots) == 0


# -- the process


class Numbers:
    """What a process has in memory, second by second, and what it gives back."""

    def __init__(self, *rows: int) -> None:
        self.rows = list(rows)
        self.n_given_back = 0

    def resident(self) -> int:
        return self.rows[0] * 1_000_000 if len(self.rows) == 1 else self.rows.pop(0) * 1_000_000

    def give_back(self) -> None:
        self.n_given_back += 1


def looked_at(numbers: Numbers, monkeypatch: pytest.MonkeyPatch, *, memory_mb: int = 256) -> StatsCollector:
    """Stats of a crawl whose memory was looked at until no number is left."""
    monkeypatch.setattr(footprint, "resident", numbers.resident)
    monkeypatch.setattr(footprint, "give_back", numbers.give_back)
    crawler = get_crawler()
    crawler._apply_settings()
    stats = Stats(crawler.stats)
    none = bodies.Bodies(crawler, Visits(lambda _: ("", b"")), stats, lambda _: None)
    found = footprint.Footprint(crawler, none, stats, memory_mb)
    while len(numbers.rows) > 1:
        found.beat()
    stats.flush()
    return crawler.stats


def test_memory_is_given_back_when_a_burst_has_left_it_and_not_again_and_again(monkeypatch):
    steady = Numbers(*[200, 230] * 30, 0)
    looked_at(steady, monkeypatch)
    assert steady.n_given_back == 0
    burst = Numbers(*[200] * 9, 500, 210, *[210] * 20, 0)
    stats = looked_at(burst, monkeypatch)
    assert burst.n_given_back == 1
    assert stats.get_value("aopic/memory/most_bytes") == 210_000_000
    grown = Numbers(*[200] * 9, *[500] * 40, 0)  # it is in use
    looked_at(grown, monkeypatch)
    assert grown.n_given_back == 1


def test_more_than_what_is_promised_is_said_once(monkeypatch, caplog):
    with caplog.at_level(logging.WARNING):
        stats = looked_at(Numbers(*[590] * 5, *[700] * 9, 0), monkeypatch)
    assert stats.get_value("aopic/memory/limit_bytes") == 596_000_000
    assert stats.get_value("aopic/memory/over") == 8  # one number was read after memory was given back
    (said,) = [record.getMessage() for record in caplog.records]
    for each in ("700 MB", "596 MB", "AOPIC_MEMORY_MB = 256"):
        assert each in said


async def test_the_page_that_takes_too_much_is_named(serve, monkeypatch, caplog):
    monkeypatch.setattr(footprint, "REST", -256)
    monkeypatch.setattr(footprint, "_EVERY", 1)
    serve({"http://h0.test/": page(LARGE)})

    class Slow(Reading):
        n_hosts = 1

        async def parse(self, response: Response) -> AsyncIterator[Any]:
            while not any("The largest page" in record.getMessage() for record in caplog.records):
                await asyncio.sleep(0.01)
                if any("No page is being read" in record.getMessage() for record in caplog.records):
                    return
            yield {"url": response.url}

    crawler = await crawl(Slow, SETTINGS)
    assert crawler.stats.get_value("item_scraped_count") == 1
    (said,) = [record.getMessage() for record in caplog.records if "The largest page" in record.getMessage()]
    assert "http://h0.test/" in said


def test_garbage_is_collected_unless_the_collector_was_switched_off():
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    was = gc.get_threshold()
    gc.disable()
    try:
        first = weakref.ref(Cycle())
        process_memory.give_back()
        assert first() is not None
        gc.enable()
        gc.set_threshold(0)
        process_memory.give_back()
        assert first() is not None
        gc.set_threshold(*was)
        process_memory.give_back()
        assert first() is None
    finally:
        gc.set_threshold(*was)
        gc.enable()


BODIES_AMONG_SMALL_ONES = """
import sys
from scrapy_aopic._engine.process_memory import resident, return_large_blocks
if sys.argv[1] == "returned":
    assert return_large_blocks()
body = b"x" * 20_000_000
del body  # whereupon glibc would keep all that are smaller
before, bodies, small = resident(), [], []
for _ in range(100):
    bodies.append(b"x" * 1_000_000)
    small.append(b"x" * 100_000)
del bodies
print(resident() - before)
"""


@pytest.mark.skipif(process_memory._trim() is None, reason="the C library is not glibc")
def test_large_bodies_leave_nothing_behind_among_small_ones():
    def left(how: str) -> int:
        line = [sys.executable, "-c", BODIES_AMONG_SMALL_ONES, how]
        env = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
        return int(subprocess.run(line, capture_output=True, check=True, env=env).stdout)

    assert left("kept") > 100_000_000  # or there is nothing to be shown
    assert left("returned") < 20_000_000


def test_who_has_set_the_c_library_is_left_alone(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert not process_memory.return_large_blocks.__wrapped__()


def test_a_system_without_glibc_gives_nothing_back(monkeypatch):
    class Musl:
        def __init__(self, _: None) -> None:
            pass

    monkeypatch.setattr("ctypes.CDLL", Musl)
    process_memory._trim.cache_clear()
    try:
        assert process_memory._trim() is None
        process_memory.give_back()
    finally:
        process_memory._trim.cache_clear()


@pytest.fixture(autouse=True)
def _no_trim_left() -> Iterator[None]:
    yield
    process_memory._trim.cache_clear()


def large_and_responses() -> list[object]:
    """Large bodies in frames of tracebacks, and responses, as far as they are not freed."""
    frames = [each.tb_frame for each in gc.get_objects() if isinstance(each, TracebackType)]
    values = [value for frame in frames for value in frame.f_locals.values()]
    return [
        each
        for each in values + gc.get_objects()
        if isinstance(each, HtmlResponse)
        or (isinstance(each, io.BytesIO) and not each.closed and each.getbuffer().nbytes > LARGE)
    ]


async def kept_by_garbage(spider: type[Spider], settings: dict[str, Any]) -> list[object]:
    """What is left after a crawl in which no garbage is collected, besides what other tests have left."""
    gc.collect()
    gc.disable()
    try:
        before = large_and_responses()
        await crawl(spider, settings)
        known = {id(each) for each in before}
        return [each for each in large_and_responses() if id(each) not in known]
    finally:
        gc.enable()


async def test_a_body_that_is_too_large_unpacked_is_gone_with_its_failure(serve):
    # Scrapy raises out of the function that unpacks it, and Twisted keeps the exception in a cycle with its frames.
    web = serve(hosts(page(100 * LARGE, packed=True)))
    assert await kept_by_garbage(Reading, SETTINGS | {"DOWNLOAD_MAXSIZE": 10 * LARGE}) == []
    assert len(web.asked) == Reading.n_hosts


class Failing(Reading):
    """Has its callbacks fail."""

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield {"n": len(response.css("p"))}
        raise ValueError(response.url)


async def test_a_page_whose_callback_failed_is_gone_with_its_failure(serve, caplog):
    caplog.set_level(logging.CRITICAL)  # records have the exception
    serve(hosts(page(LARGE)))
    assert await kept_by_garbage(Failing, SETTINGS) == []

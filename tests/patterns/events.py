"""Signals, an idle spider, and ways to close one."""

from __future__ import annotations

import asyncio
from functools import partial

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider, DontCloseSpider, DropItem, StopDownload

from .listing import JOB, SHOP, Differs, Plain, pattern, title, titles

signal = partial(pattern, "Signals")


class Listens(Plain):
    """Notes the signals that it is told of, and their arguments, in order."""

    told_of = ()

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        for name in cls.told_of:
            crawler.signals.connect(spider.listener(name), getattr(signals, name), weak=False)
        return spider

    def listener(self, name):
        def told(signal, sender, **arguments):
            seen = self.crawler.stats.get_value("noted/told", [])
            self.crawler.stats.set_value("noted/told", [*seen, f"{name}({', '.join(sorted(arguments))})"])

        return told


@signal(
    "of the spider, the engine and items, in order",
    titles("page 1"),
    noted={
        "told": [
            "spider_opened(spider)",
            "engine_started()",
            "item_scraped(item, response, spider)",
            "spider_idle(spider)",
            "spider_closed(reason, spider)",
            "engine_stopped()",
        ]
    },
)
class SignalsOfSpider(Listens):
    told_of = (
        "spider_opened", "engine_started", "item_scraped", "spider_idle", "spider_closed", "engine_stopped",
    )  # fmt: skip


@signal(
    "of a request and its response, in order",
    titles("page 1"),
    noted={
        "told": [
            "request_scheduled(request, spider)",
            "request_reached_downloader(request, spider)",
            "headers_received(body_length, headers, request, spider)",
            "bytes_received(data, request, spider)",
            "response_downloaded(request, response, spider)",
            "request_left_downloader(request, spider)",
            "response_received(request, response, spider)",
        ]
    },
    settings={"ROBOTSTXT_OBEY": False},
)
class SignalsOfRequest(Listens):
    told_of = (
        "request_scheduled", "request_reached_downloader", "headers_received", "bytes_received",
        "response_downloaded", "request_left_downloader", "response_received", "request_dropped",
    )  # fmt: skip


@signal(
    "`request_scheduled` and `request_dropped` for each link",
    [],
    noted={"scheduled": ["item/1", "item/2"], "dropped": ["item/1"]},
)
class SignalsOfLinks(Plain):
    def parse(self, response):
        self.crawler.signals.connect(self.scheduled, signals.request_scheduled)
        self.crawler.signals.connect(self.dropped, signals.request_dropped)
        for n in (1, 2, 1):
            yield response.follow(f"/item/{n}", self.parse_item)

    def parse_item(self, response):
        pass

    def scheduled(self, request):
        self.note("scheduled", request)

    def dropped(self, request):
        self.note("dropped", request)

    def note(self, what, request):
        names = set(self.crawler.stats.get_value(f"noted/{what}", []))
        self.crawler.stats.set_value(f"noted/{what}", sorted(names | {request.url.removeprefix(f"{SHOP}/")}))


@signal(
    "`spider_error`, with the failure and the response", [], noted={"error": "ZeroDivisionError of page 1"}
)
class SignalsOfErrors(Plain):
    def parse(self, response):
        self.crawler.signals.connect(self.error, signals.spider_error)
        return 1 / 0

    def error(self, failure, response):
        text = f"{failure.type.__name__} of {title(response)['title']}"
        self.crawler.stats.set_value("noted/error", text)


class Refuses:
    def process_item(self, item):
        raise DropItem("odd") if item["n"] % 2 else KeyError("even")


@signal(
    "`item_dropped` and `item_error`, with the item",
    [],
    noted={"KeyError": 2, "DropItem": 1},
    settings={"ITEM_PIPELINES": {Refuses: 1}},
)
class SignalsOfItems(Plain):
    def parse(self, response):
        self.crawler.signals.connect(self.dropped, signals.item_dropped)
        self.crawler.signals.connect(self.error, signals.item_error)
        yield from ({"n": n} for n in range(3))

    def dropped(self, item, response, exception):
        self.crawler.stats.inc_value(f"noted/{type(exception).__name__}", item["n"])

    def error(self, item, response, failure):
        self.crawler.stats.inc_value(f"noted/{failure.type.__name__}", item["n"])


@signal("`headers_received` that raises `StopDownload(fail=False)`", [{"length": 0}])
class StopsAtHeaders(Spider):
    start_urls = [f"{SHOP}/item/1"]

    async def start(self):
        self.crawler.signals.connect(self.stop, signals.headers_received)
        async for each in super().start():
            yield each

    def stop(self, request):
        if "/item/" in request.url:
            raise StopDownload(fail=False)

    def parse(self, response):
        yield {"length": len(response.body)}


@signal("`bytes_received` that raises `StopDownload(fail=True)`", [{"failed": "StopDownload"}])
class StopsAtBytes(Plain):
    async def start(self):
        self.crawler.signals.connect(self.stop, signals.bytes_received)
        yield Request(f"{SHOP}/item/1", errback=self.failed)

    def stop(self, request):
        if "/item/" in request.url:
            raise StopDownload(fail=True)

    def parse(self, response):
        yield {"length": len(response.body)}


@signal("handler of `item_scraped` that is a coroutine", titles("page 1"), noted={"scraped": 1})
class SlowHandler(Plain):
    def parse(self, response):
        self.crawler.signals.connect(self.scraped, signals.item_scraped)
        yield title(response)

    async def scraped(self, item):
        await asyncio.sleep(0.01)
        self.crawler.stats.inc_value("noted/scraped")


idle = partial(pattern, "Idle spider")
THREE = titles("item 1", "item 2", "item 3")


class Idles(Spider):
    """Asks ``idle()`` what to do when nothing is left."""

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        spider.left = [3, 2, 1]
        return spider

    def parse(self, response):
        yield title(response)


@idle("`spider_idle` that feeds requests from a queue, with `DontCloseSpider`", THREE)
class FeedsWhenIdle(Idles):
    async def start(self):
        for _ in ():
            yield

    def idle(self):
        if self.left:
            self.crawler.engine.crawl(Request(f"{SHOP}/item/{self.left.pop()}"))
            raise DontCloseSpider


@idle("`spider_idle` that feeds a request without `DontCloseSpider`", THREE)
class FeedsAndMayClose(Idles):
    start_urls = [f"{SHOP}/item/3"]

    def idle(self):
        if len(self.left) > 1:
            self.crawler.engine.crawl(Request(f"{SHOP}/item/{self.left.pop()}"))


@idle("`spider_idle` that raises `CloseSpider` with a reason", titles("item 3"), reason="nothing_left")
class ClosesWhenIdle(Idles):
    start_urls = [f"{SHOP}/item/3"]

    def idle(self):
        raise CloseSpider("nothing_left")


@idle("a task that feeds requests by `engine.crawl`, while `DontCloseSpider` holds the spider open", THREE)
class FedByTask(Idles):
    start_urls = [f"{SHOP}/item/3"]
    task = None

    def idle(self):
        if self.task is None:
            self.task = asyncio.ensure_future(self.feed())
        if len(self.left) > 1:
            raise DontCloseSpider

    async def feed(self):
        while len(self.left) > 1:
            await asyncio.sleep(0.01)
            self.crawler.engine.crawl(Request(f"{SHOP}/item/{self.left.pop()}"))


@idle("`engine.crawl` in a handler of `item_scraped`", titles("item 1", "page 1"))
class CrawlsInHandler(Plain):
    def parse(self, response):
        self.crawler.signals.connect(self.scraped, signals.item_scraped)
        yield title(response)

    def scraped(self, item):
        self.crawler.engine.crawl(Request(f"{SHOP}/item/1", self.parse_item))


closing = partial(pattern, "Closing")


def numbers(n):
    return [{"n": each} for each in range(n)]


class HeldOpen(Spider):
    """Is closed by something else than having nothing left."""

    start_urls = [f"{SHOP}/item/{n}" for n in range(3)]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self):
        raise DontCloseSpider

    def parse(self, response):
        yield {"n": int(response.url[-1])}


@closing(
    "`CLOSESPIDER_ITEMCOUNT`",
    numbers(3),
    reason="closespider_itemcount",
    settings={"CLOSESPIDER_ITEMCOUNT": 3},
)
class ClosesByItems(HeldOpen):
    pass


@closing(
    "`CLOSESPIDER_PAGECOUNT`",
    numbers(3),
    reason="closespider_pagecount",
    settings={"CLOSESPIDER_PAGECOUNT": 3, "ROBOTSTXT_OBEY": False},
)
class ClosesByPages(HeldOpen):
    pass


@closing(
    "`CLOSESPIDER_ERRORCOUNT`",
    numbers(3),
    reason="closespider_errorcount",
    settings={"CLOSESPIDER_ERRORCOUNT": 3},
)
class ClosesByErrors(HeldOpen):
    def parse(self, response):
        yield from super().parse(response)
        raise ValueError("wrong")


@closing("`CLOSESPIDER_TIMEOUT`", [], reason="closespider_timeout", settings={"CLOSESPIDER_TIMEOUT": 0.5})
class ClosesByTime(HeldOpen):
    start_urls = []


@closing(
    "`CLOSESPIDER_TIMEOUT_NO_ITEM`",
    [],
    reason="closespider_timeout_no_item",
    settings={"CLOSESPIDER_TIMEOUT_NO_ITEM": 1},
)
class ClosesWithoutItems(HeldOpen):
    start_urls = []


class Counts(Spider):
    """Goes on to the third page, and then does something."""

    start_urls = [f"{SHOP}/item/0"]

    def parse(self, response):
        n = int(response.url[-1])
        yield {"n": n}
        if n == 2:
            self.end()
        else:
            yield response.follow(f"/item/{n + 1}")


@closing("`CloseSpider` in a callback", numbers(3), reason="three")
class ClosesItself(Counts):
    def end(self):
        raise CloseSpider("three")


@closing("`CloseSpider` in an errback", [], reason="failed")
class ClosesInErrback(Spider):
    async def start(self):
        yield Request(f"{SHOP}/status/404", errback=self.failed)

    def failed(self, failure):
        raise CloseSpider("failed")


@closing("`engine.close_spider_async` in a callback", numbers(3), reason="by_hand")
class ClosesByEngine(Counts):
    def end(self):
        closing = self.crawler.engine.close_spider_async(reason="by_hand")
        self.task = asyncio.ensure_future(closing)


@closing("`crawler.stop_async` in a callback", numbers(3), reason="shutdown")
class Stops(Counts):
    def end(self):
        self.task = asyncio.ensure_future(self.crawler.stop_async())


@closing("`engine.pause` and `engine.unpause`", titles("item 1", "page 1"))
class Pauses(Plain):
    async def parse(self, response):
        self.crawler.engine.pause()
        yield title(response)
        yield response.follow("/item/1", self.parse_item)
        await asyncio.sleep(0.02)
        self.crawler.engine.unpause()


@closing(
    "stopped, and run again",
    [{"n": 0}, {"n": 1}] * 2,
    reason="stopped, stopped",
    runs=2,
    differs=[Differs(JOB, "With a job folder it goes on where it was stopped.", None)],
)
class GoesOn(Spider):
    async def start(self):
        yield Request(f"{SHOP}/item/0")

    async def parse(self, response):
        n = int(response.url[-1])
        yield {"n": n}
        if n == 1:
            self.task = asyncio.ensure_future(self.crawler.engine.close_spider_async(reason="stopped"))
            await asyncio.sleep(0.01)
        if n < 2:
            yield response.follow(f"/item/{n + 1}")

"""Every hook of downloader and spider middlewares, with each kind of value that it may return."""

from __future__ import annotations

import asyncio
from functools import partial

from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse

from .listing import FIRST, SHOP, OfCrawler, Plain, pattern, pattern_with, title, titles

download = partial(pattern, "Downloader middlewares")


def downloader(middleware, order=543):
    """Settings with a downloader middleware."""
    return {"DOWNLOADER_MIDDLEWARES": {middleware: order}}


class Titles(Plain):
    """Follows a link and says what comes of it, also if that is a failure."""

    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1", self.parse_item, errback=self.failed)


on_titles = partial(pattern_with, Titles, downloader, download)


class Hook:
    """Made by Scrapy; does something to requests for items only."""

    def applies(self, request):
        return "/item/1" in request.url


class SaysAdded(Spider):
    """Says what the server got as a header that a middleware adds."""

    start_urls = [f"{SHOP}/echo"]

    def parse(self, response):
        yield {"header": response.json()["headers"]["x-added"]}


@pattern_with(SaysAdded, downloader, download, "`process_request` changes the request", [{"header": "yes"}])
class AddsHeader:
    def process_request(self, request):
        request.headers["X-Added"] = "yes"


@on_titles("`process_request` returns a response", titles("made", "page 1"))
class MakesResponse(Hook):
    def process_request(self, request):
        if self.applies(request):
            return HtmlResponse(request.url, body=b"<title>made</title>", request=request)
        return None


@on_titles("`process_request` returns another request", titles("item 2", "page 1"))
class Replaces(Hook):
    def process_request(self, request):
        return request.replace(url=f"{SHOP}/item/2") if self.applies(request) else None


@on_titles("`process_request` raises `IgnoreRequest`", [{"failed": "IgnoreRequest"}, {"title": "page 1"}])
class Ignores(Hook):
    def process_request(self, request):
        if self.applies(request):
            raise IgnoreRequest("no items")


@pattern_with(SaysAdded, downloader, download, "`process_request` is a coroutine", [{"header": "late"}])
class Waits:
    async def process_request(self, request):
        await asyncio.sleep(0.01)
        request.headers["X-Added"] = "late"


class Downloads(Hook, OfCrawler):
    async def process_request(self, request):
        if self.applies(request):
            answer = await self.crawler.engine.download_async(Request(f"{SHOP}/item/2"))
            request.meta["before"] = title(answer)["title"]


@download(
    "`process_request` downloads something first, such as a token",
    [{"before": "item 2"}],
    settings=downloader(Downloads),
)
class ProcessRequestDownloads(Spider):
    start_urls = [f"{SHOP}/item/1"]

    def parse(self, response):
        yield {"before": response.meta["before"]}


@on_titles("`process_response` returns another response", titles("ITEM 1", "page 1"))
class Rewrites(Hook):
    def process_response(self, request, response):
        return response.replace(body=response.body.replace(b"item", b"ITEM"))


@on_titles("`process_response` returns a request", titles("item 2", "page 1"))
class AsksAgain(Hook):
    def process_response(self, request, response):
        return request.replace(url=f"{SHOP}/item/2") if self.applies(request) else response


@on_titles("`process_response` raises `IgnoreRequest`", [{"failed": "IgnoreRequest"}, {"title": "page 1"}])
class Rejects(Hook):
    def process_response(self, request, response):
        if self.applies(request):
            raise IgnoreRequest("no items")
        return response


class SeesStatuses(Hook):
    def process_response(self, request, response):
        request.meta.setdefault("statuses", []).append(response.status)
        return response


@download(
    "`process_response` sees each failure, also those that are retried",
    [{"statuses": [503, 503, 200]}],
    settings=downloader(SeesStatuses, 560),
)
class ProcessResponseSees(Spider):
    start_urls = [f"{SHOP}/status/503/2"]

    def parse(self, response):
        yield {"statuses": response.meta["statuses"]}


class Unreachable(Plain):
    """Asks for pages on a host that refuses connections."""

    start_urls = [f"http://127.0.0.1:1/item/{n}" for n in range(6)]
    custom_settings = {"RETRY_ENABLED": False}

    async def start(self):
        for url in self.start_urls:
            yield Request(url, errback=self.failed)


on_refused = partial(pattern_with, Unreachable, downloader, download)


@on_refused(
    "`process_exception` returns nothing",
    [{"failed": "DownloadConnectionRefusedError"}] * 6,
    noted={"DownloadConnectionRefusedError": 6},
)
class Notes(OfCrawler):
    def process_exception(self, request, exception):
        if not request.url.endswith("/robots.txt"):
            self.crawler.stats.inc_value(f"noted/{type(exception).__name__}")


@on_refused("`process_exception` returns a response", titles("excuse") * 6)
class Excuses(Hook):
    def process_exception(self, request, exception):
        return HtmlResponse(request.url, body=b"<title>excuse</title>", request=request)


@on_refused("`process_exception` returns a request for a mirror", [{"title": f"item {n}"} for n in range(6)])
class TriesMirror:
    def process_exception(self, request, exception):
        return request.replace(url=request.url.replace("http://127.0.0.1:1", SHOP))


@download(
    "`process_exception` is called once the retries are over",
    titles("item 0"),
    settings=downloader(TriesMirror),
)
class ProcessExceptionRetries(Unreachable):
    start_urls = ["http://127.0.0.1:1/item/0"]
    custom_settings = {"RETRY_TIMES": 1}


around_spider = partial(pattern, "Spider middlewares")


def of_spider(middleware, order=543):
    """Settings with a spider middleware."""
    return {"SPIDER_MIDDLEWARES": {middleware: order}}


around_titles = partial(pattern_with, Titles, of_spider, around_spider)


class SaysMarked(Plain):
    def parse(self, response):
        yield {"marked": response.meta.get("marked")}


@pattern_with(
    SaysMarked, of_spider, around_spider, "`process_spider_input` changes the response", [{"marked": True}]
)
class MarksInput:
    def process_spider_input(self, response):
        response.meta["marked"] = True


@around_titles(
    "`process_spider_input` raises, and the errback is called",
    [{"failed": "ValueError"}, {"title": "page 1"}],
)
class RefusesInput(Hook):
    def process_spider_input(self, response):
        if self.applies(response.request):
            raise ValueError("no items")


@around_titles(
    "`process_spider_output` drops, changes and adds items and requests", titles("ITEM 2", "added", "added")
)
class ChangesOutput(Hook):
    async def process_spider_output(self, response, result):
        async for each in result:
            if isinstance(each, Request):
                yield each.replace(url=f"{SHOP}/item/2")
            elif "page" not in each["title"]:
                yield {"title": each["title"].upper()}
        yield {"title": "added"}


class OldOutput(Hook):
    def process_spider_output(self, response, result):
        yield from result

    async def process_spider_output_async(self, response, result):
        async for each in result:
            yield each if isinstance(each, Request) else {"title": each["title"].upper()}


@around_spider(
    "`process_spider_output` beside `process_spider_output_async`",
    titles("ITEM 1", "PAGE 1"),
    settings=of_spider(OldOutput),
)
class SpiderOutputAsync(Titles):
    async def parse(self, response):
        for each in super().parse(response):
            yield each


class SlowOutput(Hook):
    async def process_spider_output(self, response, result):
        async for each in result:
            await asyncio.sleep(0.01)
            yield each


@around_spider(
    "`process_spider_output` waits, while the callback waits for a page that it has yielded",
    titles("item 1", "page 1"),
    settings=of_spider(SlowOutput),
)
class SpiderOutputWaits(Plain):
    async def parse(self, response):
        self.done = asyncio.Event()
        yield response.follow("/item/1", self.parse_item)
        await self.done.wait()
        yield title(response)

    def parse_item(self, response):
        self.done.set()
        yield title(response)


class Wrong(Titles):
    def parse_item(self, response):
        raise ValueError("this item is wrong")


around_wrong = partial(pattern_with, Wrong, of_spider, around_spider)


@around_wrong("`process_spider_exception` returns items", titles("page 1", "repaired ValueError"))
class Repairs(Hook):
    def process_spider_exception(self, response, exception):
        return [{"title": f"repaired {type(exception).__name__}"}]


class RepairsByRequest(Hook):
    def process_spider_exception(self, response, exception):
        return [response.request.replace(url=f"{SHOP}/item/2", callback=response.request.cb_kwargs.get("x"))]


@around_spider(
    "`process_spider_exception` returns requests",
    titles("item 2", "page 1"),
    settings=of_spider(RepairsByRequest),
)
class SpiderExceptionRequest(Wrong):
    def parse(self, response):
        if "page" in response.url:
            return super().parse(response)
        return [title(response)]


@around_wrong("`process_spider_exception` returns nothing, and the error is logged", titles("page 1"))
class LooksAway(Hook):
    def process_spider_exception(self, response, exception):
        return None


class AddsStart(Hook):
    async def process_start(self, start):
        async for each in start:
            yield each
        yield Request(f"{SHOP}/item/2")
        yield {"title": "of the middleware"}


@around_spider(
    "`process_start` adds requests and items",
    titles("item 1", "item 2", "of the middleware"),
    settings=of_spider(AddsStart),
)
class ProcessStart(Plain):
    start_urls = [f"{SHOP}/item/1"]


@around_spider(
    '`DEPTH_LIMIT`, `DEPTH_STATS_VERBOSE` and `meta["depth"]`',
    [{"depth": 0, "title": "page 1"}, {"depth": 1, "title": "item 1"}, {"depth": 1, "title": "page 2"}],
    settings={"DEPTH_LIMIT": 1, "DEPTH_STATS_VERBOSE": True},
)
class DepthLimit(Plain):
    def parse(self, response):
        yield {"depth": response.meta["depth"], **title(response)}
        yield from response.follow_all(css="a")


@around_spider("`URLLENGTH_LIMIT`", titles("page 1"), settings={"URLLENGTH_LIMIT": 24})
class UrlLength(Titles):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/" + "1" * 20, self.parse_item)


@around_spider("the `Referer` of a link", [{"referer": FIRST[0]}])
class Referer(Plain):
    def parse(self, response):
        yield response.follow("/echo", self.parse_echo)

    def parse_echo(self, response):
        yield {"referer": response.json()["headers"]["referer"]}

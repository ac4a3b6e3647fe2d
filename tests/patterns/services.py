"""Pipelines, media, feeds, cache, throttling, proxies and the rest of the settings around a spider."""

from __future__ import annotations

import asyncio
import os
from functools import partial

from scrapy import Request, Spider
from scrapy.exceptions import DropItem
from scrapy.http import HtmlResponse

from .listing import ADDON, ALL, FIRST, SHOP, Differs, OfCrawler, Plain, pattern, pattern_with, title, titles

pipelines = partial(pattern, "Pipelines")


class Pages(Plain):
    """Follows a list of three pages."""

    def parse(self, response):
        yield title(response)
        for link in response.css("a::attr(href)").getall():
            if "/page/" in link:
                yield response.follow(link)


PAGES = titles("page 1", "page 2", "page 3")


def pipeline(component):
    return {"ITEM_PIPELINES": {component: 1}}


on_pages = partial(pattern_with, Pages, pipeline, pipelines)


@on_pages("slow coroutine", [{**each, "slow": True} for each in PAGES])
class Slow:
    async def process_item(self, item):
        await asyncio.sleep(0.02)
        return {**item, "slow": True}


@on_pages("raises `DropItem`", [PAGES[0], PAGES[2]])
class Drops:
    def process_item(self, item):
        if item["title"] == "page 2":
            raise DropItem("not this one")
        return item


@on_pages("raises another exception", [PAGES[0], PAGES[2]])
class Breaks:
    def process_item(self, item):
        if item["title"] == "page 2":
            raise KeyError("broken")
        return item


@on_pages("`open_spider` and `close_spider` that are coroutines", PAGES, noted={"opened": True, "items": 3})
class Lifecycle(OfCrawler):
    async def open_spider(self):
        await asyncio.sleep(0.01)
        self.crawler.stats.set_value("noted/opened", True)

    def process_item(self, item):
        return item

    async def close_spider(self):
        await asyncio.sleep(0.01)
        self.crawler.stats.set_value("noted/items", self.crawler.stats.get_value("item_scraped_count"))


@on_pages("downloads something for each item", [{**each, "page": 3} for each in PAGES])
class Fetches(OfCrawler):
    async def process_item(self, item):
        answer = await self.crawler.engine.download_async(Request(f"{SHOP}/api?page=3"))
        return {**item, "page": answer.json()["page"]}


@on_pages("sends a request of its own by `engine.crawl`", [{"title": "item 9"}, *PAGES])
class Collects(OfCrawler):
    n_items = 0

    def process_item(self, item):
        self.n_items += 1
        if self.n_items == 2:
            self.crawler.engine.crawl(Request(f"{SHOP}/item/9", self.crawler.spider.parse))
        return item


@pattern_with(
    Plain,
    pipeline,
    pipelines,
    "awaits the page of a request that it sends by `engine.crawl`",
    [{"title": "page 1", "found": "item 1"}],
)
class AwaitsPage(OfCrawler):
    async def process_item(self, item):
        self.found = asyncio.get_running_loop().create_future()
        self.crawler.engine.crawl(Request(f"{SHOP}/item/1", self.parse_item))
        return {**item, "found": await self.found}

    def parse_item(self, response):
        self.found.set_result(title(response)["title"])


media = partial(pattern, "Files, images and feeds")


def stored(path, url, checksum):
    return {"checksum": checksum, "path": path, "status": "downloaded", "url": f"{SHOP}{url}"}


FILES = ["/file/a.bin", "/status/404"]
FILE = stored(
    "full/d4cbabbf0efea52a897294dbd11ae5fb99d13b11.bin", "/file/a.bin", "693e9af84d3dfcc71e640e005bdc5e2e"
)
IMAGE = stored(
    "full/17d79a936db5b302aa0bd35e65ef1c4e55a25983.jpg", "/image.png", "d6a5812b0b0a6180b00c3f18ff16a647"
)


@media(
    "`FilesPipeline`, one of whose files is not there",
    [{"file_urls": [f"{SHOP}{url}" for url in FILES], "files": [FILE]}],
    settings={"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": "{folder}/out"},
)
class Files(Plain):
    def parse(self, response):
        yield {"file_urls": [response.urljoin(url) for url in FILES]}


@media(
    "`ImagesPipeline`, with thumbnails",
    [{"image_urls": [f"{SHOP}/image.png"], "images": [IMAGE]}],
    settings={
        "ITEM_PIPELINES": {"scrapy.pipelines.images.ImagesPipeline": 1},
        "IMAGES_STORE": "{folder}/out",
        "IMAGES_THUMBS": {"small": (2, 2)},
    },
)
class Images(Plain):
    def parse(self, response):
        yield {"image_urls": [response.urljoin("/image.png")]}


@media(
    "`FEEDS` as JSON lines and CSV",
    PAGES,
    settings={
        "FEEDS": {
            "{folder}/out/items.jl": {"format": "jsonlines"},
            "{folder}/out/items.csv": {"format": "csv"},
        }
    },
)
class Feeds(Pages):
    pass


setting = partial(pattern, "Cache, throttling, proxies and slots")
CACHE = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": "{folder}/cache"}


@setting("HTTP cache", [{"cached": False}, {"cached": True}], settings=CACHE)
class Cache(Spider):
    start_urls = [f"{SHOP}/item/1"]

    def parse(self, response):
        cached = "cached" in response.flags
        yield {"cached": cached}
        if not cached:
            yield response.request.replace(dont_filter=True)


@setting(
    "HTTP cache by RFC 2616, and `dont_cache`",
    [{"cached": False}] * 2,
    settings={**CACHE, "HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"},
)
class CacheByRfc(Cache):
    def parse(self, response, again=True):
        yield {"cached": "cached" in response.flags}
        if again:
            yield response.request.replace(
                dont_filter=True, meta={"dont_cache": True}, cb_kwargs={"again": False}
            )


@setting(
    "AutoThrottle",
    PAGES,
    settings={"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.01, "DOWNLOAD_DELAY": 0.01},
)
class AutoThrottle(Pages):
    pass


@setting(
    "`DOWNLOAD_DELAY` and `CONCURRENT_REQUESTS_PER_DOMAIN`",
    PAGES,
    settings={"DOWNLOAD_DELAY": 0.01, "CONCURRENT_REQUESTS_PER_DOMAIN": 1},
)
class Delay(Pages):
    pass


class Meeting:
    """Lets no item through before three of them are on their way."""

    def __init__(self):
        self.are_three, self.n = asyncio.Event(), 0

    async def process_request(self, request):
        if "/item/" in request.url:
            self.n += 1
            if self.n == 3:
                self.are_three.set()
            await self.are_three.wait()


@setting(
    "several requests at once to a host of one's own: `CONCURRENT_REQUESTS_PER_DOMAIN`, and `connections` of `AOPIC_HOST_RULES`",
    titles("item 1", "item 2", "item 3"),
    settings={
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "AOPIC_HOST_RULES": {"shop.test": {"connections": 8}},
        "DOWNLOADER_MIDDLEWARES": {Meeting: 500},
    },
)
class AtOnce(Plain):
    def parse(self, response):
        for n in (1, 2, 3):
            yield Request(f"{SHOP}/item/{n}", self.parse_item)


@setting(
    "`DOWNLOAD_SLOTS`",
    [{"slot": "shop.test"}],
    settings={"DOWNLOAD_SLOTS": {"shop.test": {"concurrency": 1, "delay": 0.01}}},
)
class Slots(Plain):
    def parse_item(self, response):
        yield {"slot": response.meta["download_slot"]}

    parse = parse_item


@setting('`meta["download_slot"]`', [{"slot": "mine"}, {"slot": "mine"}])
class OwnSlot(Slots):
    async def start(self):
        yield Request(FIRST[0], meta={"download_slot": "mine"})

    def parse(self, response):
        yield {"slot": response.meta["download_slot"]}
        yield response.follow("/item/1", self.parse_item, meta={"download_slot": "mine"})


@setting('`meta["proxy"]` with a password', [{"authorization": "Basic YW5uOnNlY3JldA=="}])
class Proxy(Spider):
    async def start(self):
        proxy = os.environ["http_proxy"].replace("//", "//ann:secret@")
        yield Request(f"{SHOP}/echo", meta={"proxy": proxy})

    def parse(self, response):
        yield {"authorization": response.json()["headers"].get("proxy-authorization")}


class OwnHandler:
    lazy = False

    @classmethod
    def from_crawler(cls, crawler):
        return cls()

    async def download_request(self, request):
        return HtmlResponse(request.url, body=b"<title>made</title>", request=request)

    async def close(self):
        pass


OWN_HANDLER = {"DOWNLOAD_HANDLERS": {"made": OwnHandler}}


@setting(
    "`DOWNLOAD_HANDLERS`: a handler of one's own for a scheme, in a callback",
    titles("made", "page 1"),
    settings=OWN_HANDLER,
    differs=[
        Differs(
            ALL,
            "What a callback yields for a page of the web has to be `http` or `https`, so that no page can name a file of "
            "this machine. With `dont_filter=True`, or without the rule `scheme` in `AOPIC_URL_RULES`, it may be anything.",
            {"items": titles("page 1"), "request_depth_max": 0},
        )
    ],
)
class Handlers(Plain):
    def parse(self, response):
        yield title(response)
        yield Request("made://there/x", self.parse_made)

    def parse_made(self, response):
        yield title(response)


@setting("the same with `dont_filter=True`", titles("made"), settings=OWN_HANDLER)
class HandlersUnfiltered(Handlers):
    def parse(self, response):
        yield Request("made://there/x", self.parse_made, dont_filter=True)


@setting("`ROBOTSTXT_OBEY`", titles("page 1"), settings={"ROBOTSTXT_OBEY": True})
class ObeysRobots(Pages):
    def parse(self, response):
        yield title(response)
        yield response.follow("/forbidden")


@setting(
    "the default of `ROBOTSTXT_OBEY`",
    [{"status": 404}],
    differs=[
        Differs(
            ADDON,
            "The add-on obeys robots.txt unless you set `ROBOTSTXT_OBEY` to False.",
            {"items": [], "requests": {}},
        )
    ],
)
class RobotsByDefault(Spider):
    handle_httpstatus_list = [404]
    start_urls = [f"{SHOP}/forbidden"]

    def parse(self, response):
        yield {"status": response.status}


@setting('`meta["dont_obey_robotstxt"]`', [{"status": 404}], settings={"ROBOTSTXT_OBEY": True})
class IgnoresRobots(RobotsByDefault):
    async def start(self):
        yield Request(f"{SHOP}/forbidden", meta={"dont_obey_robotstxt": True})


@setting("files that are no pages, by a callback of their own", [{"bytes": 3}, {"pages": 1}])
class FetchesFiles(Plain):
    def parse(self, response):
        yield response.follow("/file/a.bin", self.parse_file)
        yield response.follow("/api?page=1", self.parse_api)

    def parse_file(self, response):
        yield {"bytes": len(response.body)}

    def parse_api(self, response):
        yield {"pages": response.json()["page"]}


@setting(
    "files that are no pages, as links with the page's own callback",
    [{"bytes": 3}, {"bytes": 3}],
    differs=[
        Differs(
            ADDON,
            "A broad crawl does not follow [links to files](urls.md#files-that-are-no-pages): `AOPIC_URL_RULES` and "
            "`AOPIC_CONTENT_TYPES`. A callback of their own makes them requests on purpose.",
            {"items": [], "requests": {"GET shop.test/links?to=/file/a.bin": 1}, "request_depth_max": 0},
        )
    ],
)
class FollowsFiles(Spider):
    start_urls = [f"{SHOP}/links?to=/file/a.bin"]

    def parse(self, response):
        if response.url.startswith(f"{SHOP}/file/"):
            yield {"bytes": len(response.body)}
        else:
            yield from response.follow_all(["/file/a.bin", "/file/a.pdf"])


@setting(
    "slots of the spider's settings: `CONCURRENT_ITEMS = 1`, `CONCURRENT_REQUESTS = 1`",
    PAGES,
    settings={"CONCURRENT_ITEMS": 1, "CONCURRENT_REQUESTS": 1},
)
class OneAtATime(Pages):
    pass

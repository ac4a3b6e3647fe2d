"""Pipelines, media, feeds, cache, throttling, proxies and the rest of the settings around a spider."""

from __future__ import annotations

import asyncio
import os

from scrapy import Request, Spider
from scrapy.exceptions import DropItem
from scrapy.http import HtmlResponse

from .listing import ADDON, ALL, FIRST, SHOP, Differs, Plain, pattern, pattern_with, title

GROUP = "Pipelines"


class Pages(Plain):
    """Follows a list of three pages."""

    def parse(self, response):
        yield title(response)
        for link in response.css("a::attr(href)").getall():
            if "/page/" in link:
                yield response.follow(link)


PAGES = [{"title": f"page {n}"} for n in (1, 2, 3)]


def pipeline(component):
    return {"ITEM_PIPELINES": {component: 1}}


@pattern_with(Pages, pipeline, GROUP, "slow coroutine", [{**each, "slow": True} for each in PAGES])
class Slow:
    async def process_item(self, item):
        await asyncio.sleep(0.02)
        return {**item, "slow": True}


@pattern_with(Pages, pipeline, GROUP, "raises `DropItem`", [PAGES[0], PAGES[2]])
class Drops:
    def process_item(self, item):
        if item["title"] == "page 2":
            raise DropItem("not this one")
        return item


@pattern_with(Pages, pipeline, GROUP, "raises another exception", [PAGES[0], PAGES[2]])
class Breaks:
    def process_item(self, item):
        if item["title"] == "page 2":
            raise KeyError("broken")
        return item


@pattern_with(
    Pages,
    pipeline,
    GROUP,
    "`open_spider` and `close_spider` that are coroutines",
    PAGES,
    noted={"opened": True, "items": 3},
)
class Lifecycle:
    def __init__(self, stats):
        self.stats = stats

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.stats)

    async def open_spider(self):
        await asyncio.sleep(0.01)
        self.stats.set_value("noted/opened", True)

    def process_item(self, item):
        return item

    async def close_spider(self):
        await asyncio.sleep(0.01)
        self.stats.set_value("noted/items", self.stats.get_value("item_scraped_count"))


@pattern_with(
    Pages, pipeline, GROUP, "downloads something for each item", [{**each, "page": 3} for each in PAGES]
)
class Fetches:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_item(self, item):
        answer = await self.crawler.engine.download_async(Request(f"{SHOP}/api?page=3"))
        return {**item, "page": answer.json()["page"]}


@pattern_with(
    Pages, pipeline, GROUP, "sends a request of its own by `engine.crawl`", [{"title": "item 9"}, *PAGES]
)
class Collects:
    def __init__(self, crawler):
        self.crawler, self.titles = crawler, []

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_item(self, item):
        self.titles.append(item["title"])
        if len(self.titles) == 2:
            self.crawler.engine.crawl(Request(f"{SHOP}/item/9", self.crawler.spider.parse))
        return item


@pattern_with(
    Plain,
    pipeline,
    GROUP,
    "awaits the page of a request that it sends by `engine.crawl`",
    [{"title": "page 1", "found": "item 1"}],
)
class AwaitsPage:
    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_item(self, item):
        self.found = asyncio.get_running_loop().create_future()
        self.crawler.engine.crawl(Request(f"{SHOP}/item/1", self.parse_item))
        return {**item, "found": await self.found}

    def parse_item(self, response):
        self.found.set_result(title(response)["title"])


GROUP_MEDIA = "Files, images and feeds"


def stored(path, url, checksum):
    return {"checksum": checksum, "path": path, "status": "downloaded", "url": f"{SHOP}{url}"}


FILES = ["/file/a.bin", "/status/404"]
FILE = stored(
    "full/d4cbabbf0efea52a897294dbd11ae5fb99d13b11.bin", "/file/a.bin", "693e9af84d3dfcc71e640e005bdc5e2e"
)
IMAGE = stored(
    "full/17d79a936db5b302aa0bd35e65ef1c4e55a25983.jpg", "/image.png", "d6a5812b0b0a6180b00c3f18ff16a647"
)


@pattern(
    GROUP_MEDIA,
    "`FilesPipeline`, one of whose files is not there",
    [{"file_urls": [f"{SHOP}{url}" for url in FILES], "files": [FILE]}],
    settings={"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": "{folder}/out"},
)
class Files(Plain):
    def parse(self, response):
        yield {"file_urls": [response.urljoin(url) for url in FILES]}


@pattern(
    GROUP_MEDIA,
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


@pattern(
    GROUP_MEDIA,
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


GROUP_SETTINGS = "Cache, throttling, proxies and slots"
CACHE = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": "{folder}/cache"}


@pattern(GROUP_SETTINGS, "HTTP cache", [{"cached": False}, {"cached": True}], settings=CACHE)
class Cache(Spider):
    start_urls = [f"{SHOP}/item/1"]

    def parse(self, response):
        cached = "cached" in response.flags
        yield {"cached": cached}
        if not cached:
            yield response.request.replace(dont_filter=True)


@pattern(
    GROUP_SETTINGS,
    "HTTP cache by RFC 2616, and `dont_cache`",
    [{"cached": False}] * 2,
    settings={**CACHE, "HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"},
)
class CacheByRfc(Spider):
    start_urls = [f"{SHOP}/item/1"]

    def parse(self, response, again=True):
        yield {"cached": "cached" in response.flags}
        if again:
            yield response.request.replace(
                dont_filter=True, meta={"dont_cache": True}, cb_kwargs={"again": False}
            )


@pattern(
    GROUP_SETTINGS,
    "AutoThrottle",
    PAGES,
    settings={"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.01, "DOWNLOAD_DELAY": 0.01},
)
class AutoThrottle(Pages):
    pass


@pattern(
    GROUP_SETTINGS,
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


@pattern(
    GROUP_SETTINGS,
    "several requests at once to a host of one's own: `CONCURRENT_REQUESTS_PER_DOMAIN`, and `connections` of `AOPIC_HOST_RULES`",
    [{"title": f"item {n}"} for n in (1, 2, 3)],
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

    def parse_item(self, response):
        yield title(response)


@pattern(
    GROUP_SETTINGS,
    "`DOWNLOAD_SLOTS`",
    [{"slot": "shop.test"}],
    settings={"DOWNLOAD_SLOTS": {"shop.test": {"concurrency": 1, "delay": 0.01}}},
)
class Slots(Plain):
    def parse(self, response):
        yield {"slot": response.meta["download_slot"]}


@pattern(GROUP_SETTINGS, '`meta["download_slot"]`', [{"slot": "mine"}, {"slot": "mine"}])
class OwnSlot(Spider):
    async def start(self):
        yield Request(FIRST[0], meta={"download_slot": "mine"})

    def parse(self, response):
        yield {"slot": response.meta["download_slot"]}
        yield response.follow("/item/1", self.parse_item, meta={"download_slot": "mine"})

    def parse_item(self, response):
        yield {"slot": response.meta["download_slot"]}


@pattern(GROUP_SETTINGS, '`meta["proxy"]` with a password', [{"authorization": "Basic YW5uOnNlY3JldA=="}])
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


@pattern(
    GROUP_SETTINGS,
    "`DOWNLOAD_HANDLERS`: a handler of one's own for a scheme, in a callback",
    [{"title": "made"}, {"title": "page 1"}],
    settings=OWN_HANDLER,
    differs=[
        Differs(
            ALL,
            "What a callback yields for a page of the web has to be `http` or `https`, so that no page can name a file of "
            "this machine. With `dont_filter=True`, or without the rule `scheme` in `AOPIC_URL_RULES`, it may be anything.",
            {"items": [{"title": "page 1"}], "request_depth_max": 0},
        )
    ],
)
class Handlers(Plain):
    def parse(self, response):
        yield title(response)
        yield Request("made://there/x", self.parse_made)

    def parse_made(self, response):
        yield title(response)


@pattern(GROUP_SETTINGS, "the same with `dont_filter=True`", [{"title": "made"}], settings=OWN_HANDLER)
class HandlersUnfiltered(Handlers):
    def parse(self, response):
        yield Request("made://there/x", self.parse_made, dont_filter=True)


@pattern(GROUP_SETTINGS, "`ROBOTSTXT_OBEY`", [{"title": "page 1"}], settings={"ROBOTSTXT_OBEY": True})
class ObeysRobots(Pages):
    def parse(self, response):
        yield title(response)
        yield response.follow("/forbidden")


@pattern(
    GROUP_SETTINGS,
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


@pattern(
    GROUP_SETTINGS, '`meta["dont_obey_robotstxt"]`', [{"status": 404}], settings={"ROBOTSTXT_OBEY": True}
)
class IgnoresRobots(Spider):
    handle_httpstatus_list = [404]

    async def start(self):
        yield Request(f"{SHOP}/forbidden", meta={"dont_obey_robotstxt": True})

    def parse(self, response):
        yield {"status": response.status}


@pattern(GROUP_SETTINGS, "files that are no pages, by a callback of their own", [{"bytes": 3}, {"pages": 1}])
class FetchesFiles(Plain):
    def parse(self, response):
        yield response.follow("/file/a.bin", self.parse_file)
        yield response.follow("/api?page=1", self.parse_api)

    def parse_file(self, response):
        yield {"bytes": len(response.body)}

    def parse_api(self, response):
        yield {"pages": response.json()["page"]}


@pattern(
    GROUP_SETTINGS,
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


@pattern(
    GROUP_SETTINGS,
    "slots of the spider's settings: `CONCURRENT_ITEMS = 1`, `CONCURRENT_REQUESTS = 1`",
    PAGES,
    settings={"CONCURRENT_ITEMS": 1, "CONCURRENT_REQUESTS": 1},
)
class OneAtATime(Pages):
    pass

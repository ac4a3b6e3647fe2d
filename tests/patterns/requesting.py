"""What requests are made of, and in which order they are sent."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from scrapy import FormRequest, Request, Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.http import JsonRequest
from scrapy.utils.request import RequestFingerprinter

from .listing import ADDON, ALL, FIRST, SHOP, Differs, Plain, pattern, title, titles

request = partial(pattern, "Requests")


class Echoes(Spider):
    """Says what the server got."""

    def parse(self, response):
        yield response.json()


def sent(method="GET", body="", **headers):
    return {"method": method, "body": body, "headers": headers}


@request(
    "`FormRequest`", [sent("POST", "a=1&b=%C3%A4", **{"content-type": "application/x-www-form-urlencoded"})]
)
class Form(Echoes):
    async def start(self):
        yield FormRequest(f"{SHOP}/echo", formdata={"a": "1", "b": "ä"})


@request("`FormRequest`s that differ only in their bodies", [{"body": f"page={n}"} for n in (1, 2, 3)])
class Forms(Plain):
    def parse(self, response):
        for n in (1, 2, 3, 3):
            yield FormRequest(f"{SHOP}/echo", formdata={"page": str(n)}, callback=self.parse_echo)

    def parse_echo(self, response):
        yield {"body": response.json()["body"]}


@request("`JsonRequest`", [{"body": '{"a": [1, null]}', "type": "application/json"}])
class Json(Spider):
    async def start(self):
        yield JsonRequest(f"{SHOP}/echo", data={"a": [1, None]})

    def parse(self, response):
        received = response.json()
        yield {"body": received["body"], "type": received["headers"]["content-type"]}


@request(
    "`PUT`, `PATCH`, `DELETE` and `OPTIONS`",
    [sent(method, "x") for method in ("DELETE", "OPTIONS", "PATCH", "PUT")],
)
class Methods(Echoes):
    async def start(self):
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
            yield Request(f"{SHOP}/echo", method=method, body="x")


@request("`HEAD`, and the page by `GET` after it", [{"length": 0}, {"title": "item 1"}])
class Head(Plain):
    async def start(self):
        yield Request(f"{SHOP}/item/1", method="HEAD")

    def parse(self, response):
        yield {"length": len(response.body)}
        yield response.follow("/item/1", self.parse_item)


@request("headers", [sent(**{"x-a": "1, 2", "x-b": "ä"})])
class Headers(Echoes):
    async def start(self):
        yield Request(f"{SHOP}/echo", headers={"X-A": ["1", "2"], "X-B": "ä".encode("latin-1")})


class Paged(Request):
    attributes = (*Request.attributes, "page")

    def __init__(self, *args, page=0, **kwargs):
        self.page = page
        super().__init__(*args, **kwargs)


@request("class of one's own, with an attribute of its own", [{"class": "Paged", "page": 7}])
class OwnClass(Plain):
    def parse(self, response):
        yield Paged(response.urljoin("/item/1"), self.parse_item, page=7)

    def parse_item(self, response):
        yield {"class": type(response.request).__name__, "page": response.request.page}


@request("`flags` and `meta` of all kinds", [{"flags": ["a"], "meta": {"b": b"x", "n": None, "t": (1, 2.5)}}])
class Meta(Plain):
    def parse(self, response):
        meta = {"t": (1, 2.5), "n": None, "b": b"x"}
        yield response.follow("/item/1", self.parse_item, meta=meta, flags=["a"])

    def parse_item(self, response):
        meta = {name: response.meta[name] for name in "bnt"}
        yield {"flags": response.request.flags, "meta": meta}


@request(
    "the `meta` of the page handed on to its links", [{"depth": 1, "of": "seed"}, {"depth": 2, "of": "seed"}]
)
class HandsMetaOn(Spider):
    async def start(self):
        yield Request(FIRST[0], meta={"of": "seed"})

    def parse(self, response):
        yield response.follow("/item/1", self.parse_item, meta=response.meta)

    def parse_item(self, response):
        yield {name: response.meta[name] for name in ("depth", "of")}
        if response.meta["depth"] == 1:
            yield response.follow("/item/2", self.parse_item, meta=response.meta)


KEYS = ["depth", "download_latency", "download_slot", "download_timeout", "mine", "proxy"]


@request(
    "the keys of `meta` that a callback sees",
    [{"keys": KEYS, "of the scheduler": False}],
    differs=[
        Differs(
            ALL,
            "The scheduler adds keys that begin with `_aopic`; a request may copy them with the rest of the `meta` of its page.",
            {"items": [{"keys": KEYS, "of the scheduler": True}]},
        )
    ],
)
class MetaKeys(Plain):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_item, meta={"mine": 1})

    def parse_item(self, response):
        yield {
            "keys": [key for key in sorted(response.meta) if not key.startswith("_")],
            "of the scheduler": any(key.startswith("_aopic") for key in response.meta),
        }


@request("an object in `meta` that cannot be written, such as a lock", [{"lock": True}])
class MetaLock(Plain):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_item, meta={"lock": threading.Lock()})

    def parse_item(self, response):
        with response.meta["lock"]:
            yield {"lock": response.meta["lock"].locked()}


@request("`data:` and `file:` URLs", [{"begins": "What requests"}, {"begins": "data"}])
class OtherSchemes(Spider):
    async def start(self):
        yield Request(Path(__file__).as_uri())
        yield Request("data:text/plain,data")

    def parse(self, response):
        yield {"begins": response.text.strip('"')[:13]}


@request(
    "URLs with spaces, umlauts, an empty query and parameters in another order",
    [{"target": "/echo?b=2&a=1"}, {"target": "/item/%C3%A4%20x"}],
)
class OddUrls(Spider):
    start_urls = [f"{SHOP}/echo?b=2&a=1", f"{SHOP}/item/ä x"]

    def parse(self, response):
        yield {"target": response.url.removeprefix(SHOP)}


duplicate = partial(pattern, "Duplicates")


@duplicate(
    "links back to the start page, for another callback",
    [{"list": "page 1"}, {"title": "page 1"}, {"title": "item 1"}],
)
class LinksBack(Plain):
    def parse(self, response):
        yield {"list": title(response)["title"]}
        for path in ("/page/1", "/item/1", "/page/1"):
            yield response.follow(path, self.parse_item)


@duplicate(
    "links back to the start page, for its own callback",
    titles("links to /page/1", "page 1", "page 1"),
    differs=[
        Differs(
            ALL,
            "Scrapy fetches it twice, as its filter does not know `start_urls`. Here a page is fetched "
            "[once for one purpose](requests.md#start-pages-and-links).",
            {
                "items": titles("links to /page/1", "page 1"),
                "requests": {"GET shop.test/links?to=/page/1": 1, "GET shop.test/page/1": 1},
                "callbacks": [("parse", f"{SHOP}/links?to=/page/1"), ("parse", FIRST[0])],
                "dupefilter/filtered": 1,
            },
        )
    ],
)
class LinksBackToParse(Spider):
    start_urls = [*FIRST, f"{SHOP}/links?to=/page/1"]

    def parse(self, response):
        yield title(response)
        if "links" in response.url:
            yield response.follow("/page/1", self.parse)


@duplicate(
    "the same link twice, with another fragment, and with its parameters in another order",
    titles("item 1", "item 2"),
)
class SameLink(Plain):
    def parse(self, response):
        for path in ("/item/1", "/item/1", "/item/1#x", "/item/2?b=1&a=2", "/item/2?a=2&b=1"):
            yield response.follow(path, self.parse_item)


@duplicate("`dont_filter`", titles("item 1") * 3)
class DontFilter(Plain):
    def parse(self, response):
        for _ in range(3):
            yield response.follow("/item/1", self.parse_item, dont_filter=True)


@duplicate("one URL for two callbacks: only the first is called", [{"by": "one"}])
class TwoCallbacks(Plain):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_one)
        yield response.follow("/item/1", self.parse_two)

    def parse_one(self, response):
        yield {"by": "one"}

    def parse_two(self, response):
        yield {"by": "two"}


class WithoutQuery(RequestFingerprinter):
    def fingerprint(self, request):
        return super().fingerprint(request.replace(url=request.url.partition("?")[0]))


@duplicate(
    "`REQUEST_FINGERPRINTER_CLASS` that ignores queries",
    titles("item 1"),
    settings={"REQUEST_FINGERPRINTER_CLASS": WithoutQuery},
)
class OwnFingerprints(Plain):
    def parse(self, response):
        yield response.follow("/item/1?session=a", self.parse_item)
        yield response.follow("/item/1?session=b", self.parse_item)


class WithoutItems(RFPDupeFilter):
    def request_seen(self, request):
        return "/item/" in request.url or super().request_seen(request)


@duplicate(
    "`DUPEFILTER_CLASS` of one's own that drops items",
    titles("page 1", "page 2"),
    settings={"DUPEFILTER_CLASS": WithoutItems},
)
class OwnDupeFilter(Plain):
    def parse(self, response):
        yield title(response)
        yield response.follow("/item/1")
        if response.url.endswith("1"):
            yield response.follow("/page/2")


@duplicate(
    "`DUPEFILTER_CLASS` that filters nothing",
    titles("item 1") * 2,
    settings={"DUPEFILTER_CLASS": BaseDupeFilter},
)
class NoDupeFilter(Plain):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_item)
        yield response.follow("/item/1", self.parse_item)


@duplicate("pages with the same text", titles("same") * 3)
class SameText(Spider):
    start_urls = [f"{SHOP}/same/1"]

    def parse(self, response):
        yield title(response)
        yield from response.follow_all(css="a")


marked = partial(pattern, "Marks for robots")
MARKED = [f"{SHOP}/marked"]
MARKED_AND_ITEMS = titles("marked", "item 1", "item 2")


@marked(
    "links of a page that asks robots not to follow them",
    MARKED_AND_ITEMS,
    differs=[
        Differs(
            ADDON,
            "They are not followed (`AOPIC_PAGE_ROBOTS`), as [robots.txt](robots.md#marks-on-pages) says.",
            {"items": titles("marked"), "requests": {"GET shop.test/marked": 1}, "request_depth_max": 0},
        )
    ],
)
class MarkedPage(Spider):
    start_urls = MARKED

    def parse(self, response):
        yield title(response)
        yield from response.follow_all(css="a")


@marked("requests on purpose, for another callback, on such a page", MARKED_AND_ITEMS)
class MarkedPageOnPurpose(Plain):
    start_urls = MARKED

    def parse(self, response):
        yield title(response)
        yield from response.follow_all(css="a", callback=self.parse_item)


ONE = {"CONCURRENT_REQUESTS": 1}


def in_order(text, order, *, differs=(), **settings):
    """A pattern of an :class:`Ordered` spider, whose pages come one by one in this *order*."""
    return pattern("Order", text, [], settings={**ONE, **settings}, noted={"order": order}, differs=differs)


class Ordered(Plain):
    """Notes the order in which its pages come."""

    def note(self, what):
        order = self.crawler.stats.get_value("noted/order", [])
        self.crawler.stats.set_value("noted/order", [*order, what])

    def parse_item(self, response):
        self.note(title(response)["title"])


@in_order("priorities of links", ["item 5", "item 1", "item 0", "item -1"])
class Priorities(Ordered):
    def parse(self, response):
        for priority in (0, 5, -1, 1):
            yield response.follow(f"/item/{priority}", self.parse_item, priority=priority)


@in_order(
    "a page with links of priorities from 5 to 200",
    [f"item {n}" for n in (200, 100, 80, 70, 60, 50, 40, 30, 20, 10, 5)],
)
class ManyPriorities(Ordered):
    def parse(self, response):
        for priority in (30, 5, 10, 200, 20, 40, 100, 50, 60, 80, 70):
            yield response.follow(f"/item/{priority}", self.parse_item, priority=priority)


DATES = [20_260_101 + 100 * month + day for month in range(12) for day in (0, 14)]


@in_order(
    "dates and numbers of 20 digits as priorities",
    [f"item {n}" for n in (10**18, *sorted(DATES, reverse=True), -(10**18))],
)
class Dates(Ordered):
    def parse(self, response):
        for priority in (-(10**18), *DATES[::2], 10**18, *DATES[1::2]):
            yield response.follow(f"/item/{priority}", self.parse_item, priority=priority)


class Lists(Ordered):
    """Three lists, each with two items and a further list."""

    of_items = of_lists = 0

    def parse(self, response):
        for n in (1, 2, 3):
            yield self.list(response, n)

    def list(self, response, n):
        return response.follow(
            f"/page/1?list={n}", self.parse_list, priority=self.of_lists, cb_kwargs={"n": n}
        )

    def parse_list(self, response, n):
        self.note("list")
        if n < 4:
            yield self.list(response, 10 * n)
        for item in (1, 2):
            yield response.follow(f"/item/{n}/{item}", self.parse_item, priority=self.of_items)

    def parse_item(self, response):
        self.note("item")


ITEMS_FIRST = {"order": ["list", "item", "item"] * 6, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1}


@in_order("items before further lists, with priority 1", **ITEMS_FIRST)
class ItemsFirst(Lists):
    of_items = 1


@in_order("items before further lists, with priority 10", **ITEMS_FIRST)
class ItemsFarFirst(Lists):
    of_items = 10


@in_order("lists behind all items, with priority -1", **ITEMS_FIRST)
class ListsLast(Lists):
    of_lists = -1


class Urgent:
    """Gives what is requested for a spider the number in its URL as priority."""

    def process_spider_output(self, response, result):
        for each in result:
            yield (
                each.replace(priority=int(each.url.rpartition("/")[2])) if isinstance(each, Request) else each
            )

    async def process_spider_output_async(self, response, result):
        async for each in result:
            yield (
                each.replace(priority=int(each.url.rpartition("/")[2])) if isinstance(each, Request) else each
            )


@in_order(
    "a spider middleware that sets priorities",
    ["item 3", "item 2", "item 1", "item -4"],
    SPIDER_MIDDLEWARES={Urgent: 50},
)
class ByMiddleware(Ordered):
    def parse(self, response):
        for n in (1, 3, -4, 2):
            yield response.follow(f"/item/{n}", self.parse_item)


@in_order(
    "a page again, with `dont_filter` and a priority, while others wait", ["item 3", "page 1", "item 2"]
)
class AgainFirst(Ordered):
    def parse(self, response):
        yield response.follow("/item/2", self.parse_item, priority=2)
        yield response.request.replace(callback=self.parse_item, priority=5, dont_filter=True)
        yield response.follow("/item/3", self.parse_item, priority=7)


@in_order(
    "a page with a priority that fails at first, or is redirected",
    ["at last 503", "item 1", "item 5", "item 0"],
)
class FailsFirst(Ordered):
    def parse(self, response):
        yield response.follow("/item/0", self.parse_item)
        yield response.follow("/redirect/302?to=/item/1", self.parse_item, priority=10)
        yield response.follow("/item/5", self.parse_item, priority=5)
        yield response.follow("/status/503/2", self.parse_item, priority=20)


@in_order(
    "links of one priority",
    ["item 3", "item 2", "item 1"],
    differs=[
        Differs(
            ALL,
            "Scrapy sends the last one first. Here the page with the most importance is first, and the first of those with the same.",
            {"noted": {"order": ["item 1", "item 2", "item 3"]}},
        )
    ],
)
class SamePriority(Ordered):
    def parse(self, response):
        for n in (1, 2, 3):
            yield response.follow(f"/item/{n}", self.parse_item)


@in_order(
    "priorities in `start()`, whose first request is sent at once",
    ["item 0", "item 2", "item 1"],
    ROBOTSTXT_OBEY=False,
)
class StartPriorities(Ordered):
    async def start(self):
        for n in (0, 1, 2):
            yield Request(f"{SHOP}/item/{n}", self.parse_item, priority=n)


@in_order("a chain of requests, each of the callback before", ["item 1", "item 2", "item 3"])
class Chain(Ordered):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_item, cb_kwargs={"n": 1})

    def parse_item(self, response, n):
        super().parse_item(response)
        if n < 3:
            yield response.follow(f"/item/{n + 1}", self.parse_item, cb_kwargs={"n": n + 1})


@in_order(
    "breadth first, as Scrapy's FAQ says: `DEPTH_PRIORITY` and FIFO queues",
    ["item a", "item b", "item a/c", "item b/d"],
    DEPTH_PRIORITY=1,
    SCHEDULER_DISK_QUEUE="scrapy.squeues.PickleFifoDiskQueue",
    SCHEDULER_MEMORY_QUEUE="scrapy.squeues.FifoMemoryQueue",
)
class BreadthFirst(Ordered):
    def parse(self, response):
        yield response.follow("/item/a", self.parse_more, cb_kwargs={"more": "/item/a/c"})
        yield response.follow("/item/b", self.parse_more, cb_kwargs={"more": "/item/b/d"})

    def parse_more(self, response, more):
        self.parse_item(response)
        yield response.follow(more, self.parse_item)

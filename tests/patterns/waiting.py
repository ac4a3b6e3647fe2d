"""Callbacks and ``start()`` that wait for something."""

from __future__ import annotations

import asyncio
from functools import partial

from scrapy import Request, Spider, signals
from scrapy.exceptions import CloseSpider, DownloadFailedError
from scrapy.utils.defer import maybe_deferred_to_future

from .listing import FIRST, JOB, SHOP, Differs, Plain, pattern, title, titles

waits = partial(pattern, "Waiting callbacks")
GIVES = titles("item 1", "page 1")
PAGES = [{"page": 1}, {"page": 2}, {"page": 3}]


@waits("awaits a page that it has yielded", GIVES)
class AwaitsYielded(Plain):
    async def parse(self, response):
        self.done = asyncio.Event()
        yield response.follow("/item/1", self.parse_item)
        await self.done.wait()
        yield title(response)

    def parse_item(self, response):
        self.done.set()
        yield title(response)


@waits("awaits a form that it has yielded, with a priority, behind an item and a sleep", GIVES)
class AwaitsForm(Plain):
    async def parse(self, response):
        self.done = asyncio.Event()
        yield title(response)
        await asyncio.sleep(0.01)
        yield Request(f"{SHOP}/item/1", self.parse_item, method="POST", priority=5, dont_filter=True)
        await self.done.wait()

    def parse_item(self, response):
        self.done.set()
        yield title(response)


@waits("coordinates two callbacks by an `asyncio.Queue`", titles("item 1", "item 2"))
class AwaitsQueue(Plain):
    async def parse(self, response):
        self.found = asyncio.Queue()
        for n in (1, 2):
            yield response.follow(f"/item/{n}", self.parse_item)
            yield await self.found.get()

    async def parse_item(self, response):
        await self.found.put(title(response))


@waits("awaits pages of other hosts that it has yielded", titles("item a", "item b"))
class AwaitsHosts(Plain):
    async def parse(self, response):
        self.left, self.done = 2, asyncio.Event()
        for host in "ab":
            yield Request(f"http://{host}.test/item/{host}", self.parse_item)
        await self.done.wait()

    def parse_item(self, response):
        self.left -= 1
        if not self.left:
            self.done.set()
        yield title(response)


@waits("errback that awaits a page that it has yielded", GIVES)
class ErrbackAwaits(Spider):
    async def start(self):
        yield Request(f"{SHOP}/status/404", errback=self.failed)

    async def failed(self, failure):
        self.done = asyncio.Event()
        yield Request(f"{SHOP}/item/1", self.parse_item)
        await self.done.wait()
        yield {"title": "page 1"}

    def parse_item(self, response):
        self.done.set()
        yield title(response)


@waits("sleeps between what it yields", GIVES)
class Sleeps(Plain):
    async def parse(self, response):
        yield response.follow("/item/1", self.parse_item)
        await asyncio.sleep(0.01)
        yield title(response)

    async def parse_item(self, response):
        await asyncio.sleep(0.01)
        yield title(response)


@waits("polls a page until work is done, by requests", [{"polls": 3}])
class Polls(Spider):
    start_urls = [f"{SHOP}/work"]

    def parse(self, response, polls=1):
        if response.json()["state"] == "done":
            yield {"polls": polls}
        else:
            yield response.request.replace(dont_filter=True, cb_kwargs={"polls": polls + 1})


@waits("polls a page until work is done, inline, with sleeps", [{"polls": 3}])
class PollsInline(Plain):
    async def parse(self, response):
        polls = 0
        while True:
            polls += 1
            answer = await self.crawler.engine.download_async(Request(f"{SHOP}/work", dont_filter=True))
            if answer.json()["state"] == "done":
                break
            await asyncio.sleep(0.01)
        yield {"polls": polls}


@waits("pages an API by requests", PAGES)
class PagesApi(Spider):
    start_urls = [f"{SHOP}/api"]

    def parse(self, response):
        data = response.json()
        yield {"page": data["page"]}
        if data["next"]:
            yield response.follow(data["next"])


@waits("pages an API inline, in a loop", PAGES)
class PagesInline(Plain):
    async def parse(self, response):
        following = "/api"
        while following:
            answer = await self.crawler.engine.download_async(response.follow(following))
            yield {"page": answer.json()["page"]}
            following = answer.json()["next"]


@waits("gathers several pages inline", [{"titles": ["item 1", "item 2", "item 3"]}])
class Gathers(Plain):
    async def parse(self, response):
        requests = [response.follow(f"/item/{n}") for n in (1, 2, 3)]
        answers = await asyncio.gather(*map(self.crawler.engine.download_async, requests))
        yield {"titles": [title(answer)["title"] for answer in answers]}


@waits("downloads inline by a `Deferred`, and yields requests behind it", GIVES)
class InlineDeferred(Plain):
    async def parse(self, response):
        answer = await maybe_deferred_to_future(self.crawler.engine.download(response.follow("/page/1")))
        yield title(answer)
        yield response.follow("/item/1", self.parse_item)


@waits("catches the failure of a page that it downloads inline", [{"failed": "DownloadFailedError"}])
class InlineFailure(Plain):
    custom_settings = {"RETRY_TIMES": 0}

    async def parse(self, response):
        try:
            await self.crawler.engine.download_async(response.follow("/reset"))
        except DownloadFailedError as error:
            yield {"failed": type(error).__name__}


@waits("starts tasks of its own, and gathers them", [{"titles": ["item 1", "item 2"]}])
class Tasks(Plain):
    async def parse(self, response):
        tasks = [asyncio.create_task(self.fetch(response.follow(f"/item/{n}"))) for n in (1, 2)]
        yield {"titles": sorted(await asyncio.gather(*tasks))}

    async def fetch(self, request):
        return title(await self.crawler.engine.download_async(request))["title"]


in_parts = partial(pattern, "Items from several pages")


@in_parts("an item that is handed on in `cb_kwargs`", [{"page": "page 1", "item": "item 1"}])
class HandsOn(Plain):
    def parse(self, response):
        item = {"page": title(response)["title"]}
        yield response.follow("/item/1", self.parse_item, cb_kwargs={"item": item})

    def parse_item(self, response, item):
        item["item"] = title(response)["title"]
        yield item


@in_parts("an item that is handed on in `meta`", [{"page": "page 1", "item": "item 1"}])
class HandsOnMeta(Plain):
    def parse(self, response):
        yield response.follow("/item/1", self.parse_item, meta={"page": title(response)["title"]})

    def parse_item(self, response):
        yield {"page": response.meta["page"], "item": title(response)["title"]}


COPIES = Differs(
    JOB, "With a job folder requests are written to the disk, so that each has a copy of its own.", None
)


@in_parts(
    "an item that several requests share, yielded by the last one",
    [{"titles": ["item 1", "item 2", "item 3"]}],
    differs=[COPIES],
)
class SharesItem(Plain):
    def parse(self, response):
        shared = {"titles": [], "left": 3}
        for n in (1, 2, 3):
            yield response.follow(f"/item/{n}", self.parse_item, cb_kwargs={"shared": shared})

    def parse_item(self, response, shared):
        shared["titles"].append(title(response)["title"])
        shared["left"] -= 1
        if not shared["left"]:
            yield {"titles": sorted(shared["titles"])}


@in_parts("an object in `meta` that is the same one in the callback", [{"same": True}], differs=[COPIES])
class SameObject(Plain):
    def parse(self, response):
        self.box = ["box"]
        yield response.follow("/item/1", self.parse_item, meta={"box": self.box})

    def parse_item(self, response):
        yield {"same": response.meta["box"] is self.box}


class Text(str):
    __slots__ = ()


@in_parts(
    "a `bytearray` and a subclass of `str` in `cb_kwargs`",
    [{"types": ["Text", "bytearray"]}],
    differs=[
        Differs(
            JOB,
            "A job folder has no pickles, and so no types of yours: a subclass of `str` comes back as `str`.",
            {"items": [{"types": ["str", "bytearray"]}]},
        )
    ],
)
class SameTypes(Plain):
    def parse(self, response):
        kwargs = {"a": Text("a"), "b": bytearray(b"b")}
        yield response.follow("/item/1", self.parse_item, cb_kwargs=kwargs)

    def parse_item(self, response, a, b):
        yield {"types": [type(a).__name__, type(b).__name__]}


@in_parts(
    "an item whose pages are requested one after the other from a list", [{"titles": ["item 1", "item 2"]}]
)
class WorksThroughList(Plain):
    def parse(self, response):
        return self.next_page(response, ["/item/1", "/item/2"], [])

    def next_page(self, response, left, titles):
        if not left:
            yield {"titles": titles}
        else:
            yield response.follow(left[0], self.parse_item, cb_kwargs={"left": left[1:], "titles": titles})

    def parse_item(self, response, left, titles):
        return self.next_page(response, left, [*titles, title(response)["title"]])


starts = partial(pattern, "`start()`")


@starts("`start_urls` with the same URL twice", titles("page 1") * 2)
class StartTwice(Plain):
    start_urls = FIRST * 2


@starts("yields items, and requests with callbacks of their own", [*GIVES, {"n": 1}])
class StartYields(Plain):
    async def start(self):
        yield {"n": 1}
        yield Request(FIRST[0])
        yield Request(f"{SHOP}/item/1", self.parse_item, priority=1)


@starts("sleeps between requests", GIVES)
class StartSleeps(Plain):
    async def start(self):
        yield Request(FIRST[0])
        await asyncio.sleep(0.05)
        yield Request(f"{SHOP}/item/1")


@starts("awaits the page of each request before the next", titles("item 1", "item 2", "item 3"))
class StartAwaits(Spider):
    async def start(self):
        for n in (1, 2, 3):
            self.done = asyncio.Event()
            yield Request(f"{SHOP}/item/{n}")
            await self.done.wait()

    def parse(self, response):
        self.done.set()
        yield title(response)


@starts(
    "never ends, until a callback closes the spider", titles("item 0", "item 1", "item 2"), reason="enough"
)
class StartNeverEnds(Spider):
    async def start(self):
        self.free, n = asyncio.Event(), 0
        while True:
            yield Request(f"{SHOP}/item/{n}", cb_kwargs={"n": n})
            await self.free.wait()
            self.free.clear()
            n += 1

    def parse(self, response, n):
        yield title(response)
        if n == 2:
            raise CloseSpider("enough")
        self.free.set()


@starts("downloads inline", titles("item 1"))
class StartInline(Plain):
    async def start(self):
        response = await self.crawler.engine.download_async(Request(FIRST[0]))
        yield response.follow("/item/1")


@starts("yields the next request when the scheduler is empty", titles("item 1", "item 2", "item 3"))
class StartLazily(Plain):
    async def start(self):
        for n in (1, 2, 3):
            yield Request(f"{SHOP}/item/{n}")
            await self.crawler.signals.wait_for(signals.scheduler_empty)


@starts("raises behind a request", titles("page 1"), reason=None)
class StartRaises(Plain):
    async def start(self):
        yield Request(FIRST[0])
        raise ValueError("no more")

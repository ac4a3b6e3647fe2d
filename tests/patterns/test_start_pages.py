"""A page that is asked for on purpose, and links to it: which callbacks it reaches, beside stock Scrapy.

Each way in which a spider, or whoever runs it, asks for a page is tried with links that are for the same, for another callback,
errback or ``cb_kwargs``: behind it, while it waits, on the page itself, and before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import DontCloseSpider
from scrapy.spiders import SitemapSpider
from support.naming import case

from scrapy_aopic import Links
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.seed_files import put_list
from scrapy_aopic.seeds.adding import Seed, add_seeds
from scrapy_aopic.web.request_rows import pack_values

from .listing import SHOP, Pattern
from .shop import Site
from .ways import run, serve

PAGE = f"{SHOP}/item/1"
HUB = f"{SHOP}/links?to=/item/1"
LIST = f"{SHOP}/page/3"
PATIENCE = 60

LINKS: dict[str, Callable[[Any, Any], Any]] = {
    "the same": lambda spider, response: response.follow(PAGE),
    "the same by name": lambda spider, response: response.follow(PAGE, spider.parse),
    "callback": lambda spider, response: response.follow(PAGE, spider.detail),
    "errback": lambda spider, response: response.follow(PAGE, errback=spider.failed),
    "cb_kwargs": lambda spider, response: response.follow(PAGE, cb_kwargs={"n": 2}),
    "meta and callback": lambda spider, response: response.follow(PAGE, spider.detail, meta={"a": [1]}),
    "function": lambda spider, response: response.follow(PAGE, partial(spider.detail)),
}
"""What the links to the page are for."""


class Asks(Spider):
    """Asks for a page, and follows links to it: two on each page that has any."""

    when = "behind"
    link = staticmethod(LINKS["the same"])
    has_linked = has_asked = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_fetched, self.is_queued = asyncio.Event(), asyncio.Event()

    def parse(self, response, n=1):
        yield {"by": "parse", "n": n, "errback": response.request.errback is not None}
        yield from self.on_page(response)

    def detail(self, response):
        yield {"by": "detail"}
        yield from self.on_page(response)

    def failed(self, failure):
        yield {"by": "errback"}

    def on_page(self, response):
        """What follows from the page itself, once."""
        self.is_fetched.set()
        if self.when in ("behind", "itself") and not self.has_linked:
            self.has_linked = True
            if self.when == "behind":
                yield Request(HUB, self.links)
            else:
                yield from self.links(response)

    def links(self, response):
        for _ in range(2):
            yield self.link(self, response)

    def ask(self, **more):
        return Request(PAGE, dont_filter=True, **more)


class StartUrls(Asks):
    start_urls = [PAGE]


class Starts(Asks):
    async def start(self):
        if self.when != "behind":
            yield Request(HUB, self.links_in_time)
        if self.when == "before":  # the hub is read, and then what it links to
            await self.is_fetched.wait()
        yield self.ask(priority=-1)
        self.is_queued.set()

    async def links_in_time(self, response):
        if self.when == "waiting":  # nothing says which is first, the rest of start() or the hub
            await self.is_queued.wait()
        for each in self.links(response):
            yield each


class StartsFiltered(Starts):
    def ask(self, **more):
        return Request(PAGE, **more)


class Calls(Asks):
    """A callback asks for the page."""

    async def start(self):
        yield Request(HUB, self.links) if self.when == "before" else Request(LIST, self.asks)

    def asks(self, response):
        yield self.ask(priority=-1)
        if self.when == "waiting":
            yield Request(HUB, self.links)
        elif self.when == "together":
            yield from self.links(response)

    def on_page(self, response):
        yield from super().on_page(response)
        if self.when == "before" and not self.has_asked:
            self.has_asked = True
            yield self.ask()


class Retries(Asks):
    async def start(self):
        yield Request(PAGE)

    def on_page(self, response):
        if not self.has_asked:
            self.has_asked = True
            yield get_retry_request(response.request, spider=self, reason="once more")
        else:
            yield from super().on_page(response)


class Refreshes(StartUrls):
    def on_page(self, response):
        if not self.has_asked:
            self.has_asked = True
            yield self.ask()
        else:
            yield from super().on_page(response)


class IsPushed(Asks):
    """As a ``RedisSpider`` does, it takes what is pushed when it is idle."""

    async def start(self):
        yield Request(LIST if self.when == "behind" else HUB, self.begin)

    def begin(self, response):
        return () if self.when == "behind" else self.links(response)

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.push, signal=signals.spider_idle)
        return spider

    def push(self):
        if not self.has_asked:
            self.has_asked = True
            self.crawler.engine.crawl(self.ask())
            raise DontCloseSpider


class IsInSitemap(SitemapSpider, Asks):
    sitemap_urls = [f"{SHOP}/sitemap.xml"]

    def sitemap_filter(self, entries):
        return (entry for entry in entries if entry["loc"] == PAGE)


@dataclass(frozen=True)
class Way:
    """A way to ask for the page.

    Attributes:
        whens: When links lead to it.
        knows: Whether Scrapy's filter knows the page from then on.
    """

    spider: type[Asks]
    whens: tuple[str, ...]
    knows: bool = False


WAYS_IN = {
    "start_urls": Way(StartUrls, ("behind", "itself")),
    "start()": Way(Starts, ("behind", "waiting", "before")),
    "start() without dont_filter": Way(StartsFiltered, ("behind", "waiting", "before"), knows=True),
    "callback": Way(Calls, ("behind", "waiting", "together", "before")),
    "retry": Way(Retries, ("behind",), knows=True),
    "refresh": Way(Refreshes, ("behind",)),
    "pushed": Way(IsPushed, ("behind", "before")),
    "sitemap": Way(IsInSitemap, ("behind",), knows=True),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:scrapy.exceptions.ScrapyDeprecationWarning"),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serve() as site:
        yield site


def asking(spider: type[Spider], when: str, link: str, **settings: Any) -> Pattern:
    """A pattern of *spider* whose links are for what *link* says."""
    name = f"{spider.__name__}, {when}, {link}"
    made = type(spider.__name__, (spider,), {"name": name, "when": when, "link": staticmethod(LINKS[link])})
    return Pattern(name, "", "", made, [], settings=settings)


async def come_of(pattern: Pattern, way: str, site: Site, folder: Path) -> tuple[list[Any], list[Any], Any]:
    """Items, callbacks with their pages, and requests at the server, of a *pattern*."""
    found = await run(pattern, way, site, folder, PATIENCE)
    assert (found["reason"], found["errors"]) == ("finished", 0)
    return found["items"], found["callbacks"], found["requests"]


def once_less(found: tuple[list[Any], list[Any], dict[str, int]]) -> tuple[list[Any], list[Any], Any]:
    """What would come of it if the page were fetched once less for ``parse``."""
    items, callbacks, requests = found
    items.remove({"by": "parse", "n": 1, "errback": False})
    callbacks.remove(("parse", PAGE))
    target = "GET shop.test/item/1"
    return items, callbacks, {**requests, target: requests[target] - 1}


@pytest.mark.parametrize("name", WAYS_IN)
async def test_a_page_reaches_the_callbacks_that_it_reaches_with_stock_scrapy(name, site):
    way_in = WAYS_IN[name]
    for when in way_in.whens:
        for link in LINKS:
            pattern = asking(way_in.spider, when, link)
            with TemporaryDirectory() as folder, case(f"{when}, {link}"):
                wanted = await come_of(pattern, "stock", site, Path(folder, "stock"))
                if "same" in link and not way_in.knows and when != "before":
                    wanted = once_less(wanted)  # once is enough for one purpose
                for way in ("alone", "add-on, job"):
                    assert await come_of(pattern, way, site, Path(folder, way)) == wanted, way


async def sown(link: str, how: str, site: Site, folder: Path) -> tuple[list[Any], list[Any], Any]:
    """What comes of the page as a seed."""
    folder.mkdir()
    settings: dict[str, Any] = {}
    if how == "AOPIC_SEEDS":
        (folder / "seeds.txt").write_text(f"{PAGE}\n")
        settings["AOPIC_SEEDS"] = str(folder / "seeds.txt")
    elif how == "seed":
        (folder / "job").mkdir()
        add_seeds(FolderPlace(folder / "job"), [PAGE])
    else:
        (folder / "job").mkdir()
        request = pack_values({"url": PAGE, "dont_filter": True})
        with FolderPlace(folder / "job").adding_seeds() as seeds:
            put_list(seeds, [Seed(PAGE, None, request).line()], "")
    return await come_of(asking(Asks, "behind", link, **settings), "add-on, job", site, folder)


@pytest.mark.parametrize("how", ["AOPIC_SEEDS", "seed", "import"])
async def test_a_seed_reaches_the_callbacks_that_a_start_url_reaches(how, site):
    for link in LINKS:
        with TemporaryDirectory() as folder, case(link):
            wanted = await come_of(asking(StartUrls, "behind", link), "stock", site, Path(folder, "stock"))
            wanted = once_less(wanted) if "same" in link else wanted
            assert await sown(link, how, site, Path(folder, how)) == wanted


async def test_links_objects_lead_to_a_start_page_as_well(site):
    """They are no requests on their way to the queue."""

    class YieldsLinks(StartUrls):
        def links(self, response):
            for _ in range(2):
                yield Links(response, callback=self.detail)

    with TemporaryDirectory() as folder:
        pattern = asking(YieldsLinks, "behind", "callback")
        for way in ("alone", "add-on, job"):
            items, callbacks, _ = await come_of(pattern, way, site, Path(folder, way))
            assert items == [{"by": "detail"}, {"by": "parse", "n": 1, "errback": False}], way
            assert callbacks == [("detail", PAGE), ("links", HUB), ("parse", PAGE)], way

"""Spiders of the kinds that people write: under the scheduler alone they ask for and yield what they do under Scrapy's.

Under the add-on, too, unless the difference is wanted and the log names the setting.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from demo_web.server import Answer, Exchange
from scrapy import FormRequest, Request, Spider, signals
from scrapy.http import JsonRequest, Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider, XMLFeedSpider
from scrapy.utils.defer import deferred_f_from_coro_f
from support.small_web import Web, crawl, html

Serve = Callable[[dict[str, Any]], Web]

HOME = "http://a.test/"
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
MODES: dict[str, dict[str, Any]] = {
    "stock": {},
    "alone": {"SCHEDULER": "scrapy_aopic.Scheduler"},
    "addon": ADDON,
    "addon with cookies": {**ADDON, "COOKIES_ENABLED": True},
}


class Site:
    """Pages under ``http://a.test``, and what was asked of them: method, target and cookies."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self._pages = pages

    def served(self) -> dict[str, Any]:
        return {f"http://a.test{target}": self._page(page) for target, page in self._pages.items()}

    def _page(self, page: Any) -> Callable[[Exchange], Answer]:
        def answer(exchange: Exchange) -> Answer:
            self.asked.append((exchange.method, exchange.target, exchange.headers.get("cookie", "")))
            made = page(exchange) if callable(page) else page
            if isinstance(made, Answer):
                return made
            if isinstance(made, list):
                return Answer(headers={"Content-Type": "text/html"}, body=html(made, exchange.target))
            return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(made).encode())

        return answer


def xml(text: str, kind: str = "application/xml") -> Answer:
    return Answer(headers={"Content-Type": kind}, body=text.encode())


# The kinds


class Rules(CrawlSpider):
    """Follows what its rules say; pages with sessions, many parameters and odd paths among it."""

    name = "rules"
    start_urls = [HOME]
    rules = [
        Rule(LinkExtractor(allow="/list"), follow=True),
        Rule(
            LinkExtractor(allow="/item"), callback="parse_item", errback="failed", cb_kwargs={"kind": "item"}
        ),
    ]
    site: ClassVar[dict[str, Any]] = {
        "/": ["/list/1", "/list/2"],
        "/list/1": ["/list/2", "/item/1", "/item/2?utm_source=list", "/item/2"],
        "/list/2": ["/list/1", "/item/2", "/item/a/a/a/a/a", "/item/gone"],
        **{target: [] for target in ("/item/1", "/item/2?utm_source=list", "/item/2", "/item/a/a/a/a/a")},
    }

    def parse_item(self, response: Response, kind: str) -> Iterator[Any]:
        yield {kind: response.url}

    def failed(self, failure: Any) -> Iterator[Any]:
        yield {"failed": failure.request.url}


class Sitemaps(SitemapSpider):
    """Takes what a compressed sitemap behind an index names."""

    name = "sitemaps"
    sitemap_urls = ["http://a.test/index.xml"]
    sitemap_rules = [("/product/", "parse_product"), ("/data/", "parse_data")]
    _ns = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    _urls = "".join(
        f"<url><loc>http://a.test/{each}</loc></url>" for each in ("product/1", "data/2.json", "c")
    )
    site: ClassVar[dict[str, Any]] = {
        "/index.xml": xml(
            f"<sitemapindex {_ns}><sitemap><loc>http://a.test/a.xml.gz</loc></sitemap></sitemapindex>"
        ),
        "/a.xml.gz": Answer(
            headers={"Content-Type": "application/octet-stream"},
            body=gzip.compress(f"<urlset {_ns}>{_urls}</urlset>".encode()),
        ),
        "/product/1": [],
        "/data/2.json": {"n": 2},
    }

    def parse_product(self, response: Response) -> Iterator[Any]:
        yield {"product": response.url}

    def parse_data(self, response: Response) -> Iterator[Any]:
        yield response.json()


class Login(Spider):
    """Sends a form with the token of its page, and goes on with the session."""

    name = "login"
    start_urls = ["http://a.test/login"]
    site: ClassVar[dict[str, Any]] = {
        "/login": lambda exchange: (
            Answer(302, {"Location": "/private", "Set-Cookie": "user=me"})
            if exchange.method == "POST"
            else Answer(
                headers={"Content-Type": "text/html", "Set-Cookie": "session=1"},
                body=b'<form action="/login" method="post"><input name="token" value="t"></form>',
            )
        ),
        "/private": lambda exchange: {"user": "user=me" in exchange.headers.get("cookie", "")},
    }

    def parse(self, response: Response) -> Iterator[Any]:
        form = {"token": response.css("input::attr(value)").get(), "user": "me"}
        yield FormRequest(response.url, formdata=form, callback=self.parse_private)

    def parse_private(self, response: Response) -> Iterator[Any]:
        yield response.json()


class Api(Spider):
    """Pages through JSON: by the next page's number, and by POST to one URL."""

    name = "api"
    start_urls = ["http://a.test/api?page=1"]
    site: ClassVar[dict[str, Any]] = {
        **{f"/api?page={n}": {"next": n + 1 if n < 4 else None} for n in range(1, 5)},
        "/search": lambda exchange: {"length": exchange.headers["content-length"]},
    }

    def parse(self, response: Response) -> Iterator[Any]:
        data = response.json()
        yield data
        if data["next"]:
            yield Request(f"http://a.test/api?page={data['next']}")
        else:
            for number in (5, 50, 500):
                yield JsonRequest("http://a.test/search", data={"offset": number}, callback=self.parse_found)

    def parse_found(self, response: Response) -> Iterator[Any]:
        yield response.json()


class Sessions(Spider):
    """Crawls in two sessions at once, each with a cookie jar of its own."""

    name = "sessions"
    site: ClassVar[dict[str, Any]] = {
        **{f"/{n}": Answer(headers={"Set-Cookie": f"n={n}", "Content-Type": "text/html"}) for n in (1, 2)},
        "/cart": lambda exchange: {"cookie": exchange.headers.get("cookie", "")},
    }

    async def start(self) -> AsyncIterator[Any]:
        for number in (1, 2):
            yield Request(f"http://a.test/{number}", meta={"cookiejar": number}, cookies={"c": str(number)})

    def parse(self, response: Response) -> Iterator[Any]:
        jar = response.meta["cookiejar"]
        yield Request("http://a.test/cart", self.parse_cart, meta={"cookiejar": jar}, dont_filter=True)

    def parse_cart(self, response: Response) -> Iterator[Any]:
        yield {"jar": response.meta["cookiejar"], "cookies": sorted(response.json()["cookie"].split("; "))}


class Details(Spider):
    """Lists whose entries share pages and data; tells them apart by ``cb_kwargs``, and asks inline."""

    name = "details"
    start_urls = ["http://a.test/page/1"]
    site: ClassVar[dict[str, Any]] = {
        **{f"/page/{n}": [f"/author/{n % 2}", f"/item/{n}", f"/page/{n + 1}"] for n in range(1, 4)},
        "/page/4": ["/item/3"],
        **{f"/author/{n}": [] for n in range(2)},
        **{f"/item/{n}": [] for n in range(1, 4)},
        **{f"/price/{n}": {"price": n} for n in range(1, 4)},
    }

    def parse(self, response: Response) -> Iterator[Any]:
        for link in LinkExtractor(allow="/author/").extract_links(response):
            yield response.follow(link, self.parse_author, cb_kwargs={"page": 0}, priority=-5)
        yield from response.follow_all(css='a[href*="/item/"]', callback=self.parse_item, meta=response.meta)
        yield from response.follow_all(css='a[href*="/page/"]')

    def parse_author(self, response: Response, page: int) -> Iterator[Any]:
        yield {"author": response.url, "page": page}

    async def parse_item(self, response: Response) -> AsyncIterator[Any]:
        assert self.crawler.engine is not None
        price = await self.crawler.engine.download_async(
            Request(response.url.replace("/item/", "/price/"), priority=10)
        )
        yield {"item": response.url, **price.json()}


class Again(Spider):
    """Asks for one page until it says what it should, and reads errors itself."""

    name = "again"
    start_urls = ["http://a.test/busy"]
    handle_httpstatus_list = [404]
    site: ClassVar[dict[str, Any]] = {}

    def parse(self, response: Response) -> Iterator[Any]:
        tries = response.meta.get("tries", 0)
        if tries < 3:
            yield response.request.replace(dont_filter=True, meta={"tries": tries + 1})
            return
        yield {"tries": tries}
        yield Request("http://a.test/missing", self.parse_missing)
        yield Request("http://a.test/broken", self.parse_missing, errback=self.failed)

    def parse_missing(self, response: Response) -> Iterator[Any]:
        yield {"status": response.status}

    def failed(self, failure: Any) -> Iterator[Any]:
        yield {"failed": failure.value.response.status}
        yield Request("http://a.test/elsewhere", self.parse_missing)


class Files(Spider):
    """Fetches files by a callback and by a pipeline."""

    name = "files"
    start_urls = [HOME]
    custom_settings: ClassVar[dict[str, Any]] = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
    }
    site: ClassVar[dict[str, Any]] = {
        "/": ["/a.pdf"],
        "/a.pdf": Answer(headers={"Content-Type": "application/pdf"}, body=b"%PDF"),
        "/b.zip": Answer(headers={"Content-Type": "application/zip"}, body=b"PK"),
    }

    def parse(self, response: Response) -> Iterator[Any]:
        yield from response.follow_all(css="a", callback=self.save)
        yield {"file_urls": ["http://a.test/b.zip"]}

    def save(self, response: Response) -> Iterator[Any]:
        yield {"saved": response.url, "bytes": len(response.body)}


class Moved(Spider):
    """Reads what redirects lead to, and where from; some go to a page that is known, some end nowhere."""

    name = "moved"
    start_urls = [HOME]
    site: ClassVar[dict[str, Any]] = {
        "/": ["/old", "/temporary", "/chain", "/refresh", "/later"],
        "/old": Answer(301, {"Location": "/new?gclid=1"}),
        "/temporary": Answer(302, {"Location": "/found"}),
        "/chain": Answer(301, {"Location": "/chain2"}),
        "/chain2": Answer(308, {"Location": "/end.json"}),
        "/end.json": {"end": True},
        "/refresh": Answer(
            headers={"Content-Type": "text/html"},
            body=b'<html><head><meta http-equiv="refresh" content="0; url=/refreshed"></head></html>',
        ),
        "/later": Answer(404),
        **{target: [] for target in ("/new?gclid=1", "/found", "/refreshed")},
    }

    def parse(self, response: Response) -> Iterator[Any]:
        yield from response.follow_all(css="a", callback=self.parse_target)

    def parse_target(self, response: Response) -> Iterator[Any]:
        yield {"at": response.url, "from": response.meta.get("redirect_urls")}


class Feed(XMLFeedSpider):
    """Reads a feed, and the pages that it names."""

    name = "feed"
    start_urls = ["http://a.test/feed"]
    itertag = "item"
    site: ClassVar[dict[str, Any]] = {
        "/feed": xml(
            "<rss><channel>"
            + "".join(f"<item><link>http://a.test/story/{n}?sid={'a1' * 16}</link></item>" for n in range(3))
            + "</channel></rss>",
            "application/rss+xml",
        ),
        **{f"/story/{n}?sid={'a1' * 16}": [] for n in range(3)},
    }

    def parse_node(self, response: Response, selector: Any) -> Iterator[Any]:
        yield Request(selector.xpath("link/text()").get(), self.parse_story)

    def parse_story(self, response: Response) -> Iterator[Any]:
        yield {"story": response.url}


class Shop(Spider):
    """Pages whose words are the same and whose links and data are not, as in shops; each names a canonical page."""

    name = "shop"
    start_urls = [f"http://a.test/shop/{n}" for n in range(3)]
    site: ClassVar[dict[str, Any]] = {
        **{
            f"/shop/{n}": Answer(
                headers={"Content-Type": "text/html"},
                body=b'<html><head><link rel="canonical" href="/shop"></head><p>Our products</p>'
                b"<a href=/product/%d>Details</a></html>" % n,
            )
            for n in range(3)
        },
        **{f"/product/{n}": [f"/odd/{'/'.join('x' * 40)}"] for n in range(3)},
        f"/odd/{'/'.join('x' * 40)}": [],
        "/shop": [],
    }

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": response.url}
        yield from response.follow_all(css="a")


# The comparison


async def outcome(
    serve: Serve, spider: type[Spider], mode: str, folder: Path
) -> tuple[Counter[Any], Counter[str]]:
    """What *spider* asked for, and the items that it yielded."""
    broken = Answer(500, {"Content-Type": "text/html"})
    site = Site(
        {**spider.site, "/busy": [], "/broken": broken, "/elsewhere": [], "/missing": Answer(404)}  # type: ignore[attr-defined]
    )
    serve(site.served())
    items: list[Any] = []
    settings = {"RETRY_TIMES": 1, "FILES_STORE": str(folder), "DOWNLOAD_DELAY": 0, **MODES[mode]}
    crawler = await crawl(
        spider,
        settings,
        told={signals.item_scraped: lambda item: items.append(json.dumps(item, default=str))},
    )
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert crawler.stats.get_value("aopic/errors") is None
    assert crawler.stats.get_value("spider_exceptions/count") is None
    return Counter(site.asked), Counter(items)


KINDS = [Rules, Sitemaps, Login, Api, Sessions, Details, Again, Files, Moved, Feed, Shop]
WANTED_UNDER_THE_ADDON: dict[type[Spider], str] = {
    Rules: "AOPIC_URL_LIMITS: repeats",
    Login: "COOKIES_ENABLED",
    Sessions: "COOKIES_ENABLED",
    Shop: "AOPIC_URL_LIMITS: depth",
}
"""Spiders that it makes another crawl of, and the setting that the log names."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["alone", "addon"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@deferred_f_from_coro_f
async def test_a_spider_asks_for_and_yields_what_it_does_under_scrapys_scheduler(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[Spider], mode: str
) -> None:
    asked, items = await outcome(serve, kind, "stock", tmp_path / "stock")
    assert asked
    assert items
    caplog.clear()
    again_asked, again_items = await outcome(serve, kind, mode, tmp_path / mode)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if mode == "addon" and kind in WANTED_UNDER_THE_ADDON:
        assert (again_asked, again_items) != (asked, items)
        assert sum(WANTED_UNDER_THE_ADDON[kind] in text for text in logged) == 1
        return
    assert again_asked == asked
    assert again_items == items


@pytest.mark.parametrize("kind", [Login, Sessions], ids=lambda kind: kind.name)
@deferred_f_from_coro_f
async def test_with_cookies_the_addon_logs_in(serve: Serve, tmp_path: Path, kind: type[Spider]) -> None:
    expected = await outcome(serve, kind, "stock", tmp_path)
    assert await outcome(serve, kind, "addon with cookies", tmp_path) == expected

"""Links in batches leave the same job behind as links that come as requests, one by one."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable, Iterator
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
from demo_web.server import Answer
from msgspec.structs import replace
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.referer import RefererMiddleware
from support import crawls
from support.crawls import in_folder
from support.naming import case
from support.small_web import Follow, Web, crawl

from scrapy_aopic import Links, Scheduler
from scrapy_aopic._engine.direct_requests import Shortcut
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import unpack_page
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.session import visit
from scrapy_aopic.session.session import Session
from scrapy_aopic.storage import open_snapshot

Serve = Callable[[dict[str, Any]], Web]


def page(body: str, charset: str = "utf-8", **headers: str) -> Answer:
    """A page with some words of its own and *body*."""
    kind = {"Content-Type": f"text/html; charset={charset}"}
    return Answer(headers={**kind, **headers}, body=body.encode(charset, "xmlcharrefreplace"))


def anchors(*urls: str) -> str:
    return " ".join(f'<a href="{url}">to {url}</a>' for url in urls)


TRAP = "/a" * 30
WEB: dict[str, Any] = {
    "http://a.test/": page(
        "<title>home</title>"
        + anchors(
            "/1",
            "/2",
            "/1#part",
            "/",
            "sub/page?b=2&a=1",
            "http://b.test/",
            "//c.test/x",
            "HTTP://B.test:80/%7ex",
            "/2",
        )
        + anchors(
            "/same/1",
            "/same/2",
            "/go",
            "/gone",
            "/latin",
            "/cjk",
            "/based",
            "/canon",
            "/long",
            "/dots/../1",
            "/q?x=é#é",
        )
        + anchors(
            "javascript:void(0)",
            "mailto:x@a.test",
            "ftp://a.test/f",
            "file:///etc/passwd",
            "http://[bad",
            "",
            "/x.pdf",
        )
        + anchors(
            "http://xn--mnchen-3ya.test/",
            "http://münchen.test/",
            "http://user:pw@b.test/in",
            "http://b.test:8080/",
        )
        + '<a rel="nofollow" href="/nofollow">n</a><map><area href="/area"></map><a>none</a><a href=" /spaces in ">s</a>'
    ),
    "http://a.test/1": page(f"first words {anchors('/2', '/3', 'http://b.test/', 'http://b.test/1')}"),
    "http://a.test/2": page(f"second words {anchors('/1', '/3', '/4')}", **{"Referrer-Policy": "origin"}),
    "http://a.test/3": page(f"third words {anchors('/', '/1', '/3', '/4', '/5?s=1', '/5?s=2')}"),
    "http://a.test/same/1": page(f"the same words {anchors('/only', '/3')}"),
    "http://a.test/same/2": page(f"the same words {anchors('/only', '/3')}"),
    "http://a.test/go": Answer(302, {"Location": "/3"}),
    "http://a.test/latin": page(f"words in latin {anchors('/é?ü=ß', '/l')}", "iso-8859-1"),
    "http://a.test/cjk": page(f"汉字 {anchors('/汉?q=字', '/k')}", "gb18030"),
    "http://a.test/based": page(
        f'<base href="http://b.test/base/">based words {anchors("in", "../up", "?q")}'
    ),
    "http://a.test/canon": page(f'<link rel="canonical" href="/2">canonical words {anchors("/c1", "/c2")}'),
    "http://a.test/long": page(f"long words {anchors('/' + 'x' * 2500, '/' + 'y' * 300, TRAP, '/l')}"),
    "http://b.test/": page(f"words of b {anchors('/1', '/2', 'http://a.test/1', 'http://c.test/x')}"),
    "http://b.test/1": page(f"words of b one {anchors('/', '/2', 'http://a.test/9')}"),
    "http://c.test/x": page(
        f"words of c {anchors('http://a.test/', 'http://b.test/1', '/y', '/z?' + 'p=1&' * 30)}"
    ),
}
"""By URL; whatever else is asked for is a 404."""


class ByRequests(Follow):
    """Follows all links, by requests."""

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"url": response.url}
        if isinstance(response, TextResponse):
            for link in LinkExtractor().extract_links(response):
                yield Request(link.url)


class ByLinks(ByRequests):
    """The same, by ``Links``."""

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"url": response.url}
        yield Links(response)


class Calls(ByRequests):
    """The same with an errback and a callback, and something on purpose."""

    def parse(self, response: Any) -> Iterator[Any]:
        if isinstance(response, TextResponse):
            for n, link in enumerate(LinkExtractor().extract_links(response)):
                yield Request(link.url, self.parse, errback=self.failed)
                if n == 1:
                    yield Request("http://b.test/form", self.item)
                if n == 2:
                    yield Request("http://b.test/with", self.parse, meta={"more": [1]}, priority=3)

    def failed(self, failure: Any) -> None:
        """Ignore it."""

    def item(self, response: Any) -> Any:
        return {"item": response.url}


class ByLinksWithCalls(Calls):
    """The same by ``Links``, in three parts."""

    def parse(self, response: Any) -> Iterator[Any]:
        if isinstance(response, TextResponse):
            urls = [link.url for link in LinkExtractor().extract_links(response)]
            for n, part in enumerate((urls[:2], urls[2:3], urls[3:])):
                yield Links(response, part, callback=self.parse, errback=self.failed)
                if n == 0 and len(urls) > 1:
                    yield Request("http://b.test/form", self.item)
                if n == 1 and len(urls) > 2:
                    yield Request("http://b.test/with", self.parse, meta={"more": [1]}, priority=3)


@pytest.fixture(autouse=True)
def _no_page_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: links of one that does are queued before the others."""
    monkeypatch.setattr("scrapy_aopic.session.session._LONG", 1_000_000)


class OnePageAtATime(Scheduler):
    """Chooses a page when all links of the last one are known, so that the order does not depend on who is how fast."""

    def next_request(self) -> Request | None:
        in_work = self.session is not None and len(self.session.visits)
        return None if in_work else super().next_request()


class Left:
    """What a crawl leaves behind, but for the times at which it did things."""

    def __init__(self, folder: Path, crawler: Crawler) -> None:
        store = open_snapshot(store_folder(folder))
        self.requests = dict(store.scan(Family.REQUESTS))
        pages = store.scan(Family.PAGES)
        self.pages = {key: replace(unpack_page(data), visited_at=0.0) for key, data in pages}
        self.links = dict(store.scan(Family.LINKS))
        store.close()
        self.stats = {
            name: value
            for name, value in crawler.stats.get_stats().items()
            if not name.startswith(
                (
                    "memusage",
                    "aopic/memory/most",
                    "aopic/memory/given",
                    "aopic/live",
                    "aopic/cache",
                    "aopic/commits",
                    "log_count/DEBUG",
                    "items_per",
                    "responses_per",
                )
            )
            and "time" not in name
            and not isinstance(value, float)
        }


async def left(
    serve: Serve,
    folder: Path,
    spider: type[Spider],
    settings: dict[str, Any],
    web: dict[str, Any] = WEB,
    **told: Any,
) -> Left:
    serve(web)
    fixed = {"AOPIC_KEEP_LINKS": True, "CLOSESPIDER_PAGECOUNT": 60, "RETRY_ENABLED": False}
    ours = in_folder(folder, {"SCHEDULER": OnePageAtATime}, **fixed)
    crawler = await crawl(spider, {**ours, **settings}, **told)
    return Left(folder, crawler)


LISTENS = {signals.request_dropped: lambda **_: None}
"""Somebody wants to hear of each request that is dropped, so that there must be one."""

BROAD = {
    "ADDONS": {"scrapy_aopic.Addon": 500},
    "ROBOTSTXT_OBEY": False,
    "AOPIC_POLITENESS_FACTOR": 0,
    "AOPIC_MIN_GAP": 0,
    "DOWNLOAD_DELAY": 0,
}


def rewritten(url: str) -> str | None:
    return None if "/4" in url else url.replace("/5", "/6")


SETTINGS: list[dict[str, Any]] = [
    {},
    BROAD,
    {**BROAD, "AOPIC_CONTENT_SEEN": "follow", "AOPIC_CANONICAL": "any"},
    {"DEPTH_LIMIT": 2, "DEPTH_STATS_VERBOSE": True},
    {"DEPTH_PRIORITY": 1},
    {"DEPTH_STATS_VERBOSE": True, "URLLENGTH_LIMIT": 200},
    {"AOPIC_LINK_WEIGHTS": {"internal": 1, "external": 3, "nofollow": 0}},
    {"MAX_LINKS": 5},
    {"AOPIC_URL_LIMITS": {"links": 7}},
    {"REFERRER_POLICY": "same-origin"},
    {"REFERRER_POLICY": "strict-origin-when-cross-origin"},
    {"REFERRER_POLICY": "no-referrer"},
    {"REFERER_ENABLED": False},
    {"DUPEFILTER_DEBUG": True, "AOPIC_URL_REWRITE": rewritten},
    {"SPIDER_MIDDLEWARES_BASE": {}},
    {"AOPIC_ORDER": "breadth-first"},
]


def short(value: Any) -> str:
    """Settings, or kinds of spiders, in a few words that are the same in every process."""
    if isinstance(value, tuple):
        return str(value[0].__name__)
    return ",".join(f"{name}={getattr(each, '__name__', each)}" for name, each in value.items())[:60]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "settings"),
    [
        *(((ByRequests, ByLinks), each) for each in SETTINGS),
        *(((Calls, ByLinksWithCalls), each) for each in SETTINGS[:2]),
        *(pytest.param((Calls, ByLinksWithCalls), each, marks=pytest.mark.long) for each in SETTINGS[2:]),
    ],
    ids=short,
)
async def test_a_job_is_the_same_whichever_way_its_links_came(serve, tmp_path, settings, kinds, monkeypatch):
    monkeypatch.setattr(visit, "MAX_LINKS", settings.get("MAX_LINKS", visit.MAX_LINKS))

    requests, links = kinds
    one_by_one = await left(serve, tmp_path / "0", requests, settings, told=LISTENS)
    assert len(one_by_one.pages) > 10
    for n, kind in enumerate((requests, links), 1):
        batches = await left(serve, tmp_path / str(n), kind, settings)
        assert batches.requests == one_by_one.requests
        assert batches.pages == one_by_one.pages
        assert batches.links == one_by_one.links
        assert batches.stats == one_by_one.stats


PAGES = [
    "http://a.test/",
    "http://a.test/x;y?z",
    "http://a.test/x?",
    "http://a.test:8080//x?q=1;2",
    "https://a.test/x",
    "http://a.test/x#y",
    "http://u:p@a.test/x",
    "http://A.test/x",
    "http://a.test:80/x",
    "https://a.test:443/x?y",
    "http://a.test",
    "http://a.test?x",
    "http://a.test/[x]|?{y}",
    "file:///x",
    "s3://bucket/x",
    "data:,x",
]
TARGETS = [
    "http://a.test/1",
    "http://b.test/",
    "https://a.test/1?a",
    "https://b.test/",
    "http://a.test:8080/",
    "http://a.test/",
    "http://a.test.b.test/",
    "https://a.test:8443/x",
]


def test_a_link_has_the_referer_that_scrapy_gives_it_under_every_policy() -> None:
    policies = RefererMiddleware(BaseSettings({"REFERRER_POLICY": "scrapy-default"})).policies
    assert len(policies) >= 9
    for (name, policy), page in product(policies.items(), PAGES):
        middleware = RefererMiddleware(BaseSettings({"REFERRER_POLICY": name or "unsafe-url"}))
        response = Response(page, headers={"Referrer-Policy": name}, request=Request(page))
        shortcut = Shortcut(response, [], None, middleware, None, 0, True, 0, False)
        shown: dict[str, str] = {}
        for link in TARGETS:
            with case(name, page, link):
                expected = policy().referrer(page, link) or ""
                assert shortcut.referer(link) == expected
                assert shown.setdefault(shortcut.alike(link), expected) == expected


async def test_links_that_come_when_their_visit_has_ended_are_queued_all_the_same(serve):
    class Late(ByRequests):
        def parse(self, response: Any) -> Iterator[Any]:
            session = Session.of(self.crawler)
            if session is not None and response.url == self.start_urls[0]:
                (visit,) = session.visits
                session.visits.end(visit)
            yield Links(response)

    web = serve({"http://a.test/": ["/1", "/2"], "http://a.test/1": [], "http://a.test/2": []})
    settings = {"SCHEDULER": "scrapy_aopic.Scheduler", "CLOSESPIDER_PAGECOUNT": 3}
    await crawl(Late, settings)
    assert sorted(web.asked) == ["http://a.test/", "http://a.test/1", "http://a.test/2"]


@pytest.mark.parametrize("domains", [["a.test"], ["b.test", "c.test"], []])
async def test_domains_are_kept_to_and_what_is_outside_is_counted(serve, tmp_path, domains):
    bound = {"allowed_domains": domains}
    one_by_one = await left(serve, tmp_path / "0", ByRequests, {}, told=LISTENS, **bound)
    for n, kind in enumerate((ByRequests, ByLinks), 1):
        batches = await left(serve, tmp_path / str(n), kind, {}, **bound)
        assert batches.pages == one_by_one.pages
        assert batches.stats == one_by_one.stats
    assert ("offsite/filtered" in one_by_one.stats) == bool(domains)


class Expects:
    """A spider middleware next to the spider, before which nothing but what Scrapy knows may come."""

    seen: ClassVar[set[type]] = set()

    async def process_spider_output(self, response: Any, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for each in result:
            self.seen.add(type(each))
            yield each


class Visits(crawls.Visits):
    start_urls = ["http://a.test/"]


def mapped(*urls: str) -> bytes:
    entries = "".join(f"<url><loc>{escape(url)}</loc></url>" for url in urls)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'.encode()


UNUSUAL = [
    "http://a.test/?",
    "http://a.test/a b",
    "http://a.test/#part",
    "HTTP://A.test:80/%7ex",
    "http://a.test/../up",
    "http://a.test/x;",
    "http://a.test/\u00e9?\u00e9='",
    "http://a.test/1?utm_source=map",
    "http://a.test/1?b=2&a=1",
    f"http://a.test{TRAP}",
    "http://b.test/other",
    "http://www.a.test/www",
    "http://[/",
    "http://a.test:99999/",
    "/relative",
    "http://a.test/file.zip",
    "http://a.test/",
]
MAPPED: dict[str, Any] = {
    "http://a.test/robots.txt": Answer(
        headers={"Content-Type": "text/plain"}, body=b"Sitemap: /map.xml\nSitemap: /map.xml.gz\n"
    ),
    "http://a.test/": page("home"),
    "http://a.test/map.xml": Answer(
        headers={"Content-Type": "application/xml"},
        body=mapped(
            *(f"http://a.test/{n % 240}" for n in range(250)),
            *(each for n, url in enumerate(UNUSUAL) for each in (url, f"http://a.test/between/{n}")),
        ),
    ),
    "http://a.test/map.xml.gz": Answer(
        headers={"Content-Type": "application/gzip"}, body=gzip.compress(mapped("http://a.test/packed"))
    ),
    **{f"http://a.test/{n}": page(f"number {n}") for n in range(5)},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**BROAD, "ROBOTSTXT_OBEY": True},
        {"AOPIC_LINK_WEIGHTS": {"internal": 1, "external": 3, "nofollow": 0}},
        {"MAX_LINKS": 30},
        {"AOPIC_URL_LIMITS": {"links": 210}},
        {"DEPTH_LIMIT": 2},
        {"AOPIC_URL_REWRITE": rewritten},
    ],
    ids=short,
)
async def test_a_job_is_the_same_whichever_way_the_pages_of_a_sitemap_came(
    serve, tmp_path, settings, monkeypatch
):
    monkeypatch.setattr(visit, "MAX_LINKS", settings.get("MAX_LINKS", visit.MAX_LINKS))

    mapped = {"AOPIC_SITEMAPS": True, "ROBOTSTXT_OBEY": True, **settings}
    Expects.seen.clear()
    by_links = await left(serve, tmp_path / "0", Visits, mapped, MAPPED)
    next_to_spider = {"SPIDER_MIDDLEWARES": {Expects: 2000}}
    by_requests = await left(serve, tmp_path / "1", Visits, {**mapped, **next_to_spider}, MAPPED)
    assert Expects.seen == {Request}
    one_by_one = await left(serve, tmp_path / "2", Visits, mapped, MAPPED, told=LISTENS)
    assert len(by_links.pages) > 200
    assert by_links.stats["aopic/sitemaps/read"] >= 1
    for other in (by_requests, one_by_one):
        assert by_links.requests == other.requests
        assert by_links.pages == other.pages
        assert by_links.links == other.links
        assert by_links.stats == other.stats

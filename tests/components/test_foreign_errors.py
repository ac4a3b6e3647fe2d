"""Components of others that raise inside the scheduler cost the request that they raise for, and the log says whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, signals
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.utils.request import fingerprint
from support.crawls import Visits, keep, logged
from support.small_web import crawl

from scrapy_aopic import Links

HOME = "http://a.test/"
OURS: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler"}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}


class BadFingerprinter:
    def fingerprint(self, request: Request) -> bytes:
        if "bad" in request.url:
            raise NameError("name 'Page' is not defined")
        return fingerprint(request)


class NoFingerprints:
    def fingerprint(self, request: Request) -> Any:
        return "text" if "bad" in request.url else fingerprint(request)


class BadFilter(BaseDupeFilter):
    def __init__(self) -> None:
        self._seen: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Any) -> BadFilter:
        return cls()

    def request_seen(self, request: Request) -> bool:
        if "bad" in request.url:
            raise KeyError("page")
        is_seen = request.url in self._seen
        self._seen.add(request.url)
        return is_seen


def requests(response: Response) -> Iterator[Any]:
    yield from map(response.follow, response.css("a::attr(href)").getall())
    yield {"url": response.url}


def with_links(response: Response) -> Iterator[Any]:
    yield Links(response)
    yield {"url": response.url}


def page(canonical: str = "") -> Answer:
    head = f'<html><head><link rel="canonical" href="{canonical}"></head>' if canonical else ""
    body = f'{head}<a href="/1">1</a><a href="/bad">2</a><a href="/2">3</a>'
    return Answer(headers={"Content-Type": "text/html"}, body=body.encode())


@pytest.mark.crossed
@pytest.mark.parametrize("parse", [requests, with_links], ids=["requests", "links"])
@pytest.mark.parametrize("settings", [OURS, ADDON], ids=["alone", "addon"])
@pytest.mark.parametrize(
    ("component", "name"),
    [
        ({"REQUEST_FINGERPRINTER_CLASS": BadFingerprinter}, "REQUEST_FINGERPRINTER_CLASS"),
        ({"REQUEST_FINGERPRINTER_CLASS": NoFingerprints}, "REQUEST_FINGERPRINTER_CLASS"),
        ({"DUPEFILTER_CLASS": BadFilter}, "DUPEFILTER_CLASS"),
    ],
    ids=["fingerprinter", "no bytes", "filter"],
)
async def test_a_component_that_raises_costs_one_request_and_is_named(
    serve, caplog, *, component, name, settings, parse
):
    web = serve({HOME: page(), "http://a.test/1": page("/bad-canonical"), "http://a.test/2": page("/2")})
    items: list[Any] = []
    ours = {"AOPIC_CANONICAL": "domain", "AOPIC_CONTENT_SEEN": "off"}
    ours |= {"ITEM_PIPELINES": {"scrapy_aopic.ImportancePipeline": 100}, **settings, **component}
    told = {signals.item_scraped: keep(items)}
    crawler = await crawl(Visits, ours, told=told, has_errors=True, start_urls=[HOME], parse=parse)
    assert sorted(web.asked) == sorted(item["url"] for item in items) == [HOME, f"{HOME}1", f"{HOME}2"]
    (error,) = logged(caplog, "ERROR")
    assert error.startswith(f"{name} (test_foreign_errors.{next(iter(component.values())).__name__}) ")
    assert "<GET http://a.test/bad" in error
    # The seed, a link of each page, and the canonical page.
    assert crawler.stats.get_value("aopic/errors") >= 4


def leaves(*_: object) -> Any:
    raise SystemExit("one too many")


async def leaves_later(*_: object) -> Any:
    raise KeyboardInterrupt


class LeavingFingerprinter:
    def fingerprint(self, request: Request) -> bytes:
        return leaves() if "bad" in request.url else fingerprint(request)


FOCUSED: dict[str, Any] = {"AOPIC_ORDER": "focused", "AOPIC_TOPIC": {"keywords": ["page"]}}


@pytest.mark.parametrize(
    ("function", "counted"),
    [
        ({**FOCUSED, "AOPIC_TOPIC": {"function": leaves}}, "aopic/topic/ungraded"),
        ({**FOCUSED, "AOPIC_TOPIC": {"function": leaves_later}}, "aopic/topic/ungraded"),
        ({**FOCUSED, "AOPIC_LINK_SCORER": leaves}, "aopic/topic/unvalued"),
        ({**FOCUSED, "AOPIC_TOKENIZER": f"{__name__}.leaves"}, None),
        ({"AOPIC_LINK_WEIGHTS": leaves}, "aopic/links/unweighed"),
        ({"AOPIC_URL_REWRITE": leaves}, "aopic/urls/unrewritten"),
        ({"REQUEST_FINGERPRINTER_CLASS": LeavingFingerprinter}, "aopic/errors"),
    ],
    ids=["topic", "topic later", "scorer", "tokenizer", "weights", "rewrite", "fingerprinter"],
)
async def test_a_function_that_leaves_the_process_costs_what_it_was_asked(serve, *, function, counted):
    web = serve({url: page() for url in (HOME, f"{HOME}1", f"{HOME}2", f"{HOME}bad")})
    how: dict[str, Any] = {"start_urls": [HOME], "parse": requests, "has_errors": counted == "aopic/errors"}
    crawler = await crawl(Visits, {**OURS, **function}, **how)
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert len(web.asked) >= 3
    assert counted is None or crawler.stats.get_value(counted) >= 1

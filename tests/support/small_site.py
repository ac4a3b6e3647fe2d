"""Pages on an address of their own, a spider that follows them, and the ways to crawl them: with stock Scrapy, and with ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response

from .small_web import crawl

N = 7
"""Pages: each leads to two more, by its number."""

STOCK: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": None}}
OURS: dict[str, Any] = {**STOCK, "SCHEDULER": "scrapy_aopic.Scheduler"}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
EACH_WAY = pytest.mark.parametrize("way", [STOCK, OURS, ADDON], ids=["stock", "alone", "addon"])


def page(number: int, agent: str = "") -> str:
    """A page of the site as *agent* gets it, with something in its title that only a browser shows."""
    links = "".join(f'<a href="/{n}">{n}</a>' for n in (2 * number + 1, 2 * number + 2) if n < N)
    script = "document.title += ' seen'"
    return f"<html><head><title>{number}</title></head><body><p>{agent}</p>{links}<script>{script}</script></body></html>"


def answer(exchange: Exchange) -> Answer:
    number = exchange.target.partition("?")[0].strip("/") or "0"
    if not number.isdigit():
        return Answer(404)
    body = page(int(number), exchange.headers.get("user-agent", ""))
    return Answer(headers={"Content-Type": "text/html"}, body=body.encode())


class Follow(Spider):
    """Follows every link, with *meta* in each request."""

    name = "follow"
    meta: dict[str, Any] = {}

    async def start(self) -> Any:
        for url in self.start_urls:
            yield Request(url, meta=dict(self.meta))

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        assert isinstance(response, HtmlResponse)
        texts = {
            name: response.css(f"{tag}::text").get() for name, tag in (("title", "title"), ("agent", "p"))
        }
        yield {"url": response.url, **texts}
        for url in response.css("a::attr(href)").getall():
            yield response.follow(url, meta=dict(self.meta))


async def run(
    spider: type[Spider], way: dict[str, Any], settings: dict[str, Any], **arguments: Any
) -> tuple[list[Any], Crawler]:
    """Items of a crawl *way* with the *settings* of a plug-in, and the crawler."""
    items: list[Any] = []
    addons = {**way.get("ADDONS", {}), **settings.get("ADDONS", {})}
    crawler = await crawl(
        spider,
        {**settings, **way, "ADDONS": addons, "AOPIC_MIN_GAP": 0},
        told={signals.item_scraped: lambda item: items.extend([item])},
        **arguments,
    )
    return items, crawler


def titles(items: list[Any]) -> list[str]:
    return sorted(item["title"] for item in items)


TITLES = [str(number) for number in range(N)]

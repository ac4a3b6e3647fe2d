"""Sites that are there under several origins, in real crawls: how many requests pass before all of their pages were read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor
from support.small_web import crawl

from scrapy_aopic.core.order import Aopic

ORIGINS = ["http://a.test", "http://www.a.test", "https://a.test", "https://www.a.test"]

Site = Callable[[str, int], str]


class Unmirrored(Aopic):
    """The order as it would be if it looked for no mirrors."""

    mirror_pages = 0


def page(name: str, links: list[str], head: str = "") -> str:
    dice = random.Random(name)
    text = " ".join(f"word{dice.randrange(2000)}" for _ in range(60))
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return f"<html><head>{head}</head><body><p>{text}</p>{anchors}</body></html>"


def with_canonical(origin: str, number: int) -> str:
    """One of 60 pages, each of which names itself by https as canonical, and links to the next five by http."""
    canonical = f'<link rel="canonical" href="https://a.test/{number}">'
    return page(
        f"a{number}", [f"http://a.test/{each}" for each in range(number + 1, min(number + 6, 60))], canonical
    )


def with_www(origin: str, number: int) -> str:
    """One of 20 pages, which links to the next three by http and https, with www and without."""
    following = range(number + 1, min(number + 4, 20))
    return page(f"a{number}", [f"{origin}/{each}" for each in following for origin in ORIGINS])


class Follow(Spider):
    name = "follow"
    start_urls = ["http://a.test/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)


async def asked(site: Site, folder: Path, order: type[Aopic]) -> list[str]:
    """URLs in the order in which a crawl of *site* with the add-on asks for them."""
    urls: list[str] = []

    class Handler:
        lazy = False

        @classmethod
        def from_crawler(cls, crawler: Any) -> Handler:
            return cls()

        async def download_request(self, request: Request) -> Response:
            urls.append(request.url)
            origin, _, number = request.url.rpartition("/")
            return HtmlResponse(request.url, body=site(origin, int(number)).encode(), request=request)

        async def close(self) -> None:
            pass

    settings = {
        "ADDONS": {"scrapy_aopic.Addon": 500},
        "USER_AGENT": "tester (+http://tester.test)",
        "ROBOTSTXT_OBEY": False,
        "AOPIC_MIN_GAP": 0,
        "AOPIC_ORDER": order,
        "AOPIC_STORE": "sqlite",
        "JOBDIR": str(folder),
        "CONCURRENT_REQUESTS": 1,
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1,
        "DOWNLOAD_HANDLERS": {"http": Handler, "https": Handler},
    }
    await crawl(Follow, settings)
    return urls


def read_after(urls: list[str]) -> int:
    """Requests after which each page had been fetched from one of its origins at least."""
    first: dict[str, int] = {}
    for number, url in enumerate(urls, 1):
        first.setdefault(url.replace("https:", "http:").replace("www.", ""), number)
    return max(first.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "requests", "before", "after"),
    [(with_canonical, 119, 64, 64), (with_www, 77, 65, 40)],
    ids=["canonical", "www"],
)
async def test_all_is_fetched_and_what_was_read_waits(site, requests, before, after, tmp_path):
    plain = await asked(site, tmp_path / "plain", Unmirrored)
    urls = await asked(site, tmp_path / "mirrored", Aopic)
    assert sorted(urls) == sorted(plain)
    assert len(urls) == len(set(urls)) == requests
    assert read_after(plain) >= before
    assert read_after(urls) <= after

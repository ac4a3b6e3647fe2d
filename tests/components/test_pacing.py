"""What servers saw of a crawl: never two requests at once, and long enough a rest after each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.utils.defer import deferred_f_from_coro_f
from web import Follow, Web, crawl, html

from scrapy_aopic.testing.server import Answer, audit

Serve = Callable[[dict[str, Any]], Web]

FACTOR = 3
SCHEDULER = {"SCHEDULER": "scrapy_aopic.Scheduler"}
MIDDLEWARE = {"DOWNLOADER_MIDDLEWARES": {"scrapy_aopic.PolitenessMiddleware": 990}}
ADDON = {"ADDONS": {"scrapy_aopic.Addon": 500}}


class Busy(Spider):
    """Follows links and asks for more inline."""

    name = "busy"
    start_urls = [f"http://h{n}.test/" for n in range(4)]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)
        if response.url.endswith("/"):
            assert self.crawler.engine is not None
            inline = [Request(response.urljoin(f"inline{n}")) for n in range(2)]
            await asyncio.gather(*map(self.crawler.engine.download_async, inline))


def busy_pages() -> dict[str, Any]:
    pages: dict[str, Any] = {}
    for n in range(4):
        host = f"http://h{n}.test"
        links = [*(f"{host}/{page}" for page in range(4)), f"{host}/moved", f"{host}/error", f"{host}/cut"]
        pages[f"{host}/robots.txt"] = Answer(body=b"User-agent: *\nDisallow: /3\n", delay=0.01)
        pages[f"{host}/"] = slow(links)
        pages[f"{host}/moved"] = Answer(
            302, {"Location": f"http://h{(n + 1) % 4}.test/elsewhere"}, delay=0.01
        )
        pages[f"{host}/error"] = Answer(500, delay=0.01)
        pages[f"{host}/cut"] = Answer(abort=True, delay=0.02)
        for page in ("0", "1", "2", "3", "elsewhere", "inline0", "inline1"):
            pages[f"{host}/{page}"] = slow([f"{host}/"])
    return pages


def slow(links: list[str]) -> Answer:
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.01, body_delay=0.01)


@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
@deferred_f_from_coro_f
async def test_every_request_of_any_kind_keeps_the_gap(serve: Serve, settings: dict[str, Any]) -> None:
    web = serve(busy_pages())
    await crawl(
        Busy, {**settings, "AOPIC_POLITENESS_FACTOR": FACTOR, "ROBOTSTXT_OBEY": True, "RETRY_TIMES": 1}
    )
    result = audit(web.log, FACTOR)
    assert result.n_overlaps == 0, result
    assert result.n_short_gaps == 0, result
    asked = set(web.asked)
    assert {
        f"http://h{n}.test/{page}" for n in range(4) for page in ("0", "inline0", "inline1", "elsewhere")
    } <= asked
    assert not any(url.endswith("/3") for url in asked)


@deferred_f_from_coro_f
async def test_a_connection_that_breaks_is_not_tried_again_behind_our_back(serve: Serve) -> None:
    web = serve({"http://a.test/": ["/cut"], "http://a.test/cut": Answer(abort=True)})
    await crawl(Follow, {**SCHEDULER, "RETRY_ENABLED": False})
    assert web.asked == ["http://a.test/", "http://a.test/cut"]


@deferred_f_from_coro_f
async def test_the_engine_is_woken_as_soon_as_a_host_may_be_asked(serve: Serve) -> None:
    web = serve(
        {"http://a.test/": [f"/{n}" for n in range(20)], **{f"http://a.test/{n}": [] for n in range(20)}}
    )
    # By the engine's heartbeat alone, every 5 seconds, it would take 100.
    await asyncio.wait_for(crawl(Follow, {**SCHEDULER, "AOPIC_MIN_GAP": 0.05}), 50)
    assert len(web.asked) == 21
    assert audit(web.log, 0, floor=0.05).n_short_gaps == 0


@pytest.mark.parametrize("settings", [SCHEDULER, MIDDLEWARE, ADDON], ids=["scheduler", "middleware", "addon"])
@deferred_f_from_coro_f
async def test_the_download_delay_of_the_project_is_a_floor(serve: Serve, settings: dict[str, Any]) -> None:
    web = serve({"http://a.test/": ["/1", "/2"], "http://a.test/1": [], "http://a.test/2": []})
    await crawl(Follow, {**settings, "DOWNLOAD_DELAY": 0.2})
    assert len(web.asked) == 3
    assert audit(web.log, 0, floor=0.2).n_short_gaps == 0


@deferred_f_from_coro_f
async def test_waiting_hosts_take_no_room_from_others(serve: Serve) -> None:
    slow_hosts = {f"http://slow{n}.test/{page}": [] for n in range(5) for page in range(3)}
    fast = {f"http://fast.test/{page}": [] for page in range(10)}
    web = serve({"http://a.test/": [*slow_hosts, *fast], **slow_hosts, **fast})
    settings = {
        **SCHEDULER,
        "CONCURRENT_REQUESTS": 2,
        "DOWNLOAD_SLOTS": {f"slow{n}.test": {"delay": 1} for n in range(5)},
    }
    await crawl(Follow, settings)
    assert len(web.asked) == 26
    last_fast = max(web.asked.index(url) for url in fast)
    assert sum(web.asked.index(url) < last_fast for url in slow_hosts) <= 10, web.asked


@deferred_f_from_coro_f
async def test_a_redirect_to_another_host_is_paced_there(serve: Serve) -> None:
    web = serve(
        {
            "http://a.test/": [*(f"http://b.test/{n}" for n in range(3)), *(f"/to/{n}" for n in range(3))],
            **{
                f"http://a.test/to/{n}": Answer(301, {"Location": f"http://b.test/from/{n}"})
                for n in range(3)
            },
            **{f"http://b.test/{n}": Answer(delay=0.03) for n in range(3)},
            **{f"http://b.test/from/{n}": Answer(delay=0.03) for n in range(3)},
        }
    )
    await crawl(Follow, {**SCHEDULER, "AOPIC_POLITENESS_FACTOR": FACTOR})
    result = audit(web.log, FACTOR)
    assert (result.n_overlaps, result.n_short_gaps) == (0, 0), result
    assert len(web.asked) == 10

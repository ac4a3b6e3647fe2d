"""Requests that fail: what errbacks and middlewares see of them, which are tried again later, and whom they keep waiting.

Closed ports of the server's own address are origins of the same host that do not answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from support.crawls import Visits, in_folder, stat
from support.small_web import Web, ask_view, crawl, html

from scrapy_aopic.view.stored import snapshot_of

ALONE = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_POLITENESS_FACTOR": 0}
ADDON = {"ADDONS": {"scrapy_aopic.Addon": 500}, "AOPIC_POLITENESS_FACTOR": 0}
SOON = {"AOPIC_BACKOFF": 0.02, "AOPIC_ALLOW_NETWORKS": [":1"]}
OURS = pytest.mark.parametrize("settings", [ALONE, ADDON], ids=["alone", "addon"])


class Site:
    """A server that is reached directly; ``/links`` has *links*."""

    def __init__(self, links: list[str] | None = None) -> None:
        self.links = links or []
        self.server = Server(self.answer)
        self.broken = "/cut"

    def answer(self, exchange: Exchange) -> Answer:
        path = exchange.target
        if path == "/robots.txt":
            return Answer(404)
        if path.startswith("/status"):
            return Answer(int(path[7:10]), {"Content-Type": "text/html"}, b"<p>busy</p>")
        if path.startswith(self.broken):
            return Answer(abort=True)
        body = html(self.links if path == "/links" else [])
        return Answer(headers={"Content-Type": "text/html"}, body=body)

    @property
    def asked(self) -> Counter[str]:
        return Counter(entry.target for entry in Web(self.server, {}).log if entry.target != "/robots.txt")


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, site: Site) -> Iterator[str]:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with site.server.run_in_thread() as running:
        yield running.url


async def statuses(settings: dict[str, Any], url: str) -> tuple[list[int], Crawler]:
    """Of the pages that a crawl was given that follows the links of pages, from the one at *url* on."""
    found: list[int] = []

    def parse(response: Response) -> Iterator[Any]:
        found.append(response.status)
        yield from map(response.follow, response.css("a::attr(href)").getall())

    return found, await crawl(Visits, settings, starts=[url], parse=parse)


@OURS
async def test_links_to_a_closed_port_keep_no_page_of_their_host(monkeypatch, caplog, tmp_path, settings):
    closed = [f"http://127.0.0.1:1/{n}" for n in range(8)] + ["https://127.0.0.1:1/"]
    site = Site([*closed, *(f"/{n}" for n in range(20))])
    with served(monkeypatch, site) as url:
        found, crawler = await statuses(in_folder(tmp_path, {**settings, **SOON}), f"{url}/links")
    assert found == [200] * 21
    assert set(site.asked.values()) == {1}
    # They are left, which is said, and are there in the next run.
    assert stat(crawler, "finish_reason") == "aopic_unreachable"
    assert stat(crawler, "aopic/job/dead_pages") == 9
    assert stat(crawler, "aopic/job/failed") == 0
    (warning,) = [record for record in caplog.records if "that it could not fetch" in record.getMessage()]
    assert "could not fetch (9)" in warning.getMessage()
    assert warning.levelname == "WARNING"
    assert ask_view(tmp_path, snapshot_of).hosts.dead == 1


@OURS
async def test_broken_pages_are_tried_again_behind_the_others_and_keep_nobody(monkeypatch, settings):
    site = Site([f"/cut{n}" if n % 2 else f"/{n}" for n in range(20)])
    with served(monkeypatch, site) as url:  # with a back-off of 1000 s it would not end
        found, crawler = await statuses({**settings, "AOPIC_BACKOFF": 1000}, f"{url}/links")
    assert found == [200] * 11
    cut = {target: n for target, n in site.asked.items() if "cut" in target}
    assert cut == {f"/cut{n}": 3 for n in range(1, 20, 2)}
    assert stat(crawler, "finish_reason") == "finished"
    assert stat(crawler, "aopic/pages/failed") == 10


class Rotating:
    """Every other request goes through a proxy that does not answer."""

    n = 0

    def process_request(self, request: Request) -> None:
        type(self).n += 1
        request.meta.pop("proxy", None)
        if self.n % 2:
            request.meta["proxy"] = "http://127.0.0.1:1"


@OURS
async def test_a_proxy_that_fails_is_not_the_hosts_fault(monkeypatch, settings):
    monkeypatch.setattr(Rotating, "n", 1)
    site = Site([f"/{n}" for n in range(20)])
    with served(monkeypatch, site) as url:
        settings = {**settings, "AOPIC_BACKOFF": 1000, "AOPIC_MAX_GAP": 0.01, "ROBOTSTXT_OBEY": False}
        settings["DOWNLOADER_MIDDLEWARES"] = {Rotating: 740}
        found, crawler = await statuses(settings, f"{url}/links")
    assert found == [200] * 21
    assert stat(crawler, "finish_reason") == "finished"
    assert not stat(crawler, "aopic/politeness/down")

"""A small web on loopback, and ways to crawl it and to ask what was remembered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from demo_web.server import Server
from demo_web.server_log import Entry
from scrapy import Request, Spider
from scrapy.addons import AddonManager
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.settings import Settings
from scrapy.utils.test import get_reactor_settings

from scrapy_aopic.core.audit import Audit
from scrapy_aopic.place.folder_place import FolderPlace, store_folder
from scrapy_aopic.storage import exists, open_snapshot
from scrapy_aopic.view.auditing import audit_store
from scrapy_aopic.view.job_view import open_view


class Web:
    """Pages by URL; a page is a list of links, or an :class:`Answer`, or a function that makes one."""

    def __init__(self, server: Server, pages: dict[str, Any]) -> None:
        self._server = server
        self.pages = pages

    @property
    def log(self) -> list[Entry]:
        """What the server saw; waits for the entries of answers that a client has read already."""
        while self._server.n_under_way:
            time.sleep(0.001)
        return list(self._server.entries)

    @property
    def n_under_way(self) -> int:
        """Requests that were read and are not answered yet."""
        return self._server.n_under_way

    @property
    def n_connections(self) -> int:
        """Connections that crawls have made."""
        return self._server.n_accepted

    @property
    def asked(self) -> list[str]:
        """URLs in the order in which they were asked for, without robots.txt."""
        entries = sorted(self.log, key=lambda entry: entry.start)
        return [f"http://{entry.host}{entry.target}" for entry in entries if entry.target != "/robots.txt"]


class Follow(Spider):
    """Follows every link of every page."""

    name = "follow"
    start_urls = ["http://a.test/"]

    def parse(self, response: Response) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)


def until(holds: Callable[[], object], spider: type[Spider] = Follow) -> type[Spider]:
    """*spider*, which ends as soon as something *holds*, however slow the machine is."""

    class Ends(spider):  # type: ignore[misc, valid-type]
        name = spider.name

        async def start(self) -> AsyncIterator[Any]:
            self.end = asyncio.ensure_future(self._end())
            async for each in super().start():
                yield each

        async def _end(self) -> None:
            while self.crawler.crawling and not holds():  # noqa: ASYNC110  # it may be anything
                await asyncio.sleep(0.01)
            await self.crawler.stop_async()

    return Ends


def html(links: list[str], text: str = "") -> bytes:
    anchors = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
    return f"<html><title>{text}</title>{anchors}</html>".encode()


def crawler_of(spider: type[Spider], settings: dict[str, Any]) -> Crawler:
    """What Scrapy's ``get_crawler`` makes, without what takes a third of a small crawl.

    It looks for no other spiders, and of settings that nobody else has it makes no copy.
    """
    off = {"REMOTE_CONTROL_ENABLED": False, "TELNETCONSOLE_ENABLED": False}
    given = Settings({**off, **get_reactor_settings(), **deepcopy(settings)})
    AddonManager.load_pre_crawler_settings(given)
    given.copy = lambda: given  # type: ignore[method-assign]
    crawler = Crawler(spider, given)
    del given.copy
    crawler._apply_settings()
    return crawler


async def crawl(
    spider: type[Spider],
    settings: dict[str, Any],
    *,
    told: dict[object, Callable[..., Any]] | None = None,
    has_errors: bool = False,
    is_damaged: bool = False,
    **arguments: Any,
) -> Crawler:
    """Run *spider* to its end; politeness off unless *settings* turn it on.

    Args:
        told: By signal, who is told of it.
        has_errors: Whether our scheduler has errors; it must have none otherwise.
        is_damaged: Whether its job folder was damaged; what it leaves there must keep every invariant otherwise.
    """
    impolite = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_BACKOFF": 0}
    crawler = crawler_of(spider, {**impolite, "AOPIC_STORE": "memory", **settings})
    for signal, handler in (told or {}).items():
        crawler.signals.connect(handler, signal=signal, weak=False)
    await crawler.crawl_async(**arguments)
    assert bool(crawler.stats.get_value("aopic/errors")) == has_errors
    folder = settings.get("JOBDIR") if settings.get("AOPIC_STORE") != "redis" else None
    if folder and exists(store_folder(Path(folder))):
        violations = check(Path(folder)).violations
        assert bool(violations) == is_damaged, violations
    return crawler


def ask(folder: Path, question: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Answer to *question* about the job in *folder*."""
    store = open_snapshot(store_folder(folder))
    try:
        return question(store, *args, **options)
    finally:
        store.close()


def ask_view(folder: Path, question: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Answer to *question* about a view of the job in *folder*."""
    with open_view(FolderPlace(folder)) as view:
        return question(view, *args, **options)


def check(folder: Path) -> Audit:
    """Audit of the job in *folder*."""
    result: Audit = ask(folder, audit_store)
    return result

"""Runs a pattern in one of its ways, and says what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from itemadapter import ItemAdapter
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler

from scrapy_aopic.testing.server import Server

from .site import Site
from .table import WAYS, Pattern

QUICK = {
    "AOPIC_POLITENESS_FACTOR": 0,
    "AOPIC_BACKOFF": 0.01,
    "AOPIC_MAX_BACKOFF": 0.05,
    "AOPIC_ROBOTS_RETRY": 0.01,
    "AOPIC_ROBOTS_TRIES": 2,
}
"""Gaps so short that nobody waits for them."""

COUNTED = (
    "retry/count",
    "retry/max_reached",
    "httperror/response_ignored_count",
    "item_dropped_count",
    "dupefilter/filtered",
    "offsite/filtered",
    "request_depth_max",
)
"""Stats of Scrapy's that are compared, besides those of the pattern."""


class StuckError(AssertionError):
    """A crawl did not end."""


@contextmanager
def serve() -> Iterator[tuple[Site, str]]:
    """The site, and the proxy by which its hosts are reached."""
    site = Site()
    with Server(site.answer).run_in_thread() as running:
        yield site, running.url


async def run(pattern: Pattern, way: str, site: Site, folder: Path, patience: float) -> dict[str, Any]:
    """Items, requests at the server, stats and end of a *pattern*, run in a *way* for *patience* seconds at most."""
    agent = f"{pattern.name} ({way})"
    settings = {**QUICK, **pattern.settings, **WAYS[way], "USER_AGENT": agent}
    if way.endswith("job"):
        settings["JOBDIR"] = str(folder / "job")
    crawler = get_crawler(pattern.spider, settings)
    items: list[Any] = []
    reasons: list[str] = []

    def scraped(item: Any) -> None:
        items.append(ItemAdapter(item).asdict())

    def closed(spider: Spider, reason: str) -> None:
        reasons.append(reason)

    crawler.signals.connect(scraped, signal=signals.item_scraped)
    crawler.signals.connect(closed, signal=signals.spider_closed)
    await _end(crawler, patience)
    stats = crawler.stats.get_stats()
    return {
        "items": sorted(items, key=repr),
        "requests": dict(sorted(site.asked.pop(agent, {}).items())),
        "noted": {name.removeprefix("noted/"): stats[name] for name in stats if name.startswith("noted/")},
        "reason": ", ".join(reasons),
        "errors": stats.get("log_count/ERROR", 0),
        **{name: stats.get(name, 0) for name in COUNTED},
    }


async def _end(crawler: Crawler, patience: float) -> None:
    """Run *crawler* to its end, or raise when it does not end by itself."""
    before = asyncio.all_tasks()
    crawl = asyncio.ensure_future(crawler.crawl_async())
    done, _ = await asyncio.wait({crawl}, timeout=patience)
    if done:
        return crawl.result()
    stopping = asyncio.ensure_future(crawler.stop_async())
    while not crawl.done():  # whatever hangs, the next pattern begins with nothing left of this one
        for task in asyncio.all_tasks() - before - {crawl, stopping}:
            task.cancel()
        await asyncio.wait({crawl}, timeout=0.1)
    await stopping
    raise StuckError(f"the crawl did not end by itself within {patience} seconds")

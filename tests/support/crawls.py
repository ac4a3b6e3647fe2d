"""What crawls of many tests have in common: the settings of their jobs, a spider that follows nothing, and what is logged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler

OURS: dict[str, Any] = {"SCHEDULER": "scrapy_aopic.Scheduler"}
ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}}


def in_folder(folder: Path, way: dict[str, Any] = OURS, **settings: Any) -> dict[str, Any]:
    """Settings of a job in *folder*; *way* is how it gets our scheduler."""
    return {**way, "JOBDIR": str(folder), "AOPIC_STORE": "sqlite", **settings}


def on_server(url: str, shards: int, **settings: Any) -> dict[str, Any]:
    """Settings of a job in *shards* on the server at *url*."""
    ours = {**OURS, "AOPIC_STORE": "redis", "REDIS_URL": url}
    return {**ours, "AOPIC_SHARDS": shards, "AOPIC_DURABILITY": 50, **settings}


class Visits(Spider):
    """Requests its ``start_urls``, or else what it gets as ``starts``, to be filtered as links are, and follows nothing.

    ``crawl`` hands it those, and a ``parse``, as arguments.
    """

    name = "visits"
    starts: Sequence[str | Request] = ()

    async def start(self) -> AsyncIterator[Any]:
        for each in self.starts:
            yield Request(each) if isinstance(each, str) else each
        async for each in super().start():
            yield each

    def parse(self, response: Any) -> Any:
        pass


def logged(caplog: pytest.LogCaptureFixture, *levels: str) -> list[str]:
    """Messages at one of *levels*, in the order in which they were logged."""
    return [record.getMessage() for record in caplog.records if record.levelname in levels]


def stat(crawler: Crawler, name: str) -> Any:
    """What the crawl has counted under *name*."""
    return crawler.stats.get_value(name)


def keep(items: list[Any]) -> Callable[..., None]:
    """Of the signal ``item_scraped``, a handler that appends each item to *items*."""

    def scraped(item: Any) -> None:
        items.append(item)

    return scraped

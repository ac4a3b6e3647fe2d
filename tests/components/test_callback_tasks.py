"""What callbacks yield is processed as Scrapy does it, in no more tasks than there are objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from math import inf
from typing import Any, ClassVar

import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from support.naming import case
from support.small_web import crawl

from scrapy_aopic.session import time_slices

PAGE = "http://a.test/"
STORIES: list[list[str]] = []
"""What happened in each crawl."""


async def turns(n: int) -> None:
    """Wait for *n* turns of the event loop, which take no time that a test could depend on."""
    for _ in range(n):
        await asyncio.sleep(0)


class Slow:
    """Takes a turn of the event loop or more for each item, and does not take ``bad``."""

    def __init__(self) -> None:
        self.n = 0

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self.n += 1
        STORIES[-1].append(f"begins {item} beside {self.n - 1}")
        await turns(item["n"] % 3)
        STORIES[-1].append(f"ends {item}")
        self.n -= 1
        if item["n"] == -1:
            raise ValueError("bad")
        return item


class Telling(Spider):
    """Yields what a row of the table says, and tells of it."""

    name = "telling"
    kind: ClassVar[str] = ""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(PAGE, getattr(self, self.kind), errback=self.failed, dont_filter=True)

    def nothing(self, response: Response) -> None:
        pass

    def items(self, response: Response) -> Iterator[Any]:
        for n in range(20):
            STORIES[-1].append(f"yields {n}")
            yield {"n": n}

    def mixed(self, response: Response) -> Iterator[Any]:
        yield from ({"n": 1}, None, Request(f"{PAGE}2", self.nothing), {"n": -1}, {"n": 2})
        raise ValueError("in the middle")

    async def awaiting(self, response: Response) -> AsyncIterator[Any]:
        for n in range(6):
            yield {"n": 2}
            await turns(8)
            STORIES[-1].append(f"goes on after {n}")

    def refusing(self, response: Response) -> None:
        raise ValueError("at once")

    def status(self, response: Response) -> None:
        raise AssertionError("no callback gets it")

    def failed(self, _: Any) -> list[Any]:
        return [{"n": 1}, {"n": 2}, {"n": 0}]


@pytest.mark.slow
async def test_what_callbacks_yield_is_processed_in_the_same_order_and_as_much_at_once(serve, monkeypatch):
    monkeypatch.setattr(time_slices, "SLICE", inf)  # a loaded machine lets others go on in between
    kinds = ("nothing", "mixed", "awaiting", "refusing", "status")
    for kind, most in (("items", 1), ("items", 3), ("items", 100), *((kind, 3) for kind in kinds)):
        serve({PAGE: None if kind == "status" else [], f"{PAGE}2": []})
        first, stats = len(STORIES), []
        for scheduler in ("scrapy.core.scheduler.Scheduler", "scrapy_aopic.Scheduler"):
            STORIES.append([])
            settings = {"SCHEDULER": scheduler, "ITEM_PIPELINES": {Slow: 1}, "CONCURRENT_ITEMS": most}
            crawler = await crawl(type("Kind", (Telling,), {"kind": kind}), settings)
            counts = crawler.stats.get_stats()
            stats.append({name: counts[name] for name in counts if name.startswith(("item", "spider_exc"))})
        with case(kind, most):
            assert STORIES[first] == STORIES[first + 1]
            assert bool(STORIES[first]) == (kind not in {"nothing", "refusing"})
            assert stats[0] == stats[1]


async def test_a_response_has_as_many_tasks_as_its_callback_yields_objects(serve):
    serve({PAGE: []})
    made: list[str] = []

    class Counting(Telling):
        def parse(self, response: Response) -> Iterator[Any]:
            loop = asyncio.get_running_loop()

            def count(loop: Any, coroutine: Any, **options: Any) -> Any:
                made.append(coroutine.__qualname__)
                return asyncio.Task(coroutine, loop=loop, **options)

            loop.set_task_factory(count)
            yield from ({"n": 0}, {"n": 1}, Request(f"{PAGE}2", self.over))

        def over(self, response: Response) -> None:
            pass

        async def start(self) -> AsyncIterator[Any]:
            yield Request(PAGE)

        def closed(self, reason: str) -> None:
            asyncio.get_running_loop().set_task_factory(None)

    await crawl(Counting, {"SCHEDULER": "scrapy_aopic.Scheduler"})
    assert len([name for name in made if "_handle_output" in name]) == 2  # and none for the request

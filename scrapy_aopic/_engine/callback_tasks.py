"""The tasks that process what a callback yields: as many as it yields objects, and ``CONCURRENT_ITEMS`` at most.

Scrapy makes ``CONCURRENT_ITEMS`` (100) of them for each response, also for one whose links all go to the scheduler by
themselves (:mod:`.direct_requests`): 0.34 ms. Nothing else differs: objects are begun in the order in which they are yielded,
as many are processed at once, and the callback waits while twice as many wait.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy.core import scraper as of_scrapy
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.defer import aiter_errback, iter_errback

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

_NEEDED = ("concurrent_items", "handle_spider_error", "_process_spidermw_output_async")
_END = object()


def make_as_needed(crawler: Crawler) -> None:
    """Have the engine of *crawler* make them so, if it is exactly Scrapy's own and makes them all."""
    scraper: Any = getattr(crawler.engine, "scraper", None)
    makes_all = hasattr(of_scrapy, "_parallel_asyncio") and is_asyncio_available()
    is_own = type(scraper) is of_scrapy.Scraper and "handle_spider_output_async" not in vars(scraper)
    if makes_all and is_own and all(hasattr(scraper, name) for name in _NEEDED):
        scraper.handle_spider_output_async = partial(_handle_output, scraper)


async def _handle_output(scraper: Any, result: Any, request: Request, response: Response | Failure) -> None:
    """Process *result*, what a callback or an errback yields."""
    guarded = aiter_errback if hasattr(result, "__anext__") else iter_errback
    waiting: asyncio.Queue[Any] = asyncio.Queue(2 * scraper.concurrent_items)
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        while (each := await waiting.get()) is not _END:
            await scraper._process_spidermw_output_async(each, response)

    async for each in as_async_generator(guarded(result, scraper.handle_spider_error, request, response)):
        if len(tasks) < scraper.concurrent_items:
            tasks.append(asyncio.create_task(work()))
        await waiting.put(each)
    for _ in tasks:
        await waiting.put(_END)
    if tasks:
        await asyncio.wait(tasks)

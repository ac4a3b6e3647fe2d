"""Which links a page has: the only thing the ledger must be told about a visit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import NotConfigured
from scrapy.utils.misc import load_object

from .scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self


class LinkMiddleware:
    """Marks each request that a callback yields as a link of the page, before any other middleware sees it.

    Nothing is held back and nothing is kept but a fingerprint a link, up to ``AOPIC_MAX_LINKS``. What the other
    middlewares then drop never reaches the scheduler: its share of the cash goes to the virtual page.

    Order: next to the spider (1000 or more in ``SPIDER_MIDDLEWARES``). Needs :class:`scrapy_aopic.Scheduler`.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        # Not issubclass(): Scrapy makes it true of every class with a scheduler's methods.
        if Scheduler not in load_object(crawler.settings["SCHEDULER"]).__mro__:
            raise NotConfigured('LinkMiddleware pays cash only with SCHEDULER = "scrapy_aopic.Scheduler"')
        return cls(crawler)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        scheduler = Scheduler.of(self._crawler)
        visit = scheduler.visit_of(response.request) if scheduler is not None and response.request else None
        async for item in result:
            if visit is not None and isinstance(item, Request):
                visit.note(item)
            yield item

"""Which links a page has: the only thing the ledger must be told about a visit."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from functools import partial
from time import perf_counter, thread_time
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from typing_extensions import Self

from ._engine import direct_calls
from ._engine.closing import configured
from ._engine.direct_requests import Shortcuts
from ._engine.loop import soon
from ._engine.process_memory import drop_tree
from .links import Links
from .request_errors import RefusedError
from .session.links.admission import networks_of
from .session.links.link_weights import ByKind, Weigh
from .session.links.page_links import PageLinks
from .session.links.page_rules import PageRules
from .session.seeding import SOON
from .session.session import Session, has_session
from .session.time_slices import SLICE, TimeSlices
from .session.visit import Visit
from .settings import read_values
from .web.meta import COPY_OF, DUPLICATE_OF, FOUND, RELEVANCE

__all__ = ["LinkMiddleware", "Weigh"]

logger = logging.getLogger(__name__)


class LinkMiddleware:
    """Takes the links of each page from what its callback yields, before any other middleware sees them.

    A link gets the normal form of its URL, or is dropped if that is not to be queued; what the spider requests on
    purpose is left as it is (docs/urls.md).

    Nothing is kept of a link but a fingerprint, up to 10,000 a page. A link that another middleware drops
    after that never reaches the scheduler: its share of the cash goes to the virtual page. ``AOPIC_LINK_WEIGHTS`` says
    how large the share of a link is.

    Links that are nothing but URLs, as those of :class:`~scrapy_aopic.Links` are, reach the scheduler in batches, if
    nothing but Scrapy's own middlewares stands between; other requests are passed on one by one (docs/links.md).

    The text of each page is compared with those of other pages before its callback is called: the response for a duplicate
    has the URL of the page that had the text before in ``response.meta["aopic_duplicate_of"]``, and its links are dropped
    unless ``AOPIC_CONTENT_SEEN`` is "follow". A page's canonical page is added to its links (docs/content.md).

    Where ``scrapy parse`` and ``scrapy check`` call callbacks themselves, these get requests instead of Links.

    Order: next to the spider (1000 or more in ``SPIDER_MIDDLEWARES``). Beside another scheduler than
    :class:`scrapy_aopic.Scheduler` it does nothing but make requests of :class:`~scrapy_aopic.Links`.
    """

    session: Session | None = None
    """The session of the crawl, while its job is open; the scheduler sets it."""

    def __init__(self, crawler: Crawler, weigh: Weigh | None = None) -> None:
        self._networks = networks_of(crawler)
        self._crawler = crawler
        self._rules = PageRules(crawler, weigh)
        self._shortcuts = Shortcuts(crawler, self)
        if crawler.spider is not None and direct_calls.are_made(crawler):
            direct_calls.expand_output(crawler.spider, _requests)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not has_session(crawler):
            logger.warning(
                'LinkMiddleware pays cash only with SCHEDULER = "scrapy_aopic.Scheduler"; beside another one it makes '
                "requests of Links, and no more"
            )
        with configured(crawler):
            weights = read_values(crawler.settings).link_weights
            return cls(crawler, ByKind(**weights) if isinstance(weights, dict) else weights)

    def process_spider_input(self, response: Response) -> None:
        session, request = self.session, response.request
        if session is None or request is None:
            return
        visit = session.visits.get(request)
        if visit is not None and visit.unwanted is not None:
            raise visit.unwanted
        if visit is not None and session.costs.gives_up(visit):
            raise RefusedError(f"{response.url} is not read, as the crawl ends")
        if visit is not None:
            visit.accepted()
        began = session.costs.clock()
        self._look_at(response, request, visit, session)
        if visit is not None:
            session.costs.since(began, visit)

    def _look_at(self, response: Response, request: Request, visit: Visit | None, session: Session) -> None:
        """Read what *response* says of its page, before its callback gets it."""
        session.page_robots.read(response, request, visit)
        response.meta.pop(DUPLICATE_OF, None)  # a callback may have copied it from another page
        response.meta.pop(COPY_OF, None)
        response.meta.pop(RELEVANCE, None)
        response.meta.pop(FOUND, None)
        if visit is not None and visit.found is not None:
            response.meta[FOUND] = visit.found
        first, copy = session.responses.compare(response, partial(self._rules.named, session=session))
        if first:
            response.meta[DUPLICATE_OF] = first
        if copy:
            response.meta[COPY_OF] = copy
        if visit is not None and session.focus is not None and not visit.is_as_before:
            session.focus.grading.read(response, visit)

    def process_spider_exception(self, response: Response, exception: Exception) -> list[Any] | None:
        self._is_read(response)
        return [] if isinstance(exception, RefusedError) else None  # nobody needs an errback for that

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        # While all slots are taken, Scrapy's engine takes what start() yields without a pause; else the event loop turns after each.
        # Whoever had to wait then, or because the machine is busy, would find links of the first page before the second seed.
        slices, ends_at = TimeSlices(), 0.0

        def turned() -> None:
            nonlocal ends_at
            ends_at = 0.0

        async for item in start:
            if not ends_at:
                ends_at = thread_time() + SLICE
                soon(turned)
            if thread_time() > ends_at or (self.session is not None and self.session.is_behind):
                await self._give_way(slices)
            if isinstance(item, Request):
                self._networks.name(item.url)
            yield item

    async def _give_way(self, slices: TimeSlices, page: PageLinks | None = None) -> None:
        """Let the event loop go on, and wait for the disk if that is behind; *page* has more links, if there is one."""
        await slices.step()
        if self.session is not None and page is not None:
            self.session.bodies.goes_on()
        while self.session is not None and self.session.is_behind:
            await slices.pause(SOON)

    async def process_spider_output(  # noqa: PLR0912  # a helper of its own would cost each item a generator
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        session = self.session
        if session is None:
            async for each in _without_job(result):
                yield each
            return
        page: PageLinks | None = None  # until there is a link: many callbacks yield none
        grading = session.focus.grading if session.focus is not None else None
        by_items = grading if grading is not None and grading.is_by_items else None
        slices = TimeSlices()
        try:
            async for item in result:
                if by_items is not None and not isinstance(item, (Request, Links)):
                    by_items.has_item(response)
                if page is None and isinstance(item, (Request, Links)):
                    assert self._crawler.spider is not None
                    page = PageLinks(response, session, self._rules, self._shortcuts, self._crawler.spider)
                for each in page.take(item) if page is not None else (item,):
                    # A page may have thousands of links, each of which takes some microseconds, or fifty.
                    if perf_counter() > slices.ends_at:
                        await self._give_way(slices, page)
                    if each is not None:
                        yield each
                if page is not None and page.is_given_up:
                    break
                if page is not None:
                    page.asks()
            if page is not None:
                page.goes_on()
                await page.prefetch(slices)
                while page.announces():
                    await slices.step()
        finally:
            if page is not None:
                page.end()
            self._is_read(response)

    def _is_read(self, response: Response) -> None:
        """Drop the tree of *response*, whose callback is over."""
        drop_tree(response)
        session, request = self.session, response.request
        if session is not None and request is not None and (visit := session.visits.get(request)) is not None:
            session.bodies.over(visit)


async def _without_job(result: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield what a callback yields, with :class:`~scrapy_aopic.Links` as requests."""
    async for item in result:
        for each in _requests(item):
            yield each


def _requests(item: Any) -> Iterable[Any]:
    """The objects that stand for *item*, which a callback yields, without a job."""
    return item.requests() if isinstance(item, Links) else (item,)

"""Requests for pages that are known: which of them are wanted all the same.

Rule 1: the page table of the crawl is the seen-set, unless the user has a ``DUPEFILTER_CLASS`` of their own: that decides
instead.

A page that an earlier crawl has fetched, with which the job goes on (``scrapy aopic import-redis``), is known, too.

Rule 2: ``dont_filter`` is obeyed, and a page whose request could not be read is requested again.

Rule 3: what is requested *unfiltered* (with ``dont_filter``, as ``start_urls`` are, or as a row of a list of seeds) is not
known to links, as Scrapy's dupefilter does not know it. So the first link to its page is followed, unless it is for the
same: callback, errback and ``cb_kwargs``. Its page remembers what it was for until then
(:attr:`~scrapy_aopic.core.records.Page.purpose`); of pages of other shards, these decide
(:meth:`~scrapy_aopic.core.pages.Pages.is_for_more`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.python import global_object_name

from scrapy_aopic.core.counters import UNREADABLE
from scrapy_aopic.dupefilter import DupeFilter
from scrapy_aopic.exceptions import ANY_ERROR, ComponentError
from scrapy_aopic.settings import read_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_aopic.core.api import PageCalls
    from scrapy_aopic.core.records import Page
    from scrapy_aopic.seeds.earlier_crawl import EarlierCrawl
    from scrapy_aopic.session.stats import Stats

    from .found_link import FoundLink

logger = logging.getLogger(__name__)


class KnownPages:
    """Decides whether a request is wanted although its page is known."""

    def __init__(
        self,
        crawler: Crawler,
        spider: Spider,
        crawl: PageCalls,
        stats: Stats,
        *,
        earlier: EarlierCrawl | None = None,
    ) -> None:
        self._crawl = crawl
        self._earlier = earlier
        settings = crawler.settings
        cls = load_object(settings["DUPEFILTER_CLASS"])
        self._own = DupeFilter(crawler, stats.count)
        self.log: Callable[[Request, Spider], None] = self._own.log
        """Logs and counts a request that is not wanted."""
        self._filter: BaseDupeFilter | None = None
        if cls in (RFPDupeFilter, DupeFilter):  # a subclass decides by rules of its own
            if read_values(settings).dupefilter == "bloom":
                logger.warning(
                    'AOPIC_DUPEFILTER = "bloom" has no effect here: the scheduler knows every page exactly.',
                    extra={"spider": spider},
                )
            return
        self._filter = build_from_crawler(cls, crawler)
        if cls.log is not BaseDupeFilter.log:  # which only warns
            self.log = self._filter.log
        logger.info(
            "%(name)s decides what is a duplicate",
            {"name": settings["DUPEFILTER_CLASS"]},
            extra={"spider": spider},
        )

    def log_all(
        self, found: Sequence[FoundLink], make: Callable[[FoundLink], Request], spider: Spider
    ) -> None:
        """The same of *found*, whose requests *make* makes if they are shown, where no filter of the user's decides."""
        for n, link in enumerate(found):
            if self._own.is_silent:
                self._own.count(len(found) - n)
                return
            self.log(make(link), spider)

    @property
    def has_filter(self) -> bool:
        """Whether a filter of the user's own decides."""
        return self._filter is not None

    @property
    def are_users(self) -> bool:
        """Whether a filter of the user's own decides, or fingerprints of an earlier crawl."""
        return self._filter is not None or self._earlier is not None

    def open(self) -> Deferred[None] | None:
        """Open the user's filter."""
        return self._filter.open() if self._filter is not None else None

    def close(self, reason: str) -> Deferred[None] | None:
        """Close the user's filter."""
        return self._filter.close(reason) if self._filter is not None else None

    def decide(
        self, request: Request, page: Page | None, *, is_new: bool, is_link: bool, is_for_more: bool = False
    ) -> tuple[bool, bool]:
        """Whether *request* is for a new page, and whether to make it again if it is for a known one.

        Args:
            page: Its page, if the crawl knows it.
            is_new: Whether it is the first request for that.
            is_link: Whether a page in work has it as a link.
            is_for_more: Whether it is the first one for a page that was requested unfiltered, and for something else.
        """
        again = request.dont_filter or (page is not None and page.outcome.startswith(UNREADABLE))
        again = again or (is_for_more and self._filter is None)
        earlier = self._earlier
        is_unknown = earlier is not None and page is None and not again
        if is_unknown and earlier is not None and earlier.has(request.method, request.url, request.body):
            return False, False
        if self._filter is not None and not again:
            is_new = again = not self._has_seen(self._filter, request)
            if not again:
                return False, False
        if again and not is_link and request.meta.get("is_start_request"):
            # A resumed crawl does not start over, but logs in again: start_urls have neither callback nor form.
            is_plain = request.callback is None and request.method == "GET"
            again = not (is_plain and self._crawl.is_from_before(page))
        return is_new, again

    def _has_seen(self, dupefilter: BaseDupeFilter, request: Request) -> bool:
        """Whether the user's *dupefilter* knows *request*.

        Raises:
            ComponentError: If it raises.
        """
        try:
            return dupefilter.request_seen(request)
        except ANY_ERROR as error:
            raise ComponentError(
                f"DUPEFILTER_CLASS ({global_object_name(type(dupefilter))}) does not say whether {request} was seen, which is "
                f"not requested: {type(error).__name__}: {error}"
            ) from error

"""The crawl's estimates of the pages of requests, for pipelines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.api import ORDINARY
from scrapy_aopic.core.order import relevance_of
from scrapy_aopic.core.revisits.found import NAMES, found_last, found_now
from scrapy_aopic.exceptions import ANY_ERROR
from scrapy_aopic.web.request_rows import url_of

from .stats import FirstOnly
from .visit import values_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_aopic.core.records import Page

    from .session import Session

logger = logging.getLogger(__name__)


class Estimates:
    """Looks up pages in the crawl of *session*; what cannot be looked up is logged once, and never an error."""

    def __init__(self, crawler: Crawler, session: Session) -> None:
        self._session = session
        self._first = FirstOnly(logger, crawler)

    def of(self, request: Request, names: Collection[str] = ()) -> dict[str, Any] | None:
        """Values by the names that ``AOPIC_ITEM_FIELDS`` allows; ``None`` if the page is not known.

        Args:
            names: Further values that are wanted, beside importance, cash, history and visits; they take more look-ups.
        """
        try:
            key = self._session.keys(request)[1]
            job = self._session.job
            page = job.crawl.page(key) or self._page_in_work(request)
            if page is None:
                return None
            more: dict[str, Any] = {}
            if "duplicate_of" in names:
                more["duplicate_of"] = self._duplicate_of(key) or None
            if "relevance" in names:
                more["relevance"] = self._relevance(key, page)
            if not {*NAMES}.isdisjoint(names):
                more |= self._found(key, page)
            importance, cash = job.crawl.worth(key, page)
            return {
                "importance": importance,
                "cash": cash,
                "history": page.history,
                "visits": page.visits,
                **more,
            }
        except ANY_ERROR:  # a store that fails, or a user's fingerprinter
            self._first.exception(
                "look-up",
                "The page of %(request)s cannot be looked up, so that its importance is left out; no more such "
                "errors will be logged",
                request=request,
            )
            return None

    def _page_in_work(self, request: Request) -> Page | None:
        """The page that *request* is downloaded for, if it is not found by its key.

        A middleware may have changed what that is made of: the download slot, headers. Once the page is downloaded, the
        mark of a request is no proof: inline requests with ``meta=response.meta`` carry it, too.
        """
        visit = self._session.visits.of(request)
        if visit is None or not visit.is_downloading:
            return None
        return self._session.job.crawl.page(visit.lease.key)

    def _relevance(self, key: bytes, page: Page) -> float | None:
        """How relevant *page*, which is under *key*, is to the topic; ``None`` if there is no topic, or no grade.

        The visit under way counts, which has not changed the page yet, and the last one else. O(visits under way).
        """
        focus = self._session.focus
        if focus is None:
            return None
        probability = focus.calibration.probability
        for visit in self._session.visits:
            if visit.lease.key == key and visit.reading is not None:
                return probability(visit.reading.grade, visit.reading.gist)
        grade = relevance_of(page) if focus.values.are_wanted else None
        return probability(grade, self._session.job.crawl.gist(key)) if grade is not None else None

    def _found(self, key: bytes, page: Page) -> dict[str, str | None]:
        """What the visit under way has found of *page*, which is under *key*, or else the last one. O(visits under way)."""
        for visit in self._session.visits:
            if visit.lease.key == key and visit.found is not None:
                return visit.found
        now = self._session.job.clock()
        return values_of(found_last(page) if page.visits else found_now(page, ORDINARY, now))

    def _duplicate_of(self, key: bytes) -> str:
        """URL of the page that the one under *key* was found to be the same as; ``""`` if none is known."""
        crawl = self._session.job.crawl
        other = crawl.same_as(key)
        return url_of(crawl.request(other)) if other else ""

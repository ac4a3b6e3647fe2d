"""Grades each page of a crawl for a topic, once, and cuts out what it says of its links.

Rule 1: a page is read before its callback, so that ``response.meta["aopic_relevance"]`` is there for it.

Rule 2: what a user's function raises costs a page its grade, and nothing else.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.utils.response import get_base_url

from scrapy_aopic.core.focus.calibration import LEAST_GRADED, gist_of
from scrapy_aopic.core.focus.harvest_results import degrees_of
from scrapy_aopic.core.focus.words import PAGE_CHARACTERS
from scrapy_aopic.core.records import HOST_BYTES
from scrapy_aopic.exceptions import ANY_ERROR
from scrapy_aopic.session.visit import PageReading, Visit
from scrapy_aopic.settings.parse import is_awaited
from scrapy_aopic.web.context import PageContext, page_context, text_context
from scrapy_aopic.web.link_extraction import note_joined
from scrapy_aopic.web.meta import RELEVANCE

from .user_functions import Judging, note_time, part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_aopic.session.links.link_targets import LinkTargets
    from scrapy_aopic.session.parts import SessionParts
    from scrapy_aopic.session.stats import FirstOnly

    from .given_topic import GivenTopic
    from .link_values import LinkValues


class Grading:
    """Grades pages.

    Args:
        values: Says what has to be read of links.

    Attributes:
        judging: Awaits the user's function of pages, if it is asynchronous.
        is_by_items: Whether a page is relevant if it yields an item.
    """

    def __init__(
        self,
        parts: SessionParts,
        given: GivenTopic,
        values: LinkValues,
        *,
        targets: LinkTargets,
        first: FirstOnly,
    ) -> None:
        self._visits = parts.visits
        self._stats = parts.stats
        self._first = first
        self._topic = given.topic
        self._values = values
        self._target = targets.of
        self._grade_by = given.grade
        self._probability = given.calibration.probability
        self.is_by_items = given.by_items
        self.judging: Judging | None = None
        if given.grade is not None and is_awaited(given.grade):
            self.judging = Judging(parts.visits, given.grade)

    def read(self, response: Response, visit: Visit) -> None:
        """Grade the page of *response*, and note what it says of its links."""
        context, urls = self._context(response)
        words, strategy = context.words, self._values.strategy
        if words is None and self._grade_by is None:
            words = self._topic.words(context.text)
        grade, gist = self._grade(response, words, visit), b""
        if grade >= LEAST_GRADED:
            gist = gist_of(words if words is not None else self._topic.words(context.text))
        reading = PageReading(
            grade,
            urls,
            context,
            context.text if strategy.reads_text else "",
            degrees_of(*context.parts(), self._topic.all_words) if strategy.reads_degrees else None,
            gist,
        )
        visit.read(reading)
        if not self.is_by_items:
            response.meta[RELEVANCE] = self._probability(grade, gist)

    def has_item(self, response: Response) -> None:
        """The page of *response* has yielded an item."""
        visit = self._visits.of(response.request) if response.request is not None else None
        if visit is not None:
            visit.yielded_item()

    def _context(self, response: Response) -> tuple[PageContext, Mapping[bytes, str]]:
        """The context of the links of *response*, and their URLs by the latter halves of their page keys."""
        if not isinstance(response, TextResponse):
            return PageContext(), {}
        values = self._values
        try:
            root = response.selector.root
            if not hasattr(root, "iter"):  # JSON
                return text_context(response.text[:PAGE_CHARACTERS]), {}
            context = page_context(
                root,
                response.url,
                get_base_url(response),
                response.encoding,
                has_links=values.are_wanted,
                side=values.side,
                cut=self._topic.all_words if values.reads_words else None,
            )
        except (
            LookupError,
            ValueError,
        ):  # Scrapy reads no page with an unknown charset or an invalid base URL
            return PageContext(), {}
        urls: dict[bytes, str] = {}
        if values.are_wanted:
            note_joined(response, context.joined)
            for url, target in zip(context.links, map(self._target, context.links), strict=True):
                if target.key:
                    urls.setdefault(target.key[HOST_BYTES:], url)
        return context, urls

    def _grade(self, response: Response, words: list[str] | None, visit: Visit) -> float:
        if self.is_by_items:
            return 0.0
        if self._grade_by is None:
            return self._topic.grade_page(words or (), response.url, partial(_title, response))
        try:
            if self.judging is None:
                begin = perf_counter()
                grade = part(self._grade_by(response))
                note_time(self._first, "AOPIC_TOPIC", response.url, perf_counter() - begin)
                return grade
            if isinstance(visit.given_grade, BaseException):
                raise visit.given_grade
            return part(visit.given_grade)
        except ANY_ERROR:  # logged once, whatever the user's function raises
            self._stats.count("aopic/topic/ungraded")
            self._first.exception(
                "grade",
                "The function of AOPIC_TOPIC gives no number from 0 to 1 for %(page)s, which counts as irrelevant; "
                "further ones are only counted (aopic/topic/ungraded)",
                page=response.url,
            )
            return 0.0


def _title(response: Response) -> str:
    """The title of a page; empty if it has none, or cannot be read (an unknown charset)."""
    with suppress(LookupError, ValueError):
        return response.xpath("string(//title)").get("") if isinstance(response, HtmlResponse) else ""
    return ""

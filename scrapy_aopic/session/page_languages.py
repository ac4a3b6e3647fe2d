"""Which pages are in a language that the crawl is for (``languages`` of ``AOPIC_SCOPE``), by what they declare.

The links of a page in another language are not followed, and a :class:`scrapy_aopic.BroadSpider` makes no item of it; for other
spiders ``response.meta["aopic_other_language"]`` has the language. A page that declares none is taken for one of those that
are wanted: many do not. What was requested on purpose, such as a seed, leads on in any language.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_aopic.settings import read
from scrapy_aopic.web.languages import declared_language
from scrapy_aopic.web.meta import OTHER_LANGUAGE, PURPOSE, SITEMAP

from .stats import FirstOnly, Stats

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_aopic.view.dropped import Dropped
    from scrapy_aopic.web.scope import Scope

    from .links.found_link import FoundLink
    from .visit import Visit

logger = logging.getLogger(__name__)


class PageLanguages:
    """Reads the languages of pages, and says which links are followed and which items are kept.

    Raises:
        SettingError: If its setting cannot be used.
    """

    def __init__(self, crawler: Crawler, stats: Stats, dropped: Dropped) -> None:
        scope: Scope | None = read(crawler.settings, "AOPIC_SCOPE")
        self._scope = scope if scope is not None and scope.languages else None
        self._stats = stats
        self._dropped = dropped
        self._first = FirstOnly(logger, crawler)

    def read(self, response: Response, request: Request, visit: Visit | None) -> None:
        """Read in which language the page of *response* is, for the callback to see and for the methods below."""
        request.meta.pop(OTHER_LANGUAGE, None)  # a callback may have copied it from another page
        if self._scope is None or SITEMAP in request.meta:
            return
        language = declared_language(response)
        if not language:
            self._stats.count("aopic/scope/undeclared")
        elif self._scope.is_foreign(language):
            request.meta[OTHER_LANGUAGE] = language
            if visit is not None:
                visit.is_out_of_language()

    def follows(self, response: Response) -> bool:
        """Whether links of the page of *response* are followed."""
        request = response.request
        return request is None or OTHER_LANGUAGE not in request.meta or PURPOSE in request.meta

    def drop(self, link: FoundLink, response: Response) -> None:
        """Count that *link* is dropped because its page is in another language; the first one is logged."""
        self._stats.count("aopic/scope/links_dropped")
        self._dropped.note("language", link.url, response.url)
        self._first.warning(
            "links",
            '%(page)s is in another language (%(language)s) than "languages" of AOPIC_SCOPE has, so that its links are not '
            "followed, the first of them %(link)s. Further such links are not logged (aopic/scope/links_dropped counts them)",
            page=response.url,
            language=response.meta[OTHER_LANGUAGE],
            link=link.url,
        )

    def keeps(self, response: Response) -> bool:
        """Whether there may be an item of the page of *response*; if not, that is counted, and the first one is logged."""
        if response.request is None or OTHER_LANGUAGE not in response.meta:
            return True
        self._stats.count("aopic/scope/items_dropped")
        self._first.warning(
            "items",
            '%(page)s is in another language (%(language)s) than "languages" of AOPIC_SCOPE has, so that there is no item of '
            "it. Further such pages are not logged (aopic/scope/items_dropped counts them)",
            page=response.url,
            language=response.meta[OTHER_LANGUAGE],
        )
        return False

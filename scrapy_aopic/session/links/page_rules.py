"""Rules on pages: which links of a page are followed (marks for robots, duplicates, floods of links), its canonical page, weights of links.

The rules on URLs are in :mod:`scrapy_aopic.web.url_rules`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_aopic.core.host_rules import NO_RULES
from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.settings import read_values
from scrapy_aopic.web.meta import DUPLICATE_OF
from scrapy_aopic.web.page_text import read_canonical
from scrapy_aopic.web.request_codec import decode
from scrapy_aopic.web.request_rows import IN_MEMORY

from .link_weights import LinkWeights, Weigh, is_internal

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_aopic.session.session import Session
    from scrapy_aopic.session.visit import Visit

    from .found_link import Drop, FoundLink

logger = logging.getLogger(__name__)


class PageRules:
    """The rules of a crawl on pages whose links are found.

    Args:
        weigh: Says how large the shares of links are, if they differ.

    Attributes:
        flood: Links of a page that are followed; 0 for all.
        limits_depth: Whether the pages of a host may be too deep.
        weights: The weights of links; ``None`` if they do not differ.
    """

    def __init__(self, crawler: Crawler, weigh: Weigh | None) -> None:
        self._crawler = crawler
        values = read_values(crawler.settings)
        self._follows_duplicates = values.content_seen == "follow"
        self._canonical = values.canonical
        self.flood = values.url_limits.get("links", 0)
        hosts = values.host_rules
        self.limits_depth = "depth" in hosts.options
        self._hosts = hosts if self.limits_depth else NO_RULES
        self._first = FirstOnly(logger, crawler)
        self.weights = LinkWeights(weigh, self._first) if weigh is not None else None

    def dropping(self, response: Response, visit: Visit | None, session: Session) -> Drop | None:
        """What drops the links of the page of *response*, which *visit* has: duplicates mostly have none that are followed."""
        drop = session.page_robots.dropping(response)
        if drop is None and visit is not None and visit.is_duplicate and not self._follows_duplicates:
            return partial(self._drop_of_duplicate, visit, session)
        return drop

    def has_canonical(self, visit: Visit | None) -> bool:
        """Whether the page of *visit* may have a canonical page that is to be looked up."""
        return visit is not None and self._canonical != "off"

    def _drop_of_duplicate(self, visit: Visit, session: Session, link: FoundLink, response: Response) -> None:
        """Count that *link* is dropped because the page of *visit* is a duplicate; the first one of a kind is logged."""
        session.stats.count("aopic/content/links_dropped")
        session.dropped.note("duplicate", link.url, response.url)
        what = "one more page with the words of" if visit.is_excess else "the same page as"
        self._first.warning(
            what,
            "%(page)s is %(what)s %(first)s, so that its links are not followed, the first of them %(link)s: set "
            'AOPIC_CONTENT_SEEN = "follow" to follow them. Further such links are not logged '
            "(aopic/content/links_dropped counts them)",
            page=response.url,
            what=what,
            first=response.meta.get(DUPLICATE_OF, ""),
            link=link.url,
        )

    def drop_of_flood(self, link: FoundLink, response: Response, session: Session) -> None:
        """Count that *link* is dropped because the page has too many; the first page that has is logged."""
        session.stats.count("aopic/links/dropped")
        session.dropped.note("flood", link.url, response.url)
        self._first.warning(
            "flood",
            "%(page)s has more than %(n)d links (AOPIC_URL_LIMITS), of which no more are followed: set "
            'AOPIC_URL_LIMITS = "links=0" to follow them all. Further such pages are not logged (aopic/links/dropped counts '
            "the links)",
            page=response.url,
            n=self.flood,
        )

    def is_too_deep(self, link: FoundLink, response: Response) -> bool:
        """Whether *link*, which has its host and leads to another page, is more links from a seed than its host allows."""
        rule = self._hosts.of(link.host)
        return rule is not None and rule.depth is not None and response.meta.get("depth", 0) >= rule.depth

    def drop_too_deep(self, link: FoundLink, response: Response, session: Session) -> None:
        """Count that *link* is dropped because it is too deep; the first one is logged."""
        session.stats.count("aopic/scope/too_deep")
        session.dropped.note("host depth", link.url, response.url)
        self._first.warning(
            "depth",
            "%(link)s on %(page)s is not queued, because it is more links from a seed than AOPIC_HOST_RULES allows its host "
            "(depth). Further such links are not logged (aopic/scope/too_deep counts them)",
            page=response.url,
            link=link.url,
        )

    def named(self, response: Response, session: Session) -> Request | None:
        """A request for the page that *response* says it is; ``None`` if it says nothing, or that does not count."""
        url = read_canonical(response) if self._canonical != "off" else ""
        asked = response.request
        if not url or asked is None:
            return None
        arguments, visit = asked.cb_kwargs, session.visits.of(asked)
        if arguments and visit is not None and visit.lease.request[:1] != IN_MEMORY:
            # Without what middlewares have made of this page for its callback, such as page objects.
            assert self._crawler.spider is not None
            arguments = decode(visit.lease.request, self._crawler.spider).cb_kwargs
        try:
            return Request(url, asked.callback, errback=asked.errback, cb_kwargs=arguments)
        except ValueError:
            return None

    def canonical_of(self, response: Response, visit: Visit, session: Session) -> Request | None:
        """A request for the page that *response* says it is, admitted, if that is another one and is to be queued for that.

        Raises:
            ComponentError: If the fingerprinter of the crawl fails.
        """
        request = self.named(response, session) if not visit.is_duplicate else None
        if request is None:
            return None
        if self._canonical == "known" or (
            self._canonical == "domain" and not is_internal(request.url, response.url)
        ):
            # A copy of a page with its head claims that, too, and the other page need not be fetched for it.
            if not visit.is_itself(request):
                visit.claim(*session.keys(request), is_if_same=True)
            return None
        admitted = session.admission.admit_link(request, response.url)
        return None if admitted is None or visit.is_itself(admitted) else admitted

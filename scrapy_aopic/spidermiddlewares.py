"""Which links a page has: the only thing the ledger must be told about a visit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urldefrag, urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.exceptions import NotConfigured
from scrapy.http import Response, TextResponse
from scrapy.utils.misc import load_object

from .exceptions import SettingError
from .scheduler import Scheduler
from .settings import read
from .suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler
    from typing_extensions import Self


logger = logging.getLogger(__name__)

Weigh: TypeAlias = Callable[[Request, Response], float]
"""Weight of a link, a request that a callback yields, on the page of a response."""

_UNIT = 1000


class LinkMiddleware:
    """Marks each request that a callback yields as a link of the page, before any other middleware sees it.

    Nothing is held back and nothing is kept but a fingerprint a link, up to ``AOPIC_MAX_LINKS``. What the other
    middlewares then drop never reaches the scheduler: its share of the cash goes to the virtual page.
    ``AOPIC_LINK_WEIGHTS`` says what part of it a link gets.

    Order: next to the spider (1000 or more in ``SPIDER_MIDDLEWARES``). Needs :class:`scrapy_aopic.Scheduler`.
    """

    def __init__(self, crawler: Crawler, weigh: Weigh | None = None) -> None:
        self._crawler = crawler
        self._weigh = weigh
        self._has_complained = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        # Not issubclass(): Scrapy makes it true of every class with a scheduler's methods.
        if Scheduler not in load_object(crawler.settings["SCHEDULER"]).__mro__:
            raise NotConfigured('LinkMiddleware pays cash only with SCHEDULER = "scrapy_aopic.Scheduler"')
        try:
            weights = read(crawler.settings, "AOPIC_LINK_WEIGHTS")
        except SettingError as error:
            raise NotConfigured(str(error)) from error
        return cls(crawler, _by_kind(**weights) if isinstance(weights, dict) else weights)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        scheduler = Scheduler.of(self._crawler)
        visit = scheduler.visit_of(response.request) if scheduler is not None and response.request else None
        async for item in result:
            if visit is not None and isinstance(item, Request):
                visit.note(item, None if self._weigh is None else self._weight(self._weigh, item, response))
            yield item

    def _weight(self, weigh: Weigh, request: Request, response: Response) -> int:
        """Weight of *request* in thousandths; 1 if the function fails, which is counted and logged once."""
        try:
            return _whole(weigh(request, response))
        except Exception:
            assert self._crawler.stats is not None
            self._crawler.stats.inc_value("aopic/links/unweighed")
            if not self._has_complained:
                self._has_complained = True
                logger.exception(
                    "AOPIC_LINK_WEIGHTS gives no weight from 0 to 1,000,000 for the link from %(page)s to %(link)s, "
                    "which counts 1; further ones are only counted (aopic/links/unweighed)",
                    {"page": response.url, "link": request.url},
                    extra={"spider": self._crawler.spider},
                )
            return _UNIT


def _whole(weight: float) -> int:
    if not 0 <= weight <= 1e6:
        raise ValueError(f"{weight!r} is no weight")
    return int(weight * _UNIT)


def _by_kind(internal: float = 1.0, external: float = 1.0, nofollow: float | None = None) -> Weigh:
    """Weights of links inside a registered domain, to another one, and of those marked ``rel="nofollow"``."""
    marked: WeakKeyDictionary[Response, set[str]] = WeakKeyDictionary()

    def weigh(request: Request, response: Response) -> float:
        if nofollow is not None and isinstance(response, TextResponse):
            if response not in marked:
                hrefs = response.xpath('//a[contains(concat(" ", @rel, " "), " nofollow ")]/@href').getall()
                marked[response] = {urldefrag(response.urljoin(href.strip()))[0] for href in hrefs}
            if urldefrag(request.url)[0] in marked[response]:
                return nofollow
        hosts = (urlsplit(url).hostname or "" for url in (request.url, response.url))
        target, source = map(registered_domain, hosts)
        return internal if target == source else external

    return weigh

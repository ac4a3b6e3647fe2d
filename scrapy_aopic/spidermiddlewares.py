"""Which links a page has: the only thing the ledger must be told about a visit."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.exceptions import NotConfigured
from scrapy.http import HtmlResponse, Response
from scrapy.utils.misc import load_object
from scrapy.utils.request import fingerprint

from ._engine.closing import configured
from .refusals import RefusedError
from .scheduler import Scheduler
from .session.purpose import link_test
from .session.turns import Turns
from .settings import read
from .web.meta import COPY_OF, DUPLICATE_OF
from .web.page_text import read_canonical
from .web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from .session.visit import Visit


logger = logging.getLogger(__name__)

Weigh: TypeAlias = Callable[[Request, Response], float]
"""Weight of a link, a request that a callback yields, on the page of a response."""

_UNIT = 1000


class LinkMiddleware:
    """Marks each request that a callback yields as a link of the page, before any other middleware sees it.

    A link gets the normal form of its URL, or is dropped if that is not to be queued; what the spider asks for on
    purpose is left as it is (docs/urls.md).

    Nothing is held back and nothing is kept but a fingerprint a link, up to ``AOPIC_MAX_LINKS``. What the other
    middlewares then drop never reaches the scheduler: its share of the cash goes to the virtual page.
    ``AOPIC_LINK_WEIGHTS`` says what part of it a link gets.

    It also has the text of each page judged before its callback is called: a duplicate has the URL of the page that
    had the text before in ``response.meta["aopic_duplicate_of"]``, and its links are dropped unless
    ``AOPIC_FOLLOW_DUPLICATES``. And to the links of a page it adds its canonical page (docs/content.md).

    Order: next to the spider (1000 or more in ``SPIDER_MIDDLEWARES``). Needs :class:`scrapy_aopic.Scheduler`.
    """

    def __init__(self, crawler: Crawler, weigh: Weigh | None = None) -> None:
        self._crawler = crawler
        self._weigh = weigh
        self._follows_duplicates: bool = read(crawler.settings, "AOPIC_FOLLOW_DUPLICATES")
        self._canonical: str = read(crawler.settings, "AOPIC_CANONICAL")
        self._flood: float = read(crawler.settings, "AOPIC_LINK_FLOOD") or math.inf
        self._complained: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        # Not issubclass(): Scrapy makes it true of every class with a scheduler's methods.
        if Scheduler not in load_object(crawler.settings["SCHEDULER"]).__mro__:
            raise NotConfigured('LinkMiddleware pays cash only with SCHEDULER = "scrapy_aopic.Scheduler"')
        with configured(crawler):
            weights = read(crawler.settings, "AOPIC_LINK_WEIGHTS")
            return cls(crawler, _by_kind(**weights) if isinstance(weights, dict) else weights)

    def process_spider_input(self, response: Response) -> None:
        scheduler = Scheduler.of(self._crawler)
        if scheduler is not None and response.request is not None:
            visit = scheduler.visit_of(response.request)
            if visit is not None and visit.unwanted is not None and response.request is visit.request:
                raise visit.unwanted
            response.meta.pop(DUPLICATE_OF, None)  # a callback may have copied it from another page
            response.meta.pop(COPY_OF, None)
            original, copy = scheduler.judge(response, self._named)
            if original:
                response.meta[DUPLICATE_OF] = original
            if copy:
                response.meta[COPY_OF] = copy

    def process_spider_exception(self, response: Response, exception: Exception) -> list[Any] | None:
        return [] if isinstance(exception, RefusedError) else None  # nobody needs an errback for that

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        scheduler = Scheduler.of(self._crawler)
        visit = scheduler.visit_of(response.request) if scheduler is not None and response.request else None
        is_followed = visit is None or not visit.is_duplicate or self._follows_duplicates
        assert self._crawler.spider is not None
        is_link = link_test(response, self._crawler.spider)
        n_links, is_first = 0, True
        turns = Turns()
        async for item in result:
            if not isinstance(item, Request) or scheduler is None:
                yield item
                continue
            await turns.step()  # a page may have thousands of links, each of which takes some 50 microseconds
            is_one = is_link(item)
            if visit is not None and is_one and not is_followed:
                self._drop_of_duplicate(item, response, visit)
                continue
            n_links += is_one
            if is_one and n_links > self._flood:
                self._drop_of_flood(response)
                continue
            if visit is not None and is_first:
                is_first = False
                canonical = self._canonical_of(response, visit, scheduler)
                if canonical is not None:
                    visit.note(canonical, self._weight(canonical, response), "canonical")
                    yield canonical
            admitted = scheduler.admit(item, response.url, is_link=is_one)
            if visit is not None:
                # By what the callback yields: that is how the page has the link.
                visit.note(admitted or item, self._weight(item, response))
            if admitted is not None:
                yield admitted

    def _drop_of_duplicate(self, request: Request, response: Response, visit: Visit) -> None:
        """Count *request*, which a duplicate leads to; the first one of a kind is logged."""
        self._count("aopic/content/links_dropped")
        name = "AOPIC_SAME_WORDS" if visit.is_excess else "AOPIC_CONTENT_SEEN"
        what = "one more page with the words of" if visit.is_excess else "the same page as"
        self._warn_once(
            name,
            "%(page)s is %(what)s %(first)s (%(name)s = %(value)r), so that its links are not followed, the first of "
            "them %(link)s: set AOPIC_FOLLOW_DUPLICATES = True to follow them. Further such links are not logged "
            "(aopic/content/links_dropped counts them)",
            page=response.url,
            what=what,
            first=response.meta.get(DUPLICATE_OF, ""),
            name=name,
            value=read(self._crawler.settings, name),
            link=request.url,
        )

    def _drop_of_flood(self, response: Response) -> None:
        """Count a link too many on the page of *response*; the first one is logged."""
        self._count("aopic/links/dropped")
        self._warn_once(
            "flood",
            "%(page)s has more than %(n)d links (AOPIC_LINK_FLOOD), of which no more are followed: set "
            "AOPIC_LINK_FLOOD = 0 to follow them all. Further such pages are not logged (aopic/links/dropped counts "
            "the links)",
            page=response.url,
            n=self._flood,
        )

    def _warn_once(self, kind: str, message: str, **what: object) -> None:
        if kind not in self._complained:
            self._complained.add(kind)
            logger.warning(message, what, extra={"spider": self._crawler.spider})

    def _canonical_of(self, response: Response, visit: Visit, scheduler: Scheduler) -> Request | None:
        """A request for the page that *response* says it is, if that is another one and is to be queued for that."""
        request = self._named(response) if not visit.is_duplicate else None
        if request is None:
            return None
        if self._canonical == "known" or (
            self._canonical == "domain" and not _is_internal(request.url, response.url)
        ):
            # Who copies a page with its head says so, too, and need not be asked for the other one.
            if not visit.is_itself(request):
                scheduler.note_named(visit, request)
            return None
        admitted = scheduler.admit(request, response.url, is_link=True)
        return None if admitted is None or visit.is_itself(admitted) else admitted

    def _named(self, response: Response) -> Request | None:
        """A request for the page that *response* says it is; ``None`` if it says nothing, or that does not count."""
        url = read_canonical(response) if self._canonical != "off" else ""
        asked = response.request
        if not url or asked is None:
            return None
        try:
            return Request(url, asked.callback, errback=asked.errback, cb_kwargs=asked.cb_kwargs)
        except ValueError:
            return None

    def _count(self, name: str) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(name)

    def _weight(self, request: Request, response: Response) -> int | None:
        """Weight of *request* in thousandths, if links differ; 1 if the function fails, which is counted and logged once."""
        if self._weigh is None:
            return None
        try:
            return _whole(self._weigh(request, response))
        except Exception:
            self._count("aopic/links/unweighed")
            if "weight" not in self._complained:
                self._complained.add("weight")
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
    marked: WeakKeyDictionary[Response, set[bytes]] = WeakKeyDictionary()

    def weigh(request: Request, response: Response) -> float:
        if nofollow is not None and isinstance(response, HtmlResponse):
            if response not in marked:
                marked[response] = _nofollow(response)
            if fingerprint(request) in marked[response]:
                return nofollow
        return internal if _is_internal(request.url, response.url) else external

    return weigh


def _is_internal(target: str, source: str) -> bool:
    """Whether the URLs *target* and *source* are of one registered domain."""
    one, two = (registered_domain(urlsplit(url).hostname or "") for url in (target, source))
    return one == two


def _nofollow(response: HtmlResponse) -> set[bytes]:
    """Fingerprints of the requests for what *response* links to with ``rel="nofollow"``."""
    found: set[bytes] = set()
    try:
        root = response.selector.root
    except (LookupError, ValueError):  # Scrapy reads no page whose charset or base URL is none
        return found
    for link in root.iter("a", "area"):
        if "nofollow" in link.get("rel", "").lower().split():
            with suppress(ValueError):  # no URL
                found.add(fingerprint(Request(response.urljoin(link.get("href", "").strip()))))
    return found

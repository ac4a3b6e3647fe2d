"""Which links a page has: the only thing the ledger must be told about a visit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from msgspec import Struct
from scrapy import Request
from scrapy.http import HtmlResponse, Response
from scrapy.utils.request import fingerprint

from ._engine.closing import configured
from .links import Links
from .refusals import RefusedError
from .session.purpose import link_test
from .session.session import has_session
from .session.stats import FirstOnly
from .session.turns import Turns
from .settings import read
from .web.meta import COPY_OF, DUPLICATE_OF
from .web.page_text import read_canonical
from .web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from .session.session import Session
    from .session.visit import Visit


logger = logging.getLogger(__name__)

Weigh: TypeAlias = Callable[[Request, Response], float]
"""Weight of a link, a request that a callback yields, on the page of a response."""

_UNIT = 1000
"""Weight of an ordinary link, so that weights are whole numbers of thousandths."""


class LinkFound(Struct):
    """A request that a callback yields.

    Attributes:
        request: What it is by now.
        is_link: Whether it is a link that the page happens to have, and not made on purpose.
    """

    request: Request
    page: PageFound
    is_link: bool


Step: TypeAlias = Callable[[LinkFound], bool]
"""Something that a request goes through on its way from a callback to the scheduler: whether it is to go on."""


@dataclass(slots=True)
class PageFound:
    """A page whose callback yields requests.

    Attributes:
        visit: Its visit; ``None`` if it belongs to none.
        is_link: Whether a request is a link that the page happens to have.
        steps: What its links go through, in order. They are chosen once a page, so that ordinary links cost no more than
            it takes to admit and to mark them.
        added: Requests to be yielded before the one in work.
        n_links: Links so far, if they are counted.
    """

    response: Response
    visit: Visit | None
    session: Session
    is_link: Callable[[Request], bool]
    steps: list[Step]
    added: list[Request] = field(default_factory=list)
    n_links: int = 0

    def take(self, request: Request, *, is_link: bool = False) -> Request | None:
        """What *request* has become after all steps; ``None`` if one of them has dropped it."""
        link = LinkFound(request, self, is_link or self.is_link(request))
        for step in self.steps:
            if not step(link):
                return None
        return link.request


class LinkMiddleware:
    """Marks each request that a callback yields as a link of the page, before any other middleware sees it.

    A link gets the normal form of its URL, or is dropped if that is not to be queued; what the spider requests on
    purpose is left as it is (docs/urls.md).

    Links are passed on one by one, and nothing is kept of them but a fingerprint each, up to ``AOPIC_MAX_LINKS`` a page.
    A link that another middleware drops after that never reaches the scheduler: its share of the cash goes to the virtual
    page. ``AOPIC_LINK_WEIGHTS`` says how large the share of a link is.

    The text of each page is compared with those of other pages before its callback is called: the response for a duplicate
    has the URL of the page that had the text before in ``response.meta["aopic_duplicate_of"]``, and its links are dropped
    unless ``AOPIC_FOLLOW_DUPLICATES``. A page's canonical page is added to its links (docs/content.md).

    Order: next to the spider (1000 or more in ``SPIDER_MIDDLEWARES``). Needs :class:`scrapy_aopic.Scheduler`.
    """

    session: Session | None = None
    """That of the crawl, while its job is open; the scheduler sets it."""

    def __init__(self, crawler: Crawler, weigh: Weigh | None = None) -> None:
        self._crawler = crawler
        self._weigh = weigh
        self._follows_duplicates: bool = read(crawler.settings, "AOPIC_FOLLOW_DUPLICATES")
        self._canonical: str = read(crawler.settings, "AOPIC_CANONICAL")
        self._flood: int = read(crawler.settings, "AOPIC_LINK_FLOOD")
        self._first = FirstOnly(logger, crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not has_session(crawler):
            logger.warning(
                'LinkMiddleware pays cash only with SCHEDULER = "scrapy_aopic.Scheduler"; it expands Links'
            )
        with configured(crawler):
            weights = read(crawler.settings, "AOPIC_LINK_WEIGHTS")
            return cls(crawler, _by_kind(**weights) if isinstance(weights, dict) else weights)

    def process_spider_input(self, response: Response) -> None:
        session, request = self.session, response.request
        if session is None or request is None:
            return
        visit = session.visits.get(request)
        if visit is not None and visit.unwanted is not None:
            raise visit.unwanted
        response.meta.pop(DUPLICATE_OF, None)  # a callback may have copied it from another page
        response.meta.pop(COPY_OF, None)
        first, copy = session.responses.compare(response, self._named)
        if first:
            response.meta[DUPLICATE_OF] = first
        if copy:
            response.meta[COPY_OF] = copy

    def process_spider_exception(self, response: Response, exception: Exception) -> list[Any] | None:
        return [] if isinstance(exception, RefusedError) else None  # nobody needs an errback for that

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        session = self.session
        page = self._page(response, session) if session is not None else None
        turns = Turns()
        async for item in result:
            for each, is_link in _expand(item):
                if page is None or not isinstance(each, Request):
                    yield each
                    continue
                if (
                    perf_counter() > turns.ends_at
                ):  # a page may have thousands of links, each of which takes 50 microseconds
                    await turns.step()
                link = page.take(each, is_link=is_link)
                while page.added:
                    yield page.added.pop(0)
                if link is not None:
                    yield link

    # -- what a link goes through

    def _page(self, response: Response, session: Session) -> PageFound:
        """The page of *response*, with the steps that its links go through."""
        assert self._crawler.spider is not None
        visit = session.visits.of(response.request) if response.request is not None else None
        steps: list[Step] = []
        if visit is not None and visit.is_duplicate and not self._follows_duplicates:
            steps.append(self._drop_of_duplicate)
        if self._flood:
            steps.append(self._drop_of_flood)
        if visit is not None and self._canonical != "off":
            steps.append(self._add_canonical)
        steps.append(self._admit)
        return PageFound(response, visit, session, link_test(response, self._crawler.spider), steps)

    def _drop_of_duplicate(self, link: LinkFound) -> bool:
        """Drop what a duplicate leads to, and count it; the first one of a kind is logged."""
        response, visit = link.page.response, link.page.visit
        if not link.is_link or visit is None:
            return True
        link.page.session.stats.count("aopic/content/links_dropped")
        name = "AOPIC_SAME_WORDS" if visit.is_excess else "AOPIC_CONTENT_SEEN"
        what = "one more page with the words of" if visit.is_excess else "the same page as"
        self._first.warning(
            name,
            "%(page)s is %(what)s %(first)s (%(name)s = %(value)r), so that its links are not followed, the first of "
            "them %(link)s: set AOPIC_FOLLOW_DUPLICATES = True to follow them. Further such links are not logged "
            "(aopic/content/links_dropped counts them)",
            page=response.url,
            what=what,
            first=response.meta.get(DUPLICATE_OF, ""),
            name=name,
            value=read(self._crawler.settings, name),
            link=link.request.url,
        )
        return False

    def _drop_of_flood(self, link: LinkFound) -> bool:
        """Drop a link too many, and count it; the first page that has some is logged."""
        page = link.page
        page.n_links += link.is_link
        if not link.is_link or page.n_links <= self._flood:
            return True
        page.session.stats.count("aopic/links/dropped")
        self._first.warning(
            "flood",
            "%(page)s has more than %(n)d links (AOPIC_LINK_FLOOD), of which no more are followed: set "
            "AOPIC_LINK_FLOOD = 0 to follow them all. Further such pages are not logged (aopic/links/dropped counts "
            "the links)",
            page=page.response.url,
            n=self._flood,
        )
        return False

    def _add_canonical(self, link: LinkFound) -> bool:
        """Add the canonical page to the links, before the first of them."""
        page = link.page
        page.steps = [step for step in page.steps if step != self._add_canonical]  # once is enough
        if page.visit is not None:
            canonical = self._canonical_of(page.response, page.visit, page.session)
            if canonical is not None:
                page.visit.note(canonical, self._weight(canonical, page.response), "canonical")
                page.added.append(canonical)
        return True

    def _admit(self, link: LinkFound) -> bool:
        """Give *link* the normal form of its URL and mark it, unless it is turned away; it is the page's in any case."""
        page, found = link.page, link.request
        admission = page.session.admission
        url = page.response.url
        admitted = admission.admit_link(found, url) if link.is_link else admission.admit(found, url)
        if page.visit is not None:
            # By what the callback yields: that is how the page has the link.
            weight = self._weight(found, page.response) if self._weigh is not None else None
            page.visit.note(admitted or found, weight)
        if admitted is None:
            return False
        link.request = admitted
        return True

    def _canonical_of(self, response: Response, visit: Visit, session: Session) -> Request | None:
        """A request for the page that *response* says it is, if that is another one and is to be queued for that."""
        request = self._named(response) if not visit.is_duplicate else None
        if request is None:
            return None
        if self._canonical == "known" or (
            self._canonical == "domain" and not _is_internal(request.url, response.url)
        ):
            # Who copies a page with its head says so, too, and need not be asked for the other one.
            if not visit.is_itself(request):
                session.note_canonical(visit, request)
            return None
        admitted = session.admission.admit_link(request, response.url)
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
        except Exception:  # noqa: BLE001 - logged once, whatever the user's function raises
            self._count("aopic/links/unweighed")
            self._first.exception(
                "weight",
                "AOPIC_LINK_WEIGHTS gives no weight from 0 to 1,000,000 for the link from %(page)s to %(link)s, "
                "which counts 1; further ones are only counted (aopic/links/unweighed)",
                page=response.url,
                link=request.url,
            )
            return _UNIT


def _expand(item: Any) -> Iterator[tuple[Any, bool]]:
    """What *item*, which a callback yields, stands for, and whether that is a link for certain."""
    if isinstance(item, Links):
        for request in item.requests():
            yield request, True
    else:
        yield item, False


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

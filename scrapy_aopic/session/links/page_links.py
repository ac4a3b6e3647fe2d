"""From what a callback yields to the links of its page: which count, which are followed, and on which way.

Rule 1: a page's links are counted as the callback yields them, whatever becomes of them afterwards: the share of a link
that is not followed goes to the virtual page.

Rule 2: links keep their order. What cannot wait in the batch goes on as a request, behind those that wait there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from scrapy import Request

from scrapy_aopic._engine.loop import soon
from scrapy_aopic.exceptions import ComponentError
from scrapy_aopic.links import Links
from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.session.visit import LONG
from scrapy_aopic.settings import read
from scrapy_aopic.web.meta import DUPLICATE_OF
from scrapy_aopic.web.page_text import read_canonical
from scrapy_aopic.web.request_codec import decode
from scrapy_aopic.web.request_rows import IN_MEMORY

from .batch import Batch
from .link_weights import Weights, is_internal
from .purpose import link_test

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_aopic._engine.direct_requests import Passages
    from scrapy_aopic.session.session import Session
    from scrapy_aopic.session.turns import Turns
    from scrapy_aopic.session.visit import Visit

    from .link_weights import Weigh

logger = logging.getLogger(__name__)


class LinkFound(Struct):
    """Something that a callback wants to be fetched.

    Attributes:
        url: Its URL, as the callback has it.
        request: The request for it by now; ``None`` if there is only a URL.
        is_link: Whether it is a link that the page happens to have, and not made on purpose.
        names: Those of its callback and errback, if it is for nothing but its URL and may wait in the page's batch.
        links: What has it, if there is only a URL.
    """

    url: str
    request: Request | None
    is_link: bool
    names: tuple[str, str] | None = None
    links: Links | None = None

    def made(self) -> Request:
        """The request for it."""
        if self.request is None:
            assert self.links is not None
            self.request = self.links.request(self.url)
        return self.request


_AT_ONCE = 50
"""Links of :class:`~scrapy_aopic.Links` that are taken together, in a tenth of a millisecond."""

_WAITS = (0.0, *[0.0005] * 4, *[0.002] * 4)
"""Seconds between looks at whether the store has read something: most servers reply within one turn of the event loop, and
for one that has not replied after 10 ms the crawl waits when it needs that."""

Step: TypeAlias = Callable[["PageLinks", LinkFound], bool]
"""Something that a link goes through on its way from a callback to the scheduler: whether it is to go on."""


class Following:
    """How the links of all pages of a crawl are followed.

    Args:
        weigh: Says how large the shares of links are, if they differ.
        passages: What happens to links on their way to the scheduler.

    Attributes:
        steps: What the links of a page go through: those of its page that apply, in this order.
    """

    def __init__(self, crawler: Crawler, weigh: Weigh | None, passages: Passages) -> None:
        self._crawler = crawler
        self._follows_duplicates: bool = read(crawler.settings, "AOPIC_FOLLOW_DUPLICATES")
        self._canonical: str = read(crawler.settings, "AOPIC_CANONICAL")
        self._flood: int = read(crawler.settings, "AOPIC_LINK_FLOOD")
        self._first = FirstOnly(logger, crawler)
        self._weights = Weights(weigh, self._first) if weigh is not None else None
        self._passages = passages

    def page(self, response: Response, session: Session) -> PageLinks:
        """The page of *response*, with the steps that its links go through.

        They are chosen once a page, so that ordinary links cost no more than it takes to admit and to count them.
        """
        spider = self._crawler.spider
        assert spider is not None
        visit = session.visits.of(response.request) if response.request is not None else None
        steps: list[Step] = []
        if visit is not None and visit.is_duplicate and not self._follows_duplicates:
            steps.append(self._drop_of_duplicate)
        if self._flood:
            steps.append(self._drop_of_flood)
        if visit is not None and self._canonical != "off":
            steps.append(self._add_canonical)
        steps.append(self._admit)
        batch = None
        if visit is not None and session.has_batches:
            passage = self._passages.of(response)
            if passage is not None:
                batch = Batch(session, visit, spider, passage)
        is_link = link_test(response, spider)
        return PageLinks(self, response, session, visit=visit, is_link=is_link, steps=steps, batch=batch)

    def takes_all(self, page: PageLinks, n: int) -> bool:
        """Whether the next *n* links of *page*, URLs alone, need no steps one by one.

        If so, they are counted, and the canonical page is among the links, before them.
        """
        if self._weights is not None:
            return False
        has_canonical = False
        for step in page.steps:
            if step == self._drop_of_flood:
                if page.n_links + n > self._flood:
                    return False
            elif step == self._add_canonical:
                has_canonical = True
            elif step != self._admit:
                return False
        if has_canonical:
            self._take_canonical(page)
        page.n_links += n
        return True

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

    # -- steps

    def _drop_of_duplicate(self, page: PageLinks, link: LinkFound) -> bool:
        """Drop what a duplicate leads to, and count it; the first one of a kind is logged."""
        response, visit = page.response, page.visit
        if not link.is_link or visit is None:
            return True
        page.session.stats.count("aopic/content/links_dropped")
        page.session.dropped.note("duplicate", link.url, response.url)
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
            link=link.url,
        )
        return False

    def _drop_of_flood(self, page: PageLinks, link: LinkFound) -> bool:
        """Drop a link too many, and count it; the first page that has some is logged."""
        page.n_links += link.is_link
        if not link.is_link or page.n_links <= self._flood:
            return True
        page.session.stats.count("aopic/links/dropped")
        page.session.dropped.note("flood", link.url, page.response.url)
        self._first.warning(
            "flood",
            "%(page)s has more than %(n)d links (AOPIC_LINK_FLOOD), of which no more are followed: set "
            "AOPIC_LINK_FLOOD = 0 to follow them all. Further such pages are not logged (aopic/links/dropped counts "
            "the links)",
            page=page.response.url,
            n=self._flood,
        )
        return False

    def _add_canonical(self, page: PageLinks, _: LinkFound) -> bool:
        """Add the canonical page to the links, before the first of them."""
        self._take_canonical(page)
        return True

    def _take_canonical(self, page: PageLinks) -> None:
        page.steps = [step for step in page.steps if step != self._add_canonical]  # once is enough
        if page.visit is not None:
            try:
                canonical = self._canonical_of(page.response, page.visit, page.session)
            except ComponentError as error:
                page.session.trouble.failed("canonical", error, ())
                return
            if canonical is not None:
                page.visit.note(canonical, self._weight(page, canonical), "canonical")
                page.add(canonical)

    def _admit(self, page: PageLinks, link: LinkFound) -> bool:
        """Count *link*, give it the normal form of its URL and let it wait, unless it is turned away.

        Returns:
            Whether it goes on as a request.
        """
        if link.names is not None and page.batch is not None and page.visit is not None:
            return self._admit_plain(page, link, page.batch, page.visit, link.names)
        found = link.made()
        admission, url = page.session.admission, page.response.url
        admitted = admission.admit_link(found, url) if link.is_link else admission.admit(found, url)
        if page.visit is not None:
            # By what the callback yields: that is how the page has the link.
            page.visit.note(admitted or found, self._weight(page, found))
        link.request = admitted
        return admitted is not None

    def _admit_plain(
        self, page: PageLinks, link: LinkFound, batch: Batch, visit: Visit, names: tuple[str, str]
    ) -> bool:
        """The same of a *link* that is a request for nothing but its URL."""
        session = page.session
        admission = session.admission
        weight = self._weight(page, link.made()) if self._weights is not None else None
        if link.is_link:
            place = session.places.of(link.url)
            url, host, key = place.verdict.url, place.host, place.key
            is_admitted = admission.admit_found(link.url, place.verdict, page.response.url)
        else:
            link.request = admission.admit(link.made(), page.response.url)
            is_admitted = link.request is not None
            url = link.request.url if link.request is not None else link.url
            host, key = session.keys.of_link(url)
        if key:  # else it is no URL, and no link
            visit.note_found(key, weight)
        if not is_admitted or batch.add(
            url, host, key, names, weight=weight, is_on_purpose=not link.is_link, request=link.request
        ):
            return False
        if link.is_link:
            request = link.made()
            link.request = request if request.url == url else request.replace(url=url)
        assert link.request is not None
        visit.note(link.request, weight)
        return True

    def _canonical_of(self, response: Response, visit: Visit, session: Session) -> Request | None:
        """A request for the page that *response* says it is, if that is another one and is to be queued for that."""
        request = self.named(response, session) if not visit.is_duplicate else None
        if request is None:
            return None
        if self._canonical == "known" or (
            self._canonical == "domain" and not is_internal(request.url, response.url)
        ):
            # Who copies a page with its head says so, too, and need not be asked for the other one.
            if not visit.is_itself(request):
                session.note_canonical(visit, request)
            return None
        admitted = session.admission.admit_link(request, response.url)
        return None if admitted is None or visit.is_itself(admitted) else admitted

    def _weight(self, page: PageLinks, request: Request) -> int | None:
        """Weight of *request* in thousandths, if links differ."""
        if self._weights is None:
            return None
        return self._weights.of(request, page.response, page.session.stats)


class PageLinks:
    """The links of one page, while its callback yields them.

    Args:
        visit: Its visit; ``None`` if it belongs to none.
        is_link: Whether a request is a link that the page happens to have.
        steps: What its links go through.
        batch: Where links wait that no request is needed for; ``None`` if something on their way needs requests.

    Attributes:
        n_links: Links so far, if they are counted.
        is_asked: Whether the callback is asked for more.
        is_watched: Whether somebody looks, in the next turn of the event loop, if it still is.
        is_waiting: Whether it was when somebody looked.
    """

    __slots__ = (
        "_added",
        "_following",
        "_is_link",
        "batch",
        "is_asked",
        "is_waiting",
        "is_watched",
        "n_links",
        "response",
        "session",
        "steps",
        "visit",
    )

    def __init__(
        self,
        following: Following,
        response: Response,
        session: Session,
        *,
        visit: Visit | None,
        is_link: Callable[[Request], bool],
        steps: list[Step],
        batch: Batch | None,
    ) -> None:
        self._following = following
        self.response = response
        self.visit = visit
        self.session = session
        self.steps = steps
        self.batch = batch
        self._added: list[Request] = []
        self.n_links = 0
        self._is_link = is_link
        self.is_asked = self.is_watched = self.is_waiting = False
        if visit is not None and batch is not None:
            visit.begin_batch(batch.flush)

    # -- whether the callback waits

    def watch(self) -> None:
        """Look in the next turn of the event loop whether the callback still owes what it is asked for: then it awaits something."""
        self.is_watched = True
        soon(self._look)

    def goes_on(self) -> None:
        """The callback waits no more: it has yielded something, or ended."""
        if self.is_waiting and self.visit is not None:
            self.visit.go_on()
        self.is_asked = self.is_waiting = False

    def _look(self) -> None:
        self.is_watched = False
        if self.is_asked and self.visit is not None and self.session.is_open:
            # It may wait for what it has yielded, some of which may still be on its way.
            self.is_waiting = True
            self.visit.wait()
            if self.batch is not None:
                self.batch.flush()
            self.session.intake.announce(self.visit)

    # -- what it yields

    def take(self, request: Request, *, is_link: bool = False) -> Sequence[Request]:
        """Take *request*, which the callback yields; returns the requests that go on instead, mostly none.

        Args:
            is_link: Whether it is a link for certain.
        """
        names = None
        if self.batch is not None and len(request.url) <= LONG:
            names = self.batch.names_of(request)
        return self._through(LinkFound(request.url, request, is_link or self._is_link(request), names))

    def take_links(self, links: Links) -> Iterator[Request | None]:
        """The same for all of *links*; ``None`` where time has passed and nothing goes on."""
        urls, batch = links.urls(), self.batch
        names = (
            batch.names(links.callback, links.errback) if batch is not None and not links.cb_kwargs else None
        )
        while some := list(islice(urls, _AT_ONCE)):
            if batch is not None and names is not None and self._following.takes_all(self, len(some)):
                batch.add_all(some, names, links, self.response.url)
                yield None
            else:
                for url in some:
                    yield from self.take_url(url, links) or (None,)

    def take_url(self, url: str, links: Links) -> Sequence[Request]:
        """The same for the one of *links* with *url*."""
        if self.batch is not None and not links.cb_kwargs and len(url) <= LONG:
            names = self.batch.names(links.callback, links.errback)
            if names is not None:
                return self._through(LinkFound(url, None, True, names, links))
        try:
            request = links.request(url)
        except ValueError:
            place = self.session.places.of(url)
            self.session.admission.admit_found(
                url, place.verdict, self.response.url
            )  # which says that it is none
            return ()
        return self.take(request, is_link=True)

    def _through(self, link: LinkFound) -> Sequence[Request]:
        """Let *link* go through all steps."""
        goes_on = True
        for step in self.steps:
            goes_on = step(self, link)
            if not goes_on:
                break
        if not goes_on and not self._added:
            return ()
        requests, self._added = self._added, []
        if goes_on and link.request is not None:
            if self.batch is None:
                requests.append(link.request)
                if self.visit is not None:
                    self.visit.pass_on(link.request)
            else:
                self.batch.send(link.request)
        return requests

    def add(self, request: Request) -> None:
        """Let *request* go on before what is in work."""
        if self.batch is None:
            self._added.append(request)
        else:
            self.batch.send(request)

    async def prefetch(self, turns: Turns) -> None:
        """Wait until the store has read what :meth:`end` will look at, if it does that while the crawl goes on."""
        batch = self.batch
        if batch is not None and self.session.prefetches:
            number = batch.prefetch()
            for seconds in _WAITS if number else ():
                await turns.pause(seconds)
                if batch.has_come(number):
                    break

    def end(self) -> None:
        """The callback yields no more."""
        self.goes_on()
        if self.batch is not None:
            self.batch.flush()
        if self.visit is not None:
            self.visit.end_batch()

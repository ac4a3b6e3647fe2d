"""The links of a page in one piece: looked up with one read, and queued without a request for each.

Most links are requests for nothing but a URL, on the way to which nothing happens that is not the same for all links of the
page (:mod:`scrapy_aopic._engine.direct_requests`). Such a link waits here until its page has no more of them, or :data:`MOST` are
here. It becomes a line of text if its page is new, and a key otherwise; a request is made when its page is about to be
fetched.

Rule: nothing differs from links that come as requests, one by one: the same pages are queued with the same bytes, in the
same order, and the same is counted. What is more than a URL goes through as a request, behind the links that wait here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from scrapy_aopic.session.intake import FoundLink
from scrapy_aopic.web.request_codec import is_plain, name_of
from scrapy_aopic.web.request_rows import tail_of

from .admitted import is_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from scrapy import Request, Spider

    from scrapy_aopic._engine.direct_requests import Passage
    from scrapy_aopic.links import Links
    from scrapy_aopic.session.session import Session
    from scrapy_aopic.session.visit import Visit

    Callback = Callable[..., Any] | None

_NO_NAMES = ("", "")

MOST = 200
"""Links that are looked up at once: a millisecond or two, of which most is over after one read."""


class Batch:
    """Links of the page of *visit*.

    Args:
        passage: What happens to them on their way.
    """

    def __init__(self, session: Session, visit: Visit, spider: Spider, passage: Passage) -> None:
        self._session = session
        self._intake = intake = session.intake
        self._admission = session.admission
        self._place = session.places.of
        self._visit = visit
        self._spider = spider
        self._passage = passage
        self._keeps = intake.keeps_requests
        self._takes_urls = passage.is_uniform and intake.takes_found
        self._found: list[FoundLink] = []
        self._names: dict[tuple[Callback, Callback], tuple[str, str] | None] = {}
        self._tails: dict[tuple[tuple[str, str], str, bool], str | None] = {}

    def names(self, callback: Callback, errback: Callback) -> tuple[str, str] | None:
        """Names of *callback* and *errback* in a stored request; ``None`` if links need requests, or these are no methods."""
        if not self._takes_urls:
            return None
        if callback is None and errback is None:
            return _NO_NAMES
        try:
            if (callback, errback) not in self._names:
                self._names[callback, errback] = self._look_up(callback, errback)
            return self._names[callback, errback]
        except TypeError:  # it has no hash
            return self._look_up(callback, errback)

    def _look_up(self, callback: Callback, errback: Callback) -> tuple[str, str] | None:
        try:
            return (
                name_of(self._spider, callback) if callback is not None else "",
                name_of(self._spider, errback) if errback is not None else "",
            )
        except ValueError:
            return None

    def names_of(self, request: Request) -> tuple[str, str] | None:
        """The same of *request*; ``None`` if there is more to it than its URL, too."""
        is_url = self._takes_urls and is_plain(request)
        return self.names(request.callback, request.errback) if is_url else None

    def add(
        self,
        url: str,
        host: str,
        key: bytes,
        names: tuple[str, str],
        *,
        weight: int | None,
        is_on_purpose: bool,
        request: Request | None,
    ) -> bool:
        """Take the link with *url*, in normal form, if that can be done here.

        Args:
            host, key: Those of its page.
            names: From :meth:`names`.
            weight: Weight, if links differ in weight.
            is_on_purpose: Whether the spider requests it on purpose.
            request: The request for it, if there is one.

        Returns:
            False if it has to take the other way.
        """
        if not (is_line(url) and self._passage.takes(url)):
            return False
        tail = self._tail(url, names, is_on_purpose=is_on_purpose)
        if tail is None:
            return False
        if self._passage.lets(url, host):
            # Weakly: most callbacks have forgotten it by the time that it is queued.
            made = ref(request) if self._keeps and request is not None and request.url == url else None
            self._found.append(FoundLink(url, host, key, weight, tail, made))
            if len(self._found) >= MOST:
                self.flush()
        else:
            self._drop("offsite", url)
        return True

    def add_all(self, urls: Sequence[str], names: tuple[str, str], links: Links, page: str) -> None:
        """Count and take those of *links* with *urls*, not in normal form yet, of the page with the URL *page*.

        It does what is done for each of them elsewhere, with as few calls as it takes.
        """
        passage = self._passage
        places = list(map(self._place, urls))
        self._visit.note_all([place.page for place in places if place.key])
        tails: dict[str, str | None] = {}
        for url, place in zip(urls, places, strict=True):
            verdict = place.verdict
            normal = verdict.url
            if (verdict.reason or normal != url) and not self._admission.admit_found(url, verdict, page):
                continue
            alike = passage.alike(normal)
            if alike not in tails:
                tails[alike] = self._tail(normal, names, is_on_purpose=False)
            tail = tails[alike]
            if tail is None or not (place.is_line and passage.takes(normal)):
                request = links.request(normal)
                self._visit.note(request)
                self.send(request)
            elif passage.lets(normal, place.host):
                self._found.append(FoundLink(normal, place.host, place.key, None, tail))
            else:
                self._drop("offsite", normal)
        if len(self._found) >= MOST:
            self.flush()

    def _tail(self, url: str, names: tuple[str, str], *, is_on_purpose: bool) -> str | None:
        """What is written after *url*; ``None`` if that cannot be written as a line."""
        referer = self._passage.referer(url)
        try:
            return self._tails[names, referer, is_on_purpose]
        except KeyError:
            tail = None
            if not referer or is_line(referer):
                tail = tail_of(*names, self._passage.depth, referer, is_on_purpose=is_on_purpose)
            self._tails[names, referer, is_on_purpose] = tail
            return tail

    def send(self, request: Request) -> None:
        """Let *request* go through, behind what waits here."""
        self.flush()
        sent = self._passage.send(request)
        if sent is None:
            self._drop(self._passage.dropped_for, request.url)
        elif self._session.is_open:
            self._intake.enqueue(sent)

    def _drop(self, reason: str, url: str) -> None:
        """Note that the link with *url* goes no further."""
        self._session.dropped.note(reason, url, self._visit.request.url)

    def prefetch(self) -> int:
        """Let the store read what :meth:`flush` will look at; returns a number for :meth:`has_come`."""
        if not (self._found and self._session.is_open):
            return 0
        return self._intake.prefetch_found(self._visit, self._found)

    def has_come(self, number: int) -> bool:
        """Whether the store has read that."""
        return self._intake.has_come(number, self._visit)

    def flush(self) -> None:
        """Let all that wait here reach the visit."""
        self._passage.end()
        if self._found:
            found, self._found = self._found, []
            if self._session.is_open:  # else the crawl is over, and its page will be fetched again
                self._intake.take_found(self._visit, found)
                if self._visit.is_waiting:
                    self._intake.announce(self._visit)

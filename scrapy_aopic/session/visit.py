"""A page in work: what is known of its visit between the lease and the end, and which visits there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from scrapy import Request
from scrapy.http import Response

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.duplicates import Text
from scrapy_aopic.core.fetched import Fetched
from scrapy_aopic.core.focus.harvest_results import Degrees
from scrapy_aopic.core.focus.leads import IN_FULL
from scrapy_aopic.core.focus.topic import LinkText, PageWords
from scrapy_aopic.core.records import HOST_BYTES, Link
from scrapy_aopic.core.revisits import Version
from scrapy_aopic.core.revisits.found import NAMES, Found
from scrapy_aopic.request_errors import RefusedError
from scrapy_aopic.web.chain_cookies import ChainCookies
from scrapy_aopic.web.content_types import declared_type
from scrapy_aopic.web.context import PageContext, path_of
from scrapy_aopic.web.meta import TAG
from scrapy_aopic.web.request_rows import SLOT

if TYPE_CHECKING:
    from .links.found_link import FoundLink

    PageKeyOf: TypeAlias = Callable[[Request], tuple[str, bytes]]

_GONE = (404, 410)
"""Statuses of a repeated visit that retire the page; of others nothing follows, it may be there the next time."""

MAX_LINKS = 10_000
"""Distinct links of a page that share its cash; further ones are queued at once, without any."""

_MOST_PASSED = 1000
"""Links of a page whose way to the scheduler is followed, if anything may drop them: a sample is all that is kept."""


class Mark(Struct, frozen=True, gc=False):
    """The mark of a visit in the ``meta`` of a request; copies of the request carry it, too.

    A link also carries its page key, which is not worked out twice, with what it was worked out from: a spider
    middleware may change the request.

    Attributes:
        kind: ``page`` for the request that the engine was given, ``link`` and ``canonical`` for links of the page.
        visit: Number of the visit.
        weight: Weight of the link, ``None`` if links do not differ in weight.
        url: URL of the request; empty if its page key was not worked out.
        slot: Its download slot, if it has one.
        host: Name of its host.
        key: Its page key.
    """

    kind: Literal["page", "link", "canonical"]
    visit: int
    weight: int | None = None
    url: str = ""
    slot: str | None = None
    host: str = ""
    key: bytes = b""


_NO_TEXT = LinkText("")


class PageReading(Struct):
    """The reading of a page in work for a topic (:mod:`scrapy_aopic.session.topic.grading`).

    Attributes:
        grade: How relevant it is.
        urls: URLs of its links, by the latter halves of their page keys.
        context: The text of each link, and around it.
        text: Its text, if the strategy reads it.
        degrees: How much text and how many links it has, if the strategy asks.
        gist: What it is about, if it may be relevant.
    """

    grade: float
    urls: Mapping[bytes, str]
    context: PageContext
    text: str = ""
    degrees: Degrees | None = None
    gist: bytes = b""

    def of(self, page: bytes) -> LinkText:
        """The text of the link to *page*, the latter half of a page key, and around it; empty if no element of the page is that link."""
        url = self.urls.get(page)
        return self.context.links[url] if url is not None else _NO_TEXT

    def path(self, page: bytes) -> str:
        """Path and query of the URL of that link; empty if no element of the page is that link."""
        url = self.urls.get(page)
        return path_of(url) if url is not None else ""

    def cut(self, pages: Sequence[bytes]) -> PageWords | None:
        """The words of the links to *pages*; ``None`` if they were not cut."""
        return self.context.cut(list(map(self.urls.get, pages)), IN_FULL)


class Visit(Struct, eq=False):
    """The visit of a page: a request that the engine has, and what has happened to it so far.

    Rule: only this file changes a visit. Others report events by the methods named after them, and :meth:`findings` alone
    works out how it ended.

    Attributes:
        request: The request that the engine was given.
        lease: The lease of the page.
        number: Which visit of this process it is.
        links: Requests that reached the scheduler as links of the page, and wait for its end.
        announced: Links by page key that were queued before, since the callback waits, and are paid at its end.
        is_waiting: Whether the callback awaits something.
        flush: Has links that wait elsewhere wait here; ``None`` if none can.
        retry: The request to make instead, if the downloader wants another try.
        weight: Weight of all distinct links so far, 0 if they do not differ in weight.
        is_downloading: Whether the downloader is not done with the request.
        has_arrived: Whether the response is here, and waits for the others that are read.
        answer: The response of the downloader, until it is known whether it redirects.
        cookies: Those of its redirect chain, which the request was sent with; ``None`` for none.
        unwanted: The error for the errback, if the response is not read.
        has_too_many_attributes: Whether an element of its response has more than can be parsed.
        is_conditional: Whether the request asked for the page only if it has changed.
        is_duplicate: Whether another page had its text before.
        is_excess: Whether that one has other links, and there are too many such pages.
        reading: Its reading for the topic; ``None`` if it was not read.
        cost: Seconds of the processor that its answer has taken.
        is_given_up: Whether the crawl ends before the page was read.
        is_gone: Whether the callback gets the page because it is gone.
        found: What it has found, by the names of :func:`values_of`; ``None`` if pages are visited once.
        given_grade: The result of the user's asynchronous function for pages, or the error that it raised.
    """

    request: Request
    lease: Lease
    number: int
    _keys: PageKeyOf
    links: list[Link] = []
    announced: dict[bytes, Link] = {}
    is_waiting: bool = False
    flush: Callable[[], None] | None = None
    retry: Link | None = None
    weight: int = 0
    is_downloading: bool = True
    has_arrived: bool = False
    answer: Response | None = None
    cookies: ChainCookies | None = None
    unwanted: RefusedError | None = None
    has_too_many_attributes: bool = False
    is_conditional: bool = False
    is_duplicate: bool = False
    is_excess: bool = False
    reading: PageReading | None = None
    cost: float = 0.0
    is_given_up: bool = False
    is_gone: bool = False
    found: dict[str, str | None] | None = None
    given_grade: float | BaseException | None = None
    _status: int | None = None
    _failure: str = ""
    _fetched: Fetched | None = None
    _version: Version | None = None
    _is_redirect: bool = False
    _has_other_language: bool = False
    _is_host_down: bool = False
    _is_proxys: bool = False
    _is_accepted: bool = False
    _has_failed: bool = False
    _same_as: bytes = b""
    _same_host: str = ""
    _is_if_same: bool = False
    _text: tuple[Response, Text | None] | None = None
    _wishes: tuple[str, str] | tuple[()] = ()
    _n_beats: int = 0
    _every: float = 0.0
    _dated: list[tuple[dict[bytes, str], Mapping[str, float]]] | None = None
    _passed: dict[int, tuple[Mark, str]] | None = None
    _seen: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<visit {self.number} of {self.request}>"

    # -- its request and the response

    def asked_if_changed(self) -> None:
        """The request is conditional: the host sends the page only if it has changed."""
        self.is_conditional = True

    def sends(self, cookies: ChainCookies) -> None:
        """The request is sent with *cookies* of its redirect chain."""
        self.cookies = cookies

    def downloaded(self) -> None:
        """The downloader is done with the request."""
        self.is_downloading = False

    def answered(self, response: Response) -> None:
        """*response* has come, and no middleware has looked at it yet."""
        self.answer = response

    def passed_middlewares(self) -> None:
        """The response leads nowhere else, as no middleware has made a request of it."""
        self.answer = None

    def received(self) -> None:
        """The body is here, and may have to wait for others that are read."""
        self.has_arrived = True

    def fetched(self, status: int, content_type: str, size: int | None) -> None:
        """The response of the page has this status and type, and *size* bytes; ``None`` if its body was not read to its end."""
        self._fetched = Fetched(status, content_type, size)

    def has_attributes(self, *, too_many: bool) -> None:
        """An element of the response has *too_many* attributes, or none has."""
        self.has_too_many_attributes = too_many

    def refused(self, error: RefusedError) -> None:
        """The response is not to be read; the errback gets *error*."""
        self.unwanted = error
        self._status, self._failure = None, error.reason

    def failed(self, reason: str, *, is_host_down: bool | None = None, is_proxys: bool = False) -> None:
        """The callback gets no response.

        Args:
            reason: Why; empty if nothing new is known of that.
            is_host_down: Whether the host is to blame; ``None`` if nothing new is known of that.
            is_proxys: Whether it was the proxy that failed.
        """
        self._failure = reason or self._failure
        self._is_proxys |= is_proxys
        if is_host_down is not None:
            self._is_host_down = is_host_down

    def retried(self, link: Link, *, is_new_try: bool, has_other_proxy: bool = False) -> None:
        """A middleware wants the page to be requested again by *link*.

        Args:
            is_new_try: Whether one more try was counted for that.
            has_other_proxy: Whether it goes another way, and comes first, as what failed was the one before.
        """
        self.retry = link
        self._has_failed = not has_other_proxy and (is_new_try or bool(self._failure) or self._is_host_down)

    def redirected(self) -> None:
        """The response led elsewhere."""
        self._is_redirect = True
        if self.answer is not None:  # as it was sent, so that its size would mean something else
            self.fetched(self.answer.status, declared_type(self.answer.headers).essence, None)

    def responded(self, status: int, version: Version | None = None) -> None:
        """A response with *status* goes to the callback.

        Args:
            version: The version of the page that it states, if pages are visited again.
        """
        self._status, self._version = status, version

    def showed(self, found: dict[str, str | None], *, is_gone: bool) -> None:
        """What the response shows, compared with the visit before, and whether the callback gets it because the page *is_gone*."""
        self.found, self.is_gone = found, is_gone

    def accepted(self) -> None:
        """The callback deals with the response, whatever its status: it does not count against the host."""
        self._is_host_down, self._is_accepted = False, True

    # -- what the page is

    def claim(self, host: str, key: bytes, *, is_if_same: bool = False) -> None:
        """The response says that the page is the one under *key*, of the host called *host*.

        Args:
            is_if_same: Whether that only counts if they have the same words.
        """
        self._same_host, self._same_as, self._is_if_same = host, key, is_if_same

    def read_ahead(self, response: Response, text: Text | None) -> None:
        """*response* has *text*, which :meth:`take_text` returns once."""
        self._text = response, text

    def take_text(self) -> tuple[Response, Text | None] | None:
        """Take the arguments of :meth:`read_ahead`, which are forgotten here."""
        text, self._text = self._text, None
        return text

    def compared(self, *, is_duplicate: bool, is_excess: bool) -> None:
        """Whether another page had its text before, and whether that one has other links."""
        self.is_duplicate, self.is_excess = is_duplicate, is_excess

    def wishes(self, robots: str, usage: str) -> None:
        """Its owner asks *robots*, and says its *usage*; both are texts, empty for nothing."""
        self._wishes = (robots, usage) if robots or usage else ()

    def is_out_of_language(self) -> None:
        """It is in none of the languages that the crawl is for."""
        self._has_other_language = True

    def worked(self, seconds: float) -> None:
        """Its answer took *seconds* more of the processor."""
        self.cost += seconds

    def give_up(self) -> None:
        """The crawl ends before it was read."""
        self.is_given_up = True

    def read(self, reading: PageReading) -> None:
        """The page was read for the topic."""
        self.reading = reading

    def yielded_item(self) -> None:
        """It is relevant, since its callback yields an item."""
        if self.reading is not None:
            self.reading.grade = 1.0

    def graded(self, given: float | BaseException) -> None:
        """The user's asynchronous function gave or raised *given* for it."""
        self.given_grade = given

    # -- its end

    @property
    def failure(self) -> str:
        """Why its callback gets no response, as far as it is known."""
        return self._failure

    @property
    def is_as_before(self) -> bool:
        """Whether the response says, or shows to a spider that wants changes only, that the page is unchanged."""
        return self._version is not None and self._version.is_same

    @property
    def is_lost(self) -> bool:
        """Whether a middleware took its answer, and made nothing of it."""
        return self.answer is not None and self.retry is None and not self._is_redirect

    @property
    def waits_for_host(self) -> bool:
        """Whether the host is to blame for its failure, and no middleware wants another try."""
        return self._is_host_down and self.retry is None

    @property
    def has_servers_error(self) -> bool:
        """Whether a page that was never visited has only an error of its server (5xx), or proxy, which neither a middleware nor a callback takes."""
        is_new = self.retry is None and not self.lease.visits
        return is_new and not self._is_accepted and (self._is_proxys or (self._status or 0) >= 500)

    @property
    def has_failed(self) -> bool:
        """Whether the page is tried again because it failed."""
        return self._has_failed if self.retry is not None else self._is_host_down

    def findings(self, *, recrawls: bool) -> Findings:
        """How it ended.

        A page without a response failed, unless it led elsewhere; so did one with an error as status, unless its callback
        found links on it. A page that was visited before only fails if it is gone for good.

        Args:
            recrawls: Whether pages are visited again.
        """
        outcome, is_failure = "", False
        status = self._status
        if status is None:
            outcome = self._failure or ("redirect" if self._is_redirect else "no answer")
            is_failure = not self._is_redirect
        elif status >= 400 and (self.is_gone or not self._seen):
            outcome, is_failure = f"http {status}", True
        if self.is_duplicate:
            outcome = outcome or "duplicate"
        if self._has_other_language:
            outcome = outcome or "language"
        version = self._version
        if recrawls and self.lease.visits:
            version = version or Version()
            if is_failure and status not in _GONE:
                is_failure, version = False, Version(is_missing=True)
        return Findings(
            outcome,
            is_failure,
            len(self._seen),
            self.weight,
            version,
            self._same_as,
            self._is_if_same,
            self._same_host,
            wishes=self._wishes,
            fetched=self._fetched,
            dates=self._dates() if self._dated else None,
            every=self._every,
        )

    def _dates(self) -> dict[bytes, float]:
        """When pages were changed last according to the page, by key."""
        every = ((key, dates.get(url)) for keys, dates in self._dated or () for key, url in keys.items())
        return {key: at for key, at in every if at}

    # -- its links

    def wait(self) -> None:
        """The callback awaits something."""
        self.is_waiting = True

    def go_on(self) -> None:
        """The callback awaits nothing any more."""
        self.is_waiting = False

    def begin_batch(self, flush: Callable[[], None]) -> None:
        """Links of it wait in a batch until *flush* is called."""
        self.flush = flush

    def end_batch(self) -> None:
        """No link waits in a batch any more."""
        self.flush = None

    def beat(self) -> int:
        """Count a beat; returns the beats for which links have waited, 0 if none waits."""
        if not (self.links or self.retry is not None or self.flush is not None):
            return 0
        self._n_beats += 1
        return self._n_beats

    def announce(self, announced: Iterable[Link], n: int) -> set[bytes]:
        """The first *n* of what waited for its end were queued as *announced*, and wait no more; returns the keys of pages that stay unknown."""
        unknown, before = set[bytes](), self.announced
        for link in announced:
            if link.key not in before and len(before) < MAX_LINKS:
                before[link.key] = link
                if link.request:
                    unknown.add(link.key)
        self.links, self.retry = self.links[n:], None
        return unknown

    @property
    def n_links(self) -> int:
        """Distinct links that the callback yielded so far, as far as they count."""
        return len(self._seen)

    @property
    def room(self) -> int:
        """How many further links of the page share its cash."""
        return MAX_LINKS - len(self.links) - len(self.announced)

    def count(self, found: Iterable[FoundLink]) -> None:
        """Count *found*, which the callback yields, as links of the page, up to :data:`MAX_LINKS`.

        A page's link to itself does not count, and of several links to one page the first does.
        """
        seen, own, most = self._seen, self.lease.key[HOST_BYTES:], MAX_LINKS
        for link in found:
            page = link.key[HOST_BYTES:]
            if page not in seen and page != own and page and len(seen) < most:
                seen.add(page)
                self.weight += link.weight or 0

    def date(self, found: Iterable[FoundLink], urls: Sequence[str], dates: Mapping[str, float]) -> None:
        """The page may have dates of changes of *found*, whose URLs were *urls*; they are read when the visit ends."""
        pairs = ((link.key, url) for link, url in zip(found, urls, strict=True) if link.host)
        self._dated = [*(self._dated or []), (dict(pairs), dates)]

    def comes_every(self, seconds: float) -> None:
        """The page says that it has news so often; 0 if it does not say."""
        self._every = seconds

    def mark(self, link: FoundLink) -> None:
        """Mark the request of *link* as one of the page."""
        request = link.made()
        url = request.url if link.host else ""
        kind: Literal["link", "canonical"] = "canonical" if link.is_canonical else "link"
        slot = request.meta.get(SLOT)
        request.meta[TAG] = Mark(kind, self.number, link.weight, url, slot, link.host, link.key)

    def pass_on(self, request: Request) -> None:
        """*request*, a link, goes to the scheduler by way of middlewares that may drop it."""
        mark: Mark | None = request.meta.get(TAG)
        passed = self._passed = self._passed if self._passed is not None else {}
        if mark is not None and len(passed) < _MOST_PASSED:
            passed[id(mark)] = mark, request.url

    def arrived(self, mark: Mark) -> None:
        """The link with *mark* has reached the scheduler."""
        if self._passed is not None:
            self._passed.pop(id(mark), None)

    @property
    def lost(self) -> list[str]:
        """URLs of links that were passed on and did not arrive, as far as they are known."""
        return [url for _, url in self._passed.values()] if self._passed is not None else []

    def is_itself(self, request: Request) -> bool:
        """Whether *request* is for the page itself, whatever counts as its host."""
        return self._keys(request)[1][HOST_BYTES:] == self.lease.key[HOST_BYTES:]


class Visits:
    """The visits under way, by the request that the engine was given and by number."""

    def __init__(self, keys: PageKeyOf) -> None:
        self._keys = keys
        self._by_request: dict[Request, Visit] = {}
        self._by_number: dict[int, Visit] = {}
        self._n = 0
        self.get: Callable[[Request], Visit | None] = self._by_request.get
        """The visit of *request*; none of a copy of it, as a callback may download one inline."""
        self.numbered: Callable[[int], Visit | None] = self._by_number.get
        """The visit with a number."""

    def __len__(self) -> int:
        return len(self._by_request)

    def __iter__(self) -> Iterator[Visit]:
        return iter(list(self._by_request.values()))

    @property
    def n_downloading(self) -> int:
        """Visits whose request the downloader is not done with. O(visits under way)."""
        return sum(visit.is_downloading for visit in self._by_request.values())

    def begin(self, request: Request, lease: Lease) -> Visit:
        """A visit of the page of *lease* by *request*."""
        self._n += 1
        visit = Visit(request, lease, self._n, self._keys)
        request.meta[TAG] = Mark("page", visit.number)
        self._by_request[request] = self._by_number[visit.number] = visit
        return visit

    def end(self, visit: Visit) -> None:
        """Forget *visit*."""
        del self._by_request[visit.request]
        del self._by_number[visit.number]

    def clear(self) -> None:
        """Forget all visits."""
        self._by_request.clear()
        self._by_number.clear()

    def of(self, request: Request) -> Visit | None:
        """The visit that *request*, or a copy of it, belongs to."""
        visit = self._by_request.get(request)
        if visit is None and (mark := request.meta.get(TAG)) is not None:
            visit = self._by_number.get(mark.visit)
        return visit


def values_of(found: Found) -> dict[str, str | None]:
    """The values by :data:`~scrapy_aopic.core.revisits.found.NAMES`: a word, two times in ISO 8601 and a digest; ``None`` for what is not known."""
    times = (
        datetime.fromtimestamp(instant, timezone.utc).isoformat(timespec="milliseconds") if instant else None
        for instant in (found.first_seen, found.last_changed)
    )
    return dict(zip(NAMES, (found.what or None, *times, found.previous_digest.hex() or None), strict=True))

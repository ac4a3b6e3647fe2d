"""What responses show of their pages: whether they are read, what their text is, and whether it has changed."""

from __future__ import annotations

import logging
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import StopDownload

from scrapy_aopic.core.records import Changes
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.core.revisits.found import found_now
from scrapy_aopic.exceptions import ANY_ERROR
from scrapy_aopic.request_errors import AttributesError, CodingsError, RefusedError
from scrapy_aopic.web.content_types import content_type
from scrapy_aopic.web.http_dates import changed_at
from scrapy_aopic.web.meta import RELOADED, SITEMAP
from scrapy_aopic.web.page_text import comparable_text, read_text
from scrapy_aopic.web.parse_limits import (
    MAX_ATTRIBUTES,
    MAX_CODINGS,
    is_packed_too_often,
    too_many_attributes,
)
from scrapy_aopic.web.request_rows import PURPOSE, url_of

from .compared import main_text_of
from .error_handler import guarded
from .stats import FirstOnly
from .time_slices import TimeSlices
from .visit import Visit, values_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from scrapy.http import Response
    from scrapy.http.headers import Headers

    from scrapy_aopic.core.duplicates import Text

    from .costs import Costs
    from .intake import Intake
    from .parts import SessionParts

logger = logging.getLogger(__name__)

_MAX_CONDITION = 256
"""Bytes of an ``ETag`` or ``Last-Modified`` that are worth keeping with each page."""


_MANY_DIGITS = 12
"""Digits of a ``Content-Length`` that no body has."""


class Responses:
    """Notes what responses show, with the visits that they belong to.

    Args:
        seen: When texts count as the same (``AOPIC_CONTENT_SEEN``).
        compared: Gives what of a response is compared with that of the visit before; ``None`` for its bytes.
    """

    def __init__(
        self,
        parts: SessionParts,
        *,
        costs: Costs,
        intake: Intake,
        seen: str,
        compared: Callable[[Response], object] | None,
    ) -> None:
        self.errors = parts.errors
        self._job = parts.job
        self._crawl = parts.job.crawl
        self._visits = parts.visits
        self._keys = parts.keys
        self._admission = parts.admission
        self._costs = costs
        self._intake = intake
        self._bodies = parts.bodies
        self._stats = parts.stats
        self._seen = seen
        self._recrawls, self._recrawl = parts.recrawl is not None, parts.recrawl or Recrawl()
        self._compared = compared
        self._first = FirstOnly(logger, parts.crawler)
        connect = parts.crawler.signals.connect
        connect(self._headers_received, signal=signals.headers_received)
        connect(self._response_received, signal=signals.response_received)

    # -- whether they are read

    def _headers_received(self, headers: Headers, request: Request) -> None:
        """Read no more of a response that would stop everything, or of a page that is not of a type that is wanted."""
        visit = self._visits.get(request)
        if is_packed_too_often(headers):
            self._stats.count("aopic/hostile/codings")
            error = self._refuse(
                CodingsError(f"{request.url} is packed too often"),
                "%(url)s is packed more than %(n)d times (Content-Encoding) and is not read, because to unpack it would "
                "stop everything; further ones are only counted (aopic/hostile/codings)",
                request.url,
                MAX_CODINGS,
            )
            if visit is not None:
                visit.refused(error)
            raise StopDownload(fail=visit is None)
        if visit is None:
            return
        self._bodies.announce(visit, _length(headers))
        self._admission.note_answer(request, headers)
        # its status decides what becomes of it
        if not (_is_exempt(request) or self._admission.is_wanted(headers)):
            raise StopDownload(fail=False)

    def _refuse(self, error: RefusedError, text: str, url: str, n: int) -> RefusedError:
        """*error*, which refuses a hostile response from *url* with more than *n* of something; the first one is logged."""
        self._first.warning(error.reason, text, url=url, n=n)
        return error

    def process_response(self, request: Request, response: Response) -> Response | Awaitable[Response]:
        """Take *response* on once it is known whether it has too many attributes, next to the engine."""
        visit = self._visits.get(request)
        if visit is None:
            return response
        if self._costs.gives_up(visit):
            return response
        steps = too_many_attributes(response)
        began = self._costs.clock()
        found = next(steps, None)
        self._costs.since(began, visit)
        visit.has_attributes(too_many=bool(found))
        return response if found is None else self._look_on(steps, response, visit)

    async def _look_on(self, steps: Iterator[bool], response: Response, visit: Visit) -> Response:
        slices, began = TimeSlices(), self._costs.clock()
        for found in steps:
            visit.has_attributes(too_many=found)
            self._costs.since(began, visit)
            if self._costs.gives_up(visit):
                break
            await slices.step()
            began = self._costs.clock()
        return response

    def _response_received(self, response: Response, request: Request) -> None:
        visit = self._visits.get(request)  # not a copy: a callback may fetch one inline
        if visit is None:
            return
        visit.passed_middlewares()
        if visit.is_given_up:
            return
        began = self._costs.clock()
        self._look_at(response, request, visit)
        self._costs.since(began, visit)

    def _look_at(self, response: Response, request: Request, visit: Visit) -> None:
        """Note what *response* shows of the page of *visit*."""
        if request.meta.pop(RELOADED, None) is not None:
            request.meta.pop("dont_redirect", None)
        is_good, kind = response.status in range(200, 300), content_type(response)
        if not (response.status == HTTPStatus.NOT_MODIFIED and visit.lease.visits):  # unchanged
            is_whole = "download_stopped" not in response.flags
            visit.fetched(response.status, kind, len(response.body) if is_whole else None)
        if is_good and not (_is_exempt(request) or self._admission.is_read(kind)):
            visit.refused(self._admission.unwanted(response.url, kind))
        elif visit.has_too_many_attributes:
            self._stats.count("aopic/hostile/attributes")
            error = self._refuse(
                AttributesError(f"{response.url} has an element with too many attributes"),
                "%(url)s has an element with more than %(n)d attributes and is not read, because to parse it would stop "
                "everything; further ones are only counted (aopic/hostile/attributes)",
                response.url,
                MAX_ATTRIBUTES,
            )
            visit.refused(error)
        if visit.unwanted is not None:
            return
        if not self._recrawls:
            visit.responded(response.status)
        else:
            page = self._crawl.page(visit.lease.key)
            known = page.changes if page is not None and visit.lease.visits else None
            visit.responded(response.status, self._version(visit, response, request, known or Changes()))
            found = found_now(page, visit.findings(recrawls=True), 0.0)
            visit.showed(values_of(found), is_gone=self._recrawl.gone and found.what == "gone")
            if visit.is_gone:
                request.meta["handle_httpstatus_all"] = True  # so that the callback gets it
        if self._seen != "off" and is_good and self._crawl.prefetches and not visit.is_as_before:
            self._prefetch(response, request, visit)

    # -- whether they have changed

    def _version(self, visit: Visit, response: Response, request: Request, known: Changes) -> Version:
        """By what the next response for the page of *visit*, of which so much is *known*, can be compared with this one."""
        etag, modified, date = (
            response.headers.get(name) or b"" for name in ("ETag", "Last-Modified", "Date")
        )
        digest, basis = self._digest(response, known, is_sitemap=SITEMAP in request.meta)
        is_same = self._recrawl.only_changed and response.status in range(200, 300) and digest == known.digest
        if is_same or (visit.is_conditional and response.status == 304):
            # The spider did not ask whether anything has changed: to it, 304 would be an error.
            request.meta["handle_httpstatus_all"] = True
            request.callback = _nothing_new
        return Version(
            digest,
            etag if len(etag) <= _MAX_CONDITION else b"",
            modified if len(modified) <= _MAX_CONDITION else b"",
            is_same=is_same or (response.status == 304 and visit.lease.visits > 0),
            changed_at=changed_at(modified, date, now := self._job.clock()),
            at=now,
            basis=basis,
        )

    def _digest(self, response: Response, known: Changes, *, is_sitemap: bool) -> tuple[bytes, bytes]:
        """Digests of what is compared of *response*, of its body if there is no such thing in it, and of its text if that has it."""
        value: object = None
        basis = b""
        if self._compared is not None and not is_sitemap and response.status in range(200, 300):
            try:
                # A text that is the same has the same main text, which takes ten times as long to find.
                if self._compared is main_text_of and (text := comparable_text(response)):
                    basis = _hashed(text)
                    if basis == known.basis:
                        return known.digest, basis
                value = self._compared(response)
            except ANY_ERROR as error:
                self._first.warning(
                    "compared",
                    "What AOPIC_RECRAWL compares cannot be found in %(url)s (%(error)s); its bytes are compared instead. Further "
                    "such pages are not logged",
                    url=response.url,
                    error=f"{type(error).__name__}: {error}"[:100],
                )
        data = value if isinstance(value, bytes) else f"{value}".encode("utf-8", "replace")
        return _hashed(response.body if value in (None, "", b"") else data), basis

    # -- what their text is

    @guarded(("", ""))
    def compare(self, response: Response, named: Callable[[Response], Request | None]) -> tuple[str, str]:
        """Compare the text of the page of *response* with those of other pages.

        Args:
            named: Makes a request for the page that it says it is; called if another site has the text, too.

        Returns:
            URL of the page that it is a duplicate of, and of a page of another site with its text; ``""`` for none.
        """
        request = response.request
        visit = self._visits.of(request) if request is not None else None
        if visit is None or request is None or visit.is_gone or self._seen == "off":
            return "", ""
        crawl, text = self._crawl, None
        if not visit.is_as_before and not (response.status == 304 and visit.lease.visits):
            read = visit.take_text()
            text = read[1] if read is not None and read[0] is response else self._read(response)
            if text is None:
                return "", ""
        key = self._key_of(request, visit)
        first, copy, is_excess = crawl.judge(visit.lease, text, key)
        if copy and (other := named(response)) is not None:
            canonical = self._keys(other)[1]
            if crawl.give_way(visit.lease, canonical, key):
                first, copy = canonical, b""
        visit.compared(is_duplicate=bool(first), is_excess=is_excess)
        if copy:
            self._stats.count("aopic/content/copies")
        return self._url(first), self._url(copy)

    @guarded(None)
    def _prefetch(self, response: Response, request: Request, visit: Visit) -> None:
        """Let the store read what the text of *response* will be compared with, until it is."""
        text = self._read(response)
        visit.read_ahead(response, text)
        if text is not None:
            self._crawl.prefetch_text(visit.lease, text, self._key_of(request, visit))

    def _read(self, response: Response) -> Text | None:
        return read_text(response, has_sketch=self._seen == "near")

    def _key_of(self, request: Request, visit: Visit) -> bytes:
        """Key of the page itself, if the visit is of a repeat of *request*."""
        key = self._keys(request)[1]
        return key if self._intake.is_of(key, visit) else visit.lease.key

    def _url(self, key: bytes) -> str:
        """URL of the page under *key*, ``""`` for no page."""
        return url_of(self._crawl.request(key)) if key else ""


def _length(headers: Headers) -> int:
    """Bytes of the body that *headers* announce; 0 if they do not say."""
    stated = headers.get(b"Content-Length") or b""
    return int(stated) if stated.isdigit() and len(stated) < _MANY_DIGITS else 0


def _hashed(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _is_exempt(request: Request) -> bool:
    """Whether a response to *request* is read whatever its type is."""
    return bool(request.meta.keys() & {PURPOSE, SITEMAP})


def _nothing_new(response: Response, **_: Any) -> None:
    """Callback of a response that the spider does not see."""

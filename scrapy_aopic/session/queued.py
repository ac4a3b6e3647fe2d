"""Requests on their way into the queue and out of it: as bytes, or in memory.

A request is kept in memory if it cannot be serialised, and also if the crawl has no job folder: then the object that comes
out of the queue is the one that went in, with all that it shares with others. A request that has only text and numbers, as
most do, cannot be distinguished from a copy, so only its bytes are kept; while other code still has the object, that object
comes out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import ref

from msgspec.structs import replace

from scrapy_aopic.core.records import MOST_PRIORITY, Link
from scrapy_aopic.settings import read_values
from scrapy_aopic.web.meta import DONT_RETRY, NOT_YET, SITEMAP, TAG
from scrapy_aopic.web.request_codec import (
    UnreadableError,
    UnserialisableError,
    changeable,
    decode,
    encode,
    forget_transfer,
    is_like_its_copy,
    purpose,
)
from scrapy_aopic.web.request_rows import IN_MEMORY, is_packed, is_patient, stand_in, waits_for

from .stats import FirstOnly, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from scrapy_aopic.core.api import PageCalls

    from .visit import Visit

logger = logging.getLogger(__name__)

_MOST_SHARED = 32
"""Objects in requests that are remembered, to see whether they are in the next ones, too: a page's requests have few."""

_SITEMAP_SHIFT = -3
"""Front queues by which a sitemap waits higher: it waits like a page with an eighth of its cash."""


class _LiveRequest(ref["Request"]):
    """A request that other code may still have, and the bytes that are queued for it."""

    __slots__ = ("data",)

    data: bytes


class QueuedRequests:
    """Makes links of requests, and requests of what is queued.

    Args:
        persists: Whether what is queued is there in the next run.
        recrawls: Whether a request comes out of the queue again and again.
    """

    def __init__(
        self, crawler: Crawler, spider: Spider, stats: Stats, *, persists: bool, recrawls: bool
    ) -> None:
        self.keeps_objects = not persists
        """Whether requests come out of the queue as the objects that went in."""
        self._recrawls = recrawls
        self._live: dict[bytes, _LiveRequest] = {}
        self._shared: dict[int, object] | None = {} if persists else None
        self._spider = spider
        self._stats = stats
        self._persists = persists
        self._priority_adjust = crawler.settings.getint("RETRY_PRIORITY_ADJUST")
        self._retry_times = crawler.settings.getint("RETRY_TIMES")
        self._later_tries = read_values(crawler.settings).later_tries
        self._first = FirstOnly(logger, crawler)
        self._says_unwritten = persists or crawler.settings.getbool("SCHEDULER_DEBUG")
        self._unwritten: dict[bytes, Request] = {}
        self._n_unwritten = 0

    def link(
        self, request: Request, key: bytes, host: str, *, again: bool = False, weight: int | None = None
    ) -> Link:
        """*request*, whose page key is *key*, as a link."""
        if self.keeps_objects and not is_like_its_copy(request):
            data = self._keep(request)
        else:
            try:
                data = encode(request, self._spider)
            except UnserialisableError as error:
                data = self._keep(request)
                self._note_unwritten(error)
            else:
                self.note_live(request, data)
                if self._shared is not None and is_packed(data):
                    self._look_at(request, self._shared)
        return Link(
            key,
            host,
            data,
            _SITEMAP_SHIFT if SITEMAP in request.meta else 0,
            again,
            1 if weight is None else weight,
            priority=min(max(int(request.priority), -MOST_PRIORITY), MOST_PRIORITY),
            is_unfiltered=request.dont_filter,
        )

    def _keep(self, request: Request) -> bytes:
        """Keep *request* in memory; returns what is queued for it."""
        self._n_unwritten += 1
        waits = is_patient(request.meta, request.errback)
        data = stand_in(request.url, self._n_unwritten, waits=waits, purpose=purpose(request, self._spider))
        self._unwritten[data] = request
        return data

    def _note_unwritten(self, error: UnserialisableError) -> None:
        """A request was kept in memory since it cannot be written."""
        self._stats.count("scheduler/unserializable")
        if self._says_unwritten:
            self._first.warning(
                "unserializable",
                "Unable to serialize request: %(error)s; it is kept in memory and lost if the process ends. No "
                "more such requests will be logged (scheduler/unserializable counts them)",
                error=error,
            )

    def note_live(self, request: Request, data: bytes) -> None:
        """Note that *request* is queued as *data*: if other code still has the object then, it comes out, and no copy."""
        if self.keeps_objects and data not in self._live:
            live = self._live[data] = _LiveRequest(request, self._let_go)
            live.data = data

    def _let_go(self, live: ref[Request]) -> None:
        """Forget a request that no code has any more."""
        assert isinstance(live, _LiveRequest)
        if self._live.get(live.data) is live:
            del self._live[live.data]

    def _look_at(self, request: Request, shared: dict[int, object]) -> None:
        """Say so if *request* has an object that one of the last requests had, too."""
        mark = request.meta.get(TAG)
        if mark is not None and mark.kind == "page":
            return  # a retry or a redirect, which goes on in the place of its request
        for where, value in changeable(request):
            if shared.get(id(value)) is value:
                self._shared = None
                self._first.warning(
                    "shared",
                    "The %(kind)s in %(where)s of %(request)s is in another request, too: both are written to the job folder, "
                    "and each comes back with a copy of its own, so that what one callback changes another does not see. "
                    "Keep it in the spider, with a key to it in the requests; without a JOBDIR they would share it. "
                    "Further ones are not logged",
                    kind=type(value).__name__,
                    where=where,
                    request=request,
                )
                return
        for _, value in changeable(request):
            shared[id(value)] = value
        while len(shared) > _MOST_SHARED:
            del shared[next(iter(shared))]

    def request(self, data: bytes) -> Request:
        """The request that is queued as *data*.

        Raises:
            UnreadableError: If it cannot be made.
        """
        if data[:1] != IN_MEMORY:
            made = decode(data, self._spider)
            live = self._live.pop(data, None) if self._live else None
            request = live() if live is not None else None
            return made if request is None else _completed(request, made)
        request = self._unwritten.get(data)
        if request is None:
            raise UnreadableError("it could not be written when it was queued, and that process has ended")
        if self._recrawls:
            return request.copy()  # the next visit begins with what was queued
        del self._unwritten[data]
        return request

    def later(self, visit: Visit) -> Link | None:
        """The page of *visit*, which failed because its host is down, as it waits for that; ``None`` if it does not.

        A link of a broad crawl waits, and has all its retries once more then.
        """
        lease = visit.lease
        if not waits_for(lease.request)[1]:
            return None
        request = self._as_leased(visit)
        if request.meta.get(DONT_RETRY) == NOT_YET:
            del request.meta[DONT_RETRY]
        tries = min(request.meta.pop("retry_times", 0), self._retries(request))
        request.priority -= tries * request.meta.get("priority_adjust", self._priority_adjust)
        return self.link(request, lease.key, lease.host)

    def as_it_was(self, visit: Visit) -> Link:
        """The page of *visit*, which was not read to its end, as it waits for the next run."""
        return self.link(self._as_leased(visit), visit.lease.key, visit.lease.host)

    def once_more(self, visit: Visit) -> Link | None:
        """The page of *visit*, for which its server had an error after all retries, as it waits for a later try.

        It has one request at each, and is counted where Scrapy counts retries. ``None`` if none is left, or nobody wants one.
        """
        lease = visit.lease
        if visit.request.meta.get(DONT_RETRY) or not waits_for(lease.request)[1]:
            return None
        most = self._retries(visit.request)
        tries = max(visit.request.meta.get("retry_times", 0) - most, 0) + 1
        if tries > self._later_tries:
            return None
        request = self._as_leased(visit)
        request.meta["retry_times"] = most + tries
        link = self.link(request, lease.key, lease.host)
        return replace(link, shift=link.shift - tries)

    def _as_leased(self, visit: Visit) -> Request:
        """The request of *visit* without what its transfer has left in it."""
        request = visit.request.copy()
        if visit.lease.request[:1] != IN_MEMORY:
            forget_transfer(request, visit.request, decode(visit.lease.request, self._spider))
        return request

    def _retries(self, request: Request) -> int:
        """Retries that Scrapy makes of *request*."""
        most: int = request.meta.get("max_retry_times", self._retry_times)
        return most

    def drop_unqueued(self, links: Iterable[Link], crawl: PageCalls) -> None:
        """Forget the requests of those of *links* that were not queued, now that their visit is over."""
        for link in links if self._unwritten else ():
            if link.request[:1] == IN_MEMORY and not link.again:
                queued = crawl.request(link.key)
                if queued and queued != link.request:
                    self._unwritten.pop(link.request, None)

    def count_in(self, link: Link) -> None:
        """*link* was queued."""
        is_on_disk = self._persists and link.request[:1] != IN_MEMORY
        self._stats.counts["scheduler/enqueued"] += 1
        self._stats.counts[f"scheduler/enqueued/{'disk' if is_on_disk else 'memory'}"] += 1

    def count_in_many(self, n: int) -> None:
        """*n* links to pages that are written were queued."""
        if n:
            self._stats.counts["scheduler/enqueued"] += n
            self._stats.counts[f"scheduler/enqueued/{'disk' if self._persists else 'memory'}"] += n

    def count_out(self) -> None:
        """The engine got a request."""
        self._stats.counts["scheduler/dequeued"] += 1
        self._stats.counts[f"scheduler/dequeued/{'disk' if self._persists else 'memory'}"] += 1


def _completed(request: Request, made: Request) -> Request:
    """*request*, with what the link that was queued for it got on its way, as the one that was *made* of that has it."""
    for key, value in made.meta.items():
        request.meta.setdefault(key, value)
    for name, values in made.headers.items():
        request.headers.setdefault(name, values)
    return request

"""Requests on their way into the queue and out of it: as bytes, or in memory if they cannot be written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import Link
from scrapy_aopic.web.request_codec import (
    UnreadableError,
    UnserialisableError,
    decode,
    encode,
    forget_transfer,
)
from scrapy_aopic.web.request_rows import IN_MEMORY, PURPOSE, SEEDED, stand_in, waits_for

from .stats import FirstOnly

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from .stats import Stats
    from .visit import Visit

logger = logging.getLogger(__name__)


class QueuedRequests:
    """Makes links of requests, and requests of what is queued.

    Args:
        persists: Whether what is queued is there in the next run.
    """

    def __init__(self, crawler: Crawler, spider: Spider, stats: Stats, *, persists: bool) -> None:
        self._spider = spider
        self._stats = stats
        self._persists = persists
        self._priority_adjust = crawler.settings.getint("RETRY_PRIORITY_ADJUST")
        self._first = FirstOnly(logger, crawler)
        self._says_unwritten = persists or crawler.settings.getbool("SCHEDULER_DEBUG")
        self._unwritten: dict[bytes, Request] = {}
        self._n_unwritten = 0

    def link(
        self, request: Request, key: bytes, host: str, *, again: bool = False, weight: int | None = None
    ) -> Link:
        """*request*, whose page key is *key*, as a link."""
        try:
            data = encode(request, self._spider)
        except UnserialisableError as error:
            data = self._keep(request, error)
        return Link(key, host, data, request.priority, again, 1 if weight is None else weight)

    def _keep(self, request: Request, error: UnserialisableError) -> bytes:
        """What is stored for *request*, which cannot be written."""
        self._n_unwritten += 1
        is_link = request.meta.get(PURPOSE, SEEDED) == SEEDED and request.errback is None
        data = stand_in(request.url, self._n_unwritten, waits=is_link)
        self._unwritten[data] = request
        self._stats.count("scheduler/unserializable")
        if self._says_unwritten:
            self._first.warning(
                "unserializable",
                "Unable to serialize request: %(error)s; it is kept in memory and lost if the process ends. No "
                "more such requests will be logged (scheduler/unserializable counts them)",
                error=error,
            )
        return data

    def request(self, data: bytes) -> Request:
        """The request that is queued as *data*.

        Raises:
            UnreadableError: If it cannot be made.
        """
        if data[:1] != IN_MEMORY:
            return decode(data, self._spider)
        request = self._unwritten.pop(data, None)
        if request is None:
            raise UnreadableError("it could not be written when it was queued, and that process has ended")
        return request

    def later(self, visit: Visit) -> Link | None:
        """The page of *visit*, which failed because its host is down, as it waits for that; ``None`` if it does not.

        A link of a broad crawl waits, and has all its retries once more then.
        """
        lease = visit.lease
        if not waits_for(lease.request)[1]:
            return None
        request = visit.request.copy()
        if lease.request[:1] != IN_MEMORY:
            forget_transfer(request, visit.request, decode(lease.request, self._spider))
        tries = request.meta.pop("retry_times", 0)
        request.priority -= tries * request.meta.get("priority_adjust", self._priority_adjust)
        return self.link(request, lease.key, lease.host)

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

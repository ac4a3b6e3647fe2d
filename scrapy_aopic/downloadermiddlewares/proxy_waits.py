"""What hosts ask of one of several proxies: the pair of proxy and host waits, and every other way to the host is open.

A proxy of the environment is the way of all requests, so what is asked of that is asked of the crawl, as without one; until
a request goes by another proxy: from then on it is one way among others.

While a pair waits, no request goes out by it. What chooses proxies mostly learns from answers alone, so downloader
middlewares get the last answer once more, without a transfer: what one of them requests instead goes out at once. If
none does, the page is put back. Its host is left alone for a moment that doubles with each such page in a row, so that
pages that others get through by another proxy are not held up, and pages that have no other do not go round and round.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.http import Response

from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.request_errors import LeftAloneError
from scrapy_aopic.session.pacer import REMEMBERED, MemoryPacer, Pacer
from scrapy_aopic.web.meta import TRIES, slot_key

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


REPEATED = "aopic_repeated"
"""Flag of an answer that was not asked for again; beside it is ``cached``, so that no cache keeps it."""

_FIRST_MOMENT = 0.1
"""Seconds for which a host is left alone after the first answer that is repeated."""

_MOST_DOUBLINGS = 30


class ProxyWaits:
    """Remembers, in memory, which proxies must leave which hosts alone.

    Attributes:
        pacer: Remembers the pace of hosts, and puts pages back.
        has_others: Whether a request has gone, or is to go, by another proxy than that of the environment.
    """

    def __init__(self, crawler: Crawler, politeness: Politeness, pacer: Pacer) -> None:
        self.pacer = pacer
        self.has_others = False
        self._crawler = crawler
        self._waits = MemoryPacer(replace(politeness, rule=None))
        self._statuses: dict[str, int] = {}
        self._in_vain: dict[str, int] = {}

    @cached_property
    def _environment(self) -> frozenset[str]:
        """Proxies of the environment."""
        middleware = self._crawler.get_downloader_middleware(HttpProxyMiddleware)
        return (
            frozenset(url for _, url in middleware.proxies.values())
            if middleware is not None
            else frozenset()
        )

    def pair(self, key: str, request: Request) -> str:
        """Name of the pair of the host under *key* and the proxy of *request*; empty if no request has gone by another one."""
        proxy = request.meta.get("proxy")
        if not proxy or str(proxy) in self._environment:
            return f"{key} " if self.has_others else ""
        self.has_others = True
        session = request.headers.get("Proxy-Authorization")  # which tells those of some proxies apart
        return f"{key} {proxy} {session!r}"

    def wait(self, pair: str) -> float:
        """Seconds for which no request may go out by *pair*."""
        return self._waits.waits(pair) if pair in self._statuses else 0.0

    def ended(self, pair: str, response: Response | None, result: TransferResult, ago: float) -> None:
        """A transfer by *pair*, which was over *ago* seconds, had *response*, if any, and *result*."""
        if response is None:
            return
        is_fine = result.outcome == Outcome.ANSWER and not result.retry_after
        if self._statuses.pop(pair, None) is None and is_fine:
            return
        self._waits.transferred(pair, result, ago)
        if not is_fine:
            self._statuses[pair] = response.status
            if len(self._statuses) > REMEMBERED:
                del self._statuses[next(iter(self._statuses))]

    def transferred(self, key: str) -> None:
        """A request for the host under *key* was sent, by whatever way."""
        self._in_vain.pop(key, None)

    def repeat(self, key: str, pair: str, request: Request) -> Response | None:
        """The last answer to what was sent by *pair*, for *request*, which must wait; ``None`` if it can wait where it is."""
        wait = self.wait(pair)
        if not self.pacer.leave_alone(key, min(wait, _FIRST_MOMENT * 2.0 ** self._in_vain.get(key, 0))):
            return None
        request.meta.setdefault(TRIES, request.meta.get("retry_times", 0))
        return Response(
            request.url,
            self._statuses[pair],
            {"Retry-After": str(ceil(wait))},
            flags=["cached", REPEATED],
            request=request,
        )

    def process_response(self, request: Request, response: Response) -> Request | Response:
        """Put the page of *request* back if *response* is repeated: no middleware has made another request of it.

        Raises:
            LeftAloneError: If the request is for no page of the queue.
        """
        if REPEATED not in response.flags:
            return response
        if len(self._in_vain) > REMEMBERED:
            self._in_vain.clear()
        key = slot_key(request)
        self._in_vain[key] = min(self._in_vain.get(key, 0) + 1, _MOST_DOUBLINGS)
        page = self.pacer.put_back(request, is_last=True)
        if page is None:
            raise LeftAloneError(f"{request.url} must be left alone for a while by its proxy")
        return page


def restore_tries(request: Request) -> None:
    """*request* is sent: answers that were only repeated to it were no tries."""
    tries = request.meta.pop(TRIES, None)
    if tries:
        request.meta["retry_times"] = tries
    elif tries is not None:
        request.meta.pop("retry_times", None)

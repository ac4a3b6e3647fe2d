"""The pace of hosts: told what a transfer showed, a pacer says for how long its host is left alone.

Rule 1: decisions go one way. A pacer never calls a downloader's slot; the slot keeps what it was told, which also counts
for requests that no scheduler knows of.

Rule 2: beside our scheduler the job is the pacer, so the pace of hosts outlives the process, and the scheduler hands out
no request too early. Beside others it is a table in memory.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.politeness import Gap, Pace, Politeness, TransferResult
from scrapy_aopic.core.records import host_key
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.request_errors import reason_of
from scrapy_aopic.web.meta import DOWN, request_origin, slot_key
from scrapy_aopic.web.request_rows import waits_for

from .error_handler import guarded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_aopic._engine.network import TransferWatch

    from .parts import SessionParts

REMEMBERED = 10_000
"""Hosts whose pace is remembered in memory: some 5 MB; a host's slot is gone a minute after its last transfer."""

_BLIND = 60.0
"""Seconds for which a host is left alone when the store could not be read; the crawl stops meanwhile."""


class Pacer:
    """Remembers the pace of hosts, which have the keys of their download slots; keeps nothing else of them."""

    def transferred(self, key: str, result: TransferResult, ago: float) -> Gap:
        """Take note of a transfer that was over *ago* seconds; returns for how long its host is left alone from then on."""
        raise NotImplementedError

    def set_crawl_delay(self, key: str, seconds: float) -> float:
        """Have *seconds* between the requests to a host, whose robots.txt was just read; returns what :meth:`waits` does."""
        raise NotImplementedError

    def leave_alone(self, key: str, seconds: float) -> bool:
        """Have a host left alone for *seconds* from now, if not longer; ``False`` if others schedule."""
        return False

    def lift(self, key: str, request: Request) -> float:
        """Have a host and the origin of *request* wait for an ordinary gap only; returns its seconds, infinite if others schedule."""
        return inf

    def waits(self, key: str) -> float:
        """Seconds for which a host must be left alone."""
        raise NotImplementedError

    def longest_gap(self, key: str) -> float:
        """Longest gap of a host after a transfer that shows nothing special."""
        raise NotImplementedError

    def is_link(self, request: Request) -> bool:
        """Whether *request* is one that waits for its host, and was not made on purpose."""
        return False

    def put_back(self, request: Request, *, is_last: bool = False) -> Request | None:
        """The request to schedule instead of *request*, whose host must be left alone first; ``None`` if others schedule.

        If it *is_last*, it comes behind other pages of its host.
        """

    def failed(
        self, request: Request, exception: Exception | None, *, waits_for_proxy: bool | None = None
    ) -> None:
        """*exception*, or a response that asks for a later request, ended *request*.

        Args:
            waits_for_proxy: Whether its page waits until a proxy works, if it was the proxy that failed and not the host; else ``None``.
        """

    def is_to_blame(self, request: Request) -> bool:
        """Whether what fails is *request*, and not its host, which answered for others since it failed before."""
        return False

    def answered(self, request: Request, response: Response) -> None:
        """Note that *response* came to *request*, before any middleware looks at it."""

    def allow(self, key: str, what: int) -> None:
        """A seed allows *what* of a host (:data:`~scrapy_aopic.web.networks.ADDRESS` ...), from now on and in later runs."""

    def allowed(self, key: str) -> int:
        """The exceptions that seeds have made for a host, as far as they are kept."""
        return 0

    def admit(self, request: Request, response: Response) -> Response | Awaitable[Response]:
        """*response* to *request*, once there is room for it in memory."""
        return response

    def flow(self, request: Request) -> Callable[[TransferWatch], None] | None:
        """What is told of the data that comes for *request*, and may pause it; ``None`` for nobody."""
        return None

    def n_hosts(self) -> int:
        """Hosts that the crawl knows; 0 if they are not counted."""
        return 0

    def permit(self, key: str, request: Request) -> Callable[[], bool] | None:
        """A function that tells, once *request* has a connection, whether it may still be sent; ``None`` if it always may.

        It may not if another process may crawl the host by now, for example because this one was frozen.
        """


class JobPacer(Pacer):
    """Remembers the pace of hosts in a job, and what their robots.txt said.

    Methods without a docstring are those of :class:`Pacer`, which describes them.

    Args:
        gap_of: Least seconds between requests to a host that an operator has set; 0 if none.

    Attributes:
        crawl: The crawl of the job, which also keeps what robots.txt said.
        clock: Returns the instant now, in seconds since the epoch, by which the job lives.
    """

    def __init__(self, parts: SessionParts, gap_of: Callable[[str], float]) -> None:
        self.errors = parts.errors
        self._job = parts.job
        self.crawl = parts.job.crawl
        self.clock = parts.job.clock
        self._visits = parts.visits
        self._stats = parts.stats
        self._reloads = parts.reloads
        self._bodies = parts.bodies
        self._gap_of = gap_of

    def transferred(self, key: str, result: TransferResult, ago: float) -> Gap:
        if result.retry_after and not result.is_of_proxy:
            self._job.commit_soon()  # a crash must not forget it
        if (gap := self._gap_of(key)) > result.at_least:
            result = result._replace(at_least=gap)
        try:
            return self.crawl.transferred(key, result, self.clock() - ago)
        except StorageError:
            self.errors.watch()
            return Gap(_BLIND, _BLIND)

    def waits(self, key: str) -> float:
        """Seconds for which a host must be left alone; for ever if the store cannot be read."""
        not_before = self._not_before(host_key(key))
        return inf if self._job.is_broken else not_before - self.clock()

    @guarded(True)
    def leave_alone(self, key: str, seconds: float) -> bool:
        self.crawl.defer(host_key(key), self.clock() + seconds)
        return True

    @guarded(inf)
    def lift(self, key: str, request: Request) -> float:
        return self.crawl.lift(host_key(key), request_origin(request), self.clock())

    @guarded(inf)
    def _not_before(self, host: bytes) -> float:
        return self.crawl.not_before(host)

    @guarded(0.0)
    def longest_gap(self, key: str) -> float:
        return self.crawl.longest_gap(key)

    @guarded(0.0)
    def set_crawl_delay(self, key: str, seconds: float) -> float:
        self.crawl.set_crawl_delay(key, seconds, self.clock())
        return self.waits(key)

    @guarded(False)
    def is_dead(self, request: Request) -> bool:
        """Whether the crawl does not wait for the origin of *request*."""
        return self.crawl.is_dead(host_key(slot_key(request)), request_origin(request))

    @guarded(0.0)
    def silent_until(self, request: Request) -> float:
        """Instant until which links to the origin of *request* wait because it is silent; 0 if it is not."""
        return self.crawl.silent_until(host_key(slot_key(request)), request_origin(request))

    @guarded(None)
    def hold(self, request: Request, seconds: float, *, is_for_all: bool) -> None:
        """Have the links to the origin of *request* wait for *seconds* from now, if not longer; or all requests for it."""
        until = self.clock() + seconds
        self.crawl.hold(host_key(slot_key(request)), request_origin(request), until, is_for_all=is_for_all)

    @guarded(None)
    def allow(self, key: str, what: int) -> None:
        self.crawl.allow(key, what)

    @guarded(0)
    def allowed(self, key: str) -> int:
        return self.crawl.allowed(key)

    def n_hosts(self) -> int:
        return self.crawl.counts.hosts

    def admit(self, request: Request, response: Response) -> Response | Awaitable[Response]:
        return self._bodies.admit(request, response)

    def flow(self, request: Request) -> Callable[[TransferWatch], None] | None:
        return self._bodies.flow(request)

    @guarded(None)
    def permit(self, key: str, request: Request) -> Callable[[], bool] | None:
        visit = self._visits.get(request)
        return self._job.permit(key, visit.lease if visit is not None else None)

    # -- requests that a middleware is about to end

    def is_leased(self, request: Request) -> bool:
        """Whether *request* is the very one that the engine was given: a copy of it puts its page back."""
        return self._visits.get(request) is not None

    def answered(self, request: Request, response: Response) -> None:
        self._reloads.answered(request, response)

    def failed(
        self, request: Request, exception: Exception | None, *, waits_for_proxy: bool | None = None
    ) -> None:
        """Note that *exception*, or a response that asks for a later request, ended *request*, and whether its host is to blame.

        It is unless it answered for other pages since this one failed before; then, and from then on, the page is.
        """
        visit = self._visits.get(request)
        if visit is None:
            return
        reason = reason_of(exception) if exception is not None else ""
        if waits_for_proxy is not None:
            visit.failed(reason, is_host_down=waits_for_proxy, is_proxys=True)
            return
        down, before = self._down(request), request.meta.get(DOWN, 0)
        is_host_down = down > before >= 0
        visit.failed(reason, is_host_down=is_host_down)
        if before > 0 and not is_host_down:
            request.meta[DOWN] = -1
        elif down > before >= 0:
            request.meta[DOWN] = down

    def is_to_blame(self, request: Request) -> bool:
        before: int = request.meta.get(DOWN, 0)
        return before < 0 or (before > 0 and self._down(request) < before)

    def put_back(self, request: Request, *, is_last: bool = False) -> Request | None:
        """A copy of *request* that puts its page back, which has not failed; ``None`` for what has none."""
        visit = self._visits.get(request)
        if visit is None:
            return None
        if is_last:
            visit.failed("", is_host_down=True)
        if not visit.is_given_up:
            self._stats.count("aopic/politeness/put_back")
            self.crawl.counters.defer("host down")
        return request.copy()

    def is_link(self, request: Request) -> bool:
        visit = self._visits.get(request)
        return visit is not None and waits_for(visit.lease.request)[1]

    @guarded(0)
    def _down(self, request: Request) -> int:
        return self.crawl.down(host_key(slot_key(request)), request_origin(request))


class MemoryPacer(Pacer):
    """Remembers the pace of the hosts that were used last, in this process only.

    Methods without a docstring are those of :class:`Pacer`, which describes them.
    """

    def __init__(self, politeness: Politeness) -> None:
        self._politeness = politeness
        self._paces: OrderedDict[str, Pace] = OrderedDict()
        self._not_before: dict[str, float] = {}  # by time.monotonic

    def _pace(self, key: str) -> Pace:
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace(key)
        self._paces.move_to_end(key)
        if len(self._paces) > REMEMBERED:
            self._not_before.pop(self._paces.popitem(last=False)[0], None)
        return pace

    def _hold(self, key: str, seconds: float) -> None:
        self._not_before[key] = max(self._not_before.get(key, 0.0), time.monotonic() + seconds)

    def transferred(self, key: str, result: TransferResult, ago: float) -> Gap:
        # The slot knows the address, and whatever schedules requests tries again when it wants to.
        gap = self._politeness.after(
            self._pace(key),
            result.seconds,
            result.outcome,
            result.retry_after,
            is_of_proxy=result.is_of_proxy,
            waits=self.waits(key),
        )
        if result.at_least > gap.own:
            gap = gap._replace(own=result.at_least, at_once=1)
        self._hold(key, gap.own - ago)
        return gap

    def set_crawl_delay(self, key: str, seconds: float) -> float:
        if wait := self._politeness.delay(self._pace(key), seconds):
            self._hold(key, wait)
        return self.waits(key)

    def waits(self, key: str) -> float:
        return self._not_before.get(key, 0.0) - time.monotonic()

    def longest_gap(self, key: str) -> float:
        return self._politeness.longest(self._paces.get(key) or Pace(key))

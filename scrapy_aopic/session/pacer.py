"""What the middlewares of the downloader need of a crawl: the pace of its hosts, and what their robots.txt said.

The crawl has the one clock by which hosts are paced: what a transfer showed is told to it, and it says for how long a
host is left alone.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.politeness import Gap
from scrapy_aopic.core.records import HOST_BYTES, host_key
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.refusals import reason_of
from scrapy_aopic.web.meta import DOWN, slot_key

from .trouble import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_aopic.core.politeness import Outcome
    from scrapy_aopic.job.job import Job

    from .stats import Stats
    from .trouble import Trouble
    from .visit import Visits

_BLIND = 60.0
"""Seconds for which a host is left alone when the store could not be read; the crawl stops meanwhile."""


class Pacer:
    """Remembers the pace of hosts in a job. Hosts have the keys of their download slots.

    Args:
        look_again: Called with the key of a host that must be left alone for longer than after its last transfer.
    """

    def __init__(
        self, job: Job, visits: Visits, stats: Stats, trouble: Trouble, look_again: Callable[[str], None]
    ) -> None:
        self.trouble = trouble
        self._job = job
        self._crawl = job.crawl
        self._visits = visits
        self._stats = stats
        self._look_again = look_again

    def clock(self) -> float:
        """The instant now, in seconds since the epoch, by which the job lives."""
        return self._job.clock()

    def transferred(
        self,
        key: str,
        seconds: float,
        outcome: Outcome,
        *,
        ago: float,
        retry_after: float,
        at_least: float,
        address: str,
    ) -> Gap:
        """Take note of a transfer that was over *ago*; returns for how long its host is left alone from then on."""
        if retry_after:
            self._job.hurry()  # a crash must not forget it
        try:
            return self._crawl.transferred(
                key,
                seconds,
                self._job.clock() - ago,
                outcome,
                retry_after=retry_after,
                at_least=at_least,
                address=address,
            )
        except StorageError:
            self.trouble.watch()
            return Gap(_BLIND, _BLIND)

    def waits(self, key: str) -> float:
        """Seconds for which a host must be left alone; for ever if the store cannot be read."""
        not_before = self._not_before(host_key(key))
        return inf if self._job.is_torn else not_before - self._job.clock()

    @guarded(inf)
    def _not_before(self, host: bytes) -> float:
        return self._crawl.not_before(host)

    @guarded(0.0)
    def longest_gap(self, key: str) -> float:
        """Longest gap of a host after a transfer that shows nothing special."""
        return self._crawl.longest_gap(key)

    @guarded(None)
    def set_crawl_delay(self, key: str, seconds: float) -> None:
        """Have *seconds* between the requests to a host, whose robots.txt was just read."""
        self._crawl.set_crawl_delay(key, seconds, self._job.clock())
        self._look_again(key)

    @guarded(False)
    def is_dead(self, request: Request) -> bool:
        """Whether nobody waits for the host of *request*."""
        return self._crawl.is_dead(host_key(slot_key(request)))

    @guarded(None)
    def hold(self, request: Request, seconds: float) -> None:
        """Leave the host of *request* alone for *seconds* from now, if not longer."""
        self._crawl.hold(host_key(slot_key(request)), self._job.clock() + seconds)

    def n_hosts(self) -> int:
        """Hosts that the crawl knows."""
        return self._crawl.counts.hosts

    # -- requests that a middleware is about to end

    def is_leased(self, request: Request) -> bool:
        """Whether *request* is the very one that the engine was given: a copy of it puts its page back."""
        return self._visits.get(request) is not None

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that *exception* ended *request*."""
        visit = self._visits.get(request)
        if visit is not None:
            visit.reason = reason_of(exception)

    def put_off(self, request: Request, *, is_refused: bool) -> Request | None:
        """A copy of *request* that puts its page back, unless the page has a part in its host being down.

        It has if the host answered for other pages since it was requested; then, and from then on, the retry middleware
        decides.
        """
        visit = self._visits.get(request)
        if visit is None:
            return None
        if not is_refused:
            meta, down = request.meta, self._down(visit.lease.key[:HOST_BYTES])
            if not down or meta.get("dont_retry") or meta.get("retry_times") or down <= meta.get(DOWN, 0):
                return None
            meta[DOWN] = down
        self._stats.count("aopic/politeness/put_back")
        return request.copy()

    @guarded(0)
    def _down(self, host: bytes) -> int:
        return self._crawl.down(host)

    # -- robots.txt

    def robots(self, key: bytes) -> bytes | None:
        """What is kept of a robots.txt under *key*."""
        return self._crawl.robots(key)

    def keep_robots(self, key: bytes, data: bytes) -> None:
        """Keep *data*, what is known of a robots.txt, under *key*."""
        self._crawl.keep_robots(key, data)

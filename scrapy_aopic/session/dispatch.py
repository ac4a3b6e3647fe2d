"""Requests out: the best page that may be requested now becomes a visit, which lasts until the engine is done with it."""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic._engine.in_work import InWork
from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.counters import UNREADABLE, mark_of
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore, Unlocated
from scrapy_aopic.core.revisits.found import found_now
from scrapy_aopic.core.walk import is_set_aside
from scrapy_aopic.view.text import duration
from scrapy_aopic.web.request_codec import UnreadableError
from scrapy_aopic.web.request_rows import url_of

from .error_handler import guarded
from .stats import FirstOnly
from .waits_and_ends import IdleTime, Standstill

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_aopic.core.records import Link

    from .costs import Costs
    from .intake import Intake
    from .latest_failures import LatestFailures
    from .parts import SessionParts
    from .topic.focus import Focus
    from .visit import Visit

logger = logging.getLogger(__name__)

_MOST_KNOWN = 10_000
"""Pages that were set aside and are looked at once more at the end, some megabyte."""

_TOLERATED = 0.1
"""Part of the longest interval of a page by which its revisit may be late before anything is said."""

_MAX_REASON = 100
"""Characters of why a request cannot be made that are kept with its page."""


class Dispatch:
    """Hands out requests, and ends their visits.

    Args:
        look_up: Calls back with the address of a host, empty if it has none.
        failures: Notes visits that fail.
        focus: Values links for the topic; ``None`` if there is none.

    Attributes:
        standstill: For how long it hands out nothing though a host is due.
    """

    def __init__(
        self,
        parts: SessionParts,
        *,
        costs: Costs,
        intake: Intake,
        look_up: Callable[[str, Callable[[str], None]], None],
        failures: LatestFailures,
        focus: Focus | None,
    ) -> None:
        self.errors = parts.errors
        self._set_aside_lately: list[bytes] = []
        self._n_set_aside = 0
        self._focus = focus
        self._bodies = parts.bodies
        self._engine = parts.engine
        self._job = parts.job
        self._visits = parts.visits
        self._requests = parts.requests
        self._cookies = parts.cookies
        self._costs = costs
        self._intake = intake
        self._stats = parts.stats
        self._look_up = look_up
        self._recrawls, self._longest_of = parts.recrawl is not None, parts.longest_of
        self._latest = 0.0
        self._dropped = parts.dropped
        self._failures = failures
        self._first = FirstOnly(logger, parts.crawler)
        self._is_closed = False
        self.standstill = Standstill()
        self._idle_time = IdleTime(parts.engine.wake)
        self._in_work = InWork(parts.crawler, self._transferred, self._finished)

    def next(self) -> Request | None:
        """The best request that may be made now; ``None`` if there is none, and then the engine is woken in time."""
        crawl, clock = self._job.crawl, self._job.clock
        while True:
            now = clock()
            lease = crawl.lease(now, self._idle_time.hold())
            if isinstance(lease, Unlocated):
                self._look_up(lease.name, partial(self._located, lease))
                continue
            if isinstance(lease, NotBefore):
                if lease.is_held:
                    self._idle_time.seek()
                self._engine.wake_in(lease.instant - now)
                self.standstill.next_due(max(lease.instant - now, 0.0))
                return None
            if isinstance(lease, Empty):
                self.standstill.next_due(inf)
                return None
            self._idle_time.used()
            try:
                request = self._requests.request(lease.request)
            except UnreadableError as error:
                self._set_aside(lease, error, now)
                continue
            if self._visits.get(request) is not None:  # the spider has yielded one object twice
                request = request.copy()
            visit = self._visits.begin(request, lease)
            self._cookies.send(visit)
            self._bodies.begin(visit)
            self._in_work.hand_out(request)
            self.standstill.next_due()
            self._requests.count_out()
            return request

    @guarded(None)
    def _located(self, host: Unlocated, address: str) -> None:
        """The address of *host* was looked up."""
        if not self._is_closed:
            self._job.crawl.locate(host, address, self._job.clock())
            self._engine.wake()

    def _set_aside(self, lease: Lease, error: UnreadableError, now: float) -> None:
        """Fail the page of *lease*, whose request cannot be made."""
        crawl = self._job.crawl
        crawl.release(lease, now)
        found = Findings(f"{UNREADABLE}: {error}"[:_MAX_REASON], is_failure=True)
        crawl.settle(lease, (), now, found)
        self._n_set_aside += 1
        if len(self._set_aside_lately) < _MOST_KNOWN:
            self._set_aside_lately.append(lease.key)
        self._stats.count("aopic/pages/failed")
        self._stats.count("aopic/pages/unreadable")
        self._stats.count(f"aopic/outcomes/{UNREADABLE}")
        self._first.warning(
            "unreadable",
            "The queued request for %(url)s cannot be made and is set aside: %(error)s. Further ones are only "
            "counted (aopic/pages/unreadable); 'scrapy aopic status' says why",
            url=url_of(lease.request) or lease.host,
            error=error,
        )

    @property
    def n_set_aside(self) -> int:
        """Pages that this run has set aside, without those of which another request has come; it reads them."""
        known = [self._job.crawl.page(key) for key in self._set_aside_lately]
        came_back = sum(page is None or not is_set_aside(page) for page in known)
        return self._n_set_aside - came_back

    # -- the engine is done with them

    def close(self) -> None:
        """End all visits, as far as the store can be read."""
        self._is_closed = True
        self._idle_time.close()
        for visit in self._visits:
            if not self._job.is_broken:
                self.end(visit, self._job.clock())

    def look(self) -> None:
        """Take note of requests that the engine got and did not begin with."""
        self._in_work.look()

    @guarded(None)
    def _transferred(self, request: Request) -> None:
        """The downloader is done with *request*: its host may be requested again when its gap is over."""
        visit = self._visits.get(request)
        if visit is not None and visit.is_downloading and not (self._job.is_broken or self._is_closed):
            visit.downloaded()
            self._job.crawl.release(visit.lease, self._job.clock())

    @guarded(None)
    def _finished(self, request: Request) -> None:
        """The engine is done with *request*, its callback and its links."""
        visit = self._visits.get(request)
        if visit is not None and not (self._job.is_broken or self._is_closed):
            for url in visit.lost:
                self._dropped.note("middleware", url, visit.request.url)
            self.end(visit, self._job.clock())

    def end(self, visit: Visit, now: float) -> None:
        """End *visit*: its page gives its cash to its links, or waits again."""
        crawl = self._job.crawl
        self._visits.end(visit)
        self._bodies.end(visit)
        if visit.is_downloading:
            crawl.release(visit.lease, now)
        links, retry = self._intake.wait_no_more(visit), visit.retry
        if visit.is_given_up:
            self._requests.drop_unqueued(links, crawl)
            crawl.put_back(visit.lease, self._requests.as_it_was(visit), now)
            return
        if not links and retry is None:
            retry = self._later(visit, now)
        if retry is not None:
            if not links:
                crawl.put_back(
                    visit.lease, retry, now, has_failed=visit.has_failed or visit.has_servers_error
                )
                return
            links.append(replace(retry, again=True))  # an errback wants another try, and more
        if visit.is_lost:
            self._cookies.lost(visit)
        found = visit.findings(recrawls=self._recrawls)
        self._count_repeated(visit, found)
        if self._focus is not None:
            found, links = self._focus.links.value(visit, found, links)
        began = self._costs.clock()
        crawl.settle(visit.lease, links, now, found)
        self._costs.since(began, visit)
        self._requests.drop_unqueued(links, crawl)
        if not visit.lease.visits and crawl.pages_left(visit.lease.host) == 0:
            self._note_last_page(visit.lease.host)
        if self._focus is not None:
            self._focus.harvest.settled(visit, found)
        if self._job.is_full:  # of pages with thousands of links; the engine may request none for a second
            self._job.tick(0)
        self._failures.settled(visit, found, now)
        self._stats.count(f"aopic/pages/{'failed' if found.is_failure else 'visited'}")
        if outcome := found.outcome or mark_of(found.wishes):
            self._stats.count(f"aopic/outcomes/{outcome}")

    def _later(self, visit: Visit, now: float) -> Link | None:
        """The page of *visit* as it waits for a later try, which is counted; ``None`` if it gets none."""
        if visit.waits_for_host:
            link, stat, reason = self._requests.later(visit), "aopic/politeness/put_back", "host down"
        elif visit.has_servers_error:
            link, stat, reason = self._requests.once_more(visit), "aopic/pages/later_tries", "server error"
        else:
            return None
        if link is not None:
            self._cookies.keep(visit.request, visit)
            self._failures.note(visit, now, is_over=False)
            self._stats.count(stat)
            self._job.crawl.counters.defer(reason)
        return link

    def _note_last_page(self, host: str) -> None:
        """Count that *host* has had all of its pages; the first one is logged."""
        self._stats.count("aopic/hosts/full")
        self._first.warning(
            "full",
            "%(host)s has had all the pages that AOPIC_HOST_RULES lets it have (pages); what else is queued of it stays queued, "
            "and is not requested. Further such hosts are only counted (aopic/hosts/full)",
            host=host,
        )

    def _note_late(self, visit: Visit) -> None:
        """Count that the page of *visit* comes later than it was to; the first one is logged, with what would hold the budget."""
        page, crawl = self._job.crawl.page(visit.lease.key), self._job.crawl
        longest = self._longest_of(visit.lease.host)
        late = self._job.clock() - page.visited_at - longest if page is not None else 0.0
        if late <= longest * _TOLERATED:
            return
        self._stats.count("aopic/recrawl/late")
        if late > self._latest:
            self._latest = late
            self._stats.set("aopic/recrawl/late_seconds/max", round(late, 3))
        pages = crawl.counts.visited
        self._first.warning(
            "behind",
            "Revisits fall behind: %(url)s was to be visited again within %(longest)s, and comes %(late)s later "
            "(AOPIC_RECRAWL, or revisit in AOPIC_HOST_RULES). That often, the %(pages)d pages of the job take %(need).1f visits a "
            "minute. More of them are made with a longer interval, shorter gaps, fewer new pages (AOPIC_SCOPE) or rules for "
            "the hosts that matter, whose late pages come first; else the least important ones are late. Further ones are "
            "only counted (aopic/recrawl/late, aopic/recrawl/late_seconds/max)",
            url=visit.request.url,
            longest=duration(longest),
            late=duration(late),
            pages=pages,
            need=60 * pages / longest,
        )

    def _count_repeated(self, visit: Visit, found: Findings) -> None:
        """Count what a visit has shown, if pages are revisited."""
        if not self._recrawls:
            return
        what = found_now(self._job.crawl.page(visit.lease.key), found, 0.0).what
        if visit.lease.visits or what == "new":
            self._stats.count(f"aopic/recrawl/{what}")
        if not visit.lease.visits:
            return
        self._note_late(visit)
        self._failures.found[what] += 1
        if what != "failed":
            self._stats.count("aopic/recrawl/visits")
        if found.version is not None and found.version.is_same:
            self._stats.count("aopic/recrawl/not_modified")

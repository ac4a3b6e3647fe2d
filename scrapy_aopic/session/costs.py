"""What answers cost: the processor that they take, which is charged to their hosts.

To serve a page costs its owner nothing, whatever it takes to read. So the thread's time for its text, its links and its end is
counted, by two calls for each step; its host waits for a multiple of what goes beyond the ordinary, and a page that takes too
long is cut (docs/politeness.md), or given up as the crawl ends. What a callback does between its links is the user's own time,
and not counted.
"""

from __future__ import annotations

import logging
from time import thread_time
from typing import TYPE_CHECKING

from scrapy_aopic.core.frontier.frontier import ORDINARY
from scrapy_aopic.core.records import host_key
from scrapy_aopic.request_errors import LeftAloneError
from scrapy_aopic.settings import read_values

from .bodies import SMALL
from .error_handler import guarded
from .stats import FirstOnly

if TYPE_CHECKING:
    from .parts import SessionParts
    from .visit import Visit

logger = logging.getLogger(__name__)


class Costs:
    """Counts what visits cost, and charges it to their hosts.

    Attributes:
        clock: Returns the seconds for which this thread has worked.
    """

    def __init__(self, parts: SessionParts) -> None:
        self.clock = thread_time
        self.errors = parts.errors
        self._job = parts.job
        self._stats = parts.stats
        self._dropped = parts.dropped
        self._engine = parts.engine
        self._bodies = parts.bodies
        self._n_beats_to_end = 0
        self._most = read_values(parts.crawler.settings).page_seconds
        self._first = FirstOnly(logger, parts.crawler)

    def since(self, began: float, visit: Visit) -> None:
        """The thread has worked for *visit* since *began*, by the clock."""
        before = visit.cost
        visit.worked(self.clock() - began)
        if visit.cost > ORDINARY:
            self._charge(visit, before)

    @guarded(None)
    def _charge(self, visit: Visit, before: float) -> None:
        if not self._job.is_broken:
            self._job.crawl.charge(host_key(visit.lease.host), visit.cost, before, self._job.clock())

    def is_over(self, visit: Visit) -> bool:
        """Whether the rest of the links of *visit* is left out."""
        return 0 < self._most < visit.cost

    def beat(self) -> None:
        """A quarter of a second has passed: Scrapy would wait for what is on its way, however large and finely divided."""
        self._n_beats_to_end += self._engine.is_closing
        for visit, watch in list(self._bodies.coming.items()) if self.is_ending else ():
            if self.gives_up(visit):
                watch.give_up(LeftAloneError(f"{visit.request.url} is not read, as the crawl ends"))

    @property
    def is_ending(self) -> bool:
        """Whether the crawl is being closed, and pages have had half a second to be read to their end."""
        return self._n_beats_to_end > 1

    def gives_up(self, visit: Visit) -> bool:
        """Whether the page of *visit* takes so long that it is not read any more, as the crawl ends: it is fetched again."""
        if self.is_ending and (visit.cost > ORDINARY or self._bodies.size(visit) > SMALL):
            visit.give_up()
        return visit.is_given_up

    def cut(self, visit: Visit) -> None:
        """Count that the rest of the links of *visit* is left out; the first page is logged."""
        self._stats.count("aopic/links/cut_pages")
        self._first.warning(
            "cut",
            "%(page)s: its links took %(seconds).1f s of the processor; the rest is left out, as they would hold up other hosts: set "
            "AOPIC_PAGE_SECONDS to more than %(most)g to follow them. Further such pages are only counted (aopic/links/cut_pages)",
            page=visit.request.url,
            seconds=visit.cost,
            most=self._most,
        )

"""Counts, and logs that appear only the first time.

The list of all stats is :mod:`scrapy_aopic.stats_table`.
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from time import perf_counter
from typing import TYPE_CHECKING

from scrapy_aopic.core.printable import printable

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_aopic.job.job import Job


_MAX_SHOWN = 500
"""Characters of a URL, or of another text, that are shown in the log; hostile ones have a megabyte."""

_EVERY = 0.1
"""Seconds for which the collector may be behind: to tell it of one name takes some 3 us (Scrapy 2.19), and a page has six."""


class Stats:
    """Counts in memory, and tells Scrapy's collector ten times a second: a page makes some forty counts under a few names.

    Attributes:
        counts: Counts by name since the collector was last told; to be increased.
    """

    def __init__(self, collector: StatsCollector) -> None:
        self._collector = collector
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._due = 0.0

    def count(self, name: str, n: int = 1) -> None:
        """Count *n* more under *name*."""
        self.counts[name] += n

    def set(self, name: str, value: float) -> None:
        """Let *name* be *value*."""
        self._collector.set_value(name, value)

    def beat(self) -> None:
        """Tell the collector what was counted, if it is time."""
        now = perf_counter()
        if now >= self._due:
            self._due = now + _EVERY
            self.flush()

    def flush(self) -> None:
        """Tell the collector what was counted."""
        for name, n in self.counts.items():
            self._collector.inc_value(name, n)
        self.counts.clear()

    def describe(self, job: Job) -> None:
        """Set the stats that describe the crawl as a whole, as of now."""
        self.flush()
        crawl, totals = job.crawl, job.crawl.totals
        hits, misses = crawl.cache_hits
        for name, value in (
            *((f"job/{name}", value) for name, value in crawl.counts._asdict().items()),
            ("job/dead_hosts", crawl.dead[0]),
            ("job/dead_pages", crawl.dead[1]),
            ("cash/virtual", totals.virtual),
            ("cash/turns", totals.turn),
            ("cash/convergence", 1 / totals.turn if totals.turn else None),
            ("cache/hits", hits),
            ("cache/misses", misses),
            ("content/merged", crawl.n_merged),
            ("commits", job.commits),
            ("commits/slowest_seconds", round(job.slowest_commit, 6)),
        ):
            self._collector.set_value(f"aopic/{name}", value)


class FirstOnly:
    """Logs the first message of each kind; further ones are for the stats, in which it counts.

    Args:
        logger: Logger of the module that logs.
    """

    def __init__(self, logger: logging.Logger, crawler: Crawler) -> None:
        self._logger = logger
        self._crawler = crawler
        self._logged: set[str] = set()

    def count(self, name: str, n: int = 1) -> None:
        """Count *n* more under *name*, for Scrapy's collector at once."""
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(name, n)

    def is_new(self, kind: str) -> bool:
        """Whether this is the first message of this *kind*; true only once."""
        is_new = kind not in self._logged
        self._logged.add(kind)
        return is_new

    def warning(self, kind: str, text: str, /, **what: object) -> None:
        """Log *text* about *what*, if it is the first of its *kind*."""
        if self.is_new(kind):
            self._logger.warning(text, _shown(what), extra={"spider": self._crawler.spider})

    def each(self, later: int, kind: str, text: str, more: str, /, **what: object) -> None:
        """Log all of a *kind*: the first one as a warning with *more* behind the *text*, and others at the level *later*."""
        is_new = self.is_new(kind)
        level, text = (logging.WARNING, text + more) if is_new else (later, text)
        self._logger.log(level, text, _shown(what), extra={"spider": self._crawler.spider})

    def exception(self, kind: str, text: str, /, **what: object) -> None:
        """Log an error once, with the traceback of the exception that is being handled."""
        if self.is_new(kind):
            self._logger.error(
                text, _shown(what), exc_info=sys.exc_info(), extra={"spider": self._crawler.spider}
            )


def _shown(what: dict[str, object]) -> dict[str, object]:
    """*what* with texts that are short, and that a terminal shows and does not obey: some of them are text of hosts."""
    shown = what.copy()
    for name, value in what.items():
        if isinstance(value, str | BaseException):
            text = str(value)
            if len(text) > _MAX_SHOWN:
                shown[name] = f"{printable(text[:_MAX_SHOWN])}..."
            elif not text.isprintable():  # an error keeps its class otherwise
                shown[name] = printable(text)
    return shown

"""How long a crawl waits when it has nothing else to do, and what it says about that."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_aopic.core.api import Figures

logger = logging.getLogger(__name__)

WAITING = "aopic_waiting"
"""Reason of a spider that is closed because its hosts must be left alone for too long."""

_WORTH_SAYING = 60.0
"""Seconds of a wait that is worth a line in the log: the longest ordinary gap (``AOPIC_MAX_GAP``)."""


class WaitLimit:
    """Says which host a crawl waits for, and when that takes too long.

    Args:
        limit: Seconds that a wait may last, 0 for any time.
        persists: Whether what is queued is there in the next run.
    """

    def __init__(self, crawler: Crawler, limit: float, *, persists: bool) -> None:
        self._crawler = crawler
        self._limit = limit
        self._persists = persists
        self._awaited = ""
        self._has_ended = False

    def ends(self, crawl: Figures, now: float) -> bool:
        """Whether *crawl*, which has nothing to do before a host is due, should end."""
        instant, name = crawl.awaited()
        wait = instant - now
        if self._has_ended or not name or wait < _WORTH_SAYING:
            return self._has_ended
        told = {"until": _clock_time(wait), "name": name, "queued": crawl.counts.queued, "limit": self._limit}
        extra = {"spider": self._crawler.spider}
        if self._limit and wait > self._limit:
            self._has_ended = True
            rest = (
                "run the same command then to go on" if self._persists else "without a JOBDIR they are lost"
            )
            logger.warning(
                "No host may be asked before %(until)s, when %(name)s may be, and AOPIC_MAX_WAIT is %(limit)g s: the "
                "crawl closes. Pages queued: %(queued)d; %(rest)s",
                {**told, "rest": rest},
                extra=extra,
            )
        elif name != self._awaited:
            self._awaited = name
            logger.info(
                "No host may be asked before %(until)s: the crawl waits for %(name)s; pages queued: "
                "%(queued)d",
                told,
                extra=extra,
            )
        return self._has_ended


def _clock_time(wait: float) -> str:
    """The instant after *wait* seconds, and how long that is."""
    instant = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + wait))
    hours, seconds = divmod(round(wait), 3600)
    length = f"{hours} h {seconds // 60} min" if hours else f"{seconds // 60} min {seconds % 60} s"
    return f"{instant} (in {length})"

"""What ends a crawl that could go on, and what its requests wait for: a free host, or an idle event loop."""

from __future__ import annotations

import logging
import time
from math import inf
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import CallLaterResult, call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_aopic.core.api import Figures

logger = logging.getLogger(__name__)

CONVERGED = "aopic_convergence"
"""Reason of a spider that is closed because the estimates hardly change any more."""

WAITING = "aopic_waiting"
"""Reason of a spider that is closed because its hosts must be left alone for too long."""

_WORTH_SAYING = 60.0
"""Seconds of a wait that is worth a line in the log: the longest ordinary gap (``AOPIC_MAX_GAP``)."""

_STOPPED = 30.0
"""Seconds without a beat that no loop is late."""

_HOLD = 1.0
"""Seconds for which a busy loop holds pages back for a host that is free by then."""

_SHORTEST, _LONGEST = 0.005, 0.1
"""Bounds of the seconds that a page is taken to need: no timer is exact to less, and the first pages bear the start."""

_BUSY = 0.5
"""Part of a pause in which the thread may work."""


class Convergence:
    """Says when the estimates of importance are good enough: when 1/|H|, which falls as cash is distributed, is small enough.

    Args:
        least: Bound of 1/|H| below which a crawl ends (``AOPIC_MIN_CONVERGENCE``); 0 for no such end.
    """

    def __init__(self, crawler: Crawler, least: float) -> None:
        self._crawler = crawler
        self._least = least

    def ends(self, crawl: Figures) -> bool:
        """Whether *crawl* should end now; true only once."""
        if not self._least or self._least * (turns := crawl.totals.turn) <= 1:
            return False
        logger.info(
            "1/|H| is %(convergence).3g after %(turns).4g turns, and AOPIC_MIN_CONVERGENCE is %(least)g: the crawl closes. "
            "Set it lower to go on",
            {"convergence": 1 / turns, "turns": turns, "least": self._least},
            extra={"spider": self._crawler.spider},
        )
        self._least = 0.0
        return True


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
                "Every host must wait; the first, %(name)s, until %(until)s, and AOPIC_MAX_WAIT is %(limit)g s: the "
                "crawl closes. Pages queued: %(queued)d; %(rest)s",
                {**told, "rest": rest},
                extra=extra,
            )
        elif name != self._awaited:
            self._awaited = name
            logger.info(
                "Every host must wait; the first, %(name)s, until %(until)s. Pages queued: %(queued)d",
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


class Standstill:
    """For how long no request goes out though a host is due: as a page is read, or for memory, connections or the disk.

    Args:
        clock: Returns seconds.

    Attributes:
        longest: The most seconds in this run.
        lately: The most since whoever reads it has set it to 0.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = inf
        self._looked = clock()
        self.longest = self.lately = 0.0

    @property
    def is_known(self) -> bool:
        """Whether it is known when the next host is due."""
        return self._since != inf

    def look(self) -> None:
        """Take note of the time; if the last look was too long ago, the process was stopped, or the machine slept."""
        now = self._clock()
        if now - self._looked > _STOPPED:
            self._since = max(self._since, now)
        self._looked = now
        self.lately = max(self.lately, now - self._since)
        self.longest = max(self.longest, now - self._since)

    def next_due(self, seconds: float = 0.0) -> None:
        """A request went out, or the next host is due in *seconds*, infinite if none is."""
        self.look()
        self._since = self._looked + seconds


class IdleTime:
    """Whether the event loop has time to spare: what a free connection does not say.

    Where the processor is the limit, each page that goes out takes time that an answer waits for which is there already. So
    while hosts within their budgets are expected, the others get one page for each *pause* of the loop: a time as long as a
    page takes, in which a timer is punctual and this thread has worked for less than half of it. With no host expected they
    need no pause. Pauses are looked for while a request waits for one.

    Args:
        wake: Called when a pause was found.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: CallLaterResult | None = None
        self._is_found = False
        self._due = self._worked = 0.0
        self._began, self._n_pages = time.thread_time(), 0

    def hold(self) -> float:
        """Seconds for which pages are held back for a host that is free by then: what a page takes, in a pause."""
        return self._page() if self._is_found else _HOLD

    def used(self) -> None:
        """A page goes out: the pause is over."""
        self._is_found = False
        self._n_pages += 1

    def seek(self) -> None:
        """A page is held back: look for the next pause."""
        self._is_found = False
        if self._timer is None:
            pause = self._page()
            self._due, self._worked = time.monotonic() + pause, time.thread_time()
            self._timer = call_later(pause, self._look, pause)

    def _page(self) -> float:
        """Seconds that a page takes of this thread, in the mean."""
        mean = (time.thread_time() - self._began) / max(self._n_pages, 1)
        return min(max(mean, _SHORTEST), _LONGEST)

    def _look(self, pause: float) -> None:
        self._timer = None
        is_late = time.monotonic() - self._due > pause
        if is_late or time.thread_time() - self._worked > _BUSY * pause:
            self.seek()
        else:
            self._is_found = True
            self._wake()

    def close(self) -> None:
        """Look for no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

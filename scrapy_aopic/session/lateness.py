"""How late the event loop handles what is due: whether this machine is slower than the web that it crawls."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, ClassVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from scrapy import signals
from scrapy.utils.asyncio import CallLaterResult, call_later

from .stats import FirstOnly

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_BEAT = 0.1
"""Seconds between two samples of how late the loop is."""

_WINDOW = 300
"""Samples whose mean is compared with :data:`_LATE`: half a minute, so that one slow callback is not enough."""

_LATE = 0.1
"""Mean lateness in seconds from which the machine counts as the bottleneck: no less than many a host takes to respond."""


class Lateness:
    """Samples a loop while a spider is open; keeps ``aopic/loop/late_seconds/mean`` and ``max`` up to date.

    Samples are due on a fixed grid, as independent of the loop's work as responses are. If the loop is busy for longer than
    a beat, the samples that it missed count, too, so the mean is that of an event at any time.

    Attributes:
        total: Sum of all samples in seconds.
        n: Number of all samples.
        longest: The largest of them, in seconds.
    """

    _of: ClassVar[WeakKeyDictionary[Crawler, ReferenceType[Lateness]]] = WeakKeyDictionary()

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._timer: CallLaterResult | None = None
        self._due = 0.0
        self.total = self._sum_before = self.longest = 0.0
        self.n = self._n_before = 0
        self._first = FirstOnly(logger, crawler)
        self._of[crawler] = ref(self)  # it keeps its crawler, the key
        crawler.signals.connect(self._start, signal=signals.spider_opened)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)

    @classmethod
    def of(cls, crawler: Crawler) -> Lateness | None:
        """That of *crawler*, if there is one."""
        lateness = cls._of.get(crawler)
        return lateness() if lateness is not None else None

    def _start(self) -> None:
        self._due = monotonic() + _BEAT
        self._timer = call_later(_BEAT, self._beat)

    def _beat(self) -> None:
        now = monotonic()
        n = self.note(now - self._due)
        self._due += n * _BEAT
        self._timer = call_later(max(self._due - now, 0.0), self._beat)

    def note(self, late: float) -> int:
        """Take note of a beat that came *late* seconds after its time; returns how many were due until then.

        One that is later than :data:`_WINDOW` is of a process that was stopped, or of a machine that slept.
        """
        n = int(late / _BEAT) + 1
        if n > _WINDOW:
            return n
        self.total += n * late - _BEAT * n * (n - 1) / 2
        self.n += n
        self.longest = max(self.longest, late)
        if self.n - self._n_before >= _WINDOW:
            mean = (self.total - self._sum_before) / (self.n - self._n_before)
            self._sum_before, self._n_before = self.total, self.n
            if mean >= _LATE:
                self._say(mean)
        if self._crawler.stats is not None:
            self._crawler.stats.set_value("aopic/loop/late_seconds/mean", round(self.total / self.n, 6))
            self._crawler.stats.set_value("aopic/loop/late_seconds/max", round(self.longest, 6))
        return n

    def _say(self, mean: float) -> None:
        self._first.warning(
            "late",
            "This machine is slower than the web that it crawls: in the last %(window).0f s, what happened waited for "
            "%(mean).2f s on average until the crawl got to it. Requests go out later than they could. What "
            "helps is less work in callbacks and pipelines, fewer CONCURRENT_REQUESTS, or a faster or less busy "
            "processor (aopic/loop/late_seconds)",
            window=_WINDOW * _BEAT,
            mean=mean,
        )

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

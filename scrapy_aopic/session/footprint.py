"""The memory of the process, compared with its limit.

The aim: resident memory stays below ``AOPIC_MEMORY_MB``, which is for the state of the crawl, plus :data:`REST` for the rest:
120 MB of code, the bodies that :mod:`.bodies` admits, and the trees of the pages that are read. If a callback, a pipeline or
an extension of the user's keeps too much, the aim is missed, and the log says so.
"""

from __future__ import annotations

import logging
from time import thread_time
from typing import TYPE_CHECKING

from scrapy_aopic._engine.process_memory import give_back, resident, return_large_blocks

from .stats import FirstOnly, Stats

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from .bodies import Bodies

logger = logging.getLogger(__name__)

REST = 340
"""Megabytes that the process may take beside the state of the crawl."""

_EVERY = 4
"""Beats from one look to the next: a second."""

_GROWN = 64_000_000
"""Bytes by which the process has grown since memory was given back, from which on that is tried again."""

_PAUSE = 5
"""Looks from one try to the next at least."""

_SHARE = 50
"""Times as long as a try took it pauses at least: it takes 2 % of the time, however large the process is."""


class Footprint:
    """Looks at the memory of the process once a second, and gives back what large pages and bursts have left.

    Args:
        memory_mb: ``AOPIC_MEMORY_MB``.

    Attributes:
        limit: Bytes that the process should not exceed.
    """

    def __init__(self, crawler: Crawler, bodies: Bodies, stats: Stats, memory_mb: int) -> None:
        assert crawler.stats is not None
        self.limit = (memory_mb + REST) * 1_000_000
        self._memory_mb = memory_mb
        self._bodies = bodies
        self._stats = stats
        self._collector = crawler.stats
        self._collector.set_value("aopic/memory/limit_bytes", self.limit)
        self._first = FirstOnly(logger, crawler)
        return_large_blocks()
        self._least = resident()
        self._n_beats = 0
        self._pause = 0

    def beat(self) -> None:
        """To be called at each beat."""
        self._n_beats += 1
        if self._n_beats % _EVERY == 0:
            self._look()

    def _look(self) -> None:
        taken = resident()
        self._pause -= 1
        if taken > self._least + _GROWN and self._pause < 0:
            began = thread_time()
            give_back()
            self._stats.count("aopic/memory/given_back")
            taken = self._least = resident()
            self._pause = max(_PAUSE, int(_SHARE * (thread_time() - began)))
        self._least = min(self._least, taken)
        self._collector.max_value("aopic/memory/most_bytes", taken)
        if taken > self.limit:
            self._stats.count("aopic/memory/over")
            self._say_over(taken)

    def _say_over(self, taken: int) -> None:
        visit = self._bodies.largest
        self._first.warning(
            "over",
            "The process takes %(taken)d MB of memory, more than the %(limit)d MB that it should with AOPIC_MEMORY_MB = %(mb)d. "
            "%(why)s. Further seconds are only counted (aopic/memory/over). See AOPIC_MEMORY_MB in the docs",
            taken=taken // 1_000_000,
            limit=self.limit // 1_000_000,
            mb=self._memory_mb,
            why=f"The largest page in work is {visit.request.url:.200}, with {self._bodies.size(visit) / 1e6:.1f} MB: its tree "
            "may take 30 times as much, and DOWNLOAD_MAXSIZE limits it"
            if visit is not None
            else "No page is being read, so it is something that the spider, its pipelines or extensions keep",
        )

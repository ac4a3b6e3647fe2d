"""Scores of pages for an order that looks at the whole graph, computed beside the crawl."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.crawl import Crawl
    from scrapy_aopic.core.graph import Ranking

_AT_ONCE = 500
"""Pages that get a new score in one step, some milliseconds of work."""


class Rescoring:
    """Computes scores for the pages of *crawl* in a thread, and gives them out bit by bit."""

    def __init__(self, crawl: Crawl, clock: Callable[[], float]) -> None:
        self._crawl = crawl
        self._clock = clock
        self._thread: ThreadPoolExecutor | None = None
        self._ranking: Future[Ranking] | None = None
        self._n_given = 0

    def step(self) -> None:
        """Begin when it is time, or give out some scores. Never waits."""
        if self._ranking is None:
            task = self._crawl.rescoring()
            if task is not None:
                self._thread = self._thread or ThreadPoolExecutor(1, "aopic-rank")
                self._ranking, self._n_given = self._thread.submit(task), 0
        elif self._ranking.done():
            ranking, self._ranking = self._ranking, None  # one that failed is not looked at again
            scores = ranking.result()
            self._n_given = self._crawl.rescored(scores, self._clock(), self._n_given, _AT_ONCE)
            if self._n_given < len(scores):
                self._ranking = ranking

    def close(self) -> None:
        """End the thread, waiting for it."""
        if self._thread is not None:
            self._thread.shutdown()

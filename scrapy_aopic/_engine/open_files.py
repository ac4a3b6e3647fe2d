"""How many more files the process may open: connections are files, and a store that cannot open one ends the crawl."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .private import downloader_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

try:
    import resource
except ImportError:  # not on Windows, which has no such limit
    resource = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_KEPT_FREE = 24
"""Files for the store, feeds, logs and look-ups of names, which come and go."""

_A_REQUEST = 2
"""Files that a request may need: its connection, and that for its robots.txt."""


class OpenFiles:
    """Says whether one more request may begin, by the limit of the process (``ulimit -n``).

    What is open is counted when so many have been asked for that the limit may be near. Then connections that no request uses are
    closed: they are kept for minutes, one for each host.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._room = 0
        self._is_told = False

    def take(self, n_under_way: int) -> bool:
        """Whether there is room for one more request, which takes it, beside *n_under_way*, some of which are not connected yet."""
        if self._room < _A_REQUEST:
            self._look(n_under_way)
        self._room -= _A_REQUEST
        return self._room >= 0 or not n_under_way

    def _look(self, n_under_way: int) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
        try:
            n_open = sum(1 for _ in Path("/dev/fd").iterdir())
        except OSError:  # they cannot be counted
            limit = -1
        if limit < 0:
            self._room = 1 << 60
            return
        self._room = limit - n_open - n_under_way - _KEPT_FREE
        if self._room >= limit // 4:
            return
        for handler in downloader_of(self._crawler).handlers._handlers.values():
            pool: Any = getattr(handler, "_pool", None)
            if hasattr(pool, "closeCachedConnections"):
                pool.closeCachedConnections()
        if self._room < _A_REQUEST and not self._is_told:
            self._is_told = True
            logger.warning(
                "Requests wait, because the process may open %(limit)d files, and %(n)d are open: raise the limit (ulimit -n), or "
                "lower CONCURRENT_REQUESTS. Further waits are not logged",
                {"limit": limit, "n": n_open},
                extra={"spider": self._crawler.spider},
            )

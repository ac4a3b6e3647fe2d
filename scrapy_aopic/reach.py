"""Whether hosts can be reached at all: without a network, or with a wrong proxy, a crawl would only wait."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_FIRST, _LATER = 10, 30
"""Hosts that must be silent, one after the other, before anything is said: before the first answer, and after it."""

_TRIES = 2
"""Requests that must have failed, if there are not so many hosts."""


class Reach:
    """Counts the hosts that were asked in vain since the last answer, and says so when they are too many for chance."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._silent: set[str] = set()
        self._tries = 0
        self._n_answered = 0
        self._has_complained = False

    def answered(self) -> None:
        """A host gave an answer, of whatever kind."""
        self._n_answered += 1
        if self._tries:
            self._silent.clear()
            self._tries = 0
        if self._has_complained:
            self._has_complained = False
            logger.info("Hosts can be reached again.", extra={"spider": self._crawler.spider})

    def failed(self, host: str, request: Request, why: str, n_hosts: int) -> None:
        """*host* gave no answer to *request*; the crawl knows *n_hosts*, 0 if nobody knows."""
        if self._has_complained:
            return
        self._silent.add(host)
        self._tries += 1
        # In the end, only hosts may be left that are dead for a reason of their own.
        most = _LATER if self._n_answered else _FIRST
        are_all = not self._n_answered and self._tries >= _TRIES and len(self._silent) >= n_hosts > 0
        if len(self._silent) < most and not are_all:
            return
        self._has_complained = True
        proxy = request.meta.get("proxy")
        logger.warning(
            "No host can be reached: the %(what)s %(silent)d hosts that were asked gave no answer, at last %(host)s "
            "(%(why)s). %(question)s They are asked again, later and later; 'scrapy aopic status' says which hosts "
            "wait, and why.",
            {
                "what": "last" if self._n_answered else "first",
                "silent": len(self._silent),
                "host": host,
                "why": why,
                "question": f"Is the proxy {proxy} in order?" if proxy else "Is there a network?",
            },
            extra={"spider": self._crawler.spider},
        )

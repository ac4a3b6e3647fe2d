"""Whether any host can be reached: without a network, or with a wrong proxy, a crawl would wait in silence."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_FIRST, _LATER = 10, 30
"""Hosts in a row without a response that are too many for chance: before the first response of all, and after it."""

_QUIET = 60.0
"""Seconds without any response, after the first: hosts that are down may all time out at once."""

_TRIES = 2
"""Requests that must have failed if the crawl knows fewer hosts than that."""


class OutageDetector:
    """Counts the hosts that have not responded since the last response, and warns when they are too many for chance.

    Args:
        clock: Gives seconds that only grow.

    Attributes:
        tries: Requests without a response since the last response.
    """

    def __init__(self, crawler: Crawler, clock: Callable[[], float] = time.monotonic) -> None:
        self._crawler = crawler
        self._clock = clock
        self._answered_at = 0.0
        self._silent: set[str] = set()
        self.tries = 0
        self._n_answered = 0
        self._has_complained = False

    def answered(self) -> None:
        """A host responded, with whatever status."""
        self._n_answered += 1
        self._answered_at = self._clock()
        if self.tries:
            self._silent.clear()
            self.tries = 0
        if self._has_complained:
            self._has_complained = False
            logger.info("Hosts can be reached again.", extra={"spider": self._crawler.spider})

    def failed(self, host: str, request: Request, why: str, n_hosts: int) -> None:
        """*host* did not respond to *request*; the crawl knows *n_hosts*, 0 if that is not known."""
        self.tries += 1
        if self._has_complained:
            return
        self._silent.add(host)
        # At the end of a crawl, the hosts that are left may each be dead for a reason of its own.
        n_silent = len(self._silent)
        if self._n_answered:
            are_too_many = n_silent >= _LATER and self._clock() - self._answered_at >= _QUIET
        else:
            are_too_many = n_silent >= _FIRST or (self.tries >= _TRIES and n_silent >= n_hosts > 0)
        if not are_too_many:
            return
        self._has_complained = True
        proxy = request.meta.get("proxy")
        logger.warning(
            "No host can be reached: %(asked)s gave no answer, at last %(host)s "
            "(%(why)s). %(question)s They will be retried at growing intervals; 'scrapy aopic status' says which hosts "
            "wait, and why.",
            {
                "asked": "the only host that was tried"
                if n_silent == 1
                else f"the {'last' if self._n_answered else 'first'} {n_silent} hosts that were tried",
                "host": host,
                "why": why,
                "question": f"Is the proxy {proxy} in order?" if proxy else "Is there a network?",
            },
            extra={"spider": self._crawler.spider},
        )

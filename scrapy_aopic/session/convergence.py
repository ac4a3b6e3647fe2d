"""When the estimates of importance are good enough for a crawl to end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_aopic.core.api import Figures

logger = logging.getLogger(__name__)

CONVERGED = "aopic_convergence"
"""Reason of a spider that is closed because the estimates hardly change any more."""


class Convergence:
    """Says when 1/|H|, which falls as cash is distributed, is small enough.

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

"""A topic in a crawl: what grades pages, values links, learns and counts, connected."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.settings import read_values

from .grading import Grading
from .harvest_watch import HarvestWatch
from .learning import Learning
from .link_values import LinkValues
from .visit_links import VisitLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic._engine.closing import Closing
    from scrapy_aopic.session.links.link_targets import LinkTargets
    from scrapy_aopic.session.parts import SessionParts
    from scrapy_aopic.session.visit import Visit

    from .given_topic import GivenTopic

logger = logging.getLogger(__name__)


class Focus:
    """A crawl for a topic.

    Args:
        closing: Closes the spider when too few pages are relevant.
        listeners: Told of each page that was graded, when its visit has ended.

    Attributes:
        learning: The strategy, and what it learns.
        grading: Grades pages.
        values: What links are worth.
        calibration: What grades mean to people.
        links: Gives them that, when the visit of their page ends.
        harvest: Counts relevant pages.
    """

    def __init__(
        self,
        parts: SessionParts,
        given: GivenTopic,
        *,
        targets: LinkTargets,
        closing: Closing,
        listeners: Sequence[Callable[[Visit, dict[str, str]], None]],
    ) -> None:
        crawler, stats = parts.crawler, parts.stats
        assert crawler.stats is not None
        first = FirstOnly(logger, crawler)
        are_wanted = read_values(crawler.settings).order.values_links
        self._shared = parts.job.learning
        self.learning = Learning(
            parts.job,
            given.scorer_name,
            given.new_strategy,
            stats=stats,
            first=first,
            set_stat=crawler.stats.set_value,
            values_links=are_wanted,
        )
        self.values = LinkValues(given, self.learning, are_wanted=are_wanted, stats=stats, first=first)
        self.grading = Grading(parts, given, self.values, targets=targets, first=first)
        self.calibration = given.calibration
        self.links = VisitLinks(parts, self.learning, self.values, given.counts)
        self.harvest = HarvestWatch(parts, self.calibration, closing=closing, listeners=listeners)

    def step(self) -> None:
        """Do a bit of what is due beside pages. Never waits."""
        if self._shared is not None and self._shared.look():
            self.harvest.say()
        self.learning.step()

    def close(self) -> None:
        """Keep what was learned, and say how many pages were relevant."""
        self.learning.close()
        if self._shared is not None:
            self._shared.close()
            self._shared.look()
        self.harvest.close()

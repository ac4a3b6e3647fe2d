"""Counts the relevant pages of a crawl for a topic, sets some pages aside to be labelled, and ends the crawl."""

from __future__ import annotations

import logging
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from scrapy_aopic.core.focus.harvest import LATELY
from scrapy_aopic.core.focus.sample import EXCERPT_CHARACTERS, Sampled
from scrapy_aopic.settings import read_values
from scrapy_aopic.view.text import checked, relevant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic._engine.closing import Closing
    from scrapy_aopic.core.api import Findings
    from scrapy_aopic.core.focus.calibration import Calibration
    from scrapy_aopic.session.parts import SessionParts
    from scrapy_aopic.session.visit import Visit

logger = logging.getLogger(__name__)

_HARVEST = "aopic_harvest"
"""Reason of a spider that is closed because too few of the last pages were relevant."""

SAMPLE_PAGES = 200
"""Graded pages that are set aside at random for ``scrapy aopic topic label``."""

NONE_IN = 800
"""Pages without one relevant after which something must be wrong: of a topic that is 1 % of the web, 8 come by chance."""

_RARELY = 10
"""Pages between two updates of the harvest in the stats: an update takes as long as learning from a link."""


class HarvestWatch:
    """Counts relevant pages.

    Args:
        calibration: What grades mean to people.
        closing: Closes the spider when too few pages are relevant.
        listeners: Told of each page that was graded, when its visit has ended.
    """

    def __init__(
        self,
        parts: SessionParts,
        calibration: Calibration,
        *,
        closing: Closing,
        listeners: Sequence[Callable[[Visit, dict[str, str]], None]],
    ) -> None:
        crawler = parts.crawler
        assert crawler.stats is not None
        self._set_stat = crawler.stats.set_value
        self._job = parts.job
        self._probability = calibration.probability
        self._labels = calibration.labels
        self._stats = parts.stats
        self._closing = closing
        self._listeners = listeners
        self._min_harvest = read_values(crawler.settings).min_harvest
        self._has_ended = self._has_warned = False
        self._n_unsaid = _RARELY  # so that the first page says something
        parts.job.crawl.begin_sample(SAMPLE_PAGES, Random())  # noqa: S311 - of nothing secret

    def settled(self, visit: Visit, found: Findings) -> None:
        """*visit* ended with *found*: count it."""
        if not found.value:
            return
        self._stats.count("aopic/topic/pages")
        if found.is_relevant:
            self._stats.count("aopic/topic/relevant")
        if (seen := visit.reading) is not None:
            self._job.crawl.set_aside(
                visit.lease.key,
                Sampled(visit.request.url, seen.grade, found.is_relevant, visit.is_duplicate, gist=seen.gist),
                partial(seen.context.beginning, 2 * EXCERPT_CHARACTERS),
            )
            for listener in self._listeners:
                listener(visit, {"aopic-relevance": repr(self._probability(seen.grade, seen.gist))})
        self.say()

    def close(self) -> None:
        """Say how many pages were relevant."""
        self._has_ended = True
        self.say(is_last=True)

    def say(self, *, is_last: bool = False) -> None:
        """Say how many pages are relevant, and end the crawl if too few are."""
        harvest = self._job.crawl.harvest
        lately = harvest.rate_lately
        self._n_unsaid += 1
        if is_last or self._n_unsaid >= _RARELY:
            self._n_unsaid = 0
            self._set_stat("aopic/topic/harvest", harvest.rate)
            self._set_stat("aopic/topic/harvest_lately", lately)
        if harvest.pages >= NONE_IN and not harvest.relevant and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "None of %(n)d pages is relevant: look at AOPIC_TOPIC, or begin at seeds that are nearer to the topic. "
                "'scrapy aopic why --grade' says by which words a page is graded",
                {"n": harvest.pages},
            )
        if harvest.n_lately >= LATELY and lately < self._min_harvest and not self._has_ended:
            self._has_ended = True
            logger.warning(
                "%(lately)s are relevant, %(checked)s, and AOPIC_MIN_HARVEST is %(least).1f %%: the crawl closes. Set it lower to "
                "go on",
                {
                    "lately": relevant_of(lately, LATELY),
                    "checked": checked(self._labels, self._job.name),
                    "least": 100 * self._min_harvest,
                },
            )
            self._closing.close(_HARVEST)

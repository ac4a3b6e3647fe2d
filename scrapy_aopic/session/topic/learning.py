"""Runs a strategy that learns in a crawl: its state is kept with the job, and waiting pages are revalued.

Rule 1: a beat takes a bounded time: waiting pages are revalued a slice at a time.

Rule 2: workers that share a job have a strategy each, which learns from the pages of the others, too
(:mod:`scrapy_aopic.job.shared_learning`); what they keep is for those that start later.
"""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

from scrapy_aopic.core.focus.leads import Lead, unpack_lead
from scrapy_aopic.core.focus.learned import Learned
from scrapy_aopic.core.focus.strategy import FLOOR, REVALUED, PageSeen, Strategy
from scrapy_aopic.core.order import whole_value
from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.exceptions import ANY_ERROR, StorageError, plainly

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.job.job import Job
    from scrapy_aopic.job.shared_learning import SharedLearning
    from scrapy_aopic.session.stats import FirstOnly, Stats

logger = logging.getLogger(__name__)

_KEPT_EACH = 100
"""Pages, at least, from one time to the next that what was learned is kept, which takes some 6 ms."""

_AT_ONCE = 50
"""Most waiting pages that are revalued in one beat: some 3 ms."""

_HEARD_AT_ONCE = 5
"""Pages of other workers that are learned from in one beat, at most: some 2 ms."""


class Learning:
    """Lets *strategy*, which may learn, go on where the job's last run stopped.

    Args:
        name: What the job remembers the strategy by.
        make: Makes a new one.
        set_stat: Says the value of a stat.
        values_links: Whether the order values links: else there is nothing to learn from.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        make: Callable[[], Strategy],
        *,
        stats: Stats,
        first: FirstOnly,
        set_stat: Callable[[str, object], None],
        values_links: bool,
    ) -> None:
        self._job = job
        self._name = name
        self._stats = stats
        self._first = first
        self._set_stat = set_stat
        self.strategy = make()
        self.is_on = self.strategy.learns and values_links
        if self.is_on:
            self._restore(make)
        self._chance = Random()  # noqa: S311 - of nothing secret
        # What is read of a store on a server is waited for, so more is read less often.
        self._least = _AT_ONCE if job.learning is not None else REVALUED
        self._version = self.strategy.version  # that which waiting pages were last valued by, or are being
        self._kept = self._version
        self._n_not_kept = _KEPT_EACH
        self._at: bytes | None = None
        self._credit = 0

    def _restore(self, make: Callable[[], Strategy]) -> None:
        """Go on from what the job has kept."""
        shared = self._job.learning
        data = shared.known if shared is not None else self._job.crawl.strategy()
        if not data:
            return
        try:
            name, learned = unpack(data)
            if name != self._name:
                logger.info(
                    "This job has learned by the strategy %(old)s, and %(new)s begins anew",
                    {"old": name, "new": self._name},
                )
                return
            self.strategy.restore(learned)
        except (StorageError, *NO_RECORD) as error:
            logger.warning(
                "What the strategy %(name)s has learned in this job cannot be read (%(error)s): it learns anew. Nothing "
                "else is lost",
                {"name": self._name, "error": plainly(error)},
            )
            self.strategy = make()

    # -- a page

    def lead(self, key: bytes) -> Lead | None:
        """The lead of the page under *key*; ``None`` if it is not kept."""
        return unpack_lead(self._job.crawl.lead(key)) if self.is_on else None

    def learn(self, page: PageSeen) -> None:
        """Learn from what became of *page*, and let other workers do so."""
        if not self.is_on:
            return
        self._credit = min(self._credit + REVALUED, _AT_ONCE)
        self._learn(page)
        if self._job.learning is not None:
            self._job.learning.tell(page, self._chance)

    def _learn(self, page: PageSeen) -> None:
        self._n_not_kept += 1
        try:
            self.strategy.learn(page)
        except ANY_ERROR:  # logged once, whatever a strategy raises
            self._stats.count("aopic/topic/unlearned")
            self._first.exception(
                "learn",
                "AOPIC_LINK_SCORER cannot learn from %(page)s; further such pages are only counted "
                "(aopic/topic/unlearned)",
                page=page.url,
            )

    # -- beats

    def step(self) -> None:
        """Do a bit of what is due. Never waits."""
        shared = self._job.learning
        if shared is not None and shared.of_other_topic:
            self._first.warning(
                "topics",
                "Worker %(other)s of this job has another AOPIC_TOPIC, with other words or examples: neither learns from the "
                "other, each values links by its own, and the harvest is that of both. Start all workers of a job with one "
                "topic",
                other=shared.of_other_topic,
            )
        if not self.is_on or self._job.is_broken:
            return
        if shared is not None:
            self._hear(shared)
        version = self.strategy.version
        if version != self._kept and (self._n_not_kept >= _KEPT_EACH if shared is None else shared.is_due):
            self._keep()
        if self._at is None and version != self._version:
            self._at, self._version = b"", version
        if self._at is not None and self._credit >= self._least:
            n, at = self._job.crawl.revalue(self._worth, self._job.clock(), self._at, self._credit)
            self._at, self._credit = at or None, 0
            if n:
                self._stats.counts["aopic/topic/revalued"] += n

    def _hear(self, shared: SharedLearning) -> None:
        """Learn from pages of other workers."""
        for _ in range(_HEARD_AT_ONCE):
            if (page := shared.hear()) is None:
                break
            self._learn(page)
            self._stats.count("aopic/topic/lessons")

    def _worth(self, lead: Lead) -> int | None:
        """The value of a waiting page by its lead."""
        strategy = self.strategy
        value = None
        if lead.link is not None:
            value = strategy.revalue(lead.grade, lead.link, lead.parent)
        elif isinstance(strategy, Learned):
            value = strategy.revalue_memo(lead.grade, lead.memo, lead.parent)
        return whole_value(max(value, FLOOR)) if value is not None else None

    def _keep(self) -> None:
        """Keep what was learned in the next commit."""
        self._kept, self._n_not_kept = self.strategy.version, 0
        self._set_stat("aopic/topic/version", self._kept)
        shared = self._job.learning
        if shared is not None and not self._job.takes_seeds:  # whoever holds shard 0 does
            return
        if learned := self.strategy.pack():
            data = pack((self._name, learned))
            if shared is not None:
                shared.keep(data)
            else:
                self._job.crawl.keep_strategy(data)

    def close(self) -> None:
        """Keep what was learned."""
        if self.is_on and not self._job.is_broken:
            self._keep()

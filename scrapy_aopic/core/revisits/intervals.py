"""How often visited pages may be revisited, must be, and at what share of all fetches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_aopic.core.host_rules import HostRule
    from scrapy_aopic.core.records import Page

    from .rates import Rates

_FIRST_WAKE = 0.25
"""Part of a page's last interval after which its priority is first looked at: it may change faster than it seemed to."""

_NEXT_WAKE = 1.5
"""Factor between the times since the last visit at which the priority is looked at: phi grows by half at most between."""

FIRST = 1 << 62
"""Units that an overdue page is worth: more than there are, so that it comes before all others."""


@dataclass(frozen=True, slots=True)
class Recrawl:
    """How pages are revisited.

    Attributes:
        min_interval: Shortest time between two visits of a page, in seconds.
        max_interval: Seconds after a visit from which a page is overdue. Overdue pages get a tenth of all revisits,
            those that have waited longest first, however little cash they hold.
        share: Part of the fetches that are revisits while new pages wait whose hosts may be fetched from, 0 to 1.
        comes_first: Whether overdue pages come before all other revisits, as a rule for their host demands.
        once: Whether pages are visited in rounds: each page whose shortest interval was over when its round began is visited
            once more, and no page again.
        every: Seconds from the beginning of a round to that of the next one in the same run; 0 for one round.
        given: Number and beginning of the round, if others than the crawl decide that, as for a job in shards.
        only_changed: Whether callbacks get no page that has not changed.
        gone: Whether callbacks get pages that are gone, which are visited again to see whether they have come back.
        by: What of a page must differ for that: all bytes if it is empty, ``text``, ``main text``, what a method of the spider gives
            (``spider.NAME``), or a function of the response.
    """

    min_interval: float = 86_400.0
    max_interval: float = 90 * 86_400.0
    share: float = 0.5
    comes_first: bool = False
    once: bool = False
    every: float = 0.0
    given: tuple[int, float] | None = None
    only_changed: bool = False
    gone: bool = False
    by: str | Callable[[Any], object] = ""

    def under(self, rule: HostRule | None) -> Recrawl:
        """The intervals for a host under *rule*."""
        if rule is None or rule.revisit is None:
            return self
        shortest, longest = rule.revisit
        return replace(self, min_interval=shortest, max_interval=longest, comes_first=True)

    def worth(self, page: Page, expected: int, rates: Rates, now: float, ratio: float = 1.0) -> int:
        """Units that *page*, whose cash is up to date, is worth at *now*; *expected* is its cash without chance.

        Args:
            ratio: What hints say of it; see :meth:`~.rates.Rates.phi`.
        """
        if not page.visits or page.changes is None:
            return page.cash
        if self.is_overdue(page, now):
            return FIRST
        return int(expected * rates.phi(page.changes, now, ratio))

    def is_early(self, page: Page, now: float) -> bool:
        """Whether the shortest interval of *page*, which was visited, is not over."""
        return now - page.visited_at < self.min_interval

    def is_overdue(self, page: Page, now: float) -> bool:
        """Whether the longest interval of *page*, which was visited, is over."""
        return now - page.visited_at >= self.max_interval

    def first_wake(self, interval: float) -> float:
        """Seconds from a visit to the first look at its page, which came *interval* seconds after the visit before."""
        return max(min(interval * _FIRST_WAKE, self.max_interval), self.min_interval)

    def next_wake(self, passed: float) -> float:
        """Seconds from a visit to the next look at its page, given that *passed* have gone by."""
        later = max(passed * _NEXT_WAKE, self.min_interval)
        return min(later, self.max_interval) if passed < self.max_interval else later

"""What a page is worth at its next visit, in units, beside the cash of pages that were never visited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .due import OVERDUE

if TYPE_CHECKING:
    from scrapy_aopic.core.ledger import Ledger
    from scrapy_aopic.core.order import Order
    from scrapy_aopic.core.records import Page

    from .policy import Recrawl
    from .rates import Rates


class Worth:
    """Cash that a page is expected to hold, times what a visit is worth for the freshness of its copy."""

    def __init__(self, policy: Recrawl, rates: Rates, ledger: Ledger, order: Order) -> None:
        self._policy = policy
        self._rates = rates
        self._ledger = ledger
        self._order = order

    def of(self, page: Page, now: float) -> int:
        """Units that *page*, whose cash is up to date, is worth if it is visited at *now*."""
        ledger = self._ledger
        expected = ledger.window.expected(page, page.cash, ledger.totals.turn, now)
        return self._policy.worth(page, expected, self._rates, now)

    def queue(self, page: Page, now: float) -> int:
        """Queue in which *page*, which was visited and whose cash is up to date, is due."""
        if self._policy.is_overdue(page, now):
            return OVERDUE
        return self._order.revisit_queue(page, self.of(page, now))

    def is_early(self, page: Page, now: float) -> bool:
        """Whether *page*, which was visited, must not be visited yet."""
        return self._policy.is_early(page, now)

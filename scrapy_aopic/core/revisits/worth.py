"""The worth of a page's next visit, in units, comparable with the cash of pages that were never visited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .due import FOREMOST, OVERDUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.ledger import Ledger
    from scrapy_aopic.core.order import Order
    from scrapy_aopic.core.records import Page

    from .intervals import Recrawl
    from .rates import Rates


class Worth:
    """Cash that a page is expected to hold, times what a visit is worth for the freshness of its copy.

    Args:
        policy_of: How the page under a key is revisited.
    """

    def __init__(
        self, policy_of: Callable[[bytes], Recrawl], rates: Rates, ledger: Ledger, order: Order
    ) -> None:
        self._policy_of = policy_of
        self._rates = rates
        self._ledger = ledger
        self._order = order

    def of(self, key: bytes, page: Page, now: float) -> int:
        """Units that *page*, which is under *key* and whose cash is up to date, is worth if it is visited at *now*."""
        return self._by(self._policy_of(key), page, now)

    def _by(self, policy: Recrawl, page: Page, now: float) -> int:
        ledger = self._ledger
        expected = ledger.window.expected(page, page.cash, ledger.totals.turn, now)
        return policy.worth(page, expected, self._rates, now)

    def queue(self, key: bytes, page: Page, now: float) -> int:
        """Queue in which *page*, which is under *key*, was visited and whose cash is up to date, is due."""
        policy = self._policy_of(key)
        if policy.is_overdue(page, now):
            return FOREMOST if policy.comes_first else OVERDUE
        return self._order.revisit_queue(page, self._by(policy, page, now))

    def is_early(self, key: bytes, page: Page, now: float) -> bool:
        """Whether *page*, which is under *key* and was visited, must not be visited yet."""
        return self._policy_of(key).is_early(page, now)

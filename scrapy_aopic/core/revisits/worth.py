"""The worth of a page's next visit, in units, comparable with the cash of pages that were never visited."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from .due import FOREMOST, OVERDUE
from .fruit import ENOUGH, expected_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.ledger import Ledger
    from scrapy_aopic.core.order import Order
    from scrapy_aopic.core.records import Page

    from .hints import Hints
    from .intervals import Recrawl
    from .rates import Rates


class Worth:
    """Cash that a page is expected to hold, times what a visit is worth for the freshness of its copy.

    Args:
        policy_of: How the page under a key is revisited.
    """

    def __init__(
        self, policy_of: Callable[[bytes], Recrawl], rates: Rates, hints: Hints, ledger: Ledger, order: Order
    ) -> None:
        self.policy_of = policy_of
        self._rates = rates
        self._hints = hints
        self._ledger = ledger
        self._order = order

    def of(self, key: bytes, page: Page, now: float) -> int:
        """Units that *page*, which is under *key* and whose cash is up to date, is worth if it is visited at *now*."""
        return self._by(self.policy_of(key), key, page, now)

    def _by(self, policy: Recrawl, key: bytes, page: Page, now: float) -> int:
        ledger = self._ledger
        expected = ledger.window.expected(page, page.cash, ledger.totals.turn, now)
        ratio = self._hints.ratio(key, page.changes) if page.changes is not None else 1.0
        return policy.worth(page, expected, self._rates, now, ratio)

    def queue(self, key: bytes, page: Page, now: float) -> int:
        """Queue in which *page*, which is under *key*, was visited and whose cash is up to date, is due."""
        policy = self.policy_of(key)
        if policy.is_overdue(page, now):
            return FOREMOST if policy.comes_first else OVERDUE
        return self._order.revisit_queue(page, self._by(policy, key, page, now))

    def brings(self, key: bytes, page: Page, now: float) -> int | None:
        """Queue of *page*, as of :meth:`queue`, for what it is likely to bring; ``None`` if that is little.

        It goes by the time for which new pages have waited by now, which is least in all if it is the same for all pages at
        their visits, times the root of what one of its links is paid in a second: little for many pages without importance.
        """
        changes = page.changes
        if changes is None or (brought := expected_new(changes, now)) < ENOUGH:
            return None
        ledger = self._ledger
        expected = ledger.window.expected(page, page.cash, ledger.totals.turn, now)
        paid = expected * (now - changes.seen_at) / max(changes.n_links, 1)
        return self._order.revisit_queue(page, int(brought * sqrt(paid)))

"""The steps of revisits: the priority of visited pages is looked at, and the best ones are let into the frontier."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import HOST_BYTES, Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.frontier.frontier import Frontier
    from scrapy_aopic.core.pages import Pages

    from .due import DuePages
    from .intervals import Recrawl
    from .rates import Rates, Version
    from .wake_times import WakeTimes


class Revisits:
    """The steps by which visited pages are visited again.

    Args:
        policy: How often; ``None`` for visiting each page once. What an earlier run with another policy left due is
            then let in when there is nothing else to fetch.
        policy_of: The same for the page under a key.
    """

    def __init__(
        self,
        policy: Recrawl | None,
        policy_of: Callable[[bytes], Recrawl],
        *,
        rates: Rates,
        wake_times: WakeTimes,
        due: DuePages,
        pages: Pages,
        frontier: Frontier,
    ) -> None:
        self.policy = policy
        self._policy_of = policy_of
        self.rates = rates
        self._wake_times = wake_times
        self._due = due
        self._pages = pages
        self._frontier = frontier

    def visited(self, key: bytes, page: Page, version: Version, now: float) -> None:
        """Note what a visit of *page* has shown of its changes, and when to look at it again."""
        if self.policy is None or page.repeat_of:
            return
        known = page.changes
        interval = now - known.seen_at if known is not None and not version.is_missing else 0.0
        changes = self.rates.learn(known, version, now)
        if known is None and page.visits > 1:  # by runs that did not look for changes
            changes = changes._replace(first_seen=0.0)
        self._pages.learn(key, page, changes, now + self._policy_of(key).first_wake(interval))

    def when(self) -> float:
        """Instant at which the next page wakes; infinite if there is none."""
        return self._wake_times.when() if self.policy is not None else inf

    def step(self, now: float) -> bool:
        """Look at the pages whose time has come, and let in the best that are due and paid for; returns whether any is."""
        if self.policy is None:
            return False
        self._wake(now)
        is_any = False
        while (key := self._due.best()) is not None:
            self._pages.queue_again(key, now)
            is_any = True
        return is_any

    def let_in_one(self, now: float) -> bool:
        """Let in the best page of the hosts that have nothing else to fetch, paid for or not; returns whether any is."""
        key = self._due.best(self._frontier.is_free)
        if key is not None:
            self._pages.queue_again(key, now)
        return key is not None

    def released(self, host: bytes) -> None:
        """The transfer from the host under key *host* is over."""
        if self.policy is not None and self._frontier.is_free(host):
            self._due.freed(host)

    def _wake(self, now: float) -> None:
        keys = self._wake_times.due(now)
        self._frontier.preload({key[:HOST_BYTES] for key in keys})
        for key, page in self._pages.expect_many(keys, "a wake row"):
            passed = now - page.visited_at
            again_at = page.visited_at + self._policy_of(key).next_wake(passed)
            self._pages.sleep_until(key, page, again_at, now)

"""The steps of revisits: the priority of visited pages is looked at, and the best ones are let into the frontier."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import HOST_BYTES, VISITED, Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.frontier.frontier import Frontier
    from scrapy_aopic.core.pages import Pages

    from .due import DuePages
    from .intervals import Recrawl
    from .rates import Rates, Version
    from .wake_times import WakeTimes

_AT_ONCE = 100
"""Pages that are looked at in one step, so that a step takes milliseconds."""


class Revisits:
    """The steps by which visited pages are visited again.

    Args:
        policy: How often; ``None`` for visiting each page once. What an earlier run with another policy left due is
            then let in when there is nothing else to fetch.
        policy_of: The same for the page under a key.
        now: When this run began.
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
        now: float,
    ) -> None:
        self.policy = policy
        self._policy_of = policy_of
        self.rates = rates
        self._wake_times = wake_times
        self._due = due
        self._pages = pages
        self._frontier = frontier
        self._began = now
        self._next: bytes | None = b"" if policy is not None and policy.once else None

    @property
    def is_walking(self) -> bool:
        """Whether pages to be visited once more are still looked for."""
        return self._next is not None

    def visited(self, key: bytes, page: Page, version: Version, now: float) -> None:
        """Note what a visit of *page* has shown of its changes, and when to look at it again."""
        if self.policy is None or page.repeat_of:
            return
        known = page.changes
        interval = now - known.seen_at if known is not None and not version.is_missing else 0.0
        changes = self.rates.learn(known, version, now)
        if known is None and page.visits > 1:  # by runs that did not look for changes
            changes = changes._replace(first_seen=0.0)
        wakes_at = 0.0 if self.policy.once else now + self._policy_of(key).first_wake(interval)
        self._pages.learn(key, page, changes, wakes_at)

    def when(self) -> float:
        """Instant at which the next page wakes; infinite if there is none."""
        if self.policy is None or self.policy.once:
            return 0.0 if self.is_walking else inf
        return self._wake_times.when()

    def step(self, now: float) -> bool:
        """Look at the pages whose time has come, and let in the best that are due and paid for; returns whether any is."""
        if self.policy is None or self.policy.once:
            return self.is_walking and self._walk(now)
        self._wake(now)
        is_any = False
        while (key := self._due.best()) is not None:
            self._pages.queue_again(key, now)
            is_any = True
        return is_any

    def let_in_one(self, now: float) -> bool:
        """Let in the best page of the hosts that have nothing else to fetch, paid for or not; returns whether any is."""
        if self.policy is not None and self.policy.once:
            return False
        key = self._due.best(self._frontier.is_free)
        if key is not None:
            self._pages.queue_again(key, now)
        return key is not None

    def released(self, host: bytes) -> None:
        """The transfer from the host under key *host* is over."""
        if self.policy is not None and self._frontier.is_free(host):
            self._due.freed(host)

    def _walk(self, now: float) -> bool:
        """Let in some of the pages that are to be visited once more; returns whether any is.

        What was let in before a crash is queued, and what was fetched since is too young, so a walk may begin anew.
        """
        found, self._next = self._pages.stored_after(self._next or b"", _AT_ONCE)
        keys = [key for key, page in found if self._is_old(key, page)]
        self._frontier.preload({key[:HOST_BYTES] for key in keys})
        for key in keys:
            self._due.remove(key)
            self._pages.queue_again(key, now)
        return bool(keys)

    def _is_old(self, key: bytes, page: Page) -> bool:
        """Whether *page*, which is under *key*, was visited so long before this run that it is visited once more."""
        is_done = page.state == VISITED and not page.repeat_of
        return is_done and not self._policy_of(key).is_early(page, self._began)

    def _wake(self, now: float) -> None:
        keys = self._wake_times.due(now)
        self._frontier.preload({key[:HOST_BYTES] for key in keys})
        for key, page in self._pages.expect_many(keys, "a wake row"):
            passed = now - page.visited_at
            again_at = page.visited_at + self._policy_of(key).next_wake(passed)
            self._pages.sleep_until(key, page, again_at, now)

"""The steps of revisits, a class for each way: none, by intervals, or in rounds."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.layout import ASLEEP_KEY
from scrapy_aopic.core.records import FAILED, HOST_BYTES, QUEUED, VISITED, Changes, Page

from . import fruit
from .found import found_now, is_gone
from .hints import BELIEVED, USEFUL, Hints
from .rounds import Round, read_rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.api import Findings
    from scrapy_aopic.core.frontier.frontier import Frontier
    from scrapy_aopic.core.pages import Pages
    from scrapy_aopic.core.ports import Store

    from .due import DuePages
    from .intervals import Recrawl
    from .rates import Rates, Version
    from .wake_times import WakeTimes

_AT_ONCE = 100
"""Pages that are looked at in one step, so that a step takes milliseconds."""


_SAME = 0.002
"""Seconds by which the instant of a visit may be rounded: one so close to the beginning of a round is not made once more."""


def may_come_back(page: Page, *, waits: bool = False) -> bool:
    """Whether *page* was visited, and may be so again if the crawl has revisits: not if it failed, or is a repeat of a page.

    Args:
        waits: Whether one counts, too, that waits for that in the frontier.
    """
    return (page.state == VISITED or (waits and page.state == QUEUED)) and not page.repeat_of


class Revisits:
    """Each page is visited once. What an earlier run left due is let in when there is nothing else to fetch.

    Attributes:
        rates: What was learned of the rates of change.
        round: The round, of a crawl in rounds.
        is_walking: Whether pages to be visited once more are still looked for.
    """

    round: Round | None = None
    is_walking = False

    def __init__(self, *, rates: Rates, due: DuePages, pages: Pages, frontier: Frontier) -> None:
        self.rates = rates
        self._due = due
        self._pages = pages
        self._frontier = frontier

    def found(self, page: Page, found: Findings, now: float) -> None:
        """A visit of *page*, which has not changed, ends with *found* at *now*."""

    def visited(
        self, key: bytes, page: Page, version: Version, now: float, *, n_new: float = 0, n_links: int = 0
    ) -> None:
        """Note what a visit of *page* has shown of its changes, and when to look at it again.

        Args:
            n_new: New pages, and new dates of pages, that it has brought.
            n_links: Its links.
        """

    def dated(self, key: bytes, page: Page, at: float, now: float) -> bool:
        """Others say at *now* that *page*, which is known, was changed last at *at*; returns whether that is news, by what such dates were worth."""
        del key, page, at, now
        return False

    def when(self) -> float:
        """Instant at which the next step is due; infinite if none is."""
        return inf

    def step(self, now: float) -> bool:
        """Let in pages whose time has come; returns whether anything has changed."""
        del now
        return False

    def let_in_one(self, now: float) -> bool:
        """Let in the best page of the hosts that have nothing else to fetch, paid for or not; returns whether any is."""
        key = self._due.best(self._frontier.is_free)
        if key is not None:
            self._pages.queue_again(key, now)
        return key is not None

    def released(self, host: bytes) -> None:
        """The transfer from the host under key *host* is over."""

    def rows(self, now: float) -> dict[bytes, bytes]:
        """Rows for ``META`` of the commit that is taken at *now*."""
        del now
        return {}


class ByIntervals(Revisits):
    """The priority of visited pages is looked at from time to time, and the best ones are let in.

    Args:
        policy_of: How the page under a key is revisited.
        has_sleepers: Whether runs before may have left visited pages that nothing looks at.
    """

    def __init__(
        self,
        policy_of: Callable[[bytes], Recrawl],
        wake_times: WakeTimes,
        hints: Hints,
        *,
        has_sleepers: bool = False,
        **parts: Any,
    ) -> None:
        super().__init__(**parts)
        self._policy_of = policy_of
        self._wake_times = wake_times
        self._hints = hints
        self._next: bytes | None = b"" if has_sleepers else None
        if has_sleepers:
            self._frontier.index.put(ASLEEP_KEY, b"")

    @property
    def is_walking(self) -> bool:  # type: ignore[override]
        return self._next is not None

    def visited(
        self, key: bytes, page: Page, version: Version, now: float, *, n_new: float = 0, n_links: int = 0
    ) -> None:
        if page.state == FAILED and (gone := page.changes) is not None and self._comes_back(key, page):
            self._pages.learn(key, page, gone, self._wakes_at(key, gone, gone.seen_at - gone.changed_at, now))
        if not may_come_back(page):
            return
        asleep = page.changes if page.changes is not None else Changes()
        known = None if asleep.is_blank else page.changes
        interval = now - known.seen_at if known is not None and not version.is_missing else 0.0
        is_hinted = False
        if known is not None and known.dated_at and not version.is_missing:
            is_hinted = self._hints.ratio(key, known) < BELIEVED and known.hinted_at > 0
            is_changed, expected = not version.is_that_of(known), self.rates.same(known, now)
            self._hints.learn(key, known, is_changed=is_changed, expected=expected)
        changes = self.rates.learn(known, version, now, is_hinted=is_hinted)
        if not version.is_missing:
            changes = changes._replace(hinted_at=0.0)
            changes = fruit.learn(changes, n_new, n_links, interval or fruit.DAY)
        if known is None and page.visits > 1:  # by runs that did not look for changes
            changes = changes._replace(first_seen=0.0)
        changes = changes._replace(wakes_at=asleep.wakes_at)  # there is a row for that
        self._pages.learn(key, page, changes, self._wakes_at(key, changes, interval, now))

    def dated(self, key: bytes, page: Page, at: float, now: float) -> bool:
        known = page.changes
        if known is None or known.is_blank or at <= known.dated_at or not may_come_back(page, waits=True):
            return False
        wakes_at, hinted_at = known.wakes_at, known.hinted_at
        if at > known.seen_at and not hinted_at:
            hinted_at = min(at, now)
            wakes_at = max(now, page.visited_at + self._policy_of(key).min_interval)
        self._pages.learn(key, page, known._replace(dated_at=at, hinted_at=hinted_at), wakes_at)
        return at > known.seen_at and self._hints.of(key[:HOST_BYTES])[1].ratio < USEFUL

    def _wakes_at(self, key: bytes, changes: Changes, interval: float, now: float) -> float:
        """When to look at a page first that was visited *now*, an *interval* after the visit before; 0 for never."""
        policy = self._policy_of(key)
        soon = max(fruit.seconds_until_enough(changes), policy.min_interval)
        return now + min(policy.first_wake(interval), soon)

    def _comes_back(self, key: bytes, page: Page) -> bool:
        """Whether *page*, which is under *key*, may be visited again: also if it is gone, where that is asked for."""
        return may_come_back(page) or (page.state == FAILED and is_gone(page) and self._policy_of(key).gone)

    def when(self) -> float:
        return 0.0 if self.is_walking else self._wake_times.when()

    def step(self, now: float) -> bool:
        if self.is_walking:
            self._wake_sleepers()
        self._wake(now)
        is_any = False
        while (key := self._due.best()) is not None:
            self._pages.queue_again(key, now)
            is_any = True
        return is_any

    def released(self, host: bytes) -> None:
        if self._frontier.is_free(host):
            self._due.freed(host)

    def _wake_sleepers(self) -> None:
        """Look at some pages of runs that visited pages once, or in rounds: nothing wakes them, whatever they are paid."""
        found, self._next = self._pages.stored_after(self._next or b"", _AT_ONCE)
        for key, page in found:
            known = page.changes if page.changes is not None else Changes(seen_at=page.visited_at)
            if self._comes_back(key, page) and not known.wakes_at and self._pages.request(key):
                self._pages.learn(key, page, known, page.visited_at + self._policy_of(key).min_interval)
        if self._next is None:
            self._frontier.index.delete(ASLEEP_KEY)

    def _wake(self, now: float) -> None:
        keys = self._wake_times.due(now)
        self._frontier.preload({key[:HOST_BYTES] for key in keys})
        for key, page in self._pages.expect_many(keys, "a wake row"):
            again_at = page.visited_at + self._policy_of(key).next_wake(now - page.visited_at)
            self._pages.sleep_until(key, page, again_at, now)


class InRounds(ByIntervals):
    """All pages that are old enough when a round begins are let in once.

    A run goes on with a round that is not over. Else it begins the next one, at once or, of several in one run, when it is due.

    Args:
        policy: How rounds follow each other.
        now: When this run began.
    """

    round: Round

    def __init__(
        self,
        policy: Recrawl,
        policy_of: Callable[[bytes], Recrawl],
        wake_times: WakeTimes,
        hints: Hints,
        *,
        store: Store,
        now: float,
        **parts: Any,
    ) -> None:
        super().__init__(policy_of, wake_times, hints, has_sleepers=True, **parts)
        self._every = policy.every
        self._over: list[Round] = []
        last = [Round(0, 0.0, ended=now), *read_rounds(store)][-1]
        goes_on = not last.ended or (self._every and last.number)
        number, began = policy.given or (last.number + (not goes_on), now)
        self.round = last if number <= last.number else Round(number, began)
        self._next = None if self.round.ended else b""

    @property
    def _is_over(self) -> bool:
        """Whether nothing is left to visit, but for pages that nobody waits for."""
        places = self._frontier.places
        return not self.is_walking and self._frontier.queued <= places.dead_pages + places.blocked_pages

    def found(self, page: Page, found: Findings, now: float) -> None:
        self.round.note(found_now(page, found, now).what, is_known=page.visits > 0)

    def _wakes_at(self, key: bytes, changes: Changes, interval: float, now: float) -> float:
        del key, changes, interval, now
        return 0.0

    def when(self) -> float:
        if self.is_walking:
            return 0.0
        return self.round.began + self._every if self._every and self._is_over else inf

    def step(self, now: float) -> bool:
        if self._every and self._is_over and now >= self.round.began + self._every:
            self.round.ended = self.round.ended or now
            self._over.append(self.round)
            self.round = Round(self.round.number + 1, now)
            self._next = b""
        if not self.is_walking:
            return False
        self._walk(now)
        return True  # also if no page was old: that nothing is left to do is to be committed

    def let_in_one(self, now: float) -> bool:
        del now
        return False

    def rows(self, now: float) -> dict[bytes, bytes]:
        self.round.ended = (self.round.ended or now) if self._is_over else 0.0
        rows = dict(each.row() for each in (*self._over, self.round))
        self._over = self._over[-1:]  # a commit may fail, and the next one has its rows
        return rows

    def _walk(self, now: float) -> None:
        """Let in some of the pages that are to be visited once more.

        The store is read, so pages that were visited first since the last commit are not among them: their copies are as of
        the beginning of the round but for that time, which is less than the shortest interval.

        What was let in before a crash is queued, and what was fetched since is too young, so a walk may begin anew.
        """
        found, self._next = self._pages.stored_after(self._next or b"", _AT_ONCE)
        keys = [key for key, page in found if self._is_old(key, page)]
        self._frontier.preload({key[:HOST_BYTES] for key in keys})
        for key in keys:
            self._due.remove(key)
            self._pages.queue_again(key, now)

    def _is_old(self, key: bytes, page: Page) -> bool:
        """Whether *page*, which is under *key*, was visited so long before the round that it is visited once more."""
        age = self.round.began - page.visited_at
        return self._comes_back(key, page) and age >= max(self._policy_of(key).min_interval, _SAME)

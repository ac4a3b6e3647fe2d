"""When a host may be requested again.

Mercator's rule: a host never gets two requests at once, and after a transfer it is left alone for *factor*
times as long as the transfer took (Najork and Heydon 2001 use 10), within a lower and an upper bound.

What the host says and shows makes that longer, never shorter: its ``Crawl-delay``, its ``Retry-After``, and errors,
after which the gap doubles until it responds as it should. A host that is *down* too often in a row is *dead*: it is
still requested, later and later, but the crawl does not wait for it.

``Retry-After`` is read in :mod:`scrapy_aopic.web.http_dates`; here it is a number of seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Protocol

_MAX_DOUBLINGS = 40
"""Doublings of a gap that are computed: by then any bound is reached, and a power of two is still a finite number."""


class Outcome(IntEnum):
    """What a transfer shows of its host."""

    ANSWER = 0
    """It responds as it should."""
    ERROR = 1
    """It responds that something is wrong, maybe with the page only (status 5xx)."""
    DOWN = 2
    """There is no response, or one that asks for a later request (status 429, and 503 with a time)."""
    OTHER = 3
    """Nothing: the transfer was ended from here."""


class Paced(Protocol):
    """What is remembered of a host's pace.

    Attributes:
        crawl_delay: Seconds between requests that its robots.txt asks for.
        errors: Transfers in a row after which it did not respond as it should.
        down: Transfers in a row that showed it to be down.
    """

    name: str
    crawl_delay: float
    errors: int
    down: int


@dataclass(slots=True)
class Pace:
    """The pace of a host that nothing else is remembered of."""

    name: str
    crawl_delay: float = 0.0
    errors: int = 0
    down: int = 0


class Gap(NamedTuple):
    """Seconds from the end of a transfer.

    Attributes:
        own: For its host.
        shared: For the other hosts of its domain or address, if these are kept apart, too.
    """

    own: float
    shared: float


class Rule(NamedTuple):
    """What is different for some hosts; ``None`` for what is not."""

    factor: float | None = None
    min_gap: float | None = None
    max_gap: float | None = None


@dataclass(frozen=True, slots=True)
class Politeness:
    """How long to leave a host alone; all figures but *factor* and *dead_after* are seconds.

    Attributes:
        factor: Times that a transfer took.
        min_gap: Shortest gap.
        max_gap: Longest gap that a slow transfer makes.
        backoff: Gap after the first error, doubled by each further one in a row; 0 to take no note of errors.
        max_backoff: Longest gap that errors make.
        max_wish: Longest time that a host is left alone because it asks for it.
        dead_after: Transfers in a row that show a host to be down after which it is dead.
        rule: What is different for a host, by its name.
    """

    factor: float = 10.0
    min_gap: float = 0.0
    max_gap: float = 60.0
    backoff: float = 5.0
    max_backoff: float = 86_400.0
    max_wish: float = 86_400.0
    dead_after: int = 5
    rule: Callable[[str], Rule | None] | None = None

    def of(self, host: str) -> Politeness:
        """The politeness towards *host*."""
        rule = self.rule(host) if self.rule is not None else None
        if rule is None:
            return self
        return replace(
            self,
            factor=self.factor if rule.factor is None else rule.factor,
            min_gap=self.min_gap if rule.min_gap is None else rule.min_gap,
            max_gap=self.max_gap if rule.max_gap is None else rule.max_gap,
        )

    def gap(self, transfer: float) -> float:
        """Seconds between the end of a transfer that took *transfer* seconds and the next request."""
        return min(max(self.factor * max(transfer, 0.0), self.min_gap), max(self.max_gap, self.min_gap))

    def after(self, pace: Paced, transfer: float, outcome: Outcome, retry_after: float = 0.0) -> Gap:
        """Take note of a transfer in *pace*; returns for how long its host is left alone.

        Args:
            transfer: Seconds that it took.
            retry_after: Seconds for which the host asks to be left alone.
        """
        if outcome == Outcome.ANSWER or not self.backoff:
            pace.errors = pace.down = 0
        elif outcome != Outcome.OTHER:
            pace.errors += 1
            pace.down = pace.down + 1 if outcome == Outcome.DOWN else 0
        regular = self.of(pace.name).gap(transfer)
        wish = min(retry_after, self.max_wish)
        # Who shares an address with a host is not bound by all that the host asks for itself.
        return Gap(
            max(regular, self.crawl_delay(pace), wish, self._backoff(pace)),
            max(regular, min(wish, self.max_gap)),
        )

    def _backoff(self, pace: Paced) -> float:
        if not pace.errors:
            return 0.0
        # A host that answers, though with errors, is no dead one: many of its pages may be broken.
        longest = self.max_backoff if pace.down else min(self.max_gap, self.max_backoff)
        return min(self.backoff * 2.0 ** min(pace.errors - 1, _MAX_DOUBLINGS), longest)

    def crawl_delay(self, pace: Paced) -> float:
        """Seconds between requests that robots.txt asks for, as far as it is granted."""
        return min(pace.crawl_delay, self.max_wish)

    def floor(self, pace: Paced) -> float:
        """Shortest gap of a host, whatever a transfer shows."""
        return max(self.of(pace.name).min_gap, self.crawl_delay(pace))

    def longest(self, pace: Paced) -> float:
        """Longest gap that there can be after a transfer that shows nothing special."""
        own = self.of(pace.name)
        return max(own.max_gap, own.min_gap, self.crawl_delay(pace))

    def is_dead(self, pace: Paced) -> bool:
        """Whether the crawl does not wait for the host any more."""
        return pace.down >= self.dead_after

    def pause_after_crash(self, now: float, leased_at: float, last_seen: float) -> float:
        """Instant before which a host must not be requested after a process died unexpectedly.

        What the dead process did since its last commit is unknown, but bounded: it made no request later than
        *last_seen*, so no transfer that it still finished was longer than from the host's lease until then.

        Args:
            now: Instant of the restart.
            leased_at: Instant of the host's last committed lease; of the last commit, if none is known.
            last_seen: Latest instant at which the dead process may have been at work.
        """
        return now + self.gap(last_seen - leased_at)

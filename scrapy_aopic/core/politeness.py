"""When a host may be requested again.

Mercator's rule: a host never gets two requests at once, and after a transfer it is left alone for *factor*
times as long as the transfer took (Najork and Heydon 2001 use 10), within a lower and an upper bound.

A host to which a rule gives several *connections* gets as many requests at once, and after each transfer none until the gap
is over. It gets one at a time while it asks for time between requests or responds with errors, and what fails at the same
time counts as one failure.

What the host says and shows makes that longer, never shorter: its ``Crawl-delay``, its ``Retry-After``, and errors,
after which the gap doubles until it responds as it should. A host that is *down* too often in a row is *dead*: it is
still requested, at growing intervals, but the crawl does not wait for it.

Silence is not the host's but the *origin's* (scheme, name and port), since anybody can link to a port that nothing
listens on. The links to a silent origin wait, each time twice as long, and the rest of the host goes on at its gap. A
host is dead, too, when nothing is left of it but links to dead origins.

``Retry-After`` is read in :mod:`scrapy_aopic.web.http_dates`; here it is a number of seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Protocol

from .host_rules import HostRule

LONGEST_WAIT = 10_000_000
"""Most seconds for which a host is left alone, whatever the settings say, and whatever it asks for."""

_MAX_DOUBLINGS = 40
"""Doublings of a gap that are computed: by then any bound is reached, and a power of two is still a finite number."""

_BROKEN_PAGES = 8
"""Broken transfers in a row that are put down to the pages of a host that has answered; further ones are its own."""

_SILENT_ORIGINS = 16
"""Origins of a host that are remembered to be silent: there are 65,535 ports that a page could link to. Nothing waits for
further ones, so that their pages fail."""


class Outcome(IntEnum):
    """The outcome of a transfer for its host."""

    ANSWER = 0
    """It responds as it should."""
    ERROR = 1
    """It responds that something is wrong, maybe with the page only (status 5xx)."""
    DOWN = 2
    """It asks for a later request (status 429, and 503 with a time)."""
    OTHER = 3
    """Nothing: the transfer was ended from here, or it was a proxy that failed."""
    SILENT = 4
    """There is no response."""
    BROKEN = 5
    """A connection was made, and the response does not come, or not whole: maybe it is the page."""
    BROKEN_AGAIN = 6
    """A broken transfer of a page that has failed before: no news of a host that answers."""

    @property
    def is_down(self) -> bool:
        """Whether there was no whole response, or one that asks for a later request."""
        return self in (Outcome.DOWN, Outcome.SILENT, Outcome.BROKEN, Outcome.BROKEN_AGAIN)


class TransferResult(NamedTuple):
    """What a transfer, which is over, has shown of its host.

    Attributes:
        seconds: How long it took.
        outcome: Whether the host responded.
        retry_after: Seconds for which the host asks to be left alone.
        at_least: Seconds for which somebody else wants it to be left alone.
        address: The network address that it was fetched from; empty if that does not matter.
        origin: Scheme, name and port that were requested, if these are told apart: silence is only theirs.
        n_bytes: Bytes of the response's body.
        is_of_proxy: Whether what it asks for is for a proxy, and other ways to the host are open; or who was silent may be that.
        is_nowhere: Whether it is silent because there is no host of that name.
    """

    seconds: float
    outcome: Outcome = Outcome.ANSWER
    retry_after: float = 0.0
    at_least: float = 0.0
    address: str = ""
    origin: str = ""
    n_bytes: int = 0
    is_of_proxy: bool = False
    is_nowhere: bool = False


class Silence(NamedTuple):
    """The record of an origin whose links wait.

    Attributes:
        n: Transfers in a row that got no response.
        until: Instant until which its links wait, in seconds since the epoch.
        is_for_all: Whether all requests wait, not only links, because its robots.txt is unreachable.
    """

    n: int
    until: float
    is_for_all: bool = False


class Paced(Protocol):
    """The fields of a host that determine its pace.

    Attributes:
        crawl_delay: Seconds between requests that its robots.txt asks for.
        errors: Transfers in a row after which it did not respond as it should.
        down: Transfers in a row that showed it to be down.
        visited: Pages that were visited or failed at least once.
        broken: Broken transfers in a row.
        silent: Its origins whose links wait; ``None`` for none.
    """

    name: str
    crawl_delay: float
    errors: int
    down: int
    visited: int
    broken: int
    silent: dict[str, Silence] | None


@dataclass(slots=True)
class Pace:
    """The pace of a host that nothing else is remembered of."""

    name: str
    crawl_delay: float = 0.0
    errors: int = 0
    down: int = 0
    visited: int = 0
    broken: int = 0
    silent: dict[str, Silence] | None = None


class Gap(NamedTuple):
    """Seconds from the end of a transfer.

    Attributes:
        own: For its host.
        shared: For the other hosts of its domain or address, if these are kept apart, too.
        at_once: Transfers from its host that may be under way at once after that.
    """

    own: float
    shared: float
    at_once: int = 1


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
        rule: Gives the options of a host that differ, by its name; ``None`` if all hosts are treated alike.
        connections: Gives the connections of a host, by its name, ``None`` for one; ``None`` if all hosts have one.
    """

    factor: float = 10.0
    min_gap: float = 0.0
    max_gap: float = 60.0
    backoff: float = 5.0
    max_backoff: float = 86_400.0
    max_wish: float = 86_400.0
    dead_after: int = 5
    rule: Callable[[str], HostRule | None] | None = None
    connections: Callable[[str], int | None] | None = None

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

    def _most(self, host: str) -> int:
        """Transfers from *host* that may be under way at once, if nothing is against it."""
        return (self.connections(host) if self.connections is not None else None) or 1

    def at_once(self, pace: Paced) -> int:
        """Transfers from a host that may be under way at once."""
        if self.connections is None or pace.errors or self.crawl_delay(pace):
            return 1
        return self._most(pace.name)

    def after(
        self,
        pace: Paced,
        transfer: float,
        outcome: Outcome,
        retry_after: float = 0.0,
        *,
        is_of_proxy: bool = False,
        waits: float = 0.0,
    ) -> Gap:
        """Take note of a transfer in *pace*; returns for how long its host is left alone.

        Args:
            transfer: Seconds that it took.
            retry_after: Seconds for which the host asks to be left alone.
            is_of_proxy: Whether it asks that of a proxy, and other ways to it are open.
            waits: Seconds for which it is left alone already, because of transfers that ended before.
        """
        if outcome == Outcome.ANSWER or not self.backoff:
            pace.errors = pace.down = pace.broken = 0
        elif pace.errors and waits > 0 and self._most(pace.name) > 1:
            pass  # it began before the failure that is counted was known
        elif outcome in (Outcome.ERROR, Outcome.DOWN):
            pace.errors += 1
            pace.down = pace.down + 1 if outcome == Outcome.DOWN else 0
            pace.broken = 0
        regular = self.of(pace.name).gap(transfer)
        if is_of_proxy:
            return Gap(max(regular, self.crawl_delay(pace)), regular, self.at_once(pace))
        wish = min(retry_after, self.max_wish)
        # Who shares an address with a host is not bound by all that the host asks for itself.
        return Gap(
            max(regular, self.crawl_delay(pace), wish, self._backoff(pace)),
            max(regular, min(wish, self.max_gap)),
            self.at_once(pace),
        )

    def judge(self, pace: Paced, outcome: Outcome) -> Outcome:
        """Interpret *outcome* by the transfers before it: is the page or the host to blame for a broken one?

        A host that answers has broken pages; a host that has never answered, or breaks off all the time, is silent.
        """
        if outcome == Outcome.BROKEN_AGAIN and pace.visited:
            return Outcome.OTHER
        if outcome == Outcome.BROKEN and pace.visited and pace.broken < _BROKEN_PAGES:
            pace.broken += 1
            return outcome
        return Outcome.SILENT if outcome in (Outcome.BROKEN, Outcome.BROKEN_AGAIN) else outcome

    def heard(
        self,
        pace: Paced,
        origin: str,
        outcome: Outcome,
        now: float,
        *,
        is_nowhere: bool = False,
        is_of_proxy: bool = False,
    ) -> bool:
        """Take note in *pace* of whether *origin* was silent in a transfer; returns whether anything changed.

        The origin waits twice as long after each silence, and not at all once it has answered. If it *is_nowhere*, as there is
        no host of that name, it is dead at once. If it was asked by one of several proxies, it only waits when it is dead:
        until then it may be the proxy that is silent.
        """
        known = pace.silent
        if outcome in (Outcome.ANSWER, Outcome.ERROR, Outcome.DOWN):
            if not known or origin not in known or known[origin].is_for_all:
                return False
            pace.silent = {name: each for name, each in known.items() if name != origin} or None
            return True
        if outcome != Outcome.SILENT or not self.backoff:
            return False
        before = known.get(origin) if known else None
        if before is not None and before.n and before.until > now and self._most(pace.name) > 1:
            return False
        n = before.n + 1 if before is not None else 1
        if is_nowhere:
            n = max(n, self.dead_after)
        wait = 0.0 if is_of_proxy and n < self.dead_after else self._doubled(n, self.max_backoff)
        self.hold(pace, origin, Silence(n, now + wait, before is not None and before.is_for_all))
        return True

    @staticmethod
    def hold(pace: Paced, origin: str, silence: Silence) -> None:
        """Have the links to *origin* wait, by *silence*, unless too many origins of the host are silent already."""
        silent = pace.silent or {}
        if origin in silent or len(silent) < _SILENT_ORIGINS:
            pace.silent = {**silent, origin: silence}

    @staticmethod
    def forget(pace: Paced, origins: Collection[str]) -> None:
        """Forget that *origins* are silent."""
        pace.silent = {name: each for name, each in (pace.silent or {}).items() if name not in origins}

    def delay(self, pace: Paced, seconds: float) -> float:
        """Have *seconds* between requests, as robots.txt asks now; returns how many are to pass before the next one.

        These are 0 unless it asks for more than before.
        """
        is_longer = seconds > pace.crawl_delay
        pace.crawl_delay = seconds if seconds > 0 else 0.0  # so is no number, too
        return self.crawl_delay(pace) if is_longer else 0.0

    def _backoff(self, pace: Paced) -> float:
        if not pace.errors:
            return 0.0
        # A host that answers, though with errors, is no dead one: many of its pages may be broken.
        longest = self.max_backoff if pace.down else min(self.max_gap, self.max_backoff)
        return self._doubled(pace.errors, longest)

    def _doubled(self, n: int, longest: float) -> float:
        """Seconds after the last of *n* failures in a row, at most *longest*."""
        return min(self.backoff * 2.0 ** min(n - 1, _MAX_DOUBLINGS), longest)

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
        """Whether the crawl does not wait for the host any more, as far as the host itself is to blame."""
        return pace.down >= self.dead_after

    def are_all_dead(self, pace: Paced) -> bool:
        """Whether each of the silent origins of a host is dead."""
        return bool(pace.silent) and all(each.n >= self.dead_after for each in (pace.silent or {}).values())

    def is_given_up(self, pace: Paced, origin: str) -> bool:
        """Whether *origin* is dead: the crawl does not wait for it, although the rest of its host may be fine."""
        silence = pace.silent.get(origin) if pace.silent else None
        return self.is_dead(pace) or (silence is not None and silence.n >= self.dead_after)

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

"""Bounds the connections that slow hosts may hold, so that fast ones find one when their time comes.

A transfer cannot be stopped to make room, and a host that takes 30 seconds holds a connection sixty times as long as
one that takes half a second. So hosts are in *classes* by the seconds that their last transfer took, and the slower
ones leave some connections free for the faster ones:

* Fast hosts need *a* connections on average: the sum, over those that have pages waiting, of the part of the time that
  each is transferring. What they need varies as a Poisson number does, with a standard deviation of the root of *a*.
  By the rule of square-root staffing, a + 2 sqrt(a) connections are kept free for them.
* At most three quarters of all connections are kept free, however many are needed.
* A slow host also takes up the room that is kept for all classes between it and the fastest: it needs room in each.
* A long transfer counts as slow as soon as it takes long, not only when it ends.

A host that was never requested has no class. It counts as twice the share of slow hosts among those first requested
lately, at most as one; before any is known, as one. Every such host is classified after its first second, so that slow
hosts are not counted late. The share is doubled because admitting too few is corrected at once, while admitting too many
lasts until the slow transfers end.

Nor is anything known of the speed of hosts that were requested and are silent at once, as there is no such name or nothing
listens. In a list of dead hosts they would have every connection, and every turn: so a host of no class also counts as
twice the share of silent hosts among those that were leased lately; up to two while there are hosts that answer, so that
half of the connections are left for these: silent hosts may fail faster than all connections can be taken.

Source: Halfin and Whitt, "Heavy-Traffic Limits for Queues with Many Exponential Servers", Operations Research 29(3),
1981; Whitt, "Understanding the Efficiency of Multi-Server Service Systems", Management Science 38(5), 1992.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from math import inf, sqrt

_BOUNDS = (1.0, 16.0)
"""Seconds from which on a transfer is of the next class: a factor of 16 between classes, as a geometric mean of two
classes is then at most four times away from any transfer in them."""

N_CLASSES = len(_BOUNDS) + 1
"""Classes of hosts: fast, slow and slowest."""

_FAST, _SLOWEST = 0, N_CLASSES - 1
"""Numbers of the first class and of the last."""

_DEVIATIONS = 2.0
"""Standard deviations kept free above the mean: two leave one fast host in forty without a connection."""

_MOST_KEPT_FREE = 0.75
"""Most of all connections that may be kept free, so that slow hosts are visited in any case."""

_TRIAL = _BOUNDS[0]
"""Seconds after which it is known whether a host that was never requested before is slow."""

_MEMORY = 20.0
"""Averaging time of the share of new hosts that turn out to be slow, in seconds of connections held by such hosts."""

_LEASES = 20
"""Leases of hosts of no class over which the share of silent ones is averaged."""


class FreeConnections:
    """The connections that are kept free for hosts faster than the one that asks.

    Args:
        connections: Transfers that may be under way at once.

    Attributes:
        under_way: Begin and class of the transfers under way, by page.
    """

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._needs: dict[bytes, tuple[int, float]] = {}  # class, and part of the time that a host transfers
        self._needed = [0.0] * N_CLASSES  # sums of these parts
        self.under_way: dict[bytes, tuple[float, int]] = {}
        self._in_use = [0] * N_CLASSES  # how many these are
        # Heap of the instants at which a transfer may rise in class.
        self._looks: list[tuple[float, bytes]] = []
        self._unknown: set[bytes] = set()  # under way, never requested before, and not slow so far
        self._trials: dict[tuple[float, bytes], float] = {}  # by their look: seconds held of the first one
        self._slow_share = 1.0
        self._silent_share = 0.0

    @staticmethod
    def class_of(seconds: float) -> int:
        """Class of a host whose transfers take *seconds*."""
        return bisect_right(_BOUNDS, seconds)

    # -- what hosts need

    def note(self, key: bytes, seconds: float, gap: float, at_once: int = 1) -> None:
        """The host under *key*, which has pages waiting, takes *seconds*, *at_once* times, and is then left alone for *gap* seconds."""
        self.forget(key)
        if seconds > 0:
            number, part = self.class_of(seconds), at_once * seconds / (seconds + gap)
            self._needs[key] = (number, part)
            self._needed[number] += part

    def forget(self, key: bytes) -> None:
        """The host under *key* has no pages waiting in memory."""
        need = self._needs.pop(key, None)
        if need is not None:
            self._needed[need[0]] -= need[1]

    # -- what they hold

    def begin(self, key: bytes, seconds: float, now: float) -> None:
        """A host, which took *seconds* the last time (0 if never requested), is leased for the page under *key*."""
        # here, too: a crawl of fast hosts never asks for room, and a look is kept for each lease
        self._look(now)
        self._hold(key, now, self.class_of(seconds))
        if not seconds:
            self._unknown.add(key)
            self._trials[now + _TRIAL, key] = _TRIAL

    def end(self, key: bytes, now: float, *, is_silent: bool = False) -> None:
        """The lease of a host for the page under *key* is over, and whether the host *is_silent* so far."""
        begin, number = self.under_way.pop(key)
        self._in_use[number] -= 1
        if key in self._unknown:
            self._unknown.remove(key)
            self._silent_share += (is_silent - self._silent_share) / _LEASES
        trial = (begin + _TRIAL, key)
        if trial in self._trials:
            self._trials[trial] = min(now - begin, _TRIAL)

    def _hold(self, key: bytes, begin: float, number: int) -> None:
        self.under_way[key] = (begin, number)
        self._in_use[number] += 1
        if number < _SLOWEST:
            heappush(self._looks, (begin + _BOUNDS[number], key))

    # -- whether there is room

    def full_class(self, seconds: float, now: float) -> int:
        """A class without room for a host that takes *seconds* (0 if unknown); 0 if it may be leased."""
        slowest = self.class_of(seconds) if seconds > 0 else _SLOWEST
        # It also occupies what is kept free for all classes in between.
        for number in range(slowest, _FAST, -1):
            if not self.has_room(number, now):
                return number
        return _FAST

    @property
    def takes_new(self) -> bool:
        """Whether a host that was never requested may be leased, as of the last look."""
        return not self.full_class(0.0, -inf)

    def has_room(self, number: int, now: float) -> bool:
        """Whether another host of class *number* may be leased."""
        self._look(now)
        need = max(sum(self._needed[:number]), 0.0)
        kept_free = min(round(need + _DEVIATIONS * sqrt(need)), int(_MOST_KEPT_FREE * self._connections))
        most = 2.0 if kept_free else 1.0
        share = max(min(2 * self._slow_share, 1.0), min(2 * self._silent_share, most))
        unknown = share * len(self._unknown)
        return sum(self._in_use[number:]) + unknown < self._connections - kept_free

    def _look(self, now: float) -> None:
        """Class what has been under way for long enough, and learn from the trials that are over."""
        looks = self._looks
        while looks and looks[0][0] <= now:
            instant, key = heappop(looks)
            begin, number = self.under_way.get(key, (0.0, _SLOWEST))
            # Otherwise the look is of an earlier lease.
            rises = number < _SLOWEST and instant == begin + _BOUNDS[number]
            if rises:
                self._in_use[number] -= 1
                self._hold(key, begin, number + 1)
                self._unknown.discard(key)
            weight = self._trials.pop((instant, key), 0.0)
            self._slow_share += (rises - self._slow_share) * weight / _MEMORY

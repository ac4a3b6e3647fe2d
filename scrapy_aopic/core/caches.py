"""Which of the keys in memory goes next, when there are more than there is room for.

A :class:`Cache` knows keys only; who asks it keeps what is under them, knows how many are too many, and keeps from it
the keys that may not go now.

Source: Broder, Najork and Wiener, "Efficient URL Caching for World Wide Web Crawling", WWW 2003, which compares
these four. CLOCK is Corbató's, "A Paging Experiment with the Multics System", 1968.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

Draw = Callable[[], float]
"""A number from 0 to 1, without 1, at random."""


class Cache(Protocol):
    """Keys that are in memory and may go."""

    def add(self, key: bytes) -> None:
        """*key* may go from now on; it is not among the keys yet."""
        ...

    def use(self, key: bytes) -> None:
        """*key*, which is in memory, was asked for; it may be one that may not go now."""
        ...

    def discard(self, key: bytes) -> None:
        """*key* may not go now; nothing happens if it is not among the keys."""
        ...

    def victim(self) -> bytes:
        """Take out the key that goes next; there must be one."""
        ...

    def __len__(self) -> int:
        """Keys that may go."""
        ...


class LruCache:
    """The least recently used key goes."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """Keys that may go."""
        return len(self._keys)

    def add(self, key: bytes) -> None:
        """Put *key* behind all others."""
        self._keys[key] = None

    def use(self, key: bytes) -> None:
        """Put *key* behind all others, if it is there."""
        if key in self._keys:
            self._keys.move_to_end(key)

    def discard(self, key: bytes) -> None:
        """Take *key* out, if it is there."""
        self._keys.pop(key, None)

    def victim(self) -> bytes:
        """Take out the first key."""
        return self._keys.popitem(last=False)[0]


class ClockCache:
    """A hand goes round the keys, takes the mark from those used since it last came by, and stops at the first without.

    The ring is a queue, and the hand stands before its first key: what it passes goes to the end. A new key comes
    without a mark, since most are asked for once only: one round less for each, and no more misses on link graphs.

    Attributes:
        use: Marks a key. A mark stays while the key may not go, for then it is in use the more.
    """

    def __init__(self) -> None:
        self._ring: OrderedDict[bytes, None] = OrderedDict()
        self._marked: set[bytes] = set()
        self.use: Callable[[bytes], None] = self._marked.add  # a method would take twice as long

    def __len__(self) -> int:
        """Keys that may go."""
        return len(self._ring)

    def add(self, key: bytes) -> None:
        """Put *key* behind the hand, where it comes last."""
        self._ring[key] = None

    def discard(self, key: bytes) -> None:
        """Take *key* out, if it is there."""
        self._ring.pop(key, None)

    def victim(self) -> bytes:
        """Move the hand to the first key without a mark, and take it out."""
        ring, marked = self._ring, self._marked
        while (key := ring.popitem(last=False)[0]) in marked:
            marked.remove(key)
            ring[key] = None
        return key


class RandomCache:
    """Any key goes, each with the same chance."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._keys: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Keys that may go."""
        return len(self._keys)

    def add(self, key: bytes) -> None:
        """Put *key* among the others."""
        self._places[key] = len(self._keys)
        self._keys.append(key)

    def use(self, key: bytes) -> None:
        """Do nothing."""

    def discard(self, key: bytes) -> None:
        """Take *key* out, if it is there; the last key gets its place."""
        place = self._places.pop(key, None)
        if place is not None:
            last = self._keys.pop()
            if place < len(self._keys):
                self._keys[place] = last
                self._places[last] = place

    def victim(self) -> bytes:
        """Draw a key, and take it out."""
        key = self._keys[int(self._draw() * len(self._keys))]
        self.discard(key)
        return key


class StaticCache:
    """The first keys stay: those that came before anything had to go. Every other goes, the last one first.

    What comes first in a crawl is what its seeds, and the pages near them, link to. A key keeps its right to stay
    while it may not go; it loses it only if no other key can go.
    """

    def __init__(self) -> None:
        self._first: dict[bytes, None] = {}
        self._others: dict[bytes, None] = {}
        self._away: set[bytes] = set()  # of the first keys, those that may not go now
        self._is_full = False

    def __len__(self) -> int:
        """Keys that may go."""
        return len(self._first) + len(self._others)

    def add(self, key: bytes) -> None:
        """Put *key* among those that stay if it was one, or there is room."""
        if key in self._away:
            self._away.remove(key)
            self._first[key] = None
        elif self._is_full:
            self._others[key] = None
        else:
            self._first[key] = None

    def use(self, key: bytes) -> None:
        """Do nothing."""

    def discard(self, key: bytes) -> None:
        """Take *key* out, if it is there."""
        if key in self._first:
            del self._first[key]
            self._away.add(key)
        else:
            self._others.pop(key, None)

    def victim(self) -> bytes:
        """Take out the last of the others; if there is none, the last of the first keys."""
        self._is_full = True
        return (self._others or self._first).popitem()[0]


CACHES: dict[str, Callable[[Draw], Cache]] = {
    "lru": lambda _: LruCache(),
    "clock": lambda _: ClockCache(),
    "random": RandomCache,
    "static": lambda _: StaticCache(),
}
"""By name, what makes each from chance, which only ``random`` needs."""

"""The policies that ``benchmarks/caches.py`` compares with the one of the package, CLOCK.

Source: Broder, Najork and Wiener, "Efficient URL Caching for World Wide Web Crawling", WWW 2003, which compares these four.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Protocol

from scrapy_aopic.core.tables import ClockCache

Draw = Callable[[], float]
"""A number from 0 to 1, without 1, at random."""


class Cache(Protocol):
    """Keys that are in memory and may go."""

    def add(self, keys: Collection[bytes]) -> None:
        """*keys*, none of them among the keys yet, may go from now on."""
        ...

    def use(self, key: bytes) -> None:
        """Note that *key*, which is in memory, was used; it may be one that may not go now."""
        ...

    def use_all(self, keys: Collection[bytes]) -> None:
        """Note that all of *keys* were used."""
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

    def add(self, keys: Collection[bytes]) -> None:
        """Put *keys* behind all others."""
        for key in keys:
            self._keys[key] = None

    def use(self, key: bytes) -> None:
        """Put *key* behind all others, if it is there."""
        if key in self._keys:
            self._keys.move_to_end(key)

    def use_all(self, keys: Collection[bytes]) -> None:
        """Put those of *keys* that are there behind all others."""
        for key in keys:
            self.use(key)

    def victim(self) -> bytes:
        """Take out the first key."""
        return self._keys.popitem(last=False)[0]


class _Indifferent:
    """Keys in the order in which they came, whatever is used."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []

    def __len__(self) -> int:
        """Keys that may go."""
        return len(self._keys)

    def add(self, keys: Collection[bytes]) -> None:
        """Put *keys* behind those that are there."""
        self._keys.extend(keys)

    def use(self, key: bytes) -> None:
        """Do nothing."""

    def use_all(self, keys: Collection[bytes]) -> None:
        """Do nothing."""


class RandomCache(_Indifferent):
    """Any key goes, each with the same chance."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self._draw = draw

    def victim(self) -> bytes:
        """Draw a key, and take it out; the last key gets its place."""
        keys = self._keys
        place = int(self._draw() * len(keys))
        key, keys[place] = keys[place], keys[-1]
        keys.pop()
        return key


class StaticCache(_Indifferent):
    """The first keys stay: the key that came last goes, so that those from before there was no more room are left.

    What comes first in a crawl is what its seeds, and the pages near them, link to.
    """

    def victim(self) -> bytes:
        """Take out the key that came last."""
        return self._keys.pop()


CACHES: dict[str, Callable[[Draw], Cache]] = {
    "lru": lambda _: LruCache(),
    "clock": lambda _: ClockCache(),
    "random": RandomCache,
    "static": lambda _: StaticCache(),
}
"""By name, what makes each from chance, which only ``random`` needs."""

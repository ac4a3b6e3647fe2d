"""Reads as much as can be read of a damaged store."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError

from .walk import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .layout import Family
    from .ports import Store

_HELD = 500
"""Rows that are held back to be compared with those that follow: more than a block of any store holds."""

_KEY_BYTES = 24
"""Bytes of keys that are counted in to jump over a gap; longer keys differ before that."""


class DamagedStore:
    """*store*, of which only what can be read is there; reading it never raises.

    Attributes:
        gaps: Places by family where rows could not be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gaps: dict[Family, int] = {}

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return self._store.get_many(family, keys)
        except StorageError:
            if len(keys) > 1:
                return [self.get_many(family, (key,))[0] for key in keys]
            return [None]

    def scan(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        """The rows of *family* in the order of their keys, without those that cannot be read and some behind them.

        Rows out of order are left out, too: a block that was written over another one leaves such rows.
        """
        rows, held = self._scan(family), list[tuple[bytes, bytes]]()
        while chunk := list(islice(rows, CHUNK)):
            held = _ascending([*held, *chunk])
            # Only what follows may show that these are out of order.
            yield from held[:-_HELD]
            held = held[-_HELD:]
        yield from held

    def _scan(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        start: bytes | None = b""
        while start is not None:
            last = start
            try:
                for key, value in self._store.scan(family, start):
                    yield key, value
                    last = key
                return
            except StorageError:
                self.gaps[family] = self.gaps.get(family, 0) + 1
                start = self._behind(family, last)

    def _behind(self, family: Family, last: bytes) -> bytes | None:
        """The first key, some way behind *last*, from which a scan succeeds; ``None`` if there is none."""
        at, step = int.from_bytes(last[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0"), "big"), 1
        while (at := at + step) < 1 << 8 * _KEY_BYTES:
            step *= 2
            start = at.to_bytes(_KEY_BYTES, "big")
            try:
                next(self._store.scan(family, start), None)
            except StorageError:
                continue
            return start
        return None


def _ascending(rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The longest part of *rows* in which each key is above the one before it (Schensted, 1961)."""
    if all(before[0] < after[0] for before, after in pairwise(rows)):
        return rows
    ends: list[bytes] = []  # the lowest key with which so many rows can end
    places: list[int] = []
    for key, _ in rows:
        place = bisect_left(ends, key)
        ends[place : place + 1] = [key]
        places.append(place)
    result: list[tuple[bytes, bytes]] = []
    wanted = len(ends) - 1
    for row, place in zip(reversed(rows), reversed(places), strict=True):
        if place == wanted and (not result or row[0] < result[-1][0]):
            result.append(row)
            wanted -= 1
    return result[::-1]

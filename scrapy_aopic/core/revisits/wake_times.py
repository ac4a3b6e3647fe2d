"""When each visited page wakes, which is when its priority is computed again.

Rule: in the store, a page that may be revisited has one row that says when; ``Page.changes.wakes_at`` repeats it.
The first rows are kept in memory, in a sorted list.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from itertools import islice
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import WAKES, Family
from scrapy_aopic.exceptions import SALVAGE, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.records import Changes
    from scrapy_aopic.core.tables import RowTable

_AT_ONCE = 100
"""Pages that wake in one step, so that a step takes milliseconds even after a long pause."""

_IN_MEMORY = 1000
"""Rows read from the store at once; up to twice as many are kept."""


class WakeTimes:
    """Pages by the times at which they wake.

    Args:
        index: Their rows in the store.
    """

    def __init__(self, index: RowTable) -> None:
        self._index = index
        self._first: list[bytes] = []  # the first rows
        self._is_whole = False  # whether these are all

    def move(self, key: bytes, changes: Changes | None, instant: float) -> Changes:
        """Let the page under *key*, with these *changes*, wake at *instant* (never if it is 0), and no more when they say.

        Returns:
            The changes, which say *instant* now.

        Raises:
            StorageError: If there are no changes.
        """
        if changes is None:
            raise StorageError(f"page {key.hex()} is to wake, but nothing is known of its changes: {SALVAGE}")
        first = self._first
        if changes.wakes_at:
            row = wake_row(changes.wakes_at, key)
            self._index.delete(row)
            position = bisect_left(first, row)
            if position < len(first) and first[position] == row:
                del first[position]
        changes = changes._replace(wakes_at=instant)
        if not instant:
            return changes
        row = wake_row(instant, key)
        self._index.put(row, b"")
        if self._is_whole or (first and row < first[-1]):
            insort(first, row)
            if len(first) > 2 * _IN_MEMORY:
                del first[_IN_MEMORY:]
                self._is_whole = False
        return changes

    def when(self) -> float:
        """Instant at which the next page wakes; infinite if none does."""
        if not self._first and not self._is_whole:
            rows, self._is_whole = self._index.first(WAKES, _IN_MEMORY)
            self._first = [row for row, _ in rows]
        return _instant(self._first[0]) if self._first else math.inf

    def due(self, now: float) -> list[bytes]:
        """Keys of some pages that wake by *now*; the caller sets their next time."""
        if self.when() > now:
            return []
        return [row[9:] for row in self._first[:_AT_ONCE] if _instant(row) <= now]


def wake_row(instant: float, key: bytes) -> bytes:
    """Row that says that the page under *key* wakes at *instant*."""
    return WAKES + int(instant * 1000).to_bytes(8, "big") + key


def first_wake(stores: Iterable[Store]) -> float:
    """The first instant at which a page in any of the *stores* wakes; 0 if none does."""
    end = bytes((WAKES[0] + 1,))
    rows = (row for store in stores for row, _ in islice(store.scan(Family.META, WAKES, end), 1))
    return min(map(_instant, rows), default=0.0)


def _instant(row: bytes) -> float:
    return (int.from_bytes(row[1:9], "big") + 1) / 1000

"""Hosts on the disk: shelved ones by rank, and parked or dead ones by time.

A *shelf* is a part of the index with a common prefix, in which hosts are ordered by rank, best first:

* ``IN_TIME``: all hosts within their budgets, whatever their domain;
* ``LATE`` or ``BEHIND`` and the key of a domain: those over the budget of the domain, or of a link to it.

Hosts on a shelf are counted by *bucket*: the rows that one read of the store may step over. A shelf is one bucket, except
that for hosts in time, which is as long as the crawl is large and has a bucket for each two first bytes of a rank.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import IN_TIME, SHELVED
from scrapy_aopic.core.records import HOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_aopic.core.tables import RowTable

SHELF_BYTES = len(IN_TIME) + HOST_BYTES
"""Bytes that the rows of a shelf of late hosts have in common."""

_ROWS_READ = 32
"""Rows that are read at once, and remembered of a shelf."""

_TIME_BYTES = 8
"""Bytes of the time in the rows of parked hosts: milliseconds since the epoch."""


def index_bucket(row: bytes) -> bytes:
    """Beginning of an index row that it shares with those that are read, and counted, together."""
    if row[:1] != SHELVED:
        return row[:1]
    # by priority and the first byte of the order's rank
    return row[:4] if row[:2] == IN_TIME else row[:SHELF_BYTES]


def shelf_of(row: bytes) -> bytes:
    """Shelf of the index row of a shelved host."""
    return row[: len(IN_TIME) if row[:2] == IN_TIME else SHELF_BYTES]


class Shelves:
    """The shelved hosts, as the index rows that :class:`~.host_places.HostPlaces` writes.

    Attributes:
        counts: How many there are in each bucket.
    """

    def __init__(self, index: RowTable) -> None:
        self._index = index
        self.counts: dict[bytes, int] = {}
        self._firsts: dict[bytes, list[bytes]] = {}  # first rows by shelf, as far as they are known

    def __len__(self) -> int:
        """Shelves of which the first rows are known."""
        return len(self._firsts)

    def put(self, row: bytes) -> None:
        """The index has *row* now."""
        bucket = index_bucket(row)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        firsts = self._firsts.get(shelf_of(row))
        if firsts and row < firsts[-1]:
            insort(firsts, row)
            if len(firsts) > 2 * _ROWS_READ:
                del firsts[_ROWS_READ:]  # they are in the index, too

    def drop(self, row: bytes) -> None:
        """The index has *row* no more."""
        bucket = index_bucket(row)
        self.counts[bucket] -= 1
        if not self.counts[bucket]:
            del self.counts[bucket]
        firsts = self._firsts.get(shelf_of(row))
        if firsts and row <= firsts[-1]:
            del firsts[bisect_left(firsts, row)]

    def first(self, shelf: bytes) -> bytes | None:
        """The first row of *shelf*, ``None`` if it is empty; reads the store when no first row is known."""
        if not self.counts:
            return None
        firsts = self._firsts.get(shelf)
        if not firsts:
            bucket = self._first_bucket(shelf)
            if bucket is None:
                return None
            rows, _ = self._index.first(bucket, _ROWS_READ)
            firsts = self._firsts[shelf] = [row for row, _ in rows]
        return firsts[0]

    def _first_bucket(self, shelf: bytes) -> bytes | None:
        if shelf == IN_TIME:
            return min((bucket for bucket in self.counts if bucket.startswith(shelf)), default=None)
        return shelf if shelf in self.counts else None

    def forget(self, shelf: bytes) -> None:
        """*shelf* is empty, and may stay so."""
        self._firsts.pop(shelf, None)
        self._index.forget(shelf)


class Parking:
    """The hosts that are on the disk under a time, as the index rows that :class:`~.host_places.HostPlaces` writes.

    Args:
        letter: First byte of their rows.

    Attributes:
        n: How many there are.
        opens_at: Instant at which the first of them may be requested, infinite if there is none.
    """

    def __init__(self, index: RowTable, letter: bytes) -> None:
        self._index = index
        self._letter = letter
        self.n = 0
        self.opens_at = inf

    def look(self) -> None:
        """Look up which is the first."""
        row = self.first_row()
        self.opens_at = instant_of(row) if row is not None else inf

    def first_row(self) -> bytes | None:
        """The first row, ``None`` if there is none."""
        rows, _ = self._index.first(self._letter, 1)
        return rows[0][0] if rows else None

    def due(self, now: float) -> Iterator[bytes]:
        """Keys of hosts whose time has come; each must leave before the next one is drawn."""
        while self.opens_at <= now:
            rows, is_all = self._index.first(self._letter, _ROWS_READ)
            self.opens_at = inf  # of those that come meanwhile
            for row, _ in rows:
                instant = instant_of(row)
                if instant > now:
                    self.opens_at = min(self.opens_at, instant)
                    break
                yield row[-HOST_BYTES:]
            else:
                if not is_all:
                    self.look()

    def place(self, until: float) -> bytes:
        """Beginning of the row of a host that must be left alone *until* an instant."""
        return self._letter + int(until * 1000 + 1).to_bytes(_TIME_BYTES, "big")

    def put(self, until: float) -> None:
        """A host has come that must be left alone *until* an instant, up to a millisecond before that of its row."""
        self.opens_at = min(self.opens_at, until)
        self.n += 1


def instant_of(row: bytes) -> float:
    """The time in the row of a parked host."""
    return int.from_bytes(row[1 : 1 + _TIME_BYTES], "big") / 1000

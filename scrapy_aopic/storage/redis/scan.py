"""Reads the rows of leaves in the order of their keys, a few leaves at a time, as they were when that began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scrapy_aopic.core.ports import Family

    from .keys import Keys
    from .leaves import Rows

_MOST_AT_ONCE = 16
"""Leaves that are read at once, at most; the first request is for one, because most scans want a few rows."""


class LeafSource(Protocol):
    """A store or a view that a scan reads from."""

    def read_leaves(self, scan: Scan, separators: Sequence[bytes], /) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""


class Scan(Iterator[tuple[bytes, bytes]]):
    """The rows of the leaves *separators* within *bounds*, the second of which they do not reach; leaf by leaf.

    Attributes:
        family: Family of the rows.
        saved: Leaves that changed after the scan began, and before it came to them.
    """

    __slots__ = (
        "__weakref__", "_at", "_keys", "_n", "_rows", "_separators", "_source", "_start", "_stop", "family",
        "saved",
    )  # fmt: skip

    def __init__(
        self,
        source: LeafSource,
        keys: Keys,
        family: Family,
        bounds: tuple[bytes, bytes | None],
        separators: list[bytes],
    ) -> None:
        self._source = source
        self._keys = keys
        self.family = family
        self._start, self._stop = bounds
        self._separators = separators
        self._at = 0
        self._n = 1
        self._rows: Iterator[tuple[bytes, bytes]] = iter(())
        self.saved: dict[bytes, Rows] = {}

    def ahead(self, touched: Iterable[bytes]) -> list[bytes]:
        """The leaves of *touched* that it has yet to read, and that are not saved."""
        to_come = {*self._separators[self._at :]}
        return [each for each in touched if each in to_come and each not in self.saved]

    def __next__(self) -> tuple[bytes, bytes]:
        while True:
            for row in self._rows:
                return row
            if self._at == len(self._separators):
                raise StopIteration
            self._rows = iter(self._next_rows())

    def _next_rows(self) -> list[tuple[bytes, bytes]]:
        separators = self._separators[self._at : self._at + self._n]
        leaves = self._source.read_leaves(self, separators)
        self._at += len(separators)
        self._n = min(2 * self._n, _MOST_AT_ONCE)
        rows: list[tuple[bytes, bytes]] = []
        for n, leaf in enumerate(leaves, self._at - len(leaves)):
            if not leaf:
                raise self._keys.damaged(f"a leaf of {self.family.name} is gone")
            pairs = sorted(leaf.items())
            after = self._separators[n + 1 : n + 2]
            if pairs[0][0] < self._separators[n] or (after and pairs[-1][0] >= after[0]):
                raise self._keys.damaged(f"a leaf of {self.family.name} has rows of another one")
            rows += pairs
        start, stop = self._start, self._stop
        if rows and (rows[0][0] < start or (stop is not None and rows[-1][0] >= stop)):
            rows = [row for row in rows if row[0] >= start and (stop is None or row[0] < stop)]
        return rows

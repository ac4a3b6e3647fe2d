"""How many of the fetched pages are relevant, over the whole job and lately."""

from __future__ import annotations

from math import isqrt

from scrapy_aopic.core.layout import HARVEST_KEY
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import NO_RECORD, pack, unpack

LATELY = 500
"""Pages whose part that is relevant says how a crawl goes now: enough for two digits, and few enough to notice its end."""


_CLASSES = 64
"""Classes of values: the finer, the smaller they are."""

_MANY = 2_000
"""Pages after which earlier ones count half, so that the figures on values are recent."""


class Foresight:
    """How well the values of pages before they were fetched predict which are relevant."""

    def __init__(self) -> None:
        self.counts = [0] * (2 * _CLASSES)  # others, then relevant ones, by class

    def note(self, expected: int, *, is_relevant: bool) -> None:
        """One more page was graded that was *expected* to be worth so much, as links hold values."""
        counts = self.counts
        counts[isqrt(4 * expected) + _CLASSES * is_relevant] += 1
        if sum(counts) >= _MANY:
            self.counts = [n // 2 for n in counts]

    @property
    def auc(self) -> float | None:
        """Part of all pairs of a relevant page and another in which the relevant one had the larger value.

        Equal values count half, so it is 0.5 if values say nothing (Hanley and McNeil, Radiology 143, 1982). ``None``
        without such a pair. It is about pages that were fetched, each the best of its time, so it is far lower than it
        would be for any pages.
        """
        below, wins = 0, 0.0
        for other, relevant in zip(self.counts[:_CLASSES], self.counts[_CLASSES:], strict=True):
            wins += relevant * (below + other / 2)
            below += other
        pairs = below * sum(self.counts[_CLASSES:])
        return wins / pairs if pairs else None


class Harvest:
    """Counts graded pages.

    Attributes:
        pages: Pages graded in this job.
        relevant: Relevant ones among them.
        foresight: How well their values predicted this.
    """

    def __init__(self) -> None:
        self.pages = self.relevant = 0
        self.foresight = Foresight()
        self._last = 0  # a bit for each of the last pages, the latest lowest

    def note(self, *, is_relevant: bool, expected: int = 0) -> None:
        """One more page was graded, and had been *expected* to be worth so much; 0 if nothing was expected."""
        if expected:
            self.foresight.note(expected, is_relevant=is_relevant)
        self.pages += 1
        self.relevant += is_relevant
        self._last = (self._last << 1 | is_relevant) & (1 << LATELY) - 1

    @property
    def rate(self) -> float:
        """Part of the pages that are relevant, 0 to 1."""
        return self.relevant / self.pages if self.pages else 0.0

    @property
    def n_lately(self) -> int:
        """Number of recent pages that are counted, at most :data:`LATELY`."""
        return min(self.pages, LATELY)

    @property
    def rate_lately(self) -> float:
        """Relevant part of the last :attr:`n_lately` pages."""
        return self._last.bit_count() / self.n_lately if self.n_lately else 0.0

    def pack(self) -> bytes:
        """The counts as bytes."""
        last = self._last.to_bytes(-(-LATELY // 8), "big")
        return pack((self.pages, self.relevant, last, self.foresight.counts))

    @classmethod
    def unpack(cls, data: bytes | None) -> Harvest:
        """The counts written as *data*; new ones if these cannot be read, so that no figure keeps a crawl from starting."""
        self = cls()
        try:
            pages, relevant, last, *rest = unpack(data or b"")
            last = int.from_bytes(last, "big")
            if 0 <= relevant <= pages and last < 1 << LATELY:
                self.pages, self.relevant, self._last = pages, relevant, last
            if rest and len(rest[0]) == 2 * _CLASSES and all(0 <= n < 2 * _MANY for n in rest[0]):
                self.foresight.counts = list(rest[0])
        except NO_RECORD:
            pass
        return self


def read_harvest(store: Store) -> Harvest:
    """The counts of the job in *store*."""
    return Harvest.unpack(store.get_many(Family.META, (HARVEST_KEY,))[0])

"""How many of the fetched pages are relevant, over the whole job and lately."""

from __future__ import annotations

from scrapy_aopic.core.layout import HARVEST_KEY
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import NO_RECORD, pack, unpack

LATELY = 500
"""Pages whose part that is relevant says how a crawl goes now: enough for two digits, and few enough to notice its end."""


class Harvest:
    """Counts graded pages.

    Attributes:
        pages: Pages graded in this job.
        relevant: Relevant ones among them.
    """

    def __init__(self) -> None:
        self.pages = self.relevant = 0
        self._last = 0  # a bit for each of the last pages, the latest lowest

    def note(self, *, is_relevant: bool) -> None:
        """One more page was graded."""
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

    def plus(self, other: Harvest) -> Harvest:
        """The counts of both together, of which this one's pages are the last."""
        self.pages, self.relevant = self.pages + other.pages, self.relevant + other.relevant
        return self

    def pack(self) -> bytes:
        """The counts as bytes."""
        last = self._last.to_bytes(-(-LATELY // 8), "big")
        return pack((self.pages, self.relevant, last))

    @classmethod
    def unpack(cls, data: bytes | None) -> Harvest:
        """The counts written as *data*; new ones if these cannot be read, so that no figure keeps a crawl from starting."""
        self = cls()
        try:
            pages, relevant, last = unpack(data or b"")[:3]  # older ones have more
            last = int.from_bytes(last, "big")
            if 0 <= relevant <= pages and last < 1 << LATELY:
                self.pages, self.relevant, self._last = pages, relevant, last
        except NO_RECORD:
            pass
        return self


def read_harvest(store: Store) -> Harvest:
    """The counts of the job in *store*."""
    return Harvest.unpack(store.get_many(Family.META, (HARVEST_KEY,))[0])

"""How many of the fetched pages are relevant, over the whole job and of late."""

from __future__ import annotations

from scrapy_aopic.core.records import NO_RECORD, pack, unpack

LATELY = 500
"""Pages whose part that is relevant says how a crawl goes now: enough for two digits, and few enough to notice its end."""


class Harvest:
    """Counts graded pages.

    Attributes:
        pages: Pages graded in this job.
        relevant: Of these, relevant ones.
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
    def rate_lately(self) -> float:
        """The same of the last :data:`LATELY` pages."""
        return self._last.bit_count() / min(self.pages, LATELY) if self.pages else 0.0

    def pack(self) -> bytes:
        """The counts as bytes."""
        return pack((self.pages, self.relevant, self._last.to_bytes(-(-LATELY // 8), "big")))

    @classmethod
    def unpack(cls, data: bytes | None) -> Harvest:
        """The counts written as *data*; anew if they cannot be read, as no figure is worth a crawl that cannot start."""
        self = cls()
        try:
            pages, relevant, last = unpack(data or b"")
            last = int.from_bytes(last, "big")
            if 0 <= relevant <= pages and last < 1 << LATELY:
                self.pages, self.relevant, self._last = pages, relevant, last
        except NO_RECORD:
            pass
        return self

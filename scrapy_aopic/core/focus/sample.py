"""Pages set aside at random, so that people can say how many of a crawl's pages are relevant.

Each graded page is as likely to be among them as any other, however many there are: algorithm R (Vitter, ACM Transactions
on Mathematical Software 11, 1985).

Rule 1: what is kept of a page is bounded: :data:`MOST_PAGES` pages, each with :data:`URL_CHARACTERS` of its URL and
:data:`EXCERPT_CHARACTERS` of its text.

Rule 2: a sample keeps its size: pages that were turned down cannot be added later, so a larger one would have too few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import convert

from scrapy_aopic.core.layout import SAMPLE_KEY, SAMPLED
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.printable import printable
from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.core.tables import BlobTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .strategy import Chance

MOST_PAGES = 2_000
"""Pages of a sample: more than anybody labels, and enough for an interval of 4 % in all."""

EXCERPT_CHARACTERS = 1_000
"""Characters of a page's text that are kept: what a person reads to see what it is about."""

URL_CHARACTERS = 2_000
"""Characters of a page's URL that are kept."""

_END = bytes((SAMPLED[0] + 1,))


class Sampled(NamedTuple):
    """A page that was set aside, or may be.

    Attributes:
        grade: How relevant the crawl found it, 0 to 1.
        counts: Whether it counts as relevant in the harvest.
        is_duplicate: Whether its text was that of another page, so that it counts as irrelevant in any case.
        text: The beginning of its text.
        gist: Its gist (:func:`.calibration.gist_of`); empty if it has none.
    """

    url: str
    grade: float
    counts: bool
    is_duplicate: bool
    text: str = ""
    gist: bytes = b""


class LabelSample:
    """The sample of a job, in its store.

    Attributes:
        size: Most pages that it holds; 0 if none are set aside.
        pages: Number of pages from which it was drawn.
        table: Its rows, with those that wait for a commit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.table = BlobTable(store, Family.META)
        self.size = self.pages = 0
        self._chance: Chance | None = None

    def begin(self, size: int, chance: Chance) -> None:
        """Hold up to *size* pages from now on, drawn by *chance*.

        An earlier sample keeps its size.
        """
        before, self.pages = _read_counts(self._store)
        self.size = before if self.pages else size
        self._chance = chance

    def offer(self, page: Sampled, text: Callable[[], str]) -> bool:
        """Note that *page* was graded, and return whether it is set aside, perhaps in place of another one.

        Args:
            text: Gives its text; called only if the page is set aside.
        """
        if not self.size or self._chance is None:
            return False
        slot = self.pages if self.pages < self.size else self._chance.randrange(self.pages + 1)
        self.pages += 1
        self._count()
        if slot >= self.size:
            return False
        kept = page._replace(url=printable(page.url[:URL_CHARACTERS]), text=_excerpt(text()))
        self.table.put(_row(slot), pack(kept))
        return True

    def _count(self) -> None:
        self.table.put(SAMPLE_KEY, pack((self.size, self.pages)))


def read_samples(stores: Sequence[Store], chance: Chance) -> tuple[int, list[Sampled]]:
    """The samples of all shards of a job, in *stores*, as one, and the number of pages from which it was drawn.

    Each page of the job is equally likely to be in it. It is smaller than a shard's own sample may be if one shard would have
    to give more pages than its sample has.
    """
    each = [read_sample(store) for store in stores]
    size = max((_read_counts(store)[0] for store in stores), default=0)
    left = [pages for pages, _ in each]
    samples = [list(sample) for _, sample in each]
    merged: list[Sampled] = []
    while len(merged) < size and (n := sum(left)):
        place = chance.randrange(n)
        number = next(at for at in range(len(left)) if place < sum(left[: at + 1]))
        if not samples[number]:
            break
        merged.append(samples[number].pop(chance.randrange(len(samples[number]))))
        left[number] -= 1
    return sum(pages for pages, _ in each), merged


def read_sample(store: Store) -> tuple[int, list[Sampled]]:
    """The sample of the job in *store*, without what cannot be read, and out of how many pages it was drawn."""
    found = [_read(data) for _, data in store.scan(Family.META, SAMPLED, _END)]
    return _read_counts(store)[1], [page for page in found if page is not None]


def _read(data: bytes) -> Sampled | None:
    try:
        return convert(unpack(data), Sampled, builtin_types=(bytes,))
    except NO_RECORD:
        return None


def _excerpt(text: str) -> str:
    """The beginning of *text*, with single spaces and without what a terminal would obey."""
    return printable(" ".join(text[: 2 * EXCERPT_CHARACTERS].split()))[:EXCERPT_CHARACTERS]


def _read_counts(store: Store) -> tuple[int, int]:
    try:
        size, pages = unpack(store.get_many(Family.META, (SAMPLE_KEY,))[0] or b"")
        return (size, pages) if 0 <= size <= MOST_PAGES and pages >= 0 else (0, 0)
    except NO_RECORD:
        return 0, 0


def _row(slot: int) -> bytes:
    return SAMPLED + slot.to_bytes(4, "big")

"""A job as of one moment, in one store, or in one for each of its shards.

A shard in a view is read like the store of a job in one piece. Its totals include the sums of all other shards at the same
moment, so that importance is relative to the whole job; and a page of another shard, which a row names by its *address*
(:mod:`scrapy_aopic.core.shards.cut`), is read there, or in the letter that is on its way there.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.focus.calibration import UNCHECKED, Calibration
from scrapy_aopic.core.layout import TOTALS_KEY, Family
from scrapy_aopic.core.ledger import TOTAL, Sums
from scrapy_aopic.core.ports import Store, StoreAround
from scrapy_aopic.core.records import PAGE_BYTES, pack_page, unpack_page
from scrapy_aopic.core.shards.cut import ADDRESS_BYTES, address, shard_of_address
from scrapy_aopic.core.shards.letters import Letter, read_letter
from scrapy_aopic.core.shards.mail import Got, cut_of, read_counts, read_outbox
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.calibration_file import read_calibration
from scrapy_aopic.storage import closing_all
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_aopic.place.place import Place

_WITH_ADDRESSES = (Family.PAGES, Family.REQUESTS)
"""Families whose rows other shards name."""


class ShardView(StoreAround):
    """A view of the shard *number*, whose *siblings* are the stores of all shards of its job, itself included.

    Attributes:
        number: Which shard it is.
        store: Its own store.
    """

    def __init__(self, number: int, siblings: Sequence[Store], saved: CrawlTotals | None) -> None:
        super().__init__(siblings[number])
        self.number = number
        self._siblings = siblings
        self._totals = saved.pack() if saved is not None else None
        self._in_letters: dict[int, dict[bytes, bytes]] = {}

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of *keys*; of a page that another shard has, if a key is its address."""
        found = self.store.get_many(family, keys)
        if family == Family.META and TOTALS_KEY in keys:
            found = [self._totals if key == TOTALS_KEY else row for key, row in zip(keys, found, strict=True)]
        elif family in _WITH_ADDRESSES:
            away = [n for n, key in enumerate(keys) if len(key) == ADDRESS_BYTES]
            for n, row in zip(away, self._elsewhere(family, [keys[n] for n in away]), strict=True):
                found[n] = row
        return found

    def _elsewhere(self, family: Family, addresses: Sequence[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes | None] = {}
        by_shard: dict[int, list[bytes]] = {}
        for each in addresses:
            by_shard.setdefault(shard_of_address(each), []).append(each)
        for shard, some in by_shard.items():
            if shard >= len(self._siblings):
                raise StorageError(
                    f"A page is said to be in shard {shard}, and the job has {len(self._siblings)}: the store of shard "
                    f"{self.number} is damaged."
                )
            rows = self._siblings[shard].get_many(family, [each[:PAGE_BYTES] for each in some])
            if family == Family.PAGES:
                rows = [_with_address(row, shard) for row in rows]
            elif None in rows:
                sent = self._sent_to(shard)
                rows = [
                    sent.get(each[:PAGE_BYTES]) if row is None else row
                    for each, row in zip(some, rows, strict=True)
                ]
            found.update(zip(some, rows, strict=True))
        return [found[each] for each in addresses]

    def _sent_to(self, shard: int) -> dict[bytes, bytes]:
        """Requests to pages of *shard* in letters that it has not applied, by their keys."""
        if shard not in self._in_letters:
            self._in_letters[shard] = {
                link.key: link.request
                for letter in on_their_way(self._siblings, shard)
                for target in (
                    *(each.target for each in letter.payments),
                    *(each.target for each in letter.seeds),
                )
                if (link := letter.link(target)).host
            }
        return self._in_letters[shard]


def _with_address(row: bytes | None, shard: int) -> bytes | None:
    """The record of a page of *shard*, as others read it: what it was merged with is there, unless it says where."""
    if row is None:
        return None
    page = unpack_page(row)
    if len(page.canonical) != PAGE_BYTES:
        return row
    return pack_page(replace(page, canonical=address(page.canonical, shard)))


def on_their_way(stores: Sequence[Store], to: int) -> Iterator[Letter]:
    """Letters to the shard *to* that it has not applied, of those in *stores*, which are of all shards.

    Raises:
        StorageError: If a store or a letter cannot be read.
    """
    cut = cut_of(stores, registered_domain).in_shard(to)
    _, got = read_counts(stores[to])
    for sender, store in enumerate(stores):
        applied = got.get(sender, Got()).last
        for number, data in read_outbox(store, to) if sender != to else ():
            if number > applied:
                yield read_letter(data, cut)


class View:
    """The stores of a job as of one moment; a crawl may be using them.

    Args:
        stores: Stores of all shards, in the order of their numbers; the only one of a job in one piece.

    Attributes:
        stores: The stores as they are to be read.
        calibration: What grades for the topic mean.
        saved: The totals of each; ``None`` of one that was never opened.

    Raises:
        StorageError: If the totals of one cannot be read.
    """

    def __init__(self, stores: Sequence[Store], calibration: Calibration = UNCHECKED) -> None:
        self.calibration = calibration
        self.saved = [read_totals(store) for store in stores]
        self.stores: Sequence[Store] = stores
        if len(stores) > 1:
            _note_sums(stores, self.saved)
            self.stores = [ShardView(number, stores, saved) for number, saved in enumerate(self.saved)]

    @property
    def at(self) -> float:
        """When the last commit was taken, in seconds since the epoch; 0 if there was none."""
        return max((saved.saved_at for saved in self.saved if saved is not None), default=0.0)

    @property
    def total(self) -> int:
        """All cash that there is, in units."""
        return len(self.stores) * TOTAL


def _note_sums(stores: Sequence[Store], saved: Sequence[CrawlTotals | None]) -> None:
    """Let each of the *saved* totals know the sums of all others."""
    job = Sums()
    for each in saved:
        if each is not None:
            job = job.plus(_sums_of(each))
    for each in saved:
        if each is not None:
            each.ledger.elsewhere = job.less(_sums_of(each))


def _sums_of(saved: CrawlTotals) -> Sums:
    """The sums of the shard with the totals *saved*, which add up to those of its job."""
    return saved.ledger.sums(visits=saved.visits, seeds=saved.seeds)


@contextmanager
def open_view(job: Place) -> Iterator[View]:
    """*job* as of one moment.

    Raises:
        StorageError: If there is no job, or it cannot be read.
    """
    with closing_all(job.open_snapshots()) as stores:
        yield View(stores, read_calibration(job.folder))

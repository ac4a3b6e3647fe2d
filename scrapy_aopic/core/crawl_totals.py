"""The totals of a crawl, written with each commit, because counting a store takes too long."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import msgspec

from scrapy_aopic.exceptions import SALVAGE, StorageError

from .layout import FORMAT, TOTALS_KEY, Family
from .ledger import Estimate, Totals
from .records import NO_RECORD, pack, unpack
from .revisits.rates import RATES
from .spending import N_PAGE_CLASSES
from .window import WindowClock, WindowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ports import Store


@dataclass(slots=True)
class CrawlTotals:
    """The totals of a crawl as of a commit; times are in seconds since the epoch.

    Attributes:
        order_name: Class of the crawl's order.
        created_at: When the job began.
        saved_at: When the commit was taken.
        ledger: Sums of cash.
        window: The arguments of the window, if pages are visited again.
        queued: Pages that wait, leased ones included.
        hosts: Hosts with or without queued pages.
        order: Number of the page that was queued last.
        clock: Time as the order counts it.
        visits: Pages that were visited or failed at least once.
        rates: Expected number of pages at each change rate.
        seeds: Seeds by which domains are supported.
        shelved: Shelved hosts by the beginning of their index rows.
        parked: Hosts that wait on the disk for their time, without dead ones.
        dead: Dead hosts that wait on the disk for their time.
        dead_pages: Pages of those.
        commit_within: Seconds; no page was leased later than this after the last commit that had landed.
        is_clean: Whether the crawl was closed with this commit.
        crashed_at: When the job was last opened after a crash, 0 if never.
        not_before: Before this no request is made, because of that crash.
        format: Version of the layout.
    """

    order_name: str
    created_at: float
    saved_at: float
    ledger: Totals = field(default_factory=Totals)
    window: tuple[float, WindowKind, WindowClock] | None = None
    queued: int = 0
    visited: int = 0
    failed: int = 0
    hosts: int = 0
    order: int = 0
    clock: int = 0
    visits: int = 0
    rates: list[float] = field(default_factory=list)
    seeds: int = 0
    shelved: dict[bytes, int] = field(default_factory=dict)
    parked: int = 0
    dead: int = 0
    dead_pages: int = 0
    commit_within: float = 1.0
    is_clean: bool = False
    crashed_at: float = 0.0
    not_before: float = 0.0
    format: int = FORMAT

    @property
    def pages(self) -> int:
        """Pages that the crawl knows."""
        return self.queued + self.visited + self.failed

    def estimate(self) -> Estimate:
        """How important pages are as of this commit."""
        return Estimate(self.ledger, self.window is not None)

    def pack(self) -> bytes:
        """The totals as bytes."""
        return pack(self)


def read_totals(store: Store) -> CrawlTotals | None:
    """The totals of the last commit; ``None`` if there was none.

    Raises:
        StorageError: If the store was written in another format, or the totals are damaged.
    """
    data = store.get_many(Family.META, (TOTALS_KEY,))[0]
    if data is None:
        return None
    try:
        values = unpack(data)
        if values["format"] == FORMAT:
            return _saved(values)
        written = values["format"]
    except NO_RECORD as error:
        raise StorageError(f"The totals of this job are damaged: {SALVAGE} Nothing was changed.") from error
    raise StorageError(
        f"This job was written in format {written}, and this scrapy-aopic reads format {FORMAT}: use "
        "the version that wrote it, or a new job folder. Nothing was changed."
    )


def read_damaged_totals(data: bytes | None) -> CrawlTotals | None:
    """The totals written as *data*, which may be damaged; ``None`` if they cannot be read."""
    try:
        return _saved(unpack(data)) if data is not None else None
    except NO_RECORD:
        return None


def together(shards: Sequence[CrawlTotals]) -> CrawlTotals:
    """What the totals of *shards* say of their job, as far as it matters to one that is cut from it (:mod:`.splitting`)."""
    created_at = min(each.created_at for each in shards)
    sums = {name: sum(getattr(each, name) for each in shards) for name in ("queued", "visited", "failed")}
    last = {name: max(getattr(each, name) for each in shards) for name in ("order", "clock")}
    return replace(shards[0], created_at=created_at, ledger=Totals(), **sums, **last)


def _saved(values: dict[str, Any]) -> CrawlTotals:
    saved = msgspec.convert(values, CrawlTotals)
    ledger = saved.ledger
    by_class = (ledger.handed, ledger.members, ledger.new.members)
    if values.keys() - _FIELDS or any(len(each) != N_PAGE_CLASSES for each in by_class):
        raise ValueError("there are no such totals")
    if saved.rates and len(saved.rates) != len(RATES):
        raise ValueError("there are no such rates")
    return saved


_FIELDS = {each.name for each in fields(CrawlTotals)}

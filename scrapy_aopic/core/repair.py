"""A whole job from what is left of a damaged one.

Rule 1: pages and their requests are what counts. Queue rows, places of hosts, counts and totals are made anew from them.

Rule 2: the virtual page takes up the difference, so that all cash is :data:`~scrapy_aopic.core.ledger.TOTAL` again, and in
a shard what its mail brought with it. If the pages hold more than that, they give up what is too much.

Rule 3: a page of which only the request is left is queued, without cash. One whose request is lost is forgotten: it is
found again when a page that links to it is visited.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .damaged import DamagedStore
from .duplicates import pages_of
from .layout import COUNTERS_KEY, DEAD, DUE, FORMAT, HOST_ROWS, PARKED, TOTALS_KEY, WAKES
from .ledger import Totals
from .order import Aopic, order_name
from .ports import Family, Store
from .records import FAILED, QUEUED, HostRecord, Page, State, pack_host, pack_page, serial_of
from .revisits import Rates
from .saved import Saved, read_what_is_left
from .shards.mail import balance_of_rows
from .spending import class_of, is_member
from .walk import (
    CHUNK,
    HostTally,
    Tally,
    chunks,
    due_page,
    each_host,
    each_page,
    find_order,
    front_queue_of,
    has_root,
    index_rows,
    is_due,
    is_emptied,
    read_page,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .walk import StoredHost, StoredPage

_PAUSE = 60.0
"""Seconds for which a host is left alone that may have got a request just before the damage."""

_MADE_ANEW = (*HOST_ROWS, WAKES, DUE)
"""Letters of the rows in ``META`` that are not copied."""

_STATES = frozenset(map(int, State))
"""What ``Page.state`` can be."""


@dataclass(slots=True)
class Repaired:
    """What was made of a damaged job.

    Attributes:
        requeued: Pages that are queued, whatever they were, because only their requests are left.
        forgotten: Pages that are lost: those that the totals count and that are not there, or not without a request.
        unmerged: Pages that had been merged into one that is lost, and stand for themselves again.
        cash: Units that the virtual page got; below 0: that it, and if need be pages, gave.
        has_totals: Whether the totals could be read.
        gaps: Places by family where rows could not be read.
        reason: Why the store could not be opened as it was; empty if it could.
    """

    pages: int = 0
    hosts: int = 0
    requeued: int = 0
    forgotten: int = 0
    unmerged: int = 0
    cash: int = 0
    has_totals: bool = True
    gaps: dict[str, int] = field(default_factory=dict)
    reason: str = ""


def repair(
    damaged: Store,
    target: Store,
    host_of: Callable[[bytes], str],
    now: float,
    progress: Callable[[int], object] = lambda _: None,
) -> Repaired:
    """Write a whole job made of what is left in *damaged* to *target*, which is empty.

    Args:
        host_of: Name of the host of a request, for hosts whose record is lost.
        now: Seconds since the epoch.
        progress: Called with the number of further pages that were repaired.
    """
    source = DamagedStore(damaged)
    saved = read_what_is_left(source.get_many(Family.META, (TOTALS_KEY,))[0])
    rebuild = _Rebuild(source, target, saved, host_of, now)
    rebuild.take_stock()
    source.gaps.clear()  # they are met once more
    for host in each_host(source, each_page(source, progress)):
        rebuild.add_host(host)
    rebuild.part_from_lost_roots()
    rebuild.copy_rest()
    return rebuild.finish()


class _Rows:
    """Collects rows for *store*, and writes some thousands at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch: dict[Family, dict[bytes, bytes | None]] = {}
        self._n = 0

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        self._batch.setdefault(family, {})[key] = value
        self._n += 1
        if self._n >= 5 * CHUNK:
            self.flush()

    def flush(self, *, sync: bool = False) -> None:
        self._store.write(self._batch, sync=sync)
        self._batch, self._n = {}, 0


class _Rebuild:
    """Folds what a walk over *source* finds into *target*.

    Attributes:
        tally: The sums over the pages that are kept.
        result: What has become of the job so far.
    """

    def __init__(
        self,
        source: DamagedStore,
        target: Store,
        saved: Saved | None,
        host_of: Callable[[bytes], str],
        now: float,
    ) -> None:
        self._source = source
        self._target = target
        self._saved = saved
        self._host_of = host_of
        self._now = now
        self._rows = _Rows(target)
        # Pages stay in their front queues if the order is not one of this package.
        self._order = find_order(saved.order_name) if saved is not None else Aopic()
        self._clock = saved.clock if saved is not None else 0
        self._ledger = saved.ledger if saved is not None else Totals()
        self._excess = 0
        self._serial = saved.order if saved is not None else 0
        self._parked = self._dead = self._dead_pages = 0
        self.tally = Tally(self._ledger)
        self.result = Repaired(has_totals=saved is not None)

    def take_stock(self) -> None:
        """Find how much cash pages hold too much, and the serial number that the next page must be above."""
        held = 0
        for stored in each_page(self._source):
            page = self._sound(stored.page)
            if page is not None and stored.request is not None:
                held += page.cash + self._ledger.owed(page)
                self._serial = max(self._serial, serial_of(page.place))
        if self._saved is None:
            self._ledger.balance = balance_of_rows(self._source.scan(Family.META))
        self._excess = max(held - self._ledger.whole, 0)

    def _sound(self, page: Page | None) -> Page | None:
        """*page* with cash, history and what it is owed at least 0; ``None`` if its state is none.

        One that was merged, but is not as such a page must be, stands for itself again.
        """
        if page is None or page.state not in _STATES:
            return None
        page.cash, page.history = max(page.cash, 0), max(page.history, 0)
        if page.canonical and not is_emptied(page):
            page.canonical, page.height = b"", 0
            page.handed = self._ledger.handed[class_of(page)]
        page.handed = min(page.handed, self._ledger.handed[class_of(page)])
        return page

    def add_host(self, stored: StoredHost) -> None:
        """Write the pages of a host, the rows that follow from them, and the host itself."""
        host, counted = stored.host, HostTally()
        for each in stored.pages:
            if each.request is None:
                self.result.forgotten += 1
                continue
            host = host or HostRecord(self._host_of(each.request))
            counted.add(self._add_page(each, each.request))
        if host is None:
            return
        host.queued, host.visited, host.best = counted.queued, counted.visited, counted.best
        host.row = self._place(host)
        if host.row:
            self._rows.put(Family.META, host.row + stored.key, b"")
        self.result.hosts += 1
        self._rows.put(Family.HOSTS, stored.key, pack_host(host))

    def _add_page(self, stored: StoredPage, request: bytes) -> Page:
        page = self._sound(stored.page) or self._requeued()
        cut = min(page.cash, self._excess)
        page.cash -= cut
        self._excess -= cut
        if page.state == QUEUED:
            page.front_queue = front_queue_of(page, self._order)
        elif page.state == FAILED:
            page.changes = None
        for family, row, value in index_rows(stored.key, page):
            self._rows.put(family, row, value)
        self._rows.put(Family.PAGES, stored.key, pack_page(page))
        self._rows.put(Family.REQUESTS, stored.key, request)
        self.tally.add(page)
        return page

    def _requeued(self) -> Page:
        """A new page for a request whose page is lost."""
        self.result.requeued += 1
        self._serial += 1
        order = self._order
        page = Page(QUEUED, order.place(self._serial, self._clock) if order is not None else self._serial)
        page.handed = self._ledger.handed[class_of(page)]
        return page

    def _place(self, host: HostRecord) -> bytes:
        """The index row, without its key, of *host*, whose pages have been counted."""
        if not host.queued:
            return b""
        if host.row[:1] == DEAD:
            self._dead += 1
            self._dead_pages += host.queued
            return host.row
        self._parked += 1
        if host.row[:1] == PARKED:
            return host.row
        # It may have been leased. The frontier wakes it after the pause and finds its place.
        return PARKED + int((self._now + _PAUSE) * 1000).to_bytes(8, "big")

    def part_from_lost_roots(self) -> None:
        """Let pages stand for themselves that were merged into one that is not there any more."""
        self._rows.flush()
        for key, data in self._target.scan(Family.PAGES):
            page = read_page(data)
            if page is None or not page.canonical or has_root(self._target, page):
                continue
            page.canonical, page.height = b"", 0
            page.handed = self._ledger.handed[class_of(page)]
            self.tally.members[class_of(page)] += is_member(page)
            self.tally.new.add(page, 0)
            self.result.unmerged += 1
            self._rows.put(Family.PAGES, key, pack_page(page))
        self._rows.flush()

    def copy_rest(self) -> None:
        """Copy what is not made of pages, as far as its pages are there."""
        for family in (Family.DOMAINS, Family.LINKS, Family.ROBOTS):
            for key, value in self._source.scan(family):
                self._rows.put(family, key, value)
        for chunk in chunks(self._source.scan(Family.CONTENT)):
            for key, value in chunk:
                if all(self._target.get_many(Family.PAGES, pages_of(key, value))):
                    self._rows.put(Family.CONTENT, key, value)
        for key, value in self._source.scan(Family.META):
            if key[:1] == DUE:
                page = read_page(self._target.get_many(Family.PAGES, (due_page(key),))[0])
                if is_due(page, value):
                    self._rows.put(Family.META, key, value)
            elif key[:1] not in _MADE_ANEW and key not in (TOTALS_KEY, COUNTERS_KEY):
                self._rows.put(Family.META, key, value)

    def finish(self) -> Repaired:
        """Write the totals, the last rows of all, and say what was done."""
        tally, ledger, result, saved = self.tally, self._ledger, self.result, self._saved
        result.cash = ledger.whole - tally.cash - (ledger.virtual if saved is not None else 0)
        result.pages = tally.pages
        result.forgotten = max(result.forgotten, (saved.pages if saved is not None else 0) - tally.pages)
        result.gaps = {family.name: n for family, n in self._source.gaps.items()}
        ledger.virtual = ledger.whole - tally.cash
        ledger.history, ledger.members, ledger.new = tally.history, tally.members, tally.new
        new = Saved(
            order_name(Aopic()),
            created_at=self._now,
            saved_at=self._now,
            visits=tally.visits,
            rates=Rates().counts,
        )
        totals = replace(
            saved or new,
            ledger=ledger,
            queued=tally.queued,
            visited=tally.visited,
            failed=tally.failed,
            hosts=result.hosts,
            order=self._serial,
            shelved={},
            parked=self._parked,
            dead=self._dead,
            dead_pages=self._dead_pages,
            is_clean=False,
            format=FORMAT,
        )
        self._rows.put(Family.META, TOTALS_KEY, totals.pack())
        self._rows.flush(sync=True)
        return result

"""A whole ledger from what is left of a damaged one.

Pages and their requests are what counts; queue rows, places of hosts, counts and totals are made anew from them. The
virtual page takes up the difference, so that all cash is :data:`~scrapy_aopic.core.ledger.TOTAL` again. A page of which
only the request is left is queued, without cash. One whose request is lost is forgotten: it is found again when a page
that links to it is visited.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, TypeVar

from scrapy_aopic.exceptions import StorageError

from .crawl import MAX_HEIGHT, order_name
from .duplicates import pages_of
from .layout import DEAD, DUE, FORMAT, HOST_ROWS, PARKED, TOTALS_KEY, WAKES
from .ledger import TOTAL, Totals
from .order import ORDERS, Aopic, Order
from .ports import Family, Store
from .records import (
    HOST_BYTES,
    NO_RECORD,
    HostRecord,
    Page,
    State,
    pack_host,
    pack_page,
    queue_row,
    unpack,
    unpack_host,
    unpack_page,
)
from .revisits import Rates, wake_row
from .saved import Saved, read_what_is_left
from .spending import class_of, is_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")

_CHUNK = 1000
_HELD = 500
"""Rows that are more than a block of a store holds."""

_KEY_BYTES = 24
_COUNT = 0xFFFFFFFF
"""The part of a page's order that counts the pages queued in the job."""
_PAUSE = 60.0
"""Seconds for which a host is left alone that may have been asked just before the damage."""

_PLACES = (*HOST_ROWS, WAKES, DUE)


class Salvage:
    """Reads of *store* what can be read; never raises.

    Attributes:
        gaps: Places by family where rows could not be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gaps: dict[Family, int] = {}

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return self._store.get_many(family, keys)
        except StorageError:
            if len(keys) > 1:
                return [self.get_many(family, (key,))[0] for key in keys]
            return [None]

    def scan(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        """The rows of *family* in order, without those that cannot be read and some behind them.

        Rows that are not in their place, as a block that was written over another one leaves them, are left out, too.
        """
        rows, held = self._scan(family), list[tuple[bytes, bytes]]()
        while chunk := list(islice(rows, _CHUNK)):
            held = _ascending([*held, *chunk])
            # What is held back may turn out to be out of place only by what follows.
            yield from held[:-_HELD]
            held = held[-_HELD:]
        yield from held

    def _scan(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        start: bytes | None = b""
        while start is not None:
            last = start
            try:
                for key, value in self._store.scan(family, start):
                    yield key, value
                    last = key
                return
            except StorageError:
                self.gaps[family] = self.gaps.get(family, 0) + 1
                start = self._behind(family, last)

    def _behind(self, family: Family, last: bytes) -> bytes | None:
        """The beginning of what can be read some way behind the key *last*, ``None`` if nothing can."""
        at, step = int.from_bytes(last[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0"), "big"), 1
        while (at := at + step) < 1 << 8 * _KEY_BYTES:
            step *= 2
            start = at.to_bytes(_KEY_BYTES, "big")
            try:
                next(self._store.scan(family, start), None)
            except StorageError:
                continue
            return start
        return None


def _ascending(rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """*rows* without as few as need be for each key to be above the one before it (Schensted, 1961)."""
    if all(before[0] < after[0] for before, after in pairwise(rows)):
        return rows
    ends: list[bytes] = []  # the lowest key with which so many rows can end
    places: list[int] = []
    for key, _ in rows:
        place = bisect_left(ends, key)
        ends[place : place + 1] = [key]
        places.append(place)
    result: list[tuple[bytes, bytes]] = []
    wanted = len(ends) - 1
    for row, place in zip(reversed(rows), reversed(places), strict=True):
        if place == wanted and (not result or row[0] < result[-1][0]):
            result.append(row)
            wanted -= 1
    return result[::-1]


@dataclass(slots=True)
class Mended:
    """What was made of a damaged job.

    Attributes:
        again: Pages that are queued, whatever they were, because only their requests are left.
        forgotten: Pages that the totals count, or that were there without a request or not as records, and are lost.
        parted: Pages that had been united with one that is lost.
        cash: Units that the virtual page got; below 0: that it, and if need be pages, gave.
        gaps: Places by family where rows could not be read.
        reason: Why the store could not be opened as it was; empty if it could.
    """

    pages: int = 0
    hosts: int = 0
    again: int = 0
    forgotten: int = 0
    parted: int = 0
    cash: int = 0
    has_totals: bool = True
    gaps: dict[str, int] = field(default_factory=dict)
    reason: str = ""


class _Writer:
    """Collects rows for *store*, and writes some thousands at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch: dict[Family, dict[bytes, bytes | None]] = {}
        self._n = 0

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        self._batch.setdefault(family, {})[key] = value
        self._n += 1
        if self._n >= 5 * _CHUNK:
            self.flush()

    def flush(self, *, sync: bool = False) -> None:
        self._store.write(self._batch, sync=sync)
        self._batch, self._n = {}, 0


def mend(
    damaged: Store,
    target: Store,
    host_of: Callable[[bytes], str],
    now: float,
    progress: Callable[[int], object] = lambda _: None,
) -> Mended:
    """Write a whole job made of what is left in *damaged* to *target*, which is empty.

    Args:
        host_of: Name of the host of a request, for hosts whose record is lost.
        now: Seconds since the epoch.
        progress: Called with the number of further pages that were mended.
    """
    source, result, writer = Salvage(damaged), Mended(), _Writer(target)
    saved = read_what_is_left(source.get_many(Family.META, (TOTALS_KEY,))[0])
    result.has_totals = saved is not None
    totals = saved.ledger if saved is not None else Totals()
    before = totals.virtual
    order = _order(saved)
    excess, last = -TOTAL, saved.order if saved is not None else 0
    for _, data, request in _pages(source):
        page = _page(data, totals)
        if page is not None and request is not None:
            excess += page.cash + totals.owed(page)
            last = max(last, page.place & _COUNT)
    source.gaps.clear()
    sums = _Sums(totals, max(excess, 0), order=last, clock=saved.clock if saved is not None else 0)
    for host, rows in groupby(_pages(source), lambda row: row[0][:HOST_BYTES]):
        _mend_host(source, writer, host, rows, order, host_of, now, sums, result, progress)
    writer.flush()
    _part(target, writer, sums, result)
    _copy_rest(source, target, writer, sums)
    totals.virtual = TOTAL - sums.cash
    totals.history, totals.members = sums.history, sums.members
    result.cash = totals.virtual - before if saved is not None else totals.virtual
    result.pages, result.hosts = sum(sums.states.values()), sums.hosts
    known = saved.pages if saved is not None else 0
    result.forgotten = max(result.forgotten, known - result.pages)
    result.gaps = {family.name: n for family, n in source.gaps.items()}
    base = saved or Saved(
        order_name(Aopic()), created_at=now, saved_at=now, visits=sums.visits, rates=Rates().counts
    )
    mended = replace(
        base,
        ledger=totals,
        queued=sums.states[State.QUEUED],
        visited=sums.states[State.VISITED],
        failed=sums.states[State.FAILED],
        hosts=sums.hosts,
        order=sums.order,
        shelved={},
        parked=sums.parked,
        dead=sums.dead,
        dead_pages=sums.dead_pages,
        is_clean=False,
        format=FORMAT,
    )
    writer.put(Family.META, TOTALS_KEY, mended.pack())
    writer.flush(sync=True)
    return result


@dataclass(slots=True)
class _Sums:
    totals: Totals
    excess: int
    cash: int = 0
    history: int = 0
    hosts: int = 0
    order: int = 0
    clock: int = 0
    visits: int = 0
    parked: int = 0
    dead: int = 0
    dead_pages: int = 0
    members: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    states: dict[int, int] = field(default_factory=lambda: dict.fromkeys(State, 0))

    def add(self, page: Page) -> None:
        self.cash += page.cash + self.totals.owed(page)
        self.history += page.history
        self.members[class_of(page)] += is_member(page)
        self.states[page.state] += 1
        self.visits += page.visits > 0


def _order(saved: Saved | None) -> Order | None:
    """The order of the job, ``None`` if it is not one of this package; its pages stay in their front queues."""
    if saved is None:
        return Aopic()
    orders = (cls() for cls in ORDERS.values())
    return next((order for order in orders if order_name(order) == saved.order_name), None)


_Row = tuple[bytes, "bytes | None", "bytes | None"]


def _pages(source: Salvage) -> Iterator[_Row]:
    """Keys of all pages with their records and requests; ``None`` for what is lost.

    A scan leaves out some rows behind each gap, but not the same ones in both families.
    """
    both = merge(
        ((key, Family.PAGES, value) for key, value in source.scan(Family.PAGES)),
        ((key, Family.REQUESTS, value) for key, value in source.scan(Family.REQUESTS)),
        key=lambda row: row[:2],
    )
    rows = (
        (key, {family: value for _, family, value in found})
        for key, found in groupby(both, lambda row: row[0])
    )
    for chunk in _chunks(rows):
        for family in (Family.PAGES, Family.REQUESTS):
            lacking = [(key, found) for key, found in chunk if family not in found]
            values = source.get_many(family, [key for key, _ in lacking]) if lacking else []
            for (_, found), value in zip(lacking, values, strict=True):
                if value is not None:
                    found[family] = value
        for key, found in chunk:
            yield key, found.get(Family.PAGES), found.get(Family.REQUESTS)


def _page(data: bytes | None, totals: Totals) -> Page | None:
    """The page written as *data*, with cash and what it is owed at least 0; ``None`` if it is none."""
    if data is None:
        return None
    try:
        page = unpack_page(data)
        page.cash, page.history = max(page.cash, 0), max(page.history, 0)
        page.settled = min(page.settled, totals.handed[class_of(page)])
        return page if page.state in set(State) else None
    except NO_RECORD:
        return None


def _mend_host(  # noqa: PLR0917
    source: Salvage,
    writer: _Writer,
    key: bytes,
    rows: Iterable[_Row],
    order: Order | None,
    host_of: Callable[[bytes], str],
    now: float,
    sums: _Sums,
    result: Mended,
    progress: Callable[[int], object],
) -> None:
    """Write the pages of a host, what is made of them, and the host itself."""
    host = _host(source, key)
    queued = visited = 0
    best = -1
    for chunk in _chunks(rows):
        progress(len(chunk))
        for page_key, data, request in chunk:
            if request is None:
                result.forgotten += 1
                continue
            page = _page(data, sums.totals)
            if page is None:
                page = _again(order, sums)
                result.again += 1
            host = host or HostRecord(host_of(request))
            cut = min(page.cash, sums.excess)
            page.cash -= cut
            sums.excess -= cut
            if page.state == State.QUEUED:
                if order is not None and not (page.visits and page.changes):
                    page.front_queue = order.front_queue(page, page.cash)
                queued, best = queued + 1, max(best, page.front_queue)
                writer.put(Family.QUEUE, key + queue_row(page.front_queue, page.place), page_key[HOST_BYTES:])
            if page.state == State.FAILED:
                page.changes = None
            if page.changes is not None:
                writer.put(Family.META, wake_row(page.changes.wakes_at, page_key), b"")
            visited += page.visits > 0
            sums.add(page)
            writer.put(Family.PAGES, page_key, pack_page(page))
            writer.put(Family.REQUESTS, page_key, request)
    if host is None:
        return
    host.queued, host.visited, host.best = queued, visited, best
    if not queued:
        host.row = b""
    elif host.row[:1] not in (
        PARKED,
        DEAD,
    ):  # it may have been leased; the frontier wakes it and finds its place
        host.row = PARKED + int((now + _PAUSE) * 1000).to_bytes(8, "big")
    if host.row:
        writer.put(Family.META, host.row + key, b"")
        sums.parked += host.row[:1] == PARKED
        sums.dead += host.row[:1] == DEAD
        sums.dead_pages += queued if host.row[:1] == DEAD else 0
    sums.hosts += 1
    writer.put(Family.HOSTS, key, pack_host(host))


def _again(order: Order | None, sums: _Sums) -> Page:
    """A new page for a request whose page is lost."""
    sums.order += 1
    page = Page(State.QUEUED, order.place(sums.order, sums.clock) if order is not None else sums.order)
    page.settled = sums.totals.handed[class_of(page)]
    return page


def _host(source: Salvage, key: bytes) -> HostRecord | None:
    data = source.get_many(Family.HOSTS, (key,))[0]
    try:
        return unpack_host(data) if data is not None else None
    except NO_RECORD:
        return None


def _part(target: Store, writer: _Writer, sums: _Sums, result: Mended) -> None:
    """Let pages stand for themselves that were united with one that is not there any more."""
    for key, data in target.scan(Family.PAGES):
        page = unpack_page(data)
        if not page.canonical or _has_root(target, page):
            continue
        page.canonical, page.height = b"", 0
        page.settled = sums.totals.handed[class_of(page)]
        sums.members[class_of(page)] += is_member(page)
        result.parted += 1
        writer.put(Family.PAGES, key, pack_page(page))
    writer.flush()


def _has_root(target: Store, page: Page) -> bool:
    for _ in range(MAX_HEIGHT):
        data = target.get_many(Family.PAGES, (page.canonical,))[0]
        if data is None:
            return False
        page = unpack_page(data)
        if not page.canonical:
            return True
    return False


def _copy_rest(source: Salvage, target: Store, writer: _Writer, sums: _Sums) -> None:
    """Copy what is not made of pages, as far as its pages are there."""
    for key, value in source.scan(Family.HOSTS):
        if target.get_many(Family.HOSTS, (key,))[0] is None and _host(source, key) is not None:
            host = unpack_host(value)
            host.queued = host.visited = 0
            host.best, host.row = -1, b""
            sums.hosts += 1
            writer.put(Family.HOSTS, key, pack_host(host))
    for family in (Family.DOMAINS, Family.LINKS, Family.ROBOTS):
        for key, value in source.scan(family):
            writer.put(family, key, value)
    for chunk in _chunks(source.scan(Family.CONTENT)):
        for key, value in chunk:
            if all(target.get_many(Family.PAGES, pages_of(key, value))):
                writer.put(Family.CONTENT, key, value)
    for key, value in source.scan(Family.META):
        if key[:1] == DUE:
            data = target.get_many(Family.PAGES, (key[-2 * HOST_BYTES :],))[0]
            page = unpack_page(data) if data is not None else None
            if page is not None and page.state == State.VISITED and page.visited_at == unpack(value)[1]:
                writer.put(Family.META, key, value)
        elif key[:1] not in _PLACES and key != TOTALS_KEY:
            writer.put(Family.META, key, value)
    writer.flush()


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk

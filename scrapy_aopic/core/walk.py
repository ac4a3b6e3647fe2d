"""One walk over all hosts and pages of a store, for the audit and for what is left of a damaged job.

Rule 1: hosts, pages and requests are read side by side, each family once, in the order of their keys. A walk takes the
memory of a chunk of pages, however many pages a host has.

Rule 2: only this module derives rows and sums from a page: its index rows (:func:`index_rows`), its front queue
(:func:`right_front_queue`), and its part of the sums (:class:`Tally`, :class:`HostTally`). :mod:`.audit` compares them with
the stored ones.

Rule 3: a record that is not valid is ``None``, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple, Protocol, TypeVar

from .counters import UNREADABLE
from .layout import CLAIMS, FOREIGN_CLAIMS, Family
from .ledger import NewPages, Totals
from .order import ORDERS, Order, order_name
from .pages import MAX_HEIGHT
from .records import (
    FAILED,
    HOST_BYTES,
    NO_RECORD,
    PAGE_BYTES,
    PRIORITY_BITS,
    QUEUED,
    VISITED,
    HostRecord,
    Page,
    queue_row,
    unpack,
    unpack_host,
    unpack_page,
)
from .revisits.wake_times import wake_row
from .shards.cut import ADDRESS_BYTES
from .spending import N_PAGE_CLASSES, class_of, is_member

WrongRequest = Callable[[bytes, bytes, "Page"], str]
"""Says what is wrong with a stored request that has a page key and belongs to a page; ``""`` for nothing."""

T = TypeVar("T")
L = TypeVar("L")
R = TypeVar("R")

CHUNK = 1000
"""Rows that are looked up, or held, at once: some 100 kB."""


class Reader(Protocol):
    """The methods of a store that a walk needs."""

    def get_many(self, family: Family, keys: Sequence[bytes], /) -> list[bytes | None]: ...

    def scan(self, family: Family, /) -> Iterator[tuple[bytes, bytes]]: ...


class Scanner(Protocol):
    """A reader that can scan a part of a family, too."""

    def scan(self, family: Family, start: bytes, stop: bytes, /) -> Iterator[tuple[bytes, bytes]]: ...


class StoredPage(NamedTuple):
    """A page, its request, or both, as they are stored.

    Attributes:
        page: ``None`` if there is no valid record.
        request: ``None`` if there is none.
        has_record: Whether there is a record, valid or not.
    """

    key: bytes
    page: Page | None
    request: bytes | None
    has_record: bool


class StoredHost(NamedTuple):
    """A host, its pages, or both, as they are stored.

    Attributes:
        host: ``None`` if there is no record that can be understood.
        pages: Its pages, to be read before the next host is.
        has_record: Whether there is a record, even if it cannot be understood.
    """

    key: bytes
    host: HostRecord | None
    pages: Iterable[StoredPage]
    has_record: bool


def each_page(source: Reader, progress: Callable[[int], object] = lambda _: None) -> Iterator[StoredPage]:
    """All pages and requests of *source*; *progress* is called with the number of further ones."""
    # A scan of a damaged store leaves out some rows behind each gap, but not the same ones of both families.
    both = _join(source.scan(Family.PAGES), source.scan(Family.REQUESTS))
    for chunk in chunks(both):
        found = _completed(source, chunk)
        progress(len(found))
        for key, record, request in found:
            yield StoredPage(key, read_page(record), request, record is not None)


def each_host(source: Reader, pages: Iterable[StoredPage]) -> Iterator[StoredHost]:
    """All hosts of *source*, with those of *pages*, which are in the order of their keys, that are theirs."""
    of_hosts = groupby(pages, lambda page: page.key[:HOST_BYTES])
    for key, record, found in _join(source.scan(Family.HOSTS), of_hosts):
        data = record if record is not None else source.get_many(Family.HOSTS, (key,))[0]
        yield StoredHost(key, read_host(data), found or (), data is not None)


def _join(
    left: Iterator[tuple[bytes, L]], right: Iterator[tuple[bytes, R]]
) -> Iterator[tuple[bytes, L | None, R | None]]:
    """The values of *left* and *right*, both in the order of their keys, under each key."""
    one, other = next(left, None), next(right, None)
    # Neither is advanced before what was yielded of it has been used: the next group ends the one before it.
    while one is not None and other is not None:
        if one[0] == other[0]:
            yield one[0], one[1], other[1]
            one, other = next(left, None), next(right, None)
        elif one[0] < other[0]:
            yield one[0], one[1], None
            one = next(left, None)
        else:
            yield other[0], None, other[1]
            other = next(right, None)
    while one is not None:
        yield one[0], one[1], None
        one = next(left, None)
    while other is not None:
        yield other[0], None, other[1]
        other = next(right, None)


_Row = tuple[bytes, "bytes | None", "bytes | None"]


def _completed(source: Reader, rows: list[_Row]) -> list[_Row]:
    """*rows*, with those pages and requests that a scan left out and that can be read all the same."""
    if all(record is not None and request is not None for _, record, request in rows):
        return rows
    records = _looked_up(source, Family.PAGES, [key for key, record, _ in rows if record is None])
    requests = _looked_up(source, Family.REQUESTS, [key for key, _, request in rows if request is None])
    return [(key, records.get(key, record), requests.get(key, request)) for key, record, request in rows]


def _looked_up(source: Reader, family: Family, keys: list[bytes]) -> dict[bytes, bytes | None]:
    return dict(zip(keys, source.get_many(family, keys), strict=True)) if keys else {}


def read_page(data: bytes | None) -> Page | None:
    """The page in *data*; ``None`` if it is not valid."""
    try:
        return unpack_page(data) if data is not None else None
    except NO_RECORD:
        return None


def read_host(data: bytes | None) -> HostRecord | None:
    """The host in *data*; ``None`` if it is not valid."""
    try:
        return unpack_host(data) if data is not None else None
    except NO_RECORD:
        return None


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """*items*, :data:`CHUNK` at a time."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


# What follows from a page


def index_rows(key: bytes, page: Page) -> list[tuple[Family, bytes, bytes]]:
    """The rows by which *page* is found when it is its turn, as family, key and value; none if its numbers make none."""
    rows = []
    try:
        if page.state == QUEUED:
            row = key[:HOST_BYTES] + queue_row(page.front_queue, page.place)
            rows.append((Family.QUEUE, row, key[HOST_BYTES:]))
        if page.changes is not None and page.changes.wakes_at:
            rows.append((Family.META, wake_row(page.changes.wakes_at, key), b""))
    except (ArithmeticError, LookupError, ValueError):
        return []
    return rows


def right_front_queue(page: Page, order: Order | None) -> int:
    """Front queue in which *page*, which is queued, has to wait in *order*; the one it is in if *order* is not known."""
    if order is None or (page.visits and page.changes):  # a revisit is queued by more than the page's cash
        return page.front_queue
    if order.values_links:  # by its focus, too, which may be another one than when the page was queued
        return page.front_queue
    return order.front_queue(page, page.cash) + (page.priority << PRIORITY_BITS)


def find_order(name: str, own: Order | None = None) -> Order | None:
    """The order that jobs remember as *name*: *own*, or without it one of this package; ``None`` if it is not there."""
    orders = [own] if own is not None else [kind() for kind in ORDERS.values()]
    return next((order for order in orders if order_name(order) == name), None)


def is_due(page: Page | None, value: bytes) -> bool:
    """Whether *value* is that of a row by which *page* waits for a revisit."""
    try:
        return page is not None and page.state != QUEUED and page.visited_at == unpack(value)[1]
    except NO_RECORD:
        return False


def due_page(row: bytes) -> bytes:
    """Key of the page that the row of a time or of a page that is due, both in ``META``, belongs to."""
    return row[-PAGE_BYTES:]


def is_emptied(page: Page) -> bool:
    """Whether *page* is as a merged page must be: visited, and everything it had belongs to its root."""
    return page.state == VISITED and not page.cash and not page.history


def is_set_aside(page: Page) -> bool:
    """Whether *page* is known to have a request that cannot be made: a link to it brings another one."""
    return page.state == FAILED and page.outcome.startswith(UNREADABLE)


def has_root(source: Reader, page: Page) -> bool:
    """Whether there is a page that stands for *page*, which was merged into another one, by way of ever higher ones."""
    for _ in range(MAX_HEIGHT):
        if len(page.canonical) == ADDRESS_BYTES:  # a page of another shard, which said that it does
            return True
        root = read_page(source.get_many(Family.PAGES, (page.canonical,))[0])
        if root is None or root.height <= page.height:
            return False
        if not root.canonical:
            return True
        page = root
    return False


def waits_for_page(source: Reader, key: bytes, page: Page) -> bool:
    """Whether the page waits that *page*, which is one more request for it, will be one with."""
    other = read_page(source.get_many(Family.PAGES, (key[:HOST_BYTES] + page.repeat_of,))[0])
    return other is not None and other.state == QUEUED


def has_claims(source: Scanner, key: bytes) -> bool:
    """Whether there is a page that is to be merged with the one under *key* once that is visited."""
    begins = [letter + key for letter in (CLAIMS, FOREIGN_CLAIMS)]
    end = b"\xff" * (PAGE_BYTES + 1)
    return any(True for begin in begins for _ in source.scan(Family.CONTENT, begin, begin + end))


@dataclass(slots=True)
class Tally:
    """Sums over pages, as the totals of a crawl have them.

    Attributes:
        ledger: What pages are owed is counted by.
        cash: Units that the pages hold, with what they are owed.
        new: Those that are new.
        visits: Pages that were visited or failed at least once.
        again: Of these, those that were so more than once.
        members: Pages in each class.
    """

    ledger: Totals
    queued: int = 0
    visited: int = 0
    failed: int = 0
    cash: int = 0
    history: int = 0
    new: NewPages = field(default_factory=NewPages)
    visits: int = 0
    again: int = 0
    members: list[int] = field(default_factory=lambda: [0] * N_PAGE_CLASSES)

    @property
    def pages(self) -> int:
        """Pages that were added."""
        return self.queued + self.visited + self.failed

    def add(self, page: Page) -> int:
        """Count *page*; returns its cash, with what it is owed."""
        cash = page.cash + self.ledger.owed(page)
        self.cash += cash
        self.history += page.history
        self.visits += page.visits > 0
        self.new.add(page, cash)
        self.again += page.visits > 1
        self.members[class_of(page)] += is_member(page)
        if page.state == QUEUED:
            self.queued += 1
        elif page.state == VISITED:
            self.visited += 1
        else:
            self.failed += 1
        return cash


@dataclass(slots=True)
class HostTally:
    """Sums over the pages of a host, as its record has them.

    Attributes:
        visited: Pages that were visited or failed at least once.
        best: Front queue of the best queued page, ``None`` if there is none.
    """

    queued: int = 0
    visited: int = 0
    best: int | None = None

    def add(self, page: Page) -> None:
        """Count *page*."""
        self.visited += page.visits > 0
        if page.state == QUEUED:
            self.queued += 1
            self.best = page.front_queue if self.best is None else max(self.best, page.front_queue)

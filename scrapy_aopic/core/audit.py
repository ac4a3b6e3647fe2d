"""Whether a store holds a state that a crawl can have been in: every invariant, counted to the unit.

Reads each family once, in bounded memory.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeVar

from .crawl import MAX_HEIGHT, order_name
from .duplicates import pages_of
from .frontier.shelves import index_bucket
from .layout import ACTIVE, DEAD, DUE, HOST_ROWS, PARKED, SHELVED, WAKES
from .ledger import TOTAL, Totals
from .order import ORDERS, Order
from .ports import Family, Store
from .records import (
    HOST_BYTES,
    NO_RECORD,
    HostRecord,
    Page,
    State,
    queue_row,
    row_level,
    unpack,
    unpack_host,
    unpack_page,
)
from .revisits import wake_row
from .saved import Saved, read_saved
from .spending import class_of, is_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

_CHUNK = 1000
_MAX_SHOWN = 20


@dataclass(slots=True)
class Audit:
    """What was counted, and what does not hold.

    Attributes:
        violations: The first violations, a sentence each.
        n_violations: How many there are.
    """

    pages: int = 0
    queued: int = 0
    visited: int = 0
    failed: int = 0
    hosts: int = 0
    cash: int = 0
    virtual: int = 0
    violations: list[str] = field(default_factory=list)
    n_violations: int = 0

    @property
    def holds(self) -> bool:
        """Whether every invariant holds."""
        return not self.n_violations

    def expect(self, holds: bool, text: str, *args: Any) -> None:
        """Count a violation unless *holds*; *text* is formatted with *args*."""
        if not holds:
            self.n_violations += 1
            if len(self.violations) < _MAX_SHOWN:
                self.violations.append(text.format(*args))


def audit(
    store: Store, order: Order | None = None, progress: Callable[[int], object] = lambda _: None
) -> Audit:
    """Check every invariant of the crawl in *store*.

    Args:
        progress: Called with the number of further pages that were looked at.
        order: The crawl's order, if it is not one of this package; without it front queues are not checked.
    """
    result = Audit()
    saved = read_saved(store)
    if saved is None:
        result.expect(not any(True for _ in store.scan(Family.PAGES)), "there are pages but no totals")
        result.virtual = TOTAL
        return result
    totals = saved.ledger
    result.virtual = totals.virtual
    orders = [order] if order is not None else [cls() for cls in ORDERS.values()]
    order = next((order for order in orders if order_name(order) == saved.order_name), None)
    with _understood("pages", result):
        _audit_pages(store, totals, saved.order, order, result, progress=progress)
    with _understood("queue", result):
        _audit_queue(store, result)
    with _understood("hosts", result):
        _audit_hosts(store, saved, result)
    with _understood("content", result):
        _audit_content(store, result)
    with _understood("times", result):
        _audit_wheel(store, result)
    for name in ("queued", "visited", "failed", "hosts"):
        counted = getattr(result, name)
        recorded = getattr(saved, name)
        result.expect(recorded == counted, "{} {} are recorded, but {} are stored", recorded, name, counted)
    return result


@contextmanager
def _understood(name: str, result: Audit) -> Iterator[None]:
    """Count rows that are no records as a violation."""
    try:
        yield
    except NO_RECORD as error:
        result.expect(False, "the rows of the {} cannot be understood: {!r}", name, error)


def _audit_pages(
    store: Store,
    totals: Totals,
    last: int,
    order: Order | None,
    result: Audit,
    *,
    progress: Callable[[int], object],
) -> None:
    history, members = 0, [0, 0, 0, 0]
    per_host: dict[str, int] = {}
    for host, rows in groupby(store.scan(Family.PAGES), lambda row: row[0][:HOST_BYTES]):
        per_host = dict.fromkeys(("queued", "visited"), 0)
        for chunk in _chunks(rows):
            progress(len(chunk))
            requests = store.get_many(Family.REQUESTS, [key for key, _ in chunk])
            pages = [unpack_page(data) for _, data in chunk]
            queue = store.get_many(
                Family.QUEUE, [host + queue_row(page.front_queue, page.place) for page in pages]
            )
            looks = store.get_many(
                Family.META, [_wake_row(key, page) for (key, _), page in zip(chunk, pages, strict=True)]
            )
            for (key, _), page, request, row, look in zip(chunk, pages, requests, queue, looks, strict=True):
                result.pages += 1
                is_visited = page.visits > 0
                cash = page.cash + totals.owed(page)
                result.cash += cash
                history += page.history
                members[class_of(page)] += is_member(page)
                if page.canonical:
                    _audit_united(store, key, page, result)
                per_host["visited"] += is_visited
                result.expect(cash >= 0, "page {} holds {} units", key.hex(), cash)
                result.expect(
                    page.place & 0xFFFFFFFF <= last, "page {} is newer than the last commit", key.hex()
                )
                result.expect(request is not None, "page {} has no request", key.hex())
                if page.changes is not None:
                    comes_back = look is not None and page.state != State.FAILED
                    result.expect(comes_back, "page {} should come back, but has no time to", key.hex())
                if page.state == State.QUEUED:
                    result.queued += 1
                    per_host["queued"] += 1
                    result.expect(row == key[HOST_BYTES:], "queued page {} has no queue row", key.hex())
                    is_cash = order is not None and not (page.visits and page.changes)
                    level = (
                        order.front_queue(page, page.cash)
                        if order is not None and is_cash
                        else page.front_queue
                    )
                    result.expect(
                        page.front_queue == level,
                        "page {} waits in front queue {}, not {}",
                        key.hex(),
                        page.front_queue,
                        level,
                    )
                elif page.state == State.VISITED:
                    result.visited += 1
                else:
                    result.failed += 1
                    result.expect(page.state == State.FAILED, "page {} has state {}", key.hex(), page.state)
        data = store.get_many(Family.HOSTS, (host,))[0]
        record = unpack_host(data) if data is not None else HostRecord("")
        for name, counted in per_host.items():
            said = getattr(record, name)
            result.expect(
                said == counted,
                "host {} ({}) says {} {} pages, but has {}",
                record.name,
                host.hex(),
                said,
                name,
                counted,
            )
    whole = result.cash + totals.virtual
    result.expect(whole == TOTAL, "all cash is {} units, not {}: {} too many", whole, TOTAL, whole - TOTAL)
    result.expect(history == totals.history, "histories add up to {}, not {}", history, totals.history)
    result.expect(members == totals.members, "classes have {} pages, not {}", members, totals.members)


def _audit_united(store: Store, key: bytes, page: Page, result: Audit) -> None:
    is_empty = page.state == State.VISITED and not page.cash and not page.history
    result.expect(is_empty, "page {} was united with another one, but is not visited and empty", key.hex())
    for _ in range(MAX_HEIGHT):
        data = store.get_many(Family.PAGES, (page.canonical,))[0]
        if data is None:
            break
        page = unpack_page(data)
        if not page.canonical:
            return
    result.expect(False, "page {} was united with others, but no page stands for it", key.hex())


def _audit_content(store: Store, result: Audit) -> None:
    for chunk in _chunks(store.scan(Family.CONTENT)):
        keys = {page for row in chunk for page in pages_of(*row)}
        known = dict(zip(keys, store.get_many(Family.PAGES, list(keys)), strict=True))
        for key, value in chunk:
            is_known = all(known[page] is not None for page in pages_of(key, value))
            result.expect(is_known, "content row {} is of a page that is not known", key.hex())


def _wake_row(key: bytes, page: Page) -> bytes:
    return wake_row(page.changes.wakes_at, key) if page.changes is not None else b""


def _audit_wheel(store: Store, result: Audit) -> None:
    for chunk in _chunks(_rows(store, WAKES)):
        keys = [row[-2 * HOST_BYTES :] for row, _ in chunk]
        for key, (row, _), data in zip(keys, chunk, store.get_many(Family.PAGES, keys), strict=True):
            is_right = data is not None and row == _wake_row(key, unpack_page(data))
            result.expect(is_right, "time row {} belongs to no page that comes back then", row.hex())
    for chunk in _chunks(_rows(store, DUE)):
        pages = store.get_many(Family.PAGES, [row[-2 * HOST_BYTES :] for row, _ in chunk])
        for (row, value), data in zip(chunk, pages, strict=True):
            page = unpack_page(data) if data is not None else None
            is_right = (
                page is not None and page.state == State.VISITED and page.visited_at == unpack(value)[1]
            )
            result.expect(is_right, "due row {} belongs to no page that waits to come back", row.hex())


def _rows(store: Store, first: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows of the index whose keys begin with the byte *first*."""
    return store.scan(Family.META, first, bytes((first[0] + 1,)))


def _audit_queue(store: Store, result: Audit) -> None:
    rows = 0
    for chunk in _chunks(store.scan(Family.QUEUE)):
        rows += len(chunk)
        pages = store.get_many(Family.PAGES, [key[:HOST_BYTES] + page for key, page in chunk])
        for (key, _), data in zip(chunk, pages, strict=True):
            page = unpack_page(data) if data is not None else None
            is_right = (
                page is not None
                and page.state == State.QUEUED
                and key[HOST_BYTES:] == queue_row(page.front_queue, page.place)
            )
            result.expect(is_right, "queue row {} belongs to no queued page", key.hex())
    result.expect(rows == result.queued, "{} queue rows for {} queued pages", rows, result.queued)


def _audit_hosts(store: Store, saved: Saved, result: Audit) -> None:
    queued_hosts = dead_pages = 0
    for chunk in _chunks(store.scan(Family.HOSTS)):
        hosts = [unpack_host(data) for _, data in chunk]
        index = store.get_many(
            Family.META, [host.row + key for (key, _), host in zip(chunk, hosts, strict=True)]
        )
        for (key, _), host, row in zip(chunk, hosts, index, strict=True):
            result.hosts += 1
            if not host.queued:
                result.expect(not host.row, "host {} has nothing queued, but an index row", host.name)
                continue
            queued_hosts += 1
            dead_pages += host.queued if host.row[:1] == DEAD else 0
            result.expect(row is not None, "host {} has pages queued, but no place", host.name)
            if host.row[:1] != ACTIVE:
                best = next((row_level(row[HOST_BYTES:]) for row, _ in store.scan(Family.QUEUE, key)), -1)
                result.expect(host.best >= best, "host {} is shelved below its best page", host.name)
    rows: dict[bytes, int] = {}
    for key, _ in store.scan(Family.META):
        if key[:1] in HOST_ROWS:
            bucket = index_bucket(key)
            rows[bucket] = rows.get(bucket, 0) + 1
    result.expect(
        sum(rows.values()) == queued_hosts, "{} places for {} hosts", sum(rows.values()), queued_hosts
    )
    shelved = {bucket: n for bucket, n in rows.items() if bucket[:1] == SHELVED}
    result.expect(saved.shelved == shelved, "{} hosts are said to be shelved, not {}", saved.shelved, shelved)
    result.expect(saved.parked == rows.get(PARKED, 0), "{} hosts are said to be parked", saved.parked)
    dead = (rows.get(DEAD, 0), dead_pages)
    result.expect(
        (saved.dead, saved.dead_pages) == dead,
        "{} hosts with {} pages are said to be dead, not {} with {}",
        saved.dead,
        saved.dead_pages,
        *dead,
    )


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk

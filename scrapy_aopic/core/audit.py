"""Whether a store holds a state that a crawl can have been in: every invariant, counted to the unit.

Reads each family once, in bounded memory; only rows that belong to nothing are looked for in a second reading.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .counters import read_counters
from .duplicates import pages_of
from .frontier.shelves import index_bucket
from .layout import ACTIVE, DEAD, DUE, HOST_ROWS, PARKED, SHELVED, WAKES
from .ledger import TOTAL
from .ports import Family, Store
from .records import FAILED, HOST_BYTES, NO_RECORD, QUEUED, VISITED, HostRecord, serial_of
from .saved import read_saved
from .shards.mail import balance_of
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
    from collections.abc import Callable, Iterable, Iterator

    from .order import Order
    from .records import Page
    from .saved import Saved
    from .walk import StoredHost, StoredPage

_MAX_SHOWN = 20
"""Violations that are kept as sentences."""

_LACKS_ROW = {
    Family.QUEUE: "queued page {} has no queue row",
    Family.META: "page {} should be revisited, but has no time row",
}
"""What is wrong with a page that has no row in a family, by that family."""


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

    def expect(self, holds: bool, text: str, *args: object) -> None:
        """Count a violation unless *holds*; *text* is formatted with *args*, of which keys are shown in hexadecimal."""
        if not holds:
            self.n_violations += 1
            if len(self.violations) < _MAX_SHOWN:
                self.violations.append(
                    text.format(*(arg.hex() if isinstance(arg, bytes) else arg for arg in args))
                )


def audit(
    store: Store, order: Order | None = None, progress: Callable[[int], object] = lambda _: None
) -> Audit:
    """Check every invariant of the crawl in *store*.

    Args:
        progress: Called with the number of further pages that were looked at.
        order: The crawl's order, if it is not one of this package; without it front queues are not checked.

    Raises:
        StorageError: If the store cannot be read, was written in another format, or its totals are damaged.
    """
    result = Audit()
    saved = read_saved(store)
    if saved is None:
        result.expect(not any(True for _ in store.scan(Family.PAGES)), "there are pages but no totals")
        result.virtual = TOTAL
        return result
    _Auditor(store, saved, find_order(saved.order_name, order), result).run(progress)
    return result


class _Auditor:
    """Checks the rows of *store* against one another and against the totals, *saved*.

    Attributes:
        tally: The sums over the pages so far.
        indexed: Index rows of pages that are there as they should be, by family.
    """

    def __init__(self, store: Store, saved: Saved, order: Order | None, result: Audit) -> None:
        self._store = store
        self._saved = saved
        self._order = order
        self._result = result
        self._expect = result.expect
        self.tally = Tally(saved.ledger)
        self.indexed = {Family.QUEUE: 0, Family.META: 0}
        self._visits = 0
        self._queued_hosts = 0
        self._dead_pages = 0
        self._places: list[tuple[str, bytes]] = []

    def run(self, progress: Callable[[int], object]) -> None:
        """Check everything."""
        with self._understood("pages and hosts"):
            for host in each_host(self._store, self._in_index(each_page(self._store, progress))):
                self._check_host(host)
            self._check_places()
        self._report()
        for name, check in (
            ("totals", self._check_totals),
            ("queue", self._check_queue),
            ("places", self._check_rows_of_hosts),
            ("content", self._check_content),
            ("times", self._check_times),
        ):
            with self._understood(name):
                check()

    @contextmanager
    def _understood(self, name: str) -> Iterator[None]:
        """Count rows that are no records as a violation."""
        try:
            yield
        except NO_RECORD:
            self._expect(False, "the rows of the {} cannot be understood: one is damaged", name)

    def _report(self) -> None:
        result, tally = self._result, self.tally
        result.pages, result.cash, result.virtual = tally.pages, tally.cash, self._saved.ledger.virtual
        result.queued, result.visited, result.failed = tally.queued, tally.visited, tally.failed

    # -- pages and hosts, one by one

    def _in_index(self, pages: Iterable[StoredPage]) -> Iterator[StoredPage]:
        """All of *pages*, after their index rows have been looked up, those of many at once."""
        for chunk in chunks(pages):
            wanted: dict[Family, list[tuple[bytes, bytes, bytes]]] = {Family.QUEUE: [], Family.META: []}
            for each in chunk:
                if each.page is not None:
                    for family, row, value in index_rows(each.key, each.page):
                        wanted[family].append((row, value, each.key))
            for family, rows in wanted.items():
                found = self._store.get_many(family, [row for row, _, _ in rows])
                for (_, value, key), stored in zip(rows, found, strict=True):
                    if stored == value:
                        self.indexed[family] += 1
                    else:
                        self._expect(False, _LACKS_ROW[family], key)
            yield from chunk

    def _check_host(self, stored: StoredHost) -> None:
        counted = HostTally()
        for each in stored.pages:
            if each.page is not None:
                self._check_page(each.key, each.page, each.request)
                counted.add(each.page)
            else:
                self._expect(not each.has_record, "the record of page {} cannot be understood", each.key)
        if stored.host is None and stored.has_record:
            self._expect(False, "the record of host {} cannot be understood", stored.key)
            return
        host = stored.host or HostRecord("")
        for name in ("queued", "visited"):
            says, has = getattr(host, name), getattr(counted, name)
            self._expect(
                says == has,
                "host {} ({}) says {} {} pages, but has {}",
                host.name,
                stored.key,
                says,
                name,
                has,
            )
        if stored.host is not None:
            self._result.hosts += 1
            self._check_place(stored.key, host, counted.best)

    def _check_page(self, key: bytes, page: Page, request: bytes | None) -> None:
        expect = self._expect
        cash = self.tally.add(page)
        self._visits += page.visits
        expect(cash >= 0, "page {} holds {} units", key, cash)
        expect(serial_of(page.place) <= self._saved.order, "page {} is newer than the last commit", key)
        expect(request is not None, "page {} has no request", key)
        if page.canonical:
            expect(is_emptied(page), "page {} was merged into another one, but is not visited and empty", key)
            expect(has_root(self._store, page), "page {} was merged, but no page stands for it", key)
        if page.state == QUEUED:
            right = front_queue_of(page, self._order)
            is_right = page.front_queue == right
            expect(is_right, "page {} waits in front queue {}, not {}", key, page.front_queue, right)
        elif page.state == FAILED:
            expect(page.changes is None, "page {} failed, but should be revisited", key)
        else:
            expect(page.state == VISITED, "page {} has state {}", key, page.state)

    def _check_place(self, key: bytes, host: HostRecord, best: int) -> None:
        if not host.queued:
            self._expect(not host.row, "host {} has nothing queued, but an index row", host.name)
            return
        self._queued_hosts += 1
        self._dead_pages += host.queued if host.row[:1] == DEAD else 0
        self._places.append((host.name, host.row + key))
        if len(self._places) == CHUNK:
            self._check_places()
        if host.row[:1] != ACTIVE:
            self._expect(host.best >= best, "host {} is shelved below its best page", host.name)

    def _check_places(self) -> None:
        """Look up the index rows of many hosts."""
        found = self._store.get_many(Family.META, [row for _, row in self._places])
        for (name, _), row in zip(self._places, found, strict=True):
            self._expect(row is not None, "host {} has pages queued, but no place", name)
        self._places.clear()

    # -- sums, and rows that belong to nothing

    def _check_totals(self) -> None:
        tally, ledger, expect = self.tally, self._saved.ledger, self._expect
        whole, right = tally.cash + ledger.virtual, ledger.whole
        expect(whole == right, "all cash is {} units, not {}: {} too many", whole, right, whole - right)
        balance = balance_of(self._store)
        expect(
            balance == ledger.balance, "mail brought {} units, but {} are recorded", balance, ledger.balance
        )
        history, members = tally.history, tally.members
        expect(history == ledger.history, "histories add up to {}, not {}", history, ledger.history)
        new = ledger.new or tally.new  # an older version does not count them
        expect(tally.new.cash == new.cash, "new pages hold {} units, not {}", tally.new.cash, new.cash)
        expect(
            tally.new.members == new.members,
            "classes have {} new pages, not {}",
            tally.new.members,
            new.members,
        )
        expect(members == ledger.members, "classes have {} pages, not {}", members, ledger.members)
        for name in ("queued", "visited", "failed", "hosts"):
            recorded, counted = getattr(self._saved, name), getattr(self._result, name)
            expect(recorded == counted, "{} {} are recorded, but {} are stored", recorded, name, counted)
        counters = read_counters(self._store, self._saved.saved_at)
        if counters is not None and counters.is_whole:
            recorded = counters.visits
            expect(
                recorded == self._visits, "{} visits are counted, but pages have {}", recorded, self._visits
            )

    def _check_queue(self) -> None:
        n = sum(1 for _ in self._store.scan(Family.QUEUE))
        self._expect(n == self.tally.queued, "{} queue rows for {} queued pages", n, self.tally.queued)
        if n == self.indexed[Family.QUEUE]:  # each belongs to a page
            return
        for chunk in chunks(self._store.scan(Family.QUEUE)):
            keys = [row[:HOST_BYTES] + rest for row, rest in chunk]
            for (row, rest), key, page in zip(chunk, keys, self._pages(keys), strict=True):
                is_right = page is not None and (Family.QUEUE, row, rest) in index_rows(key, page)
                self._expect(is_right, "queue row {} belongs to no queued page", row)

    def _check_rows_of_hosts(self) -> None:
        saved, expect = self._saved, self._expect
        rows: dict[bytes, int] = {}
        for row, _ in self._store.scan(Family.META):
            if row[:1] in HOST_ROWS:
                bucket = index_bucket(row)
                rows[bucket] = rows.get(bucket, 0) + 1
        n = sum(rows.values())
        expect(n == self._queued_hosts, "{} places for {} hosts", n, self._queued_hosts)
        shelved = {bucket: n for bucket, n in rows.items() if bucket[:1] == SHELVED}
        expect(saved.shelved == shelved, "{} hosts are said to be shelved, not {}", saved.shelved, shelved)
        expect(saved.parked == rows.get(PARKED, 0), "{} hosts are said to be parked", saved.parked)
        said, dead = (saved.dead, saved.dead_pages), (rows.get(DEAD, 0), self._dead_pages)
        expect(said == dead, "{} hosts with {} pages are said to be dead, not {} with {}", *said, *dead)

    def _check_content(self) -> None:
        for chunk in chunks(self._store.scan(Family.CONTENT)):
            keys = list({page for row in chunk for page in pages_of(*row)})
            known = dict(zip(keys, self._store.get_many(Family.PAGES, keys), strict=True))
            for key, value in chunk:
                is_known = all(known[page] is not None for page in pages_of(key, value))
                self._expect(is_known, "content row {} is of a page that is not known", key)

    def _check_times(self) -> None:
        if sum(1 for _ in self._meta(WAKES)) != self.indexed[Family.META]:
            for chunk in chunks(self._meta(WAKES)):
                keys = [due_page(row) for row, _ in chunk]
                for (row, value), key, page in zip(chunk, keys, self._pages(keys), strict=True):
                    is_right = page is not None and (Family.META, row, value) in index_rows(key, page)
                    self._expect(is_right, "time row {} belongs to no page that is revisited then", row)
        for chunk in chunks(self._meta(DUE)):
            pages = self._pages([due_page(row) for row, _ in chunk])
            for (row, value), page in zip(chunk, pages, strict=True):
                self._expect(
                    is_due(page, value), "due row {} belongs to no page that waits for a revisit", row
                )

    def _meta(self, letter: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the index in ``META`` whose keys begin with *letter*."""
        return self._store.scan(Family.META, letter, bytes((letter[0] + 1,)))

    def _pages(self, keys: list[bytes]) -> list[Page | None]:
        return [read_page(data) for data in self._store.get_many(Family.PAGES, keys)]

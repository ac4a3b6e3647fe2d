"""Checks that a store holds a state that a crawl can have been in: every invariant, counted to the unit.

Reads each family once, in bounded memory; only rows that belong to nothing are looked for in a second reading.

What can be counted is counted again, and each record must be one (:mod:`.record_checks`).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import layout, record_checks, walk
from .counters import MARKS, OUTCOMES, class_of_outcome, read_counters
from .crawl_totals import CrawlTotals, read_totals
from .duplicates import pages_of
from .frontier.shelves import index_bucket
from .ledger import TOTAL
from .ports import Family, Store
from .records import FAILED, HOST_BYTES, NO_RECORD, PAGE_BYTES, QUEUED, VISITED, HostRecord, Page, unpack_host
from .revisits.found import is_gone
from .revisits.revisits import may_come_back
from .shards.mail import balance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .order import Order

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
    store: Store,
    order: Order | None = None,
    progress: Callable[[int], object] = lambda _: None,
    wrong_request: walk.WrongRequest | None = None,
) -> Audit:
    """Check every invariant of the crawl in *store*.

    Args:
        progress: Called with the number of pages that were checked since the last call.
        order: The crawl's order, if it is not one of this package; without it front queues are not checked.
        wrong_request: Checks the stored requests. Without it, requests and robots.txt files are not read, as their form is
            up to the caller.

    Raises:
        StorageError: If the store cannot be read, was written in another format, or its totals are damaged.
    """
    result = Audit()
    saved = read_totals(store)
    if saved is None:
        result.expect(not any(True for _ in store.scan(Family.PAGES)), "there are pages but no totals")
        result.virtual = TOTAL
        return result
    _Auditor(store, saved, walk.find_order(saved.order_name, order), wrong_request, result).run(progress)
    return result


class _Auditor:
    """Checks the rows of *store* against one another and against the totals, *saved*.

    Attributes:
        tally: The sums over the pages so far.
        indexed: Index rows of pages that are there as they should be, by family.
    """

    def __init__(
        self,
        store: Store,
        saved: CrawlTotals,
        order: Order | None,
        wrong_request: walk.WrongRequest | None,
        result: Audit,
    ) -> None:
        self._store = store
        self._saved = saved
        self._order = order
        self._result = result
        self._expect = result.expect
        self.tally = walk.Tally(saved.ledger)
        self.indexed = {Family.QUEUE: 0, Family.META: 0}
        self._wrong_request = wrong_request
        self._visits = 0
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._queued_hosts = 0
        self._dead_pages = 0
        self._places: list[tuple[str, bytes]] = []
        self._may_sleep = (
            saved.window is None or store.get_many(Family.META, (layout.ASLEEP_KEY,))[0] is not None
        )

    def run(self, progress: Callable[[int], object]) -> None:
        """Check everything."""
        with self._understood("pages and hosts"):
            for host in walk.each_host(self._store, self._in_index(walk.each_page(self._store, progress))):
                self._check_host(host)
            self._check_places()
        self._report()
        for name, check in (
            ("totals", self._check_totals),
            ("counters", self._check_counters),
            ("queue", self._check_queue),
            ("places", self._check_rows_of_hosts),
            ("index", self._check_index),
            ("content", self._check_content),
            ("times", self._check_times),
            ("domains", self._check_domains),
            ("robots.txt files", self._check_robots),
            ("links", self._check_links),
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

    def _in_index(self, pages: Iterable[walk.StoredPage]) -> Iterator[walk.StoredPage]:
        """All of *pages*, after their index rows have been looked up, those of many at once."""
        for chunk in walk.chunks(pages):
            wanted: dict[Family, list[tuple[bytes, bytes, bytes]]] = {Family.QUEUE: [], Family.META: []}
            for each in chunk:
                if each.page is not None:
                    for family, row, value in walk.index_rows(each.key, each.page):
                        wanted[family].append((row, value, each.key))
            for family, rows in wanted.items():
                found = self._store.get_many(family, [row for row, _, _ in rows])
                for (_, value, key), stored in zip(rows, found, strict=True):
                    if stored == value:
                        self.indexed[family] += 1
                    else:
                        self._expect(False, _LACKS_ROW[family], key)
            yield from chunk

    def _check_host(self, stored: walk.StoredHost) -> None:
        counted = walk.HostTally()
        for each in stored.pages:
            if each.page is not None:
                self._check_page(each.key, each.page, each.request)
                counted.add(each.page)
            else:
                wrong = "cannot be understood" if each.has_record else "is gone, and its request is there"
                self._expect(False, "the record of page {} {}", each.key, wrong)
        if stored.host is None and stored.has_record:
            self._expect(False, "the record of host {} cannot be understood", stored.key)
            return
        host = stored.host or HostRecord("")
        for name in ("queued", "visited"):
            says, has = getattr(host, name), getattr(counted, name)
            said = "host {} ({}) says {} {} pages, but has {}"
            self._expect(says == has, said, host.name, stored.key, says, name, has)
        if stored.host is not None:
            self._result.hosts += 1
            self._report_wrong(f"host {host.name!r}", stored.key, record_checks.wrong_host(stored.key, host))
            self._check_place(stored.key, host, counted.best)

    def _check_page(self, key: bytes, page: Page, request: bytes | None) -> None:
        expect, state = self._expect, page.state
        cash = self.tally.add(page)
        if page.visits:
            self._visits += page.visits
            if state != QUEUED:
                self._outcomes[class_of_outcome(page.outcome)] += 1
        if cash < 0:
            expect(False, "page {} holds {} units", key, cash)
        if wrong := record_checks.wrong_page(page, self._saved.order):
            expect(False, "page {} {}", key, wrong)
        if request is None:
            expect(state != QUEUED, "page {} waits, and has no request", key)
        elif (
            self._wrong_request is not None
            and (wrong := self._wrong_request(key, request, page))
            and not walk.is_set_aside(page)
        ):
            expect(False, "the request of page {} {}", key, wrong)
        self._check_merged(key, page)
        if state == QUEUED:
            right = walk.right_front_queue(page, self._order)
            if page.front_queue != right:
                expect(False, "page {} waits in front queue {}, not {}", key, page.front_queue, right)
        elif state == VISITED:
            self._check_visited(key, page, has_request=request is not None)
        elif state == FAILED:
            is_over = page.changes is None or not page.changes.wakes_at
            expect(is_over or is_gone(page), "page {} failed, but should be revisited", key)
        else:
            expect(False, "page {} has state {}", key, state)

    def _check_merged(self, key: bytes, page: Page) -> None:
        expect = self._expect
        if page.is_claimed and not page.visits and not walk.has_claims(self._store, key):
            expect(False, "page {} waits for pages that are to be merged with it, and there are none", key)
        if page.canonical:
            is_right = walk.is_emptied(page)
            expect(is_right, "page {} was merged into another one, but is not visited and empty", key)
            expect(walk.has_root(self._store, page), "page {} was merged, but no page stands for it", key)

    def _check_visited(self, key: bytes, page: Page, *, has_request: bool) -> None:
        """Whether *page*, which was visited and may be paid, can spend it by another visit."""
        if may_come_back(page):
            is_awake = page.changes is not None and page.changes.wakes_at > 0
            is_right = is_awake or self._may_sleep or not has_request
            self._expect(is_right, "page {} should be revisited, but nothing looks at it", key)
        elif not page.canonical:  # until its page was visited, with which it is one then
            is_right = walk.waits_for_page(self._store, key, page)
            self._expect(
                is_right, "page {} is one more request for a page, and holds cash that it cannot spend", key
            )

    def _expect_same(self, one: int | Sequence[int], other: int | Sequence[int], text: str) -> None:
        """Count a violation, which is *text* with both of them in it, unless they are the same."""
        self._expect(one == other, text, one, other)

    def _report_wrong(self, what: str, key: bytes, wrong: str) -> None:
        """Count a violation if something is *wrong* with *what*, under *key*."""
        if wrong:
            self._expect(False, "{} ({}) {}", what, key, wrong)

    def _check_place(self, key: bytes, host: HostRecord, best: int | None) -> None:
        if not host.queued:
            self._expect(not host.row, "host {} has nothing queued, but an index row", host.name)
            return
        self._queued_hosts += 1
        self._dead_pages += host.queued if host.row[:1] == layout.DEAD else 0
        self._places.append((host.name, host.row + key))
        if len(self._places) == walk.CHUNK:
            self._check_places()
        # pages that wait for a silent origin do not count
        if host.row[:1] != layout.ACTIVE and not host.silent:
            is_right = best is None or (host.best is not None and host.best >= best)
            self._expect(is_right, "host {} is shelved below its best page", host.name)

    def _check_places(self) -> None:
        """Look up the index rows of many hosts."""
        found = self._store.get_many(Family.META, [row for _, row in self._places])
        for (name, _), value in zip(self._places, found, strict=True):
            self._expect(value is not None, "host {} has pages queued, but no place", name)
            self._expect(not value, "the place of host {} has a value", name)
        self._places.clear()

    # -- sums, and rows that belong to nothing

    def _check_totals(self) -> None:
        tally, ledger, expect = self.tally, self._saved.ledger, self._expect
        whole, right = tally.cash + ledger.virtual, ledger.whole
        expect(whole == right, "all cash is {} units, not {}: {} too many", whole, right, whole - right)
        self._expect_same(
            balance_of(self._store), ledger.balance, "mail brought {} units, but {} are recorded"
        )
        self._expect_same(tally.history, ledger.history, "histories add up to {}, not {}")
        self._expect_same(tally.new.cash, ledger.new.cash, "new pages hold {} units, not {}")
        self._expect_same(tally.new.members, ledger.new.members, "classes have {} new pages, not {}")
        self._expect_same(tally.members, ledger.members, "classes have {} pages, not {}")
        for name in ("queued", "visited", "failed", "hosts"):
            recorded, counted = getattr(self._saved, name), getattr(self._result, name)
            expect(recorded == counted, "{} {} are recorded, but {} are stored", recorded, name, counted)
        said = "{} pages are said to be visited or to have failed, but {} are"
        self._expect_same(self._saved.visits, tally.visits, said)
        newcomers, again = ledger.newcomers[1], tally.again
        expect(newcomers <= again, "{} pages are said to be visited twice, but {} are", newcomers, again)
        clock = self._store.get_many(Family.META, (layout.CLOCK_KEY,))[0]
        if clock is not None:
            self._report_wrong("the clock", layout.CLOCK_KEY, record_checks.wrong_value(clock))

    def _check_counters(self) -> None:
        counters = read_counters(self._store, self._saved.saved_at)
        if counters is None:
            is_there = self._store.get_many(Family.META, (layout.COUNTERS_KEY,))[0] is not None
            self._expect(not is_there, "the counters of all runs cannot be understood")
            return
        if not counters.is_whole:
            return
        self._expect_same(counters.visits, self._visits, "{} visits are counted, but pages have {}")
        for name, n in self._outcomes.items():
            says = counters.outcomes.get(name, 0)
            if name == "page":  # the pages do not say what their owners ask
                says += sum(counters.outcomes.get(mark, 0) for mark in MARKS)
            if name != "duplicate":  # which a page becomes when the other one was visited
                said = "{} visits are counted that ended with {!r}, but {} pages have"
                self._expect(n <= says, said, says, name, n)

    def _check_queue(self) -> None:
        n = sum(1 for _ in self._store.scan(Family.QUEUE))
        self._expect_same(n, self.tally.queued, "{} queue rows for {} queued pages")
        if n == self.indexed[Family.QUEUE]:  # each belongs to a page
            return
        for chunk in walk.chunks(self._store.scan(Family.QUEUE)):
            keys = [row[:HOST_BYTES] + rest for row, rest in chunk]
            for (row, rest), key, page in zip(chunk, keys, self._pages(keys), strict=True):
                is_right = page is not None and (Family.QUEUE, row, rest) in walk.index_rows(key, page)
                self._expect(is_right, "queue row {} belongs to no queued page", row)

    def _check_rows_of_hosts(self) -> None:
        saved, expect = self._saved, self._expect
        rows: dict[bytes, int] = {}
        for row, _ in self._store.scan(Family.META):
            if row[:1] in layout.HOST_ROWS:
                bucket = index_bucket(row)
                rows[bucket] = rows.get(bucket, 0) + 1
        n = sum(rows.values())
        expect(n == self._queued_hosts, "{} places for {} hosts", n, self._queued_hosts)
        shelved = {bucket: n for bucket, n in rows.items() if bucket[:1] == layout.SHELVED}
        expect(saved.shelved == shelved, "{} hosts are said to be shelved, not {}", saved.shelved, shelved)
        expect(saved.parked == rows.get(layout.PARKED, 0), "{} hosts are said to be parked", saved.parked)
        said, dead = (saved.dead, saved.dead_pages), (rows.get(layout.DEAD, 0), self._dead_pages)
        expect(said == dead, "{} hosts with {} pages are said to be dead, not {} with {}", *said, *dead)

    def _check_index(self) -> None:
        for key, value in self._store.scan(Family.META):
            letter = key[:1]
            if letter == layout.OUTSIDERS:
                host = unpack_host(value)
                wrong = record_checks.wrong_outsider(key[1:], host)
                self._report_wrong(f"host {host.name!r}", key[1:], wrong)
            elif letter == layout.SHARED_GATES:
                self._report_wrong("the gate", key, record_checks.wrong_value(value))
            elif letter in (layout.DIRECTORIES, layout.BRANCHES):
                self._report_wrong("the part of a host", key, record_checks.wrong_count(key, value))
            elif letter.isupper():
                self._expect(letter in layout.INDEXES, "row {} is of no index", key)

    def _check_domains(self) -> None:
        visited = seeds = 0
        for key, value in self._store.scan(Family.DOMAINS):
            wrong, n_visited, n_seeds = record_checks.wrong_domain(key, value)
            self._report_wrong("domain", key, wrong)
            visited += n_visited
            seeds += n_seeds
        says = self._saved.seeds
        self._expect(seeds == says, "{} seeds are recorded, but domains have {}", says, seeds)
        is_counted = not visited or visited == self.tally.visits
        self._expect(is_counted, "domains have {} visited pages, but {} are", visited, self.tally.visits)

    def _check_robots(self) -> None:
        if self._wrong_request is None:  # the caller may keep there what it likes
            return
        for key, value in self._store.scan(Family.ROBOTS):
            self._report_wrong("robots.txt", key, record_checks.wrong_robots(key, value))

    def _check_links(self) -> None:
        for chunk in walk.chunks(self._store.scan(Family.LINKS)):
            pages = self._pages([key[:PAGE_BYTES] for key, _ in chunk])
            for (key, value), page in zip(chunk, pages, strict=True):
                was_visited = page is not None and page.visits
                wrong = record_checks.wrong_links(key, value) or (
                    "" if was_visited else "are of no page that was visited"
                )
                self._report_wrong("the links of page", key[:PAGE_BYTES], wrong)

    def _check_content(self) -> None:
        for chunk in walk.chunks(self._store.scan(Family.CONTENT)):
            keys = list({page for row in chunk for page in pages_of(*row)})
            known = dict(zip(keys, self._store.get_many(Family.PAGES, keys), strict=True))
            for key, value in chunk:
                if wrong := record_checks.wrong_content(key, value):
                    self._expect(False, "content row {} {}", key, wrong)
                is_known = all(known[page] is not None for page in pages_of(key, value))
                self._expect(is_known, "content row {} is of a page that is not known", key)

    def _check_times(self) -> None:
        if sum(1 for _ in self._meta(layout.WAKES)) != self.indexed[Family.META]:
            for chunk in walk.chunks(self._meta(layout.WAKES)):
                keys = [walk.due_page(row) for row, _ in chunk]
                for (row, value), key, page in zip(chunk, keys, self._pages(keys), strict=True):
                    is_right = page is not None and (Family.META, row, value) in walk.index_rows(key, page)
                    self._expect(is_right, "time row {} belongs to no page that is revisited then", row)
        for chunk in walk.chunks(self._meta(layout.DUE)):
            pages = self._pages([walk.due_page(row) for row, _ in chunk])
            for (row, value), page in zip(chunk, pages, strict=True):
                self._expect(
                    walk.is_due(page, value), "due row {} belongs to no page that waits for a revisit", row
                )

    def _meta(self, letter: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the index in ``META`` whose keys begin with *letter*."""
        return self._store.scan(Family.META, letter, bytes((letter[0] + 1,)))

    def _pages(self, keys: list[bytes]) -> list[Page | None]:
        return [walk.read_page(data) for data in self._store.get_many(Family.PAGES, keys)]

"""Makes a valid job from what is left of a damaged one.

Rule 1: only pages and their requests are copied. Queue rows, places of hosts, counts and totals are derived from them.

Rule 2: the virtual page makes up the difference, so that all cash is :data:`~scrapy_aopic.core.ledger.TOTAL` again, and in
a shard that plus the balance of its mail. If the pages hold more than that, they give up the excess.

Rule 3: a page of which only the request is left is queued, without cash. A page whose request is lost is dropped: it is
found again when a page that links to it is visited. A page whose request cannot be read, or is another page's, is set aside
as failed: a link to it brings another request.

Rule 4: numbers and times that no crawl can have written are set to the nearest ones that one can (:mod:`.record_checks`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from . import layout, record_checks, walk
from .counters import UNREADABLE
from .crawl_totals import CrawlTotals, read_damaged_totals
from .damaged import DamagedStore
from .domain import Domain, domain_key, pack_domain, unpack_domain
from .duplicates import pages_of
from .fetched import read_fetched
from .ledger import NOWHERE, Totals
from .order import Aopic, order_name
from .pages import MAX_HEIGHT
from .politeness import LONGEST_WAIT
from .ports import Family, Store
from .records import (
    FAILED,
    LAST_SERIAL,
    MOST_CLICKS,
    N_FRONT_QUEUES,
    NO_RECORD,
    PAGE_BYTES,
    PART_BYTES,
    QUEUED,
    HostRecord,
    Page,
    PageState,
    host_key,
    pack_host,
    pack_page,
    serial_of,
    unpack,
)
from .revisits import Rates
from .shards.mail import balance_of_rows
from .spending import class_of, is_member

if TYPE_CHECKING:
    from collections.abc import Callable


_PAUSE = 60.0
"""Seconds for which a host is left alone that may have got a request just before the damage."""

_MOST_TURNS = 1e15
"""More turns than any crawl has: in each of them all cash goes round."""

_MAX_OUTCOME = 100
"""Characters of why a request was set aside."""

_MADE_ANEW = (*layout.HOST_ROWS, layout.WAKES, layout.DUE)
"""Letters of the rows in ``META`` that are not copied."""

_STATES = frozenset(map(int, PageState))
"""Values of ``Page.state``."""


@dataclass(slots=True)
class Repaired:
    """The result of a repair.

    Attributes:
        requeued: Pages that are queued, whatever their state was, because only their requests are left.
        forgotten: Pages that are lost: missing from the count in the totals, or without the request that they need.
        set_aside: Pages set to failed, because their requests cannot be read or belong to other pages.
        unmerged: Pages that had been merged into a lost one, and stand for themselves again.
        cash: Units that the virtual page got; negative if it, and if need be pages, gave some.
        has_totals: Whether the totals could be read.
        gaps: Places by family where rows could not be read.
        reason: Why the store could not be opened as it was; empty if it could.
    """

    pages: int = 0
    hosts: int = 0
    requeued: int = 0
    forgotten: int = 0
    set_aside: int = 0
    unmerged: int = 0
    cash: int = 0
    has_totals: bool = True
    gaps: dict[str, int] = field(default_factory=dict)
    reason: str = ""


def rebuild(
    damaged: Store,
    target: Store,
    host_of: Callable[[bytes], str],
    now: float,
    progress: Callable[[int], object] = lambda _: None,
    *,
    domain_of: Callable[[str], str] = str,
    wrong_request: walk.WrongRequest | None = None,
) -> Repaired:
    """Write a whole job made of what is left in *damaged* to *target*, which is empty.

    Args:
        host_of: Name of the host of a request, for hosts whose record is lost.
        now: Seconds since the epoch.
        progress: Called with the number of further pages that were repaired.
        domain_of: Registered domain of a host name.
        wrong_request: Reads the stored requests; without it they, and robots.txt files, are kept as they are.
    """
    source = DamagedStore(damaged)
    saved = read_damaged_totals(source.get_many(Family.META, (layout.TOTALS_KEY,))[0])
    rebuild = _Rebuild(
        source, target, saved, now, host_of=host_of, domain_of=domain_of, wrong_request=wrong_request
    )
    rebuild.take_stock()
    rebuild.copy_domains()
    source.gaps.clear()  # they are met once more
    for host in walk.each_host(source, walk.each_page(source, progress)):
        rebuild.add_host(host)
    rebuild.copy_rest()
    rebuild.part_from_lost_roots()
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
        if self._n >= 5 * walk.CHUNK:
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
        saved: CrawlTotals | None,
        now: float,
        *,
        host_of: Callable[[bytes], str],
        domain_of: Callable[[str], str],
        wrong_request: walk.WrongRequest | None,
    ) -> None:
        self._source = source
        self._target = target
        self._saved = saved
        self._host_of = host_of
        self._domain_of = domain_of
        self._wrong_request = wrong_request
        self._rows = _Rows(target)
        if saved is not None:
            _make_possible(saved, now, source.get_many(Family.META, (layout.CLOCK_KEY,))[0])
        self._saved_at = saved.saved_at if saved is not None else now
        # In a job that has been at rest for longer than any host is left alone, none has to be.
        self._now = min(now, self._saved_at + LONGEST_WAIT)
        limits = record_checks.Limits.of(saved or CrawlTotals("", now, now))
        self._limits = limits if saved is not None else limits._replace(turn=_MOST_TURNS)
        # Pages stay in their front queues if the order is not one of this package.
        self._order = walk.find_order(saved.order_name) if saved is not None else Aopic()
        self._clock = saved.clock if saved is not None else 0
        self._ledger = saved.ledger if saved is not None else Totals()
        self._excess = 0
        self._serial = saved.order if saved is not None else 0
        self._parked = self._dead = self._dead_pages = 0
        self._seeds = 0
        counts_domains = self._order is not None and self._order.uses_domains
        self._visited_of: dict[bytes, int] | None = {} if counts_domains else None
        self.tally = walk.Tally(self._ledger)
        self.result = Repaired(has_totals=saved is not None)

    def take_stock(self) -> None:
        """Find how much cash pages hold too much, and the serial number that the next page must be above."""
        held, turn = 0, 0.0
        for stored in walk.each_page(self._source):
            page = self._sound(stored)
            if page is not None and self._saved is None:
                turn = max(turn, page.visited_turn)
            if page is not None and stored.request is not None:
                held += page.cash + self._ledger.owed(page)
                self._serial = max(self._serial, serial_of(page.place))
        if self._saved is None:
            self._ledger.balance = balance_of_rows(self._source.scan(Family.META))
            self._ledger.turn = turn
        self._excess = max(held - self._ledger.whole, 0)

    def _sound(self, stored: walk.StoredPage) -> Page | None:
        """The page of *stored* with all faults corrected; ``None`` if there is no page, or its state is not valid.

        A merged page that is not in the state of one stands for itself again.
        """
        page, limits = stored.page, self._limits
        if (
            page is None
            or page.state not in _STATES
            or not 0 < serial_of(page.place) <= page.place < record_checks.MOST_PLACES
        ):
            return None
        page = replace(
            page,
            cash=max(page.cash, 0),
            history=max(page.history, 0),
            front_queue=_within(page.front_queue, 0, N_FRONT_QUEUES - 1),
            height=_within(page.height, 0, MAX_HEIGHT),
            clicks=_within(page.clicks, 0, MOST_CLICKS),
            lowered=_within(page.lowered, 0, N_FRONT_QUEUES - 1),
            branch=page.branch if 0 <= page.branch < 1 << 8 * PART_BYTES else 0,
            fetched=page.fetched if read_fetched(page.fetched) is not None else 0,
        )
        if page.state != QUEUED or page.visits > 0:
            is_turn = 0 <= page.visited_turn <= limits.turn
            page = replace(
                page,
                lowered=0,
                branch=0,
                visits=max(page.visits, 1),
                visited_at=page.visited_at if 0 <= page.visited_at <= limits.now else self._saved_at,
                visited_turn=page.visited_turn if is_turn else self._ledger.turn,
            )
        else:
            page = replace(
                page, visits=0, history=0, visited_at=0.0, visited_turn=0.0, marks=(), outcome="", fetched=0
            )
        changes = page.changes
        if changes is not None and not 0 <= changes.seen_at <= limits.now:
            changes = changes._replace(seen_at=page.visited_at)
        if changes is not None and not 0 <= changes.wakes_at < record_checks.MOST_SECONDS:
            changes = changes._replace(wakes_at=self._saved_at)
        page = replace(page, changes=changes)
        if stored.request is not None and self._wrong_request is not None and not walk.is_set_aside(page):
            wrong = self._wrong_request(stored.key, stored.request, page)
            if wrong:
                page = replace(
                    page,
                    state=FAILED,
                    outcome=f"{UNREADABLE}: it {wrong}"[:_MAX_OUTCOME],
                    visits=max(page.visits, 1),
                    canonical=b"",
                    lowered=0,
                    branch=0,
                    visited_at=page.visited_at or self._saved_at,
                    is_claimed=False,
                )
        if page.state == FAILED:
            page = replace(page, cash=0, changes=None)
        if page.canonical and not walk.is_emptied(page):
            page = self._parted(page)
        return replace(page, handed=min(page.handed, self._ledger.handed[class_of(page)]))

    def _parted(self, page: Page) -> Page:
        """*page*, which was merged, as it stands for itself."""
        return replace(page, canonical=b"", height=0, handed=self._ledger.handed[class_of(page)])

    def add_host(self, stored: walk.StoredHost) -> None:
        """Write the pages of a host, the rows that follow from them, and the host itself."""
        host, counted = stored.host, walk.HostTally()
        if host is not None and host_key(host.name) != stored.key:
            host = None
        for each in stored.pages:
            if each.request is not None and host is None:
                named = HostRecord(self._host_of(each.request))
                host = named if host_key(named.name) == stored.key else None
            if each.request is None or host is None:
                self.result.forgotten += 1
                continue
            counted.add(self._add_page(each, each.request))
        if host is None:
            return
        self._count_visits(host, counted.visited)
        host = replace(
            self._possible(host), queued=counted.queued, visited=counted.visited, best=counted.best
        )
        host = replace(host, row=self._place(host))
        if host.row:
            self._rows.put(Family.META, host.row + stored.key, b"")
        self.result.hosts += 1
        self._rows.put(Family.HOSTS, stored.key, pack_host(host))

    def _add_page(self, stored: walk.StoredPage, request: bytes) -> Page:
        page = self._sound(stored) or self._requeued()
        if page.state == FAILED and stored.page is not None and stored.page.state != FAILED:
            self.result.set_aside += 1
        cut = min(page.cash, self._excess)
        page = replace(page, cash=page.cash - cut)
        self._excess -= cut
        if page.state == QUEUED:
            page = replace(page, front_queue=walk.right_front_queue(page, self._order))
        for family, row, value in walk.index_rows(stored.key, page):
            self._rows.put(family, row, value)
        self._rows.put(Family.PAGES, stored.key, pack_page(page))
        self._rows.put(Family.REQUESTS, stored.key, request)
        self.tally.add(page)
        return page

    def _possible(self, host: HostRecord) -> HostRecord:
        """*host* with nothing in it that cannot be."""
        latest = self._limits.latest
        silent = (host.silent or {}).values()
        return replace(
            host,
            not_before=host.not_before if 0 <= host.not_before <= latest else self._now + _PAUSE,
            held_until=host.held_until if 0 <= host.held_until <= latest else 0.0,
            silent=host.silent if all(0 <= each.until <= latest and each.n >= 0 for each in silent) else None,
            leased_at=host.leased_at if 0 <= host.leased_at <= self._limits.now else self._saved_at,
            transfer=host.transfer if 0 <= host.transfer <= LONGEST_WAIT else 0.0,
            crawl_delay=host.crawl_delay if host.crawl_delay >= 0 else 0.0,
            errors=max(host.errors, 0),
            down=max(host.down, 0),
            broken=max(host.broken, 0),
            allowed=max(host.allowed, 0),
        )

    def copy_domains(self) -> None:
        """Copy the records of domains, without their visited pages, which are counted again."""
        for key, value in self._source.scan(Family.DOMAINS):
            self._visited_of = self._visited_of or {}
            wrong, _, seeds = record_checks.wrong_domain(key, value)
            if not wrong:
                self._seeds += seeds
                self._rows.put(Family.DOMAINS, key, _with_visits(value, 0))
        self._rows.flush()

    def _count_visits(self, host: HostRecord, visited: int) -> None:
        """Count *visited* pages for the domain of *host*, if domains are counted."""
        if self._visited_of is None or not visited:
            return
        key = domain_key(self._domain_of(host.name))
        self._visited_of[key] = self._visited_of.get(key, 0) + visited
        if len(self._visited_of) == walk.CHUNK:
            self._write_visits()

    def _write_visits(self) -> None:
        counts = self._visited_of or {}
        known = self._target.get_many(Family.DOMAINS, list(counts))
        for (key, visited), value in zip(counts.items(), known, strict=True):
            before = unpack_domain(value).visited if value is not None else 0
            self._rows.put(Family.DOMAINS, key, _with_visits(value, before + visited))
        self._rows.flush()
        counts.clear()

    def _requeued(self) -> Page:
        """A new page for a request whose page is lost."""
        self.result.requeued += 1
        self._serial += 1
        order = self._order
        page = Page(QUEUED, order.place(self._serial, self._clock) if order is not None else self._serial)
        return replace(page, handed=self._ledger.handed[class_of(page)])

    def _place(self, host: HostRecord) -> bytes:
        """The index row, without its key, of *host*, whose pages have been counted."""
        if not host.queued:
            return b""
        if host.row[:1] == layout.DEAD and not record_checks.wrong_place(host.row, host, self._limits):
            self._dead += 1
            self._dead_pages += host.queued
            return host.row
        self._parked += 1
        if host.row[:1] == layout.PARKED and not record_checks.wrong_place(host.row, host, self._limits):
            return host.row
        # It may have been leased. The frontier wakes it after the pause and finds its place.
        return layout.PARKED + int((self._now + _PAUSE) * 1000).to_bytes(8, "big")

    def copy_rest(self) -> None:
        """Copy what is not made of pages, as far as its pages are there and it can be."""
        self._rows.flush()
        for chunk in walk.chunks(self._source.scan(Family.LINKS)):
            pages = self._target.get_many(Family.PAGES, [key[:PAGE_BYTES] for key, _ in chunk])
            for (key, value), data in zip(chunk, pages, strict=True):
                page = walk.read_page(data)
                if page is not None and page.visits and not record_checks.wrong_links(key, value):
                    self._rows.put(Family.LINKS, key, value)
        for key, value in self._source.scan(Family.ROBOTS):
            if self._wrong_request is None or not record_checks.wrong_robots(key, value, self._limits):
                self._rows.put(Family.ROBOTS, key, value)
        for chunk in walk.chunks(self._source.scan(Family.CONTENT)):
            for key, value in chunk:
                is_known = all(self._target.get_many(Family.PAGES, pages_of(key, value)))
                if is_known and not record_checks.wrong_content(key, value):
                    self._rows.put(Family.CONTENT, key, value)
        for key, value in self._source.scan(Family.META):
            if self._is_kept(key, value):
                self._rows.put(Family.META, key, value)

    def _is_kept(self, key: bytes, value: bytes) -> bool:
        """Whether a row of ``META`` is copied as it is."""
        letter = key[:1]
        if letter == layout.DUE:
            return walk.is_due(
                walk.read_page(self._target.get_many(Family.PAGES, (walk.due_page(key),))[0]), value
            )
        if letter == layout.OUTSIDERS:
            host = walk.read_host(value)
            return host is not None and not record_checks.wrong_outsider(key[1:], host, self._limits)
        if letter == layout.SHARED_GATES:
            return not record_checks.wrong_instant(value, self._limits)
        if letter in (layout.DIRECTORIES, layout.BRANCHES):
            return not record_checks.wrong_count(key, value)
        if key == layout.CLOCK_KEY:
            return not record_checks.wrong_clock(value, self._saved_at)
        is_known = letter in layout.INDEXES or not letter.isupper()
        return is_known and letter not in _MADE_ANEW and key not in (layout.TOTALS_KEY, layout.COUNTERS_KEY)

    def part_from_lost_roots(self) -> None:
        """Let pages stand for themselves that were merged into one that is not there, and wait for none that is not."""
        self._rows.flush()
        for key, data in self._target.scan(Family.PAGES):
            page = walk.read_page(data)
            if page is None:
                continue
            if page.is_claimed and not walk.has_claims(self._target, key):
                page = replace(page, is_claimed=False)
                self._rows.put(Family.PAGES, key, pack_page(page))
            if not page.canonical or walk.has_root(self._target, page):
                continue
            page = self._parted(page)
            self.tally.members[class_of(page)] += is_member(page)
            self.tally.new.add(page, 0)
            self.result.unmerged += 1
            self._rows.put(Family.PAGES, key, pack_page(page))
        self._rows.flush()

    def finish(self) -> Repaired:
        """Write the totals, the last rows of all, and say what was done."""
        tally, ledger, result, saved = self.tally, self._ledger, self.result, self._saved
        if self._visited_of is not None:
            self._write_visits()
        if ledger.newcomers[1] > tally.again:
            ledger.newcomers = (0, 0)
        result.cash = ledger.whole - tally.cash - (ledger.virtual if saved is not None else 0)
        result.pages = tally.pages
        result.forgotten = max(result.forgotten, (saved.pages if saved is not None else 0) - tally.pages)
        result.gaps = {family.name: n for family, n in self._source.gaps.items()}
        ledger.virtual = ledger.whole - tally.cash
        ledger.history, ledger.members, ledger.new = tally.history, tally.members, tally.new
        new = CrawlTotals(
            order_name(Aopic()),
            created_at=self._now,
            saved_at=self._now,
            rates=Rates().counts,
        )
        totals = dataclasses.replace(
            saved or new,
            ledger=ledger,
            queued=tally.queued,
            visited=tally.visited,
            failed=tally.failed,
            hosts=result.hosts,
            order=self._serial,
            visits=tally.visits,
            seeds=self._seeds,
            shelved={},
            parked=self._parked,
            dead=self._dead,
            dead_pages=self._dead_pages,
            is_clean=False,
            format=layout.FORMAT,
        )
        self._rows.put(Family.META, layout.TOTALS_KEY, totals.pack())
        self._rows.flush(sync=True)
        return result


def _within(number: int, least: int, most: int) -> int:
    return min(max(number, least), most)


def _with_visits(data: bytes | None, visited: int) -> bytes:
    """The row of a domain from *data*, if there is any, with *visited* pages."""
    domain = unpack_domain(data) if data is not None else Domain()
    domain.visited = visited
    return pack_domain(domain)


def _make_possible(saved: CrawlTotals, now: float, clock: bytes | None) -> None:
    """Have *saved*, of a job that is repaired *now* and has a *clock*, say nothing that cannot be."""
    ledger, latest = saved.ledger, now + LONGEST_WAIT
    try:
        instants = [saved.saved_at, unpack(clock)[0] if clock is not None else 0.0]
    except NO_RECORD:
        instants = [saved.saved_at]
    saved.saved_at = max((each for each in instants if 0 < each <= latest), default=now)
    waits = saved.saved_at + LONGEST_WAIT
    saved.created_at = saved.created_at if 0 <= saved.created_at <= saved.saved_at else saved.saved_at
    saved.crashed_at = saved.crashed_at if 0 <= saved.crashed_at <= saved.saved_at else saved.saved_at
    saved.not_before = saved.not_before if 0 <= saved.not_before <= waits else saved.saved_at + _PAUSE
    saved.commit_within = saved.commit_within if 0 <= saved.commit_within <= LONGEST_WAIT else _PAUSE
    saved.order, saved.clock = _within(saved.order, 0, LAST_SERIAL), max(saved.clock, 0)
    ledger.turn = ledger.turn if 0 <= ledger.turn <= _MOST_TURNS else 0.0
    ledger.distributed = max(ledger.distributed, 0)
    ledger.virtual_distributed = max(ledger.virtual_distributed, 0)
    if min(ledger.newcomers) < 0:
        ledger.newcomers = (0, 0)
    if min(ledger.elsewhere) < 0:
        ledger.elsewhere = NOWHERE
    if not all(0 <= rate <= _MOST_TURNS for rate in saved.rates):
        saved.rates = Rates().counts

"""The pages of a crawl: what is known of each, and where it waits.

Rule 1: a page that is ``QUEUED`` has one queue row, in the front queue of its cash (of what it is worth, if it is to
be revisited); a page that is not has none. A page that is leased is queued.

Rule 2: only a page that is ``VISITED`` may be due for a revisit.

Rule 3: a page that was merged with another one stays ``VISITED``; what is paid to it goes to its *root*, the page that
stands for it. Chains of such pages are at most :data:`MAX_HEIGHT` long.

Rule 4: in a shard of a job, a root may be a page of another shard. Then nothing is known of it here but its address
(:mod:`.shards.cut`), and what is paid to it leaves by mail.

Rule 5: a page's record is changed by :class:`Pages`, which keeps what it changed, and by the
:class:`~.ledger.Ledger`, which :class:`Pages` asks to, but for a visit, which :meth:`Pages.visited` keeps.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from scrapy_aopic.exceptions import SALVAGE, StorageError

from .layout import REFUSED
from .ledger import SEED_SHIFT, Ledger
from .mirrors import MIRRORED, Mirrors
from .order import LARGEST_VALUE, Order, revalued
from .ports import Family, Store
from .records import (
    FAILED,
    HOST_BYTES,
    IN_PRIORITY,
    LONE_CLICK,
    MOST_CLICKS,
    PAGE_BYTES,
    PRIORITY_BITS,
    QUEUED,
    ROW_STARTS,
    VISITED,
    Changes,
    Link,
    Page,
    pack_page,
    queue_row,
    repeat_key,
    serial_of,
    unpack_page,
)
from .revisits.found import left
from .revisits.intervals import FIRST
from .tables import BlobTable, RecordTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from .api import Lease
    from .branches import Branches
    from .directories import Directories
    from .fetched import Fetched
    from .focus.leads import Leads
    from .frontier.frontier import Frontier, Move
    from .leases import Leases
    from .revisits.due import DuePages
    from .revisits.wake_times import WakeTimes
    from .revisits.worth import Worth
    from .shards.mail import Mail

MAX_HEIGHT = 32
"""Hops from a page to the one that stands for it: more than the redirects that Scrapy follows."""


REFUSALS = ("network", "service")
"""Outcomes of pages that were refused only because the settings do not allow what they need."""

_AT_ONCE = 10_000
"""Rows of refused pages that are read at once."""

_OF_PRIORITY = ~IN_PRIORITY
"""The bits of a front queue that say which priority its pages have."""

_MOST_PREFETCHED = 10_000
"""Pages that are known to have been prefetched, at most; of others all that come next are read together."""


class Finder(NamedTuple):
    """What a visited page passes on to the pages it links to.

    Attributes:
        host: Key of its host; new pages of other hosts are where the crawl enters these.
        clicks: Its own.
        branch: Number of the branch that new pages of its host are in.
        lowered: Front queues by which these wait lower.
        group: Number of the branch that those of its own group are in; 0 if it is in none.
        group_lowered: Front queues by which these wait lower.
        is_lone: Whether the first of those is in *branch* all the same.
    """

    host: bytes = b""
    clicks: int = 0
    branch: int = 0
    lowered: int = 0
    group: int = 0
    group_lowered: int = 0
    is_lone: bool = False


ELSEWHERE = Finder()
"""A page that nothing is known of here."""


class Pages:
    """Page records, requests and queue rows.

    Args:
        worth: What visited pages are worth; ``None`` if pages are visited once.
        is_chosen: Whether the virtual page spends on a host's pages; ``None`` if it spends on no chosen domains.
        capacity: Page records kept in memory.
        leads: What led to pages that wait.
        mirrors: Which origins have the same pages; ``None`` if that is not looked for.
        mail: What goes to pages of other shards.
        bonus_of: Seeds' cash that the first page of a host is granted, by the host's name, ``None`` for none; ``None`` if
            no host has one.
        purpose_of: See :attr:`.policy.Policy.purpose_of`.
        networks: Digest of what may be connected to.

    Attributes:
        n_visited, n_failed: Pages by state; the frontier counts those that are queued.
        serial: Number of the page that was queued last in this job.
        clock: What the order remembers.
        directories, branches: How many pages of each were fetched.
        tables: Its rows, with those that wait for a commit.
    """

    def __init__(
        self,
        store: Store,
        *,
        ledger: Ledger,
        order: Order,
        frontier: Frontier,
        leases: Leases,
        wake_times: WakeTimes,
        due: DuePages,
        worth: Worth | None = None,
        is_chosen: Callable[[str], bool] | None = None,
        leads: Leads,
        directories: Directories,
        branches: Branches,
        mirrors: Mirrors | None = None,
        capacity: int = 100_000,
        mail: Mail,
        bonus_of: Callable[[str], float | None] | None = None,
        purpose_of: Callable[[bytes], bytes] = lambda _: b"",
        networks: bytes = b"",
    ) -> None:
        self._store = store
        self.table = RecordTable(store, Family.PAGES, pack_page, unpack_page, capacity)
        self.requests = BlobTable(store, Family.REQUESTS)
        self.n_visited = self.n_failed = 0
        self.serial = self._serial_before = 0
        self.clock = 0
        self._ledger = ledger
        self._order = order
        self._values_links = order.values_links
        self._frontier = frontier
        self._leases = leases
        self._wake_times = wake_times
        self._due = due
        self._worth = worth
        self._is_chosen = is_chosen
        self._mail = mail
        self._bonus_of = bonus_of
        self._purpose_of = purpose_of
        self._networks = networks
        self._leads = leads
        self._mirrors = mirrors
        self.directories = directories
        self.branches = branches
        self.tables = (self.table, self.requests, directories.table, branches.table)
        self._prefetched: set[bytes] = set()

    def resume(self, *, visited: int, failed: int, serial: int, clock: int) -> None:
        """Go on counting where an earlier run stopped."""
        self.n_visited, self.n_failed = visited, failed
        self.serial = self._serial_before = serial
        self.clock = clock

    def readmit(self, now: float) -> None:
        """Let pages wait, with the cash of a seed each, that were refused while the settings allowed something else."""
        index, last, is_whole = self._frontier.index, b"", False
        while not is_whole:
            rows, is_whole = index.first(REFUSED, _AT_ONCE, last)
            for last, networks in rows:
                if networks == self._networks:
                    continue
                index.delete(last)
                key = last[1:]
                page, request, host = self.get(key), self.request(key), self._frontier.host(key[:HOST_BYTES])
                if page is None or host is None or not request or page.outcome not in REFUSALS:
                    continue
                again = Link(key, host.name, request, page.shift, priority=page.priority)
                self.repeat(replace(again, is_unfiltered=bool(page.purpose)), page, now)
                self.enrich(key, 1.0, now)

    # -- what is known

    def get(self, key: bytes) -> Page | None:
        """The page under *key*; not to be changed."""
        return self.table.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[Page | None]:
        """The pages under *keys*, in their order, with one read of the store."""
        return self.table.get_many(keys)

    def expect(self, key: bytes, what: str) -> Page:
        """The page under *key*, which something else in the store, *what*, says is there."""
        page = self.table.get(key)
        if page is None:
            raise StorageError(f"The store has {what} for page {key.hex()}, but no such page: {SALVAGE}")
        return page

    def expect_many(self, keys: Sequence[bytes], what: str) -> Iterator[tuple[bytes, Page]]:
        """The pages under *keys* with their keys; see :meth:`expect`."""
        for key, page in zip(keys, self.table.get_many(keys), strict=True):
            yield key, page if page is not None else self.expect(key, what)

    def read_ahead(self, keys: Sequence[bytes]) -> None:
        """Read the pages under *keys*, and their requests, the first of which is wanted now, with one read each."""
        if not self.requests.is_at_hand(keys[0]):
            if keys[0] in self._prefetched:  # the others would have to be waited for
                keys = [key for key in keys if key in self._prefetched]
                self._prefetched.difference_update(keys)
            else:  # all of it at once, if that can be
                self.table.prefetch(keys)
                self.requests.prefetch(keys)
                self._leads.prefetch(keys)
            self.branches.read_ahead(keys, self.table.get_many(keys))
            self.requests.read_ahead(keys)
            self._leads.read_ahead(keys)
            self.directories.read_ahead(keys, map(self.requests.peek, keys))

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Begin to read the pages under *keys*, and their requests, unless that was done for the first one; see :meth:`read_ahead`."""
        if keys and keys[0] not in self._prefetched and not self.requests.is_at_hand(keys[0]):
            if len(self._prefetched) > _MOST_PREFETCHED:
                self._prefetched.clear()
            self._prefetched.update(keys)
            self.table.prefetch(keys)
            self.requests.prefetch(keys)
            self._leads.prefetch(keys)

    def request(self, key: bytes) -> bytes:
        """The request of the page under *key*; empty if it is not known."""
        return self.requests.get(key) or b""

    def is_from_before(self, page: Page) -> bool:
        """Whether *page* was last queued by an earlier run of this job."""
        return serial_of(page.place) <= self._serial_before

    def root(self, key: bytes) -> tuple[bytes, Page | None]:
        """Key and page that stands for the one under *key*; ``None`` if that is not known.

        Of a page of another shard, its address and ``None``; *key* may be an address, too.

        Raises:
            StorageError: If merged pages lead on for more than :data:`MAX_HEIGHT` hops, in a circle that is.
        """
        at, page, hops = key, self._here(key), 0
        while page is not None and page.canonical:
            at, hops = page.canonical, hops + 1
            if hops > MAX_HEIGHT:
                raise StorageError(
                    f"Pages that are one with page {key.hex()} lead to each other in a circle: {SALVAGE}"
                )
            page = self._here(at)
        if hops > 1 and (first := self.table.get(key)) is not None:
            first.canonical = at  # one hop the next time
            self.table.put(key, first)
        return at, page

    def _here(self, key: bytes) -> Page | None:
        """The page under *key*; ``None`` for an address."""
        return self.table.get(key) if len(key) == PAGE_BYTES else None

    def stored_after(self, key: bytes, n: int) -> tuple[list[tuple[bytes, Page]], bytes | None]:
        """Up to *n* pages behind *key* that were committed, as they are now, and where to go on; ``None`` at the end."""
        rows = [row for row, _ in islice(self._store.scan(Family.PAGES, key + b"\0" * bool(key)), n)]
        known = zip(rows, self.table.get_many(rows), strict=True)
        return [(row, page) for row, page in known if page is not None], rows[-1] if len(rows) == n else None

    # -- changes

    def _replace(self, key: bytes, page: Page, now: float, priority: int | None = None) -> None:
        """Keep what is known of *page*, whose cash is up to date, and let it wait where that belongs, with another *priority* if given."""
        if page.state == QUEUED:
            number = self._front_queue(key, page, now, priority)
            if number != page.front_queue:
                move = (
                    queue_row(page.front_queue, page.place),
                    queue_row(number, page.place),
                    key[HOST_BYTES:],
                )
                page.front_queue = number
                self._frontier.move(key[:HOST_BYTES], [move], now)
        self.table.put(key, page)

    def add(self, link: Link, now: float, *, worth: float = 0.0) -> None:
        """Let the page of *link*, which is not known, wait.

        Args:
            worth: Seeds' cash that the virtual page grants it.
        """
        page = self._admit(link, 0)
        if worth:
            self._ledger.grant(page, worth)
        self._queue(link, page, now)

    def enrich(self, key: bytes, worth: float, now: float) -> int:
        """Let the virtual page grant *worth* seeds' cash to the page that stands for the one under *key*.

        Returns:
            The units; 0 if that page failed, is not known, or is one of another shard, whose virtual page grants it.
        """
        key, page = self.root(key)
        if page is None and len(key) > PAGE_BYTES:
            self._mail.enrich_at(key, worth)
        if page is None or page.state == FAILED:
            return 0
        if page.branch:  # who seeds it wants it
            self.branches.left([(key, page.branch)])
            page.branch = page.lowered = 0
        page.clicks = 0
        self._ledger.catch_up(page)
        units = self._ledger.grant(page, worth)
        self._replace(key, page, now)
        return units

    def repeat(self, link: Link, page: Page, now: float, cash: int = 0) -> None:
        """Wait for one more request for *page*, which is known: the page itself if it is done, else another beside it.

        Args:
            cash: Units that the request was paid.
        """
        self._ledger.catch_up(page)
        # By a link that is for something else than the page, which goes on to be revisited for that.
        is_beside = bool(page.purpose) and not link.is_unfiltered and self._worth is not None
        if not link.is_unfiltered:
            page.purpose = b""
        if page.state == FAILED or (page.state == VISITED and not is_beside):
            self._due.remove(link.key)
            self._revive(page)
            self._ledger.pay(page, cash)
            page.place = self.next_place()
            self._queue(link, page, now)
            return
        # What is in flight distributes the cash that it was leased with.
        is_waiting = page.state == QUEUED and link.key not in self._leases
        half = self._ledger.split(page) if is_waiting else 0
        beside = self._admit(link, cash + half)
        beside.repeat_of, beside.purpose = link.key[HOST_BYTES:], b""
        self._replace(link.key, page, now)
        self._queue(replace(link, key=repeat_key(link.key, beside.place)), beside, now)

    def is_for_more(self, link: Link, page: Page) -> bool:
        """Whether *link* is the first one to *page*, which was requested unfiltered, and for something else than that was.

        A link that is for the same makes the page known to all others, as the repeat of one that is not does.
        """
        if not page.purpose or not link.request or link.is_unfiltered:
            return False
        if page.purpose != self._purpose_of(link.request):
            return True
        page.purpose = b""
        self.table.put(link.key, page)
        return False

    def differs(self, link: Link) -> bool:
        """Whether *link* is for something else than the request that its page, which is known, has now."""
        now = self._purpose_of(self.request(link.key))
        return bool(now) and now != self._purpose_of(link.request)

    def queue_again(self, key: bytes, now: float) -> None:
        """Let the page under *key*, which was due, wait in the frontier."""
        page, host = self.expect(key, "a due row"), self._frontier.places.expect(key[:HOST_BYTES], "a page")
        self._ledger.catch_up(page)
        self._revive(page)
        page.state = QUEUED
        page.place = self.next_place()
        page.front_queue = self._front_queue(key, page, now)
        self.table.put(key, page)
        self._frontier.insert(key, host.name, page.front_queue, page.place, now)

    def sleep_until(self, key: bytes, page: Page, again_at: float, now: float) -> None:
        """Let *page*, which was visited before, wait where it belongs as of now, and wake again at *again_at*."""
        page.changes = self._wake_times.move(key, page.changes, again_at)
        self._ledger.catch_up(page)
        if page.state != QUEUED:
            self._offer(key, page, now)
        self._replace(key, page, now)

    def learn(self, key: bytes, page: Page, changes: Changes, wakes_at: float) -> None:
        """Keep what is known of the *changes* of *page*, which was visited, and let it wake at *wakes_at*."""
        page.changes = self._wake_times.move(key, changes, wakes_at)
        self.table.put(key, page)

    def shift(self, key: bytes, page: Page, shift: int) -> None:
        """Let *page* be moved up by *shift* front queues the next time that it is paid."""
        page.shift = shift
        self.table.put(key, page)

    def rescore(self, key: bytes, page: Page, score: int, now: float) -> None:
        """Let *page* have another *score*, and wait where that belongs."""
        page.score = score
        self._replace(key, page, now)

    def revalue(self, key: bytes, page: Page, value: int, now: float) -> None:
        """Let *page*, which waits and is not leased, have another *value* for the topic, and wait where that belongs."""
        self._ledger.catch_up(page)
        page.score = revalued(page.score, value)
        self._replace(key, page, now)

    def lease(self, key: bytes, now: float) -> Page:
        """The page under *key*, which was taken from the frontier, with its cash up to date."""
        page, ledger = self.expect(key, "a queue row"), self._ledger
        ledger.catch_up(page)
        if ledger.spend_virtual(page.cash):
            ledger.catch_up(page)
        self.clock = self._order.clock_after(page, self.clock)
        self._replace(key, page, now)
        self._due.first.discard(key)
        return page

    def lower(self, key: bytes, now: float) -> bool:
        """Let the page under *key*, which is the next of its host, wait lower if it is there or comes from a mirror, its branch is
        crowded, or its directory full.

        Returns:
            Whether it does from now on. Each of these happens once to a page, but for a branch that has twice as many pages.
        """
        if not (self.directories.full or self.branches.are_bounded or self._mirrors is not None):
            return False
        page = self.expect(key, "a queue row")
        if page.visits or page.lowered >= MIRRORED:
            return False
        host = self._frontier.places.expect(key[:HOST_BYTES], "a page")

        def request() -> bytes:
            self.requests.read_ahead((key,))  # as it is wanted again when the page is leased
            return self.requests.peek(key)

        if self._mirrors is not None and self._mirrors.is_behind(key, host, request, self.get_many):
            lowered = MIRRORED
        else:
            lowered = self.branches.lowered(key, page.branch, host.visited)
            if not lowered and page.clicks and self.branches.may_be_crowded(host.visited):
                lowered = self.branches.lowered(key, self.branches.group_of(request()), host.visited)
        if not lowered and self.directories.full and not page.lowered:
            lowered = int(self.directories.is_full(key, request()))
        if lowered <= page.lowered:
            return False
        self._ledger.catch_up(page)
        page.lowered = lowered
        self._replace(key, page, now)
        return True

    def put_back(self, lease: Lease, link: Link, now: float, *, has_failed: bool) -> None:
        """Let the page of *lease*, which is over, wait again for the request in *link*."""
        key = lease.key
        page = self.expect(key, "a lease")
        if link.request != lease.request:
            self.requests.put(key, link.request)
        self._frontier.put_back(key, page.front_queue, page.place, now, has_failed=has_failed)
        page.shift = link.shift
        self._replace(key, page, now, link.priority)

    def finder(self, key: bytes, page: Page, group: int, visited: int, *, is_new: bool) -> Finder:
        """What pages take from *page*, which is under *key* and in flight, by its links.

        Args:
            group: Number of the branch that is its group; 0 if it is in none.
            visited: Pages of its host that were visited.
            is_new: Whether none of its links is known yet, from an earlier visit or announced.
        """
        branch, lowered = self.branches.behind(key, page, group, is_new=is_new), self.branches.lowered
        of_branch, of_group = lowered(key, branch, visited), lowered(key, group, visited)
        is_lone = self.branches.is_lone(page, group)
        return Finder(key[:HOST_BYTES], page.clicks, branch, of_branch, group, of_group, is_lone)

    def next_place(self) -> int:
        """Place of a page that is queued now."""
        self.serial += 1
        return self._order.place(self.serial, self.clock)

    def visited(
        self,
        key: bytes,
        page: Page,
        outcome: str,
        value: int = 0,
        *,
        fetched: Fetched | None = None,
        is_failure: bool = False,
        at: float = 0.0,
        now: float = 0.0,
    ) -> None:
        """*page* left the frontier, as its visit is over and ended with *outcome*.

        Args:
            value: How relevant it is, as pages hold values; 0 if nobody has read it.
            fetched: What the response was; ``None`` leaves what is known of the one before.
            is_failure: Whether it is not to be fetched any more.
            at: Instant of the response that said so, 0 for that of the visit.
            now: End of the visit.
        """
        if value and self._values_links:
            page.score = revalued(page.score, value)
        page.state = VISITED
        page.lowered = page.branch = 0
        page.outcome = outcome
        if outcome in REFUSALS:
            self._frontier.index.put(REFUSED + key, self._networks)
        if fetched is not None:
            page.fetched = fetched.to_number()
        if not is_failure:
            self.n_visited += 1
        else:
            self._ledger.fail(page)
            self.n_failed += 1
            if page.changes is not None:
                self._wake_times.move(key, page.changes, 0.0)
                page.changes = left(page.changes, at or page.visited_at, now)
        self.table.put(key, page)

    def take_over(self, link: Link, known: Page, now: float) -> None:
        """Let the page of *link* wait, or be fetched, as another job did, whose record of it is *known*; it is not known here.

        It gets the cash of *known*, if it waits, out of the virtual page, and its history if it was visited. One that was fetched
        needs no request, but is not revisited without.
        """
        key, ledger = link.key, self._ledger
        page = replace(known, cash=0, history=0, visits=0, marks=(), visited_turn=0.0, changes=None)
        page.canonical, page.is_claimed, page.height = b"", False, 0
        self.serial = max(self.serial, serial_of(page.place))
        ledger.admit(page)
        if known.visits or known.state != QUEUED:
            ledger.visit(page, 0, (), 0, now)
            ledger.inherit(page, 0, known.history)
            page.visited_at = known.visited_at
            page.lowered = page.branch = 0
            self._frontier.count_of(key[:HOST_BYTES])
            if known.changes is not None and known.state != FAILED and link.request:
                unmoved = known.changes._replace(wakes_at=0.0)
                page.changes = self._wake_times.move(key, unmoved, known.changes.wakes_at)
        if known.state == QUEUED:
            ledger.grant(page, known.cash / max(ledger.totals.virtual >> SEED_SHIFT, 1))
            self._queue(link, page, now)
            return
        if link.request:
            self.requests.put(key, link.request)
        self.visited(key, page, known.outcome, is_failure=known.state == FAILED)

    def fail(self, key: bytes, page: Page) -> None:
        """*page*, which was visited, is not to be fetched any more."""
        self._ledger.fail(page)
        self.n_visited -= 1
        self.n_failed += 1
        self.table.put(key, page)

    # -- pages that are one

    def claim(self, key: bytes, page: Page, *, is_claimed: bool) -> None:
        """Whether pages wait to be merged with *page*."""
        page.is_claimed = is_claimed
        self.table.put(key, page)

    def merge(
        self, key: bytes, page: Page, root: bytes, other: Page, now: float, *, outcome: str, adds_score: bool
    ) -> None:
        """Let *other*, under the key *root*, stand for *page* from now on, and have its cash and history."""
        self._ledger.merge(page, other)
        self._lead(key, page, root, outcome)
        self._stand(root, other, now, score=page.score if adds_score else 0, height=page.height + 1)

    def bequeath(self, key: bytes, page: Page, where: bytes, outcome: str) -> tuple[int, int]:
        """Let a page of another shard, at the address *where*, stand for *page*; returns its cash and history, for that one."""
        bequest = self._ledger.bequeath(page)
        self._lead(key, page, where, outcome)
        return bequest

    def inherit(
        self, key: bytes, page: Page, now: float, *, units: int, history: int, score: int, height: int
    ) -> None:
        """Let *page* stand for a page of another shard that had *units*, a *history*, a *score* and *height* - 1."""
        self._ledger.inherit(page, units, history)
        self._stand(key, page, now, score=score, height=height)

    def _lead(self, key: bytes, page: Page, to: bytes, outcome: str) -> None:
        page.canonical = to
        page.outcome = outcome
        self.table.put(key, page)

    def _stand(self, key: bytes, page: Page, now: float, *, score: int, height: int) -> None:
        page.score += score
        page.height = max(page.height, height)
        self._replace(key, page, now)

    # -- payments

    def pay(  # noqa: PLR0912, PLR0915  # calls for each link would cost more than all of it
        self,
        links: Collection[Link],
        targets: Sequence[Page | None],
        paid: Sequence[int],
        now: float,
        *,
        found: int,
        finder: Finder = ELSEWHERE,
    ) -> None:
        """Pay the pages that a visited page links to, and let those wait that are new.

        Args:
            links: One to each page.
            targets: Those pages, ``None`` if they are not known.
            paid: Units for each.
            found: What the visit adds to their scores.
            finder: The visited page; :data:`ELSEWHERE` for one of another shard.
        """
        host, clicks, branch, _, group, group_lowered, is_lone = finder
        values_links, keep, front_queue = self._values_links, self.table.put, self._order.front_queue
        catch_up = self._ledger.catch_up if self._ledger.has_handed else None
        requests: dict[bytes, bytes] = {}
        merged: list[tuple[bytes, int]] = []
        to_new = n_alike = 0
        new: dict[bytes, tuple[str, dict[bytes, bytes]]] = {}  # by key of the host, with its name
        moves: dict[bytes, list[Move]] = {}  # by key of the host
        leaving: list[tuple[bytes, int]] = []
        for link, page, units in zip(links, targets, paid, strict=True):
            key = link.key
            if page is None:
                page = self._admit(link, units, found, finder)  # noqa: PLW2901
                at = key[:HOST_BYTES]
                if group and at == host and self.branches.group_of(link.request) == group:
                    if n_alike or not is_lone:  # a single one may be in the branch of the page, as in a chain
                        page.branch, page.lowered = group, group_lowered
                    n_alike += 1
                number = front_queue(page, units)
                if link.priority:
                    number += link.priority << PRIORITY_BITS
                page.front_queue = number
                requests[key] = link.request
                keep(key, page)
                if at not in new:
                    new[at] = (link.host, {})
                # queue_row, without a call for each link
                new[at][1][ROW_STARTS[number] + page.place.to_bytes(8, "big")] = key[HOST_BYTES:]
            elif link.again or (page.purpose and self.is_for_more(link, page)):
                page.score += found
                self.repeat(link, page, now, units)
            elif page.canonical:
                merged.append((key, units))  # later: the page that stands for it may be among the others
            elif page.state != FAILED:
                # Announced pages were found by nobody yet.
                if page.clicks > clicks + 1 and 0 < found <= page.score and key[:HOST_BYTES] == host:
                    page.clicks = clicks + 1
                if page.branch and (page.branch not in (branch, group) or key[:HOST_BYTES] != host):
                    leaving.append((key, page.branch))
                    page.branch = page.lowered = 0
                elif group_lowered and page.branch == group and page.lowered < group_lowered:
                    page.lowered = group_lowered  # at once, as few are lowered when their turn comes
                page.score += found
                page.score = self._valued(page, link) if values_links else page.score
                if catch_up is not None:
                    catch_up(page)
                page.cash += units
                to_new += units if page.visits < 2 else 0
                keep(key, page)
                if page.state != QUEUED:
                    if self._worth is not None:
                        self._offer_unknown(key, page, now)
                    continue
                is_new = self._worth is None or page.changes is None
                number = (
                    front_queue(page, page.cash) + (page.front_queue & _OF_PRIORITY)
                    if is_new
                    else self._front_queue(key, page, now)
                )
                if number != page.front_queue:
                    place = page.place.to_bytes(8, "big")
                    move = ROW_STARTS[page.front_queue] + place, ROW_STARTS[number] + place, key[HOST_BYTES:]
                    page.front_queue = number
                    moves.setdefault(key[:HOST_BYTES], []).append(move)
        if leaving:
            self.branches.left(leaving)
        if group and host in new:
            self.branches.found(host, group, n_alike, len(new[host][1]) - n_alike)
        self.requests.put_all(requests)
        self._ledger.count_new(to_new)
        let_in = self._frontier.insert_all if self._bonus_of is None else self._let_in
        for at, (name, rows) in new.items():
            let_in(at, name, rows, now)
        for at, moved in moves.items():
            self._frontier.move(at, moved, now)
        for key, units in merged:
            self._pay_root(key, units, now, found=found)

    def _let_in(self, host: bytes, name: str, rows: dict[bytes, bytes], now: float) -> None:
        """Queue new pages of the host under key *host*, called *name*, by their queue rows."""
        bonus = self._bonus(host, name)
        self._frontier.insert_all(host, name, rows, now)
        if bonus:
            self.enrich(host + next(iter(rows.values())), bonus, now)

    def _pay_root(self, key: bytes, units: int, now: float, *, found: int) -> None:
        """Pay *units* to the page that stands for the one under *key*."""
        root, page = self.root(key)
        if page is None and len(root) > PAGE_BYTES:
            self._mail.pay_on(root, units, found=found)
            return
        if page is None or page.state == FAILED:
            self._ledger.forfeit(units)
            return
        page.score += found
        self._ledger.catch_up(page)
        self._ledger.pay(page, units)
        if page.state != QUEUED:
            self._offer_unknown(root, page, now)
        self._replace(root, page, now)

    def _offer_unknown(self, key: bytes, page: Page, now: float) -> None:
        """Let *page* be due if it was visited by a run that visited pages once: nothing looks at it by itself."""
        is_asleep = page.changes is None or not page.changes.wakes_at
        if self._worth is not None and is_asleep and not self._worth.policy_of(key).is_early(page, now):
            self._offer(key, page, now)

    # -- steps of the above

    def _front_queue(self, key: bytes, page: Page, now: float, priority: int | None = None) -> int:
        """Front queue of *page*, which is under *key* and whose cash is up to date, as of now; of its own *priority* if none is given."""
        cash = page.cash
        if self._worth is not None and page.changes is not None:
            cash = FIRST if key in self._due.first else self._worth.of(key, page, now)
        number = self._order.front_queue(page, cash)
        return number + (page.front_queue & _OF_PRIORITY if priority is None else priority << PRIORITY_BITS)

    def _admit(self, link: Link, cash: int, score: int = 0, finder: Finder = ELSEWHERE) -> Page:
        """A new page with *cash*, in its class, found by a link of *finder*."""
        self.serial = number = self.serial + 1
        page = Page(QUEUED, self._order.place(number, self.clock), shift=link.shift, score=score)
        if link.key[:HOST_BYTES] == finder.host:
            page.clicks = min(finder.clicks + LONE_CLICK, MOST_CLICKS)
            page.branch, page.lowered = finder.branch, finder.lowered
        if self._values_links:
            page.score |= link.value
            if link.lead:
                self._leads.put(link.key, link.lead)
        if self._is_chosen is not None:
            page.is_chosen = self._is_chosen(link.host)
        if link.is_unfiltered:
            page.purpose = self._purpose_of(link.request)
        self._ledger.admit(page, cash)
        return page

    def _queue(self, link: Link, page: Page, now: float) -> None:
        """Let *page*, which has no queue row, wait for the request in *link*."""
        page.state = QUEUED
        page.outcome = ""
        page.shift = link.shift
        page.front_queue = self._front_queue(link.key, page, now, link.priority)
        self.requests.put(link.key, link.request)
        self.table.put(link.key, page)
        bonus = self._bonus(link.key[:HOST_BYTES], link.host)
        self._frontier.insert(link.key, link.host, page.front_queue, page.place, now)
        if bonus:
            self.enrich(link.key, bonus, now)

    def _bonus(self, host: bytes, name: str) -> float:
        """Seeds' cash that is to be granted with the next page of the host under key *host*, called *name*: 0 if it has any."""
        if self._bonus_of is None or self._frontier.host(host) is not None:
            return 0.0
        return self._bonus_of(name) or 0.0

    def _revive(self, page: Page) -> None:
        """*page*, which failed or was visited, is about to wait again."""
        if page.state == FAILED:
            self.n_failed -= 1
        else:
            self.n_visited -= 1
        if page.state == FAILED or page.canonical:
            self._ledger.revive(page)

    def _offer(self, key: bytes, page: Page, now: float) -> None:
        """Let *page*, which was visited and whose cash is up to date, be due."""
        if self._worth is not None:
            brings = self._worth.brings(key, page, now)
            self._due.offer(key, self._worth.queue(key, page, now), page.visited_at, brings)

    def _valued(self, page: Page, link: Link) -> int:
        """Score of *page* once *link* to it is known: of several links the best counts, until it was visited."""
        if not (page.state == QUEUED and link.value > page.score & LARGEST_VALUE > 0):
            return page.score
        if link.lead:
            self._leads.put(link.key, link.lead)
        return revalued(page.score, link.value)

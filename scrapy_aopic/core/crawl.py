"""One crawl's memory: what is known, what is queued, who holds how much cash.

This is the port between the frontier and whatever fetches: :meth:`Crawl.lease` hands out the best page that
may be asked now, :meth:`Crawl.settle` is the whole of one visit in one step. Between two steps the sum of all
cash is :data:`~scrapy_aopic.core.ledger.TOTAL`, the seen-set is the page table, and a queued page has exactly
one queue row, so none of them can disagree with another.

A leased page stays queued in the store until it is settled: a process that dies loses nothing.

Time is given by the caller, in seconds since the epoch; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.exceptions import StorageError

from .frontier import Empty, Frontier, NotBefore, front_queue
from .ledger import Ledger, Spending, Totals
from .politeness import Politeness
from .ports import Family, Store
from .records import FORMAT, HOST_BYTES, Link, Page, State, pack, pack_page, ticket_key, unpack, unpack_page
from .tables import BlobTable, RecordTable
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

TOTALS_KEY = b"totals"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a crawl spends its cash and treats its hosts; see docs/settings.md for each.

    Attributes:
        max_active: Hosts kept in memory.
        page_cache: Page records kept in memory.
        commit_within: Seconds; no page is leased later than this after the last commit that landed, so that a
            crash leaves no request older than that unknown.
    """

    window: Window = field(default_factory=Window)
    politeness: Politeness = field(default_factory=Politeness)
    share: float | None = 0.15
    endowment: float = 6.0
    spending: Spending = "endowment"
    max_active: int = 10_000
    page_cache: int = 100_000
    commit_within: float = 1.0


class Lease(NamedTuple):
    """A page handed out to be fetched; it stays queued until it is settled.

    Attributes:
        key: Page key.
        host: Name of its host.
        request: The request as bytes.
        cash: Units that the visit will distribute; what comes later stays for the next visit.
        visits: Visits before this one.
    """

    key: bytes
    host: str
    request: bytes
    cash: int
    visits: int


class Counts(NamedTuple):
    """Pages by state, and hosts."""

    queued: int
    visited: int
    failed: int
    hosts: int


def read_totals(store: Store) -> dict[str, Any]:
    """The totals of the last commit, the ledger's under ``"ledger"``; empty if there was none.

    Raises:
        StorageError: If the store was written in another format.
    """
    data = store.get_many(Family.META, (TOTALS_KEY,))[0]
    if data is None:
        return {}
    saved: dict[str, Any] = unpack(data)
    if saved["format"] != FORMAT:
        raise StorageError(
            f"This job was written in format {saved['format']}, and this scrapy-aopic reads format {FORMAT}: use "
            "the version that wrote it, or a new job folder. Nothing was changed."
        )
    return {**saved, "ledger": Totals(**saved["ledger"])}


class Crawl:
    """The ledger, the frontier and the seen-set of one job, on one store.

    Invariant: for every page, ``QUEUED`` means one queue row, in the front queue of its cash; the cash of all
    pages and of the virtual page is ``TOTAL``; the counts are those of the store. :mod:`.audit` checks it.

    Args:
        store: Where it is remembered. The caller writes what :meth:`take_changes` returns.
        policy: How cash is spent.
        now: Seconds since the epoch.

    Raises:
        StorageError: If the store was written in another format.
    """

    def __init__(self, store: Store, policy: Policy, now: float) -> None:
        self._policy = policy
        self._pages = RecordTable(store, Family.PAGES, pack_page, unpack_page, policy.page_cache)
        self._requests = BlobTable(store, Family.REQUESTS)
        self._leases: dict[bytes, Lease] = {}
        self._visited = self._failed = self._order = 0
        self._changed = False
        self.frontier = Frontier(store, max_active=policy.max_active)
        saved = read_totals(store)
        totals: Totals = saved["ledger"] if saved else Totals()
        self.ledger = Ledger(
            totals, policy.window, share=policy.share, endowment=policy.endowment, spending=policy.spending
        )
        self.started_at = now
        self.created_at: float = now
        self.known_before = 0
        self.is_resumed = bool(saved)
        self.was_clean = True
        self._not_before = 0.0
        if saved:
            self._resume(saved, now)

    def _resume(self, saved: dict[str, Any], now: float) -> None:
        self._visited, self._failed = saved["visited"], saved["failed"]
        self._order = self.known_before = saved["order"]
        self.created_at = saved["created_at"]
        self.was_clean = saved["is_clean"]
        leased = self.frontier.load(
            saved["queued"], saved["hosts"], list(saved["shelved"]), saved["parked"], now
        )
        if self.was_clean:
            return
        politeness, seen = self._policy.politeness, saved["saved_at"] + saved["commit_within"]
        for key, leased_at in leased:
            self.frontier.defer(key, politeness.pause_after_crash(now, leased_at, seen), 0.0)
        # Hosts that the dead process first asked after its last commit are not told apart from the others.
        self._not_before = politeness.pause_after_crash(now, saved["saved_at"], seen)

    # -- asking

    @property
    def counts(self) -> Counts:
        """Pages by state and hosts, leased pages counted as queued."""
        return Counts(self.frontier.queued, self._visited, self._failed, self.frontier.n_hosts)

    def __len__(self) -> int:
        """Pages that wait and are not leased."""
        return self.frontier.pending

    @property
    def n_leased(self) -> int:
        """Pages handed out and not settled."""
        return len(self._leases)

    def page(self, key: bytes) -> Page | None:
        """The page under *key*; not to be changed."""
        return self._pages.get(key)

    def importance(self, page: Page) -> float:
        """Estimated importance of *page*, 0 to 1; all pages together have 1."""
        return self.ledger.importance(page)

    def not_before(self, host: bytes) -> float:
        """Instant before which the host under key *host* must be left alone."""
        known = self.frontier.host(host)
        return max(known.not_before if known else 0.0, self._not_before)

    def when(self) -> NotBefore | Empty:
        """The earliest instant at which a page may be leased; it may be past."""
        when = self.frontier.when()
        return NotBefore(max(when.instant, self._not_before)) if isinstance(when, NotBefore) else when

    @property
    def cache_hits(self) -> tuple[int, int]:
        """Page look-ups answered from memory, and from the store."""
        return self._pages.hits, self._pages.misses

    # -- what comes from outside

    def seed(self, link: Link, now: float, *, is_endowed: bool = True) -> bool:
        """Queue a page that no page in work links to, with a seed's cash from the virtual page if *is_endowed*.

        Returns:
            False if the page is known and need not be fetched again.
        """
        page = self._pages.get(link.key)
        if page is not None and not link.again:
            return False
        if page is None:
            page = self._admit(link, 0)
            if is_endowed:
                self.ledger.grant(page)
            self._queue(link, page, now)
        else:
            self._again(link, page, now)
        self._changed = True
        return True

    def lease(self, now: float) -> Lease | NotBefore | Empty:
        """Hand out the best page whose host may be asked at *now*."""
        if now < self._not_before:
            return NotBefore(self._not_before) if len(self) else Empty()
        taken = self.frontier.take(now)
        if isinstance(taken, (NotBefore, Empty)):
            return taken
        page = self._pages.get(taken.page)
        assert page is not None, "a queue row without its page"
        self.ledger.settle(page)
        if self.ledger.spend_virtual(page.cash):
            self.ledger.settle(page)
        self._relevel(taken.page, page, now)
        self._pages.put(taken.page, page)
        host = self.frontier.active[taken.host]
        lease = Lease(taken.page, host.name, self._requests.get(taken.page) or b"", page.cash, page.visits)
        self._leases[taken.page] = lease
        self._changed = True
        return lease

    # -- what becomes of a lease

    def defer(self, host: bytes, not_before: float, transfer: float) -> None:
        """A transfer from the host under key *host* took *transfer* seconds: leave it alone until *not_before*."""
        self.frontier.defer(host, not_before, transfer)
        self._changed = True

    def release(self, lease: Lease, now: float) -> None:
        """Nothing is asked of the lease's host any more; the page itself may still be in work."""
        self.frontier.release(lease.key[:HOST_BYTES], now)
        self._changed = True

    def settle(
        self,
        lease: Lease,
        links: Sequence[Link],
        now: float,
        *,
        n_links: int = 0,
        outcome: str = "",
        is_failure: bool = False,
    ) -> None:
        """End the visit of a leased page: its cash goes to its history and to the pages it links to.

        Args:
            links: The requests to make, in document order; of links to one page the first counts, links of the
                page to itself do not.
            n_links: Distinct links found, if filters dropped some; their shares go to the virtual page.
            outcome: Why it is no ordinary page; ``""`` for an ordinary one.
            is_failure: The page will not be visited any more; later cash for it goes to the virtual page.
        """
        del self._leases[lease.key]
        page = self._pages.get(lease.key)
        assert page is not None, "a lease without its page"
        targets: dict[bytes, Link] = {}
        extra: list[Link] = []
        for link in links:
            if link.key not in targets and link.key != lease.key:
                targets[link.key] = link
            elif link.again:
                extra.append(link)
        known = self._pages.get_many(list(targets))
        self.frontier.preload([key[:HOST_BYTES] for key in targets])
        n_live = sum(
            target is None or target.state != State.FAILED or link.again
            for target, link in zip(known, targets.values(), strict=True)
        )
        host = self.frontier.finish(lease.key, page.level, page.order)
        each = self.ledger.visit(
            page,
            lease.cash,
            max(n_links, len(targets)),
            n_live,
            now,
            host_visited=None if outcome else host.visited,
        )
        page.outcome = outcome
        page.state = State.VISITED
        if is_failure:
            self.ledger.fail(page)
            self._failed += 1
        else:
            self._visited += 1
        host.visited += page.visits == 1
        self._pages.put(lease.key, page)
        for target, link in zip(known, targets.values(), strict=True):
            if target is None:
                self._queue(link, self._admit(link, each), now)
                continue
            if link.again:
                self._again(link, target, now, each)
            elif target.state != State.FAILED:
                self._credit(link.key, target, each, now)
        for link in extra:
            again = self._pages.get(link.key)
            assert again is not None, "a target without its page"
            self._again(link, again, now)
        self._changed = True

    def put_back(self, lease: Lease, link: Link, now: float) -> None:
        """End a lease without a visit: the page waits again, with its cash, for the request in *link*."""
        del self._leases[lease.key]
        page = self._pages.get(lease.key)
        assert page is not None, "a lease without its page"
        if link.request != lease.request:
            self._requests.put(lease.key, link.request)
        self.frontier.put_back(lease.key, page.level, page.order, now)
        page.shift = link.shift
        self._relevel(lease.key, page, now)
        self._pages.put(lease.key, page)
        self._changed = True

    # -- steps of the above

    def _admit(self, link: Link, cash: int) -> Page:
        """Let a new page come into being."""
        self._order += 1
        page = Page(State.QUEUED, self._order, shift=link.shift)
        self.ledger.admit(page, cash)
        return page

    def _queue(self, link: Link, page: Page, now: float) -> None:
        """Let *page*, which has no queue row, wait for the request in *link*."""
        page.state = State.QUEUED
        page.outcome = ""
        page.shift = link.shift
        page.level = front_queue(page.cash, page.shift)
        self._requests.put(link.key, link.request)
        self._pages.put(link.key, page)
        self.frontier.insert(link.key, link.host, page.level, page.order, now)

    def _again(self, link: Link, page: Page, now: float, cash: int = 0) -> None:
        """Queue a request for a page that is known: the page itself if it is done, else a ticket beside it."""
        self.ledger.settle(page)
        if page.state != State.QUEUED:
            if page.state == State.FAILED:
                self.ledger.revive(page)
                self._failed -= 1
            else:
                self._visited -= 1
            page.cash += cash
            self._queue(link, page, now)
            return
        half = 0 if link.key in self._leases else self.ledger.split(page)
        ticket = self._admit(link, cash + half)
        self._relevel(link.key, page, now)
        self._pages.put(link.key, page)
        self._queue(link._replace(key=ticket_key(link.key, ticket.order)), ticket, now)

    def _credit(self, key: bytes, page: Page, units: int, now: float) -> None:
        self.ledger.settle(page)
        page.cash += units
        self._relevel(key, page, now)
        self._pages.put(key, page)

    def _relevel(self, key: bytes, page: Page, now: float) -> None:
        """Move the queue row of *page* to the front queue of its cash."""
        if page.state != State.QUEUED:
            return
        level = front_queue(page.cash, page.shift)
        if level != page.level:
            self.frontier.move_up(key, page.level, level, page.order, now)
            page.level = level

    # -- commits

    @property
    def has_changes(self) -> bool:
        """Whether anything happened since the last :meth:`take_changes`."""
        return self._changed

    def take_changes(self, now: float, *, is_clean: bool = False) -> dict[Family, dict[bytes, bytes | None]]:
        """Everything that changed, as one batch that leaves the store in a state of its own.

        The caller writes it and then calls :meth:`changes_landed` or :meth:`changes_failed`; at most one batch
        is in flight. Steps may go on meanwhile.
        """
        self._changed = False
        batch = self.frontier.take_changes()
        batch[Family.PAGES] = self._pages.take()
        batch[Family.REQUESTS] = self._requests.take()
        batch[Family.META] = {**batch[Family.META], TOTALS_KEY: self._totals(now, is_clean)}
        return batch

    def _totals(self, now: float, is_clean: bool) -> bytes:
        frontier = self.frontier
        return pack(
            {
                "format": FORMAT,
                "ledger": asdict(self.ledger.totals),
                "queued": frontier.queued,
                "visited": self._visited,
                "failed": self._failed,
                "hosts": frontier.n_hosts,
                "order": self._order,
                "shelved": frontier.n_shelved,
                "parked": frontier.n_parked,
                "created_at": self.created_at,
                "saved_at": now,
                "commit_within": self._policy.commit_within,
                "is_clean": is_clean,
            }
        )

    def changes_landed(self) -> None:
        """The batch in flight is in the store."""
        self.frontier.changes_landed()
        self._pages.landed()
        self._requests.landed()

    def changes_failed(self) -> None:
        """The batch in flight did not reach the store; the next one will hold it too."""
        self.frontier.changes_failed()
        self._pages.failed()
        self._requests.failed()
        self._changed = True

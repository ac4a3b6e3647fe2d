"""The port between a frontier and its caller: the calls of a crawl, their order, and their results.

:class:`CrawlPort` has the calls that any caller needs, and :class:`SessionPort` those of a Scrapy session.
:class:`~.crawl.Crawl` satisfies both. The shards of a process (:mod:`scrapy_aopic.job.shard_router`) satisfy the second one
together, and each of them satisfies both.

One visit::

    lease = crawl.lease(now)                      # a Lease: its host may be fetched from, once by this lease
    gap = crawl.transferred(lease.host, TransferResult(seconds), now)
    crawl.release(lease, now)                     # the host: it is free again when its gap is over
    crawl.settle(lease, links, now)               # the page: its cash is spent, its links are known

Rule 1: each lease is released once and ended once, by ``settle`` or by ``put_back``. A host that is not released is
never fetched from again by this process, if it has one connection; a page whose lease is not ended stays in flight. A process that dies leaves
both to the next one.

Rule 2: ``transferred`` comes before ``release``, or the host may be fetched from again at once. Each transfer is
reported, including those without a lease (robots.txt, say).

Rule 3: ``release`` and the end of the lease may come in either order: the transfer is over long before its links are
known.

Rule 4: a call for a lease that is no longer held changes nothing, and tells the caller why:

==============  ==========================  ===========================================  ==========================
call            while the lease is held     once more                                    lease of another run, or lost
==============  ==========================  ===========================================  ==========================
``settle``      ``OK``, and it is ended     ``DUP``                                      ``STALE``
``put_back``    ``OK``, and it is ended     ``DUP``                                      ``STALE``
``release``     ``OK``                      ``DUP``                                      ``STALE``
==============  ==========================  ===========================================  ==========================

Rule 5: arguments are checked before anything is changed. A call that raises :class:`~scrapy_aopic.exceptions.CallError`
has done nothing.

Rule 6: nothing is on the disk before the caller has written the batch of ``take_changes`` and called ``changes_landed``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .fetched import Fetched
from .revisits.rates import Version

if TYPE_CHECKING:
    from .counters import Counters
    from .duplicates import Judgement, Text
    from .focus.harvest import Harvest
    from .focus.leads import Lead
    from .focus.sample import Sampled
    from .focus.strategy import Chance
    from .frontier.frontier import Empty, NotBefore, Unlocated
    from .frontier.host_state import HostState
    from .ledger import Totals
    from .politeness import Gap, Politeness, TransferResult
    from .ports import Batch
    from .records import Link, Page
    from .revisits.rounds import Round


class Lease(NamedTuple):
    """A page handed out to be fetched; it stays queued until it is settled.

    Attributes:
        key: Page key.
        host: Name of its host.
        request: The request as bytes.
        cash: Units that the visit will distribute; what comes later stays for the next visit.
        visits: Visits before this one.
        number: Which lease it is: larger than that of any lease before it, also of earlier runs.
    """

    key: bytes
    host: str
    request: bytes
    cash: int
    visits: int
    number: int = 0


class Ending(Enum):
    """The result of a call that ends a lease, or a part of it."""

    OK = "ok"
    """It was done."""

    DUP = "dup"
    """It had been done before; nothing was changed."""

    STALE = "stale"
    """The lease is not of this run; nothing was changed."""


class Settled(NamedTuple):
    """The result of a visit.

    Attributes:
        ending: Whether the visit counted.
        paid: Units that each distinct link was paid, in document order; 0 for those to pages that failed.
    """

    ending: Ending
    paid: Sequence[int] = ()


class Findings(NamedTuple):
    """Findings of a visit, besides links.

    Attributes:
        outcome: Why the page is not an ordinary one; ``""`` if it is.
        is_failure: The page will not be visited any more; later cash for it goes to the virtual page.
        n_links: Distinct links found, if filters dropped some; their shares go to the virtual page.
        weight: Weight of all distinct links found, if they differ in weight.
        version: The version of the page that the response states, if pages are revisited.
        same_as: Key of the page that it claims to be, from the time when its links are paid; not needed for a duplicate.
        is_if_same: Whether that only counts if they have the same words.
        same_host: Name of the host of the page *same_as*; needed only if that may be of another shard and is not among
            the links.
        value: Relevance of the page, encoded like the value of a link; 0 if it was not read.
        is_relevant: Whether it counts as relevant; only if it has a value.
        gist: What it is about, if it may be relevant (:func:`.focus.calibration.gist_of`).
        wishes: What its owner asks of robots, and how it may be used; empty for nothing.
        fetched: What the response was; ``None`` if there was none, or it only said that nothing has changed.
        dates: When pages were changed last according to the page, by key: those of a sitemap.
        every: Seconds after which it is to have news by its own words, 0 if it does not say: those of a feed.
    """

    outcome: str = ""
    is_failure: bool = False
    n_links: int = 0
    weight: int = 0
    version: Version | None = None
    same_as: bytes = b""
    is_if_same: bool = False
    same_host: str = ""
    value: int = 0
    is_relevant: bool = False
    gist: bytes = b""
    wishes: tuple[str, str] | tuple[()] = ()
    fetched: Fetched | None = None
    dates: dict[bytes, float] | None = None
    every: float = 0.0


ORDINARY = Findings()
"""An ordinary page, of which no more is known than its links."""


class Counts(NamedTuple):
    """Pages by state, and hosts."""

    queued: int
    visited: int
    failed: int
    hosts: int


class HostsByPlace(NamedTuple):
    """Numbers of hosts.

    Attributes:
        known: Of which the crawl knows a page.
        ready: That may be fetched from.
        waiting: That wait in memory for their time.
        shelved: That are on shelves.
        parked: That wait on the disk for their time, without dead ones.
        dead: Dead hosts that wait on the disk for their time.
    """

    known: int
    ready: int
    waiting: int
    shelved: int
    parked: int
    dead: int


class VisitCalls(Protocol):
    """The calls of one visit; see the rules above. Times are seconds since the epoch."""

    def seed(
        self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0, found_on: bytes = b""
    ) -> bool:
        """Queue a page that no page in flight pays.

        Args:
            is_endowed: Whether it gets a seed's cash from the virtual page.
            worth: How many seeds' cash.
            found_on: Key of the page in flight that links to it, if there is one; for a page that is not endowed.

        Returns:
            False if the page is known and need not be fetched again.
        """

    def lease(self, now: float) -> Lease | Unlocated | NotBefore | Empty:
        """Hand out the best page whose host may be fetched from at *now*, ask for the address of a host, or say when to call again."""

    def transferred(self, name: str, result: TransferResult, now: float) -> Gap:
        """Report that a transfer from the host called *name* ended at *now*; returns for how long the host is left alone."""

    def release(self, lease: Lease, now: float) -> Ending:
        """Report that the transfer of *lease* is over; the page itself may still be in flight."""

    def settle(self, lease: Lease, links: Sequence[Link], now: float, found: Findings = ORDINARY) -> Settled:
        """End the visit of a leased page: its cash goes to its history and to the pages it links to.

        Args:
            links: The requests to make, in document order; of links to one page the first counts, links of the page to
                itself do not.

        Raises:
            CallError: If an argument cannot be right; nothing was changed.
        """

    def put_back(self, lease: Lease, link: Link, now: float, *, has_failed: bool = False) -> Ending:
        """End a lease without a visit: the page waits again, with its cash, for the request in *link*.

        Args:
            has_failed: Whether the page waits behind the others of its host, for one round of these.
        """


class Committed(Protocol):
    """The calls with which the changes of a crawl are written to its store."""

    @property
    def has_changes(self) -> bool:
        """Whether anything happened since the last :meth:`take_changes`."""

    @property
    def n_changed(self) -> int:
        """Pages that are new or were changed since then: how large the next batch is."""

    def take_changes(self, now: float, *, is_clean: bool = False) -> Batch:
        """Everything that changed, as one batch that leaves the store in a state of its own.

        The caller writes it and then calls :meth:`changes_landed` or :meth:`changes_failed`; at most one batch is in
        flight. Steps may go on meanwhile.
        """

    def changes_landed(self) -> None:
        """The batch in flight is in the store."""

    def changes_failed(self) -> None:
        """The batch in flight did not reach the store; the next one will hold it too."""


class CrawlPort(VisitCalls, Committed, Protocol):
    """A crawl for any caller: it hands out pages, takes visits, and is kept in a store."""

    @property
    def counts(self) -> Counts:
        """Pages by state, and hosts; pages in flight count as queued."""


class PageCalls(Protocol):
    """Look-ups of pages, and reading ahead. Keys are page keys; hosts are names."""

    def page(self, key: bytes) -> Page | None:
        """The page under *key*, if it is known and its host was named before; not to be changed."""

    def find(self, key: bytes, host: str, lease: Lease | None = None) -> Page | None:
        """The page under *key*, of the host called *host*, to which the page of *lease* links."""

    def find_many(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> list[Page | None]:
        """The pages under *keys*, of the hosts called *hosts*, to which the page of *lease* links, with one read."""

    def request(self, key: bytes) -> bytes:
        """The request of the page under *key*; empty if it is not known."""

    def worth(self, key: bytes, page: Page) -> tuple[float, int]:
        """Estimated importance, 0 to 1, and cash in units of *page*, which is under *key*; all importances add up to 1."""

    def is_from_before(self, page: Page | None) -> bool:
        """Whether *page*, which a spider starts from, may be a start of another run or process: it was queued there."""

    @property
    def prefetches(self) -> bool:
        """Whether the store reads what is wanted next while the crawl goes on; if not, the methods below do nothing."""

    def prefetch_text(self, lease: Lease, text: Text, key: bytes = b"") -> None:
        """Begin to read what :meth:`SamePageCalls.judge` will look at for the same arguments."""

    def prefetch_links(self, keys: Sequence[bytes], hosts: Sequence[str], lease: Lease) -> int:
        """Begin to read what :meth:`find_many` will look at for the same arguments; returns a number for :meth:`has_come`."""

    def has_come(self, number: int, lease: Lease) -> bool:
        """Whether what :meth:`prefetch_links` began to read for the page of *lease* is here."""


class HostCalls(Protocol):
    """Look-ups and changes of hosts. A *host* in bytes is its key, a *name* its name, an *origin* scheme, name and port."""

    @property
    def politeness(self) -> Politeness:
        """For how long hosts are left alone."""

    @property
    def paused_until(self) -> float:
        """Instant before which no host at all is requested, because of a crash; 0 if there was none."""

    def hold(self, host: bytes, origin: str, not_before: float, *, is_for_all: bool) -> None:
        """Let the links to *origin* wait until *not_before*, if not longer.

        Args:
            is_for_all: Whether what was requested on purpose waits, too.
        """

    def defer(self, host: bytes, not_before: float) -> None:
        """Leave the host under key *host* alone until *not_before*, if not longer."""

    def charge(self, host: bytes, seconds: float, before: float, now: float) -> None:
        """Report that an answer of the host under key *host* has taken *seconds* of the processor, *before* at the last call.

        What is ordinary costs nothing. For more, the host is left alone as after a transfer of that time, and the budget of its
        domain is charged.
        """

    def lift(self, host: bytes, origin: str, now: float) -> float:
        """Let *host* wait for an ordinary gap only, and *origin* for none: there is another way to them; returns the gap.

        What its answers have cost and what rules ask for is part of it; it is infinite if the host is not known.
        """

    def set_crawl_delay(self, name: str, seconds: float, now: float) -> None:
        """Have *seconds* between requests to a host, whose robots.txt was just read."""

    def allow(self, name: str, what: int) -> None:
        """Store with the host called *name*, if it is known, which requests the caller allows: the bits of *what*."""

    def allowed(self, name: str) -> int:
        """The number that :meth:`allow` has stored with the host called *name*; 0 if there is none."""

    def locate(self, host: Unlocated, address: str, now: float) -> None:
        """*host* has *address*; empty if that could not be found out."""

    def not_before(self, host: bytes) -> float:
        """Instant before which a host must be left alone."""

    def pages_left(self, name: str) -> int | None:
        """Pages that the host called *name* may still have; ``None`` for any number, or if it is not known."""

    def longest_gap(self, name: str) -> float:
        """Longest gap, in seconds, of a host after a transfer that shows nothing special."""

    def is_dead(self, host: bytes, origin: str = "") -> bool:
        """Whether the crawl does not wait for *origin*."""

    def silent_until(self, host: bytes, origin: str) -> float:
        """Instant until which links to *origin* wait because it is silent; 0 if it is not."""

    def down(self, host: bytes, origin: str = "") -> int:
        """Transfers in a row that showed *origin* to be down."""

    def robots(self, key: bytes) -> bytes | None:
        """The data that :meth:`keep_robots` has stored under *key*."""

    def keep_robots(self, key: bytes, data: bytes) -> None:
        """Store *data* about a robots.txt under *key* (a page key of its host)."""

    def block(self, is_blocked: Callable[[str], str] | None, now: float) -> None:
        """Lease no page of blocked hosts: those for whose names *is_blocked* returns a reason. ``None`` blocks none.

        Their pages stay queued, keep their cash and get more; the crawl does not wait for them.
        """


class SamePageCalls(Protocol):
    """Pages that are the same; see :mod:`.merging`."""

    def judge(self, lease: Lease, text: Text | None, key: bytes = b"") -> Judgement:
        """Note the *text* of a leased page; returns which pages had it, or nearly the same, before.

        Args:
            text: ``None`` for the text that it had at its last visit.
            key: Key of the page itself, if the lease is of a repeat.
        """

    def give_way(self, lease: Lease, other: bytes, key: bytes = b"") -> bool:
        """Let a leased page, which was judged and says that it is the one under *other*, be a duplicate of that.

        Args:
            key: Key of the page itself, if the lease is of a repeat.

        Returns:
            False if that one is not known to have the same text.
        """

    def same_as(self, key: bytes) -> bytes:
        """Key of the page that the one under *key* was found to be the same as, in flight or before; ``b""`` if none."""


class TopicCalls(Protocol):
    """Calls of a crawl for a topic; see :mod:`.focus.strategy`."""

    @property
    def harvest(self) -> Harvest:
        """How many pages were relevant, in all runs."""

    def strategy(self) -> bytes | None:
        """The data that :meth:`keep_strategy` has stored; ``None`` if it has not."""

    def keep_strategy(self, data: bytes) -> None:
        """Store *data*, the knowledge of a strategy, in the next commit."""

    def lead(self, key: bytes) -> bytes:
        """The lead of the page under *key*, packed; empty if that is not known."""

    def gist(self, key: bytes) -> bytes:
        """What the page under *key* is about (:func:`.focus.calibration.gist_of`); empty if that is not known."""

    def revalue(
        self, worth: Callable[[Lead], int | None], now: float, begin: bytes, n: int
    ) -> tuple[int, bytes]:
        """Give up to *n* waiting pages after the key *begin* new values.

        Args:
            worth: The value of a page for its lead, encoded as links have it; ``None`` to leave it as it is.

        Returns:
            Number of pages that have another value now, and the key to go on with; that is empty at the end.
        """

    def begin_sample(self, size: int, chance: Chance) -> None:
        """Set aside up to *size* pages for people to label, drawn by *chance*."""

    def set_aside(self, key: bytes, page: Sampled, text: Callable[[], str]) -> None:
        """Maybe set aside *page*, which was graded and is under *key*, with the result of *text*."""


class Figures(Protocol):
    """Figures of a crawl, for views and for the decision whether it goes on."""

    @property
    def counts(self) -> Counts:
        """Pages by state, and hosts; pages in flight count as queued."""

    def __len__(self) -> int:
        """Pages that wait and are not leased."""

    @property
    def counters(self) -> Counters:
        """Counts of what was done; middlewares count there, too."""

    @property
    def totals(self) -> Totals:
        """Sums of cash."""

    @property
    def active_hosts(self) -> list[Collection[HostState]]:
        """Hosts in memory, of each shard."""

    @property
    def hosts_by_place(self) -> HostsByPlace:
        """How many hosts wait where."""

    @property
    def created_at(self) -> float:
        """When the crawl began."""

    @property
    def order_name(self) -> str:
        """Name of the class of its order."""

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on with the work of an earlier run."""

    @property
    def n_merged(self) -> int:
        """Pages that were merged with another one in this run."""

    @property
    def round(self) -> Round | None:
        """The round of revisits, of a crawl in rounds."""

    @property
    def cache_hits(self) -> tuple[int, int]:
        """Page look-ups answered from memory, and from the store."""

    @property
    def dead(self) -> tuple[int, int]:
        """Dead hosts that wait for their time, and their pages."""

    @property
    def blocked(self) -> tuple[int, int]:
        """Hosts that were put aside because they are blocked or have had all of their pages, and the pages that wait: as far as their turn has come."""

    @property
    def stranded(self) -> int:
        """Pages that wait by the counts, but that no queue row leads to: those of a damaged job."""

    def has_work(self, now: float) -> bool:
        """Whether there is anything to wait for: dead hosts count when their time has come, blocked ones do not."""

    def when(self) -> NotBefore | Empty:
        """The earliest instant at which a page may be leased; it may be past."""

    def awaited(self) -> tuple[float, str]:
        """When the first host may be fetched from that is not dead, and its name; ``""`` if no host waits."""


class SessionPort(VisitCalls, PageCalls, HostCalls, SamePageCalls, TopicCalls, Figures, Protocol):
    """The calls that a session and views need of a crawl, in one piece or in shards."""

    def lease(self, now: float, hold_late: float = 0.0) -> Lease | Unlocated | NotBefore | Empty:
        """See :meth:`VisitCalls.lease`.

        Args:
            hold_late: Seconds for which hosts over their budgets, and revisits that are not paid for, are held back if by
                then another host is free: more if the caller is busy, because they take time that others wait for.
        """

    def announce(self, lease: Lease, links: Sequence[Link], now: float, n_links: int = 0) -> list[Link]:
        """Queue the pages of *links*, some of those of a leased page, before its visit ends.

        They get no cash by that, and wait where they would if the visit ended now.

        Args:
            n_links: Distinct links found so far, if there are more.

        Returns:
            Links for the same pages in the same order: what :meth:`settle` is given instead, which pays them.

        Raises:
            CallError: If there cannot be such links; nothing was changed.
        """

"""The port between a frontier and whatever fetches: what a caller does with a crawl, in which order, and what it gets.

It is for callers of your own. The session of the Scrapy scheduler uses :class:`~.crawl.Crawl` itself, which has more
than this, so another frontier behind this port cannot be put under the scheduler yet.

One visit::

    lease = crawl.lease(now)                      # a Lease: its host may be fetched from, and by this lease alone
    gap = crawl.transferred(lease.host, seconds, now, outcome)
    crawl.release(lease, now)                     # the host: it is free again when its gap is over
    crawl.settle(lease, links, now)               # the page: its cash is spent, its links are known

Rule 1: each lease is released once and ended once, by ``settle`` or by ``put_back``. A host that is not released is
never fetched from again by this process; a page whose lease is not ended stays in flight. A process that dies leaves
both to the next one.

Rule 2: ``transferred`` comes before ``release``, or the host may be fetched from again at once. Each transfer is
reported, including those without a lease (robots.txt, say).

Rule 3: ``release`` and the end of the lease may come in either order: the transfer is over long before its links are
known.

Rule 4: what comes for a lease that is no longer held changes nothing, and the caller learns which it is:

==============  ==========================  ===========================================  ==========================
call            while the lease is held     once more                                    lease of another run, or lost
==============  ==========================  ===========================================  ==========================
``settle``      ``OK``, and it is ended     ``DUP``                                      ``STALE``
``put_back``    ``OK``, and it is ended     ``DUP``                                      ``STALE``
``release``     ``OK``                      ``DUP``                                      ``STALE``
==============  ==========================  ===========================================  ==========================

Rule 5: arguments are checked before anything is changed. A call that raises :class:`~scrapy_aopic.exceptions.CallError`
has done nothing.

Rule 6: nothing is on the disk before the caller has written what ``take_changes`` gave, and said ``changes_landed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .revisits.rates import Version

if TYPE_CHECKING:
    from .frontier.frontier import Empty, NotBefore, Unlocated
    from .politeness import Gap, Outcome
    from .ports import Batch
    from .records import Link


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
    """What became of a call that ends a lease, or a part of it."""

    OK = "ok"
    """It was done."""

    DUP = "dup"
    """It had been done before; nothing was changed."""

    STALE = "stale"
    """The lease is none of this run's; nothing was changed."""


class Settled(NamedTuple):
    """What became of a visit.

    Attributes:
        ending: Whether the visit counted.
        paid: Units that each distinct link was paid, in document order; 0 for those to pages that failed.
    """

    ending: Ending
    paid: Sequence[int] = ()


class Findings(NamedTuple):
    """What a visit found, besides links.

    Attributes:
        outcome: Why it is no ordinary page; ``""`` for an ordinary one.
        is_failure: The page will not be visited any more; later cash for it goes to the virtual page.
        n_links: Distinct links found, if filters dropped some; their shares go to the virtual page.
        weight: Weight of all distinct links found, if they differ in weight.
        version: What the response says of the page's version, if pages are revisited.
        same_as: Key of the page that it says it is, once its links are paid; a duplicate needs none.
        is_if_same: Whether that only counts if they have the same words.
        same_host: Name of the host of the page *same_as*; needed only if that may be of another shard and is none of
            the links.
        value: How relevant the page was found to be, as the value of a link is written; 0 if nobody has read it.
        is_relevant: Whether it counts as relevant; only if it has a value.
        expected: What it was valued at before, in the same way; 0 if nothing was expected.
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
    expected: int = 0


ORDINARY = Findings()
"""An ordinary page, of which no more is known than its links."""


class Counts(NamedTuple):
    """Pages by state, and hosts."""

    queued: int
    visited: int
    failed: int
    hosts: int


class CrawlPort(Protocol):
    """What hands out pages and takes visits; see the rules above. Times are seconds since the epoch."""

    @property
    def counts(self) -> Counts:
        """Pages by state, and hosts; pages in flight count as queued."""
        ...

    def seed(
        self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0, found_on: bytes = b""
    ) -> bool:
        """Queue a page that no page in flight pays; ``False`` if it is known already."""
        ...

    def lease(self, now: float) -> Lease | Unlocated | NotBefore | Empty:
        """The best page whose host may be fetched from at *now*, or when to call again."""
        ...

    def transferred(
        self,
        name: str,
        transfer: float,
        now: float,
        outcome: Outcome,
        *,
        retry_after: float = 0.0,
        at_least: float = 0.0,
        address: str = "",
        origin: str = "",
    ) -> Gap:
        """A transfer from the host called *name* took *transfer* seconds; for how long it is left alone."""
        ...

    def release(self, lease: Lease, now: float) -> Ending:
        """The transfer of *lease* is over."""
        ...

    def settle(
        self,
        lease: Lease,
        links: Sequence[Link],
        now: float,
        found: Findings = ORDINARY,
    ) -> Settled:
        """End the visit of a leased page: its cash goes to its history and to the pages it links to."""
        ...

    def put_back(self, lease: Lease, link: Link, now: float, *, has_failed: bool = False) -> Ending:
        """End a lease without a visit: the page waits again, with its cash, for the request in *link*."""
        ...

    def take_changes(self, now: float, *, is_clean: bool = False) -> Batch:
        """Everything that changed, as one batch for a store."""
        ...

    def changes_landed(self) -> None:
        """The batch is in the store."""
        ...

    def changes_failed(self) -> None:
        """The batch did not reach the store; the next one will hold it too."""
        ...

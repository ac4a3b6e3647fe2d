"""What the tests of the core share: links by number, a crawl with its store and its clock, and one beside a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.crawl_totals import CrawlTotals
from scrapy_aopic.core.frontier.frontier import Frontier
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Batch, Store
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, PageState, host_key, page_key
from scrapy_aopic.core.tables import Commits, Table
from scrapy_aopic.storage.memory import MemoryStore

NOW = 1_000_000_000.0

ROUNDING = 2**-53
"""How far the sum of the importances of all pages may be from 1, taken exactly: each is rounded once, by this at most of it."""


def link(
    host: str,
    number: int = 0,
    request: bytes = b"",
    *,
    shift: int = 0,
    priority: int = 0,
    again: bool = False,
) -> Link:
    """A link to page *number* of *host*."""
    key = page_key(host_key(host), number.to_bytes(4, "big"))
    return Link(key, host, request or f"{host}/{number}".encode(), shift, again, priority=priority)


def by_cash() -> Aopic:
    """The default order, in which nothing but a page's cash decides on its front queue."""
    order = Aopic()
    order.counts_links = False  # type: ignore[misc]  # no subclass: the audit knows orders by their class
    return order


def saved_of(frontier: Frontier) -> CrawlTotals:
    """What a commit says of *frontier* as it is now."""
    return CrawlTotals(
        "",
        created_at=0.0,
        saved_at=0.0,
        queued=frontier.queued,
        hosts=frontier.n_hosts,
        visits=frontier.budgets.visits,
        shelved=frontier.places.shelves.counts,
        parked=frontier.places.parked.n,
        dead=frontier.places.dead.n,
        dead_pages=frontier.places.dead_pages,
    )


def write_changes(tables: Sequence[Table], store: Store) -> None:
    """Write what has changed in *tables* to *store*."""
    commits = Commits(tables)
    store.write(commits.take({}), sync=True)
    commits.landed()


class Job:
    """A crawl from *seeds* that shares a quarter with the virtual page and endows nothing, unless *policy* says else."""

    def __init__(self, *seeds: Link, **policy: Any) -> None:
        self.store = MemoryStore()
        self.policy = Policy(**{"order": by_cash(), "share": 0.25, "endowment": 0.0, **policy})
        self.now = NOW
        self.crawl = Crawl(self.store, self.policy, self.now)
        self.seed(*seeds)

    @property
    def virtual(self) -> int:
        return self.crawl.ledger.totals.virtual

    def page(self, link: Link) -> Page:
        page = self.crawl.page(link.key)
        assert page is not None
        return page

    def cash(self, link: Link) -> int:
        return self.crawl.ledger.cash(self.page(link))

    def state(self, link: Link) -> PageState:
        return PageState(self.page(link).state)

    def seed(self, *links: Link, **how: Any) -> None:
        for each in links:
            assert self.crawl.seed(each, self.now, **how)

    def lease(self) -> Lease:
        lease = self.crawl.lease(self.now)
        assert isinstance(lease, Lease), lease
        return lease

    def settle(self, lease: Lease, *links: Link, **how: Any) -> None:
        self.crawl.settle(lease, links, self.now, Findings(**how))

    def visit(self, *links: Link, **how: Any) -> Lease:
        """Visit the best page, which has *links*."""
        lease = self.lease()
        self.finish(lease, *links, **how)
        return lease

    def finish(self, lease: Lease, *links: Link, **how: Any) -> None:
        """End the transfer and the visit of *lease*, whose page has *links*."""
        self.crawl.release(lease, self.now)
        self.settle(lease, *links, **how)

    def release(self, lease: Lease, *, gap: float = 0.0) -> None:
        """End the transfer of *lease*; its host is left alone for *gap* seconds."""
        self.crawl.defer(lease.key[:HOST_BYTES], self.now + gap, 0.1)
        self.crawl.release(lease, self.now)

    def drain(self) -> list[bytes]:
        """Visit whatever waits and may be asked now, as pages without links; returns the requests in order."""
        requests = []
        while isinstance(lease := self.crawl.lease(self.now), Lease):
            self.finish(lease)
            requests.append(lease.request)
        return requests

    def commit(self, *, is_clean: bool = False) -> None:
        """Write all changes; the store must then hold a state that keeps every invariant."""
        self.store.write(self.crawl.take_changes(self.now, is_clean=is_clean), sync=True)
        self.crawl.changes_landed()
        self.check()

    def check(self) -> None:
        assert audit(self.store).violations == []

    def reopen(self, *, later: float = 0.0) -> None:
        """Start a new process *later* seconds from now; what was not committed is lost."""
        self.now += later
        self.crawl = Crawl(self.store, self.policy, self.now)

    def restart(self, *, later: float = 0.0) -> None:
        """Close the crawl, and start a new process *later* seconds from now."""
        self.commit(is_clean=True)
        self.reopen(later=later)

    def kill(self, *, later: float = 0.0) -> None:
        """Kill the process right after a commit, and start a new one *later* seconds from now."""
        self.commit()
        self.reopen(later=later)


class Modelled(RuleBasedStateMachine):
    """A crawl beside its model: what its commits and the ends of its processes leave of both.

    A model has ``virtual``, ``pages`` with their ``cash`` and ``state``, ``leased`` and ``waiting()``. A subclass adds
    the steps, among them ``release(pick)``, which ends a transfer.
    """

    release: Callable[[int], None]

    def start(self, policy: Policy, model: Any) -> None:
        """Begin with an empty store and *model*, which knows of no page."""
        self.policy = policy
        self.store = MemoryStore()
        self.now = NOW
        self.saved_pause = 0.0
        self.landed: tuple[Any, float | None, bool] = (model, None, True)
        self.open(deepcopy(model), None, was_clean=True)

    def open(self, model: Any, saved_at: float | None, *, was_clean: bool) -> None:
        """Start a process on what the store holds, which is *model*."""
        self.crawl = Crawl(self.store, self.policy, self.now)
        self.model = model
        self.to_release: list[Lease] = []
        self.to_settle: list[Lease] = []
        self.flying: tuple[Any, float, Batch] | None = None
        self.pause = self.saved_pause
        if not was_clean and saved_at is not None:
            self.pause = max(self.pause, self.now + self.policy.politeness.gap(self.policy.commit_within))
        model.leased = {}

    def take_lease(self, pick: int) -> Lease:
        """A lease that is to end; its transfer ends before it."""
        lease = self.to_settle.pop(pick % len(self.to_settle))
        if lease in self.to_release:
            self.release(self.to_release.index(lease))
        return lease

    @rule(is_landing=st.booleans(), is_written=st.booleans())
    def commit(self, is_landing: bool, is_written: bool) -> None:
        """Take a batch; the next time, let it land or fail; what failed may yet be on the disk."""
        if self.flying is None:
            self.take_batch()
            return
        if is_landing or is_written:
            self.write()
        if is_landing:
            self.crawl.changes_landed()
        else:
            self.crawl.changes_failed()
        self.flying = None

    def take_batch(self, *, is_clean: bool = False) -> None:
        self.flying = (deepcopy(self.model), self.now, self.crawl.take_changes(self.now, is_clean=is_clean))

    def write(self, *, is_clean: bool = False) -> None:
        assert self.flying is not None
        model, saved_at, batch = self.flying
        self.store.write(batch, sync=True)
        self.landed = (model, saved_at, is_clean)
        self.saved_pause = self.pause
        assert audit(self.store).violations == []

    def kill(self, later: float, *, is_written: bool) -> None:
        """End the process, and start one *later* seconds from now; a batch that was not written is gone."""
        if self.flying is not None and is_written:
            self.write()
        self.now += later
        model, saved_at, was_clean = self.landed
        self.open(deepcopy(model), saved_at, was_clean=was_clean)

    def stop(self, later: float) -> None:
        """Close the crawl, of which no transfer is under way, and start a process *later* seconds from now."""
        self.take_batch(is_clean=True)
        self.write(is_clean=True)
        self.now += later
        self.open(self.model, self.now, was_clean=True)

    def compare(self) -> dict[bytes, Page]:
        """Fail unless the crawl holds the cash and the states of the model; returns the pages of the crawl."""
        crawl, model = self.crawl, self.model
        assert crawl.ledger.totals.virtual == model.virtual
        pages = {key: page for key in model.pages if (page := crawl.page(key)) is not None}
        assert len(pages) == len(model.pages)
        assert {key: crawl.ledger.cash(page) for key, page in pages.items()} == {
            key: page.cash for key, page in model.pages.items()
        }
        assert model.virtual + sum(page.cash for page in model.pages.values()) == TOTAL
        states = [page.state for page in model.pages.values()]
        assert [page.state for page in pages.values()] == states
        assert crawl.counts[:3] == tuple(map(states.count, PageState))
        assert (len(crawl), len(crawl.leases)) == (len(model.waiting()), len(model.leased))
        return pages

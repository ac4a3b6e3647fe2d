"""What the tests of the core share: links by number, and a crawl with its store and its clock."""

from __future__ import annotations

from typing import Any

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl, Lease, Policy
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, State, host_key, page_key
from scrapy_aopic.storage.memory import MemoryStore

NOW = 1_000_000_000.0


def link(host: str, number: int = 0, request: bytes = b"", *, shift: int = 0, again: bool = False) -> Link:
    """A link to page *number* of *host*."""
    key = page_key(host_key(host), number.to_bytes(4, "big"))
    return Link(key, host, request or f"{host}/{number}".encode(), shift, again)


def by_cash() -> Aopic:
    """The default order, in which nothing but a page's cash decides on its front queue."""
    order = Aopic()
    order.counts_links = False
    return order


class Job:
    """A crawl that shares a quarter with the virtual page and endows nothing, unless *policy* says else."""

    def __init__(self, **policy: Any) -> None:
        self.store = MemoryStore()
        self.policy = Policy(**{"order": by_cash(), "share": 0.25, "endowment": 0.0, **policy})
        self.now = NOW
        self.crawl = Crawl(self.store, self.policy, self.now)

    @property
    def virtual(self) -> int:
        return self.crawl.ledger.totals.virtual

    def page(self, link: Link) -> Page:
        page = self.crawl.page(link.key)
        assert page is not None
        return page

    def cash(self, link: Link) -> int:
        return self.crawl.ledger.cash(self.page(link))

    def state(self, link: Link) -> State:
        return State(self.page(link).state)

    def seed(self, *links: Link, **how: Any) -> None:
        for each in links:
            assert self.crawl.seed(each, self.now, **how)

    def lease(self) -> Lease:
        lease = self.crawl.lease(self.now)
        assert isinstance(lease, Lease), lease
        return lease

    def settle(self, lease: Lease, *links: Link, **how: Any) -> None:
        self.crawl.settle(lease, links, self.now, **how)

    def visit(self, *links: Link, **how: Any) -> Lease:
        """Visit the best page, which has *links*."""
        lease = self.lease()
        self.crawl.release(lease, self.now)
        self.settle(lease, *links, **how)
        return lease

    def release(self, lease: Lease, *, gap: float = 0.0) -> None:
        """End the transfer of *lease*; its host is left alone for *gap* seconds."""
        self.crawl.defer(lease.key[:HOST_BYTES], self.now + gap, 0.1)
        self.crawl.release(lease, self.now)

    def drain(self) -> list[bytes]:
        """Visit whatever waits and may be asked now, as pages without links; returns the requests in order."""
        requests = []
        while isinstance(lease := self.crawl.lease(self.now), Lease):
            self.crawl.release(lease, self.now)
            self.settle(lease)
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

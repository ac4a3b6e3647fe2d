"""Crawls a link graph with the production ledger and frontier, without a network: for measuring orders.

A page of the graph is a page of the crawl, a visit takes no time unless a host must be left alone, and the
result is the order in which pages were visited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core.crawl import Crawl, Lease, Policy
from .core.frontier import NotBefore
from .core.records import HOST_BYTES, Link, host_key, page_key
from .storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .core.ports import Store


def simulate(
    out_links: Callable[[int], Sequence[int]],
    host_of: Callable[[int], str],
    seeds: Sequence[int],
    fetches: int,
    policy: Policy,
    *,
    store: Store | None = None,
    transfer: Callable[[int], float] | None = None,
) -> Iterator[int]:
    """Visit pages in the order of *policy*.

    Args:
        out_links: Pages that a page links to.
        host_of: Host of a page.
        seeds: Pages to start from.
        fetches: Visits at most.
        store: Where the crawl is remembered; a memory store if ``None``.
        transfer: Seconds that a page's transfer takes, one page at a time; ``None`` for hosts that may always be
            asked.

    Yields:
        The visited pages, in order.
    """
    now = 0.0
    store = store if store is not None else MemoryStore()
    crawl = Crawl(store, policy, now)

    def link(page: int) -> Link:
        host = host_of(page)
        number = page.to_bytes(6, "big")
        return Link(page_key(host_key(host), number), host, number)

    for seed in seeds:
        crawl.seed(link(seed), now)
    for visits in range(fetches):
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = lease.instant
            lease = crawl.lease(now)
        if not isinstance(lease, Lease):
            return
        page = int.from_bytes(lease.request, "big")
        if transfer is not None:
            taken = transfer(page)
            now += taken
            crawl.defer(lease.key[:HOST_BYTES], now + policy.politeness.gap(taken), taken)
        crawl.release(lease, now)
        crawl.settle(lease, [link(target) for target in out_links(page)], now)
        yield page
        if visits % 1000 == 999:
            store.write(crawl.take_changes(now), sync=False)
            crawl.changes_landed()

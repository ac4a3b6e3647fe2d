"""A crawl of twelve pages on a store that may fail, for core/test_faults.py and crash/kill_points.py."""

from __future__ import annotations

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.core.revisits import Version
from scrapy_aopic.exceptions import StorageError

PAGES = 12
LINKS = {n: [(n * 3 + 1) % PAGES, (n * 5 + 2) % PAGES, (n + 1) % PAGES] for n in range(PAGES)}
"""Pages that each page links to, by number; its number is also its request."""


def links_of(n_hosts: int) -> list[Link]:
    """A link to each of the pages, on so many hosts by turns."""
    hosts = [f"h{n % n_hosts}" for n in LINKS]
    return [
        Link(page_key(host_key(host), bytes((0, 0, 0, n))), host, b"%d" % n) for n, host in enumerate(hosts)
    ]


def crawl_twelve_pages(
    store: Store, policy: Policy, now: float, *, steps: int, n_hosts: int, may_fail: bool = False
) -> None:
    """Crawl for *steps*, with a commit after every third, and close.

    If commits *may_fail*, the crawl goes on, as it does in a job; a store that cannot be read ends it at once.
    """
    links = links_of(n_hosts)
    crawl = Crawl(store, policy, now)
    crawl.seed(links[0], now)
    for step in range(steps):
        now += 0.5
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = max(now, lease.instant)
        if isinstance(lease, Lease):
            content = Version(b"same")
            crawl.release(lease, now)
            crawl.settle(lease, [links[n] for n in LINKS[int(lease.request)]], now, Findings(version=content))
        is_last = step == steps - 1
        if step % 3 == 2 or is_last:
            batch = crawl.take_changes(now, is_clean=is_last)
            try:
                store.write(batch, sync=True)
            except StorageError:
                if not may_fail:
                    raise
                crawl.changes_failed()
            else:
                crawl.changes_landed()

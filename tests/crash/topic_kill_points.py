"""A crawl for a topic that is killed at its first operation on the store, at its second one, and so on; run by test_focused_kills.py.

    python topic_kill_points.py rocksdb|sqlite FOLDER EACH [--torn]

Only every EACH operations.

What the strategy has learned is kept with each page, and waiting pages are valued anew: it counts the pages that it was given, so
what it says can be compared with the pages of the store.

With ``--torn``, a control, the rows of each commit are written family by family: a kill then leaves pages without what led to
them, or another number of pages than the strategy has learned from, and this script must say so.
"""

# ruff: noqa: T201
from __future__ import annotations

import sys
from contextlib import closing
from itertools import count
from pathlib import Path

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.focus.leads import Lead, LeadsOfPage
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.layout import LEADS, STRATEGY_KEY
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import Focused, whole_value
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Batch, Family, Store
from scrapy_aopic.core.records import QUEUED, VISITED, Link, host_key, page_key, unpack_page
from scrapy_aopic.storage import open_store

sys.path.insert(0, str(Path(__file__).parents[1]))
from crash.kill_points import in_a_fork, opened
from support.faulty_store import Fault, FaultyStore
from support.twelve_pages import LINKS, PAGES, links_of

STEPS = 18
POLICY = Policy(order=Focused(0.9), max_active=2, page_cache=3)


class TornStore(FaultyStore):
    """Writes the rows of a batch family by family, so that a process may die between."""

    def write(self, batch: Batch, *, sync: bool) -> None:
        for family, rows in batch.items():
            super().write({family: rows}, sync=sync)


def crawl(
    kind: str, folder: Path, steps: int, now: float, kill_at: int = 0, *, is_torn: bool = False
) -> None:
    faults = [Fault("kill", kill_at)] if kill_at else []
    wrap = TornStore if is_torn else FaultyStore
    with closing(wrap(open_store(folder, kind), *faults)) as store:
        _crawl(store, now, steps)


def _crawl(store: Store, now: float, steps: int) -> None:
    links = links_of(7)
    crawl = Crawl(store, POLICY, now)
    learned = int(crawl.strategy() or b"0")
    crawl.seed(links[0], now)
    at = b""
    for step in range(steps):
        now += 0.5
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = max(now, lease.instant)
        if isinstance(lease, Lease):
            page = int(lease.request)
            leads = LeadsOfPage(lease.key, page / PAGES, 1)
            found = []
            for n in LINKS[page]:
                link = links[n]
                lead = leads.pack(LinkText(f"to {n}"))
                found.append(Link(link.key, link.host, link.request, value=whole_value(n / PAGES), lead=lead))
            crawl.release(lease, now)
            learned += lease.visits == 0
            crawl.settle(
                lease, found, now, Findings(value=whole_value(page / PAGES), is_relevant=page % 2 == 0)
            )
            _, at = crawl.revalue(lambda lead: worth(lead, step), now, at, 2)  # noqa: B023 - called at once
            crawl.keep_strategy(b"%d" % learned)
        is_last = step == steps - 1
        if step % 3 == 2 or is_last:
            store.write(crawl.take_changes(now, is_clean=is_last), sync=True)
            crawl.changes_landed()


def worth(lead: Lead, step: int) -> int:
    return whole_value((lead.grade + step / STEPS) / 2)


def check(folder: Path, visited: int = 0) -> None:
    """Fail unless what is stored is whole, with what was learned of just the pages that were visited, *visited* if that is given."""
    store = opened(folder)
    if store is None:
        return
    with closing(store):
        store.verify()
        result = audit(store)
        known = {key: unpack_page(data) for key, data in store.scan(Family.PAGES)}
        led = {row[1:] for row, _ in store.scan(Family.CONTENT) if row[:1] == LEADS}
        learned = int(store.get_many(Family.META, (STRATEGY_KEY,))[0] or b"0")
    first = page_key(host_key("h0"), bytes(4))
    waiting = {key for key, page in known.items() if page.state == QUEUED}
    n_visited = sum(page.state == VISITED for page in known.values())
    if result.violations or (visited and result.visited != visited):
        raise SystemExit(f"{folder.name}: {result}")
    if known and result.cash + result.virtual != TOTAL:
        raise SystemExit(f"{folder.name}: cash {result.cash} and {result.virtual}")
    if not waiting - {first} <= led <= waiting:
        raise SystemExit(f"{folder.name}: {len(waiting)} pages wait, and leads to {len(led)} are kept")
    if learned != n_visited:
        raise SystemExit(f"{folder.name}: learned from {learned} pages, and {n_visited} are visited")


def main() -> int:
    kind, folder, each, is_torn = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), "--torn" in sys.argv
    n_wrong = 0
    for at in count(1, each):
        job = folder / str(at)
        killed = in_a_fork(lambda job=job, at=at: crawl(kind, job, STEPS, 1e9, at, is_torn=is_torn))  # type: ignore[misc]
        if killed != -9:
            assert killed == 0, killed
            break
        n_wrong += in_a_fork(lambda job=job: check(job)) != 0  # type: ignore[misc]
        if is_torn:
            continue
        # Recovery is killed, too, and then the crawl goes on to its end.
        in_a_fork(lambda job=job, at=at: crawl(kind, job, STEPS, 1e9 + 1000, 1 + at % 5))  # type: ignore[misc]
        n_wrong += in_a_fork(lambda job=job: check(job)) != 0  # type: ignore[misc]
        assert in_a_fork(lambda job=job: crawl(kind, job, 2 * STEPS, 1e9 + 2000)) == 0, at  # type: ignore[misc]
        n_wrong += in_a_fork(lambda job=job: check(job, PAGES)) != 0  # type: ignore[misc]
    print(f"{at - each} kill points, {n_wrong} states are not whole")
    return n_wrong != 0


if __name__ == "__main__":
    sys.exit(main())

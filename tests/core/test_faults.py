"""Every operation of a store fails once: what is on the disk is always a state that a crawl can be in."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from crawl_job import NOW, link

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl, Lease, NotBefore, Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.recrawl import Content, Recrawl
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.testing.faults import Fault, FaultyStore

WEB = {n: [(n * 3 + 1) % 12, (n * 5 + 2) % 12, (n + 1) % 12] for n in range(12)}
LINKS = {n: link(f"h{n % 4}", n) for n in WEB}
OF_REQUEST = {each.request: n for n, each in LINKS.items()}


def go_on(store: Any, policy: Policy, now: float, steps: int) -> bool:
    """Crawl for *steps*, with a commit after every third, and close; whether the crawl came to its end.

    A store that cannot be read ends it at once, without another commit, as it does in a job.
    """
    crawl = Crawl(store, policy, now)
    crawl.seed(LINKS[0], now)
    for step in range(steps):
        now += 0.5
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = max(now, lease.instant)
        if isinstance(lease, Lease):
            number = OF_REQUEST[lease.request]
            crawl.release(lease, now)
            crawl.settle(lease, [LINKS[n] for n in WEB[number]], now, content=Content(b"same"))
        if step % 3 == 2:
            commit(store, crawl, now)
    return commit(store, crawl, now, is_clean=True)


def commit(store: Any, crawl: Crawl, now: float, *, is_clean: bool = False) -> bool:
    batch = crawl.take_changes(now, is_clean=is_clean)
    try:
        store.write(batch, sync=True)
    except StorageError:
        crawl.changes_failed()
        return False
    crawl.changes_landed()
    return True


@pytest.mark.parametrize("recrawl", [None, Recrawl(share=0.5)], ids=["once", "recrawl"])
@pytest.mark.parametrize("kind", ["fail", "torn"])
def test_whatever_operation_fails_the_store_holds_a_whole_state_and_the_crawl_goes_on(
    kind: Any, recrawl: Recrawl | None
) -> None:
    policy = Policy(recrawl=recrawl, max_active=2, page_cache=3)
    for at in count(1):
        disk = MemoryStore()
        faulty = FaultyStore(disk, Fault(kind, at))
        with suppress(StorageError):
            go_on(faulty, policy, NOW, steps=40)
        assert audit(disk).violations == [], at
        assert go_on(disk, policy, NOW + 1000, steps=40)
        result = audit(disk)
        assert result.violations == [], at
        visited = {OF_REQUEST[request] for _, request in disk.scan(Family.REQUESTS)}
        assert visited == set(WEB), at
        assert recrawl or (result.visited, result.queued) == (len(WEB), 0), at
        if not faulty.n_faults:
            break
    assert at > 50


def test_a_torn_scan_breaks_off_and_a_torn_batch_is_stored() -> None:
    store = FaultyStore(MemoryStore(), Fault("torn", 2, times=2))
    rows: dict[bytes, bytes | None] = {b"a": b"1", b"b": b"2"}
    store.write({Family.META: rows}, sync=True)
    seen = []
    with pytest.raises(StorageError, match="operation 2"):
        seen.extend(key for key, _ in store.scan(Family.META))
    pairs = store.scan(Family.META)
    assert next(pairs) == (b"a", b"1")
    with pytest.raises(StorageError, match="operation 3"):
        next(pairs)
    assert len(list(store.scan(Family.META))) == 2
    torn = FaultyStore(MemoryStore(), Fault("torn", 1), Fault("fail", 3), Fault("delay", 4, seconds=0.01))
    with pytest.raises(StorageError, match="write to"):
        torn.write({Family.META: rows}, sync=True)
    assert torn.get_many(Family.META, [b"a"]) == [b"1"]
    with pytest.raises(StorageError, match="read"):
        torn.get_many(Family.META, [b"a"])
    assert torn.get_many(Family.META, [b"a"]) == [b"1"]
    assert (torn.n_operations, torn.n_faults) == (4, 3)

"""Every operation of a store fails once: what is on the disk is always a state that a crawl can be in."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from support.core_crawl import NOW
from support.faulty_store import Fault, FaultyStore
from support.twelve_pages import LINKS, crawl_twelve_pages

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore


@pytest.mark.crossed
@pytest.mark.slow
@pytest.mark.parametrize("recrawl", [None, Recrawl(share=0.5)], ids=["once", "recrawl"])
@pytest.mark.parametrize("kind", ["fail", "torn"])
def test_whatever_operation_fails_the_store_holds_a_whole_state_and_the_crawl_goes_on(kind, recrawl):
    policy = Policy(recrawl=recrawl, max_active=2, page_cache=3)
    for at in count(1):
        disk = MemoryStore()
        faulty = FaultyStore(disk, Fault(kind, at))
        with suppress(StorageError):
            crawl_twelve_pages(faulty, policy, NOW, steps=40, n_hosts=4, may_fail=True)
        assert audit(disk).violations == [], at
        crawl_twelve_pages(disk, policy, NOW + 1000, steps=40, n_hosts=4)
        result = audit(disk)
        assert result.violations == [], at
        visited = {int(request) for _, request in disk.scan(Family.REQUESTS)}
        assert visited == set(LINKS), at
        assert recrawl or (result.visited, result.queued) == (len(LINKS), 0), at
        if not faulty.n_faults:
            break
    assert at > 50


def test_a_torn_scan_breaks_off_and_a_torn_batch_is_stored():
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

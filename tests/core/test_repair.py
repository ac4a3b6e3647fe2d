"""A job is damaged in every way, and what is made of it keeps every invariant and can be crawled to its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from support.core_crawl import NOW, Job, link

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.layout import TOTALS_KEY
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.rebuild import Repaired, rebuild
from scrapy_aopic.core.records import PageState, pack_page, unpack_page
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore

N = 60


def make(*, recrawl: bool = False) -> MemoryStore:
    """A job with visited, queued and failed pages, some merged into others."""
    job = Job(recrawl=Recrawl(share=0.3) if recrawl else None, max_active=3)
    job.seed(*(link(f"h{n % 7}", n) for n in range(5)))
    dice = random.Random(5)
    for step in range(30):
        lease = job.lease()
        links = [link(f"h{n % 7}", n) for n in dice.sample(range(N), 4)]
        same_as = link("h0", 0).key if step in (9, 17) else b""
        job.crawl.release(lease, job.now)
        job.settle(lease, *links, is_failure=step % 6 == 5, version=Version(b"%d" % step), same_as=same_as)
        job.now += 1
    job.commit()
    return job.store


def drop(store: MemoryStore, family: Family, n: int) -> None:
    keys = [key for key, _ in store.scan(family)]
    store.write({family: dict.fromkeys(random.Random(n).sample(keys, min(n, len(keys))))}, sync=True)


def enrich(store: MemoryStore) -> None:
    key, data = next(iter(store.scan(Family.PAGES)))
    page = unpack_page(data)
    page.cash += TOTAL
    store.write({Family.PAGES: {key: pack_page(page)}}, sync=True)


def garble(store: MemoryStore) -> None:
    keys = [key for key, _ in store.scan(Family.PAGES)]
    store.write({Family.PAGES: dict.fromkeys(keys[::9], b"\xc1")}, sync=True)


def revive(store: MemoryStore, **values: Any) -> None:
    """Pages that were merged into others hold cash of their own, or wait."""
    pages = {key: unpack_page(data) for key, data in store.scan(Family.PAGES)}
    merged = {key: page for key, page in pages.items() if page.canonical}
    assert merged
    rows = {key: pack_page(replace(page, **values)) for key, page in merged.items()}
    store.write({Family.PAGES: rows}, sync=True)


DAMAGES: dict[str, Callable[[MemoryStore], None]] = {
    "none": lambda store: None,
    **{f"rows of {family.name}": lambda store, family=family: drop(store, family, 7) for family in Family},
    **{
        f"all {family.name}": lambda store, family=family: drop(store, family, 10_000)
        for family in Family
        if family != Family.REQUESTS
    },
    "totals": lambda store: store.write({Family.META: {TOTALS_KEY: b"\x81"}}, sync=True),
    "too much cash": enrich,
    "no records": garble,
    "merged pages with cash": lambda store: revive(store, cash=7),
    "merged pages that wait": lambda store: revive(store, state=PageState.QUEUED),
}


def repaired(damaged: Store) -> tuple[MemoryStore, Repaired]:
    target = MemoryStore()
    result = rebuild(damaged, target, lambda request: request.split(b"/")[0].decode(), NOW)
    return target, result


@pytest.mark.parametrize("recrawl", [False, True], ids=["once", "recrawl"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_left_becomes_a_whole_job(damage: str, *, recrawl: bool) -> None:
    store = make(recrawl=recrawl)
    DAMAGES[damage](store)
    target, _ = repaired(store)
    result = audit(target)
    assert result.violations == []
    assert result.cash + result.virtual == TOTAL
    again, _ = repaired(target)
    for family in Family:  # the same in the end, however often
        assert list(again.scan(family)) == list(target.scan(family)) or family == Family.META
    policy = Policy(max_active=3)
    crawl, now = Crawl(target, policy, NOW + 1000), NOW + 1000
    for _ in range(5 * N):
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = max(now, lease.instant) + 0.01
        elif isinstance(lease, Lease):
            crawl.release(lease, now)
            crawl.settle(lease, (), now)
    target.write(crawl.take_changes(now, is_clean=True), sync=True)
    result = audit(target)
    assert (result.violations, result.queued) == ([], 0)


def test_nothing_is_lost_of_a_job_that_has_only_lost_what_is_made_of_pages() -> None:
    store = make()
    before = {key: unpack_page(data) for key, data in store.scan(Family.PAGES)}
    for family in (Family.QUEUE, Family.HOSTS):
        drop(store, family, 10_000)
    target, result = repaired(store)
    assert {key: unpack_page(data) for key, data in target.scan(Family.PAGES)} == before
    assert (result.pages, result.forgotten, result.cash) == (len(before), 0, 0)


@pytest.mark.parametrize("n", [7, 10_000], ids=["some", "all"])
def test_pages_of_which_only_the_requests_are_left_are_queued(n: int) -> None:
    store = make()
    before = {key for key, _ in store.scan(Family.PAGES)}
    drop(store, Family.PAGES, n)
    left = {key: unpack_page(data) for key, data in store.scan(Family.PAGES)}
    target, result = repaired(store)
    pages = {key: unpack_page(data) for key, data in target.scan(Family.PAGES)}
    lost = before - left.keys()
    assert pages.keys() == before
    assert {pages[key].state for key in lost} == {PageState.QUEUED}
    assert len({page.place for page in pages.values()}) == len(pages)
    assert (result.requeued, result.forgotten) == (len(lost), 0)


def test_pages_that_only_the_totals_know_of_are_said_to_be_forgotten() -> None:
    store = make()
    keys = [key for key, _ in store.scan(Family.PAGES)][:9]
    store.write({Family.PAGES: dict.fromkeys(keys), Family.REQUESTS: dict.fromkeys(keys)}, sync=True)
    _, result = repaired(store)
    assert (result.requeued, result.forgotten) == (0, 9)


@pytest.mark.parametrize(("place", "source"), [(300, 2000), (2000, 300), (900, 1500), (0, 2900), (2900, 0)])
def test_rows_in_the_wrong_place_are_left_out(place: int, source: int) -> None:
    """As if a block of 100 rows had been written over another one."""
    keys = [b"%08d" % n for n in range(3000)]
    damaged = [*keys[:place], *keys[source : source + 100], *keys[place + 100 :]]

    class Misplaced(MemoryStore):
        def scan(
            self, family: Family, start: bytes = b"", stop: bytes | None = None
        ) -> Iterator[tuple[bytes, bytes]]:
            return iter([(key, b"") for key in damaged])

    found = [key for key, _ in DamagedStore(Misplaced()).scan(Family.PAGES)]
    assert found == [*keys[:place], *keys[place + 100 :]]


class Holes:
    """A store in which some rows cannot be read."""

    def __init__(self, store: Store, bad: set[bytes]) -> None:
        self._store, self._bad = store, bad

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._bad.intersection(keys):
            raise StorageError("hole")
        return self._store.get_many(family, keys)

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._store.scan(family, start, stop):
            if key in self._bad:
                raise StorageError("hole")
            yield key, value


def test_holes_are_jumped_over() -> None:
    store = make()
    keys = [key for key, _ in store.scan(Family.PAGES)]
    bad = set(keys[3:40:12])
    target, result = repaired(Holes(store, bad))  # type: ignore[arg-type]
    assert audit(target).violations == []
    kept = {key for key, _ in target.scan(Family.PAGES)}
    assert kept.isdisjoint(bad)
    assert len(keys) - len(bad) >= len(kept) >= len(keys) - 4 * len(bad)
    assert result.gaps["PAGES"] == len(bad)
    assert any(unpack_page(data).state == PageState.QUEUED for _, data in target.scan(Family.PAGES))

"""Jobs that were stored when their format was new are read, crawled on and written as they were."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from journey import Journey, policies, read
from support.core_crawl import ROUNDING

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.layout import FORMAT, TOTALS_KEY
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import (
    HostRecord,
    Page,
    PageState,
    pack_host,
    pack_page,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.storage.sqlite import SqliteStore
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import pages_in, top_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store

FILES = sorted(Path(__file__).parent.glob("*.gz"))

rows_of = lru_cache(read)


def golden(file: Path, store: Store) -> CrawlTotals:
    """Put the job in *file* into *store*; returns its totals."""
    store.write(rows_of(file), sync=True)
    saved = read_totals(store)
    assert saved is not None
    return saved


def policy_of(file: Path) -> Policy:
    return policies()[file.stem.split("-")[1]]


def crawl_on(store: Store, policy: Policy, saved: CrawlTotals, steps: int) -> Journey:
    """Crawl on for so many steps, and end; every invariant must hold before and after."""
    assert audit(store).violations == []
    journey = Journey(store, policy, random.Random(1), saved.saved_at + 1)
    before = journey.crawl.counts
    assert before[:] == (saved.queued, saved.visited, saved.failed, saved.hosts)
    journey.run(steps)
    journey.finish()
    after = journey.crawl.counts
    assert after.visited + after.failed > before.visited + before.failed
    assert audit(store).violations == []
    return journey


def test_there_are_jobs_of_each_kind():
    names = {f"{FORMAT}-{name}-{ending}" for name in policies() for ending in ("clean", "killed")}
    assert {file.stem for file in FILES} == names


def make_rocksdb(folder: Path) -> Store:
    return pytest.importorskip("scrapy_aopic.storage.rocksdb").RocksStore(folder, memory_mb=8)


STORES: Mapping[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder, memory_mb=8),
    "rocksdb": make_rocksdb,
}


@pytest.mark.crossed
@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", policies())
def test_an_old_job_holds_every_invariant_and_is_crawled_on(kind, name, tmp_path):
    for ending in ("clean", "killed"):
        file = Path(__file__).with_name(f"{FORMAT}-{name}-{ending}.gz")
        store = STORES[kind](tmp_path / ending)
        journey = crawl_on(store, policy_of(file), golden(file, store), 300)
        assert journey.crawl.was_clean == (ending == "clean"), ending
        store.close()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_old_job_is_crawled_on_by_other_registered_domains(file):
    """Another list of public suffixes, or rule for what is not on it, moves hosts between domains: these begin anew."""
    store = MemoryStore()
    crawl_on(store, replace(policy_of(file), domain_of=str), golden(file, store), 300)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_importances_of_an_old_job_add_up_to_one_before_and_after_it_is_opened(file):
    """It may never have visited a page twice on purpose."""
    store = MemoryStore()
    saved = golden(file, store)
    policy = replace(policy_of(file), recrawl=Recrawl(600.0, 86_400.0))
    for crawled_on in (False, True):
        importance = [row.importance for rows in pages_in(View([store]), 100) for row in rows]
        assert abs(fsum(importance) - 1) <= ROUNDING
        if not crawled_on:
            crawl_on(store, policy, saved, 100)


def test_the_rows_of_old_jobs_are_written_as_they_were():
    for file in FILES:
        rows = rows_of(file)
        for value in rows[Family.PAGES].values():
            assert pack_page(unpack_page(value)) == value, file.stem
        for value in rows[Family.HOSTS].values():
            assert pack_host(unpack_host(value)) == value, file.stem
        assert golden(file, MemoryStore()).pack() == rows[Family.META][TOTALS_KEY], file.stem


def test_old_pages_and_hosts_have_every_field_that_is_stored():
    for family, unpack, plain in (
        (Family.PAGES, unpack_page, Page(PageState.QUEUED, 0)),
        (Family.HOSTS, unpack_host, HostRecord("")),
    ):
        records: list[Any] = [unpack(value) for file in FILES for value in rows_of(file)[family].values()]
        for name in plain.__struct_fields__:
            assert any(getattr(each, name) != getattr(plain, name) for each in records), name


def test_an_old_job_says_what_was_fetched():
    for file in FILES:
        store = MemoryStore()
        golden(file, store)
        rows = top_pages(View([store]), 10**6, everything=True)
        waiting = {(row.status, row.content_type, row.bytes) for row in rows if not row.visits}
        assert waiting == {(None, "", None)}, file.stem
        visited = [row for row in rows if row.visits]
        assert {row.content_type for row in visited} >= {"", "text/html", "text/plain"}, file.stem
        assert {row.status for row in visited} == {200, 301, 404, None}, file.stem

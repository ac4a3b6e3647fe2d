"""Jobs that were stored when their format was new are read, crawled on and written as they were."""

from __future__ import annotations

import random
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from journey import Journey, policies, read
from support.core_crawl import ROUNDING

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.layout import FORMAT, TOTALS_KEY
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import (
    HostRecord,
    Page,
    PageState,
    pack_host,
    pack_page,
    unpack,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.storage.sqlite import SqliteStore
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import top_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from scrapy_aopic.core.ports import Store

FILES = sorted(Path(__file__).parent.glob("*.gz"))


def golden(file: Path, store: Store) -> Store:
    """*store* with the job in *file*."""
    store.write(read(file), sync=True)
    return store


def make_rocksdb(folder: Path) -> Store:
    return pytest.importorskip("scrapy_aopic.storage.rocksdb").RocksStore(folder, memory_mb=8)


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def file(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_there_are_jobs_of_the_format_of_today() -> None:
    names = {file.stem for file in FILES}
    assert names >= {f"{FORMAT}-{name}-{ending}" for name in policies() for ending in ("clean", "killed")}


def in_each_store() -> Iterator[Any]:
    """Each job in memory, and those of today's format in each store, which does not know of formats; all else is long."""
    makers: dict[str, Callable[[Path], Store]] = {
        "memory": lambda _: MemoryStore(),
        "sqlite": lambda folder: SqliteStore(folder, memory_mb=8),
        "rocksdb": make_rocksdb,
    }
    for name, make in makers.items():
        for file in FILES:
            is_short = name == "memory" or file.stem.startswith(f"{FORMAT}-")
            yield pytest.param(
                file, make, id=f"{file.stem}-{name}", marks=() if is_short else pytest.mark.long
            )


@pytest.mark.slow
@pytest.mark.parametrize(("file", "make"), list(in_each_store()))
def test_an_old_job_holds_every_invariant_and_is_crawled_on(
    file: Path, make: Callable[[Path], Store], tmp_path: Path
) -> None:
    store = golden(file, make(tmp_path / "store"))
    assert audit(store).violations == []
    saved = read_totals(store)
    assert saved is not None
    policy = policies()[file.stem.split("-")[1]]
    journey = Journey(store, policy, random.Random(1), saved.saved_at + 1)
    assert journey.crawl.was_clean == file.stem.endswith("clean")
    before = journey.crawl.counts
    assert before[:] == (saved.queued, saved.visited, saved.failed, saved.hosts)
    journey.run(300)
    journey.finish()
    after = journey.crawl.counts
    assert after.visited + after.failed > before.visited + before.failed
    store.close()


def test_an_old_job_is_crawled_on_by_other_registered_domains(file: Path) -> None:
    """Another list of public suffixes, or rule for what is not on it, moves hosts between domains: these begin anew."""
    store = golden(file, MemoryStore())
    saved = read_totals(store)
    assert saved is not None
    policy = replace(policies()[file.stem.split("-")[1]], domain_of=str)
    journey = Journey(store, policy, random.Random(1), saved.saved_at + 1)
    before = journey.crawl.counts
    journey.run(300)
    journey.finish()
    after = journey.crawl.counts
    assert audit(store).violations == []
    assert after.visited + after.failed > before.visited + before.failed


def test_the_importances_of_an_old_job_add_up_to_one_before_and_after_it_is_opened(file: Path) -> None:
    """It may never have visited a page twice on purpose."""
    store = golden(file, MemoryStore())
    saved = read_totals(store)
    assert saved is not None
    assert (saved.ledger.new is None) == (saved.format == 5)  # which did not count what they take
    policy = replace(policies()[file.stem.split("-")[1]], recrawl=Recrawl(600.0, 86_400.0))
    for crawled_on in (False, True):
        importance = [row.importance for row in top_pages(View([store]), 10**6, everything=True)]
        assert abs(fsum(importance) - 1) <= ROUNDING
        if not crawled_on:
            journey = Journey(store, policy, random.Random(1), saved.saved_at + 1)
            journey.run(100)
            journey.finish()
    assert audit(store).violations == []


def test_the_records_of_an_old_job_are_written_as_they_were(file: Path) -> None:
    rows = read(file)
    for value in rows[Family.PAGES].values():
        assert pack_page(unpack_page(value)) == value
    for value in rows[Family.HOSTS].values():
        assert pack_host(unpack_host(value)) == value


def test_the_totals_of_an_old_job_are_written_as_they_were(file: Path) -> None:
    store = golden(file, MemoryStore())
    saved = read_totals(store)
    assert saved is not None
    assert unpack(saved.pack()) == unpack(read(file)[Family.META][TOTALS_KEY])


def test_old_pages_and_hosts_have_every_field_that_is_stored() -> None:
    pages, hosts = [], []
    for file in FILES:
        rows = read(file)
        pages += [unpack_page(value) for value in rows[Family.PAGES].values()]
        hosts += [unpack_host(value) for value in rows[Family.HOSTS].values()]
    plain = Page(PageState.QUEUED, 0)
    assert [
        name
        for name in Page.__struct_fields__
        if all(getattr(p, name) == getattr(plain, name) for p in pages)
    ] == []
    named = HostRecord.__struct_fields__
    assert [
        name for name in named if all(getattr(h, name) == getattr(HostRecord(""), name) for h in hosts)
    ] == [
        "broken",
        "silent",
        "held_until",
        "allowed",
    ]  # which hosts have that do not respond, or are not on the Internet; they came without a new format


def test_a_job_says_what_was_fetched_since_it_was_of_format_7(file: Path) -> None:
    rows = top_pages(View([golden(file, MemoryStore())]), 10**6, everything=True)
    visited = [row for row in rows if row.visits]
    assert {(row.status, row.content_type, row.bytes) for row in rows if not row.visits} == {(None, "", None)}
    if int(file.stem[0]) < 7:
        assert {(row.outcome if row.status else "", row.status) for row in visited} == {
            ("", None),
            ("http 404", 404),
        }
        assert {(row.content_type, row.bytes) for row in visited} == {("", None)}
    else:
        assert {row.content_type for row in visited} >= {"", "text/html", "text/plain"}
        assert {200, 301, 404, None} == {row.status for row in visited}

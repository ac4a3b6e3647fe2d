"""Pages and links are written: formats, what the rows say, files that are whole or not there."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
from collections.abc import Iterator
from math import fsum
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from msgspec.structs import replace

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.exceptions import ExchangeError, StorageError
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.version import __version__
from scrapy_aopic.view.exporting import export_links, export_pages
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import pages_in, top_pages

NOW = 1_700_000_000.0


def link(url: str) -> Link:
    host = url.split("/")[2]
    return Link(page_key(host_key(host), url.encode()), host, pack({"url": url}))


def visit(crawl: Crawl, page: Link, *links: Link, **how: Any) -> None:
    lease = crawl.lease(NOW)
    assert lease.key == page.key
    crawl.release(lease, NOW)
    crawl.settle(lease, links, NOW, Findings(**how))


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """A job: a page that links to two others, of which one failed and one waits."""
    store = MemoryStore()
    crawl = Crawl(store, Policy(), NOW)
    first, gone, waits = map(link, ("http://a.test/", 'http://b.test/gone,"ü"', "http://a.test/1"))
    crawl.seed(first, NOW)
    visit(crawl, first, replace(gone, shift=9), waits)
    visit(crawl, gone, outcome="http 404", is_failure=True)
    store.write(crawl.take_changes(NOW), sync=True)
    store.write({Family.LINKS: {first.key: gone.key + waits.key, waits.key: first.key}}, sync=True)
    yield store
    store.close()


def rows_of(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".parquet":
        table: list[dict[str, object]] = pyarrow.parquet.read_table(path).to_pylist()
        return table
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".jsonl" in path.name:
        return [json.loads(line) for line in data.decode().splitlines()]
    return list(csv.DictReader(data.decode().splitlines()))


@pytest.mark.parametrize("name", ["pages.csv", "pages.csv.gz", "PAGES.parquet", "pages.jsonl.gz"])
def test_pages_are_written_as_they_are_in_the_job(store, tmp_path, name):
    path = tmp_path / name
    assert export_pages(View([store]), str(path)) == 3
    rows = {row["url"]: row for row in rows_of(path)}
    top = {row.url: row for row in top_pages(View([store]), 9, everything=True)}
    assert rows.keys() == top.keys()
    for url, row in rows.items():
        said = {name: float(str(row[name])) for name in ("importance", "cash", "history", "visits")}
        assert said == {name: getattr(top[url], name) for name in said}
    assert {(row["host"], row["state"], row["outcome"]) for row in rows.values()} == {
        ("a.test", "visited", ""),
        ("b.test", "failed", "http 404"),
        ("a.test", "queued", ""),
    }
    assert sum(float(str(row["importance"])) for row in rows.values()) == pytest.approx(1)
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["pages.csv", "pages.parquet"])
def test_a_page_names_the_one_that_stands_for_it(tmp_path, monkeypatch, name):
    monkeypatch.setattr(
        "scrapy_aopic.view.exporting.CHUNK", 2
    )  # pages that stand for others are in other chunks
    store = MemoryStore()
    crawl = Crawl(store, Policy(), NOW)
    home, *chain = (link(f"http://{name}.test/") for name in "habcde")
    crawl.seed(home, NOW)
    visit(crawl, home, *chain)
    for page, target in zip(chain, [*chain[1:], None], strict=True):
        visit(crawl, page, outcome="redirect" if target else "", same_as=target.key if target else b"")
        # Written before its way is made shorter.
        store.write(crawl.take_changes(NOW), sync=True)
        crawl.changes_landed()
    assert export_pages(View([store]), str(tmp_path / name)) == 6
    merged = {row["url"]: row["merged_into"] for row in rows_of(tmp_path / name)}
    assert merged == {
        **{f"http://{name}.test/": "http://e.test/" for name in "abcd"},
        "http://e.test/": "",
        "http://h.test/": "",
    }
    store.close()


@pytest.mark.parametrize("name", ["links.csv", "links.csv.gz", "links.parquet", "links.jsonl"])
def test_links_are_written_in_document_order(store, tmp_path, name):
    path = tmp_path / name
    assert export_links(View([store]), str(path)) == 3
    links = [(row["source"], row["target"]) for row in rows_of(path)]
    assert sorted(links, key=lambda pair: str(pair[0])) == [
        ("http://a.test/", 'http://b.test/gone,"ü"'),
        ("http://a.test/", "http://a.test/1"),
        ("http://a.test/1", "http://a.test/"),
    ]


def test_an_empty_job_has_a_table_without_rows(tmp_path):
    for name, top in itertools.product(("pages.csv", "pages.jsonl.gz", "pages.parquet"), (None, 5)):
        assert export_pages(View([MemoryStore()]), str(tmp_path / name), top=top) == 0
        assert rows_of(tmp_path / name) == []
    assert (tmp_path / "pages.csv").read_text(encoding="utf-8").startswith("url,host,importance,")


def test_a_job_without_links_says_how_to_keep_them(tmp_path):
    with pytest.raises(ExchangeError, match=r"kept no links\. AOPIC_KEEP_LINKS = True"):
        export_links(View([MemoryStore()]), str(tmp_path / "links.csv"))
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_the_old_file_and_no_half_one(store, tmp_path):
    path = tmp_path / "pages.csv"
    path.write_text("old", encoding="utf-8")
    get_many = store.get_many

    def broken(family: Family, keys: list[bytes]) -> list[bytes | None]:
        if family == Family.REQUESTS:
            raise StorageError("the disk is gone")
        return get_many(family, keys)

    store.get_many = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(StorageError, match="the disk is gone"):
        export_pages(View([store]), str(path))
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [
        ("pages.csv", "old")
    ]


@pytest.mark.parametrize("name", ["pages.txt", "pages", "pages.gz"])
def test_a_file_of_no_known_format_is_refused(store, tmp_path, name):
    with pytest.raises(
        ExchangeError, match=rf"{name} must end in \.csv, \.jsonl, one of these and \.gz, or \.parquet"
    ):
        export_pages(View([store]), str(tmp_path / name))


def test_a_folder_that_is_not_there_is_told(store, tmp_path):
    for name in ("pages.csv", "pages.parquet"):
        with pytest.raises(ExchangeError, match=rf"{name} cannot be written: there is no such file"):
            export_pages(View([store]), str(tmp_path / "nowhere" / name))


def test_the_most_important_pages_alone_are_written_best_first(store, tmp_path):
    path = tmp_path / "pages.csv"
    assert export_pages(View([store]), str(path), top=5) == 2
    assert [row["url"] for row in rows_of(path)] == [row.url for row in top_pages(View([store]), 5)]


def test_a_table_says_of_which_moment_it_is(store, tmp_path):
    export_pages(View([store]), str(tmp_path / "pages.parquet"))
    facts = pyarrow.parquet.read_schema(tmp_path / "pages.parquet").metadata
    assert facts[b"scrapy_aopic.at"] == b"2023-11-14T22:13:20+00:00"
    assert facts[b"scrapy_aopic.version"] == __version__.encode()


def test_a_table_is_sent_to_where_fsspec_knows_the_way(store):
    fsspec = pytest.importorskip("fsspec")
    export_pages(View([store]), "memory://bucket/pages.parquet")
    with fsspec.open("memory://bucket/pages.parquet") as file:
        assert pyarrow.parquet.read_table(file).num_rows == 3
    with pytest.raises(ExchangeError, match=r"nonsense://b/p\.csv cannot be reached: .*nonsense"):
        export_pages(View([store]), "nonsense://b/p.csv")
    with pytest.raises(ExchangeError, match=r"memory://b/p\.txt must end in"):
        export_pages(View([store]), "memory://b/p.txt")


def test_what_cannot_be_sent_is_said(store, monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    def refused(*_: object) -> None:
        raise RuntimeError("no such bucket")

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "put_file", refused)
    with pytest.raises(ExchangeError, match=r"memory://b/p\.csv cannot be written: no such bucket"):
        export_pages(View([store]), "memory://b/p.csv")


def test_the_most_important_pages_can_be_found_in_an_archive(store, tmp_path):
    index = tmp_path / "index.cdxj"
    line = 'test,a)/ {} {{"url": "http://a.test/", "mime": "{}", "filename": "{}", "offset": "{}", "length": "9"}}\n'
    index.write_text(
        "!OpenWayback-CDXJ 1.0\n"
        + line.format("20250101000000", "text/html", "old.warc.gz", 1)
        + line.format("20260101000000", "text/html", "new.warc.gz", 7)
        + line.format("20270101000000", "warc/revisit", "no.warc.gz", 3),
        encoding="utf-8",
    )
    path = tmp_path / "pages.parquet"
    assert export_pages(View([store]), str(path), top=9, index=index) == 2
    found = {row["url"]: (row["warc_file"], row["warc_offset"], row["warc_length"]) for row in rows_of(path)}
    assert found == {"http://a.test/": ("new.warc.gz", 7, 9), "http://a.test/1": ("", None, None)}
    index.write_text("no index\n", encoding="utf-8")
    with pytest.raises(ExchangeError, match=r"index\.cdxj is no CDXJ file: line 1"):
        export_pages(View([store]), str(path), top=9, index=index)
    with pytest.raises(ExchangeError, match=r"nowhere cannot be read"):
        export_pages(View([store]), str(path), top=9, index=tmp_path / "nowhere")


def test_a_page_that_was_requested_twice_has_one_row_once_both_were_fetched():
    store = MemoryStore()
    crawl = Crawl(store, Policy(), NOW)
    for _ in range(2):
        crawl.seed(replace(link("http://a.test/"), again=True), NOW)
    for n_listed in (2, 1):  # while one of them waits, and then
        lease = crawl.lease(NOW)
        assert isinstance(lease, Lease)
        crawl.release(lease, NOW)
        crawl.settle(lease, (), NOW, Findings())
        store.write(crawl.take_changes(NOW), sync=True)
        crawl.changes_landed()
        view = View([store])
        assert [row.url for row in top_pages(view, 9)] == ["http://a.test/"]
        listed = [row for some in pages_in(view, 9) for row in some]
        assert len(listed) == n_listed
        assert fsum(row.importance for row in listed) == 1

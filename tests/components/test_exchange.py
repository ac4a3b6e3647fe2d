"""Lists of seeds are read, pages and links are written: formats, bad rows, what a user is told."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from msgspec.structs import replace

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.crawl import Crawl, Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.exceptions import ExchangeError, StorageError
from scrapy_aopic.job.exchange import export_links, export_pages, read_seeds
from scrapy_aopic.job.queries import top_pages
from scrapy_aopic.storage.memory import MemoryStore


def seeds(path: Path, content: str | bytes) -> list[tuple[str, float | None]]:
    """Good rows of a list with *content*."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    rows = list(read_seeds(path))
    assert [row.error for row in rows if row.error] == []
    return [(row.url, row.score) for row in rows]


# Lists of seeds


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_text_has_a_url_a_line_and_comments(tmp_path: Path, newline: str, start: str) -> None:
    lines = [
        "# seeds",
        "http://a.test/",
        "",
        "  https://b.test:8443/x?y#z  ",
        "http://ü.test/ü",
        "HTTP://me@[::1]/",
    ]
    expected = [("http://a.test/", None), ("https://b.test:8443/x?y#z", None), ("http://ü.test/ü", None)]
    expected.append(("HTTP://me@[::1]/", None))
    assert seeds(tmp_path / "seeds.txt", start + newline.join(lines)) == expected
    assert seeds(tmp_path / "s.txt.gz", gzip.compress((start + newline.join(lines)).encode())) == expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("url\nhttp://a.test/\n", None),
        ("score,url\n2,http://a.test/\n", 2.0),
        ("URL , Score\nhttp://a.test/, 1e-3\n", 0.001),
        ("url,importance,cash\nhttp://a.test/,0.25,7\n", 0.25),
        ('url,importance,score\n"http://a.test/",0.25,3\n', 3.0),
        ("\ufeffurl,score\r\nhttp://a.test/,0\r\n\r\n", 0.0),
    ],
)
def test_a_table_has_a_column_url_and_may_have_scores(
    tmp_path: Path, table: str, expected: float | None
) -> None:
    assert seeds(tmp_path / "seeds.csv", table) == [("http://a.test/", expected)]
    assert seeds(tmp_path / "seeds.csv.gz", gzip.compress(table.encode())) == [("http://a.test/", expected)]


def test_a_parquet_table_is_read_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "seeds.parquet"
    urls = [f"http://a.test/{n}" for n in range(25_000)]
    columns = {"cash": [0] * len(urls), "url": urls, "importance": [n / 8 for n in range(len(urls))]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=7_000)
    assert [row[:2] for row in read_seeds(path)] == list(zip(urls, columns["importance"], strict=True))
    pyarrow.parquet.write_table(pyarrow.table({"url": urls[:2]}), path)
    assert list(read_seeds(path)) == [(urls[0], None, ""), (urls[1], None, "")]
    pyarrow.parquet.write_table(pyarrow.table({"url": ["http://a.test/", None], "score": [None, 1.0]}), path)
    assert [row.error.partition(", ")[2] for row in read_seeds(path)] == [
        "row 1: the score ('') must be a number of 0 or more",
        "row 2: there is no URL",
    ]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("a.test,1", "'a.test' is no http or https URL with a host"),
        ("ftp://a.test/,1", "'ftp://a.test/' is no http or https URL with a host"),
        ("http:///x,1", "'http:///x' is no http or https URL with a host"),
        ("http://a b/,1", "'http://a b/' is no http or https URL with a host"),
        (
            "http://a.test:x/,1",
            "'http://a.test:x/' is no URL (Port could not be cast to integer value as 'x')",
        ),
        ("http://[a/,1", "'http://[a/' is no URL (Invalid IPv6 URL)"),
        ("http://a.test/\udcff,1", "'http://a.test/\\udcff' is not UTF-8"),
        ("http://a\\b.test/,1", "'http://a\\\\b.test/' is no http or https URL with a host"),
        (",1", "there is no URL"),
        ("http://a.test/", "the score ('') must be a number of 0 or more"),
        ("http://a.test/,", "the score ('') must be a number of 0 or more"),
        ("http://a.test/,much", "the score ('much') must be a number of 0 or more"),
        ("http://a.test/,-1", "the score ('-1') must be a number of 0 or more"),
        ("http://a.test/,nan", "the score ('nan') must be a number of 0 or more"),
        ("http://a.test/,inf", "the score ('inf') must be a number of 0 or more"),
    ],
)
def test_a_bad_row_is_told_by_file_and_line_and_the_next_is_read(
    tmp_path: Path, row: str, error: str
) -> None:
    path = tmp_path / "seeds.csv"
    table = f'url,score,note\n{row}\nhttp://b.test/,1,"two\nlines"\n{row}\n'
    path.write_text(table, encoding="utf-8", errors="surrogateescape")
    bad, good, again = read_seeds(path)
    assert bad.error == f"{path}, line 2: {error}"
    assert good == ("http://b.test/", 1.0, "")
    assert again.error == f"{path}, line 5: {error}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "cannot be read: .*No such file"),
        ("seeds.csv", b"link,score\n", "has no column url, only link, score"),
        ("seeds.csv", b"", "has no column url, only none"),
        ("seeds.csv", "url\nhttp://a.test/\n".encode("utf-16"), "has no column url|cannot be read"),
        ("seeds.csv.gz", b"url\n", "cannot be read: Not a gzipped file"),
        ("seeds.csv.gz", gzip.compress(b"url\n" + b"http://a.test/\n" * 9)[:-9], "cannot be read: "),
        ("seeds.parquet", b"url\n", "cannot be read as Parquet: "),
        ("missing.parquet", None, "cannot be read: .*No such file"),
    ],
)
def test_a_list_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ExchangeError, match=message) as caught:
        list(read_seeds(tmp_path / name))
    assert str(tmp_path / name) in str(caught.value)


# Pages and links


def link(url: str) -> Link:
    host = url.split("/")[2]
    return Link(page_key(host_key(host), url.encode()), host, pack({"url": url}))


def visit(crawl: Crawl, page: Link, *links: Link, **how: Any) -> None:
    lease = crawl.lease(0.0)
    assert isinstance(lease, Lease)
    assert lease.key == page.key
    crawl.release(lease, 0.0)
    crawl.settle(lease, links, 0.0, **how)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """A job: a page that links to two others, of which one failed and one waits."""
    store = MemoryStore()
    crawl = Crawl(store, Policy(), 0.0)
    first, gone, waits = map(link, ("http://a.test/", 'http://b.test/gone,"ü"', "http://a.test/1"))
    crawl.seed(first, 0.0)
    visit(crawl, first, replace(gone, shift=9), waits)
    visit(crawl, gone, outcome="http 404", is_failure=True)
    store.write(crawl.take_changes(0.0), sync=True)
    store.write({Family.LINKS: {first.key: gone.key + waits.key, waits.key: first.key}}, sync=True)
    yield store
    store.close()


def rows_of(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".parquet":
        table: list[dict[str, object]] = pyarrow.parquet.read_table(path).to_pylist()
        return table
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(data.decode().splitlines()))


@pytest.mark.parametrize("name", ["pages.csv", "pages.csv.gz", "PAGES.parquet"])
def test_pages_are_written_as_they_are_in_the_job(store: MemoryStore, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert export_pages(store, path) == 3
    rows = {row["url"]: row for row in rows_of(path)}
    top = {row["url"]: row for row in top_pages(store, 9, everything=True)}
    assert rows.keys() == top.keys()
    for url, row in rows.items():
        said = {name: float(str(row[name])) for name in ("importance", "cash", "history", "visits")}
        assert said == {name: top[url][name] for name in said}
    assert {(row["host"], row["state"], row["outcome"]) for row in rows.values()} == {
        ("a.test", "visited", ""),
        ("b.test", "failed", "http 404"),
        ("a.test", "queued", ""),
    }
    assert sum(float(str(row["importance"])) for row in rows.values()) == pytest.approx(1)
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["pages.csv", "pages.parquet"])
def test_a_page_names_the_one_that_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(
        "scrapy_aopic.job.exchange._CHUNK", 2
    )  # pages that stand for others are in other chunks
    store = MemoryStore()
    crawl = Crawl(store, Policy(), 0.0)
    home, *chain = (link(f"http://{name}.test/") for name in "habcde")
    crawl.seed(home, 0.0)
    visit(crawl, home, *chain)
    for page, target in zip(chain, [*chain[1:], None], strict=True):
        visit(crawl, page, outcome="redirect" if target else "", same_as=target.key if target else b"")
        # Written before its way is made shorter.
        store.write(crawl.take_changes(0.0), sync=True)
        crawl.changes_landed()
    assert export_pages(store, tmp_path / name) == 6
    united = {row["url"]: row["united_with"] for row in rows_of(tmp_path / name)}
    assert united == {
        **{f"http://{name}.test/": "http://e.test/" for name in "abcd"},
        "http://e.test/": "",
        "http://h.test/": "",
    }
    store.close()


@pytest.mark.parametrize("name", ["links.csv", "links.csv.gz", "links.parquet"])
def test_links_are_written_in_document_order(store: MemoryStore, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert export_links(store, path) == 3
    links = [(row["source"], row["target"]) for row in rows_of(path)]
    assert sorted(links, key=lambda pair: str(pair[0])) == [
        ("http://a.test/", 'http://b.test/gone,"ü"'),
        ("http://a.test/", "http://a.test/1"),
        ("http://a.test/1", "http://a.test/"),
    ]


def test_an_empty_job_has_a_table_without_rows(tmp_path: Path) -> None:
    for name in ("pages.csv", "pages.parquet"):
        assert export_pages(MemoryStore(), tmp_path / name) == 0
        assert rows_of(tmp_path / name) == []
    assert (tmp_path / "pages.csv").read_text(encoding="utf-8").startswith("url,host,importance,")


def test_a_job_without_links_says_how_to_keep_them(tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match=r"kept no links\. AOPIC_KEEP_LINKS = True"):
        export_links(MemoryStore(), tmp_path / "links.csv")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_the_old_file_and_no_half_one(store: MemoryStore, tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    path.write_text("old", encoding="utf-8")
    get_many = store.get_many

    def broken(family: Family, keys: list[bytes]) -> list[bytes | None]:
        if family == Family.REQUESTS:
            raise StorageError("the disk is gone")
        return get_many(family, keys)

    store.get_many = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(StorageError, match="the disk is gone"):
        export_pages(store, path)
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [
        ("pages.csv", "old")
    ]


@pytest.mark.parametrize("name", ["pages.txt", "pages", "pages.gz"])
def test_a_file_of_no_known_format_is_refused(store: MemoryStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(ExchangeError, match=rf"{name} must end in \.csv, \.csv\.gz or \.parquet"):
        export_pages(store, tmp_path / name)


def test_a_folder_that_is_not_there_is_told(store: MemoryStore, tmp_path: Path) -> None:
    for name in ("pages.csv", "pages.parquet"):
        with pytest.raises(ExchangeError, match=rf"{name} cannot be written: .*No such file"):
            export_pages(store, tmp_path / "nowhere" / name)

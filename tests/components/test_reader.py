"""A job as data: what open_job says is what the commands say, and tables of it open in pandas, Polars, DuckDB and Arrow."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import pyarrow
import pytest
from msgspec.structs import replace
from support.stored_jobs import make_job

import scrapy_aopic
from scrapy_aopic.core.api import Findings
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.fetched import Fetched
from scrapy_aopic.core.policy import Policy, Recrawl
from scrapy_aopic.core.records import Link
from scrapy_aopic.core.revisits import Version
from scrapy_aopic.exceptions import ExchangeError, StorageError
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_store
from scrapy_aopic.web.request_rows import tail_of
from scrapy_aopic.web.url_keys import key_of_url

NOW = 1_700_000_000.0
HOME, NEXT, GONE = "http://news.example/", "http://news.example/1", "http://other.example/gone"
DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"


def link(url: str, depth: int) -> Link:
    host, key = key_of_url(url)
    return Link(key, host, f"{url}{tail_of('', '', depth, '', is_on_purpose=False)}".encode())


def visit(crawl: Crawl, page: Link, *links: Link, findings: Findings) -> None:
    lease = crawl.lease(NOW)
    assert lease.key == page.key
    crawl.release(lease, NOW)
    crawl.settle(lease, links, NOW, findings)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job in the folder that the document names: a page that links to one that failed and one that waits."""
    monkeypatch.chdir(tmp_path)
    path = Path("crawls/news")
    store = open_store(store_folder(path), "sqlite")
    crawl = Crawl(store, Policy(recrawl=Recrawl(), keep_links=True), NOW)
    home, waits, gone = link(HOME, 0), link(NEXT, 1), replace(link(GONE, 1), shift=9)
    crawl.seed(home, NOW)
    visit(
        crawl,
        home,
        waits,
        gone,
        findings=Findings(
            version=Version(b"\1" * 8, changed_at=NOW - 86_400), fetched=Fetched(200, size=1234)
        ),
    )
    visit(crawl, gone, findings=Findings("http 404", is_failure=True, fetched=Fetched(404, "")))
    store.write(crawl.take_changes(NOW, is_clean=True), sync=True)
    store.close()
    return path


def test_pages_hosts_and_links_are_typed_records(folder):
    job = scrapy_aopic.open_job(folder)
    pages = {page.url: page for page in job.pages()}
    assert job.top(9, everything=True) == sorted(pages.values(), key=lambda page: -page.importance)
    assert {page.url for page in job.top(9)} == {HOME, NEXT}, "and not the one that failed"
    home, waits, gone = pages[HOME], pages[NEXT], pages[GONE]
    assert (home.state, home.visits, home.depth, home.outlinks) == ("visited", 1, 0, 2)
    assert (home.status, home.content_type, home.bytes) == (200, "text/html", 1234)
    assert home.visited_at == datetime.fromtimestamp(NOW, timezone.utc)
    assert (home.digest, home.inlinks) == ("01" * 8, 0)
    assert home.changes_a_day is not None
    assert 0 < home.changes_a_day < 24
    assert (waits.state, waits.depth, waits.visited_at, waits.inlinks) == ("queued", 1, None, 1)
    assert (gone.state, gone.outcome, gone.status, gone.digest) == ("failed", "http 404", 404, "")
    hosts = {host.host: host for host in job.hosts()}
    news = hosts["news.example"]
    assert (news.pages, news.visited, news.queued, news.state) == (2, 1, 1, "ready")
    assert news.cash == home.cash + waits.cash
    assert sum(host.importance for host in hosts.values()) == pytest.approx(1)
    assert set(job.links()) == {(HOME, NEXT), (HOME, GONE)}
    assert job.status(counts=True).pages.known == len(pages) == 3
    changes = job.changes()
    assert [(page.url, page.found) for page in changes] == [(HOME, "new")]
    assert list(job.changes(changes.cursor)) == []
    for since in ("yesterday", "1,2", 3):
        with pytest.raises(
            ExchangeError, match="no round 3: --again makes" if since == 3 else "is no cursor"
        ):
            list(job.changes(since))
    assert job.why(GONE).kind == "failed"
    assert job.why("other.example").kind == "idle"


def test_the_example_of_the_document_runs(folder, capsys):
    section = DOCUMENT.read_text("utf-8").partition("\n## A job in Python\n")[2].partition("\n## ")[0]
    example, frames, following = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(example, names)
    written = capsys.readouterr().out
    assert written.startswith("1 of 3 pages visited; ")
    assert HOME in written
    exec(following, names)
    assert capsys.readouterr().out.startswith(f"new {HOME} ")
    for each in ("duckdb", "polars"):
        pytest.importorskip(each)
    pytest.importorskip("pandas", minversion="3")
    exec(frames, names)


def test_tables_open_elsewhere_as_they_are(folder, tmp_path):
    job = scrapy_aopic.open_job(folder)
    rows = [page._asdict() for page in job.pages()]
    table = pyarrow.table(job.pages())
    assert table.to_pylist() == rows
    assert table.schema.metadata[b"scrapy_aopic.order"].endswith(b".Aopic")
    assert table.schema.metadata[b"scrapy_aopic.at"] == b"2023-11-14T22:13:20+00:00"
    assert pyarrow.table(job.links()).to_pylist() == [link._asdict() for link in job.links()]
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(job.pages()).to_dicts() == rows
    assert polars.DataFrame(job.hosts()).to_dicts() == [host._asdict() for host in job.hosts()]
    pandas = pytest.importorskip("pandas")
    plain = pandas.DataFrame(job.pages())
    assert list(plain.columns) == list(rows[0])
    assert plain["url"].to_list() == [row["url"] for row in rows]
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("pages", job.pages())
    assert connection.sql("select count(*), count(visited_at) from pages").fetchall() == [(3, 2)]


def test_what_cannot_be_read_is_said(tmp_path):
    nowhere = scrapy_aopic.open_job(tmp_path / "nowhere")
    for read in (nowhere.status, nowhere.top, lambda: list(nowhere.pages()), lambda: nowhere.why("a.test")):
        with pytest.raises(StorageError, match="nowhere"):
            read()
    make_job(tmp_path / "job", "sqlite", 3)
    job = scrapy_aopic.open_job(str(tmp_path / "job"))
    assert len(list(job.pages())) == 3
    with pytest.raises(ExchangeError, match=r"kept no links\. AOPIC_KEEP_LINKS = True"):
        list(job.links())

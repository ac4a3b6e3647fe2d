"""Lists that others publish become seeds, and pages of earlier crawls are not fetched again."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from support import redis_server
from support.commands import run_aopic

from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.place.folder_place import FolderPlace, seeds_folder
from scrapy_aopic.place.place import Place
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.seeds import adding
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.seeds.earlier_crawl import read_earlier_crawl
from scrapy_aopic.seeds.seed_lists import read_seeds
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.known_bodies import KnownBodies

DIGEST = "QTB5H2QIDNEIJPZHCE7WKJYHQPSVFHPM"
CAPTURES = [
    ("http://a.test/", "20240102030405", "200", DIGEST),
    ("http://b.test/x?y=1", "20240102030406", "404", DIGEST),
    ("http://c.test/", "20240102030407", "200", "-"),
    ("http://localhost:6379/", "20240102030408", "200", DIGEST),
]
GOOD = ["http://a.test/", "http://c.test/"]


def waiting(folder: Path) -> list[list[Any]]:
    """The seeds that wait, in their order."""
    return [
        json.loads(line)
        for path in sorted(seeds_folder(folder).glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def parquet() -> bytes:
    columns = ("url", "fetch_time", "fetch_status", "content_digest")
    rows = list(zip(*CAPTURES, strict=True))
    rows[2] = tuple(map(int, rows[2]))
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(columns, map(list, rows), strict=True))), file)
    return file.getvalue()


def archive() -> bytes:
    records = []
    for url, date, status, digest in CAPTURES:
        http = f"HTTP/1.1 {status} Fine\r\nContent-Type: text/html\r\n\r\nbody"
        iso = f"{date[:4]}-{date[4:6]}-{date[6:8]}T{date[8:10]}:{date[10:12]}:{date[12:]}Z"
        fields = {
            "WARC-Type": "response",
            "WARC-Record-ID": f"<urn:uuid:{date}>",
            "WARC-Target-URI": url,
            "WARC-Date": iso,
            "WARC-Payload-Digest": f"sha1:{digest}",
            "Content-Type": "application/http; msgtype=response",
            "Content-Length": str(len(http)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        records.append(gzip.compress(f"WARC/1.1\r\n{head}\r\n{http}\r\n\r\n".encode(), mtime=0))
    return b"".join(records)


def cdx(columns: str) -> bytes:
    values = {"m": "text/html", "r": "-", "M": "-", "S": "900", "V": "1234", "g": "crawl.warc.gz"}
    lines = [
        " ".join(
            {**values, "N": f"test,{n})/", "a": url, "b": date, "s": status, "k": digest}[each]
            for each in columns
        )
        for n, (url, date, status, digest) in enumerate(CAPTURES)
    ]
    return "\n".join(lines).encode()


def index(line: str) -> str:
    return "".join(
        line % (url, date, json.dumps({"url": url, "status": status, "digest": digest, "timestamp": date}))
        for url, date, status, digest in CAPTURES
    )


SITEMAP = (
    "<urlset>"
    + "".join(f"<url><loc>{url}</loc></url>" for url, *_ in CAPTURES if "b." not in url)
    + "</urlset>"
)

INDEXES = [
    ("cdx-00000.gz", gzip.compress(index("%s %s %s\n").encode(), mtime=0)),
    ("index.jsonl", index("%.0s%.0s%s\n").encode()),
    ("crawl.cdx", b" CDX N b a m s k r M S V g\n" + cdx("NbamskrMSVg")),
    ("odd.cdx.gz", gzip.compress(b" CDX b a k s\n" + cdx("baks"), mtime=0)),
    ("from-a-server", cdx("NbamskS")),
    ("part-0.parquet", parquet()),
    ("earlier.warc.gz", archive()),
]


INDEX_OF_SITEMAPS = b"".join(
    b"<sitemapindex>%s</sitemapindex>"
    % b"".join(b"<sitemap><loc>https://a.test/maps/%s</loc></sitemap>" % each for each in names)
    for names in [(b"one.xml", b"two.xml.gz?page=1")]
)


@pytest.mark.parametrize("remote", [False, True])
def test_an_index_of_sitemaps_gives_the_pages_of_those_beside_it(tmp_path, remote):
    folder = "memory://maps" if remote else str(tmp_path)
    files = {"index.xml.gz": gzip.compress(INDEX_OF_SITEMAPS), "one.xml": SITEMAP.encode()}
    files["two.xml.gz?page=1"] = b"<urlset><url><loc>http://d.test/</loc></url></urlset>"

    def add(*names: str) -> Any:
        for name in names:
            with fsspec.open(f"{folder}/{name}", "wb") as file:
                file.write(files[name])
        return add_seeds(FolderPlace(tmp_path / "in"), [f"{folder}/index.xml.gz"])

    with pytest.raises(
        ExchangeError, match=r"index.xml.gz names https://a.test/maps/one.xml, which must be beside it: .*one"
    ):
        add("index.xml.gz")
    files["two.xml.gz?page=1"], right = INDEX_OF_SITEMAPS, files["two.xml.gz?page=1"]
    with pytest.raises(ExchangeError, match=r"page=1 names other sitemaps in its turn"):
        add("one.xml", "two.xml.gz?page=1")
    files["two.xml.gz?page=1"] = right
    assert add("two.xml.gz?page=1").rows == 3
    assert [url for url, _ in waiting(tmp_path / "in")] == [*GOOD, "http://d.test/"]


@pytest.mark.parametrize(("name", "content"), [*INDEXES, ("map.xml", SITEMAP.encode())])
def test_an_index_gives_the_seeds_that_a_hand_would_write_and_says_what_it_leaves_out(
    tmp_path, name, content
):
    path, hand = tmp_path / name, tmp_path / "hand.txt"
    path.write_bytes(content)
    hand.write_text("\n".join(GOOD), encoding="utf-8")
    added = add_seeds(FolderPlace(tmp_path / "in"), [str(path)])
    add_seeds(FolderPlace(tmp_path / "by hand"), [str(hand)])
    assert waiting(tmp_path / "in") == waiting(tmp_path / "by hand")
    left_out = {"of hosts or ports that AOPIC_ALLOW_NETWORKS does not allow": 1}
    assert added == (2, 0, "", left_out if name == "map.xml" else {"of status 404": 1, **left_out}, None)


RANKS = (
    "#harmonicc_pos\t#harmonicc_val\t#pr_pos\t#pr_val\t#host_rev\n"
    "1\t3.0\t2\t0.001\ttest.a.www\n2\t1.0\t1\t0.003\ttest.b\n"
)


@pytest.mark.parametrize(
    ("content", "score", "expected"),
    [
        (RANKS, "", [("https://www.a.test/", 0.5), ("https://b.test/", 1.5)]),
        (RANKS, "harmonicc_val", [("https://www.a.test/", 1.5), ("https://b.test/", 0.5)]),
        ("1,a.test\r\n3,b.test\r\n", "", [("https://a.test/", 1.5), ("https://b.test/", 0.5)]),
        (
            "url,views\nhttp://a.test/,3\nhttp://b.test/,1\n",
            "Views",
            [("http://a.test/", 1.5), ("http://b.test/", 0.5)],
        ),
    ],
)
def test_ranks_are_scores(tmp_path, content, score, expected):
    path = tmp_path / "list.csv"
    path.write_text(content, encoding="utf-8")
    add_seeds(FolderPlace(tmp_path / "in"), [str(path)], score=score)
    assert [(url, pytest.approx(worth)) for url, worth in waiting(tmp_path / "in")] == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ranks.txt", RANKS + "1\t2\n", r"line 4: there is no URL"),
        ("top.csv", "1,a.test\nx,b.test\n", r"line 2: the score \('x'\)"),
        ("cdx.gz", gzip.compress(b"a 20240102030405 {}\na 2024 {\n", mtime=0), "line 1: there is no URL"),
        ("map.xml", "<html><a>x</a></html>", "begins as XML does, but is no sitemap"),
        ("torn.cdx", b" CDX N b a s\na 20240102030405 http://a.test/\n", "line 2: there is no URL"),
        ("a.warc", b"WARC/1.0\r\nnonsense", "cannot be read as WARC|no seeds"),
        ("gone.warc.gz", index("%s %s %s\n"), "record 1: there is no URL"),
        ("list.csv", "url\nhttp://a.test/\n", "has no column views, only url"),
        ("one.cdxj", index("%s %s %s\n").splitlines()[1], "Left out: 1 row of status 404"),
    ],
)
def test_what_is_wrong_with_a_public_list_is_said_and_nothing_is_left(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ExchangeError, match=message):
        add_seeds(FolderPlace(tmp_path / "in"), [str(path)], score="views" if name == "list.csv" else "")
    assert list(seeds_folder(tmp_path / "in").iterdir()) == []


def test_a_list_may_be_where_only_fsspec_knows_the_way(tmp_path):
    for name, content in INDEXES:
        with fsspec.open(f"memory://lists/{name}", "wb") as file:
            file.write(content)
        add_seeds(FolderPlace(tmp_path / name), [f"memory://lists/{name}"])
        assert [url for url, _ in waiting(tmp_path / name)] == GOOD
    with pytest.raises(ExchangeError, match=r"memory://lists/none cannot be read"):
        add_seeds(FolderPlace(tmp_path / "in"), ["memory://lists/none"])


@pytest.fixture(params=["a folder", "a server"])
def places(request, tmp_path, monkeypatch) -> Iterator[tuple[Place, Place]]:
    names = ("in", "whole")
    if request.param == "a folder":
        yield FolderPlace(tmp_path / names[0]), FolderPlace(tmp_path / names[1])
        return
    redis_server.needed()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where such a call keeps what it has checked
    with redis_server.Server(tmp_path / "server") as server:
        yield ServerPlace(Address(names[0], server.url)), ServerPlace(Address(names[1], server.url))


@pytest.mark.parametrize("fetched", [False, True])
def test_a_call_that_is_killed_goes_on_and_adds_the_same_as_one_that_is_not(
    tmp_path, monkeypatch, places, fetched
):
    lists = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path in lists:
        rows = "".join(f"http://{path.stem}.test/{n},{n}\n" for n in range(100))
        path.write_text(f"url,score\n{rows}none,1\n", encoding="utf-8")
    sources = ["http://first.test/", *map(str, lists)]
    read: list[str] = []
    dies_at = 150

    def checked_until(*args: Any) -> Any:
        for row in read_seeds(*args):
            if len(read) == dies_at:
                raise KeyboardInterrupt
            read.append(row.url)
            yield row

    monkeypatch.setattr(adding, "read_seeds", checked_until)
    place, whole = places
    with pytest.raises(KeyboardInterrupt):
        add_seeds(place, sources, skip_bad=True, fetched=fetched)
    (left,) = tmp_path.rglob("*.checked*")
    left.write_bytes(left.read_bytes()[:-9])  # which the kill has torn
    dies_at = -1
    again = add_seeds(place, sources, skip_bad=True, fetched=fetched)
    assert again[:2] == (201, 2)
    assert again == add_seeds(whole, sources, skip_bad=True, fetched=fetched)
    for name, each in zip(("in", "whole"), places, strict=True):
        (tmp_path / name).mkdir(exist_ok=True)
        if each.folder is None:
            each.copy_beside(tmp_path / name)
    assert waiting(tmp_path / "in") == waiting(tmp_path / "whole") != [] or fetched
    assert not list(tmp_path.rglob("*.checked*"))
    if fetched:
        assert list(read_earlier_crawl(place).numbers) == list(read_earlier_crawl(whole).numbers)


@pytest.mark.parametrize(("name", "content"), INDEXES)
def test_pages_and_bodies_of_an_earlier_crawl_are_known(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "more.txt").write_text("http://d.test/\n", encoding="utf-8")
    said = [run_aopic("seed", "job", source, "--fetched", folder=tmp_path) for source in (name, "more.txt")]
    assert [each.returncode for each in said] == [0, 0], said
    assert said[0].stdout.startswith("2 pages that an earlier crawl has fetched will not be fetched")
    assert "Left out: 1 row of status 404, 1 row of hosts" in said[0].stderr
    earlier = read_earlier_crawl(FolderPlace(tmp_path / "job"))
    assert [earlier.has("GET", f"http://{host}.test/", b"") for host in "abcd"] == [True, False, True, True]
    record, url, date = KnownBodies(tmp_path / "job" / "aopic-former-bodies").find(f"sha1:{DIGEST}")
    assert (url, date) == ("http://a.test/", "2024-01-02T03:04:05Z")
    assert record == ("<urn:uuid:20240102030405>" if ".warc" in name else "")

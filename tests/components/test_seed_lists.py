"""Lists of seeds are read: formats, bad rows, what a user is told."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.seeds.seed_lists import read_seeds


def seeds(path: Path, content: str | bytes) -> list[tuple[str, float | None]]:
    """Good rows of a list with *content*."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    rows = list(read_seeds(str(path)))
    assert [row.error for row in rows if row.error] == []
    return [(row.url, row.score) for row in rows]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_text_has_a_url_a_line_and_comments(tmp_path, newline, start):
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
def test_a_table_has_a_column_url_and_may_have_scores(tmp_path, table, expected):
    assert seeds(tmp_path / "seeds.csv", table) == [("http://a.test/", expected)]
    assert seeds(tmp_path / "seeds.csv.gz", gzip.compress(table.encode())) == [("http://a.test/", expected)]


def test_a_parquet_table_is_read_like_any_other(tmp_path):
    path = tmp_path / "seeds.parquet"
    urls = [f"http://a.test/{n}" for n in range(25_000)]
    columns = {"cash": [0] * len(urls), "url": urls, "importance": [n / 8 for n in range(len(urls))]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=7_000)
    assert [row[:2] for row in read_seeds(str(path))] == list(zip(urls, columns["importance"], strict=True))
    pyarrow.parquet.write_table(pyarrow.table({"url": urls[:2]}), path)
    assert [row[:3] for row in read_seeds(str(path))] == [(urls[0], None, ""), (urls[1], None, "")]
    pyarrow.parquet.write_table(pyarrow.table({"url": ["http://a.test/", None], "score": [None, 1.0]}), path)
    assert [row.error.partition(", ")[2] for row in read_seeds(str(path))] == [
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
        ("http://a.test:x/,1", "'http://a.test:x/' is no URL: its host or its port cannot be one"),
        ("http://[a/,1", "'http://[a/' is no URL: its host or its port cannot be one"),
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
def test_a_bad_row_is_told_by_file_and_line_and_the_next_is_read(tmp_path, row, error):
    path = tmp_path / "seeds.csv"
    table = f'url,score,note\n{row}\nhttp://b.test/,1,"two\nlines"\n{row}\n'
    path.write_text(table, encoding="utf-8", errors="surrogateescape")
    bad, good, again = read_seeds(str(path))
    assert bad.error == f"{path}, line 2: {error}"
    assert good[:3] == ("http://b.test/", 1.0, "")
    assert again.error == f"{path}, line 5: {error}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "cannot be read: there is no such file"),
        ("seeds.csv", b"link,score\n", "has no column url, only link, score"),
        ("seeds.csv", b"", "has no column url, only none"),
        ("seeds.csv", "url\nhttp://a.test/\n".encode("utf-16"), "has no column url|cannot be read"),
        ("seeds.csv.gz", b"url\n", "cannot be read: it is damaged, or of another format"),
        ("seeds.csv.gz", gzip.compress(b"url\n" + b"http://a.test/\n" * 9, mtime=0)[:-9], "cannot be read: "),
        ("seeds.parquet", b"url\n", "cannot be read as Parquet: "),
        ("missing.parquet", None, "cannot be read: there is no such file"),
    ],
)
def test_a_list_that_is_not_what_its_name_says_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ExchangeError, match=message) as caught:
        list(read_seeds(str(tmp_path / name)))
    assert str(tmp_path / name) in str(caught.value)

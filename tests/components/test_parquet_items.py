"""Items as a folder of Parquet files: types of columns, lines that a crash has left, and one crawl at a time."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import parquet

from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.exporters import COLUMNS, ParquetFolder
from scrapy_aopic.spiders import FIELDS

AT = "2026-11-26T04:00:00.250+00:00"


def lines_of(items: list[Any]) -> str:
    return "".join(f"{json.dumps(item)}\n" for item in items)


def converted(folder: Path, text: str, *fields: str) -> list[dict[str, Any]]:
    """The rows that come of a file of lines with *text*, which a crawl has left."""
    folder.mkdir()
    (folder / "_items-1-00001.jsonl").write_text(text, encoding="utf-8")
    table = ParquetFolder(folder, fields)
    table.open()
    table.close()
    assert {each.name for each in folder.iterdir()} <= {"_lock", "part-1-00001.parquet"}
    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return rows


def test_the_fields_of_pages_have_the_same_types_in_each_file():
    assert {*FIELDS} <= {*COLUMNS}


def test_columns_have_the_types_that_are_known_or_that_all_values_have(tmp_path):
    common = {
        "url": "http://a.test/",
        "visits": 0,
        "importance": 1,
        "fetched_at": AT,
        "headers": {"server": "x"},
    }
    items = [
        {
            **common,
            "price": 1,
            "is_new": True,
            "tags": ["a", "ü"],
            "mixed": 1,
            "duplicate_of": None,
            "size": 1 << 70,
        },
        {**common, "price": 1.5, "is_new": None, "tags": [], "mixed": "x", "duplicate_of": None, "own": None},
    ]
    first, second = converted(tmp_path / "items.parquet", lines_of(items), "url", "title")
    assert list(first)[:2] == ["url", "title"]
    assert first["title"] is None
    assert first["fetched_at"] == datetime(2026, 11, 26, 4, 0, 0, 250_000, timezone.utc)
    assert dict(first["headers"]) == {"server": "x"}
    assert (first["importance"], first["price"], second["price"]) == (1.0, 1.0, 1.5)
    assert (first["is_new"], second["is_new"]) == (True, None)
    assert (first["tags"], second["tags"]) == ('["a", "ü"]', "[]")
    assert (first["mixed"], second["mixed"], first["size"]) == ("1", "x", float(1 << 70))
    assert (first["duplicate_of"], second["own"]) == (None, None)


def test_a_line_that_a_crash_has_torn_is_left_out_and_said(tmp_path, caplog):
    rows = converted(tmp_path / "items.parquet", lines_of([{"url": "a"}, {"url": "b"}]) + '{"url": "c')
    assert [row["url"] for row in rows] == ["a", "b"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Line 3 of" in record.getMessage()


def test_files_are_replaced_one_by_one_while_the_crawl_runs(tmp_path):
    folder = tmp_path / "items.parquet"
    table = ParquetFolder(folder)
    table.open()
    for name, text in (("_items-1-00001", lines_of([{"url": "a"}])), ("_items-1-00002", "")):
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        table.slot_closed(SimpleNamespace(uri=str(folder / f"{name}.jsonl")))
    other = tmp_path / "other.jsonl"
    other.write_text(lines_of([{"url": "b"}]), encoding="utf-8")
    table.slot_closed(SimpleNamespace(uri=str(other)))
    table.close()
    assert other.exists(), "which is another feed"
    assert {each.name for each in folder.iterdir()} == {"_lock", "part-1-00001.parquet"}
    # It was replaced, and the process killed before the lines were removed.
    (folder / "_items-1-00001.jsonl").write_text(lines_of([{"url": "a"}]), encoding="utf-8")
    again = ParquetFolder(folder)
    again.open()
    again.close()
    assert parquet.read_table(folder).to_pylist() == [{"url": "a"}]


def test_two_crawls_do_not_write_to_one_folder(tmp_path):
    one, two = ParquetFolder(tmp_path / "p.parquet"), ParquetFolder(tmp_path / "p.parquet")
    one.open()
    with pytest.raises(ExchangeError, match=r"Another crawl writes to .*p\.parquet"):
        two.open()
    one.close()
    two.open()
    two.close()
    (tmp_path / "file.parquet").write_text("")
    with pytest.raises(ExchangeError, match=r"file\.parquet cannot be a folder of Parquet files"):
        ParquetFolder(tmp_path / "file.parquet").open()

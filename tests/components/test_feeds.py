"""Scrapy's feeds beside the scheduler: files of several runs, and feeds that cannot be part of a commit."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from scrapy.exporters import BaseItemExporter
from scrapy.extensions.feedexport import BlockingFeedStorage, FeedExporter, FileFeedStorage
from scrapy.http import Response
from support.crawls import in_folder, logged
from support.small_web import Follow, ask_view, crawl

from scrapy_aopic.view.stored import snapshot_of

PAGES: dict[str, Any] = {
    "http://a.test/": ["/1"],
    "http://a.test/1": ["/2"],
    "http://a.test/2": ["/3"],
    "http://a.test/3": [],
}


class Items(Follow):
    """An item for each page."""

    start_urls = ["http://a.test/"]
    more: dict[str, Any] = {}

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "text": "a, b\r\nc", **self.more}
        yield from super().parse(response)


def settings(folder: Path, feeds: dict[str, Any], **more: Any) -> dict[str, Any]:
    how = {"AOPIC_STORE": "auto", "AOPIC_DURABILITY": "page", "CONCURRENT_REQUESTS": 1}
    at = {str(folder / name): options for name, options in feeds.items()}
    return in_folder(folder / "job", **how, FEEDS=at, **more)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = logged(caplog, "WARNING", "ERROR")
    caplog.clear()
    return found


def rows(path: Path, **dialect: str) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, **dialect))


URLS = list(PAGES)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["url", "text"]),
        ({"fields": ["text", "url"]}, ["text", "url"]),
        ({"fields": {"url": "Page"}, "item_export_kwargs": {"delimiter": ";"}}, ["Page"]),
        ({"encoding": "utf-8-sig"}, ["\ufeffurl", "text"]),
    ],
    ids=["none", "list", "dictionary", "mark"],
)
async def test_a_table_of_several_runs_has_its_columns_named_once(serve, tmp_path, caplog, options, names):
    serve(PAGES)
    given = settings(tmp_path, {"items.csv": {"format": "csv", **options}})
    for n in (1, 1, 0):
        await crawl(Items, {**given, "CLOSESPIDER_PAGECOUNT": n})
    first, *others = rows(tmp_path / "items.csv", delimiter=";" if "item_export_kwargs" in options else ",")
    assert first == names
    at = next(number for number, name in enumerate(names) if name.endswith(("url", "Page")))
    assert [row[at] for row in others] == URLS
    assert warnings(caplog) == []


async def test_a_table_with_other_columns_is_named_in_a_warning(serve, tmp_path, caplog):
    serve(PAGES)
    path = tmp_path / "items.csv"
    given = settings(tmp_path, {"items.csv": {"format": "csv"}}, CLOSESPIDER_PAGECOUNT=1)
    await crawl(Items, given)
    await crawl(Items, given, more={"size": 3})
    (said,) = warnings(caplog)
    assert said.startswith(f"The table {path} has no column for size, so these fields of items are left out.")
    others = settings(tmp_path, {"items.csv": {"format": "csv", "fields": ["url", "size"]}})
    await crawl(Items, others, more={"size": 3})
    (said,) = warnings(caplog)
    both = f"The table {path} has the columns url,text, and the items of this crawl have url,size:"
    assert said.startswith(both)
    assert [row[0] for row in rows(path)] == ["url", *URLS[:2], "url", *URLS[2:]]


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_a_last_line_without_an_end_is_ended_or_cut_off(serve, tmp_path, caplog, is_resumed):
    serve(PAGES)
    lines = {"items.jsonl": {"format": "jsonlines"}, "whole.jsonl": {"format": "jsonlines"}}
    given = settings(tmp_path, {**lines, "items.csv": {"format": "csv"}})
    if is_resumed:
        await crawl(Items, {**given, "CLOSESPIDER_PAGECOUNT": 1})
    else:
        (tmp_path / "items.csv").write_text("url,text\r\n", encoding="utf-8")
    torn = {
        "items.jsonl": '{"url": "' + "x" * 200_000,
        "whole.jsonl": '{"url": 1}',
        "items.csv": 'http://a.test/1,"a, b\nc',
    }
    before = {}
    for name, text in torn.items():
        with (tmp_path / name).open("a", encoding="utf-8", newline="") as file:
            before[name] = file.tell()
            file.write(text)
    await crawl(Items, given)
    said = warnings(caplog)
    assert len(said) == (2 if is_resumed else 0)
    for name, text in torn.items():
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            file.seek(before[name])
            rest = file.read()
        is_kept = name == "whole.jsonl" or not is_resumed
        assert rest.startswith(text) == is_kept
        assert rest.removeprefix(text).startswith(("\n", "\r\n")) == is_kept
    if is_resumed:
        assert [row[0] for row in rows(tmp_path / "items.csv")] == ["url", *URLS]
        for name in ("items.jsonl", "whole.jsonl"):
            lines = (tmp_path / name).read_text(encoding="utf-8").splitlines()
            assert [url for line in lines if (url := json.loads(line)["url"]) != 1] == URLS


async def test_a_feed_that_is_written_anew_in_the_middle_of_a_job_is_named(serve, tmp_path, caplog):
    serve(PAGES)
    given = settings(tmp_path, {"items.jsonl": {"format": "jsonlines", "overwrite": True}})
    await crawl(Items, {**given, "CLOSESPIDER_PAGECOUNT": 1})
    assert warnings(caplog) == []
    await crawl(Items, given)
    (said,) = warnings(caplog)
    assert said.startswith(f"The feed {tmp_path / 'items.jsonl'} is overwritten, so the items of pages")
    assert len((tmp_path / "items.jsonl").read_text(encoding="utf-8").splitlines()) == 3


class Elsewhere(BlockingFeedStorage):
    """Takes a file when it is complete."""

    def __init__(self, uri: str, *, feed_options: dict[str, Any] | None = None) -> None:
        del uri, feed_options

    def _store_in_thread(self, file: IO[bytes]) -> None:
        file.close()


class Grouping(BaseItemExporter):
    """Writes items when they are many, as formats with groups of rows do."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(dont_fail=True, **options)

    def export_item(self, item: Any) -> None:
        pass


async def test_each_feed_that_cannot_be_part_of_a_commit_is_named_once(serve, tmp_path, caplog):
    serve(PAGES)
    gzip = "scrapy.extensions.postprocessing.GzipPlugin"
    feeds = {
        "items.jsonl.gz": {"format": "jsonlines", "postprocessing": [gzip]},
        "items.parquet": {"format": "grouping"},
        "batch-%(batch_id)d.gz": {"format": "csv", "postprocessing": [gzip], "batch_item_count": 1},
    }
    given = settings(tmp_path, feeds, FEED_EXPORTERS={"grouping": Grouping}, FEED_STORAGES={"far": Elsewhere})
    given["FEEDS"]["far://away/items.jsonl"] = {"format": "jsonlines"}
    await crawl(Items, given)
    said = warnings(caplog)
    assert [text.split()[2] for text in said] == list(given["FEEDS"])
    reasons = (
        "its post-processing holds items back",
        'its format "grouping" may hold items back',
        "its post-processing holds items back",
        "it is stored when it is complete, and may replace what an earlier run has stored",
    )
    for text, why in zip(said, reasons, strict=True):
        assert f"if the process is killed: {why}. Write JSON lines or CSV to a local file" in text
    del given["JOBDIR"]
    await crawl(Items, {**given, "AOPIC_STORE": "memory"})
    assert warnings(caplog) == []  # nobody goes on with it


class Full(FileFeedStorage):
    """A file that the disk has no room for when it is closed."""

    def store(self, file: IO[bytes]) -> None:
        super().store(file)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(
    not hasattr(FeedExporter, "_schedule_slot_close"),
    reason="this Scrapy closes batches when the crawl is over",
)
async def test_the_page_of_a_batch_that_could_not_be_written_is_not_visited(serve, tmp_path, caplog):
    serve(PAGES)
    feeds = {"batch-%(batch_id)d.jsonl": {"format": "jsonlines", "batch_item_count": 2}}
    await crawl(Items, settings(tmp_path, feeds, FEED_STORAGES={"": Full}))
    (ours,) = [text for text in warnings(caplog) if text.startswith("The feed ")]
    assert "batch-1.jsonl cannot be written: its last items were not written, and the log says why." in ours
    assert ask_view(tmp_path / "job", snapshot_of).pages.visited < 2


async def test_a_feed_without_a_place_ends_the_crawl_with_one_sentence(serve, tmp_path, caplog):
    serve(PAGES)
    (tmp_path / "items.csv").mkdir()
    crawler = await crawl(Items, settings(tmp_path, {"items.csv": {"format": "csv"}}))
    assert crawler.stats.get_value("finish_reason") == "aopic_storage"
    (said,) = warnings(caplog)
    assert said.startswith(f"The feed {tmp_path / 'items.csv'} cannot be written: it is a folder.")

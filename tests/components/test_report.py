"""The history of a crawl, and the page that is made of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from scrapy.cmdline import execute
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_f_from_coro_f
from support.small_web import Follow, Web, crawl

from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.view import history, live
from scrapy_aopic.view.history import COLUMNS, FILE_NAME, History, column, read_history, row_of
from scrapy_aopic.view.html_report import report_page
from scrapy_aopic.view.snapshot import HostCounts, HostRow, PageCounts, Snapshot, StoreState, Verdict

HOSTILE = "\"><script>alert(1)</script><img src=x onerror='a()'>\u202egnp.exe\n\x1b[31m&amp;"

NOW = Snapshot(at=1000.0, pages=PageCounts(known=3, queued=1, visited=2), outcomes={"page": 2})


class Parts(HTMLParser):
    """Notes tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def rows(n: int, started_at: float = 0.0) -> list[list[object]]:
    snapshots = [replace(NOW, at=1000.0 + 10 * place, started_at=started_at) for place in range(n)]
    return [row_of(replace(each, verdict=Verdict("politeness", ""))) for each in snapshots]


def test_a_row_has_a_value_for_every_column() -> None:
    assert len(rows(1)[0]) == len(COLUMNS)


def test_the_history_is_bounded_and_long_ago_it_is_coarser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_ROWS", 100)
    kept = History(tmp_path / "h.csv")
    for row in rows(1000):
        kept.append(row)
        assert len((tmp_path / "h.csv").read_text().splitlines()) <= 101
    found = column(read_history(tmp_path / "h.csv"), "at")
    times = [instant for instant in found if instant is not None]
    assert times == sorted(times)
    assert times[-1] == 1000.0 + 9990
    assert times[0] == 1000.0
    assert times[-1] - times[-2] == 10
    assert times[1] - times[0] > 100


@pytest.mark.parametrize("tail", ["1010.0,0.0,poli", "\0\0\0\0\n", "not,a,row\n", ""])
def test_a_line_that_a_crash_has_torn_is_dropped_and_the_history_goes_on(tmp_path: Path, tail: str) -> None:
    path = tmp_path / FILE_NAME
    for row in rows(3):
        History(path).append(row)
    with path.open("a") as file:
        file.write(tail)
    assert len(read_history(path)) == 3
    History(path).append(rows(4)[3])
    assert column(read_history(path), "at") == [1000.0, 1010.0, 1020.0, 1030.0]


def test_columns_of_another_version_are_taken_up_by_name(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text("at,pages.queued,wind\n5.0,7,3\n")
    History(path).append(rows(1)[0])
    found = read_history(path)
    assert [row["pages.queued"] for row in found] == ["7", "1"]
    assert list(found[0]) == list(COLUMNS)
    assert column(found, "pages.visited") == [None, 2.0]


def test_a_disk_that_takes_no_more_ends_the_history_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = History(tmp_path / "none" / "h.csv")
    for row in rows(3):
        kept.append(row)
    assert len(caplog.records) == 1
    assert "The history of the crawl cannot be written" in caplog.text
    assert read_history(tmp_path / "none" / "h.csv") == []


def test_what_comes_from_the_web_is_only_text() -> None:
    row = HostRow(name=HOSTILE, state="waiting", transfer=1.0, why="gap", wait=3.0)
    now = replace(
        NOW,
        slow=[row],
        failing=[row],
        verdict=Verdict("none", HOSTILE),
        store=StoreState(name=HOSTILE),
        refused={HOSTILE: 1},
        hosts=HostCounts(waits={HOSTILE: 2}),
    )
    pages = [SimpleNamespace(importance=0.5, visits=1, url=HOSTILE)]
    hosts = [SimpleNamespace(importance=0.5, visited=1, queued=1, host=HOSTILE)]
    kept = [dict(zip(COLUMNS, map(str, row), strict=True)) for row in rows(3)]
    parts = Parts(
        report_page(now, history=[{**each, "started_at": HOSTILE} for each in kept], pages=pages, hosts=hosts)
    )
    assert parts.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "figure",
        "figcaption", "svg", "line", "text", "path", "span",
    }  # fmt: skip
    assert not any(name.startswith("on") or name in ("src", "href") for name, _ in parts.attributes)
    assert "<script>" in "".join(parts.texts)
    assert "\u202e" not in "".join(parts.texts)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert ("content", policy) in parts.attributes


def test_lines_are_not_drawn_over_time_in_which_no_crawl_ran() -> None:
    table = [
        *rows(3, started_at=1.0),
        *([5000.0 + n, *row[1:]] for n, row in enumerate(rows(2, started_at=2.0))),
    ]
    kept = [dict(zip(COLUMNS, map(str, row), strict=True)) for row in table]
    paths = re.findall(r'<path d="([^"]+)"', report_page(NOW, history=kept))
    queued = paths[2]
    assert re.sub(r"[^ML]", "", queued) == "MLLML"


def test_a_page_without_a_history_has_no_charts() -> None:
    assert "<svg" not in report_page(NOW)


@deferred_f_from_coro_f
async def test_a_crawl_leaves_a_history_and_the_command_makes_a_page_of_it(
    serve: Callable[[dict[str, Any]], Web],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(live, "_BEAT", 0.01)
    serve({"http://a.test/": ["http://a.test/1", "http://b.test/"], "http://a.test/1": []})
    job = tmp_path / "job"
    settings = {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "JOBDIR": str(job),
        "AOPIC_STORE": "sqlite",
        "AOPIC_HISTORY_SECONDS": 0.02,
        "AOPIC_MIN_GAP": 0.2,
    }
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    first = len(read_history(job / FILE_NAME))
    await crawl(Follow, settings)
    kept = read_history(job / FILE_NAME)
    assert len(kept) > first >= 1
    assert kept[-1]["verdict.limit"] == "done"
    assert [kept[-1][f"pages.{name}"] for name in ("visited", "failed", "queued")] == ["2", "1", "0"]
    assert len({row["started_at"] for row in kept}) == 2
    opened, open_snapshots = [], FolderPlace.open_snapshots
    monkeypatch.setattr(
        FolderPlace, "open_snapshots", lambda self: opened.append(self) or open_snapshots(self)
    )
    with pytest.raises(SystemExit) as ended:
        execute(["scrapy", "aopic", "report", str(job), str(tmp_path / "report.html")], Settings())
    assert ended.value.code == 0
    assert len(opened) == 1, "figures and lists are of the same commit"
    text = (tmp_path / "report.html").read_text("utf-8")
    assert text.count("<svg") == 6
    for words in ("Done: nothing is queued.", "http://a.test/1", "not found", "pages visited"):
        assert words in text


@pytest.mark.parametrize("extra", [{"AOPIC_HISTORY_SECONDS": 0}, {"AOPIC_STORE": "memory"}])
@deferred_f_from_coro_f
async def test_no_history_is_kept_if_it_is_not_wanted_or_the_job_does_not_last(
    serve: Callable[[dict[str, Any]], Web], tmp_path: Path, extra: dict[str, Any]
) -> None:
    serve({"http://a.test/": []})
    await crawl(
        Follow,
        {"SCHEDULER": "scrapy_aopic.Scheduler", "JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite", **extra},
    )
    assert not (tmp_path / FILE_NAME).exists()

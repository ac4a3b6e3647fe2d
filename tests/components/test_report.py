"""The history of a crawl, and the report that shows it."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from support.commands import run_here
from support.crawls import in_folder
from support.dashboard import get, serve_job
from support.small_web import Follow, crawl
from support.stored_jobs import make_job

from scrapy_aopic.dashboard.report_page import report_page
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.view import history, live
from scrapy_aopic.view.history import COLUMNS, FILE_NAME, History, column, read_history, row_of
from scrapy_aopic.view.snapshot import PageCounts, Snapshot, Verdict

HOSTILE = '</script><script>hacked=1</script><!--<script>\u2028\u202e\x9b\udcff"&amp;'
"""Folders of a job, one of which has a byte that is no text; URLs of pages are always encoded."""

NOW = Snapshot(at=1000.0, pages=PageCounts(known=3, queued=1, visited=2), outcomes={"page": 2})


class Parts(HTMLParser):
    """The tags of a page with their attributes, and what is inside its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in self.inside:
            self.inside[self.cdata_elem][-1] += data


def digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def rows(n: int, started_at: float = 0.0) -> list[list[object]]:
    snapshots = [replace(NOW, at=1000.0 + 10 * place, started_at=started_at) for place in range(n)]
    return [row_of(replace(each, verdict=Verdict("politeness", ""))) for each in snapshots]


def test_a_row_has_a_value_for_every_column():
    assert len(rows(1)[0]) == len(COLUMNS)


def test_the_history_is_bounded_and_long_ago_it_is_coarser(tmp_path, monkeypatch):
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
def test_a_line_that_a_crash_has_torn_is_dropped_and_the_history_goes_on(tmp_path, tail):
    path = tmp_path / FILE_NAME
    for row in rows(3):
        History(path).append(row)
    with path.open("a") as file:
        file.write(tail)
    assert len(read_history(path)) == 3
    History(path).append(rows(4)[3])
    assert column(read_history(path), "at") == [1000.0, 1010.0, 1020.0, 1030.0]


def test_columns_of_another_version_are_taken_up_by_name(tmp_path):
    path = tmp_path / FILE_NAME
    path.write_text("at,pages.queued,wind\n5.0,7,3\n")
    History(path).append(rows(1)[0])
    found = read_history(path)
    assert [row["pages.queued"] for row in found] == ["7", "1"]
    assert list(found[0]) == list(COLUMNS)
    assert column(found, "pages.visited") == [None, 2.0]


def test_a_disk_that_takes_no_more_ends_the_history_with_one_warning(tmp_path, caplog):
    kept = History(tmp_path / "none" / "h.csv")
    for row in rows(3):
        kept.append(row)
    assert len(caplog.records) == 1
    assert "The history of the crawl cannot be written" in caplog.text
    assert read_history(tmp_path / "none" / "h.csv") == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_what_comes_from_elsewhere_is_data_and_the_page_asks_nobody(tmp_path):
    job = tmp_path / HOSTILE / "job"
    job.parent.mkdir(parents=True)
    make_job(job, "sqlite", 60)
    text = report_page(FolderPlace(job)).decode()
    parts = Parts(text)
    loading = [(tag, dict(each)) for tag, each in parts.tags if tag in {"script", "link", "img", "iframe"}]
    assert loading == [
        ("script", {"type": "module"}),
        ("script", {"type": "application/json", "id": "answers"}),
    ]
    (style,), (script, data) = parts.inside["style"], parts.inside["script"]
    (policy,) = (dict(each)["content"] for tag, each in parts.tags if "http-equiv" in dict(each))
    assert policy.split("; ") == [
        "default-src 'none'",
        *(f"{kind}-src 'sha256-{digest(body)}'" for kind, body in (("script", script), ("style", style))),
    ]
    answers = json.loads(data)
    name = answers["/api/v1/snapshot"]["store"]["name"]
    shown = {"\u202e": "\ufffd", "\u2028": "\ufffd", "\x9b": "\ufffd", "\udcff": "?"}
    assert name == str(job).translate(str.maketrans(shown))
    with serve_job(FolderPlace(job)) as port:
        assert "?" in json.loads(get(port, "/api/v1/snapshot").text)["store"]["name"]
    assert len(answers["/api/v1/top"]["pages"]) == 20
    assert len(answers["/api/v1/hosts?by=queued&find="]["hosts"]) == 50
    asked = set(re.findall(r'ask\(["`](/api/v1/\w+)', script))
    of_running = {"/api/v1/control", "/api/v1/why", "/api/v1/job"}
    assert asked - {path.partition("?")[0] for path in answers} == of_running


async def test_a_crawl_leaves_a_history_and_the_command_makes_a_page_of_it(
    serve, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(live, "_BEAT", 0.01)
    monkeypatch.setattr(live, "ROW_EVERY", 0.02)
    serve({"http://a.test/": ["http://a.test/1", "http://b.test/"], "http://a.test/1": []})
    job = tmp_path / "job"
    settings = in_folder(job, AOPIC_MIN_GAP=0.2)
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
    assert run_here(capsys, "report", job, tmp_path / "report.html")[0] == 0
    assert len(opened) == 1, "figures and lists are of the same commit"
    data = Parts((tmp_path / "report.html").read_text("utf-8")).inside["script"][1]
    answers = json.loads(data)
    assert answers["/api/v1/snapshot"]["verdict"]["headline"] == "Done: nothing is queued."
    assert answers["/api/v1/snapshot"]["outcomes"]["not found"] == 1
    assert "http://a.test/1" in [row["url"] for row in answers["/api/v1/top"]["pages"]]
    assert [point["at"] for point in answers["/api/v1/history"]] == [float(row["at"]) for row in kept]


async def test_no_history_is_kept_of_a_job_that_does_not_last(serve, tmp_path):
    serve({"http://a.test/": []})
    await crawl(
        Follow, {"SCHEDULER": "scrapy_aopic.Scheduler", "JOBDIR": str(tmp_path), "AOPIC_STORE": "memory"}
    )
    assert not (tmp_path / FILE_NAME).exists()

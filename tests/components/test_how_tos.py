"""The recipes of docs/how-to.md, run as they stand there, against a server on loopback."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer
from pyarrow import parquet
from support import processes

from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import rounds_in

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "how-to.md").read_text(encoding="utf-8")
PARTS = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)
RECIPES = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))


def page(language: str, *links: str) -> Answer:
    body = f'<html lang="{language}"><title>{language}</title>' + "".join(
        f'<a href="{link}">' for link in links
    )
    return Answer(headers={"Content-Type": "text/html"}, body=body.encode())


WEB: dict[str, Any] = {
    "http://example.org/": ["/1", "/feed", "http://example.ch/", "http://example.de/"],
    "http://example.org/1": [],
    "http://example.org/feed": Answer(headers={"Content-Type": "text/xml"}, body=b"<feed/>"),
    "http://example.ch/": ["http://a.swiss/", "http://example.com/", "http://example.de/"],
    "http://a.swiss/": [],
    "http://example.com/": [],
    "http://example.de/": page("de", "/2", "/fr"),
    "http://example.de/2": page("de-CH"),
    "http://example.de/fr": page("fr", "/3"),
    "http://example.de/3": page("de"),
}
"""Where each recipe finds something to fetch, and something not to."""


AFTER_DAYS = """
import runpy, sys, time
from scrapy_aopic.job import clock
_, days, *sys.argv = sys.argv
now = time.time
time.time = lambda: now() + 86400 * int(days)
clock._boot_id = lambda: days
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Runs a module when so many days have passed, on a machine that starts again each day."""


def run(recipe: str, folder: Path, days: int = 0) -> None:
    """Do in *folder* what *recipe* says, after so many *days*, but over HTTP, without gaps, and without installing anything."""
    text = RECIPES[recipe].replace("https://example", "http://example").replace("https://&", "http://&")
    for file, source in re.findall(r"`(\w+\.py)`.*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        (folder / file).write_text(source, encoding="utf-8")
    for line in (
        "".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        .replace("\\\n", "")
        .splitlines()
    ):
        words = shlex.split(line)
        if words[0] == "scrapy":
            job = str(next((folder / "crawls").iterdir())) if "JOBDIR" in words else ""
            scrapy(*(job if word == "JOBDIR" else word for word in words[1:]), folder=folder, days=days)
        elif words[0] != "pip":
            subprocess.run(["sh", "-c", line], cwd=folder, check=True)


def scrapy(*words: str, folder: Path, days: int = 0) -> None:
    command = [
        sys.executable,
        "-c",
        AFTER_DAYS,
        str(days),
        "scrapy",
        *words,
        "-s",
        "AOPIC_POLITENESS_FACTOR=0",
    ]
    done = processes.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def urls(folder: Path) -> set[str]:
    lines = (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    return {json.loads(line)["url"].removeprefix("http://") for line in lines}


EVERYWHERE = {url.removeprefix("http://") for url in WEB}


@pytest.mark.parametrize(
    ("recipe", "fetched"),
    {
        "Stop after N pages": EVERYWHERE,
        "One country": {"example.ch/", "a.swiss/", "example.com/"},
        "One language": {"example.de/", "example.de/2"},
        "A list of 10,000 domains": {"example.org/", "example.org/1", "example.org/feed", "example.ch/"},
        "Only HTML": EVERYWHERE - {"example.org/feed"},
    }.items(),
)
def test_a_recipe_fetches_what_it_says(recipe, fetched, serve, tmp_path):
    serve(WEB)
    (tmp_path / "domains.txt").write_text("example.org\nexample.ch\n")
    run(recipe, tmp_path)
    assert urls(tmp_path) == fetched


def test_changed_pages_every_day_gives_each_day_what_has_changed(serve, tmp_path):
    """On a web that changes while the clock of the commands runs."""
    home, today = "http://example.org/", 0

    def shown(days: int = 99, *links: str) -> Any:
        """A page that changes once in so many *days*."""
        return lambda _: page(f"v{today // days}", *links)

    web = serve(
        {
            home: shown(99, "/daily", "/second", "/same", "/leaves"),
            f"{home}daily": shown(1),
            f"{home}second": lambda _: page(f"v{today // 2}", *["/new"] * (today > 1)),
            f"{home}same": shown(),
            f"{home}leaves": lambda _: Answer(404) if today == 1 else page("en"),
            f"{home}new": shown(),
        }
    )
    changes = [
        dict.fromkeys(("", "daily", "second", "same", "leaves"), "new"),
        {"daily": "changed", "leaves": "gone"},
        {"daily": "changed", "second": "changed", "leaves": "back", "new": "new"},
    ]
    known: set[str] = set()
    items: list[Any] = []
    for today, is_first in [
        (0, True),
        (0, False),
        (1, True),
        (2, True),
    ]:  # the second one at once, as after a kill
        n_asked, n_items = len(web.asked), len(items)
        run("Changed pages, every day", tmp_path, days=today)
        items = [json.loads(line) for line in (tmp_path / "changes.jsonl").read_text().splitlines()]
        given = {item["url"].removeprefix(home): item["found"] for item in items[n_items:]}
        assert given == (changes[today] if is_first else {})
        known |= given.keys()
        asked = [url.removeprefix(home) for url in web.asked[n_asked:]]
        assert sorted(asked) == (sorted(known) if is_first else [])
        assert found_in(tmp_path / "changes.csv") == changes[today]
    every = ("--changed-only", "--gone", "--older-than", "1s", "--every", "1s", "--seconds", "5")
    how = ("--contact", "https://example.org/crawler", "--scope", "domain", "--job", "crawls/daily")
    scrapy("aopic", "crawl", home, *how, *every, folder=tmp_path)  # rounds in one process
    scrapy("aopic", "export", "crawls/daily", "--pages", "since.csv", "--since", "2", folder=tmp_path)
    assert found_in(tmp_path / "since.csv") == changes[2]
    with open_view(FolderPlace(tmp_path / "crawls" / "daily")) as view:
        assert len(rounds_in(view)) > 5


def found_in(path: Path) -> dict[str, str]:
    with path.open(newline="") as file:
        return {row["url"].removeprefix("http://example.org/"): row["found"] for row in csv.DictReader(file)}


def test_text_and_metadata_become_tables(serve, tmp_path):
    pytest.importorskip("trafilatura")
    serve(WEB)
    run("Text and metadata as Parquet", tmp_path)
    run("The most important pages alone", tmp_path)
    (job,) = (tmp_path / "crawls").iterdir()
    scrapy("aopic", "export", str(job), "--pages", "importance.parquet", folder=tmp_path)
    pages = parquet.read_table(tmp_path / "pages.parquet").to_pylist()
    known = {
        row["url"]: row["importance"]
        for row in parquet.read_table(tmp_path / "importance.parquet").to_pylist()
    }
    assert {row["url"] for row in pages} <= known.keys()
    assert {row["status"] for row in pages} == {200}
    top = parquet.read_table(tmp_path / "top.parquet").to_pylist()
    assert top[0]["importance"] == max(known.values())

"""The recipes of docs/how-to.md, run as they stand there, against a server on loopback."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
import time
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


def run(recipe: str, folder: Path, **instead: str) -> None:
    """Do in *folder* what *recipe* says, but over HTTP, without gaps, and without installing anything, and with what is *instead*."""
    text = RECIPES[recipe].replace("https://example", "http://example").replace("https://&", "http://&")
    for old, new in instead.items():
        text = text.replace(old, new)
    for file, source in re.findall(r"`(\w+\.py)`.*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        (folder / file).write_text(source, encoding="utf-8")
    for line in (
        "".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        .replace("\\\n", "")
        .splitlines()
    ):
        words = shlex.split(line)
        if words[0] == "scrapy":
            words = [str(next((folder / "crawls").iterdir())) if word == "JOBDIR" else word for word in words]
            command = [sys.executable, "-m", *words, "-s", "AOPIC_POLITENESS_FACTOR=0"]
            done = processes.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
        elif words[0] != "pip":
            subprocess.run(["sh", "-c", line], cwd=folder, check=True)


def aopic(*words: str, folder: Path) -> None:
    command = [sys.executable, "-m", "scrapy", "aopic", *words]
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


def test_a_daily_round_fetches_no_page_twice_and_gives_the_next_day_what_changed(serve, tmp_path):
    day, feed = [1], WEB["http://example.org/feed"]
    changing = {
        "http://example.org/1": lambda _: page("en", *(["/new"] if day[0] > 1 else [])),
        "http://example.org/feed": lambda _: feed if day[0] == 1 else Answer(404),
        "http://example.org/new": [],
    }
    web = serve({**WEB, **changing})
    for _ in range(2):  # the second one comes at once, as after a kill
        run("Changed pages, every day", tmp_path)
        assert sorted(web.asked) == ["http://example.org/", "http://example.org/1", "http://example.org/feed"]
    assert len((tmp_path / "changes.jsonl").read_text().splitlines()) == 3
    lines = (tmp_path / "changes.csv").read_text().splitlines()
    assert sum(",new," in line for line in lines) == 3
    day[0] = 2
    time.sleep(1.1)  # a night is too long for a test
    run(
        "Changed pages, every day", tmp_path, **{"12 hours": "1 second", "1 day": "0"}
    )  # since the last round
    items = map(json.loads, (tmp_path / "changes.jsonl").read_text().splitlines()[3:])
    assert {(item["url"], item["found"]) for item in items} == {
        ("http://example.org/1", "changed"),
        ("http://example.org/new", "new"),
    }
    with (tmp_path / "changes.csv").open(newline="") as file:
        rows = {row["url"]: row["found"] for row in csv.DictReader(file)}
    assert rows["http://example.org/feed"] == "gone"
    assert rows["http://example.org/1"] == "changed"
    seeds = [
        "http://example.org/",
        "--contact",
        "https://example.org/crawler",
        "--scope",
        "domain",
        "--changed-only",
    ]
    every = [
        *[
            "--older-than",
            "1s",
            "--seconds",
            "5",
            "--job",
            "crawls/daily",
            "-s",
            "AOPIC_POLITENESS_FACTOR=0",
            "--every",
        ],
        "2 seconds",
    ]
    aopic("crawl", *seeds, *every, folder=tmp_path)  # rounds in one process
    aopic("export", "crawls/daily", "--pages", "since.csv", "--since", "2", folder=tmp_path)
    with (tmp_path / "since.csv").open(newline="") as file:
        found = {
            (row["url"].removeprefix("http://example.org/"), row["found"]) for row in csv.DictReader(file)
        }
    assert found == {("1", "changed"), ("new", "new"), ("feed", "gone")}
    with open_view(FolderPlace(tmp_path / "crawls" / "daily")) as view:
        assert len(rounds_in(view)) >= 3


def test_text_and_metadata_become_tables(serve, tmp_path):
    pytest.importorskip("trafilatura")
    serve(WEB)
    run("Text and metadata as Parquet", tmp_path)
    run("The most important pages alone", tmp_path)
    (job,) = (tmp_path / "crawls").iterdir()
    aopic("export", str(job), "--pages", "importance.parquet", folder=tmp_path)
    pages = parquet.read_table(tmp_path / "pages.parquet").to_pylist()
    known = {
        row["url"]: row["importance"]
        for row in parquet.read_table(tmp_path / "importance.parquet").to_pylist()
    }
    assert {row["url"] for row in pages} <= known.keys()
    assert {row["status"] for row in pages} == {200}
    top = parquet.read_table(tmp_path / "top.parquet").to_pylist()
    assert top[0]["importance"] == max(known.values())

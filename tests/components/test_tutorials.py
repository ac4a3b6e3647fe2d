"""The commands of the README and of the two tutorials, run as they stand there, one after the other, on loopback.

Those of docs/first-crawl.md are its way up to a project; test_pipelines.py makes an index of an archive as it says. Those of
docs/first-topic.md are the ones of Scrapy, with fewer pages.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
from demo_web import DemoWeb
from demo_web.command import served
from support import processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

WEB: dict[str, Any] = {
    "http://example.org/": ["/1", "/login", "http://example.com/"],
    "http://example.org/1": ["http://example.net/"],
    "http://example.org/login": [],
    "http://example.com/": ["http://example.org/"],
    "http://example.net/": [],
}

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[tuple[str, str]]:
    """The language and the text of each block of *text*, whose hosts are reached over HTTP: they are on loopback."""
    return BLOCK.findall(re.sub(r"https://(example\.(?:org|com|net)/)", r"http://\1", text))


def run(text: str, folder: Path, files: dict[str, str]) -> list[str]:
    """Do in *folder* what *text* says, without gaps and without installing anything; returns what the commands print.

    By what a block begins with, *files* has the file that a reader makes of it.
    """
    printed = []
    for language, block in blocks(text):
        for start, name in files.items():
            if block.startswith(start):
                (folder / name).write_text(block, encoding="utf-8")
        for line in block.splitlines() if language == "sh" else ():
            words = shlex.split(line, comments=True)
            if words[0] == "scrapy":
                printed.append(_print(words, folder))
            elif words[0] == "make":
                assert f"\n{words[1]}: " in (ROOT / "Makefile").read_text(encoding="utf-8")
            else:
                assert words[0] == "pip", line
    return printed


def _print(words: list[str], folder: Path) -> str:
    """What the command of *words* prints in *folder*; the dashboard is ended when it has said where it is."""
    options = ["--seconds", "2"] if words[2] == "demo" else []
    command = [sys.executable, "-m", *words, *options, "-s", "AOPIC_POLITENESS_FACTOR=0"]
    if words[2] == "dashboard":
        with processes.start(command, cwd=folder, stdout=PIPE, text=True) as server:
            line: str = server.stdout.readline()
            server.terminate()
        return line
    done = processes.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (words, done.stderr)
    return str(done.stdout)


def items(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_readme_can_be_followed(serve, tmp_path):
    serve(WEB)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = run(text, tmp_path, {"from scrapy_aopic import": "news.py"})
    assert "go on" in printed[0]
    headlines = {item["url"] for item in items(tmp_path) if "headline" in item}
    assert headlines == WEB.keys() - {"http://example.org/login"}
    assert "http://example.org/" in printed[-1]  # of top


def test_the_tutorial_can_be_followed(serve, tmp_path):
    serve(WEB)
    (tmp_path / "seeds.txt").write_text("http://example.org/\n")
    (tmp_path / "more.csv").write_text("url\nhttp://example.net/more\n")
    text = (ROOT / "docs" / "first-crawl.md").read_text(encoding="utf-8")
    alone = text.partition("\n## Use it in your own project\n")[0]
    demo, top, hosts, status, dashboard, check, *_ = run(
        alone, tmp_path, {"from scrapy_aopic import": "news.py", "url,score": "scores.csv"}
    )
    assert "scrapy aopic why" in demo
    assert demo.splitlines()[-5].startswith("Ended: its time was up.")  # the crawl in five lines
    assert len(top.splitlines()) == 1 + 5
    assert "host" in hosts
    assert status.startswith("Ended: its time was up.")
    assert len(status.splitlines()) < 20
    assert dashboard.startswith("http://127.0.0.1:")
    assert check.endswith(": every invariant holds\n")
    assert "http://example.org/login" not in [item["url"] for item in items(tmp_path) if "headline" in item]
    assert (tmp_path / "pages.csv").read_text(encoding="utf-8").count("\nhttp://") == len(WEB)
    assert len(list((tmp_path / "crawls").iterdir())) == 6


@pytest.mark.long
def test_the_tutorial_on_topics_can_be_followed(tmp_path, monkeypatch):
    (tmp_path / "seeds.txt").write_text("\n".join(DemoWeb(has_topics=True).seeds))
    text = (ROOT / "docs" / "first-topic.md").read_text(encoding="utf-8")
    (spider,) = [block for language, block in blocks(text) if language == "python"]
    lines = [line for language, block in blocks(text) if language == "sh" for line in block.splitlines()]
    (tmp_path / "topic.py").write_text(spider, encoding="utf-8")
    printed = []
    with served(has_topics=True) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        for line in lines:
            if not line.startswith("scrapy"):  # how the web is served
                continue
            words = shlex.split(line)
            if "JOBDIR=job2" in words:
                model = spider.replace(
                    '{"keywords": ["comet", "galaxy", "stars", "telescope"]}', '{"model": "topic.aopic"}'
                )
                assert model != spider
                (tmp_path / "topic.py").write_text(model, encoding="utf-8")
            if words[1] == "runspider":
                words += ["-s", "CLOSESPIDER_PAGECOUNT=500", "-s", "AOPIC_POLITENESS_FACTOR=0"]
            if "--grade" in words:
                words[-1] = str(next((tmp_path / "pages" / "yes").iterdir()))
            done = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=tmp_path,
                stdin=DEVNULL,  # label ends where its input does
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, (words, done.stderr)
            printed.append((words[3] if words[2] == "topic" else words[2], str(done.stdout)))
    said = dict(printed)
    assert re.search(r"relevant +\d+ % of \d+ pages", said["status"])
    assert re.match(r"topic\.aopic, version [0-9a-f]{12}: \d+ relevant pages?, \d+ others?\n", said["train"])
    assert any(word in said["why"] for word in ("comet", "galaxy", "stars", "telescope"))

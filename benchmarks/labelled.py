"""What people are told of real crawls for a topic, without labels and with 50.

    python benchmarks labelled DIR [--topics mail xml network testing graphics unicode] [--pages 500]   # DIR/sites/<name>

``scrapy aopic crawl --topic`` with the keywords of each topic, from the home pages of 40 sites that a server on this machine has;
then ``scrapy aopic topic label`` gets 50 labels by a lexicon that the crawl does not know (:mod:`focus_webs.corpus`), as from a
person. Precision and recall of what counts as relevant, of all pages that were graded, the harvest that is true, and the one that
is said with labels, with its interval.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "example_project"), str(ROOT)]

import options
from demo_web.server import Answer, Exchange, Server
from focus_webs import corpus
from lxml import html  # type: ignore[import-untyped]

from scrapy_aopic.core.focus.words import words
from scrapy_aopic.web.context import page_context

HELD_OUT = [name for name in corpus.TOPICS if name not in corpus.TUNING]


def file_of(sites: Path, host: str, target: str) -> Path | None:
    """The file that a host serves; its home page is the ``index.html`` with the shortest path."""
    site = sites / host.removesuffix(".test")
    path = site / unquote(urlsplit(target).path).lstrip("/")
    if path == site and site.is_dir():
        path = min(site.rglob("index.htm*"), key=lambda each: (len(each.parts), str(each)), default=path)
    is_there = path.resolve().is_relative_to(sites.resolve()) and path.is_file() and "htm" in path.suffix
    return path if is_there else None


def answer(sites: Path, exchange: Exchange) -> Answer:
    path = file_of(sites, exchange.host, exchange.target)
    if path is None:
        return Answer(404)
    if urlsplit(exchange.target).path == "/":
        return Answer(302, {"Location": f"/{path.relative_to(sites / path.relative_to(sites).parts[0])}"})
    return Answer(headers={"Content-Type": "text/html"}, body=path.read_bytes())


def is_relevant(sites: Path, topic: str, url: str) -> bool:
    """What the lexicon says of the page at *url*."""
    parts = urlsplit(url)
    path = file_of(sites, parts.hostname or "", parts.path)
    if path is None:
        return False
    try:
        text = page_context(html.fromstring(path.read_bytes()), url).text
    except (ValueError, html.etree.ParserError):
        return False
    return corpus._is_relevant(words(text), frozenset(corpus.TOPICS[topic][1].split()))


def aopic(folder: str, *arguments: str) -> str:
    """What ``scrapy aopic`` prints."""
    line = [sys.executable, "-m", "scrapy", "aopic", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    if "Traceback" in done.stderr:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout


def relevances(folder: str) -> dict[str, float]:
    """How relevant each page of the job in *folder* is said to be that was graded."""
    aopic(folder, "export", "job", "--pages", "pages.csv")
    with Path(folder, "pages.csv").open(newline="") as file:
        return {row["url"]: float(row["relevance"]) for row in csv.DictReader(file) if row["relevance"]}


def told(said: dict[str, float], truth: dict[str, bool]) -> str:
    """Precision and recall of what counts as relevant."""
    called = [url for url, part in said.items() if part >= 0.5]
    hits = sum(truth[url] for url in called)
    return f"{hits / max(len(called), 1):.2f} | {hits / max(sum(truth.values()), 1):.2f}"


def main() -> None:
    args = options.read(__doc__, "folder", Path, topics=HELD_OUT, pages=500)
    sites = args.folder.absolute() / "sites"
    names = sorted(path.name for path in sites.iterdir())
    seeds = random.Random(1).sample(names, min(40, len(names)))
    print("| topic | harvest | precision | recall | with 50 labels | recall | harvest by labels |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for topic in args.topics:
        with (
            Server(partial(answer, sites)).run_in_thread() as running,
            tempfile.TemporaryDirectory() as folder,
        ):
            os.environ["http_proxy"] = running.url
            Path(folder, "seeds.txt").write_text("".join(f"http://{name}.test/\n" for name in seeds))
            aopic(
                folder, "crawl", "seeds.txt", "--contact", "https://example.org/crawler", "--topic", ", ".join(corpus.TOPICS[topic][0]),
                "--pages", f"{args.pages}", "--job", "job", "-s", "AOPIC_POLITENESS_FACTOR=0", "-s", "AOPIC_ALLOW_NETWORKS=127.0.0.0/8",
            )  # fmt: skip
            before = relevances(folder)
            truth = {url: is_relevant(sites, topic, url) for url in before}
            aopic(folder, "topic", "label", "job", "--write", "asked.jsonl")
            asked = [json.loads(line) for line in Path(folder, "asked.jsonl").read_text().splitlines()]
            for page in asked:
                page["relevant"] = is_relevant(sites, topic, page["url"])
            Path(folder, "asked.jsonl").write_text("".join(f"{json.dumps(page)}\n" for page in asked))
            lines = aopic(folder, "topic", "label", "job", "--read", "asked.jsonl").splitlines()
            harvest = next((line.split("labels", 1)[1] for line in lines if "by labels" in line), "")
            true = sum(truth.values()) / max(len(truth), 1)
            after = {url: part for url, part in relevances(folder).items() if url in truth}
        print(
            f"| {topic} | {true:.1%} | {told(before, truth)} | {told(after, truth)} | {' '.join(harvest.split())} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

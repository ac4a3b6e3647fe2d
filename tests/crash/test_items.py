"""What visited pages have yielded is in the files beside the store, whenever the process dies or the disk is full."""

from __future__ import annotations

import csv
import json
import random
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from support import processes
from support.killed_crawl import N_HOSTS, N_PAGES, answer, command
from support.redis_server import WHY_NOT, find_server
from support.redis_server import Server as RedisServer
from support.short_forms import some_of
from support.small_web import ask_view, check, html

from scrapy_aopic.core.records import PageState
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.view.queries import top_pages

SPIDER = Path(__file__).parents[1] / "support" / "items_spider.py"

N = 12
"""Pages of the small web: their items fit into the buffer of a file many times."""


class Web:
    """A page that leads to others, one of which is held back for as long as is wanted.

    Attributes:
        is_free: Whether it is sent.
    """

    def __init__(self) -> None:
        self.is_free = Event()

    def answer(self, exchange: Exchange) -> Answer:
        links = [f"http://h{number}.test/0" for number in range(N + 1)] if exchange.host == "h0.test" else []
        if exchange.target != "/0":
            return Answer(404)
        is_held = exchange.host == f"h{N}.test" and not self.is_free.is_set()
        headers = {"Content-Type": "text/html"}
        return Answer(headers=headers, body=html(links, exchange.host), delay=600 if is_held else 0)


def visited(job: Path) -> set[str]:
    """URLs of the pages that are visited, as of the last commit."""
    try:
        rows = ask_view(job, top_pages, 1000)
    except StorageError:  # it is being made
        return set()
    return {row.url for row in rows if row.state == PageState.VISITED.name.lower()}


def run_until(
    line: list[str], environment: dict[str, str] | None, folder: Path, done: Callable[[], bool]
) -> None:
    """Kill the process of *line* when it is *done*."""
    options = {"env": environment} if environment else {}
    with processes.start(line, cwd=folder, **options) as process:
        until = time.monotonic() + 300
        while not done() and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a table, which has one line of names."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(list(row.values()) != list(row) for row in rows)
    assert None not in {name for row in rows for name in row}
    return rows


def in_archives(folder: Path) -> set[str]:
    from warcio.archiveiterator import ArchiveIterator

    found = set()
    for path in folder.iterdir():
        with path.open("rb") as file:
            found |= {
                record.rec_headers.get_header("WARC-Target-URI")
                for record in ArchiveIterator(file)
                if record.rec_type == "response"
            }
    return found


def ours(folder: Path) -> list[str]:
    options = ["-o", "items.jsonl", "-o", "items.csv", "--warc", "warc", "--contact", "https://example.org/"]
    options += ["-s", "AOPIC_POLITENESS_FACTOR=0", "-s", "AOPIC_DURABILITY=50", "-s", "AOPIC_BACKOFF=0"]
    options += ["-s", "ROBOTSTXT_OBEY=False", "--job", str(folder / "job")]
    return [sys.executable, "-m", "scrapy", "aopic", "crawl", "http://h0.test/0", *options]


def test_what_a_visited_page_has_yielded_outlives_a_kill(tmp_path, monkeypatch):
    job, web = tmp_path / "job", Web()
    with Server(web.answer).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        run_until(ours(tmp_path), None, tmp_path, lambda: len(visited(job)) == N)
        urls = visited(job)
        assert {item["url"] for item in json_lines(tmp_path / "items.jsonl")} >= urls
        assert {row["url"] for row in table(tmp_path / "items.csv")} >= urls
        assert in_archives(tmp_path / "warc") >= urls
        # What a crash in the middle of a write leaves.
        for name, torn in (("items.jsonl", '{"url": "http://h'), ("items.csv", 'http://h,"a b')):
            with (tmp_path / name).open("a", encoding="utf-8") as file:
                file.write(torn)
        web.is_free.set()
        done = processes.run_and_read(ours(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was incomplete: its ") == 2
    assert Counter(item["url"] for item in json_lines(tmp_path / "items.jsonl")).keys() == visited(job)
    assert {row["url"] for row in table(tmp_path / "items.csv")} == visited(job)
    assert len(visited(job)) == N + 1


def feeds(**more: Any) -> str:
    options = {"format": "jsonlines"}
    return json.dumps({"items.jsonl": options, "items.csv": {"format": "csv"}, **more})


BATCHES = {"batch-%(batch_id)d.csv": {"format": "csv", "batch_item_count": 7}}


def spider_items(folder: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Name of each kind of feed, and the URLs and visits of its items."""
    for name in ("items.jsonl", "items.csv", "batch-*.csv"):
        found = [
            (row["url"], row["part"])
            for path in folder.glob(name)
            for row in (table(path) if path.suffix == ".csv" else json_lines(path))
        ]
        yield name, found
    with closing(sqlite3.connect(folder / "items.sqlite3")) as database:
        yield "items.sqlite3", database.execute("SELECT url, part FROM items").fetchall()


def test_feeds_of_a_spider_with_pipelines_of_its_own_outlive_a_kill(tmp_path):
    job, web = tmp_path / "job", Web()
    with Server(web.answer).run_in_thread() as running:
        line, environment = command(
            job,
            running.url,
            spider=SPIDER,
            FEEDS=feeds(**BATCHES),
            AOPIC_POLITENESS_FACTOR=0,
            AOPIC_BACKOFF=0,
        )
        run_until(line, environment, tmp_path, lambda: len(visited(job)) == N)
        for name, found in spider_items(tmp_path):
            assert {url for url, _ in found} >= visited(job), name
            assert len(set(found)) == 2 * len({url for url, _ in found}), name
        web.is_free.set()
        assert processes.run(line, env=environment, cwd=tmp_path, timeout=300).returncode == 0
    for name, found in spider_items(tmp_path):
        assert len(set(found)) == 2 * (N + 1), name


@pytest.mark.long
@pytest.mark.parametrize("where", ["disk", "server"])
def test_kills_at_random_moments_cost_no_item(tmp_path, where):
    job = tmp_path / "job"
    rng = random.Random(where)
    if where == "server" and find_server() is None:
        pytest.skip(WHY_NOT)
    with ExitStack() as stack:
        running = stack.enter_context(Server(answer).run_in_thread())
        more: dict[str, object] = {"AOPIC_MIN_GAP": 0.2, "AOPIC_BACKOFF": 0.1}
        if where == "server":
            url = stack.enter_context(RedisServer(tmp_path / "server")).url
            more |= {
                "AOPIC_STORE": "redis",
                "AOPIC_SHARDS": 4,
                "REDIS_URL": url,
                "AOPIC_REDIS_LOCK_TIMEOUT": 3,
            }
        line, environment = command(job, running.url, spider=SPIDER, FEEDS=feeds(**BATCHES), **more)
        for _ in range(10):
            until = len(running.log) + rng.randrange(5, 30)
            run_until(line, environment, tmp_path, lambda until=until: len(running.log) >= until)
        assert processes.run(line, env=environment, cwd=tmp_path, timeout=300).returncode == 0
    for name, found in spider_items(tmp_path):
        assert len(set(found)) == 2 * N_HOSTS * N_PAGES, name


@pytest.mark.parametrize(
    ("name", "store"),
    some_of([("items.jsonl", "sqlite"), ("items.csv", "sqlite"), ("items.jsonl", "rocksdb")], 2),
)
def test_a_full_disk_under_the_items_stops_the_crawl_and_costs_none(tmp_path, name, store):
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    job, log = tmp_path / "job", tmp_path / "log"
    big = tmp_path / name
    # As large as a file may be, but for some items: the store's files are smaller.
    line = "x" * 99 + "\n"
    head = "url,part,importance\r\n" if name == "items.csv" else ""
    limit = 2_000_000
    big.write_text(head + line * ((limit - 3_000) // len(line)), encoding="utf-8")
    n_before = len(big.read_bytes())
    with Server(answer).run_in_thread() as running:
        settings = {"FEEDS": json.dumps({name: {"format": name.rpartition(".")[2]}}), "LOG_FILE": log}
        settings |= {
            "AOPIC_STORE": store,
            "AOPIC_POLITENESS_FACTOR": 0,
            "AOPIC_BACKOFF": 0,
            "LOG_LEVEL": "INFO",
        }
        arguments, environment = command(job, running.url, spider=SPIDER, **settings)
        done = processes.run(
            arguments, env=environment, cwd=tmp_path, timeout=300, limit=("RLIMIT_FSIZE", limit)
        )
        text = log.read_text(encoding="utf-8")
        assert done.returncode == 1
        assert "'finish_reason': 'aopic_storage'" in text
        (error,) = [each for each in text.splitlines() if "] ERROR: " in each]
        assert f"The feed {name} cannot be written: the system allows no file of that size." in error
        written = big.read_bytes()[n_before:].decode()
        stopped = visited(job)
        for url in stopped:
            assert len(re.findall(rf"{re.escape(url)}[\",]", written)) == 2, url
        assert check(job).violations == []
        assert len(stopped) < N_HOSTS * N_PAGES
        assert processes.run(arguments, env=environment, cwd=tmp_path, timeout=300).returncode == 0
    last = text = big.read_bytes()[n_before:].decode()
    assert len(visited(job)) == N_HOSTS * N_PAGES
    for url in visited(job):
        assert len(re.findall(rf"{re.escape(url)}[\",]", last)) >= 2, url

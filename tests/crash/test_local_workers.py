"""One command with several workers in one job folder: workers and the command itself are killed, stopped and started again."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from demo_web.server import Running, Server
from support import processes
from support.commands import said
from support.killed_crawl import FACTOR, N_HOSTS, N_PAGES, answer, check_log, command
from support.workers import DEADLINE, check_views

from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import QUEUED, unpack_page
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.shard_states import read_states

pytestmark = pytest.mark.slow

SHARDS = 4
ALL = N_HOSTS * N_PAGES

SPIDER = """
from support.follow_spider import Follow

class One(Follow):
    name = "one"

    def parse(self, response):
        yield {"url": response.url}
        yield from super().parse(response)
"""


class Crawl:
    """A crawl by one command.

    Attributes:
        kills: When something was killed.
        items: The file of its items.
    """

    def __init__(self, folder: Path, web: Running) -> None:
        self.web = web
        self.kills: list[float] = []
        self.items = folder / "items.jsonl"
        self.job = FolderPlace(folder / "job")
        self.process: processes.Process
        self._folder = folder
        self._log = folder / "log"

    def start(
        self,
        *options: str,
        workers: int = 2,
        shards: int = SHARDS,
        limit: tuple[str, int] | None = None,
    ) -> None:
        """Start the command, maybe under a *limit*."""
        (self._folder / "seeds.txt").write_text("http://h0.test/0\nhttp://h1.test/1\n")
        line = [
            sys.executable, "-m", "scrapy", "aopic", "crawl", "seeds.txt", "--contact", "a@example.org", "--job", str(self.job),
            "--workers", str(workers), "-o", "items.jsonl", "-s", f"AOPIC_SHARDS={shards}", "-s", "AOPIC_DURABILITY=50",
            "-s", f"AOPIC_POLITENESS_FACTOR={FACTOR}", "-s", "LOG_LEVEL=INFO", "-s", "LOGSTATS_INTERVAL=0.05", *options,
        ]  # fmt: skip
        env = {**os.environ, "http_proxy": self.web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self._log.open("ab") as log:
            self.process = processes.start(
                line, env=env, cwd=self._folder, stdout=log, stderr=log, limit=limit
            )

    def start_spider(self, **settings: object) -> None:
        """Start a spider by Scrapy's own command."""
        spider = self._folder / "spider.py"
        spider.write_text(SPIDER)
        line, env = command(
            self.job.folder, self.web.url, spider=spider, AOPIC_SHARDS=SHARDS, AOPIC_DURABILITY=50, **settings
        )
        with self._log.open("ab") as log:
            self.process = processes.start(line, env=env, cwd=self._folder, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        """All that it has logged."""
        return self._log.read_text()

    def pids(self) -> list[int]:
        """Of the workers that show themselves."""
        states = read_states(self.job) if self.job.has_job() else None
        return [worker["pid"] for worker in states.cluster.workers.values()] if states is not None else []

    def wait_for(self, n: int, *, workers: int = 1) -> None:
        """Wait until *n* requests were answered, and so many workers crawl."""
        deadline = time.monotonic() + DEADLINE
        while len(self.web.log) < n or len(self.pids()) < workers:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def kill(self, pid: int, sign: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process, or send it another *sign*, if it has not just ended."""
        self.kills.append(time.monotonic())
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            self.kills.pop()

    def freeze(self, pid: int, seconds: float) -> None:
        """Stop a process for *seconds*, if it has not just ended; what it had under way may be asked for again."""
        self.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        self.kill(pid, signal.SIGCONT)

    def end(self) -> int:
        """The exit code, when it has ended."""
        code = self.process.wait(DEADLINE)
        assert "Traceback" not in self.said, self.said
        return code

    def check(self, shards: int = SHARDS) -> None:
        """Each page was fetched, and only once unless something was killed, the books hold, and each page has its item."""
        visited, queued, violations = check_views(self.job.open_snapshots(), shards)
        assert (visited, queued, violations) == (ALL, 0, []), self.said
        check_log(self.web.log, self.kills)
        found = Counter(json.loads(line)["url"] for line in self.items.read_text().splitlines())
        assert len(found) == ALL
        assert self.kills or {*found.values()} == {1}


@contextmanager
def crawl(folder: Path, delay: float = 0.005) -> Iterator[Crawl]:
    """A command that is not started yet; what it leaves behind is killed."""
    with Server(lambda exchange: replace(answer(exchange), delay=delay)).run_in_thread() as web:
        begun = Crawl(folder, web)
        try:
            yield begun
        finally:
            if begun.process.poll() is None:
                pids = begun.pids()
                begun.process.kill()
                begun.process.wait()
                for pid in pids:
                    begun.kill(pid)


Pages = dict[bytes, tuple[int, int]]


def fetched_and_waiting(job: FolderPlace) -> tuple[Pages, Pages]:
    """The pages of *job* that were fetched, and those that wait: shard and weight by key."""
    fetched, waiting = Pages(), Pages()
    with ExitStack() as opened:
        for number, store in enumerate(job.open_snapshots()):
            opened.callback(store.close)
            totals = read_totals(store)
            assert totals is not None
            for key, data in store.scan(Family.PAGES):
                page = unpack_page(data)
                of = waiting if page.state == QUEUED else fetched
                of[key] = number, totals.estimate().weight(page)
    return fetched, waiting


def test_workers_that_are_killed_are_replaced_and_nothing_is_lost(tmp_path):
    with crawl(tmp_path) as begun:
        begun.start()
        rng = random.Random(1)
        for n in (40, 120, 200):
            begun.wait_for(n)
            begun.kill(killed := rng.choice(begun.pids()))
            while begun.said.count("is started again") < len(begun.kills) and begun.process.poll() is None:
                time.sleep(0.02)
            assert killed not in begun.pids()
        assert begun.end() == 0
        begun.check()
        assert "was killed (SIGKILL) and is started again" in begun.said
        assert "Audit: every invariant holds." in begun.said


def test_a_command_that_is_killed_or_stopped_goes_on_with_another_number_of_workers(tmp_path):
    with crawl(tmp_path, delay=0.1) as begun:
        begun.start(workers=2)
        begun.wait_for(40)
        begun.kill(begun.process.pid)  # its workers settle, and end
        begun.process.wait()
        begun.start(workers=3)
        begun.wait_for(len(begun.web.log) + 40)
        begun.process.send_signal(signal.SIGTERM)
        assert begun.end() == 0
        assert len(begun.web.log) < ALL
        begun.start(workers=1)
        assert begun.end() == 0
        begun.check()
        assert re.search(r" INFO: [\d,]+ pages · .* queued · 3 workers", begun.said)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_workers_the_command_and_all_of_them_are_killed_and_frozen_at_random(tmp_path, seed):
    """Ten times for each seed, by a command that is started again with another number of workers."""
    rng = random.Random(seed)
    with crawl(tmp_path, delay=0.03) as begun:
        begun.start(workers=2)
        for _ in range(10):
            goal = len(begun.web.log) + rng.randrange(5, 25)
            while len(begun.web.log) < goal and begun.process.poll() is None:
                time.sleep(0.01)
            pids = begun.pids()
            what = rng.choice(["worker", "worker", "command", "all", "frozen"] if pids else ["command"])
            if what == "frozen":
                begun.freeze(rng.choice(pids), rng.uniform(0.5, 5))
            elif what == "worker":
                begun.kill(rng.choice(pids))
            else:
                for pid in [begun.process.pid, *(pids if what == "all" else [])]:
                    begun.kill(pid)
            if begun.process.poll() is not None or what in ("command", "all"):
                begun.process.wait()
                begun.start(workers=rng.choice([1, 2, 3]))
        assert begun.end() == 0
        begun.check()


def test_workers_on_a_full_disk_stop_and_go_on_when_there_is_room(tmp_path, monkeypatch):
    pytest.importorskip("resource", reason="needs limits on processes")
    monkeypatch.setenv("AOPIC_FORK", "0")  # the workers inherit the limit
    with crawl(tmp_path) as begun:
        begun.start("-s", "LOG_LEVEL=WARNING", limit=("RLIMIT_FSIZE", 100_000))
        assert begun.end() == 1
        begun.kills.append(time.monotonic())
        assert "nothing that was committed is lost, run the same command to go on" in begun.said
        visited, _, violations = check_views(begun.job.open_snapshots(), SHARDS)
        assert violations == []
        assert 0 < visited < ALL
        begun.start()
        assert begun.end() == 0
        begun.check()


def test_a_shard_that_cannot_be_opened_ends_the_crawl_with_an_exit_code_of_its_own(tmp_path):
    with crawl(tmp_path) as begun:
        begun.start("--pages", "60")
        assert begun.end() == 0
        store = begun.job.stores(begun.job.read_sharding())[1]
        for path in [
            *store.glob("*.sst"),
            *store.glob("*.log"),
            *store.glob("CURRENT"),
            *store.glob("*.sqlite3*"),
        ]:
            path.write_bytes(b"")
        begun.start()
        assert begun.end() == 1
        assert f"{store}" in begun.said


def test_limits_count_all_workers_and_tables_have_one_head(tmp_path, monkeypatch):
    monkeypatch.setenv("AOPIC_FORK", "0")  # the workers are started as ever
    with crawl(tmp_path) as begun:
        begun.start("--pages", "60", "-o", "table.csv", workers=2)
        assert begun.end() == 0
        assert 60 <= len(begun.web.log) < ALL
        assert "ended (closespider_pagecount)" in begun.said
        with (tmp_path / "table.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        urls = [json.loads(line)["url"] for line in begun.items.read_text().splitlines()]
        assert Counter(row["url"] for row in rows) == Counter(urls)
        assert len({*urls}) == len(urls) >= 60


def test_scrapys_own_commands_start_workers_and_other_formats_get_parts(tmp_path):
    with crawl(tmp_path) as begun:
        begun.items.write_text("of another crawl")
        feeds = {"items.jsonl": {"format": "jsonlines", "overwrite": True}, "pages.xml": {"format": "xml"}}
        settings: dict[str, object] = {
            "AOPIC_WORKERS": 2, "ADDONS": json.dumps({"scrapy_aopic.Addon": 500}), "FEEDS": json.dumps(feeds), "LOG_LEVEL": "INFO",
        }  # fmt: skip
        begun.start_spider(**settings)
        assert begun.end() == 0
        begun.check()
        parts = sorted(path.name for path in tmp_path.glob("pages*.xml"))
        assert parts == ["pages-1.xml", "pages-2.xml"]
        assert sum((tmp_path / part).read_text().count("<url>") for part in parts) == ALL
        sums = begun.said.rpartition("Sums of their stats:")[2]
        for name in ("item_scraped_count", "aopic/job/visited"):
            assert f"'{name}': {ALL}" in sums, "also if shards were handed over at the end"
        assert not re.search(r"'(aopic/(live|cash|shards)/.*|elapsed.*|.*max)'", sums), (
            "speeds and maxima have no sum"
        )
        begun.start_spider(**{**settings, "AOPIC_STORE": "memory"})
        assert begun.end() == 1
        assert "starts workers that share a job folder, and AOPIC_STORE is" in begun.said


def test_a_job_in_one_piece_is_cut_and_goes_on_with_several_workers(tmp_path):
    with crawl(tmp_path) as begun:
        begun.start("--pages", "120", workers=1, shards=1)
        assert begun.end() == 0
        known, waits = fetched_and_waiting(begun.job)
        begun.start(workers=2)
        assert begun.end() == 1
        assert "The crawl by all workers ended (aopic_workers)" in begun.said
        way_out = re.search(r"'scrapy aopic (salvage \S+) NEW --shards [0-9]+' makes NEW", begun.said)
        assert way_out
        begun.job = FolderPlace(tmp_path / "cut")
        text = said(tmp_path, *way_out[1].split(), begun.job, "--shards", SHARDS)
        assert f"{len(waits)} pages wait and {len(known)} are known as fetched, on {N_HOSTS} hosts." in text
        lost = "Lost: 0 that waited, whose requests are gone; 0 of hosts whose names are gone; 0 of which"
        assert lost in text
        assert f"JOBDIR={begun.job}, and AOPIC_WORKERS or --workers" in text
        now_known, now_wait = fetched_and_waiting(begun.job)
        assert (now_known.keys(), now_wait.keys()) == (known.keys(), waits.keys())
        for number in range(SHARDS):  # what is worth more than another page of its shard still is
            times = [
                now_wait[key][1] / cash for key, (_, cash) in waits.items() if now_wait[key][0] == number
            ]
            assert max(times) - min(times) < 1e-3
        found = audit_job(begun.job)
        assert (found.violations, found.cash + found.virtual) == ([], SHARDS * TOTAL)
        begun.start(workers=2)
        begun.wait_for(ALL * 2 // 3, workers=2)
        for pid in [begun.process.pid, *begun.pids()]:
            begun.kill(pid)
        begun.process.wait()
        old, begun.job = begun.job, FolderPlace(tmp_path / "cut anew")
        known, waits = fetched_and_waiting(old)
        said(tmp_path, "salvage", old, begun.job, "--shards", 7)
        now_known, now_wait = fetched_and_waiting(begun.job)
        assert now_known.keys() == known.keys()
        assert now_wait.keys() >= waits.keys(), "letters may have brought more"
        found = audit_job(begun.job)
        assert (found.violations, found.cash + found.virtual) == ([], 7 * TOTAL)
        begun.start(workers=3, shards=7)
        assert begun.end() == 0
        begun.check(shards=7)


def test_a_round_by_several_workers_visits_each_page_once_more(tmp_path):
    with crawl(tmp_path) as begun:
        for n, options in [(1, ()), (2, ("--again",))]:
            begun.start(*options)
            assert begun.end() == 0, begun.said
            fetched = Counter((entry.host, entry.target) for entry in begun.web.log if entry.status == 200)
            assert len(fetched) == ALL
            assert {*fetched.values()} == {n}

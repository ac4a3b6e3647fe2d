"""Kill hundreds of real crawls with SIGKILL at random moments, and judge what the server and a witness saw.

    python benchmarks kills [--kills 1000] [--parallel 2] [--seed 1] [--set AOPIC_FAST_DOWNLOADS=False]

Each job crawls a web of its own, a tree: a page is linked to from one other page only, so that a link that is lost is
a branch that is never seen. Jobs take turns in the kind of store and in AOPIC_DURABILITY. A run of a job is a forked
process with the add-on; it is killed

    run      at any moment of the first second and a half at work,
    open     while it opens the job, or leaves all hosts alone after the crash before,
    close    after SIGTERM, while it closes,
    backup   while another process copies the job, which is killed at the same moment,

until the job was killed ``--kills-per-job`` times; the last run may finish. After each kill the audit of
``scrapy aopic check`` must hold, and a copy that was made must hold, too; a job that was killed before its first
commit may be refused as not made yet. A witness in the process writes down, past
all buffers, when a page is settled, when a commit is taken and when it has landed. Each page that is no redirect has an
item, which goes to two feeds. Wrong is

    - a visited page without its item in a feed, and a table that has the names of its columns twice;
    - a page that is asked for again although no kill lies between, or although a commit with its visit had landed;
    - at the end, a page that was never asked for, or not visited;
    - a host that is asked twice at once or too early.

What is printed beside: pages that were fetched again, because they were in work at the kill or settled, but not yet
committed; how long before the kill the oldest of the latter was settled; visited pages without an item, by feed; and items
that were written again.
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from importlib import import_module
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import options
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object
from tqdm import tqdm

import scrapy_aopic
from scrapy_aopic.addon import Addon
from scrapy_aopic.copies.backing_up import backup
from scrapy_aopic.core.audit import audit as audit_store
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job import open_shard
from scrapy_aopic.job.commit_thread import ShardCommits
from scrapy_aopic.place.folder_place import FolderPlace, store_folder
from scrapy_aopic.scheduler import Scheduler
from scrapy_aopic.session.dispatch import Dispatch
from scrapy_aopic.session.session import Session
from scrapy_aopic.session.visit import Visit
from scrapy_aopic.storage import exists, open_snapshot
from scrapy_aopic.web.request_rows import url_of

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server import Answer, Exchange, Server
from demo_web.server_log import Entry, audit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FACTOR, MAX_GAP = 10.0, 0.1
"""Politeness, and with it the pause after a crash; short, so that a run gets far before it is killed."""

N_HOSTS, CHILDREN = 40, 4
KINDS = ("run",) * 11 + ("open",) * 4 + ("close",) * 3 + ("backup",) * 2
FEEDS = {"jsonlines": "items.jsonl", "csv": "items.csv"}
STUCK = 120.0
"""Seconds without anything settled after which a run that was left alone counts as hanging."""


# -- the web


def name(job: int, page: int) -> str:
    """URL of a *page* of a *job*; neighbours in the tree are on different hosts."""
    return f"http://h{page * 7 % N_HOSTS}.job{job}.test/{page}"


def is_redirect(page: int) -> bool:
    """Whether the *page* is a permanent redirect to its only child, so that the two are united."""
    return page % 10 == 5


def children(page: int, n_pages: int) -> list[int]:
    first = CHILDREN * page + 1
    return [each for each in range(first, first + CHILDREN) if each < n_pages]


def answer(exchange: Exchange, n_pages: int) -> Answer:
    job = int(exchange.host.split(".")[1][3:])
    page = int(exchange.target[1:])
    below = [name(job, each) for each in children(page, n_pages)]
    if is_redirect(page) and below:
        # The other children are linked to by the target.
        return Answer(301, headers={"Location": below[0]}, delay=0.002)
    parent = (page - 1) // CHILDREN
    if page and is_redirect(parent) and page == CHILDREN * parent + 1:
        below += [name(job, each) for each in children(parent, n_pages)[1:]]
    links = "".join(f'<a href="{url}">{url}</a>\n' for url in [*below, name(job, 0)])
    body = f"<html><title>{page}</title>{links}</html>".encode()
    return Answer(headers={"Content-Type": "text/html"}, body=body, delay=0.002 * (page % 4))


# -- what happens in a process that is killed


def preload() -> None:
    """Import what a run imports, so that one that is forked begins at once."""
    defaults = default_settings
    for names in (
        defaults.EXTENSIONS_BASE,
        defaults.DOWNLOADER_MIDDLEWARES_BASE,
        defaults.SPIDER_MIDDLEWARES_BASE,
        {f"scrapy_aopic.{each}": 0 for each in scrapy_aopic.__all__},
    ):
        for each in names:
            load_object(each)
    for each in ("http", "s3", "ftp"):
        load_object(defaults.DOWNLOAD_HANDLERS_BASE[each])
    for kind in ("rocksdb", "sqlite"):
        import_module(f"scrapy_aopic.storage.{kind}")


class Follow(scrapy.Spider):
    """Follows every link of every page, each of which has an item."""

    name = "follow"

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"url": response.url}
        for link in LinkExtractor().extract_links(response):
            yield scrapy.Request(link.url)


def follow(start: str, settings: dict[str, Any]) -> None:
    """Crawl what *start* leads to, until this process is told to end or killed."""
    common = {"ADDONS": {Addon: 500}, "AOPIC_REPORT": False, "ROBOTSTXT_OBEY": False, "LOG_LEVEL": "WARNING"}
    no_ports = {"TELNETCONSOLE_ENABLED": False, "REMOTE_CONTROL_ENABLED": False}
    process = CrawlerProcess({**common, **no_ports, **settings})
    process.crawl(Follow, start_urls=[start])
    process.start()


def note(line: str) -> None:
    os.write(WITNESS[0], f"{time.monotonic():.6f}\t{line}\n".encode())


WITNESS: list[int] = []
"""Descriptor of the file of this process's witness."""


class WitnessedCommits(ShardCommits):
    """Says when a commit is taken and when it has landed."""

    def take(self, *, is_clean: bool = False) -> None:
        super().take(is_clean=is_clean)
        note("taken\t")

    def land(self) -> None:
        before = self.n_landed
        super().land()
        if self.n_landed > before:
            note("landed\t")


class WitnessedDispatch(Dispatch):
    """Says when a page is settled."""

    def end(self, visit: Visit, now: float) -> None:
        super().end(visit, now)
        if visit.retry is None:
            note(f"settled\t{url_of(visit.lease.request)}")


class WitnessedSession(Session):
    dispatch_class = WitnessedDispatch


class WitnessedScheduler(Scheduler):
    session_class = WitnessedSession


def crawl(folder: Path, start: str, settings: dict[str, Any], witness: Path) -> None:
    open_shard.ShardCommits = WitnessedCommits  # type: ignore[attr-defined]
    WITNESS.append(os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    follow(
        start,
        {
            "SCHEDULER": WitnessedScheduler,
            "JOBDIR": str(folder),
            "FEEDS": {folder.parent / name: {"format": kind} for kind, name in FEEDS.items()},
            "AOPIC_POLITENESS_FACTOR": FACTOR,
            "AOPIC_MAX_GAP": MAX_GAP,
            **settings,
        },
    )


def copy(folder: Path, target: Path) -> None:
    tqdm.set_lock(RLock())  # its own is a named one, which a kill would leave behind
    backup(FolderPlace(folder), target)


def check(folder: Path, is_begun: bool) -> None:
    try:
        store = open_snapshot(store_folder(folder))
    except StorageError as error:
        if is_begun or "not made yet" not in str(error):
            raise
        print("[0, 0, 0]")
        return
    result = audit_store(store)
    store.close()
    if not result.holds:
        raise AssertionError(result.violations)
    print(json.dumps([result.visited, result.failed, result.queued]))


def fork(log: Path, task: Callable[..., None], *args: Any) -> int:
    """Do *task* in a process of its own, which costs some milliseconds; returns its number.

    Stores are opened there only: their threads would not outlive the next fork.
    """
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        task(*args)
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may go on from here in the forked process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait_for(process: int, seconds: float, until: Callable[[], bool] = lambda: False) -> int | None:
    """Exit code of *process*; ``None`` if it is still there after so many *seconds*, or when *until* is true."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline or until():
            return None
        time.sleep(0.002)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for_end(process: int, witness: Path) -> int | None:
    """Exit code of *process*; ``None`` if its *witness* has had nothing to say for :data:`STUCK` seconds."""
    size, code = -1, None
    while code is None and (now := size_of(witness)) > size:
        size, code = now, wait_for(process, STUCK)
    return code


def end(process: int) -> int:
    """Kill *process* and return its exit code."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


# -- a job and its kills


class Note(NamedTuple):
    """A line of a witness."""

    at: float
    what: str
    url: str


@dataclass
class Run:
    """A run of a job, from its fork to its end; *notes* are its witness's."""

    kind: str
    begin: float
    end: float = 0.0
    was_killed: bool = False
    notes: list[Note] = field(default_factory=list)


@dataclass
class Report:
    """What a worker saw of a job."""

    job: int
    store: str
    durability: str
    runs: list[Run] = field(default_factory=list)
    copies: int = 0
    wrong: list[str] = field(default_factory=list)
    counts: tuple[int, int, int] = (0, 0, 0)
    items: dict[str, list[str]] = field(default_factory=dict)


class Worker:
    """Crawls a *job* whose every process it forks, kills and checks."""

    def __init__(self, job: int, seed: str, folder: Path, settings: dict[str, str]) -> None:
        self.settings = settings
        self.report = Report(job, ("rocksdb", "sqlite")[job % 2], ("500", "page")[job // 2 % 2])
        self.rng = random.Random(f"{seed} {job}")
        self.place = folder / f"job{job}"
        self.place.mkdir()
        self.job, self.copy, self.log = self.place / "job", self.place / "copy", self.place / "log"

    def run(self, kind: str) -> bool:
        """Crawl until the run ends or is killed in a way; whether the crawl has come to its end."""
        report = self.report
        witness = self.place / f"witness{len(report.runs)}"
        settings = {"AOPIC_STORE": report.store, "AOPIC_DURABILITY": report.durability, **self.settings}
        run = Run(kind, time.monotonic())
        report.runs.append(run)
        process = fork(self.log, crawl, self.job, name(report.job, 0), settings, witness)
        if kind == "last":
            code = wait_for_end(process, witness)
        elif kind == "open":
            code = wait_for(process, self.rng.uniform(0.0, 0.4))
        else:
            code = wait_for(process, STUCK, until=lambda: size_of(witness) > 0)
            code = wait_for(process, self.rng.uniform(0.1, 1.5)) if code is None else code
        copier = 0
        if code is None and kind == "close":
            os.kill(process, signal.SIGTERM)
            code = wait_for(process, self.rng.uniform(0.0, 0.15))
        elif code is None and kind == "backup":
            shutil.rmtree(self.copy.with_suffix(".part"), ignore_errors=True)
            shutil.rmtree(self.copy, ignore_errors=True)
            copier = fork(self.log, copy, self.job, self.copy)
            code = wait_for(process, self.rng.uniform(0.0, 0.3))
        if code is None:
            run.was_killed = end(process) == -signal.SIGKILL
            if kind == "last":
                self.complain("it hangs")
        elif code == -signal.SIGTERM:
            run.was_killed = True  # it was not yet so far that it minds signals
        elif code:
            self.complain(f"exit code {code}")
        self.wait_for_server()
        run.end = time.monotonic()
        if copier:
            end(copier)
        if witness.exists():
            lines = [line.split("\t") for line in witness.read_text().splitlines()]
            run.notes = [Note(float(instant), what, url) for instant, what, url in lines]
        return code == 0 and kind != "close"

    def wait_for_server(self) -> None:
        """Let the server read what the process still sent: a connection is accepted in one turn and read in the next."""
        address = urlsplit(os.environ["http_proxy"]).netloc
        for _ in range(3):
            connection = HTTPConnection(address, timeout=STUCK)
            connection.request("GET", "http://nobody.job999999.test/0")
            connection.getresponse().read()
            connection.close()

    def check(self, folder: Path) -> tuple[int, int, int]:
        """Pages visited, failed and queued of the job in *folder*, which must be in order."""
        answer = self.place / "check"
        answer.unlink(missing_ok=True)
        is_begun = any(note.what == "landed" for run in self.report.runs for note in run.notes)
        if wait_for(fork(answer, check, folder, is_begun), STUCK) != 0:
            self.complain(f"{folder.name}: {answer.read_text()[-2000:]}")
            return (0, 0, 0)
        visited, failed, queued = json.loads(answer.read_text().splitlines()[-1])
        return visited, failed, queued

    def read_items(self) -> dict[str, list[str]]:
        """URLs of the items in each feed."""
        items = {}
        with (self.place / FEEDS["jsonlines"]).open(encoding="utf-8") as file:
            items["jsonlines"] = [json.loads(line)["url"] for line in file]
        with (self.place / FEEDS["csv"]).open(encoding="utf-8", newline="") as file:
            items["csv"] = [row["url"] for row in csv.DictReader(file)]
        return items

    def complain(self, text: str) -> None:
        log = self.log.read_text()[-2000:] if self.log.exists() else ""
        self.report.wrong.append(f"run {len(self.report.runs)}: {text}; the end of the log: {log}")


def live(job: int, seed: str, proxy: str, folder: Path, n_kills: int, *, settings: dict[str, str]) -> Report:
    """Crawl a job, killing it *n_kills* times."""
    os.environ["http_proxy"] = proxy
    preload()
    worker = Worker(job, seed, folder, settings)
    report = worker.report
    is_over = False
    while not is_over and not report.wrong:
        n_killed = sum(run.was_killed for run in report.runs)
        is_over = worker.run(worker.rng.choice(KINDS) if n_killed < n_kills else "last")
        if exists(store_folder(worker.job)):
            report.counts = worker.check(worker.job)
        if worker.copy.exists():
            report.copies += 1
            worker.check(worker.copy)
            shutil.rmtree(worker.copy)
    report.items = worker.read_items()
    if not report.wrong:
        shutil.rmtree(worker.place)
    return report


# -- the judgement


@dataclass
class Sums:
    """Of all jobs with one store and durability."""

    jobs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    visited: int = 0
    in_work: int = 0
    uncommitted: int = 0
    oldest: float = 0.0
    most: int = 0
    without_item: Counter[str] = field(default_factory=Counter)
    twice: Counter[str] = field(default_factory=Counter)


def read_notes(run: Run) -> tuple[dict[str, float], dict[str, float]]:
    """When the run settled each URL, and when a commit landed that holds this."""
    settled: dict[str, float] = {}
    landed: dict[str, float] = {}
    waiting: list[str] = []
    taken: list[str] = []
    for at, what, url in run.notes:
        if what == "settled":
            settled[url] = at
            waiting.append(url)
        elif what == "taken":
            taken += waiting  # a commit that fails is part of the next one
            waiting = []
        else:
            landed.update(dict.fromkeys(taken, at))
            taken = []
    return settled, landed


def judge(report: Report, entries: list[Entry], n_pages: int, sums: Sums) -> list[str]:
    """Add *report* to the *sums*; returns what is wrong with it."""
    wrong = list(report.wrong)
    asked: dict[str, list[float]] = {name(report.job, page): [] for page in range(n_pages)}
    for entry in entries:
        asked[f"http://{entry.host}{entry.target}"].append(entry.start)
    landed: dict[str, float] = {}
    kills: list[tuple[Run, dict[str, float]]] = []
    for run in report.runs:
        settled, of_run = read_notes(run)
        landed.update(of_run)
        if run.was_killed:
            kills.append((run, settled))
    lost = [0] * len(kills)
    for url, starts in asked.items():
        starts.sort()
        for first, second in pairwise(starts):
            at = next((n for n, (run, _) in enumerate(kills) if first <= run.end <= second), None)
            if at is None:
                wrong.append(f"{url} was asked for twice with no kill between")
                continue
            run, settled = kills[at]
            lost[at] += 1
            sums.in_work += url not in settled
            if url in settled:
                sums.uncommitted += 1
                sums.oldest = max(sums.oldest, run.end - settled[url])
        if url in landed and starts[-1] > landed[url]:
            wrong.append(f"{url} was asked for again after the commit of its visit had landed")
    missing = sum(not starts for starts in asked.values())
    if missing or report.counts != (n_pages, 0, 0):
        wrong.append(f"{missing} pages were never asked for; visited, failed, queued: {report.counts}")
    wrong += audit(entries, FACTOR, 0.0, MAX_GAP).violations
    with_items = {
        name(report.job, page)
        for page in range(n_pages)
        if not (is_redirect(page) and children(page, n_pages))
    }
    for feed, urls in report.items.items():
        if "url" in urls:
            wrong.append(f"the columns of {FEEDS[feed]} are named {urls.count('url') + 1} times")
        if without := with_items - {*urls}:
            sums.without_item[feed] += len(without)
            wrong.append(f"{len(without)} visited pages have no item in {FEEDS[feed]}")
        sums.twice[feed] += len(urls) - len({*urls})
    sums.jobs += 1
    sums.kills.update(run.kind for run, _ in kills)
    sums.visited += report.counts[0]
    sums.most = max(sums.most, *lost, 0)
    return [f"job {report.job} ({report.store}, {report.durability}): {each}" for each in wrong]


def main() -> int:
    args = options.read(__doc__, kills=1000, kills_per_job=25, pages=1500, parallel=2, seed="1", set={})

    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    wrong: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    server = Server(lambda exchange: answer(exchange, args.pages))
    # Workers that are spawned have one thread, so that they may fork.
    with server.run_in_thread() as running, ProcessPoolExecutor(args.parallel, get_context("spawn")) as pool:
        jobs = killed = copies = 0
        working: set[Future[Report]] = set()
        while True:
            planned = killed + len(working) * args.kills_per_job
            while len(working) < args.parallel and planned < args.kills and not wrong:
                n_kills = min(args.kills_per_job, args.kills - planned)
                working.add(
                    pool.submit(live, jobs, args.seed, running.url, folder, n_kills, settings=args.set)
                )
                jobs, planned = jobs + 1, planned + n_kills
            if not working:
                break
            done, working = wait(working, return_when=FIRST_COMPLETED)
            for each in done:
                report = each.result()
                while server.n_under_way:
                    time.sleep(0.01)
                domain = f".job{report.job}.test"
                entries = [entry for entry in list(running.log) if entry.host.endswith(domain)]
                found = judge(report, entries, args.pages, sums[report.store, report.durability])
                wrong += found
                killed += sum(run.was_killed for run in report.runs)
                copies += report.copies
                print(f"job {report.job}: {killed} kills so far, {len(found)} wrong", flush=True)
                for line in found[:20]:
                    print(f"  {line}", flush=True)

    print("| store, durability | jobs | kills: run, open, close, backup | visited | fetched again: in flight "
          "| settled, not committed | oldest of these | most at one kill "
          f"| pages without an item: {', '.join(FEEDS)} | items written twice |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (store, durability), of in sorted(sums.items()):
        kinds = ", ".join(str(of.kills[kind]) for kind in dict.fromkeys(KINDS))
        print(
            f"| {store}, {durability} | {of.jobs} | {of.kills.total()}: {kinds} | {of.visited:,} | {of.in_work} "
            f"| {of.uncommitted} | {1000 * of.oldest:.0f} ms | {of.most} "
            f"| {', '.join(str(of.without_item[feed]) for feed in FEEDS)} "
            f"| {', '.join(str(of.twice[feed]) for feed in FEEDS)} |"
        )
    print(f"{killed} kills, {copies} whole copies made in time, {len(wrong)} wrong")
    if wrong:
        print(f"jobs that went wrong are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

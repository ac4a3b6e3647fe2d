"""Let crawls, salvages, copies and lists of seeds run into each other at one job folder, and take the folder away.

    python benchmarks races [--rounds 300] [--seed 1] [--pages 2000]

In each round two to six processes start at random moments of a second at one job: crawls, salvages, copies,
lists of seeds. In two rounds of five the job folder is taken away in
the middle: moved, moved and another job put in its place, or deleted. Then each process is killed at a random moment,
or told to end by SIGTERM. Jobs take turns in the kind of store. Wrong is

    - two processes that have the job at the same time, as a witness in each says;
    - a byte that is changed in a job that was put in the place of another one, unless a process began with it there;
    - a job, or a copy, in which ``scrapy aopic check`` finds that something does not hold, or with fewer visited pages
      than after the round before;
    - a traceback, a process that hangs, or one that is refused without one of the sentences below.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import options
from kills import answer, end, follow, fork, name, preload, wait_for
from tqdm import tqdm

from scrapy_aopic.copies import backing_up as backups
from scrapy_aopic.copies.salvaging import salvage_job
from scrapy_aopic.core.audit import audit
from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.session import open_job
from scrapy_aopic.storage import exists, lock_job, open_snapshot

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server import Server

TASKS = ("crawl",) * 5 + ("salvage", "backup", "seed")
TAKEN_AWAY = ("moved", "replaced", "replaced", "deleted")
START = name(0, 0)
STUCK = 60.0
"""Seconds after SIGTERM after which a process counts as hanging."""

SENTENCES = (
    r"is in use: .*; wait for its end or choose another folder",
    r"was moved, deleted or replaced",
    r"There is no (job|store) in the folder",
    r"is not made yet",
    r"exists; remove it",
    r"changes too fast for a snapshot",
    r"cannot be (made|written|put into .*|added to .*): .*(No such file or directory|no such file or folder)",
    r"Cannot open the store in .*(No such file or directory|no such file or folder|unable to open database file)",
)


# -- what happens in the processes


def note(witness: Path, what: str, folder: int) -> None:
    with witness.open("a", encoding="ascii") as file:
        file.write(f"{time.monotonic():.6f} {os.getpid()} {what} {folder}\n")


def crawl(job: Path, kind: str, witness: Path) -> None:
    class WitnessedJob(Job):
        """Says when it has the job and when it has let it go."""

        def __init__(self, folder: Path | None, *args: Any, **options: Any) -> None:
            super().__init__(folder, *args, **options)
            around = getattr(getattr(self, "_lock", None), "around", None)
            self.at = (around.where if around else job).stat().st_ino
            note(witness, "begin", self.at)

        def close(self, *args: Any) -> None:
            note(witness, "end", self.at)
            super().close(*args)

    open_job.Job = WitnessedJob  # type: ignore[attr-defined]
    gaps = {"AOPIC_POLITENESS_FACTOR": 1, "AOPIC_MAX_GAP": 0.05}
    follow(START, {"JOBDIR": str(job), "AOPIC_STORE": kind, "AOPIC_DURABILITY": 100, **gaps})


def witness_locks(witness: Path) -> None:
    """Say when a lock is had, which is before a job is opened."""

    def locked(store: Path, task: str) -> Any:
        lock = lock_job(store, task)
        note(witness, "locked", lock.around.where.stat().st_ino)
        return lock

    open_job.lock_job = locked  # type: ignore[attr-defined]
    backups.lock_job = locked  # type: ignore[attr-defined]


def do(task: str, job: Path, kind: str, witness: Path, copy: Path) -> None:
    tqdm.set_lock(RLock())  # its own is a named one, which a kill would leave behind
    witness_locks(witness)
    try:
        if task == "crawl":
            crawl(job, kind, witness)
        elif task == "salvage":
            salvage_job(FolderPlace(job), copy)
        elif task == "backup":
            backups.backup(FolderPlace(job), copy)
        else:
            add_seeds(FolderPlace(job), [START])
    except AopicError as error:
        print(error)


def look(job: Path) -> None:
    store = open_snapshot(store_folder(job))
    store.verify()
    result = audit(store)
    store.close()
    if not result.holds:
        raise AssertionError(result.violations)
    print(result.visited)


# -- a round


class Actor(NamedTuple):
    """A process of a round: what it does, and when it starts and is ended, in seconds of the round."""

    task: str
    start: float
    end: float
    is_killed: bool


class Races:
    """Rounds at one job; the web of the job has *pages*."""

    def __init__(self, seed: str, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.place = folder
        self.job, self.away, self.other = (folder / each for each in ("job", "away", "other"))
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.visited = 0
        self.kind = ""
        self.n = 0

    def begin_anew(self) -> None:
        """A new job, and another one to put in its place."""
        for each in (self.job, self.away, self.other):
            shutil.rmtree(each, ignore_errors=True)
        self.kind, self.visited = ("rocksdb", "sqlite")[self.n // 10 % 2], 0
        self.run(self.other, Actor("crawl", 0.0, 1.5, is_killed=False))

    def run(self, job: Path, actor: Actor) -> None:
        """Let a single process do what it does to its end, which is counted from when there is a job, however busy it is."""
        process = self.fork(job, actor, 0)
        begun = wait_for(process, STUCK, lambda: exists(store_folder(job)))
        if begun is not None or wait_for(process, actor.end) is not None:
            return
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        if wait_for(process, STUCK) is None:
            end(process)
            self.complain("a crawl that is alone hangs")

    def fork(self, job: Path, actor: Actor, number: int) -> int:
        copy = self.place / f"copy{self.n}.{number}"
        return fork(self.log(number), do, actor.task, job, self.kind, self.witness(number), copy)

    def log(self, number: int) -> Path:
        return self.place / f"log{self.n}.{number}"

    def witness(self, number: int) -> Path:
        return self.place / f"witness{self.n}.{number}"

    def round(self) -> None:
        self.n += 1
        rng = self.rng
        if not exists(store_folder(self.other)) or self.n % 10 == 1:
            self.begin_anew()
        actors = []
        for _ in range(rng.randint(2, 6)):
            start = rng.uniform(0.0, 0.8)
            actors.append(Actor(rng.choice(TASKS), start, start + rng.uniform(0.1, 1.5), rng.random() < 0.5))
        how = rng.choice(TAKEN_AWAY) if rng.random() < 0.4 else ""
        away_at = rng.uniform(0.1, 1.2) if how else float("inf")
        processes, ended, began = self.race(actors, how, away_at)
        self.counts.update(actor.task for number, actor in enumerate(actors) if number in processes)
        self.counts[how] += 1
        self.judge_owners(processes, ended)
        for number in processes:
            self.judge_log(number, actors[number].task)
        self.put_back(how, began)
        if exists(store_folder(self.job)):
            self.visited = max(self.look(self.job, self.visited), self.visited)
        for copy in self.place.glob("copy*"):
            if copy.suffix != ".part":
                self.counts["copies"] += 1
                self.look(copy, 0)
            shutil.rmtree(copy)
        if not self.wrong:
            for path in (*self.place.glob("log*"), *self.place.glob("witness*")):
                path.unlink()

    def race(
        self, actors: list[Actor], how: str, away_at: float
    ) -> tuple[dict[int, int], dict[int, float], dict[str, bytes]]:
        """Processes by number of their actor, when they ended, and what was in the place of the job."""
        processes: dict[int, int] = {}
        ended: dict[int, float] = {}
        try:
            before = self.watch(actors, how, away_at, processes, ended)
        finally:  # else a crawl would outlive the run
            for number in processes.keys() - ended.keys():
                end(processes[number])
        return processes, ended, before

    def watch(
        self,
        actors: list[Actor],
        how: str,
        away_at: float,
        processes: dict[int, int],
        ended: dict[int, float],
    ) -> dict[str, bytes]:
        """Begin and end *processes*; returns what was in the place of the job."""
        told: set[int] = set()
        before: dict[str, bytes] = {}
        begin = time.monotonic()
        while len(ended) < len(processes) or (not told and not processes) or time.monotonic() - begin < 2.4:
            now = time.monotonic() - begin
            if how and now >= away_at and not before and not self.away.exists():
                before = self.take_away(how)
                if how == "deleted":
                    how = ""
            for number, actor in enumerate(actors):
                if number not in processes and actor.start <= now < away_at:
                    processes[number] = self.fork(self.job, actor, number)
                if number not in processes or number in ended:
                    continue
                process = processes[number]
                code = wait_for(process, 0.0)
                if code is None and now >= actor.end + STUCK:
                    self.complain(f"{actor.task} {number} hangs: {self.log(number).read_text()[-1000:]}")
                    code = end(process)
                elif code is None and now >= actor.end and actor.is_killed:
                    code = end(process)
                elif code is None and now >= actor.end and number not in told:
                    told.add(number)
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGTERM)
                if code is not None:
                    ended[number] = time.monotonic()
            if min(actor.start for actor in actors) >= away_at:
                break
            time.sleep(0.002)
        return before

    def take_away(self, how: str) -> dict[str, bytes]:
        if not self.job.exists():
            return {}
        if how == "deleted":
            self.job.rename(self.away)
            shutil.rmtree(self.away)
            self.visited = 0
            return {}
        self.job.rename(self.away)
        if how == "replaced":
            shutil.copytree(self.other, self.place / "copied")
            try:
                (self.place / "copied").rename(self.job)
            except OSError:  # a process that has just begun made a new folder there
                shutil.rmtree(self.place / "copied")
                return {}
            return contents(self.job)
        return {}

    def put_back(self, how: str, before: dict[str, bytes]) -> None:
        if not self.away.exists():
            return
        if before:
            begun = any(
                f" locked {self.job.stat().st_ino}\n" in path.read_text()
                for path in self.place.glob("witness*")
            )
            self.counts["begun with the other"] += begun
            now = contents(self.job)
            changed = [each for each in {**before, **now} if before.get(each) != now.get(each)]
            if changed and not begun:
                self.complain(f"the job that was put in the place of another one is changed: {changed}")
            self.look(self.job, 0)
        shutil.rmtree(self.job, ignore_errors=True)
        self.away.rename(self.job)

    # -- the judgement

    def judge_owners(self, processes: dict[int, int], ended: dict[int, float]) -> None:
        """Who had which folder when: no two at once."""
        had: list[tuple[float, float, str, int]] = []
        for number in processes:
            path = self.witness(number)
            begun: tuple[float, str] | None = None
            for line in path.read_text().splitlines() if path.exists() else ():
                at, _, what, folder = line.split()
                if what == "begin":
                    begun = float(at), folder
                elif what == "end" and begun is not None:
                    had.append((begun[0], float(at), begun[1], number))
                    begun = None
            if begun is not None:
                had.append((begun[0], ended[number], begun[1], number))
        had.sort()
        for n, (_, last, folder, number) in enumerate(had):
            for first, _, another, other in had[n + 1 :]:
                if another == folder and first < last:
                    self.complain(f"processes {number} and {other} had the job at the same time")
        self.counts["had the job"] += len(had)

    def judge_log(self, number: int, task: str) -> None:
        path = self.log(number)
        text = path.read_text(errors="replace") if path.exists() else ""
        if "Traceback" in text:
            self.complain(f"{task}: {text[-2000:]}")
        elif (text.strip() and "ERROR" in text) or (task != "crawl" and text.strip()):
            if not any(re.search(sentence, text) for sentence in SENTENCES):
                self.complain(f"{task} says: {text[-1000:]}")
            else:
                self.counts["refused or stopped"] += 1

    def look(self, job: Path, at_least: int) -> int:
        """Pages visited in *job*, which must hold."""
        report = self.place / "report"
        report.unlink(missing_ok=True)
        if wait_for(fork(report, look, job), STUCK) != 0:
            text = report.read_text()
            if "is not made yet" not in text or at_least:
                self.complain(f"{job.name} does not hold: {text[-1500:]}")
            return 0
        visited = int(report.read_text().split()[-1])
        if visited < at_least:
            self.complain(f"{job.name} has {visited} visited pages and had {at_least}")
        return visited

    def complain(self, text: str) -> None:
        self.wrong.append(f"round {self.n} ({self.kind}): {text}")
        print(self.wrong[-1], flush=True)


def contents(job: Path) -> dict[str, bytes]:
    """Files of the store in *job*, and the state of its spider."""
    paths = [*store_folder(job).iterdir(), job / "spider.state"]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def live(seed: str, proxy: str, folder: Path, n_rounds: int) -> tuple[Counter[str], list[str]]:
    os.environ["http_proxy"] = proxy
    preload()
    races = Races(seed, folder)
    for n in range(n_rounds):
        races.round()
        if n % 20 == 19:
            print(f"{n + 1} rounds, {len(races.wrong)} wrong", flush=True)
        if len(races.wrong) >= 5:
            break
    return races.counts, races.wrong


def main() -> int:
    args = options.read(__doc__, rounds=300, pages=5000, seed="1")
    folder = Path(tempfile.mkdtemp(prefix="races-"))
    server = Server(lambda exchange: answer(exchange, args.pages))
    # A worker that is spawned has one thread, so that it may fork.
    with server.run_in_thread() as running, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        counts, wrong = pool.submit(live, args.seed, running.url, folder, args.rounds).result()
    shown = ", ".join(f"{what}: {n}" for what, n in sorted(counts.items()) if what)
    print(f"{args.rounds} rounds ({shown}), {len(wrong)} wrong")
    if wrong:
        print(f"what is left of the last round is in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

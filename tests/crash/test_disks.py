"""Workers with shards in job folders of their own crawl one job: they are killed, come back, are taken for dead and lose their disks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from socket import gethostname

import pytest
from demo_web import server_log
from demo_web.server import Running
from support import processes, redis_server
from support.commands import run_aopic
from support.killed_crawl import FACTOR, N_HOSTS, N_PAGES, TAKEN_UP, check_log, pages_of
from support.short_forms import some_of
from support.workers import DEADLINE, IN_A_STEP, Workers, check_views
from support.workers import running as workers_of

from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import unpack_page
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.stored_control import change_control
from scrapy_aopic.storage import Address, open_snapshot
from scrapy_aopic.view.shard_states import read_states
from scrapy_aopic.web.url_keys import key_of_url

redis = redis_server.needed()

pytestmark = pytest.mark.slow

SHARDS = 4
LOCK_TIMEOUT = 2.0
"""Seconds."""


def shards_in(folder: Path) -> list[int]:
    """Numbers of the shards in a job folder."""
    job = FolderPlace(folder)
    return job.shards_here() if job.has_job() else []


def shard_folder(folder: Path, number: int) -> Path:
    """Where a shard is in a job folder."""
    return folder / "aopic-shards" / str(number)


def check(folders: Sequence[Path], n_shards: int = SHARDS) -> tuple[int, int, list[str]]:
    """Pages visited and queued in all shards, which are in *folders*, and what does not hold, in one or between them."""
    places = [(number, folder) for folder in folders for number in shards_in(folder)]
    assert sorted(number for number, _ in places) == [*range(n_shards)]
    return check_views(
        [open_snapshot(shard_folder(folder, number)) for number, folder in sorted(places)],
        n_shards,
    )


class OnDisks(Workers):
    """Workers that crawl one job, each with a folder of its own."""

    def __init__(self, folder: Path, redis: redis_server.Server, web: Running, **settings: object) -> None:
        super().__init__(folder, redis, web)
        self.folder = folder
        self.jobs = [folder / f"job-{number}" for number in range(2)]
        self._own = settings

    def start(self, number: int = 0) -> processes.Process:
        """The worker of a folder."""
        return self.launch(
            JOBDIR=self.jobs[number], REDIS_URL=self.redis.url, AOPIC_REDIS_LOCK_TIMEOUT=LOCK_TIMEOUT,
            AOPIC_DURABILITY=50, AOPIC_SHARDS=f"2x{SHARDS // 2}", LOG_LEVEL="INFO", **self._own,
        )  # fmt: skip

    def start_both(self) -> tuple[processes.Process, processes.Process]:
        """The workers of the first two folders, so that the first one gets the first shards; both have them open."""
        both = []
        for number in (0, 1):
            both.append(self.start(number))
            deadline = time.monotonic() + DEADLINE
            while len(shards_in(self.jobs[number])) < SHARDS // 2 and time.monotonic() < deadline:
                time.sleep(0.01)
        return both[0], both[1]

    def wait_until_begun(self, number: int) -> None:
        """Wait until the process that was started as this one holds shards: before that, a signal may end it at once."""
        self.wait_until_said(number, "This worker holds")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile nothing is fetched, so that the crawl is not over before commands are given, on however busy a machine."""
        place = ServerPlace(Address("aopic:follow", self.redis.url))
        change_control(place, lambda control: control.paused(1.0))
        yield
        change_control(place, Control.resumed)

    def stop(self, *numbers: int) -> None:
        """Let the processes that were started as these end by themselves."""
        for number in numbers:
            self.wait_until_begun(number)
            self.all[number].send_signal(signal.SIGTERM)
        for number in numbers:
            self.all[number].wait(DEADLINE)


def running(folder: Path, delay: float = 0.005, **settings: object) -> AbstractContextManager[OnDisks]:
    """Nobody is there yet, and a page takes *delay* seconds."""
    return workers_of(folder, kind=OnDisks, delay=delay, **settings)


def check_all(workers: OnDisks, kills: list[float]) -> None:
    """Each page was fetched, and only once unless a worker was killed in between, and no host was bothered."""
    visited, queued, violations = check(workers.jobs)
    assert violations == []
    assert (visited, queued) == (N_HOSTS * N_PAGES, 0)
    check_log(workers.web.log, kills)


def test_workers_with_disks_fetch_each_page_once(tmp_path):
    with running(tmp_path) as workers:
        workers.start(0)
        workers.start(1)
        workers.wait()
        check_all(workers, [])
        assert [len(shards_in(job)) for job in workers.jobs] == [2, 2]


def test_a_list_of_seeds_waits_for_the_workers_of_all_folders(tmp_path):
    (tmp_path / "seeds.txt").write_text("http://h0.test/0\nhttp://h1.test/1\n")
    with running(tmp_path) as workers:
        for number, job in enumerate(workers.jobs):
            line = [
                sys.executable, "-m", "scrapy", "aopic", "crawl", "seeds.txt", "--contact", "a@example.org", "--job", str(job),
                "-s", f"AOPIC_SHARDS=2x{SHARDS // 2}", "-s", f"REDIS_URL={workers.redis.url}", "-s", f"AOPIC_POLITENESS_FACTOR={FACTOR}",
            ]  # fmt: skip
            env = {**os.environ, "http_proxy": workers.web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
            with workers.log(number).open("wb") as log:
                workers.all.append(processes.start(line, env=env, cwd=tmp_path, stdout=log, stderr=log))
        workers.wait()
        check_all(workers, [])
        refused = "has some shards of the job in redis://"
        assert refused in aopic(workers, "seed", workers.jobs[0], "http://h0.test/0")


def test_a_round_by_workers_with_disks_visits_each_page_once_more(tmp_path):
    with running(tmp_path, AOPIC_RECRAWL="once") as workers:
        for n in (1, 2):
            workers.start(0)
            workers.start(1)
            workers.wait()
            assert [len(entries) for entries in pages_of(workers.web.log).values()] == [n] * N_HOSTS * N_PAGES
            assert check(workers.jobs) == (N_HOSTS * N_PAGES, 0, [])


FOCUSED = {"AOPIC_ORDER": "focused", "AOPIC_TOPIC": '{"keywords": ["h3"]}'}


@pytest.mark.parametrize(("killed", "settings"), some_of([(1, {}), (2, {}), (2, FOCUSED)]))
def test_workers_that_are_killed_come_back_to_their_shards(tmp_path, killed, settings):
    kills = []
    with running(tmp_path, **settings) as workers:  # type: ignore[arg-type]
        both = workers.start(0), workers.start(1)
        workers.wait_for(70)
        for process in both[:killed]:
            process.kill()
            kills.append(time.monotonic())
        for process in both[:killed]:
            process.wait()
        if killed == len(both):  # the shards of one that goes on cannot be looked at as of one moment
            assert check(workers.jobs)[2] == []
        for number in range(killed):
            workers.start(number)
        workers.wait()
        check_all(workers, kills)
        assert "was not closed: what was in flight is queued again" in workers.said()


@pytest.mark.long
def test_a_worker_that_was_frozen_stops_and_goes_on_when_it_is_started_again(tmp_path):
    with running(tmp_path) as workers:
        first, _ = workers.start(0), workers.start(1)
        workers.wait_for(50)
        workers.wait_until_begun(0)
        first.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        time.sleep(1.5 * LOCK_TIMEOUT)
        first.send_signal(signal.SIGCONT)
        thawed = time.monotonic()
        while first.poll() is None and time.monotonic() < thawed + 3 * LOCK_TIMEOUT:
            time.sleep(0.05)
        # One that renews its lock before it notices goes on, maybe to the end: nobody else can have had it.
        if first.poll():
            assert "are no longer this process's" in workers.log(0).read_text()
            workers.all.remove(first)
            workers.start(0)
        workers.wait()
        visited, queued, violations = check(workers.jobs)
        assert (visited, queued, violations) == (N_HOSTS * N_PAGES, 0, [])
        late = 0
        for entries in pages_of(workers.web.log).values():
            for one, other in pairwise(entries):
                assert other.start >= frozen, (one, other)
                late += one.start > thawed
        assert late <= IN_A_STEP


def test_a_server_that_has_lost_everything_is_told_again(tmp_path):
    with running(tmp_path) as workers:
        both = workers.start(0), workers.start(1)
        workers.wait_for(70)
        with redis.Redis.from_url(workers.redis.url) as client:
            client.flushall()
        lost = time.monotonic()
        for process in both:
            process.wait(DEADLINE)
        assert "Start the workers again with the folders that they had" in workers.said()
        assert check(workers.jobs)[2] == []
        workers.all.clear()
        workers.start(1)
        workers.start(0)
        workers.wait()
        check_all(workers, [lost, lost + LOCK_TIMEOUT])


def test_old_copies_second_copies_and_folders_too_many_are_refused(tmp_path):
    with running(tmp_path, delay=0.1) as workers:
        workers.start(0)
        workers.start(1)
        workers.wait_for(40)
        workers.stop(0)
        older = tmp_path / "older"
        shutil.copytree(workers.jobs[0], older)
        workers.start(0)
        n = len(workers.web.log)
        workers.wait_for(n + 40)
        workers.jobs += [older, tmp_path / "third"]
        with workers.paused():
            for number in (2, 3):
                workers.start(number).wait(DEADLINE)
        refused = f"crawls the shards there, of which {gethostname()}:{older} has a copy"
        assert refused in workers.log(3).read_text()
        assert "has no shard of the job" in workers.log(4).read_text()
        del workers.all[3:]
        workers.wait()
        workers.start(2).wait(DEADLINE)
        assert "it is an older copy" in workers.log(3).read_text()
        del workers.jobs[2:], workers.all[3:]
        check_all(workers, [])
        shutil.rmtree(workers.jobs[0])  # the last copy is lost, so the older one is put in its place
        workers.jobs[0] = tmp_path / "job-2"
        salvaged = aopic(workers, "salvage", older, workers.jobs[0])
        command = re.search(r"To go on: scrapy aopic (move --lost .*); then", salvaged)
        assert command, salvaged
        assert re.search(r"Shards \d, \d of", aopic(workers, *shlex.split(command[1])))
        workers.start(0)
        workers.start(1)
        workers.wait()
        said = re.findall(
            r"of its (\d+) pages, (\d+) of them visited, (\d+) were salvaged", workers.log(3).read_text()
        )
        assert len(said) == 2
        assert all(0 < int(salvaged) <= int(pages) for pages, _, salvaged in said)
        visited, queued, violations = check(workers.jobs)
        assert (queued, violations) == (0, [])
        assert visited >= sum(int(salvaged) for *_, salvaged in said)


def aopic(workers: OnDisks, *arguments: object) -> str:
    """What a command says."""
    done = run_aopic(*arguments, "-s", f"AOPIC_REDIS_LOCK_TIMEOUT={LOCK_TIMEOUT}", folder=workers.folder)
    return done.stdout + done.stderr


def test_shards_move_to_other_folders(tmp_path):
    with running(tmp_path, delay=0.1) as workers:
        old, new = workers.jobs[0], tmp_path / "job-2"
        workers.start_both()
        with workers.paused():
            assert "is in use" in aopic(workers, "move", old, new, "--shards", 1)
        workers.wait_for(60)
        workers.stop(0, 1)
        assert "Shard 2 is at home in" in aopic(workers, "move", old, new, "--shards", "1-2")
        assert "Shard 1 of" in aopic(workers, "move", old, new, "--shards", 1)
        assert "Shard 1 of" in aopic(workers, "move", old, new, "--shards", 1), "once more"
        workers.jobs.append(new)
        assert [shards_in(job) for job in workers.jobs] == [[0], [2, 3], [1]]
        assert check(workers.jobs)[2] == []
        n = len(workers.web.log)
        for number in range(3):
            workers.start(number)
        workers.wait_for(n + 40)
        workers.stop(3, 4)
        assert "Shards 2, 3 of" in aopic(workers, "move", workers.jobs[1], new)
        workers.start(1).wait(DEADLINE)
        assert "has no shard of the job" in workers.log(5).read_text()
        del workers.all[5]
        workers.start(2)
        workers.wait()
        check_all(workers, [])
        assert [shards_in(job) for job in workers.jobs] == [[0], [], [1, 2, 3]]
        assert "was not closed" not in workers.said()


def go_on_anew(workers: OnDisks, second: processes.Process, job: str) -> None:
    """Start the first worker again, and let all crawl to the end: its shard 0, which is lost, begins anew, with all cash."""
    workers.start(0)
    if second.poll() is not None:  # on a busy machine it may have been done before the kill
        workers.start(1)
    workers.wait()
    assert "Shard 0 of the crawl in" in workers.said()
    assert "begins anew, because its disk is lost" in workers.said()
    assert "the books hold" in aopic(workers, "check", job)


def test_a_disk_is_damaged_and_its_shards_go_on_with_what_is_left(tmp_path):
    """Half of a table, or of a log, is gone, so that no worker opens the shard; the others are left as they are."""
    with running(tmp_path, delay=0.1) as workers:
        first, second = workers.start_both()
        job = f"{workers.redis.url}#aopic:follow"
        workers.wait_for(120)
        first.kill()
        first.wait()
        folder = shard_folder(tmp_path / "job-0", 0)
        paths = [path for kind in ("*.sst", "*.log", "*.sqlite3", "*-wal") for path in folder.glob(kind)]
        path = max(paths, key=lambda path: path.stat().st_size)
        os.truncate(path, path.stat().st_size // 2)
        before = {each: each.read_bytes() for each in (tmp_path / "job-0").rglob("*") if each.is_file()}
        new = workers.jobs[0] = tmp_path / "job-2"
        said = aopic(workers, "salvage", tmp_path / "job-0", new)
        assert f"move --lost '{job}' {new} --shards 0,1" in said
        assert {each: each.read_bytes() for each in before} == before
        known = set()
        for number in (0, 1):
            view = open_snapshot(shard_folder(new, number))
            known |= {key for key, data in view.scan(Family.PAGES) if unpack_page(data).visits}
            view.close()
        assert known
        assert "Shards 0, 1 of" in aopic(workers, "move", job, new, "--shards", "0,1", "--lost")
        n = len(workers.web.log)
        go_on_anew(workers, second, job)
        assert "were salvaged" in workers.said()
        visited, queued, violations = check(workers.jobs)
        assert (queued, violations) == (0, [])
        assert visited >= len(known)
        again = workers.web.log[n:]
        assert not known & {key_of_url(f"http://{each.host}{each.target}")[1] for each in again}
        polite = server_log.audit(workers.web.log, FACTOR)
        assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


def test_a_disk_is_lost_and_its_shards_begin_anew(tmp_path):
    with running(tmp_path, delay=0.1) as workers:
        first, second = workers.start_both()
        job = f"{workers.redis.url}#aopic:follow"
        lost = workers.jobs[0] = tmp_path / "job-2"
        workers.wait_for(100)
        with workers.paused():
            assert "is in use" in aopic(workers, "move", job, lost, "--shards", "0,1", "--lost")
            assert "the books hold" in aopic(workers, "check", job), "also while it is crawled"
        first.kill()
        first.wait()
        killed = time.monotonic()
        shutil.rmtree(tmp_path / "job-0")
        said = aopic(workers, "move", job, lost, "--shards", "0,1", "--lost")
        assert "Shards 0, 1 of" in said
        assert "job-0" in said
        go_on_anew(workers, second, job)
        visited, queued, violations = check(workers.jobs)
        assert (queued, violations) == (0, [])
        seeds = tmp_path / "seeds.txt"
        seeds.write_text(
            "".join(f"http://h{host}.test/{page}\n" for host in range(N_HOSTS) for page in range(N_PAGES))
        )
        assert f"{N_HOSTS * N_PAGES} seeds" in aopic(workers, "seed", job, seeds)
        for number in range(2):
            workers.start(number)
        workers.wait()
        assert visited <= N_HOSTS * N_PAGES
        visited, queued, violations = check(workers.jobs)
        assert (visited, queued, violations) == (N_HOSTS * N_PAGES, 0, [])
        for entries in pages_of(workers.web.log).values():
            for one, other in pairwise(entries):
                assert one.start - TAKEN_UP <= killed <= other.start, (one, other)
        polite = server_log.audit(workers.web.log, FACTOR)
        assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


@pytest.mark.long
def test_one_of_the_shards_on_a_disk_begins_anew_when_the_others_were_open_once_more(tmp_path):
    with running(tmp_path, delay=0.1) as workers:
        first, second = workers.start_both()
        job = f"{workers.redis.url}#aopic:follow"
        workers.wait_for(100)
        first.kill()
        first.wait()
        shutil.rmtree(shard_folder(workers.jobs[0], 0))
        workers.jobs.append(tmp_path / "job-2")
        assert "Shard 0 of" in aopic(workers, "move", job, workers.jobs[2], "--shards", 0, "--lost")
        workers.start(2)
        time.sleep(1)  # longer than it takes to begin anew, if it does so without the other shard
        go_on_anew(workers, second, job)
        assert check(workers.jobs)[1:] == (0, [])


@pytest.mark.parametrize("killed", [False, True])
def test_several_workers_share_each_of_the_folders(tmp_path, killed):
    """Of one folder a worker is killed, and its parent starts another one; of the other one the parent is killed, too."""
    addons = json.dumps({"scrapy_aopic.Addon": 500})
    settings = {"AOPIC_WORKERS": 2, "ADDONS": addons, "ROBOTSTXT_OBEY": False}
    kills = []
    with running(tmp_path, delay=0.1 if killed else 0.005, **settings) as workers:  # type: ignore[arg-type]
        first, second = workers.start(0), workers.start(1)
        place = ServerPlace(Address("aopic:follow", workers.redis.url, lock_timeout=LOCK_TIMEOUT))
        if killed:
            workers.wait_for(60)
            states = read_states(place)
            assert states is not None
            pids = {each["path"].rpartition("/")[2]: each["pid"] for each in states.cluster.workers.values()}
            os.kill(pids["job-0"], signal.SIGKILL)
            kills.append(time.monotonic())
            workers.wait_for(len(workers.web.log) + 20)
            second.kill()
            kills.append(time.monotonic())
            second.wait()
            workers.start(1)
        workers.wait()
        assert first.poll() == 0
        check_all(workers, kills)
        assert [len(shards_in(job)) for job in workers.jobs] == [2, 2]
        assert "[worker 2] " in workers.said()

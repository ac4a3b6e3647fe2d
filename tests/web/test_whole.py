"""The dashboard of a job in shards: what all workers do together, by what they leave on the server."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from msgspec.structs import replace
from support import processes, redis_server
from support.dashboard import TOKEN, get, serve_job
from support.small_web import html
from support.waiting import wait_until

from scrapy_aopic.place.server_place import ServerPlace

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.view.shard_states import shard_figures
from scrapy_aopic.view.snapshot import PageCounts, ShardRow, Snapshot, WorkerRow
from scrapy_aopic.view.stored import Speeds, StoredWatch
from scrapy_aopic.view.verdict import verdict

SHARDS = 4


def job(*done: int, at: float = 0.0, workers: tuple[str, ...] = ("a:1", "a:1", "b:2", "")) -> Snapshot:
    """A job in four shards, of which *done* pages of each are fetched."""
    alive = sorted({*workers} - {""})
    return Snapshot(
        at=at,
        pages=PageCounts(queued=100 - sum(done), visited=sum(done)),
        shards=shard_figures(
            [ShardRow(shard=n, visited=each, worker=workers[n]) for n, each in enumerate(done)],
            sent=9,
            is_quiet=False,
            workers=[WorkerRow(worker=name, shards=workers.count(name), seconds=3) for name in alive],
        ),
    )


def test_speeds_are_of_all_shards_and_of_each_worker():
    speeds = Speeds()
    first = speeds.added_to(job(0, 0, 0, 0, at=1000.0))
    assert first.rate is None
    assert [worker.rate for worker in first.shards.workers] == [None, None]
    second = speeds.added_to(job(10, 20, 6, 0, at=1010.0))
    assert second.rate is not None
    assert second.rate.pages == 3.6
    assert [worker.rate for worker in second.shards.workers] == [3.0, 0.6]
    assert second.rate.growth == -1.0
    third = speeds.added_to(job(20, 20, 12, 4, at=1065.0))
    assert third.rate is not None
    assert third.rate.seconds == 55.0  # over a minute at most


def test_the_server_is_asked_every_two_seconds_at_most():
    now, n_asked = 0.0, 0

    def stores(*_: object) -> Snapshot:
        nonlocal n_asked
        n_asked += 1
        return job(1, 1, 1, 1)

    watch = StoredWatch(FolderPlace(Path("nowhere")), states=lambda _: None, stores=stores, clock=lambda: now)
    first = watch.snapshot()
    now += 1
    assert watch.snapshot() is first
    now += 1
    assert watch.snapshot() == first
    assert n_asked == 2


def test_what_is_said_of_it():
    def said(each: Snapshot) -> str:
        return verdict(each).sentence

    some = job(1, 1, 1, 1)
    some = replace(some, shards=replace(some.shards, on_the_way=5))
    assert "2 workers crawl 3 of 4 shards" in said(some)
    assert "5 letters between shards are on the way" in said(some)
    one = job(1, 1, 1, 1, workers=("a:1",) * 4)
    assert "1 worker crawls 4 of 4 shards" in said(one)
    assert "1 letter between shards is on the way" in said(
        replace(one, shards=replace(one.shards, on_the_way=1))
    )
    assert said(job(1, 1, 1, 1, workers=("",) * 4)).startswith("No worker crawls this job now")
    assert said(replace(one, shards=replace(one.shards, is_quiet=True))).startswith("Done")


# Processes


N_HOSTS, N_PAGES = 40, 10


def answer(exchange: Exchange) -> Answer:
    """Pages that link to all others of their host, and to the first of the next one; slow enough to look at a crawl."""
    match = re.fullmatch(r"/(\d+)", exchange.target)
    if match is None:
        return Answer(404)
    host = int(exchange.host.removeprefix("h").partition(".")[0])
    links = [f"/{n}" for n in range(N_PAGES)] + [f"http://h{(host + n) % N_HOSTS}.test/0" for n in range(4)]
    time.sleep(0.1)
    return Answer(headers={"Content-Type": "text/html"}, body=html(links))


class Workers:
    """Two workers of a job, each with a dashboard.

    Attributes:
        url: Of the server of the job.
        ports: Of the dashboards.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        redis = stack.enter_context(redis_server.Server(folder / "redis"))
        web = stack.enter_context(Server(answer).run_in_thread())
        self.url = redis.url
        self.address = Address("aopic:follow", self.url)
        settings = {
            "SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": "redis", "AOPIC_SHARDS": SHARDS,
            "REDIS_URL": redis.url, "AOPIC_DASHBOARD": "127.0.0.1:0", "AOPIC_DASHBOARD_TOKEN": TOKEN,
            "AOPIC_DURABILITY": 50, "AOPIC_REDIS_LOCK_TIMEOUT": 3, "AOPIC_POLITENESS_FACTOR": 3,
            "AOPIC_MAX_WAIT": 60, "ROBOTSTXT_OBEY": False,
        }  # fmt: skip
        spider = Path(__file__).parents[1] / "support" / "follow_spider.py"
        line = [sys.executable, "-m", "scrapy", "runspider", str(spider)]
        line += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        environment = {**os.environ, "http_proxy": web.url, "PYTHONPATH": str(spider.parents[2])}
        self.ports, self.processes = [], []
        for n in range(2):
            log = folder / f"log-{n}"
            with log.open("wb") as errors:
                process = processes.start(line, cwd=folder, env=environment, stderr=errors)
            self.processes.append(process)
            stack.callback(self._end, process)
            self.ports.append(self._port(log))

    @staticmethod
    def _port(log: Path) -> int:
        """Of the dashboard whose address the *log* shows."""
        address = re.compile(r"Dashboard: http://127\.0\.0\.1:(\d+)/")
        return int(wait_until(lambda: address.search(log.read_text("utf-8")))[1])

    @staticmethod
    def _end(process: processes.Process) -> None:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(tmp_path_factory.mktemp("job"), stack)


def job_of(port: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(get(port, "/api/v1/job").text)
    return found


def wait_until_shared(port: int) -> dict[str, Any]:
    """What is seen at *port* once both workers hold their shares, and the one there knows it: its figures may be 2 s old."""

    def shared() -> dict[str, Any] | None:
        found, now = job_of(port), json.loads(get(port, "/api/v1/snapshot").text)
        shares = [worker["shards"] for worker in found.get("shards", {}).get("workers", ())]
        return found if shares == [2, 2] and now["shards"]["held"] == 2 else None

    return wait_until(shared, every=0.1, said=lambda: job_of(port))


@pytest.mark.slow
def test_each_worker_shows_itself_and_the_whole_job(workers):
    for port in workers.ports:
        found = wait_until_shared(port)
        pids = {f":{process.pid}" for process in workers.processes}
        shards = found["shards"]
        assert {each["worker"][each["worker"].rindex(":") :] for each in shards["workers"]} == pids
        assert [row["shard"] for row in shards["each"]] == list(range(SHARDS))
        assert all(row["worker"] for row in shards["each"])
        for name in ("visited", "failed", "queued"):
            assert found["pages"][name] == sum(row[name] for row in shards["each"])
        assert shards["on_the_way"] == sum(row["letters"] for row in shards["each"])
        now = json.loads(get(port, "/api/v1/snapshot").text)
        assert [now["shards"][name] for name in ("n", "held", "alive")] == [SHARDS, 2, 2]
        assert now["is_live"]
        metrics = get(port, "/metrics").text
        assert "\naopic_shards_held 2\n" in metrics
        assert "\naopic_shards_workers 2\n" in metrics
        assert "worker=" not in metrics  # Prometheus knows by the address which one it is


@pytest.mark.slow
def test_a_job_in_shards_has_a_dashboard_of_its_own(workers):
    wait_until_shared(workers.ports[0])
    with serve_job(ServerPlace(workers.address)) as port:
        before = json.loads(get(port, "/api/v1/snapshot").text)
        assert [before["shards"][name] for name in ("n", "held", "alive")] == [SHARDS, SHARDS, 2]
        assert before["verdict"]["sentence"].startswith("2 workers crawl 4 of 4 shards")

        def later() -> dict[str, Any] | None:
            now = json.loads(get(port, "/api/v1/snapshot").text)
            return now if now["pages"]["visited"] > before["pages"]["visited"] else None

        now = wait_until(later, every=0.2)
        assert now["rate"]["pages"] > 0
        assert now["outcomes"]["page"] > 0  # of the stores of all shards
        assert json.loads(get(port, "/api/v1/top").text)["pages"]
        why = json.loads(get(port, "/api/v1/why?of=http://h0.test/0").text)
        assert why["kind"] == "fetched"
        assert re.search(r"in shard \d of 4, which \S+:\d+ crawls\.", why["sentences"][-1])
        assert now["rate"]["bytes"] is now["hosts"]["ceiling"] is None  # no state says that
        metrics = get(port, "/metrics").text
        assert "\naopic_shards_held 4\n" in metrics
        assert re.search(r"^aopic_shards_letters \d+$", metrics, re.MULTILINE)
    workers.processes[0].kill()  # the other one takes over what it held
    workers.processes[0].wait()
    port = workers.ports[1]
    wait_until(lambda: [each["shards"] for each in job_of(port)["shards"]["workers"]] == [SHARDS], every=0.2)

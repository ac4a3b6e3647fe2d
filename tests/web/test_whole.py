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
from support import processes, redis_server
from support.dashboard import TOKEN, get, serve_job
from support.small_web import html

from scrapy_aopic.place.server_place import ServerPlace

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

from scrapy_aopic.dashboard.sharded_job import WholeJob, figures_of_whole
from scrapy_aopic.storage import Address

SHARDS = 4
NOWHERE = Address("nowhere", "redis://127.0.0.1:1")


def state(
    *done: int, workers: tuple[str, ...] = ("a:1", "a:1", "b:2", ""), letters: int = 0
) -> dict[str, Any]:
    """A job in four shards, of which *done* pages of each are fetched."""
    return {
        "pages": {"queued": 100 - sum(done), "visited": sum(done), "failed": 0},
        "hosts": 8,
        "letters": {"sent": 9, "on_their_way": letters},
        "cash": {"total": 40, "pages": 10, "virtual_pages": 30},
        "is_finished": False,
        "workers": [
            {"worker": name, "shards": workers.count(name), "seconds": 3}
            for name in sorted({*workers} - {""})
        ],
        "shards": [
            {"shard": n, "visited": each, "failed": 0, "worker": workers[n]} for n, each in enumerate(done)
        ],
    }


def test_speeds_are_of_all_shards_and_of_each_worker() -> None:
    seen = iter([state(0, 0, 0, 0), state(10, 20, 6, 0), state(20, 20, 12, 4)])
    now = 1000.0
    whole = WholeJob(NOWHERE, look=lambda _: next(seen), clock=lambda: now)
    first = whole.look()
    assert first["pages_per_second"] is None
    assert [worker["pages_per_second"] for worker in first["workers"]] == [None, None]
    now += 1
    assert whole.look() is first  # the server is asked every two seconds at most
    now += 9
    second = whole.look()
    assert second["pages_per_second"] == 3.6
    assert [worker["pages_per_second"] for worker in second["workers"]] == [3.0, 0.6]
    assert second["growth"] == -1.0
    now += 55
    assert whole.look()["seconds"] == 55.0  # over a minute at most


def test_what_is_said_of_it() -> None:
    def said(each: dict[str, Any]) -> str:
        return figures_of_whole(WholeJob(NOWHERE, look=lambda _: each).look(), None, "job")[1].sentence

    assert "2 workers crawl 3 of 4 shards" in said(state(1, 1, 1, 1, letters=5))
    assert "5 letters between shards are on the way" in said(state(1, 1, 1, 1, letters=5))
    one = said(state(1, 1, 1, 1, workers=("a:1",) * 4, letters=1))
    assert "1 worker crawls 4 of 4 shards" in one
    assert "1 letter between shards is on the way" in one
    assert said(state(1, 1, 1, 1, workers=("",) * 4)).startswith("No worker crawls this job now")
    assert said({**state(1, 1, 1, 1), "is_finished": True}).startswith("Done")


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
            "SCHEDULER": "scrapy_aopic.Scheduler",
            "AOPIC_STORE": "redis",
            "AOPIC_SHARDS": SHARDS,
            "REDIS_URL": redis.url,
            "AOPIC_DASHBOARD": "127.0.0.1:0",
            "AOPIC_DASHBOARD_TOKEN": TOKEN,
            "AOPIC_DURABILITY": 50,
            "AOPIC_REDIS_LEASE": 3,
            "AOPIC_POLITENESS_FACTOR": 3,
            "AOPIC_MAX_WAIT": 60,
            "ROBOTSTXT_OBEY": False,
        }
        spider = Path(__file__).parents[1] / "support" / "follow_spider.py"
        line = [
            sys.executable,
            "-m",
            "scrapy",
            "runspider",
            str(spider),
        ]
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
        until = time.monotonic() + 60
        while not (found := re.search(r"Dashboard: http://127\.0\.0\.1:(\d+)/", log.read_text("utf-8"))):
            assert time.monotonic() < until
            time.sleep(0.05)
        return int(found[1])

    @staticmethod
    def _end(process: processes.Process) -> None:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(tmp_path_factory.mktemp("job"), stack)


def whole_of(port: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(get(port, "/api/v1/whole").text)
    return found


def wait_until_shared(port: int) -> dict[str, Any]:
    """What is seen at *port* once both workers hold their shares."""
    until = time.monotonic() + 60
    while True:
        found = whole_of(port)
        if [worker["shards"] for worker in found.get("workers", ())] == [2, 2]:
            return found
        assert time.monotonic() < until, found
        time.sleep(0.1)


@pytest.mark.slow
def test_each_worker_shows_itself_and_the_whole_job(workers: Workers) -> None:
    for port in workers.ports:
        found = wait_until_shared(port)
        pids = {f":{process.pid}" for process in workers.processes}
        assert {each["worker"][each["worker"].rindex(":") :] for each in found["workers"]} == pids
        assert [shard["shard"] for shard in found["shards"]] == list(range(SHARDS))
        assert all(shard["worker"] for shard in found["shards"])
        for name in ("visited", "failed", "queued"):
            assert found["pages"][name] == sum(shard[name] for shard in found["shards"])
        assert found["letters"]["on_their_way"] == sum(shard["letters"] for shard in found["shards"])
        now = json.loads(get(port, "/api/v1/snapshot").text)
        assert now["part"] == {"shards": SHARDS, "held": 2, "workers": 2}
        assert now["is_live"]
        metrics = get(port, "/metrics").text
        assert "\naopic_shards_held 2\n" in metrics
        assert "\naopic_shards_workers 2\n" in metrics
        assert "worker=" not in metrics  # Prometheus knows by the address which one it is


@pytest.mark.slow
def test_a_job_in_shards_has_a_dashboard_of_its_own(workers: Workers) -> None:
    wait_until_shared(workers.ports[0])
    with serve_job(ServerPlace(workers.address)) as port:
        before = json.loads(get(port, "/api/v1/snapshot").text)
        assert before["part"] == {"shards": SHARDS, "held": SHARDS, "workers": 2}
        assert before["verdict"]["sentence"].startswith("2 workers crawl 4 of 4 shards")
        until = time.monotonic() + 30
        while (now := json.loads(get(port, "/api/v1/snapshot").text))["pages"]["visited"] <= before["pages"][
            "visited"
        ]:
            assert time.monotonic() < until
            time.sleep(0.2)
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
    until = time.monotonic() + 60
    while [worker["shards"] for worker in whole_of(workers.ports[1])["workers"]] != [SHARDS]:
        assert time.monotonic() < until
        time.sleep(0.2)

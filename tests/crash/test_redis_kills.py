"""A crawl whose job is in Redis: the crawler is killed, and the server."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from contextlib import closing

import pytest
from demo_web.server import Server
from support import processes, redis_server
from support.killed_crawl import N_HOSTS, N_PAGES, answer, check_log, command
from support.short_forms import some_of

from scrapy_aopic.core.audit import Audit, audit
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.redis.frozen_view import RedisView

redis_server.needed()

LOCK_TIMEOUT = 2.0
"""Seconds."""


def check(url: str) -> Audit:
    with closing(RedisView(Address("aopic:follow", url))) as store:
        return audit(store)


@pytest.mark.parametrize("killed", some_of(["both", "crawler", "server"]))
def test_a_crawl_whose_processes_are_killed_goes_on_and_loses_nothing(tmp_path, killed):
    rng = random.Random(killed)
    kills: list[float] = []
    ends: list[float] = []  # until then pages were fetched whose visits could not be written
    with (
        redis_server.Server(tmp_path / "server", appendfsync="always") as redis,
        Server(answer).run_in_thread() as running,
    ):
        line, environment = command(
            tmp_path,
            running.url,
            AOPIC_STORE="redis",
            REDIS_URL=redis.url,
            AOPIC_REDIS_LOCK_TIMEOUT=LOCK_TIMEOUT,
            JOBDIR="",
        )
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            before = len(running.log)
            with processes.start(line, env=environment, cwd=tmp_path, stderr=subprocess.PIPE) as process:
                kill_after = before + rng.randrange(20, 90)
                while process.poll() is None and (len(kills) >= 3 or len(running.log) < kill_after):
                    time.sleep(0.005)
                if process.poll() is None:
                    if killed != "server":
                        process.send_signal(signal.SIGKILL)
                    if killed != "crawler":
                        redis.kill()
                    kills.append(time.monotonic())
                said = process.stderr.read().decode()
            ends.append(time.monotonic())
            if killed != "crawler" and process.returncode != 0:
                redis.start()
            if killed == "server" and process.returncode != 0:
                assert said.count("The crawl stops") == 1, said
                assert "Traceback" not in said
            result = check(redis.url)
            assert result.violations == []
            if process.returncode == 0:
                break
    assert len(kills) == 3
    assert (result.visited, result.queued) == (N_HOSTS * N_PAGES, 0)
    check_log(running.log, kills + ends)

"""A crawl that is paused and killed stays paused, and loses nothing."""

from __future__ import annotations

import signal

import pytest
from demo_web.server import Server
from support import processes
from support.killed_crawl import N_HOSTS, N_PAGES, answer, command
from support.small_web import check
from support.waiting import wait_until

from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.stored_control import change_control

pytestmark = pytest.mark.slow

DEADLINE = 120.0
"""Seconds that a run may take on a busy machine; it takes some five."""

BLOCKED = "h3.test"


def test_a_paused_crawl_that_is_killed_stays_paused(tmp_path):
    job, said = tmp_path / "job", tmp_path / "log"
    with Server(answer).run_in_thread() as running:
        line, environment = command(job, running.url, AOPIC_STORE="sqlite", LOG_LEVEL="INFO")
        with (
            said.open("wb") as log,
            processes.start(line, env=environment, cwd=tmp_path, stderr=log) as process,
        ):
            wait_until(lambda: len(running.log) >= 20, DEADLINE, every=0.005, said=said.read_text)
            change_control(FolderPlace(job), lambda control: control.paused(1.0).blocking([BLOCKED], 1.0))
            wait_until(lambda: "paused since" in said.read_text(), DEADLINE, said=said.read_text)
            assert process.poll() is None, said.read_text()
            process.send_signal(signal.SIGKILL)
        assert check(job).violations == []
        assert len(running.log) < N_HOSTS * N_PAGES
        # The server of before may log later what it had got at the kill.
        with Server(answer).run_in_thread() as other:
            line_of_a_second = [*line, "-s", "CLOSESPIDER_TIMEOUT=1"]
            by_other = {**environment, "http_proxy": other.url}
            processes.run(line_of_a_second, env=by_other, cwd=tmp_path, check=True, timeout=DEADLINE)
            assert other.log == [], "the next run is paused, too"
        change_control(FolderPlace(job), Control.resumed)
        n_blocked = sum(entry.host == BLOCKED for entry in running.log)
        processes.run(line, env=environment, cwd=tmp_path, check=True, timeout=DEADLINE)
        assert sum(entry.host == BLOCKED for entry in running.log) == n_blocked
        result = check(job)
    assert result.violations == []
    assert result.visited + result.queued == N_HOSTS * N_PAGES
    assert 0 < result.queued <= N_PAGES, "pages of the blocked host"
    fetched = {(entry.host, entry.target) for entry in running.log if entry.status == 200}
    assert sum(host != BLOCKED for host, _ in fetched) == (N_HOSTS - 1) * N_PAGES

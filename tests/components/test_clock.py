"""The machine's clock is set forth or back: no host is asked early, none waits longer, and nothing is lost."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.job import clock as job_clock
from scrapy_aopic.job.clock import ServerTime, SharedClock
from scrapy_aopic.job.job import Job
from scrapy_aopic.storage import open_snapshot

DAY = 86_400.0
POLITENESS = Politeness(10.0, 0.0, 60.0)


class Machine:
    """Its clock, and the time that really passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed, self.set_by, self.boot = 0.0, 1_700_000_000.0, "first"
        faked = SimpleNamespace(
            time=lambda: self.set_by + self.passed,
            monotonic=lambda: self.passed,
            clock_gettime=lambda _: self.passed,
            CLOCK_BOOTTIME=7,
        )
        monkeypatch.setattr(job_clock, "time", faked)
        monkeypatch.setattr(job_clock, "_boot_id", lambda: self.boot)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def link(host: str, number: int) -> Link:
    return Link(page_key(host_key(host), b"%d" % number), host, f"{host}/{number}".encode())


def open_job(folder: Path, **policy: Any) -> Job:
    return Job(folder, Policy(**{"politeness": POLITENESS, **policy}), kind="sqlite")


def visit(job: Job, seconds: float) -> str:
    """Visit the next page, whose transfer takes some seconds at the end of which it is asked for no more."""
    lease = job.crawl.lease(job.clock())
    assert isinstance(lease, Lease), lease
    job.crawl.transferred(lease.host, TransferResult(seconds, Outcome.ANSWER), job.clock())
    job.crawl.release(lease, job.clock())
    job.crawl.settle(lease, (), job.clock())
    return lease.host


def drain(job: Job, machine: Machine) -> dict[str, list[float]]:
    """Visit what is queued; when each host was asked, in real time."""
    asked: dict[str, list[float]] = {}
    while not isinstance(what := job.crawl.lease(job.clock()), Empty):
        if isinstance(what, NotBefore):
            machine.passed += max(what.instant - job.clock(), 0.001)
            continue
        asked.setdefault(what.host, []).append(machine.passed)
        job.crawl.transferred(what.host, TransferResult(0.5, Outcome.ANSWER), job.clock())
        job.crawl.release(what, job.clock())
        job.crawl.settle(what, (), job.clock())
    return asked


def killed(job: Job, folder: Path) -> Path:
    """The job's folder as it is after a commit and a kill."""
    job.commit_soon()
    commits = job.commits
    while job.commits < commits + 2:  # one may have been under way
        job.crawl.defer(host_key("a"), 0.0, 0.5)
        job.commit_soon()
        job.tick()
        time.sleep(0.001)
    shutil.copytree(folder, copy := folder.with_name("copy"))
    job.close()
    return copy


@pytest.mark.crossed
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize(("boot", "jump"), [("first", -DAY), ("first", DAY), ("second", -DAY)])
def test_between_two_runs(tmp_path, machine, caplog, *, boot, jump, is_clean):
    folder = tmp_path / "job"
    job = open_job(folder)
    for host in "ab":
        for number in range(3):
            job.crawl.seed(link(host, number), job.clock())
    assert {visit(job, 3.0), visit(job, 0.2)} == {"a", "b"}
    if is_clean:
        job.close()
    else:
        folder = killed(job, folder)
    machine.passed += 5.0
    machine.set_by += jump
    machine.boot = boot
    with caplog.at_level(logging.WARNING):
        job = open_job(folder)
    assert "because it was set" in caplog.text
    begin, opened = 5.0, machine.passed
    asked = drain(job, machine)
    job.close()
    first = sorted(times[0] for times in asked.values())
    assert first[1] - (opened - begin) >= 30.0
    assert first[1] - opened <= 60.0
    assert first[0] - opened <= (5.0 if is_clean else 60.0)
    for times in asked.values():
        assert len(times) == 2
        assert 5.0 - 1e-3 <= times[1] - times[0] <= 5.01
    store = open_snapshot(folder / "aopic")
    result = audit(store)
    store.close()
    assert (result.violations, result.visited, result.queued) == ([], 6, 0)


@pytest.mark.parametrize("jump", [-DAY, DAY])
def test_during_a_run(tmp_path, machine, jump):
    job = open_job(tmp_path / "job")
    for number in range(3):
        job.crawl.seed(link("a", number), job.clock())
    visit(job, 3.0)
    machine.set_by += jump
    asked = drain(job, machine)["a"]
    job.close()
    assert asked == [pytest.approx(30.0, abs=0.01), pytest.approx(35.0, abs=0.01)]


def test_pages_come_back_when_their_time_has_really_come(tmp_path, machine):
    recrawl = Recrawl(min_interval=1000.0, max_interval=4000.0)
    job = open_job(tmp_path / "job", recrawl=recrawl)
    job.crawl.seed(link("a", 0), job.clock())
    visit(job, 0.1)
    job.close()
    for jump in (-DAY, DAY, DAY):
        machine.set_by += jump
        job = open_job(tmp_path / "job", recrawl=recrawl)
        when = job.crawl.lease(job.clock())
        assert isinstance(when, NotBefore)
        assert 0 < when.instant - job.clock() <= 1000.01
        job.close()
    machine.passed += 1000.01
    job = open_job(tmp_path / "job", recrawl=recrawl)
    assert visit(job, 0.1) == "a"
    job.close()


def test_after_a_restart_of_the_machine_its_clock_counts_unless_it_goes_back(tmp_path, machine, caplog):
    job = open_job(tmp_path / "job")
    before = job.clock()
    job.close()
    machine.boot, machine.set_by = "second", machine.set_by + 3 * DAY
    job = open_job(tmp_path / "job")
    assert job.clock() == before + 3 * DAY
    job.close()
    machine.boot = ""  # where one boot cannot be told from another
    machine.set_by -= 1.0
    job = open_job(tmp_path / "job")
    assert job.clock() == before + 3 * DAY
    job.close()
    assert not caplog.text


# -- jobs that several machines share

SERVER = 1_700_000_000.0


class Machines:
    """A server and a worker, whose clock is *fast* (seconds a second); time passes as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fast: float = 0.0) -> None:
        self.passed, self.set_by, self._fast = 0.0, 0.0, fast
        faked = SimpleNamespace(time=lambda: self.server, monotonic=lambda: self.monotonic)
        monkeypatch.setattr(job_clock, "time", faked)

    @property
    def server(self) -> float:
        return SERVER + self.set_by + self.passed

    @property
    def monotonic(self) -> float:
        return self.passed * (1 + self._fast)

    def ask(self, there: float, back: float) -> ServerTime:
        """What the worker hears if its question and the reply take so many seconds."""
        asked = self.monotonic
        self.passed += there
        instant = self.server
        self.passed += back
        return ServerTime(instant, asked, self.monotonic)


DELAYS = st.floats(0, 0.5)
A_LOOK = 2e-4 + 1e-6
"""What clocks drift apart from one look to the next, and what floats cut off (seconds)."""


@given(
    st.floats(-1e-4, 1e-4),
    st.tuples(DELAYS, DELAYS),
    st.lists(st.tuples(st.floats(0, 1), DELAYS, DELAYS), max_size=100),
)
def test_the_clock_of_a_worker_is_never_ahead_of_the_servers_and_knows_how_far_it_is_behind(
    fast, first, looks
):
    with pytest.MonkeyPatch.context() as monkeypatch:
        machines = Machines(monkeypatch, fast=fast)
        clock = SharedClock(machines.ask(*first))
        last = 0.0
        for passes, there, back in looks:
            machines.passed += passes
            clock.adjust(machines.ask(there, back))
            assert clock() >= last, "it never goes back"
            last = clock()
            assert clock() <= machines.server + A_LOOK
            assert clock() + clock.lag >= machines.server - A_LOOK


def test_a_clock_that_is_corrected_makes_no_host_of_another_worker_early(monkeypatch):
    machines = Machines(monkeypatch)
    slow = SharedClock(machines.ask(0.0, 0.2))  # its process was not at its turn when the reply came
    fast = SharedClock(machines.ask(0.0, 0.0))
    assert fast() - slow() == pytest.approx(0.2)
    not_before, due = slow() + slow.lag + 1.0, machines.passed + 1.0
    machines.passed = due - 0.001
    fast.adjust(machines.ask(0.0, 0.0))
    assert fast() < not_before
    machines.passed = due + 0.2
    assert fast() >= not_before


def test_a_server_whose_clock_was_set_is_followed_forward_and_not_back(monkeypatch):
    machines = Machines(monkeypatch)
    clock = SharedClock(machines.ask(0.0, 0.01))
    machines.set_by += DAY
    clock.adjust(machines.ask(0.0, 0.01))
    assert 0 <= machines.server - clock() <= clock.lag + 1e-6 < 0.1
    machines.set_by -= DAY
    before = clock()
    machines.passed += 5.0
    clock.adjust(machines.ask(0.0, 0.01))
    assert clock() - before == pytest.approx(5.01), "it goes on at its pace"
    assert clock.lag == 0.0

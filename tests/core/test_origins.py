"""Origins of a host that are silent: their links wait, what was made on purpose does not, and the rest of the host goes on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.core_crawl import NOW, Job, link
from support.frontier_invariants import check
from support.short_forms import some_of

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.frontier.back_queue import BACK_QUEUE_ROWS
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore, Unlocated
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import Link, host_key

ANSWER, SILENT, BROKEN = Outcome.ANSWER, Outcome.SILENT, Outcome.BROKEN


def waits_for(request: bytes) -> tuple[str, bool]:
    """Requests are ``port/number`` here, with an exclamation mark in front if they are made on purpose."""
    return request.decode().lstrip("!").partition("/")[0], not request.startswith(b"!")


def on(port: str, number: int, *, host: str = "a", shift: int = 0) -> Link:
    return link(host, number, f"{port}/{number}".encode(), shift=shift)


def job_of(**politeness: Any) -> Job:
    return Job(politeness=Politeness(**{"factor": 0.0, "backoff": 5.0, **politeness}), waits_for=waits_for)


def end(job: Job, lease: Lease, outcome: Outcome) -> None:
    """End the transfer of *lease*; its page waits again if there was no answer, else it is visited."""
    origin = waits_for(lease.request)[0]
    job.crawl.transferred(lease.host, TransferResult(0.0, outcome, origin=origin), job.now)
    job.crawl.release(lease, job.now)
    if outcome == ANSWER:
        job.settle(lease)
    else:
        job.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), job.now, has_failed=True)
    assert check(job.crawl.frontier) == []


def run(job: Job, outcome_of: Any) -> list[str]:
    """Make all requests that may be made now; returns them."""
    made = []
    while len(made) < 10_000 and isinstance(lease := job.crawl.lease(job.now), Lease):
        made.append(lease.request.decode())
        end(job, lease, outcome_of(made[-1]))
    return made


def silent(*ports: str) -> Any:
    return lambda request: SILENT if waits_for(request.encode())[0] in ports else ANSWER


def test_a_silent_origin_keeps_no_other_one_of_its_host():
    job = job_of()
    job.seed(on("443", 0, shift=9), *(on("80", number) for number in range(1, 6)))
    made = run(job, silent("443"))
    assert made == ["443/0", *(f"80/{number}" for number in range(1, 6))]
    assert job.crawl.lease(job.now) == NotBefore(NOW + 5.0)
    job.commit()
    job.now += 5.0
    assert run(job, silent()) == ["443/0"]
    assert job.crawl.counts.visited == 6


def test_a_silent_origin_is_remembered_while_its_only_page_is_in_flight():
    job = job_of()
    job.seed(on("443", 0, shift=9), on("80", 1), on("80", 2))
    lease = job.lease()
    job.crawl.transferred(lease.host, TransferResult(0.0, SILENT, origin="443"), job.now)
    job.crawl.release(lease, job.now)  # what reads the failure takes its time
    end(job, job.lease(), SILENT)
    job.now += 5.0
    end(job, job.lease(), SILENT)  # the other origin waits longer
    assert isinstance(job.crawl.lease(job.now), NotBefore)
    assert job.crawl.down(host_key("a"), "443") == 1
    job.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), job.now, has_failed=True)
    assert run(job, silent()) == ["443/0"]
    job.now += 10.0
    assert sorted(run(job, silent())) == ["80/1", "80/2"]
    assert job.crawl.counts.visited == 3
    assert check(job.crawl.frontier) == []


def test_each_silence_doubles_the_wait_until_the_origin_is_dead_and_answers_again():
    job = job_of(dead_after=3)
    job.seed(on("443", 0), on("443", 1))
    for wait in (5.0, 10.0, 20.0):
        assert len(run(job, silent("443"))) == 1
        assert job.crawl.has_work(job.now) == (wait < 20.0)
        assert job.crawl.lease(job.now) == NotBefore(job.now + wait)
        job.now += wait
        job.commit()
    job.now -= 10.0
    assert job.crawl.dead == (1, 2)
    job.reopen()
    assert job.crawl.dead == (1, 2)
    job.now += 20.0
    assert sorted(run(job, silent())) == ["443/0", "443/1"]
    assert job.crawl.dead == (0, 0)
    job.commit()


def test_what_is_made_on_purpose_does_not_wait():
    job = job_of()
    job.seed(on("443", 0), on("!443", 1))
    asked: list[str] = []

    def outcome(request: str) -> Outcome:
        asked.append(request)
        return SILENT if len(asked) < 4 else ANSWER

    lease = job.lease()
    end(job, lease, SILENT)
    assert run(job, outcome)[-1] == "443/0"  # it waits no more once the other one got an answer
    assert asked[:4] == ["!443/1"] * 4


def test_a_new_page_of_an_origin_that_answers_brings_back_a_dead_host():
    job = job_of(dead_after=1)
    job.seed(on("443", 0))
    run(job, silent("443"))
    assert job.crawl.dead == (1, 1)
    job.seed(on("443", 1))
    assert job.crawl.dead == (1, 2)
    job.seed(on("80", 2))
    assert job.crawl.dead == (0, 0)
    assert run(job, silent("443")) == ["80/2"]
    assert job.crawl.dead == (1, 2)
    job.commit()


@pytest.mark.parametrize("n_silent", [1, BACK_QUEUE_ROWS, 5 * BACK_QUEUE_ROWS, 3_000])
def test_many_pages_of_a_silent_origin_are_passed_over(n_silent):
    job = job_of()
    job.seed(*(on("443", number, shift=9) for number in range(n_silent)))
    job.seed(*(on("80", 10_000 + number) for number in range(5)))
    made = []
    for _ in range(100):
        made += run(job, silent("443"))
        if isinstance(when := job.crawl.lease(job.now), NotBefore) and when.instant >= NOW + 5.0:
            break
        job.now += 0.01
    assert made == ["443/0", *(f"80/{10_000 + number}" for number in range(5))]
    job.commit()


def test_a_page_whose_value_rises_is_still_passed_over():
    job = job_of()
    job.seed(*(on("443", number) for number in range(3)))
    end(job, job.lease(), SILENT)
    job.seed(link("b", 0, b"80/0"))
    lease = job.lease()
    job.finish(lease, on("443", 1), on("80", 10))
    assert check(job.crawl.frontier) == []
    assert run(job, silent("443")) == ["80/10"]


def test_robots_txt_that_cannot_be_had_keeps_what_is_made_on_purpose_too():
    job = job_of()
    job.seed(on("!443", 0), on("80", 1))
    lease = job.lease()
    job.crawl.hold(host_key("a"), "443", job.now + 60.0, is_for_all=True)
    end(job, lease, Outcome.OTHER)
    assert run(job, silent()) == ["80/1"]
    assert job.crawl.lease(job.now) == NotBefore(NOW + 60.0)
    job.now += 60.0
    assert run(job, silent()) == ["!443/0"]


def test_broken_pages_of_a_host_that_answers_are_not_the_hosts():
    job = job_of()
    job.seed(*(on("80", number) for number in range(20)))
    end(job, job.lease(), ANSWER)
    broken = {f"80/{number}" for number in range(1, 9)}
    made = []
    for _ in range(2):  # the second time each of them is behind the others
        made.append([])
        while len(made[-1]) < 19 and isinstance(lease := job.crawl.lease(job.now), Lease):
            made[-1].append(lease.request.decode())
            end(job, lease, BROKEN if made[-1][-1] in broken and len(made) == 1 else ANSWER)
    assert sorted(made[0]) == sorted(f"80/{number}" for number in range(1, 20))
    assert set(made[1]) == broken
    assert job.now == NOW


def test_a_host_that_breaks_off_all_the_time_is_silent():
    job = job_of()
    job.seed(*(on("80", number) for number in range(40)))
    end(job, job.lease(), ANSWER)
    made = run(job, lambda _: BROKEN)
    assert len(made) == 9
    assert job.crawl.lease(job.now) == NotBefore(NOW + 5.0)


def test_a_host_that_never_answered_is_silent_at_once():
    job = job_of()
    job.seed(on("80", 0), on("80", 1))
    assert len(run(job, lambda _: BROKEN)) == 1


def test_only_so_many_silent_origins_are_remembered():
    job = job_of()
    job.seed(*(on(str(port), port) for port in range(20)))
    for _ in range(20):
        end(job, job.lease(), SILENT)
    host = job.crawl.frontier.host(host_key("a"))
    assert host is not None
    assert host.silent is not None
    assert len(host.silent) == 16
    assert [job.crawl.down(host_key("a"), str(port)) for port in range(20)] == [1] * 16 + [0] * 4


@pytest.mark.parametrize("seed", some_of(range(20), 6))
def test_no_link_is_requested_before_its_origin_may_be_and_none_is_lost(seed):
    draw = random.Random(seed)
    job = job_of(dead_after=draw.choice([2, 5, 100]))
    until: dict[str, float] = {}
    in_flight: list[Lease] = []
    n = 0
    for _ in range(300):
        step = draw.randrange(6)
        if step == 0:
            for _ in range(draw.choice([1, 3, 50])):
                n += 1
                port = draw.choice(["80", "443", "!443", "81"])
                job.seed(on(port, n, host=draw.choice("ab"), shift=draw.randrange(4)))
        elif step == 1:
            job.now += draw.choice([0.01, 1.0, 7.0, 100.0])
        elif step == 2:
            job.commit()
        elif step == 3 and not draw.randrange(10) and not in_flight:
            job.restart()
        elif in_flight and draw.randrange(2):
            lease = in_flight.pop(draw.randrange(len(in_flight)))
            origin = waits_for(lease.request)[0]
            outcome = draw.choice([ANSWER, SILENT, SILENT, BROKEN])
            before = job.crawl.silent_until(lease.key[:8], origin)
            end(job, lease, outcome)
            after = job.crawl.silent_until(lease.key[:8], origin)
            assert outcome != ANSWER or after == 0.0
            assert outcome != SILENT or after > before
            until[lease.host + origin] = after
        else:
            lease = job.crawl.lease(job.now)
            if isinstance(lease, Lease):
                in_flight.append(lease)
                origin, is_link = waits_for(lease.request)
                assert not is_link or until.get(lease.host + origin, 0.0) <= job.now
        assert check(job.crawl.frontier) == []
    for lease in in_flight:
        end(job, lease, ANSWER)
    for _ in range(40):
        run(job, silent())
        if isinstance(when := job.crawl.lease(job.now), Empty):
            break
        assert isinstance(when, NotBefore)
        job.now = max(when.instant, job.now)
    assert job.crawl.counts.queued == 0
    assert job.crawl.counts.visited == n
    job.commit()


@pytest.mark.parametrize("shared", [{"by_domain": True, "domain_of": lambda _: "x"}, {"by_address": True}])
def test_a_dead_host_keeps_no_other_one_of_its_domain_or_address(shared):
    politeness = Politeness(factor=0.0, backoff=5.0, dead_after=3)
    job = Job(politeness=politeness, waits_for=waits_for, **shared)
    job.seed(*(on("80", number, host="dead", shift=9) for number in range(3)))
    job.seed(*(on("80", number, host="fine") for number in range(5)))
    made = []
    for _ in range(30):
        lease = job.crawl.lease(job.now)
        if isinstance(lease, Unlocated):
            job.crawl.locate(lease, "192.0.2.1", job.now)
        elif isinstance(lease, Lease):
            made.append(lease.host)
            end(job, lease, SILENT if lease.host == "dead" else ANSWER)
    assert made == ["dead", *["fine"] * 5]
    assert job.now == NOW


@pytest.mark.parametrize("outcomes", [[SILENT, ANSWER], [SILENT, SILENT, BROKEN], [BROKEN, BROKEN, ANSWER]])
def test_a_host_without_pages_is_none_of_the_crawls_hosts_whatever_it_does(outcomes):
    job = job_of()
    job.seed(on("80", 0))
    for number, outcome in enumerate(outcomes):
        job.crawl.transferred("elsewhere", TransferResult(0.1, outcome, origin="80"), job.now + number)
    job.commit()
    assert job.crawl.counts.hosts == 1
    assert audit(job.store).violations == []
    job.crawl.set_crawl_delay("elsewhere", 1.0, job.now)
    job.seed(on("80", 1, host="elsewhere"))
    job.commit()
    assert job.crawl.counts.hosts == 2
    assert audit(job.store).violations == []

"""Hosts to which a rule gives several connections (``connections`` of ``AOPIC_HOST_RULES``), beside hosts with one."""

from __future__ import annotations

import random
from typing import Any

from support.core_crawl import Job, link
from support.naming import case

from scrapy_aopic.core.api import Ending, Lease
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.host_rules import HostRule, HostRules
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.politeness import Gap, Outcome, Pace, Politeness, TransferResult
from scrapy_aopic.core.records import host_key

RULES = HostRules({"own.test": HostRule(connections=3)})
ERRORS = (Outcome.ERROR, Outcome.DOWN)


def polite(**how: Any) -> Politeness:
    return Politeness(**{"factor": 0.0, "connections": RULES.giving("connections"), **how})


def job_of(n_pages: int, hosts: tuple[str, ...] = ("own.test", "b.test"), **how: Any) -> Job:
    job = Job(politeness=polite(**how.pop("politeness", {})), rules=RULES, **how)
    job.seed(*(link(host, n) for host in hosts for n in range(n_pages)))
    return job


def transferred(job: Job, lease: Lease, outcome: Outcome = Outcome.ANSWER, **result: Any) -> Gap:
    gap = job.crawl.transferred(lease.host, TransferResult(0.1, outcome, **result), job.now)
    assert job.crawl.release(lease, job.now) == Ending.OK
    return gap


def take_all(job: Job) -> list[Lease]:
    """Lease whatever may be leased now."""
    leases = []
    while isinstance(lease := job.crawl.lease(job.now), Lease):
        leases.append(lease)
    return leases


def begin(job: Job) -> list[Lease]:
    """Have each host answer once, and then lease all that may be leased at once."""
    for lease in take_all(job):
        transferred(job, lease)
        job.settle(lease)
    return take_all(job)


def hosts_of(leases: list[Lease]) -> list[str]:
    return sorted(lease.host for lease in leases)


def test_a_host_gets_one_request_until_it_has_answered_and_then_one_for_each_connection():
    job = job_of(6)
    first = take_all(job)
    assert hosts_of(first) == ["b.test", "own.test"]
    for lease in first:
        transferred(job, lease)
        job.settle(lease)
    leases = take_all(job)
    assert hosts_of(leases) == ["b.test", "own.test", "own.test", "own.test"]
    own = [lease.request for lease in leases if lease.host == "own.test"]
    assert own == [b"own.test/1", b"own.test/2", b"own.test/3"]  # in the order of the queue
    transferred(job, next(lease for lease in leases if lease.host == "own.test"))
    assert [lease.request for lease in take_all(job)] == [b"own.test/4"]


def test_what_is_asked_for_holds_for_the_whole_host():
    for result, wait in [
        ({"retry_after": 30.0}, 30.0),
        ({"at_least": 20.0}, 20.0),
        ({"outcome": Outcome.DOWN}, 5.0),
    ]:
        with case(result):
            job = job_of(9, ("own.test",))
            leases = begin(job)
            assert len(leases) == 3
            assert transferred(job, leases[0], **result).at_once == (3 if "retry_after" in result else 1)
            for lease in leases[1:]:  # the others end well, which takes nothing back
                transferred(job, lease)
            found = job.crawl.lease(job.now + wait - 0.1)
            assert isinstance(found, NotBefore)
            assert found.instant == job.now + wait
            job.now += wait
            assert take_all(job)


def test_a_host_gets_one_request_at_a_time_while_something_is_against_it():
    job = job_of(9, ("own.test",))
    leases = begin(job)
    job.crawl.set_crawl_delay("own.test", 2.0, job.now)
    gaps = [transferred(job, lease) for lease in leases]
    assert gaps == [Gap(2.0, 0.0)] * 3
    job.now += 2.0
    assert len(take_all(job)) == 1

    job = job_of(9, ("own.test",))
    leases = begin(job)
    assert transferred(job, leases[0], Outcome.ERROR).at_once == 1
    job.now += 5.0  # two go on meanwhile
    assert take_all(job) == []
    assert [transferred(job, lease, Outcome.OTHER).at_once for lease in leases[1:]] == [1, 1]
    job.now += 5.0
    (probe,) = take_all(job)
    assert transferred(job, probe).at_once == 3
    assert len(take_all(job)) == 3


def test_what_fails_at_the_same_time_is_one_failure():
    for outcome in ERRORS:
        with case(outcome):
            job = job_of(9, ("own.test",))
            leases = begin(job)
            assert [transferred(job, lease, outcome).own for lease in leases] == [5.0] * 3
            job.now += 5.0
            (probe,) = take_all(job)
            assert transferred(job, probe, outcome).own == 10.0
            assert not job.crawl.is_dead(host_key("own.test"))
    job = job_of(9, ("own.test",))
    leases = begin(job)
    for lease in leases:
        transferred(job, lease, Outcome.SILENT, origin="http://own.test")
    assert job.crawl.silent_until(host_key("own.test"), "http://own.test") == job.now + 5.0


def test_failures_of_hosts_with_one_connection_count_as_they_did():
    for politeness in (polite(), Politeness(factor=0.0)):
        pace = Pace("b.test")
        gaps = [politeness.after(pace, 0.1, Outcome.DOWN, waits=9.0).own for _ in range(3)]
        assert gaps == [5.0, 10.0, 20.0]


def test_a_page_that_waits_again_before_its_transfer_is_over_is_not_requested_twice_at_once():
    job = job_of(2, ("own.test",))
    (lease,) = begin(job)
    job.crawl.put_back(lease, link("own.test", 1), job.now)
    assert take_all(job) == []
    transferred(job, lease)
    assert [each.key for each in take_all(job)] == [lease.key]


def test_a_host_with_nothing_left_stays_until_its_last_transfer_is_over():
    job = job_of(3, ("own.test",))
    leases = begin(job)
    assert len(leases) == 2
    for lease in leases:
        job.settle(lease)
    assert list(job.crawl.frontier.active) == [host_key("own.test")]
    job.seed(link("own.test", 7))
    (third,) = take_all(job)
    job.settle(third)
    for lease in (*leases, third):
        transferred(job, lease)
    assert not job.crawl.frontier.active
    assert job.crawl.release(third, job.now) == Ending.DUP
    job.commit()


def test_hosts_of_one_domain_come_in_turn_although_one_of_them_has_connections():
    job = Job(politeness=polite(), rules=RULES, by_domain=True, domain_of=lambda name: "own.test")
    job.seed(*(link("own.test", n) for n in range(9)))
    leases = begin(job)
    assert hosts_of(leases) == ["own.test"] * 3
    job.seed(link("www.own.test"), worth=1000.0)
    transferred(job, leases[0])
    assert take_all(job) == []  # the other host waits for the gate, and this one lets it in first
    for lease in leases[1:]:
        assert take_all(job) == []
        transferred(job, lease)
    assert hosts_of(take_all(job)) == ["www.own.test"]


def test_each_connection_is_one_of_those_that_are_kept_free_for_fast_hosts():
    job = job_of(9, connections=4)
    leases = begin(job)
    free = job.crawl.frontier.gates.free
    assert free is not None
    assert len(free.under_way) == len(leases) == 4
    for lease in leases:
        transferred(job, lease)
    assert not free.under_way


def test_after_a_kill_a_host_is_left_alone_by_its_oldest_transfer():
    job = job_of(9, ("own.test",), politeness={"factor": 1.0, "max_gap": 1000.0})
    for lease in take_all(job):
        transferred(job, lease)
    job.now += 1.0
    began = job.now
    leases = take_all(job)
    assert len(leases) == 3
    job.now += 100.0
    transferred(job, leases[2])
    job.now += 1.0
    assert len(take_all(job)) == 1
    job.commit()
    seen = job.now + job.policy.commit_within
    job.reopen(later=5.0)
    assert job.crawl.not_before(host_key("own.test")) == job.now + (seen - began)


def test_kills_with_several_pages_in_flight_lose_nothing_and_keep_every_unit():
    dice = random.Random(0)
    job = job_of(12, politeness={"factor": 1.0, "max_gap": 60.0})
    fetched: list[bytes] = []
    held: list[Lease] = []
    while job.crawl.counts.queued:
        job.now += dice.random()
        found = job.crawl.lease(job.now)
        if isinstance(found, Lease):
            held.append(found)
        elif held:
            lease = held.pop(dice.randrange(len(held)))
            transferred(job, lease)
            n = len(fetched)
            job.settle(lease, *(link(host, 100 + n) for host in ("own.test", "b.test") if n < 20))
            fetched.append(lease.key)
        elif isinstance(found, NotBefore):
            job.now = max(job.now, found.instant)
        counts = [sum(lease.host == host for lease in held) for host in ("own.test", "b.test")]
        assert counts[0] <= 3
        assert counts[1] <= 1
        totals = job.crawl.ledger.totals
        pages = [job.crawl.page(link(host, n).key) for host in ("own.test", "b.test") for n in range(200)]
        assert (
            totals.virtual + sum(job.crawl.ledger.cash(page) for page in pages if page is not None) == TOTAL
        )
        if dice.random() < 0.2:
            job.commit()
        if dice.random() < 0.02:
            job.kill(later=0.5)
            held.clear()
    job.check()
    assert len(set(fetched)) == job.crawl.counts.visited == 24 + 40

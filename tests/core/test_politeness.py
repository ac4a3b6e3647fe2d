from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.core_crawl import NOW, Job, link

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.host_rules import HostRule
from scrapy_aopic.core.politeness import Gap, Outcome, Pace, Politeness, TransferResult
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import host_key

ANSWER, ERROR, DOWN, OTHER, SILENT, BROKEN, BROKEN_AGAIN = Outcome

SECONDS = st.floats(0, 86400)


def test_a_host_is_left_alone_ten_times_as_long_as_a_transfer_took_within_bounds():
    usual = Politeness(10.0, 0.5, 60.0)
    for politeness, transfer, gap in [
        (usual, -3.0, 0.5),  # by a clock that went back
        (usual, 0.0, 0.5),
        (usual, 0.01, 0.5),
        (usual, 0.05, 0.5),
        (usual, 0.2, 2.0),
        (usual, 5.9, 59.0),
        (usual, 6.0, 60.0),
        (usual, 600.0, 60.0),
        (Politeness(10.0, 90.0, 60.0), 0.1, 90.0),  # the lower bound holds even above the upper one
        (Politeness(10.0, 90.0, 60.0), 1000.0, 90.0),
        (Politeness(0.0, 2.0, 60.0), 1000.0, 2.0),
    ]:
        assert politeness.gap(transfer) == pytest.approx(gap), (politeness, transfer, gap)


def test_after_a_crash_a_host_waits_as_if_its_transfer_had_lasted_to_the_end():
    politeness = Politeness(10.0, 0.0, 60.0)
    assert politeness.pause_after_crash(now=500.0, leased_at=100.0, last_seen=103.0) == 530.0
    assert politeness.pause_after_crash(now=500.0, leased_at=100.0, last_seen=200.0) == 560.0


@given(st.floats(0, 100), SECONDS, SECONDS, SECONDS, SECONDS)
def test_a_longer_transfer_never_makes_a_shorter_gap(factor, low, high, one, other):
    politeness = Politeness(factor, low, high)
    shorter, longer = sorted((one, other))
    assert low <= politeness.gap(shorter) <= politeness.gap(longer) <= max(low, high)


# -- what hosts say and show


def gaps(politeness: Politeness, *outcomes: Outcome, retry_after: float = 0.0) -> list[float]:
    """Gaps of one host after transfers of 0.1 s with these outcomes."""
    pace = Pace("a.test")
    return [politeness.after(pace, 0.1, outcome, retry_after).own for outcome in outcomes]


def test_errors_in_a_row_double_the_gap_until_the_host_answers():
    for how, outcomes, found in [
        ({}, [*[DOWN] * 4, ANSWER, DOWN], [5.0, 10.0, 20.0, 40.0, 1.0, 5.0]),
        ({"max_backoff": 30.0}, [DOWN] * 5, [5.0, 10.0, 20.0, 30.0, 30.0]),
        ({"max_gap": 60.0}, [ERROR] * 6, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]),  # it answers, if with errors
        ({}, [DOWN, OTHER, DOWN], [5.0, 5.0, 10.0]),  # what ended a transfer from here says nothing of it
    ]:
        assert gaps(Politeness(backoff=5.0, **how), *outcomes) == found, (how, outcomes)
    assert gaps(Politeness(backoff=5.0, max_backoff=1e5), *[DOWN] * 2000)[-1] == 1e5
    assert Politeness(backoff=5.0).after(Pace("a.test"), 3.0, DOWN).own == 30.0  # a slow transfer counts, too


def test_without_backing_off_errors_count_for_nothing():
    pace = Pace("a.test")
    politeness = Politeness(backoff=0.0, dead_after=2)
    for _ in range(5):
        assert politeness.after(pace, 0.1, DOWN).own == 1.0
    assert not politeness.is_dead(pace)


def test_a_host_is_dead_after_some_requests_in_a_row_that_show_it_to_be_down():
    pace, politeness = Pace("a.test"), Politeness(dead_after=3)
    seen = []
    for outcome in (DOWN, DOWN, ERROR, DOWN, DOWN, DOWN, ANSWER):
        politeness.after(pace, 0.1, outcome)
        seen.append(politeness.is_dead(pace))
    assert seen == [False, False, False, False, False, True, False]


def test_a_wish_to_be_left_alone_is_granted_up_to_a_limit():
    """And of hosts beside the one that has it for the longest gap at most."""
    for wish, own, shared in [(0.5, 1.0, 1.0), (7.0, 7.0, 7.0), (3600.0, 3600.0, 60.0), (1e9, 7200.0, 60.0)]:
        politeness = Politeness(backoff=0.0, max_wish=7200.0)
        assert politeness.after(Pace("a"), 0.1, DOWN, wish) == Gap(own, shared), wish


def test_a_crawl_delay_is_a_floor_of_the_host_and_not_of_those_beside_it():
    politeness = Politeness(max_wish=100.0)
    assert politeness.after(Pace("a", crawl_delay=7.0), 0.1, ANSWER) == Gap(7.0, 1.0)
    assert politeness.after(Pace("a", crawl_delay=7.0), 2.0, ANSWER) == Gap(20.0, 20.0)
    assert politeness.after(Pace("a", crawl_delay=1e6), 2.0, ANSWER).own == 100.0


def test_rules_are_of_hosts():
    rules = {
        "slow.test": HostRule(factor=20.0, max_gap=300.0),
        "fast.test": HostRule(min_gap=0.5, max_gap=1.0),
    }
    politeness = Politeness(rule=rules.get)
    assert politeness.after(Pace("slow.test"), 10.0, ANSWER).own == 200.0
    assert politeness.after(Pace("fast.test"), 10.0, ANSWER).own == 1.0
    assert politeness.after(Pace("fast.test"), 0.01, ANSWER).own == 0.5
    assert politeness.after(Pace("other.test"), 10.0, ANSWER).own == 60.0
    assert politeness.floor(Pace("fast.test", crawl_delay=3.0)) == 3.0
    assert politeness.floor(Pace("fast.test")) == 0.5
    assert politeness.longest(Pace("slow.test")) == 300.0


# -- in a crawl


def ended(job: Job, lease: Lease, outcome: Outcome = ANSWER, **how: Any) -> Gap:
    """End the transfer of *lease*; its page is visited, or waits again if its host is down."""
    gap = job.crawl.transferred(lease.host, TransferResult(0.1, outcome, **how), job.now)
    job.crawl.release(lease, job.now)
    if outcome == DOWN:
        page = job.crawl.page(lease.key)
        assert page is not None
        again = replace(link(lease.host, shift=page.shift), key=lease.key, request=lease.request)
        job.crawl.put_back(lease, again, job.now)
    else:
        job.settle(lease)
    return gap


def test_the_frontier_waits_as_long_as_it_says():
    job = Job(link("a"), link("a", 1), politeness=Politeness(backoff=5.0))
    assert ended(job, job.lease(), retry_after=33.0) == Gap(33.0, 33.0)
    assert job.crawl.lease(job.now) == NotBefore(NOW + 33.0)
    job.restart(later=32.0)
    assert job.crawl.lease(job.now) == NotBefore(NOW + 33.0)
    job.now += 1.0
    assert job.lease().host == "a"


def test_a_delay_of_others_is_a_floor_too():
    job = Job(link("a"), link("a", 1), politeness=Politeness())
    assert ended(job, job.lease(), at_least=12.0).own == 12.0
    assert job.crawl.lease(job.now) == NotBefore(NOW + 12.0)


def test_errors_in_a_row_outlive_the_process():
    job = Job(link("a"), politeness=Politeness(backoff=5.0))
    for gap in (5.0, 10.0):
        assert ended(job, job.lease(), DOWN).own == gap
        job.now += gap
    job.restart()
    assert ended(job, job.lease(), DOWN).own == 20.0


def test_a_crawl_delay_holds_at_once_and_outlives_the_process():
    job = Job(link("a"), link("a", 1), link("a", 2), politeness=Politeness(backoff=0.0))
    ended(job, job.lease())
    job.crawl.set_crawl_delay("a", 20.0, job.now)
    job.now += 19.9
    assert job.crawl.lease(job.now) == NotBefore(NOW + 20.0)
    job.now = NOW + 20.0
    job.restart()
    assert ended(job, job.lease()).own == 20.0
    job.crawl.set_crawl_delay("a", 0.0, job.now)
    job.now += 20.0
    assert ended(job, job.lease()).own == 1.0


def test_after_a_crash_a_host_is_left_alone_for_its_own_shortest_gap():
    rules = {"ruled": HostRule(min_gap=25.0)}
    job = Job(politeness=Politeness(backoff=0.0, rule=rules.get))
    job.seed(link("delayed", shift=2), link("ruled", shift=1), link("other"))
    job.crawl.set_crawl_delay("delayed", 40.0, job.now - 100)
    job.kill(later=100.0)
    asked = []
    for _ in range(60):
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            asked.append((lease.host, job.now - NOW - 100))
        job.now += 1.0
    assert asked == [("other", 10.0), ("ruled", 25.0), ("delayed", 40.0)]


def test_a_host_that_is_down_is_asked_for_another_page_each_time():
    job = Job(*(link("a", number, shift=-number) for number in range(3)), politeness=Politeness(backoff=5.0))
    asked = []
    for _ in range(4):
        lease = job.lease()
        asked.append(lease.request)
        ended(job, lease, DOWN)
        job.now += 1000.0
    assert asked == [b"a/0", b"a/1", b"a/2", b"a/0"]


def test_nobody_waits_for_a_dead_host_but_it_is_asked_again():
    job = Job(link("a"), link("a", 1), politeness=Politeness(backoff=5.0, dead_after=2))
    assert ended(job, job.lease(), DOWN).own == 5.0
    assert job.crawl.has_work(job.now)
    assert job.crawl.dead == (0, 0)
    job.now += 5.0
    assert ended(job, job.lease(), DOWN).own == 10.0
    assert job.crawl.dead == (1, 2)
    assert len(job.crawl) == 2
    assert not job.crawl.has_work(job.now)
    assert job.crawl.lease(job.now) == NotBefore(job.now + 10.0)
    job.commit()
    job.now += 10.1
    assert job.crawl.has_work(job.now)
    ended(job, job.lease())
    assert job.crawl.dead == (0, 0)
    assert job.crawl.has_work(job.now)
    job.commit()
    job.now += 1.0
    ended(job, job.lease())
    assert job.crawl.counts.visited == 2


def test_pages_of_a_dead_host_keep_their_cash_and_others_go_on():
    job = Job(link("a", shift=9), link("b"), politeness=Politeness(backoff=5.0, dead_after=2))
    for gap in (5.0, 10.0):
        ended(job, job.lease(), DOWN)
        job.now += gap
    job.now -= 10.0
    cash = job.cash(link("a"))
    job.visit(link("a", 1), link("c"))
    assert job.cash(link("a")) == cash > 0
    assert job.crawl.dead == (1, 2)
    assert job.lease().host == "c"


def test_a_dead_host_is_brought_back_by_an_answer_to_whoever_asked():
    job = Job(link("a"), politeness=Politeness(backoff=5.0, dead_after=2))
    for _ in range(3):
        gap = ended(job, job.lease(), DOWN).own
        job.now += gap + 0.1
    ended(job, job.lease(), DOWN)
    job.now += 1.0
    assert job.crawl.dead == (1, 1)
    job.crawl.transferred("a", TransferResult(0.1, ANSWER), job.now)
    assert job.crawl.dead == (0, 0)
    job.commit()
    job.now += 1000.0
    assert job.lease().host == "a"


@pytest.mark.parametrize("max_active", [1, 100])
def test_dead_hosts_stay_dead_in_the_next_process_and_take_no_memory(max_active):
    job = Job(politeness=Politeness(backoff=5.0, dead_after=2), max_active=max_active)
    job.seed(*(link(f"dead{number}") for number in range(10)), link("b"))
    for _ in range(2):
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            ended(job, lease, DOWN if lease.host != "b" else ANSWER)
        job.now += 5.1
    assert job.crawl.dead == (10, 10)
    assert not job.crawl.frontier.active
    job.restart()
    assert job.crawl.dead == (10, 10)
    assert not job.crawl.has_work(job.now)
    job.now += 100.0
    assert job.crawl.has_work(job.now)
    names = set()
    while isinstance(lease := job.crawl.lease(job.now), Lease):
        names.add(lease.host)
        ended(job, lease)
    assert names == {f"dead{number}" for number in range(10)}
    assert job.crawl.dead == (0, 0)
    job.commit()


def test_the_pace_of_a_host_without_pages_is_known_when_one_is_found_also_later():
    job = Job(politeness=Politeness(backoff=5.0))
    job.crawl.transferred("media", TransferResult(0.1, DOWN), job.now)
    job.crawl.transferred("media", TransferResult(0.1, DOWN), job.now)
    job.restart()
    assert job.crawl.not_before(host_key("media")) == NOW + 10.0
    job.seed(link("media"))
    assert job.crawl.lease(job.now) == NotBefore(NOW + 10.0)
    job.restart(later=10.0)
    assert ended(job, job.lease(), DOWN).own == 20.0


def test_only_so_many_hosts_without_pages_are_remembered():
    job = Job()
    for number in range(10_050):
        job.crawl.transferred(f"h{number}", TransferResult(0.1, ANSWER), job.now)
    job.commit()
    assert sum(key[:1] == b"C" for key, _ in job.store.scan(Family.META)) == 10_000
    assert job.crawl.not_before(host_key("h49")) == 0.0
    assert job.crawl.not_before(host_key("h50")) == NOW + 1.0


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, -float("inf"), 1e308])
def test_no_crawl_delay_stops_the_clock_of_a_host(seconds):
    job = Job(link("a"), link("a", 1), politeness=Politeness(max_wish=100.0))
    job.crawl.set_crawl_delay("a", seconds, job.now)
    job.now += 100.0
    ended(job, job.lease())
    job.now += 100.0
    job.kill()
    job.now += 100.0
    ended(job, job.lease())
    assert job.crawl.counts.visited == 2

"""Links that are announced: queued while their page is still in work, and paid at its end to the unit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.core_crawl import Job, link
from support.core_shards import ShardedJob, hosts_of

from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.order import front_queue
from scrapy_aopic.core.records import PageState
from scrapy_aopic.exceptions import CallError

SEED = TOTAL >> SEED_SHIFT
SHARE = (SEED - int(SEED * 0.25)) // 3
A, B, C, D = link("a"), link("b"), link("c"), link("d")


def test_an_announced_page_waits_without_cash_and_is_paid_at_the_end():
    job = Job(A)
    lease = job.lease()
    given = job.crawl.announce(lease, [B, C], job.now)
    assert [job.cash(each) for each in (A, B, C)] == [SEED, 0, 0]
    assert job.virtual == TOTAL - SEED
    job.commit()
    fetched = job.lease()
    assert fetched.request in (B.request, C.request)
    job.settle(lease, *given, D)
    assert [job.cash(each) for each in (A, B, C, D)] == [0, SHARE, SHARE, SHARE]
    assert job.virtual == TOTAL - 3 * SHARE
    job.commit()


def test_it_waits_where_it_would_if_it_were_paid_and_where_its_cash_says_at_the_end():
    job = Job()
    poor = link("b", 1)
    job.seed(A)
    job.seed(poor, worth=2**-3)
    lease = job.lease()
    given = job.crawl.announce(lease, [B, replace(C, shift=2)], job.now)
    foreseen = (SEED - int(SEED * 0.25)) // 2
    waits_in = [job.page(each).front_queue for each in (B, C)]
    assert waits_in == [front_queue(foreseen), front_queue(foreseen, 2)]
    job.commit()
    assert job.lease().key in (B.key, C.key)
    job.settle(lease, *given, *(link("d", number) for number in range(98)))
    share = (SEED - int(SEED * 0.25)) // 100
    assert [job.page(each).front_queue for each in (B, C)] == [front_queue(share), front_queue(share, 2)]
    assert [job.page(each).shift for each in (B, C)] == [0, 2]
    job.commit()


def test_with_its_endowment_and_the_clicks_of_its_page_too():
    job = Job(endowment=6.0)
    first, second = link("a", 1), link("a", 2)
    job.seed(A)
    job.visit(first)
    lease = job.lease()
    given = job.crawl.announce(lease, [second], job.now)
    before = job.page(second).front_queue
    job.settle(lease, *given)
    assert job.page(second).front_queue == before == front_queue(job.cash(second))
    assert job.page(second).clicks == 8


def test_a_known_page_stays_where_it_is():
    job = Job(A, replace(B, shift=3))
    lease = job.lease()
    given = job.crawl.announce(lease, [B], job.now)
    job.settle(lease, *given)
    assert job.page(B).shift == 3
    job.commit()


def test_one_that_asks_for_a_fetch_gets_one():
    job = Job(A, B)
    job.visit()
    lease = job.lease()
    again = [replace(each, again=True, request=b"again") for each in (A, B, C)]
    given = job.crawl.announce(lease, again, job.now)
    assert not any(each.again for each in given)
    assert job.state(A) == PageState.QUEUED
    job.finish(lease, *given)
    assert sorted(job.drain()) == [b"again"] * 3
    job.commit()


def test_a_link_that_cannot_be_changes_nothing():
    job = Job(A)
    lease = job.lease()
    with pytest.raises(CallError):
        job.crawl.announce(lease, [B, replace(C, host="other")], job.now)
    assert job.crawl.page(B.key) is None
    job.settle(lease, B)
    job.commit()


def test_a_lease_that_has_ended_announces_nothing():
    job = Job(A)
    lease = job.visit()
    assert job.crawl.announce(lease, [B], job.now) == [B]
    assert job.crawl.page(B.key) is None


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize("commits", [False, True], ids=["one letter", "two letters"])
def test_a_page_of_another_shard_waits_there_once_and_is_paid(commits, is_again):
    here, there = hosts_of(0, 2, 1)[0], hosts_of(1, 2, 1)[0]
    job = ShardedJob(2, endowment=0.0)
    home, away = link(here), replace(link(there), again=is_again)
    job.shards[0].seed(home, job.now)
    lease = job.shards[0].lease(job.now)
    given = job.shards[0].announce(lease, [away], job.now)
    if commits:
        job.exchange()
        assert (job.page(away).state, job.cash(away)) == (PageState.QUEUED, 0)
    settled = job.shards[0].settle(lease, given, job.now)
    job.exchange()
    assert settled.paid == [SEED - int(SEED * 0.25)]
    assert (job.page(away).state, job.cash(away)) == (PageState.QUEUED, settled.paid[0])
    assert job.shards[1].counts.queued == 1

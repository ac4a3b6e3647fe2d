"""Pages of a higher priority come first, whatever the order says; within a priority, the order decides."""

from __future__ import annotations

import random

import pytest
from support.core_crawl import Job, link
from support.core_shards import ShardedJob, hosts_of

from scrapy_aopic.core.order import ORDERS, Aopic
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, MOST_PRIORITY, Link

PRIORITIES = [MOST_PRIORITY, 20_261_128, 200, 100, 5, 1, 0, -1, -2, -300, -MOST_PRIORITY]


def visits(job: Job) -> list[Link]:
    """Visit all that waits, as pages without links; returns links to the pages, in order."""
    return [
        Link(lease.key, lease.host, b"") for lease in (job.visit() for _ in range(job.crawl.counts.queued))
    ]


def killed(job: Job) -> None:
    """Go on after the last commit, some time later."""
    job.reopen()
    job.now += 600.0


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_keeps_priorities(name):
    if name in ("pagerank", "hits"):
        pytest.importorskip("numpy")
    job, dice = Job(order=ORDERS[name]()), random.Random(2)
    links = [link(f"h{n % 7}", n, priority=dice.choice(PRIORITIES)) for n in range(60)]
    job.seed(*links)
    priorities = [each.priority for each in links]
    assert [job.page(each).priority for each in visits(job)] == sorted(priorities, reverse=True)


def test_of_a_host_that_fails_pages_of_the_best_priority_are_tried_first():
    job = Job(*(link("a", n, priority=1) for n in range(3)), *(link("a", n) for n in range(3, 9)))
    for n in range(12):
        lease = job.lease()
        assert job.page(Link(lease.key, "a", b"")).priority == 1, n
        job.crawl.frontier.active[lease.key[:HOST_BYTES]].errors = n
        again = Link(lease.key, "a", lease.request, priority=1)
        job.crawl.put_back(lease, again, job.now, has_failed=n % 3 > 0)
        job.crawl.release(lease, job.now)


def test_of_a_host_that_fails_each_page_is_tried_before_one_is_tried_again():
    job, tried = Job(*(link("a", n) for n in range(3))), []
    for _ in range(3):
        lease = job.lease()
        tried.append(lease.key)
        job.crawl.frontier.active[lease.key[:HOST_BYTES]].errors = 1
        job.crawl.put_back(lease, Link(lease.key, "a", lease.request), job.now, has_failed=True)
        job.crawl.release(lease, job.now)
    assert len(set(tried)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("max_active", [1, 3, 1000])
def test_thousands_of_priorities_are_kept_in_order_through_ends_of_the_process(max_active):
    """A crawl that has a priority for each page, such as a date, on few hosts and on many."""
    job, dice = Job(max_active=max_active, page_cache=100), random.Random(3)
    links = [
        link(f"h{n % (7 if n % 2 else 500)}", n, priority=dice.randrange(-(1 << 40), 1 << 40))
        for n in range(3000)
    ]
    job.seed(*links)
    found = []
    for n in range(len(links)):
        if n % 1000 == 500:
            job.commit()
            killed(job)
            assert len(job.crawl.frontier.active) <= max_active
        found.append(job.visit().key)
    assert found == [each.key for each in sorted(links, key=lambda each: -each.priority)]
    job.commit()
    assert job.crawl.frontier.places.shelves.counts == {}
    assert len(job.crawl.frontier.places.shelves) <= 1


def test_what_a_priority_costs_in_bytes():
    plain, job = Job(), Job()
    plain.seed(*(link("a", n) for n in range(100)))
    job.seed(*(link("a", n, priority=20_261_128) for n in range(100)))
    sizes = []
    for each in (plain, job):
        each.commit()
        rows = [row for family in (Family.PAGES, Family.QUEUE) for row in each.store.scan(family)]
        sizes.append(sum(len(key) + len(value) for key, value in rows) / 100)
    assert sizes[1] <= sizes[0] + 9
    assert sum(len(key) for key, _ in plain.store.scan(Family.QUEUE)) == 100 * 17


def test_priorities_cross_shards_by_mail():
    job = ShardedJob(2, order=Aopic())
    here, there = hosts_of(0, 2, 1)[0], hosts_of(1, 2, 3)
    job.shards[0].seed(link(here), job.now)
    priorities = zip(there, (-5, MOST_PRIORITY, 1), strict=True)
    job.visit(0, *(link(host, priority=priority) for host, priority in priorities))
    job.commit()
    job.carry()
    job.commit()
    assert [job.visit(1)[0].host for _ in there] == [there[1], there[2], there[0]]
    job.commit()


def test_the_shard_with_the_highest_priority_is_the_best():
    job = ShardedJob(2, order=Aopic())
    one, other = hosts_of(0, 2, 1)[0], hosts_of(1, 2, 1)[0]
    job.shards[0].seed(link(one, priority=1), job.now, worth=1e-6)
    job.shards[1].seed(link(other), job.now, worth=100.0)
    assert job.shards[0].best(job.now) < job.shards[1].best(job.now)

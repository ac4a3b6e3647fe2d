"""What is requested unfiltered, and links to it: which of them are followed, here and in other shards, and what is left of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from support.core_crawl import Job, link
from support.core_shards import ShardedJob, hosts_of
from support.core_shards import link as link_to

from scrapy_aopic.core.records import Link, PageState
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.shards.all_shards import audit_shards


def purpose_of(request: bytes) -> bytes:
    """What stands before the colon."""
    return request.partition(b":")[0]


def job(**policy: Any) -> Job:
    return Job(purpose_of=purpose_of, **policy)


def asked(of: Link, what: str = "list:") -> Link:
    """A request that is not known to links."""
    return replace(of, request=what.encode(), again=True, is_unfiltered=True)


def linked(of: Link, what: str) -> Link:
    return replace(of, request=what.encode())


A, B, C = link("a"), link("b"), link("c")


def test_the_first_link_to_a_page_that_was_requested_is_followed_if_it_is_for_something_else():
    crawl = job()
    crawl.seed(asked(A))
    assert crawl.drain() == [b"list:"]
    fetched = []
    for n, what in enumerate(("item:1", "item:2", "list:")):
        crawl.seed(link("b", n))
        crawl.visit(linked(A, what))
        crawl.commit()
        crawl.reopen()  # killed
        crawl.now += 1000
        fetched += crawl.drain()
    assert fetched == [b"item:1"]


def test_a_link_for_the_same_makes_the_page_known_to_all_others():
    crawl = job()
    crawl.seed(asked(A), B, C)
    assert crawl.visit().request == b"list:"
    crawl.visit(linked(A, "list:"))
    assert crawl.page(A).purpose == b""
    crawl.visit(linked(A, "item:"))
    assert crawl.drain() == []


def test_a_page_that_links_to_itself_is_known_from_then_on():
    crawl = job()
    crawl.seed(asked(A))
    crawl.visit(linked(A, "list:"))
    crawl.kill()
    crawl.now += 1000
    assert crawl.page(A).purpose == b""
    crawl.seed(asked(B))
    crawl.visit(replace(linked(B, "item:"), again=True))  # as a session says of a page that it knows
    crawl.commit()
    assert crawl.page(B).purpose == b""
    assert crawl.drain() == [b"item:"]


def test_links_are_not_known_by_requests_of_the_same_page():
    """A callback asks for a page, and links to it, before its visit is over."""
    for link_, purpose, fetched in (("list:", b"", [b"list:"]), ("", b"list", [b"list:"])):
        crawl = job()
        crawl.seed(B)
        crawl.visit(asked(A), *([linked(A, link_)] if link_ else []))
        assert crawl.page(A).purpose == purpose
        assert crawl.drain() == fetched


def test_a_seed_is_fetched_if_its_page_was_requested_for_something_else():
    seed = replace(asked(A), again=False)
    crawl = job()
    crawl.seed(B)
    crawl.visit(linked(A, "item:"))
    assert crawl.drain() == [b"item:"]
    crawl.seed(seed)
    assert not crawl.crawl.seed(seed, crawl.now)  # it was, now
    assert crawl.drain() == [b"list:"]
    assert not crawl.crawl.seed(seed, crawl.now)


def test_a_page_that_failed_is_fetched_for_a_link_that_is_for_something_else():
    crawl = job()
    crawl.seed(asked(A), B)
    crawl.visit(outcome="http 404", is_failure=True)
    crawl.visit(replace(linked(A, "item:"), again=True))
    assert crawl.drain() == [b"item:"]
    crawl.commit()


def test_what_a_page_is_requested_for_twice_is_one_page_once_both_were_visited():
    for first in ("list:", "item:"):  # of which the visit ends first
        crawl = job()
        crawl.seed(B, asked(A))
        crawl.visit(linked(A, "item:"))  # while it waits
        leases = [crawl.lease()]
        crawl.release(leases[0])
        leases.append(crawl.lease())
        crawl.release(leases[1])
        assert {lease.request for lease in leases} == {b"list:", b"item:"}
        for lease in sorted(leases, key=lambda lease: lease.request != first.encode()):
            crawl.settle(lease)
        crawl.commit()
        assert sum(lease.cash for lease in leases) == crawl.page(A).history, first
        assert crawl.crawl.n_merged == 0, first
        repeat = next(lease for lease in leases if lease.key != A.key)
        assert crawl.crawl.pages.root(repeat.key)[0] == A.key, first


def test_a_page_is_revisited_for_what_it_was_requested_for_at_first():
    crawl = job(recrawl=Recrawl(min_interval=1.0, max_interval=1.0))
    crawl.seed(asked(A), B)
    crawl.visit()
    crawl.visit(linked(A, "item:"))
    crawl.commit()
    fetched = []
    for _ in range(6):
        fetched += crawl.drain()
        crawl.now += 60
    crawl.commit()
    assert fetched.count(b"item:") == 1
    assert fetched.count(b"list:") > 1


HERE, THERE = hosts_of(0, 2, 1), hosts_of(1, 2, 3)


def test_a_page_of_another_shard_decides_on_links_itself():
    """Whether it was requested there, by a seed that was given here, or by a callback here; in one letter or in several."""
    away = link_to(THERE[0])
    for how in ("there", "seed", "callback", "announced"):
        for one_letter in (False, True):
            shards = ShardedJob(2, purpose_of=purpose_of)
            first, *others = [link_to(HERE[0], n) for n in range(5)]
            shards.shards[0].seed(first, shards.now)
            if how == "there":
                shards.shards[1].seed(asked(away), shards.now)
            elif how == "seed":
                shards.shards[0].seed(replace(asked(away), again=False), shards.now)
            if how == "announced":
                lease = shards.shards[0].lease(shards.now)
                shards.shards[0].release(lease, shards.now)
                told = shards.shards[0].announce(lease, [asked(away)], shards.now, 1)
                shards.shards[0].settle(lease, [*told, *others], shards.now)
            else:
                shards.visit(0, *others, *([asked(away)] if how == "callback" else []))
            fetched = []
            for what in ("item:1", "item:2", "list:"):
                if not one_letter:
                    shards.exchange()
                    while len(shards.shards[1]):
                        fetched.append(shards.visit(1)[0].request)
                shards.visit(0, linked(away, what))
            shards.exchange()
            while len(shards.shards[1]):
                fetched.append(shards.visit(1)[0].request)
            shards.exchange()
            assert sorted(fetched) == [b"item:1", b"list:"], (how, one_letter)
            assert audit_shards(shards.stores, str).violations == []


def test_a_page_that_failed_in_another_shard_is_fetched_for_something_else_and_gets_what_it_is_paid():
    away = link_to(THERE[0])
    for what, fetched in (("item:", [b"item:"]), ("list:", [])):
        shards = ShardedJob(2, purpose_of=purpose_of)
        shards.shards[1].seed(asked(away), shards.now)
        shards.visit(1, outcome="http 404", is_failure=True)
        shards.shards[0].seed(link_to(HERE[0]), shards.now)
        shards.visit(0, linked(away, what))
        shards.exchange()
        again = [shards.visit(1)[0] for _ in fetched]
        assert [lease.request for lease in again] == fetched
        assert all(lease.cash for lease in again)
        shards.exchange()
        assert shards.page(away).state == (PageState.VISITED if fetched else PageState.FAILED)

"""Visits by hand-worked examples; what the models of test_model.py and test_walk.py know has no example here."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.core_crawl import NOW, Job, link
from support.naming import case

from scrapy_aopic.core.api import Counts, Lease
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.kept_links import split_links
from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.order import (
    Aopic,
    Backlinks,
    BreadthFirst,
    DepthFirst,
    LargerSites,
    Opic,
    OpicRandom,
    front_queue,
)
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, PageState
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.core.window import Window
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore

SEED = TOTAL >> SEED_SHIFT
A, B, C, D = link("a"), link("b"), link("c"), link("d")


def again(of: Link, request: bytes = b"") -> Link:
    return replace(of, again=True, request=request or of.request)


# -- a visit


def test_a_further_link_from_nearer_makes_them_fewer_and_one_from_as_far_inside_does_not():
    job = Job(order=Aopic())
    near, also_near, far = link("a", 1), link("a", 2), link("a", 3)
    job.seed(A)
    job.visit(near, also_near)
    job.visit(also_near, far)
    assert [job.page(each).clicks for each in (also_near, far)] == [4, 8]
    job.visit(far)
    assert job.page(far).clicks == 5
    job.commit()


def test_and_one_from_another_host_does_not():
    job = Job(order=Aopic())
    near, far = link("a", 1), link("a", 2)
    job.seed(A)
    job.visit(near)
    job.visit(far)
    job.seed(B)
    assert job.visit(far).key == B.key
    assert job.page(far).clicks == 8


def test_a_page_waits_a_front_queue_lower_for_each_click_beyond_36_until_one_from_nearer_links_to_it():
    job = Job(order=Aopic())
    chain = [link("a", number) for number in range(1, 12)]
    job.seed(A)
    clicks, lower = [], []
    for target in chain:
        job.visit(target)
        clicks.append(job.page(target).clicks)
        lower.append(front_queue(job.cash(target)) - job.page(target).front_queue)
    assert clicks[-4:] == [32, 36, 40, 44]
    assert lower == [0] * 9 + [4, 8]
    job.commit()
    second = link("a", 50)
    job.seed(second)
    assert job.visit(chain[-1]).key == second.key
    page = job.page(chain[-1])
    assert (page.clicks, page.score) == (1, 2)
    assert page.front_queue == Aopic().front_queue(Page(PageState.QUEUED, 1, score=2), page.cash)
    job.commit()


def test_a_page_forgets_its_outcome_when_it_is_an_ordinary_page_again():
    job = Job(A)
    job.visit(outcome="redirect")
    job.seed(again(A))
    job.visit()
    assert job.page(A).outcome == ""


# -- hosts


def test_a_lease_says_what_is_asked_and_of_whom():
    job = Job(A)
    assert job.lease()[:-1] == Lease(A.key, "a", A.request, SEED, 0)[:-1]
    assert (len(job.crawl.leases), len(job.crawl), job.crawl.counts.queued) == (1, 0, 1)


def test_nothing_queued_is_nothing_to_wait_for():
    job = Job()
    assert job.crawl.lease(job.now) == job.crawl.when() == Empty()
    assert job.crawl.not_before(b"nobody's") == 0.0


def test_a_page_may_end_before_its_host_is_released():
    job = Job(A)
    lease = job.lease()
    job.settle(lease, B)
    assert job.lease().key == B.key
    job.commit()
    job.crawl.release(lease, job.now)
    job.commit()


# -- commits


def test_a_commit_takes_what_changed_and_only_that():
    job = Job()
    assert not job.crawl.has_changes
    job.seed(A)
    assert job.crawl.has_changes
    job.commit()
    assert not job.crawl.has_changes
    batch = job.crawl.take_changes(job.now)
    assert sum(map(len, batch.values())) == 2  # the totals and the counters
    job.crawl.changes_failed()
    assert job.crawl.has_changes


def test_a_page_that_is_visited_every_minute_for_days_can_be_committed():
    """All cash goes round about once a visit, so that sums grow beyond 64 bits."""
    for spending in [name for name, each in SPENDING.items() if each.classes]:
        with case(spending):
            job = Job(
                spending=spending,
                chosen=frozenset({A.host}),
                window=Window(30 * 86400.0, clock="seconds"),
                recrawl=Recrawl(),
            )
            job.seed(A)
            for _ in range(3000):
                job.visit()
                job.seed(again(A))
                job.now += 60
            job.commit()


# -- another process


def test_a_new_crawl_is_no_resumed_one():
    job = Job()
    assert not job.crawl.is_resumed
    assert job.crawl.was_clean
    assert (job.crawl.created_at, job.crawl.started_at) == (NOW, NOW)
    assert job.crawl.counts == Counts(0, 0, 0, 0)


def test_a_crawl_that_was_closed_goes_on_where_it_was():
    job = Job(A, D)
    job.visit(B, C)
    job.visit(is_failure=True)
    job.commit(is_clean=True)
    totals, counts, cash = (
        job.crawl.ledger.totals,
        job.crawl.counts,
        [job.cash(page) for page in (A, B, C, D)],
    )
    job.reopen(later=86400.0)
    assert (job.crawl.is_resumed, job.crawl.was_clean) == (True, True)
    assert all(job.crawl.is_from_before(job.page(page)) for page in (A, B, C, D))
    assert (job.crawl.created_at, job.crawl.started_at) == (NOW, NOW + 86400)
    assert (job.crawl.ledger.totals, job.crawl.counts) == (totals, counts)
    assert [job.cash(page) for page in (A, B, C, D)] == cash
    assert len(job.crawl) == 2
    assert not job.crawl.seed(A, job.now)
    assert sorted(job.drain()) == [B.request, C.request]
    job.commit()


def test_a_clean_stop_with_pages_in_work_makes_no_host_wait():
    job = Job(A)
    job.lease()
    job.restart(later=0.0)
    assert job.lease().key == A.key


def test_after_a_crash_the_time_to_wake_is_known_before_a_page_is_asked_for():
    job = Job(A, politeness=Politeness(10.0, 0.0, 60.0), commit_within=2.0)
    job.kill(later=500.0)
    assert job.crawl.when() == NotBefore(job.now + 20)


@pytest.mark.parametrize("place", ["memory", "disk", "nothing queued"])
def test_after_a_crash_a_host_waits_for_its_crawl_delay_wherever_it_was(place):
    """It may have been asked right after the last commit, also if that knows nothing of a lease."""
    job = Job(politeness=Politeness(10.0, 0.0, 60.0), commit_within=2.0, max_active=1)
    if place == "disk":
        job.seed(B)
    if place != "nothing queued":
        job.seed(A)
    job.crawl.set_crawl_delay("a", 45.0, job.now)
    job.kill(later=500.0)
    restart = job.now
    job.now = restart + 20
    if place == "disk":
        assert job.visit().key == B.key
    if place == "nothing queued":
        job.seed(A)
    assert job.crawl.lease(job.now) == NotBefore(restart + 45)
    job.now = restart + 45
    assert job.lease().key == A.key


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_what_is_allowed_of_a_host_is_kept_with_it_wherever_it_is(place):
    job = Job(max_active=1)
    if place == "disk":
        job.seed(B)
    job.seed(A)
    job.crawl.allow("a", 1)
    job.crawl.allow("a", 1 << 63 | 3)
    job.crawl.allow("unknown", 1)
    job.restart()
    assert [job.crawl.allowed(name) for name in ("a", "b", "unknown")] == [1 << 63 | 3, 0, 0]
    job.visit()
    job.restart()
    assert job.crawl.allowed("a") == 1 << 63 | 3


def test_a_lease_that_a_clean_stop_ended_is_forgotten_after_a_later_crash():
    job = Job(A, politeness=Politeness(10.0, 0.0, 60.0), commit_within=2.0)
    job.lease()
    job.restart(later=86400.0)
    job.commit()  # as a process does when it starts
    job.reopen(later=1.0)
    assert job.crawl.not_before(A.key[:HOST_BYTES]) == job.now + 20


def test_look_ups_are_counted():
    job = Job(A)
    job.visit(B)
    hits, misses = job.crawl.cache_hits
    assert misses == 2  # A and B, when they were new
    assert hits >= 2


# -- links that differ in weight


def heavy(of: Link, weight: int) -> Link:
    return replace(of, weight=weight)


def test_a_link_that_weighs_nothing_is_asked_for_and_not_paid():
    job = Job(A, endowment=6.0)
    job.visit(heavy(B, 0), C)
    assert job.cash(B) == 0
    assert job.cash(C) > SEED
    assert job.drain() == [C.request, B.request]
    job.commit()


def test_a_page_whose_links_weigh_nothing_gives_everything_to_the_virtual_page():
    job = Job(A, endowment=6.0)
    job.visit(heavy(B, 0), heavy(C, 0))
    assert (job.cash(B), job.cash(C), job.virtual) == (0, 0, TOTAL)
    job.commit()


def test_filtered_links_give_their_weight_to_the_virtual_page():
    job = Job(A)
    job.visit(heavy(B, 2), n_links=3, weight=10)
    assert job.cash(B) == (SEED - SEED // 4) * 2 // 10


def test_of_links_to_one_page_the_first_decides_on_the_weight():
    job = Job(A)
    job.visit(heavy(B, 1), heavy(B, 100), heavy(A, 100), C)
    assert job.cash(B) == job.cash(C) == (SEED - SEED // 4) // 2


def test_with_an_equal_share_the_virtual_page_counts_as_one_more_link_whatever_they_weigh():
    job = Job(A, share=None)
    job.visit(heavy(B, 5), heavy(C, 1))
    each = (SEED - SEED // 3) // 6
    assert job.cash(B) == pytest.approx(5 * each, abs=5)
    job.commit()


# -- chosen domains


def focused(**policy) -> Job:
    return Job(spending="chosen", chosen=frozenset({"b", "www.c"}), domain_of=lambda host: host[-1], **policy)


def test_the_virtual_page_spends_on_chosen_domains_and_hosts_alone():
    job = focused()
    pages = [link(host, 1) for host in ("a", "b", "www.b", "c", "www.c")]
    job.seed(*pages, is_endowed=False)
    whole = job.virtual
    lease = job.lease()  # of a page without cash, so that the virtual page holds more
    job.crawl.release(lease, job.now)
    assert [job.cash(page) for page in pages] == [0, whole // 3, whole // 3, 0, whole // 3]
    assert job.virtual == whole % 3
    job.settle(lease)
    job.commit()


def test_spending_on_many_pages_touches_none_of_them():
    job = focused()
    pages = [link("b", number) for number in range(1000)]
    job.seed(*pages, is_endowed=False)
    job.commit()
    rest = job.virtual
    job.lease()
    assert all(job.cash(page) == rest // 1000 for page in pages)
    batch = job.crawl.take_changes(job.now)
    assert len(batch[Family.PAGES]) == 1  # the page that was leased
    assert sum(map(len, batch.values())) < 10


# -- more cash for a page that is known


@pytest.mark.parametrize("is_visited", [False, True])
def test_a_known_page_is_given_the_worth_of_seeds_and_moves_up(is_visited):
    job = Job(A, B)
    if is_visited:
        job.visit()
    rest, cash = job.virtual, job.cash(A)
    units = job.crawl.enrich(A.key, job.now, 5.0)
    assert units == int((rest >> SEED_SHIFT) * 5.0) == job.cash(A) - cash == rest - job.virtual
    if not is_visited:
        assert job.page(A).front_queue == front_queue(cash + units) > front_queue(cash)
    assert job.crawl.has_changes
    job.commit()


def test_a_page_that_is_given_the_worth_of_seeds_is_as_near_as_one_and_never_takes_half_of_the_rest():
    job = Job(A, order=Aopic())
    deep = link("a", 2)
    job.visit(deep)
    rest = job.virtual
    assert (job.page(deep).clicks, job.crawl.enrich(deep.key, job.now, 1e12)) == (4, rest // 2)
    assert job.page(deep).clicks == 0


def test_a_waiting_page_that_is_given_cash_comes_first():
    for max_active in (1, 100):
        job = Job(A, B, C, max_active=max_active)
        job.crawl.enrich(C.key, job.now, 8.0)
        assert job.drain() == [C.request, A.request, B.request]


def test_a_page_that_failed_or_is_unknown_is_given_nothing():
    job = Job(A)
    job.visit(is_failure=True)
    assert job.crawl.enrich(A.key, job.now, 5.0) == job.crawl.enrich(B.key, job.now, 5.0) == 0
    assert job.virtual == TOTAL


# -- the order of a job


def test_a_job_keeps_the_order_that_it_began_with():
    job = Job(A, B, order=Opic())
    job.visit(C)
    job.commit(is_clean=True)
    stored = {family: list(job.store.scan(family)) for family in Family}
    for other in (BreadthFirst(), Aopic(), type("Opic", (Opic,), {})()):
        with pytest.raises(StorageError, match="set AOPIC_ORDER back, or use a new job folder"):
            Crawl(job.store, Policy(order=other), job.now)
        assert {family: list(job.store.scan(family)) for family in Family} == stored
    job.reopen()
    assert sorted(job.drain()) == [B.request, C.request]


def test_pages_from_before_are_told_from_new_ones_in_every_order():
    for order in [Opic, BreadthFirst, DepthFirst, OpicRandom, Backlinks, LargerSites]:
        job = Job(A, B, order=order())
        job.restart()
        job.seed(C)
        assert [job.crawl.is_from_before(job.page(page)) for page in (A, B, C)] == [True, True, False], order


@pytest.mark.parametrize("reopens", [False, True])
def test_a_seed_vouches_for_its_domain_and_a_page_seeded_without_cash_does_not(reopens):
    job = Job(domain_of=lambda host: host[-1], politeness=Politeness(0.0))
    order = job.policy.order
    order.budget, order.allowance = 0.1, 0.5
    job.seed(A, B)
    job.seed(link("c", 1), is_endowed=False)
    assert [job.visit().host for _ in range(3)] == ["a", "b", "c"]
    pages = {host: link(host, 2) for host in "acd"}
    job.seed(*pages.values(), is_endowed=False)
    job.crawl.enrich(pages["a"].key, job.now, 4.0)
    job.crawl.enrich(pages["c"].key, job.now, 8.0)
    if reopens:
        job.restart()
    # After three visits "a", which has half of the seeds, is in time, and "c" is late.
    assert [job.visit().host for _ in range(3)] == ["a", "d", "c"]
    job.commit()


@pytest.mark.parametrize("max_active", [1, 3, 100])
@pytest.mark.parametrize("how", ["link", "seed"])
def test_a_domain_that_was_late_is_fetched_from_as_soon_as_somebody_vouches_for_it(how, max_active):
    order = Aopic()
    order.budget, order.allowance = 0.05, 2.0
    job = Job(order=order, domain_of=str, politeness=Politeness(0.0), max_active=max_active)
    rich, poor = [link("rich", n) for n in range(8)], [link(host) for host in "abcd"]
    job.seed(*rich, *poor, is_endowed=False)  # for which nobody vouches
    for page in rich:
        job.crawl.enrich(page.key, job.now, 50.0)
    assert [job.visit().host == "rich" for _ in range(3)] == [True, True, False]
    if how == "link":
        assert job.visit(rich[0]).host != "rich"
    else:
        job.seed(link("rich", 8))
    assert job.visit().host == "rich"
    job.commit()


# -- links that are kept


def kept(job: Job) -> dict[bytes, list[bytes]]:
    return {key: split_links(key, targets) for key, targets in job.store.scan(Family.LINKS)}


def test_links_are_kept_in_the_order_of_the_document_each_once():
    job = Job(A, keep_links=True)
    job.visit(C, B, A, C, again(D))
    job.visit()
    job.commit()
    assert kept(job)[A.key] == [C.key, B.key, D.key]


def test_links_are_not_kept_unless_they_are_wanted():
    job = Job(A)
    job.visit(B)
    job.commit()
    assert kept(job) == {}


def test_links_are_those_of_ordinary_pages():
    for outcome, is_failure in [("redirect", False), ("http 404", True)]:
        job = Job(A, keep_links=True)
        job.visit(B, outcome=outcome, is_failure=is_failure)
        job.visit(C)
        job.commit()
        assert kept(job) == {B.key: [C.key]}, (outcome, is_failure)


def test_the_links_of_the_last_visit_are_kept():
    job = Job(A, keep_links=True)
    job.visit(B, C)
    job.seed(again(A), is_endowed=False)
    job.crawl.enrich(A.key, job.now, 5.0)
    assert job.visit(D).key == A.key
    job.commit()
    assert kept(job)[A.key] == [D.key]


# -- a store that is far away


class FarStore(MemoryStore):
    """Takes as long for ten rows as for one."""

    read_ahead = 7

    def __init__(self) -> None:
        super().__init__()
        self.n_reads = 0

    def get_many(self, family, keys):
        self.n_reads += family in (Family.PAGES, Family.REQUESTS)
        return super().get_many(family, keys)


def test_a_crawl_reads_the_next_pages_of_a_host_with_the_first_from_a_store_that_is_far_away():
    job = Job()
    job.store = FarStore()
    job.crawl = Crawl(job.store, job.policy, job.now)
    pages = [link("a", number) for number in range(24)]
    job.seed(*pages)
    job.restart()
    job.store.n_reads = 0
    assert sorted(job.drain()) == sorted(page.request for page in pages)
    assert job.store.n_reads == 2 * len(pages) / (1 + FarStore.read_ahead)
    job.commit()

"""What each order asks for first: by its own answers, and in whole crawls of small webs on several hosts."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_crawl import Job, link

from scrapy_aopic.core.order import (
    ORDERS,
    Aopic,
    Backlinks,
    BatchOrder,
    BreadthFirst,
    DepthFirst,
    LargerSites,
    Opic,
    OpicCycle,
    OpicRandom,
    PageRank,
    front_queue,
    quarter_queue,
)
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.records import N_FRONT_QUEUES, HostRecord, Link, Page, PageState, queue_row
from scrapy_aopic.lab.simulation import simulate

MEAN = 1 << 16
"""Score of a page that has as much as the mean page."""


def page(score: int = 0, *, shift: int = 0, place: int = 1) -> Page:
    return Page(PageState.QUEUED, place, shift=shift, score=score)


class Web:
    """Pages by number with links at random, dealt out to hosts."""

    def __init__(self, pages: int, hosts: int, seed: int, *, links: int = 4) -> None:
        dice = random.Random(seed)
        self.host_of = [f"host{dice.randrange(hosts)}" for _ in range(pages)]
        # Low numbers are linked to more often.
        self.links = [
            [int(pages * dice.random() ** 2) for _ in range(dice.randrange(2 * links))] for _ in range(pages)
        ]

    def link(self, number: int) -> Link:
        return link(self.host_of[number], number, number.to_bytes(4, "big"))

    def targets(self, number: int) -> list[int]:
        """Distinct pages that a page links to, without itself."""
        return [target for target in dict.fromkeys(self.links[number]) if target != number]

    def visit(self, job: Job) -> int:
        """Visit the next page of *job*; returns its number."""
        lease = job.lease()
        number = int.from_bytes(lease.request, "big")
        job.finish(lease, *map(self.link, self.links[number]))
        return number

    def visit_all(self, job: Job, *, every: int, then: Callable[[], None]) -> list[int]:
        """Visit the first three pages of *job* and all behind them, and *then* do something after *every* so many."""
        job.seed(*map(self.link, range(3)))
        visited = []
        while len(job.crawl):
            visited.append(self.visit(job))
            if (task := job.crawl.scores.task()) is not None:
                job.crawl.rescored(task(), job.now)
            if len(visited) % every == 0:
                then()
        return visited


# -- what holds for all


@given(
    cash=st.integers(0, 1 << 53),
    score=st.integers(0, 1 << 45),
    shift=st.integers(-70, 70),
    number=st.integers(1, (1 << 32) - 1),
    host=st.builds(HostRecord, st.just("a"), queued=st.integers(1, 1 << 32), visited=st.integers(0, 1 << 32)),
)
def test_levels_places_and_ranks_are_within_their_bounds(cash, score, shift, number, host):
    for order in (cls() for cls in ORDERS.values()):
        level, place = order.front_queue(page(score, shift=shift), cash), order.place(number, 0)
        assert 0 <= level < 64
        assert 0 <= place < 1 << 64
        assert place % (1 << 32) == number
        ranks = [order.rank(queue_row(each, place), host, host.visited) for each in (level, 0, 63)]
        assert ranks[2] <= ranks[0] <= ranks[1]
        assert len({len(rank) for rank in ranks}) == 1


@given(cash=st.integers(0, 1 << 53), score=st.integers(0, 1 << 45))
def test_a_priority_never_moves_a_page_down(cash, score):
    for order in (cls() for cls in ORDERS.values()):
        levels = [order.front_queue(page(score, shift=shift), cash) for shift in range(-80, 81, 5)]
        assert levels == sorted(levels)
        assert levels[-1] == 63


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_fetches_all_there_is_and_keeps_every_invariant(name):
    web = Web(150, 12, seed=1)
    job = Job(order=ORDERS[name](), max_active=5)
    fetched = web.visit_all(job, every=30, then=job.commit)
    reachable, waiting = set(range(3)), [0, 1, 2]
    while waiting:
        new = set(web.targets(waiting.pop())) - reachable
        reachable |= new
        waiting += new
    assert sorted(fetched) == sorted(reachable)


@pytest.mark.parametrize("name", ORDERS)
def test_a_crawl_that_is_stopped_and_goes_on_fetches_the_same_pages_as_one_that_is_not(name):
    """In the same order, too, save where hosts in memory take turns, or scores are computed at the start."""
    web = Web(120, 6, seed=2)
    job = Job(order=ORDERS[name](), max_active=100)

    def stop() -> None:
        job.restart()

    whole = web.visit_all(Job(order=ORDERS[name](), max_active=100), every=7, then=lambda: None)
    runs = [whole, web.visit_all(job, every=7, then=stop)]
    assert sorted(runs[0]) == sorted(runs[1])
    if ORDERS[name] in (BreadthFirst, DepthFirst, OpicCycle, OpicRandom, Opic, Backlinks):
        assert runs[0] == runs[1]


# -- first found, last found


def test_breadth_first_is_the_order_of_discovery_over_all_hosts():
    for max_active in (1, 2, 5, 100):
        web = Web(200, 10, seed=3)
        job = Job(*map(web.link, (5, 3)), order=BreadthFirst(), max_active=max_active)
        expected, found = [5, 3], {5, 3}
        for position in range(150):
            assert web.visit(job) == expected[position]
            new = [target for target in web.targets(expected[position]) if target not in found]
            expected += new
            found.update(new)


def test_depth_first_asks_for_the_page_found_last_over_all_hosts():
    for max_active in (1, 2, 5, 100):
        web = Web(200, 10, seed=4)
        job = Job(*map(web.link, (5, 3)), order=DepthFirst(), max_active=max_active)
        stack, found = [5, 3], {5, 3}
        while stack:
            expected = stack.pop()
            assert web.visit(job) == expected
            new = [target for target in web.targets(expected) if target not in found]
            stack += new
            found.update(new)


def test_a_host_that_must_wait_loses_no_turn_breadth_first():
    job = Job(order=BreadthFirst())
    pages = [link("slow", 0), link("slow", 1), link("b", 2), link("slow", 3), link("c", 4)]
    job.seed(*pages)
    first = job.lease()
    job.release(first, gap=10.0)
    job.settle(first)
    assert job.visit().request == pages[2].request
    job.now += 10
    assert job.drain() == [pages[number].request for number in (1, 3, 4)]


def test_a_priority_counts_in_every_order_that_knows_no_cash():
    for order in (BreadthFirst, DepthFirst, OpicCycle, OpicRandom):
        job = Job(order=order())
        job.seed(link("a", 1, shift=-1), link("b", 2), link("c", 3, shift=2), link("d", 4, shift=1))
        assert job.drain() == [b"c/3", b"d/4", b"b/2", b"a/1"]


# -- cash


@given(cash=st.integers(0, 1 << 53), shift=st.integers(-10, 10), score=st.integers(0, 100))
def test_opic_goes_by_cash_alone(cash, shift, score):
    assert Opic().front_queue(page(score, shift=shift), cash) == front_queue(cash, shift)


@given(st.integers(1, 52), st.integers(-60, 60))
def test_a_visited_page_is_placed_to_a_quarter_of_a_front_queue(bits, shift):
    """As much as 2**n units, less one, is quarter 4 n; each front queue that a priority moves it is four quarters."""
    queue = quarter_queue((1 << bits) - 1, shift)
    assert queue == min(max(4 * (bits + shift), 0), 4 * N_FRONT_QUEUES - 2)
    if 0 < queue < 4 * N_FRONT_QUEUES - 2 and bits > 4:
        parts = [quarter_queue(int((1 << bits) * 2 ** (n / 4 + 0.01)), shift) for n in range(4)]
        assert parts == [min(queue + n, 4 * N_FRONT_QUEUES - 2) for n in range(4)]


def test_opic_neither_endows_nor_looks_at_domains():
    job = Job(link("a"), order=Opic(), endowment=6.0, share=0.0)
    cash = job.cash(link("a"))
    job.visit(link("b"))
    assert job.cash(link("b")) == cash
    assert not job.store.size_bytes()
    job.commit()


def test_opic_in_turns_does_not_go_by_cash():
    job = Job(link("a"), order=OpicCycle())
    job.visit(link("poor", 1), link("rich", 2), link("b", 3))
    job.crawl.enrich(link("rich", 2).key, job.now, 50.0)
    assert job.drain() == [b"poor/1", b"rich/2", b"b/3"]


# -- at random


def chi_square(counts: list[int]) -> float:
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 for count in counts) / mean


def ages_taken(order: OpicRandom, clock: int, n: int, steps: int) -> list[int]:
    """How often the oldest, the second oldest ... of *n* waiting pages was taken, each replaced by a new one."""
    numbers = iter(range(1, 10**9))
    waiting = [order.place(next(numbers), clock) for _ in range(n)]
    taken = [0] * n
    for _ in range(steps):
        best = min(waiting)
        age = waiting.index(best)
        taken[age] += 1
        clock = order.clock_after(page(place=waiting.pop(age)), clock)
        waiting.append(order.place(next(numbers), clock))
    return taken


def test_every_waiting_page_has_the_same_chance_however_long_it_waits():
    """The numbers are the same in every run; were they drawn, 1 in 1000 would be above the bound."""
    for begin in [0.0, 1000.0, 100_000.0]:
        clock = int.from_bytes(struct.pack(">f", begin), "big")
        assert chi_square(ages_taken(OpicRandom(), clock, 8, 8000)) < 24.3, begin


def test_a_page_whose_host_had_to_wait_does_not_set_the_clock_back():
    order = OpicRandom()
    clock, early = 0, order.place(1, 0)
    for number in range(2, 50):
        clock = order.clock_after(page(place=order.place(number, clock)), clock)
    assert order.clock_after(page(place=early), clock) == clock > early >> 32


def test_the_clock_outlives_a_restart():
    job = Job(*(link("a", number) for number in range(9)), order=OpicRandom())
    for _ in range(5):
        job.visit()
    clock = job.crawl.pages.clock
    job.restart()
    assert job.crawl.pages.clock == clock > 0


def test_two_crawls_with_one_policy_have_a_clock_each():
    one = Job(*(link("a", number) for number in range(9)), order=OpicRandom())
    one.visit()
    clock = one.crawl.pages.clock
    other = Job(order=one.policy.order)
    assert (one.crawl.pages.clock, other.crawl.pages.clock) == (clock, 0)


def test_a_page_of_another_priority_leaves_the_clock_alone():
    order = OpicRandom()
    assert order.clock_after(page(place=order.place(1, 0), shift=1), 0) == 0


# -- links


def test_backlinks_are_told_apart_one_by_one_up_to_sixteen():
    levels = [Backlinks().front_queue(page(n), 0) for n in range(17)]
    assert levels == list(range(17))


@given(st.integers(16, 1 << 30))
def test_backlinks_are_told_apart_by_a_quarter_of_a_power_of_two_beyond(n):
    level = Backlinks().front_queue(page(n), 0)
    assert level == min(16 + math.floor(4 * math.log2(n / 16)), 63)


def test_the_page_with_the_most_links_comes_first_and_each_visit_counts_once():
    job = Job(order=Backlinks())
    seeds = [link("s", number) for number in range(4)]
    job.seed(*seeds)
    one, two, three, much = link("one"), link("two"), link("three"), link("much")
    job.visit(one, two, three, three, three)
    # Its three targets have one link each now, and come before the seeds that nobody links to.
    job.visit(two, three, much)
    assert job.visit(three).key == two.key
    assert job.visit().key == three.key
    assert job.visit().key == much.key
    assert job.drain() == [each.request for each in seeds[1:]]
    job.commit()


def test_a_second_visit_does_not_count_its_links_again():
    job = Job(link("a"), order=Backlinks())
    job.visit(link("b"), link("c"))
    job.seed(link("a", again=True), is_endowed=False)
    for _ in "bca":
        lease = job.visit(link("d")) if job.crawl.page(link("a").key).state == PageState.QUEUED else None
        assert lease is not None
    assert job.page(link("d")).score == 2  # from b and c
    job.commit()


# -- sites


@given(n=st.integers(1, 1 << 32), more=st.floats(1.01, 100))
def test_a_larger_site_comes_first_if_it_is_so_by_more_than_one_percent(n, more):
    def rank(queued: int) -> bytes:
        return LargerSites().rank(b"", HostRecord("a", queued=queued), 0)

    assert rank(n + 1) <= rank(n)
    assert rank(int(n * more) + 2) < rank(n)


def test_the_host_with_the_most_waiting_pages_is_asked_first():
    for max_active in (1, 2, 100):
        job = Job(order=LargerSites(), max_active=max_active)
        sizes = {"a": 3, "b": 7, "c": 5}
        job.seed(*(link(host, number) for number in range(7) for host in sizes if number < sizes[host]))
        waiting = dict(sizes)
        for request in job.drain():
            host = request.decode().split("/")[0]
            assert waiting[host] == max(waiting.values())
            waiting[host] -= 1


# -- the default


@given(cash=st.integers(1, 1 << 50), score=st.integers(0, 1 << 20), shift=st.integers(-3, 3))
def test_a_page_counts_for_its_cash_times_the_root_of_its_links(cash, score, shift):
    worth = cash * math.sqrt(max(score, 1))
    level = Aopic().front_queue(page(score, shift=shift), cash)
    assert level == 0 or 2.0 ** (level - shift - 1) <= worth * 1.01  # below the lowest one there is none
    assert worth * 0.99 - 1 <= 2.0 ** (level - shift)


def test_budgets_grow_with_supporters_to_the_power_of_one_and_a_half():
    order = Aopic()
    order.budget, order.allowance = 0.01, 10.0
    assert order.due(9, 1.0, 0.0) == 0.0
    assert order.due(10, 1.0, 0.0) == pytest.approx(1000)
    assert order.due(10, 0.0, 0.0) == pytest.approx(1000)
    assert order.due(79, 4.0, 0.0) == 0.0
    assert order.due(80, 4.0, 0.0) == pytest.approx(1000)
    assert order.due(800, 4.0, 0.0) == pytest.approx(10_000)


def test_a_domain_may_take_the_part_of_the_fetches_that_it_has_of_the_seeds():
    order = Aopic()
    order.budget = 0.01
    assert order.due(99, 1.0, 0.98) == pytest.approx(100)
    assert order.due(100, 1.0, 1.0) < 100  # whoever has all seeds is never late


def test_without_a_budget_nobody_is_ever_late():
    order = Aopic()
    order.budget = 0.0
    assert order.due(10**9, 1.0, 0.0) == 0.0


@given(
    visited=st.integers(0, 10**9), supporters=st.floats(0, 1e6), seeded=st.floats(0, 1), more=st.floats(0, 1)
)
def test_more_visits_make_a_domain_due_later_and_more_support_sooner(visited, supporters, seeded, more):
    due = Aopic().due(visited, supporters, seeded)
    assert Aopic().due(visited + 1, supporters, seeded) >= due
    assert Aopic().due(visited, supporters + more, seeded) <= due
    assert Aopic().due(visited, supporters, seeded + more) <= due


def test_orders_without_budgets_are_never_late():
    assert BreadthFirst().due(10**9, 1.0, 0.0) == 0.0


# -- the whole graph


@given(st.integers(1, 1 << 45), st.integers(-3, 3))
def test_scores_are_told_apart_by_the_root_of_two(score, shift):
    level = BatchOrder().front_queue(page(score, shift=shift), 10**9)
    assert level == min(max(math.floor(2 * math.log2(score) - 16) + shift, 1), 63)


def test_a_page_without_a_score_waits_for_the_next_computation():
    assert BatchOrder().front_queue(page(0), 1 << 50) == 0
    assert BatchOrder().front_queue(page(1), 0) == 1


def pagerank(links: dict[int, list[int]]) -> dict[int, float]:
    """PageRank(0.85) of the pages that are keys or links, by solving the equations."""
    np = pytest.importorskip("numpy")
    pages = sorted({*links, *(target for targets in links.values() for target in targets)})
    at = {number: position for position, number in enumerate(pages)}
    walk = np.full((len(pages), len(pages)), 1 / len(pages))
    for source, targets in links.items():
        if targets:
            walk[at[source]] = 0.0
            walk[at[source], [at[target] for target in targets]] = 1 / len(targets)
    base = np.full(len(pages), 0.15 / len(pages))
    rank = np.linalg.solve(np.eye(len(pages)) - 0.85 * walk.T, base)
    return dict(zip(pages, rank.tolist(), strict=True))


@pytest.mark.parametrize("stops_at", [0, 37], ids=["in one run", "stopped and resumed"])
def test_pagerank_asks_for_the_best_page_of_the_known_graph(stops_at):
    """Within a factor of the root of two, and as of the last time that the graph had grown by a tenth."""
    pytest.importorskip("numpy")
    web = Web(160, 8, seed=6)
    job = Job(*map(web.link, range(4)), order=PageRank(), max_active=3)
    seen: dict[int, list[int]] = {}
    rank: dict[int, float] = {}
    waiting, found, n_ranked, n_choices = set(range(4)), set(range(4)), 0, 0
    while waiting:
        number = web.visit(job)
        scores = sorted(rank.get(each, 0.0) for each in waiting)
        assert rank.get(number, 0.0) >= scores[-1] * 0.7
        n_choices += scores[0] < scores[-1] * 0.7
        waiting.remove(number)
        seen[number] = web.targets(number)
        new = set(seen[number]) - found
        waiting |= new
        found |= new
        if stops_at == len(seen):
            job.restart()
            n_ranked = 0  # a new process knows no last time
        task = job.crawl.scores.task()
        known = {*seen, *(target for targets in seen.values() for target in targets)}
        assert (task is not None) == (len(known) > 1.1 * n_ranked)
        if task is not None:
            scored = task()
            job.crawl.rescored(scored[:0], job.now)
            middle = job.crawl.rescored(scored, job.now, 0, len(scored) // 2)
            assert job.crawl.rescored(scored, job.now, middle) == len(scored) == len(known)
            n_ranked, rank = len(known), pagerank(seen)
    job.commit()
    assert n_choices > 40
    assert n_ranked > 100


def test_a_redirect_counts_as_a_link_for_the_known_graph():
    """Else its target would come last, for nothing else links to it."""
    pytest.importorskip("numpy")
    for reopens in (False, True):
        job = Job(link("a"), order=PageRank())
        job.visit(link("old"), link("b"))
        job.crawl.rescored(job.crawl.scores.task()(), job.now)
        job.visit(link("new"), outcome="redirect")
        if reopens:
            job.restart()
        job.crawl.rescored(job.crawl.scores.task()(), job.now)
        assert job.page(link("new")).score > MEAN / 2
        job.commit()


def test_an_order_of_ones_own_is_a_subclass():
    class Shortest(BreadthFirst):
        """Hosts with short names first, and of one host the page that was found last."""

        def place(self, number, clock):
            return (1 << 32) - 1 - number << 32 | number

        def rank(self, row, host, visited):
            return bytes((len(host.name),))

    job = Job(order=Shortest(), max_active=2)
    job.seed(*(link(host, number) for number in range(2) for host in ("ccc", "a", "bb")))
    assert job.drain() == [b"a/1", b"a/0", b"bb/1", b"bb/0", b"ccc/1", b"ccc/0"]


# -- traps


def fetches_of_a_trap(budget: float, width: int, *, has_sub_hosts: bool) -> int:
    """How many of 1,500 fetches in a web of 2,000 pages on 60 sites go to an endless one, linked from one page."""
    web = Web(2000, 60, seed=7, links=5)
    children: dict[int, range] = {}

    def out_links(number: int) -> list[int]:
        if number < 2000:
            return web.links[number] + [2000] * (number == 1)
        begin = 2001 + width * len(children)
        return list(children.setdefault(number, range(begin, begin + width)))

    def host_of(number: int) -> str:
        if number < 2000:
            return f"www.{web.host_of[number]}"
        return f"h{number}.trap" if has_sub_hosts else "trap"

    order = Aopic()
    order.budget = budget
    policy = Policy(order=order, domain_of=lambda host: host.split(".")[-1])
    fetched = list(simulate(out_links, host_of, [1, 2, 3], 1500, policy))
    assert len(fetched) == 1500
    return sum(number >= 2000 for number in fetched)


@pytest.mark.slow
@pytest.mark.parametrize("has_sub_hosts", [False, True], ids=["one host", "sub-hosts"])
def test_an_endless_trap_takes_little_of_a_crawl(has_sub_hosts):
    chain, tree = (fetches_of_a_trap(0.004, width, has_sub_hosts=has_sub_hosts) for width in (1, 10))
    assert 0 < chain <= 30  # 2 % of them at most; 20 are free
    assert 0 < tree <= 30
    # One on one host starves by itself, as endowments fade with clicks.
    without_budget = fetches_of_a_trap(0.0, 1, has_sub_hosts=has_sub_hosts)
    assert without_budget > 60 if has_sub_hosts else without_budget < 60

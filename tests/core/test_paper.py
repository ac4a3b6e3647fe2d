"""A crawl in the paper's own mode does what the paper's algorithm does, written down here and nowhere else.

Abiteboul, Preda and Cobena, "Adaptive On-Line Page Importance Computation", WWW 2003, with whole units.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace as replace_policy
from typing import Any

import pytest
from msgspec.structs import replace
from support.core_crawl import Job, link

from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.order import ORDERS, front_queue
from scrapy_aopic.core.records import Link, PageState
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.core.window import Window

N, CHOSEN = 24, "b"
ROUND = Recrawl(once=True)  # pages come back when the test says so, by their cash alone


class Paper:
    """Cash, history, a virtual page that all pages link to and that links to its members, and greedy choice."""

    def __init__(self, graph: dict[Link, list[Link]], is_member: Callable[[Link, bool], bool]) -> None:
        self.graph, self.is_member = graph, is_member
        self.cash: dict[Link, int] = {}
        self.history: dict[Link, int] = {}
        self.visits: Counter[Link] = Counter()
        self.virtual = TOTAL
        self.second: list[int] = []
        self.known: dict[
            Link, int
        ] = {}  # what its queue knows of the cash of a page: all but what it was handed since

    def seed(self, page: Link) -> None:
        self.cash[page] = self.virtual >> SEED_SHIFT
        self.virtual -= self.cash[page]
        self.known[page] = self.cash[page]

    def spend(self, best: Link) -> None:
        """The virtual page is visited if it holds more than the best page."""
        members = [page for page in self.cash if self.is_member(page, self.visits[page] > 0)]
        if members and self.virtual > self.cash[best]:
            for page in members:
                self.cash[page] += self.virtual // len(members)
            self.virtual %= len(members)

    def visit(self, page: Link, *, averages: bool) -> None:
        spent, links = self.cash.pop(page), self.graph[page]
        each = (spent - int(spent / (len(links) + 1))) // len(links)
        self.known[page] = self.cash[page] = 0
        for target in links:
            self.known[target] = self.cash[target] = self.cash.get(target, 0) + each
        self.virtual += spent - each * len(links)
        self.visits[page] += 1
        is_usual = averages and 2 * len(self.second) >= sum(map(bool, self.visits.values())) - 1
        first = sum(self.second) // len(self.second) if is_usual and self.second else spent
        self.history[page] = self.history[page] + spent if self.visits[page] > 1 else first
        if self.visits[page] == 2:
            self.second.append(self.history[page])

    def importance(self, *, averages: bool) -> dict[Link, float]:
        """X = (H + C) / sum; of a page that comes back what its visits say, from the second on."""
        weights = {
            page: self.history.get(page, 0) + (0 if averages and self.visits[page] > 1 else cash)
            for page, cash in self.cash.items()
        }
        return {page: weight / sum(weights.values()) for page, weight in weights.items()}


def scale_free(dice: random.Random) -> dict[Link, list[Link]]:
    pages, ends = [link("ab"[n % 3 == 0], n) for n in range(N)], list(range(4))
    graph: dict[Link, list[Link]] = {}
    for n, page in enumerate(pages):
        found = {pages[dice.choice(ends)] for _ in range(3)} | {pages[(n + 1) % N]}
        graph[page] = sorted(found - {page}, key=pages.index)
        ends += [pages.index(each) for each in graph[page]] + [n]
    return graph


def crawl_of(spending: str, recrawl: Recrawl | None, **policy: Any) -> Job:
    return Job(
        order=ORDERS["opic"](),
        share=None,
        spending=spending,
        chosen=frozenset(CHOSEN),
        window=Window(1e18, "fixed"),
        recrawl=recrawl,
        **policy,
    )


@pytest.mark.parametrize(("spending", "recrawl"), [(each, ROUND) for each in SPENDING] + [("chosen", None)])
def test_order_cash_and_importance_are_those_of_the_paper(spending, recrawl):
    graph, job, how = scale_free(random.Random(3)), crawl_of(spending, recrawl), SPENDING[spending]
    classes = (how if recrawl else how.without_revisits()).classes
    paper = Paper(graph, lambda page, visited: visited + 2 * (page.host == CHOSEN) in classes)
    by_key = {page.key: page for page in graph}
    for page in list(graph)[:6]:
        job.seed(page)
        paper.seed(page)
    for _ in range(200):
        waiting = [page for page in paper.cash if job.state(page) == PageState.QUEUED]
        lease = job.lease()
        page = by_key[lease.key]
        best = max(front_queue(paper.known[each]) for each in waiting)
        assert front_queue(paper.known[page]) == best  # greedy, by a queue for each half of a power of two
        paper.spend(page)
        assert lease.cash == paper.cash[page]
        job.finish(lease, *graph[page])
        paper.visit(page, averages=recrawl is not None)
        assert {each: job.cash(each) for each in paper.cash} == paper.cash
        assert job.virtual == paper.virtual
        important = paper.importance(averages=recrawl is not None)
        assert {each: job.crawl.ledger.importance(job.page(each)) for each in paper.cash} == important
        job.crawl.seed(replace(page, again=True), job.now)  # once more
    job.commit()


def holders(job: Job) -> dict[bytes, int]:
    """Cash of the pages that were visited and can never be so again."""
    pages = job.crawl.pages.stored_after(b"", 1000)[0]
    return {
        key: job.crawl.ledger.cash(page)
        for key, page in pages
        if page.repeat_of and page.state != PageState.QUEUED
    }


def test_start_pages_that_are_named_twice_are_paid_as_one_page_each():
    """Even if one of them failed meanwhile."""
    graph, job = scale_free(random.Random(3)), crawl_of("visited", Recrawl(1.0, 1e6))
    for page in (*graph, *graph):
        job.crawl.seed(replace(page, again=True), job.now)
    by_key, n = {page.key: page for page in graph}, 0
    while n < 300:
        job.now += 10.0
        lease = job.lease()
        job.crawl.release(lease, job.now)
        page = by_key.get(lease.key)
        n += 1
        job.settle(
            lease, *(graph[page] if page else ()), is_failure=n == 5, outcome="http 404" if n == 5 else ""
        )
    job.commit()
    assert len(holders(job)) == N
    assert set(holders(job).values()) == {0}
    assert sum(job.crawl.ledger.totals.members) == N - 1


@pytest.mark.parametrize("before", [None, ROUND], ids=["once", "in a round"])
def test_pages_of_runs_that_visited_them_once_come_back_with_what_they_are_paid(before):
    graph = scale_free(random.Random(3))
    job = crawl_of("unvisited", before)
    job.seed(*graph)
    by_key = {page.key: page for page in graph}
    for _ in range(N):
        job.visit()
    job.commit()
    job.policy = replace_policy(job.policy, recrawl=Recrawl(10.0, 1e6), spending="visited")
    for _ in range(2):  # the first one is killed before any is looked at
        job.reopen(later=1000.0)
    seen = set()
    for _ in range(3 * N):
        job.now += 100.0
        lease = job.lease()
        seen.add(lease.key)
        job.finish(lease, *graph[by_key[lease.key]][:1])
        job.commit()
    assert seen == set(by_key)

from __future__ import annotations

import math
import random

import pytest
from support.core_crawl import saved_of, write_changes
from support.frontier_invariants import check

from scrapy_aopic.core.domains import Domains
from scrapy_aopic.core.frontier.back_queue import BACK_QUEUE_ROWS
from scrapy_aopic.core.frontier.free_connections import FreeConnections
from scrapy_aopic.core.frontier.frontier import ORDINARY, Empty, Frontier, NotBefore, Taken
from scrapy_aopic.core.frontier.host_state import HostState, Phase
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import Aopic, DepthFirst, LargerSites, PageRank, front_queue, host_class
from scrapy_aopic.core.records import (
    HOST_BYTES,
    N_FRONT_QUEUES,
    front_queue_of,
    host_key,
    page_key,
    queue_row,
)
from scrapy_aopic.core.tables import Commits
from scrapy_aopic.storage.memory import MemoryStore

Named = tuple[str, int]


class Desk:
    """A frontier whose pages are named by host and number; the number is also the order of discovery."""

    def __init__(self, max_active: int = 100) -> None:
        self.store = MemoryStore()
        self.frontier = Frontier(self.store, max_active=max_active)
        self.levels: dict[Named, int] = {}
        self.names: dict[bytes, Named] = {}
        self.now = 1000.0

    @staticmethod
    def key(page: Named) -> bytes:
        return page_key(host_key(page[0]), page[1].to_bytes(4, "big"))

    def insert(self, host: str, number: int, level: int = 10) -> None:
        page = (host, number)
        self.levels[page] = level
        self.names[self.key(page)] = page
        self.frontier.insert(self.key(page), host, level, number, self.now)

    def move_up(self, host: str, number: int, level: int) -> None:
        page = (host, number)
        key, rows = self.key(page), [queue_row(each, number) for each in (self.levels[page], level)]
        self.frontier.move(key[:HOST_BYTES], [(*rows, key[HOST_BYTES:])], self.now)
        self.levels[page] = level

    def try_to_take(self) -> Named | NotBefore | Empty:
        taken = self.frontier.take(self.now)
        if not isinstance(taken, Taken):
            return taken
        page = self.names[taken.page]
        assert taken.host == host_key(page[0])
        assert front_queue_of(taken.row) == self.levels[page]
        return page

    def take(self) -> Named:
        page = self.try_to_take()
        assert not isinstance(page, NotBefore | Empty), page
        return page

    def defer(self, host: str, gap: float) -> None:
        self.frontier.defer(host_key(host), self.now + gap, 0.1)

    def release(self, page: Named, *, gap: float = 0.0) -> None:
        self.defer(page[0], gap)
        self.frontier.release(self.key(page), self.now)

    def finish(self, page: Named) -> None:
        self.frontier.finish(self.key(page), self.levels[page], page[1])

    def put_back(self, page: Named) -> None:
        self.frontier.put_back(self.key(page), self.levels[page], page[1], self.now)

    def fetch(self, *, gap: float = 0.0) -> Named:
        page = self.take()
        self.release(page, gap=gap)
        self.finish(page)
        return page

    def drain(self, *, gap: float = 0.0) -> list[Named]:
        """Fetch whatever waits, in time."""
        pages = []
        while not isinstance(page := self.try_to_take(), Empty):
            if isinstance(page, NotBefore):
                assert page.instant > self.now
                self.now = page.instant
                continue
            self.release(page, gap=gap)
            self.finish(page)
            pages.append(page)
        assert len(self.frontier) == self.frontier.queued == 0
        return pages

    def commit(self) -> None:
        write_changes(self.frontier.tables, self.store)

    def reopen(self, max_active: int = 100) -> list[tuple[bytes, float]]:
        old = self.frontier
        self.frontier = Frontier(self.store, max_active=max_active)
        return self.frontier.load(saved_of(old), self.now)

    def place(self, host: str) -> str:
        """Where *host* is, in words."""
        record = self.frontier.host(host_key(host))
        if record is None or not record.row:
            return "nowhere"
        return Phase(record.phase).name.lower()


# -- front queues and classes


def test_the_front_queue_is_the_number_of_binary_digits_of_the_cash():
    for cash, shift, level in [
        (0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 2), (4, 0, 3), (1023, 0, 10), (1024, 0, 11), (TOTAL, 0, 53),
        (4, 2, 5), (4, -2, 1), (4, -9, 0), (TOTAL, 50, 63),
    ]:  # fmt: skip
        assert front_queue(cash, shift) == level, (cash, shift, level)


def test_a_host_loses_a_front_queue_each_time_its_visited_pages_grow_fourfold():
    classes = [host_class(20, visited) for visited in (0, 1, 2, 3, 6, 7, 15, 63, 255)]
    assert classes == [40, 39, 39, 38, 38, 37, 36, 34, 32]
    assert host_class(19, 0) == host_class(20, 3)
    assert (host_class(0, 1 << 30), host_class(-1, 5), host_class(63, 0)) == (0, 0, 126)


# -- order


def test_hosts_of_one_class_take_turns():
    desk = Desk()
    for number in range(6):
        desk.insert("abc"[number % 3], number)
    assert [host for host, _ in desk.drain()] == list("abcabc")


# -- politeness


def test_when_says_the_earliest_time_of_all_hosts_that_wait():
    desk = Desk(max_active=2)
    assert desk.frontier.when() == Empty()
    for host in "abcd":
        desk.insert(host, 1)
        desk.insert(host, 2)
    pages = [desk.take() for _ in "abcd"]
    assert desk.frontier.when() == Empty()  # all are leased
    for gap, page in zip((9.0, 5.0, 7.0, 8.0), pages, strict=True):
        desk.release(page, gap=gap)
    assert desk.frontier.when() == NotBefore(1005.0)
    desk.now = 1005.0
    assert desk.take()[0] == pages[1][0]
    assert desk.frontier.when().instant == pytest.approx(1007.0, abs=0.0011)


# -- more hosts than the memory may hold


def test_hosts_that_come_while_others_are_shelved_are_taken_in_their_order_however_many_they_are():
    dice = random.Random(3)
    desk = Desk(max_active=1)
    taken: list[int] = []
    for turn in range(40):  # between two turns, many hosts become the best of those on the disk
        for number in range(20):
            desk.insert(f"host{turn}.{number}", 1000 * turn + number, min(turn + dice.randrange(3), 63))
        desk.commit()
        page = desk.fetch()
        taken.append(desk.levels.pop(page))
        assert taken[-1] >= max(desk.levels.values())
    rest = [desk.levels[page] for page in desk.drain()]
    assert rest == sorted(desk.levels.values(), reverse=True)
    assert len(taken) + len(rest) == 800


@pytest.mark.parametrize("ends_first", ["transfer", "page"])
def test_hosts_are_parked_while_they_must_wait_and_none_is_forgotten(ends_first):
    desk = Desk(max_active=5)
    dice = random.Random(2)
    for number in range(600):
        desk.insert(f"host{number % 200}", number, dice.randrange(64))
    in_work: list[Named] = []
    free_at: dict[str, float] = {}
    seen: list[Named] = []
    most_active = most_parked = 0
    while len(seen) < 600:
        page = desk.try_to_take() if len(in_work) < 8 else Empty()
        if not isinstance(page, NotBefore | Empty):
            assert free_at.get(page[0], 0.0) <= desk.now
            free_at[page[0]] = float("inf")
            in_work.append(page)
        elif in_work:
            page = in_work.pop(dice.randrange(len(in_work)))
            free_at[page[0]] = desk.now + 30.0
            if ends_first == "page":
                desk.finish(page)
            desk.release(page, gap=30.0)
            if ends_first == "transfer":
                desk.finish(page)
            seen.append(page)
            desk.now += 0.05
        else:
            desk.now = page.instant
        most_active = max(most_active, len(desk.frontier.active) - len(in_work))
        most_parked = max(most_parked, desk.frontier.places.parked.n)
        if len(seen) % 50 == 0:
            desk.commit()
    assert sorted(seen) == sorted(desk.levels)
    places = desk.frontier.places
    assert (sum(places.shelves.counts.values()), places.parked.n, len(desk.frontier.active)) == (0, 0, 0)
    assert most_active <= 6
    assert most_parked > 150


# -- back queues


def shuffled(desk: Desk, n: int, seed: int) -> list[tuple[int, int]]:
    """Insert *n* pages of one host at random levels; returns (order, level) in the order of insertion."""
    dice = random.Random(seed)
    pages = [(number, dice.randrange(1, 6)) for number in range(n)]
    dice.shuffle(pages)
    for number, level in pages:
        desk.insert("a", number, level)
    return pages


def test_a_back_queue_is_filled_again_and_again_in_the_order_of_all_rows():
    for n in [BACK_QUEUE_ROWS, BACK_QUEUE_ROWS + 1, 2 * BACK_QUEUE_ROWS + 1, 200]:
        for commit in ["never", "before", "in flight"]:
            desk = Desk()
            pages = shuffled(desk, n, seed=n)
            if commit == "before":
                desk.commit()
                desk.reopen()
            elif commit == "in flight":
                Commits(desk.frontier.tables).take({})
            assert [page[1] for page in desk.drain()] == [
                number for number, _ in sorted(pages, key=lambda page: (-page[1], page[0]))
            ], (commit, n)


def test_a_back_queue_holds_a_bounded_number_of_rows():
    desk = Desk()
    shuffled(desk, 1000, seed=7)
    host = desk.frontier.host(host_key("a"))
    assert len(host.back_queue) <= 2 * BACK_QUEUE_ROWS


# -- budgets of registered domains


class BudgetDesk(Desk):
    """A desk that counts visits; the domain of a host is its last label.

    A domain may take a tenth of all fetches, and two pages before that counts.
    """

    def __init__(self, max_active: int = 100, *, budget: float = 0.1, allowance: float = 2.0) -> None:
        super().__init__(max_active)
        self.order = Aopic()
        self.order.budget, self.order.allowance = budget, allowance
        self.open(max_active)

    def open(self, max_active: int) -> None:
        self.domains = Domains(self.store, lambda host: host.rpartition(".")[2])
        self.frontier = Frontier(self.store, self.order, self.domains, max_active=max_active)

    def finish(self, page: Named) -> None:
        self.frontier.count(self.frontier.finish(self.key(page), self.levels[page], page[1]))

    def support(self, host: str, *supporters: str) -> None:
        domain = self.domains.key(HostState(host))
        for supporter in supporters:
            if self.domains.support(domain, supporter.encode().rjust(8)):
                self.frontier.supported(domain)

    def visit_others(self, n: int) -> None:
        """Let the crawl grow by *n* visits of a domain with all seeds."""
        domain = self.domains.key(HostState("others"))
        self.domains.vouch(domain, b"a seed")
        for number in range(n):
            self.insert("others", 10_000 + self.frontier.budgets.visits + number, 63)
            assert self.fetch()[0] == "others"

    def commit(self) -> None:
        write_changes([*self.frontier.tables, self.domains.table], self.store)

    def reopen(self, max_active: int = 100) -> list[tuple[bytes, float]]:
        old, seeds = self.frontier, self.domains.seeds
        self.open(max_active)
        self.domains.seeds = seeds
        return self.frontier.load(saved_of(old), self.now)


def overdrawn(max_active: int = 100, hosts: tuple[str, ...] = ("www.a",)) -> BudgetDesk:
    """A desk where two pages of the domain "a" were visited, and its *hosts* have a good page each, best first."""
    desk = BudgetDesk(max_active)
    for number in range(2):
        desk.insert("first.a", number, 50)
        desk.fetch()
    for number, host in enumerate(hosts):
        desk.insert(host, 10 + number, 40 - number)
    return desk


def test_a_domain_over_its_budget_comes_after_all_others():
    for max_active in [1, 2, 100]:
        desk = overdrawn(max_active)
        desk.insert("b", 20, 1)
        desk.insert("c", 21, 2)
        assert desk.drain() == [("c", 21), ("b", 20), ("www.a", 10)], max_active


@pytest.mark.parametrize("max_active", [1, 2, 100])
def test_no_budget_holds_back_a_page_with_a_priority(max_active):
    desk = overdrawn(max_active)
    desk.insert("b", 20, 60)
    desk.insert("www.a", 21, N_FRONT_QUEUES * 1 + 2)
    desk.insert("new.a", 22, N_FRONT_QUEUES * 2 + 2)
    desk.insert("new.a", 23, 63)
    desk.insert("c", 24, N_FRONT_QUEUES * -1 + 63)
    assert desk.drain() == [("new.a", 22), ("www.a", 21), ("b", 20), ("c", 24), ("new.a", 23), ("www.a", 10)]


@pytest.mark.parametrize("max_active", [1, 2, 100])
def test_a_late_host_whose_page_gets_a_priority_is_in_time(max_active):
    desk = overdrawn(max_active)
    desk.insert("b", 20, 60)
    desk.move_up("www.a", 10, N_FRONT_QUEUES + 1)
    assert desk.drain() == [("www.a", 10), ("b", 20)]


def test_a_late_host_is_said_to_be_late():
    desk = overdrawn()
    assert desk.place("www.a") == "late"
    assert desk.frontier.when() == NotBefore(0.0)


def test_no_more_hosts_are_let_through_than_the_budget_has_pages_left():
    desk = overdrawn(hosts=("x.a", "y.a", "z.a"))
    desk.visit_others(26)
    for number in range(4):
        desk.insert("others", number, 5)
    # 28 visits: the third page of "a" is in time since 20, the fourth from 30 on, the fifth from 40 on.
    assert [desk.place(host) for host in ("x.a", "y.a", "z.a")] == ["ready", "late", "late"]
    assert [desk.fetch()[0] for _ in range(7)] == ["x.a", "others", "y.a", *3 * ["others"], "z.a"]


@pytest.mark.parametrize("max_active", [1, 100])
def test_what_lies_behind_an_overdrawn_link_waits_for_other_late_domains_whatever_its_pages_are_worth(
    max_active,
):
    desk = BudgetDesk(max_active, budget=0.01)
    desk.domains = Domains(desk.store, lambda host: host.rpartition(".")[2], 0.01, 2.0)
    desk.frontier = Frontier(desk.store, desk.order, desk.domains, max_active=max_active)
    seed, head, farm = (desk.domains.key(HostState(name)) for name in ("a", "head", "farm"))
    desk.domains.vouch(seed, b"seed")
    desk.domains.support(head, seed)
    desk.domains.support(farm, head)
    desk.domains.seeds_elsewhere = 10_000
    for number, host in enumerate(("www.a", "www.head")):
        for step in range(4):
            desk.insert(host, 100 * number + step, 60)
    desk.drain()
    desk.insert("www.farm", 1000, 60)
    desk.insert("x.head", 1001, 59)
    desk.insert("x.a", 1002, 20)
    desk.insert("y.a", 1003, 10)
    assert [host for host, _ in desk.drain()] == ["x.a", "y.a", "x.head", "www.farm"]


def test_a_domain_that_is_seeded_in_mid_crawl_is_due_sooner():
    desk = overdrawn()
    desk.insert("b", 20, 5)
    domain = desk.domains.key(HostState("a"))
    desk.domains.vouch(domain, b"seed")
    desk.frontier.supported(domain)
    assert desk.drain() == [("www.a", 10), ("b", 20)]


def test_pages_that_are_fetched_count_before_they_are_visited():
    desk = BudgetDesk()
    for number, host in enumerate(("x.a", "y.a", "z.a")):
        desk.insert(host, number, 40 - number)
    desk.insert("b", 20, 1)
    pages = [desk.take() for _ in range(4)]
    assert pages == [("x.a", 0), ("y.a", 1), ("b", 20), ("z.a", 2)]
    for page in pages:
        desk.release(page)
        desk.finish(page)
    assert desk.domains.get(desk.domains.key(HostState("a"))).visited == 3


def test_pages_that_are_put_back_count_no_more():
    desk = BudgetDesk()
    for number, host in enumerate(("x.a", "y.a", "z.a")):
        desk.insert(host, number, 40 - number)
    for page in [desk.take(), desk.take()]:
        desk.release(page)
        desk.put_back(page)
    desk.insert("b", 20, 1)
    assert desk.drain() == [("x.a", 0), ("y.a", 1), ("b", 20), ("z.a", 2)]


# -- late hosts are held back for hosts in time


def test_a_late_host_is_held_back_as_long_as_a_host_in_time_is_about_to_be_free():
    """Its transfer takes 0.1 seconds, as the last one, and then it is left alone for five."""
    desk = overdrawn()
    desk.support("b", "one", "two", "three", "four")
    for number in range(3):
        desk.insert("b", 20 + number, 1)
    assert desk.fetch(gap=5.0) == ("b", 20)
    begin = desk.now = desk.now + 5.0
    page = desk.take()
    assert page == ("b", 21)
    assert not desk.frontier.expects(begin, 0.05)
    assert desk.frontier.take(begin, 0.1) == NotBefore(begin + 0.1, is_held=True)
    assert desk.frontier.take(begin + 0.06, 0.05) == NotBefore(begin + 0.06 + 0.05, is_held=True)
    assert not desk.frontier.expects(begin + 2.0, 0.05)  # it has long been overdue
    desk.now = begin + 0.1
    desk.release(page, gap=5.0)
    desk.finish(page)
    assert not desk.frontier.expects(desk.now, 4.9)
    assert desk.frontier.take(begin + 5.0, 0.2) == NotBefore(begin + 5.2, is_held=True)
    desk.now = begin + 5.1
    assert desk.take() == ("b", 22)


def test_a_late_host_goes_on_while_hosts_in_time_wait_for_long():
    desk = overdrawn()
    desk.insert("b", 20, 1)
    desk.defer("b", 60.0)
    assert not desk.frontier.expects(desk.now, 1.0)
    taken = desk.frontier.take(desk.now, 1.0)
    assert isinstance(taken, Taken)
    assert taken.host == host_key("www.a")


def test_a_late_host_is_held_back_for_a_page_that_may_lead_to_more_of_a_host_in_time():
    desk = overdrawn()
    desk.insert("b", 20, 1)
    page = desk.take()
    desk.release(page)
    assert desk.place("b") == "dry"
    assert desk.frontier.take(desk.now, 0.2) == NotBefore(desk.now + 0.2, is_held=True)
    assert not desk.frontier.expects(desk.now, 0.2, has_more=True)
    desk.finish(page)
    assert isinstance(desk.frontier.take(desk.now, 0.2), Taken)


def test_a_late_host_is_not_held_back_for_a_page_that_takes_long_to_read():
    desk = overdrawn()
    desk.insert("b", 20, 1)
    desk.release(desk.take())
    desk.frontier.charge(host_key("b"), ORDINARY, 0.0, desk.now)
    assert desk.frontier.take(desk.now, 0.2) == NotBefore(desk.now + 0.2, is_held=True)
    desk.frontier.charge(host_key("b"), 2 * ORDINARY, ORDINARY, desk.now)
    assert isinstance(desk.frontier.take(desk.now, 0.2), Taken)


def test_late_hosts_are_not_held_back_for_each_other():
    desk = overdrawn(hosts=("x.a", "y.a", "z.a"))
    desk.defer("z.a", 0.1)
    for host in ("x.a", "y.a"):
        taken = desk.frontier.take(desk.now, 1.0)
        assert isinstance(taken, Taken)
        assert taken.host == host_key(host)


def test_late_hosts_of_a_charged_domain_are_held_back_for_late_ones_with_visited_pages():
    desk = overdrawn(hosts=("new.a",))
    desk.defer("first.a", 0.1)
    desk.insert("first.a", 20, 1)
    new = host_key("new.a")
    assert not desk.frontier.expects(desk.now, 1.0, before=new)
    desk.frontier.budgets.charge(desk.frontier.host(new), 1)
    assert desk.frontier.take(desk.now, 1.0) == NotBefore(desk.now + 1.0, is_held=True)
    taken = desk.frontier.take(desk.now)
    assert isinstance(taken, Taken)
    assert taken.host == new


def test_late_domains_that_cost_more_than_their_pages_come_after_the_others():
    """However good their pages seem; what a domain has that is worth its cost counts as before."""
    desk = overdrawn(hosts=("www.a",))
    for number in range(2):
        desk.insert("first.b", 30 + number, 60)
        desk.fetch()
    desk.insert("www.b", 40, 55)
    www = desk.frontier.host(host_key("www.b"))
    assert desk.place("www.b") == desk.place("www.a") == "late"
    desk.frontier.budgets.charge(www, 2)
    page = desk.take()
    assert page == ("www.b", 40)
    desk.release(page)
    desk.put_back(page)
    desk.frontier.budgets.charge(www, 1)
    assert desk.drain() == [("www.a", 10), ("www.b", 40)]


def test_late_hosts_wait_behind_others_at_a_gate_and_pass_one_by_one():
    """One connection that is free must not take all of them away from the gate, only to come back."""
    desk = overdrawn(hosts=[f"h{n}.a" for n in range(40)])
    desk.frontier.gates.free = FreeConnections(1)
    desk.frontier.gates.are_used = True
    page = desk.take()
    assert not isinstance(desk.try_to_take(), Taken)
    waiting = [desk.place(f"h{n}.a") for n in range(40)]
    assert waiting.count("gated") == 39
    desk.release(page, gap=9.0)
    desk.finish(page)
    desk.take()
    waiting = [desk.place(f"h{n}.a") for n in range(40)]
    assert waiting.count("gated") == 38


def test_endless_sub_hosts_of_a_late_domain_do_not_fill_the_memory_and_cost_a_few_reads_each():
    desk = BudgetDesk(max_active=20, budget=0.01)
    for number in range(3000):
        desk.insert(f"h{number}.trap", number, 30)
    for number in range(300):
        desk.insert(f"h.real{number}", 10_000 + number, 20)
        desk.insert(f"h.real{number}", 20_000 + number, 10)
    desk.commit()
    scans: list[int] = []
    scan = desk.store.scan
    desk.store.scan = lambda *args, **how: scans.append(1) or scan(*args, **how)
    order = []
    for _ in range(700):
        order.append(desk.fetch()[0])
        assert len(desk.frontier.active) <= 21
        if len(order) % 50 == 0:
            desk.commit()
    traps = [position for position, host in enumerate(order) if host.endswith("trap")]
    real = [position for position, host in enumerate(order) if not host.endswith("trap")]
    assert len(real) == 600
    # Two are free, then one of a hundred; and all there is when the others are through.
    assert sum(position < 600 for position in traps) == 2 + (600 - 200) // 100
    assert len(scans) < 6 * len(order)


def test_what_is_remembered_of_domains_is_forgotten_when_they_are_late_no_more():
    desk = BudgetDesk(max_active=3, budget=1e-4)
    for number in range(300):
        for step in range(4):
            desk.insert(f"h{step}.domain{number}", 10 * number + step, 10)
    desk.drain()
    frontier = desk.frontier
    places = frontier.places
    assert not any((places.late, places.ready, places.ready._heap, frontier.places.shelves.counts))
    assert len(places.shelves) <= 1


def test_hosts_that_become_better_all_the_time_leave_little_behind():
    for order in [DepthFirst, LargerSites, PageRank, Aopic]:
        desk = Desk()
        desk.frontier = Frontier(desk.store, order())
        desk.insert("best", 0, 60)
        for number in range(1, 5000):
            place = order().place(number, 0)
            desk.frontier.insert(desk.key(("a", number)), "a", min(number // 100, 50), place, desk.now)
        assert len(desk.frontier.places.ready._heap) - len(desk.frontier.places.ready) < 300, order


# -- budgets, beside a plain reference


def walk_with_budgets(max_active: int, seed: int) -> int:
    """Fetch one page after the other while pages come, move and are committed; returns how many choices were late.

    The reference knows no heaps: whoever may be asked and is in time comes by class, and else the host whose best page is
    in the best front queue, one lower for each doubling of what its domain may take.
    """
    dice = random.Random(1000 * max_active + seed)
    desk = BudgetDesk(max_active, budget=0.05, allowance=3.0)
    visited: dict[str, int] = {}
    waiting: dict[str, set[Named]] = {}
    free_at: dict[str, float] = {}
    number = n_late = 0

    def domain(host: str) -> str:
        return host.rpartition(".")[2]

    def due(host: str) -> float:
        known = desk.domains.get(desk.domains.key(HostState(host)))
        n, support = visited.get(domain(host), 0), max(known.supporters, 1.0) ** 1.5
        return 0.0 if n < 3 * support else n / (0.05 * support)

    def best(host: str) -> Named:
        return min(waiting[host], key=lambda page: (-desk.levels[page], page[1]))

    for step in range(600):
        for _ in range(dice.choice((0, 1, 1, 2)) if step < 400 else 0):
            number += 1
            host = f"h{dice.randrange(5)}.{'aaaabbc'[dice.randrange(7)]}"
            if dice.random() < 0.3:
                host = f"h.{dice.randrange(30)}"
            desk.insert(host, number, dice.randrange(20))
            waiting.setdefault(host, set()).add((host, number))
        if waiting and dice.random() < 0.4:
            page = dice.choice(sorted(waiting[dice.choice(sorted(waiting))]))
            desk.move_up(*page, max(desk.levels[page] + dice.choice((-4, 1, 3)), 0))
        if dice.random() < 0.05:
            desk.support(f"x.{dice.choice('abc')}", f"supporter {step}")
        if dice.random() < 0.1:
            desk.commit()
        if dice.random() < 0.02:
            desk.commit()
            desk.reopen(max_active)
        desk.now += dice.choice((0.0, 0.5, 1.0))
        available = [host for host in waiting if free_at.get(host, 0.0) <= desk.now]
        page = desk.try_to_take()
        if not available:
            instant = min((free_at[host] for host in waiting), default=None)
            assert page == Empty() if instant is None else desk.now < page.instant <= instant + 0.002
            continue
        assert page[0] in available
        assert page == best(page[0])
        host, visits = page[0], desk.frontier.budgets.visits
        in_time = [each for each in available if due(each) <= visits]
        if in_time:
            assert host in in_time
            # A domain with room for one page lets one host through, by the rank that it was filed with.
            classes = {
                each: host_class(desk.levels[best(each)], visited.get(domain(each), 0))
                for each in in_time
                if desk.place(each) != "late"
            }
            assert classes[host] == max(classes.values())
        else:
            n_late += 1
            values = {each: desk.levels[best(each)] - math.log2(due(each) / visits) for each in available}
            assert values[host] == pytest.approx(max(values.values()))
        desk.release(page, gap=gap) if (gap := dice.choice((0.0, 0.0, 2.25))) else desk.release(page)
        desk.finish(page)
        free_at[host] = desk.now + gap
        visited[domain(host)] = visited.get(domain(host), 0) + 1
        waiting[host].remove(page)
        if not waiting[host]:
            del waiting[host]
        assert len(desk.frontier.active) <= max_active + 1
        assert check(desk.frontier) == []
    return n_late


@pytest.mark.slow
@pytest.mark.parametrize("max_active", [1, 2, 3, 100])
def test_budgets_are_those_of_a_plain_reference(max_active):
    n_late = sum(walk_with_budgets(max_active, seed) for seed in range(6))
    assert n_late > 100


@pytest.mark.slow
@pytest.mark.parametrize("max_active", [1, 2, 3, 100])
def test_nothing_is_idle_or_lost_under_budgets_whatever_happens(max_active):  # noqa: PLR0912
    """Several pages in work at once, put back, deferred while their hosts are late, and reopened."""
    dice = random.Random(max_active)
    desk = BudgetDesk(max_active, budget=0.05, allowance=3.0)
    for number in range(700):
        host = f"h{dice.randrange(40)}.{'aaabc'[dice.randrange(5)]}" if number % 3 else f"h.d{number % 80}"
        desk.insert(host, number, dice.randrange(20))
    in_work: list[Named] = []
    unreleased: set[Named] = set()
    free_at: dict[str, float] = {}
    waiting = set(desk.levels)
    while waiting or in_work:
        busy = {host for host, _ in unreleased}
        if len(in_work) < 6:
            page = desk.try_to_take()
            may = {host: free_at.get(host, 0.0) for host, _ in waiting if host not in busy}
            if isinstance(page, NotBefore | Empty):
                assert not [host for host, instant in may.items() if instant < desk.now - 0.002]
                if isinstance(page, NotBefore):
                    assert page.instant > desk.now
                    desk.now = page.instant
            else:
                assert may[page[0]] <= desk.now
                waiting.remove(page)
                in_work.append(page)
                unreleased.add(page)
        if waiting and dice.random() < 0.2:
            host = dice.choice(sorted(waiting))[0]
            desk.defer(host, 3.0)
            free_at[host] = max(free_at.get(host, 0.0), desk.now + 3.0)
        if in_work and dice.random() < 0.7:
            page = in_work.pop(dice.randrange(len(in_work)))
            if page in unreleased:
                desk.release(page, gap=(gap := dice.choice((0.0, 2.0))))
                free_at[page[0]] = max(free_at.get(page[0], 0.0), desk.now + gap)
                unreleased.remove(page)
            if dice.random() < 0.2:
                desk.put_back(page)
                waiting.add(page)
            else:
                desk.finish(page)
        elif in_work and dice.random() < 0.5 and in_work[0] in unreleased:
            desk.release(in_work[0])
            unreleased.remove(in_work[0])
        assert check(desk.frontier) == []
        if dice.random() < 0.05:
            desk.commit()
        if not in_work and dice.random() < 0.3:
            desk.commit()
            desk.reopen(max_active)
    assert (len(desk.frontier), desk.frontier.queued, len(desk.frontier.active)) == (0, 0, 0)
    assert desk.frontier.budgets.visits == 700

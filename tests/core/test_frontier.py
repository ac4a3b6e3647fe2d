from __future__ import annotations

import random
from itertools import pairwise

import pytest

from scrapy_aopic.core.frontier import (
    BACK_QUEUE_ROWS,
    Empty,
    Frontier,
    NotBefore,
    Phase,
    Taken,
)
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import front_queue, host_class
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, host_key, page_key, row_level
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
        self.frontier.move_up(self.key(page), self.levels[page], level, number, self.now)
        self.levels[page] = level

    def try_to_take(self) -> Named | NotBefore | Empty:
        taken = self.frontier.take(self.now)
        if not isinstance(taken, Taken):
            return taken
        page = self.names[taken.page]
        assert taken.host == host_key(page[0])
        assert row_level(taken.row) == self.levels[page]
        return page

    def take(self) -> Named:
        page = self.try_to_take()
        assert not isinstance(page, NotBefore | Empty), page
        return page

    def defer(self, host: str, gap: float) -> None:
        self.frontier.defer(host_key(host), self.now + gap, 0.1)

    def release(self, page: Named, *, gap: float = 0.0) -> None:
        self.defer(page[0], gap)
        self.frontier.release(host_key(page[0]), self.now)

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
        self.store.write(self.frontier.take_changes(), sync=True)
        self.frontier.changes_landed()

    def reopen(self, max_active: int = 100) -> list[tuple[bytes, float]]:
        old = self.frontier
        self.frontier = Frontier(self.store, max_active=max_active)
        return self.frontier.load(
            self.now,
            queued=old.queued,
            n_hosts=old.n_hosts,
            n_shelved=dict(old.n_shelved),
            n_parked=old.n_parked,
            visits=old.visits,
        )

    def place(self, host: str) -> str:
        """Where *host* is, in words."""
        record = self.frontier.host(host_key(host))
        if record is None or not record.row:
            return "nowhere"
        return {b"A": Phase(record.phase).name.lower(), b"F": "shelved", b"P": "parked"}[record.row[:1]]


# -- front queues and classes


@pytest.mark.parametrize(
    ("cash", "shift", "level"),
    [
        (0, 0, 0),
        (1, 0, 1),
        (2, 0, 2),
        (3, 0, 2),
        (4, 0, 3),
        (1023, 0, 10),
        (1024, 0, 11),
        (TOTAL, 0, 53),
        (4, 2, 5),
        (4, -2, 1),
        (4, -9, 0),
        (TOTAL, 50, 63),
    ],
)
def test_the_front_queue_is_the_number_of_binary_digits_of_the_cash(cash, shift, level):
    assert front_queue(cash, shift) == level


def test_a_host_loses_a_front_queue_each_time_its_visited_pages_grow_fourfold():
    assert [host_class(20, visited) for visited in (0, 1, 2, 3, 6, 7, 15, 63, 255)] == [
        40,
        39,
        39,
        38,
        38,
        37,
        36,
        34,
        32,
    ]
    assert host_class(19, 0) == host_class(20, 3)
    assert (host_class(0, 1 << 30), host_class(-1, 5), host_class(63, 0)) == (0, 0, 126)


# -- order


def test_the_host_of_the_best_class_is_asked_first():
    desk = Desk()
    for number, level in enumerate((7, 30, 2, 63, 0, 29)):
        desk.insert(f"host{level}", number, level)
    assert [desk.levels[page] for page in desk.drain()] == [63, 30, 29, 7, 2, 0]


def test_a_host_with_many_visited_pages_comes_after_one_with_a_little_less_cash():
    desk = Desk()
    desk.insert("big", 1, 20)
    desk.insert("small", 2, 19)
    desk.frontier.host(host_key("big")).visited = 100
    assert desk.drain() == [("small", 2), ("big", 1)]


def test_pages_of_one_front_queue_are_asked_first_in_first_out():
    desk = Desk()
    for number in (1, 2, 3, 4, 5):
        desk.insert("a", number, 10)
    assert desk.drain() == [("a", number) for number in (1, 2, 3, 4, 5)]


def test_hosts_of_one_class_take_turns():
    desk = Desk()
    for number in range(6):
        desk.insert("abc"[number % 3], number)
    assert [host for host, _ in desk.drain()] == list("abcabc")


def test_a_page_that_moves_up_keeps_its_place_in_time():
    desk = Desk()
    for number, level in ((1, 10), (2, 9), (3, 10)):
        desk.insert("a", number, level)
    desk.move_up("a", 2, 10)
    assert desk.drain() == [("a", 1), ("a", 2), ("a", 3)]


# -- a host is never asked twice at once


def test_a_leased_host_is_not_leased_again():
    desk = Desk()
    desk.insert("a", 1)
    desk.insert("a", 2)
    page = desk.take()
    assert desk.try_to_take() == Empty()
    desk.insert("a", 3, 60)
    desk.move_up("a", 2, 61)
    assert desk.try_to_take() == Empty()
    desk.release(page)
    assert desk.take() == ("a", 2)


def test_a_host_whose_page_is_still_in_work_may_be_asked_for_the_next():
    desk = Desk()
    for number in (1, 2, 3):
        desk.insert("a", number)
    first, second = desk.take(), None
    desk.release(first)
    second = desk.take()
    assert (first, second) == (("a", 1), ("a", 2))
    desk.finish(first)
    assert desk.try_to_take() == Empty()
    desk.release(second)
    desk.finish(second)
    assert desk.drain() == [("a", 3)]


def test_a_page_that_ends_before_its_transfer_does_not_free_its_host():
    desk = Desk()
    desk.insert("a", 1)
    page = desk.take()
    desk.finish(page)
    desk.insert("a", 2)
    assert desk.try_to_take() == Empty()
    desk.release(page)
    assert desk.take() == ("a", 2)


# -- politeness


def test_a_host_is_left_alone_until_its_time():
    desk = Desk()
    desk.insert("a", 1)
    desk.insert("a", 2)
    desk.fetch(gap=5.0)
    desk.now += 4.999
    assert desk.try_to_take() == NotBefore(1005.0)
    desk.now = 1005.0
    assert desk.take() == ("a", 2)


def test_a_host_that_must_wait_does_not_hold_up_worse_ones():
    desk = Desk()
    desk.insert("good", 1, 50)
    desk.insert("good", 2, 50)
    desk.insert("bad", 3, 5)
    desk.fetch(gap=5.0)
    assert desk.take() == ("bad", 3)


def test_a_host_that_runs_dry_keeps_its_time():
    desk = Desk()
    desk.insert("a", 1)
    desk.fetch(gap=5.0)
    assert desk.place("a") == "nowhere"
    desk.insert("a", 2)
    assert desk.try_to_take() == NotBefore(1005.0)


def test_a_ready_host_that_is_deferred_waits():
    desk = Desk()
    desk.insert("a", 1, 50)
    desk.insert("b", 2, 5)
    desk.defer("a", 5.0)
    assert desk.fetch() == ("b", 2)
    assert desk.try_to_take() == NotBefore(1005.0)
    desk.now = 1005.0
    assert desk.take() == ("a", 1)


def test_a_waiting_host_that_is_deferred_again_waits_for_the_later_time():
    desk = Desk()
    desk.insert("a", 1)
    desk.insert("a", 2)
    desk.fetch(gap=5.0)
    desk.defer("a", 9.0)
    desk.defer("a", 2.0)  # never earlier
    desk.now = 1005.0
    assert desk.try_to_take() == NotBefore(1009.0)
    desk.now = 1009.0
    assert desk.take() == ("a", 2)


def test_deferring_a_host_that_nobody_knows_does_nothing():
    desk = Desk()
    desk.defer("nobody", 5.0)
    assert desk.frontier.n_hosts == 0


def test_a_parked_host_is_asked_neither_early_nor_a_hundredth_second_late():
    desk = Desk(max_active=1)
    desk.insert("a", 1)
    desk.fetch(gap=1 / 3)
    desk.insert("other", 2)
    desk.insert("a", 3)
    assert desk.place("a") == "parked"
    assert desk.take() == ("other", 2)
    desk.now += 0.333
    assert isinstance(desk.try_to_take(), NotBefore)
    desk.now += 0.01
    assert desk.take() == ("a", 3)


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


# -- put back


def test_a_page_that_is_put_back_waits_again_in_its_old_place():
    desk = Desk()
    for number in (1, 2, 3):
        desk.insert("a", number)
    page = desk.take()
    assert (len(desk.frontier), desk.frontier.queued) == (2, 3)
    desk.release(page)
    desk.put_back(page)
    assert len(desk.frontier) == desk.frontier.queued == 3
    assert desk.drain() == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("is_released_first", [True, False])
def test_the_only_page_of_a_host_can_be_put_back(is_released_first):
    desk = Desk()
    desk.insert("a", 1)
    page = desk.take()
    if is_released_first:
        desk.release(page)
        assert desk.place("a") == "dry"
        desk.put_back(page)
    else:
        desk.put_back(page)
        assert desk.try_to_take() == Empty()
        desk.release(page)
    assert desk.drain() == [("a", 1)]


def test_a_page_that_moved_up_while_it_was_leased_is_put_back_there():
    desk = Desk()
    desk.insert("a", 1, 10)
    desk.insert("b", 2, 20)
    desk.insert("a", 3, 15)
    second = desk.take()
    first = desk.take()
    assert (second, first) == (("b", 2), ("a", 3))
    desk.move_up("a", 3, 40)
    desk.release(first)
    desk.release(second)
    desk.put_back(first)
    desk.put_back(second)
    assert desk.drain() == [("a", 3), ("b", 2), ("a", 1)]


# -- moving up, wherever the host is


def in_place(place: str) -> Desk:
    """A desk with two pages of the host "a" and one of "rival", which is better; "a" is in *place*."""
    desk = Desk(max_active=100 if place in {"ready", "waiting", "leased"} else 1)
    if place == "parked":
        # The host that comes back when the memory is full is parked.
        desk.insert("a", 0)
        desk.fetch(gap=5.0)
    desk.insert("rival", 9, 20)
    if place == "waiting":
        desk.insert("a", 0)
        desk.insert("a", 1)
        desk.insert("a", 2, 8)
        desk.move_up("a", 0, 30)
        assert desk.fetch(gap=5.0) == ("a", 0)
    elif place == "leased":
        desk.insert("a", 0, 30)
        desk.insert("a", 1)
        desk.insert("a", 2, 8)
        assert desk.take() == ("a", 0)
    else:
        desk.insert("a", 1)
        desk.insert("a", 2, 8)
    assert desk.place("a") == place
    return desk


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("place", ["ready", "waiting", "leased", "shelved", "parked"])
def test_a_page_moves_up_wherever_its_host_is(place, is_stored):
    desk = in_place(place)
    if is_stored:
        desk.commit()
    for level in range(9, 26):
        desk.move_up("a", 2, level)
    if place == "leased":
        desk.release(("a", 0))
        desk.finish(("a", 0))
    if place in {"waiting", "parked"}:
        desk.now += 6.0
    assert desk.drain() == [("a", 2), ("rival", 9), ("a", 1)]


@pytest.mark.parametrize("place", ["ready", "waiting", "leased", "shelved", "parked"])
def test_a_page_that_does_not_become_the_best_of_its_host_moves_up_inside_it(place):
    desk = in_place(place)
    desk.insert("a", 3, 2)
    desk.move_up("a", 3, 9)
    if place == "leased":
        desk.release(("a", 0))
        desk.finish(("a", 0))
    if place in {"waiting", "parked"}:
        desk.now += 6.0
    assert desk.drain() == [("rival", 9), ("a", 1), ("a", 3), ("a", 2)]


@pytest.mark.parametrize("place", ["ready", "waiting", "leased", "shelved", "parked"])
def test_a_better_page_that_is_new_moves_its_host_up_wherever_it_is(place):
    desk = in_place(place)
    desk.insert("a", 3, 25)
    if place == "leased":
        desk.release(("a", 0))
        desk.finish(("a", 0))
    if place in {"waiting", "parked"}:
        desk.now += 6.0
    assert desk.drain() == [("a", 3), ("rival", 9), ("a", 1), ("a", 2)]


@pytest.mark.parametrize("place", ["ready", "shelved"])
def test_a_host_whose_best_page_moves_down_comes_later(place):
    desk = in_place(place)
    desk.insert("other", 4, 5)
    desk.move_up("a", 1, 30)
    desk.move_up("a", 1, 1)
    assert desk.drain() == [("rival", 9), ("a", 2), ("other", 4), ("a", 1)]


def test_a_leased_page_moves_up_without_being_given_again():
    desk = Desk()
    desk.insert("a", 1)
    desk.insert("a", 2)
    page = desk.take()
    desk.move_up("a", 1, 30)
    desk.release(page)
    assert desk.take() == ("a", 2)
    desk.finish(page)
    assert desk.frontier.queued == 1


# -- more hosts than the memory may hold


def test_with_more_hosts_than_may_be_active_the_best_page_of_all_still_comes_first():
    dice = random.Random(1)
    desk = Desk(max_active=5)
    for number in range(600):
        desk.insert(f"host{number % 200}", number, dice.randrange(64))
    assert len(desk.frontier.active) == 5
    assert sum(desk.frontier.n_shelved.values()) == 195
    expected = sorted(desk.levels.values(), reverse=True)
    taken = []
    while not isinstance(page := desk.try_to_take(), Empty):
        assert len(desk.frontier.active) <= 6
        taken.append(desk.levels[page])
        desk.release(page)
        desk.finish(page)
        if len(taken) % 100 == 50:
            desk.commit()
    assert taken == expected


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
        most_parked = max(most_parked, desk.frontier.n_parked)
        if len(seen) % 50 == 0:
            desk.commit()
    assert sorted(seen) == sorted(desk.levels)
    assert (sum(desk.frontier.n_shelved.values()), desk.frontier.n_parked, len(desk.frontier.active)) == (
        0,
        0,
        0,
    )
    assert most_active <= 6
    assert most_parked > 150


def test_a_host_that_must_wait_leaves_the_memory_when_its_last_page_in_work_ends():
    desk = Desk(max_active=1)
    for number in range(20):
        desk.insert(f"host{number % 10}", number)
    pages = [desk.take() for _ in range(10)]
    for page in pages:
        desk.release(page, gap=1000.0)
    for page in pages:
        desk.finish(page)
    assert len(desk.frontier.active) <= 2
    assert desk.frontier.n_parked >= 8


def test_a_shelved_host_takes_the_place_of_the_worst_that_is_ready():
    desk = Desk(max_active=2)
    for number, (host, level) in enumerate((("worst", 3), ("fair", 10), ("best", 30))):
        desk.insert(host, number, level)
    assert list(map(desk.place, ("worst", "fair", "best"))) == ["ready", "ready", "shelved"]
    assert desk.take()[0] == "best"
    assert list(map(desk.place, ("worst", "fair", "best"))) == ["shelved", "ready", "leased"]


def test_a_host_with_a_page_in_work_is_never_shelved():
    desk = Desk(max_active=1)
    desk.insert("a", 1, 10)
    desk.insert("a", 2, 3)
    page = desk.take()
    desk.release(page)
    desk.insert("b", 3, 30)
    desk.insert("c", 4, 40)
    assert (desk.take()[0], desk.take()[0]) == ("c", "b")
    assert desk.place("a") == "ready"
    desk.finish(page)
    assert desk.take() == ("a", 2)


# -- back queues


def shuffled(desk: Desk, n: int, seed: int) -> list[tuple[int, int]]:
    """Insert *n* pages of one host at random levels; returns (order, level) in the order of insertion."""
    dice = random.Random(seed)
    pages = [(number, dice.randrange(1, 6)) for number in range(n)]
    dice.shuffle(pages)
    for number, level in pages:
        desk.insert("a", number, level)
    return pages


@pytest.mark.parametrize("commit", ["never", "before", "in flight"])
@pytest.mark.parametrize("n", [BACK_QUEUE_ROWS, BACK_QUEUE_ROWS + 1, 2 * BACK_QUEUE_ROWS + 1, 200])
def test_a_back_queue_is_filled_again_and_again_in_the_order_of_all_rows(n, commit):
    desk = Desk()
    pages = shuffled(desk, n, seed=n)
    if commit == "before":
        desk.commit()
        desk.reopen()
    elif commit == "in flight":
        desk.frontier.take_changes()
    assert [page[1] for page in desk.drain()] == [
        number for number, _ in sorted(pages, key=lambda page: (-page[1], page[0]))
    ]


def test_a_back_queue_holds_a_bounded_number_of_rows():
    desk = Desk()
    shuffled(desk, 1000, seed=7)
    host = desk.frontier.host(host_key("a"))
    assert len(host.head) <= 2 * BACK_QUEUE_ROWS


def test_rows_that_come_and_move_while_the_back_queue_is_used_are_taken_in_order():
    dice = random.Random(4)
    desk = Desk()
    waiting: set[Named] = set()
    in_work: list[Named] = []
    for number in range(1500):
        if dice.random() < (0.8 if number < 400 else 0.3):
            desk.insert("a", number, dice.randrange(20))
            waiting.add(("a", number))
        if waiting and dice.random() < 0.4:
            page = dice.choice(sorted(waiting))
            desk.move_up(*page, max(desk.levels[page] + dice.choice((-3, 1, 2)), 0))
        if waiting and dice.random() < 0.6:
            best = min(waiting, key=lambda page: (-desk.levels[page], page[1]))
            assert desk.take() == best
            waiting.remove(best)
            in_work.append(best)
            desk.release(best)
        if in_work and dice.random() < 0.6:
            page = in_work.pop(dice.randrange(len(in_work)))
            if dice.random() < 0.3:
                desk.put_back(page)
                waiting.add(page)
            else:
                desk.finish(page)
        if number % 40 == 0:
            desk.frontier.take_changes()  # in flight for a while
        elif number % 40 == 20:
            desk.frontier.changes_failed()
        elif number % 40 == 21:
            desk.commit()
    for page in in_work:
        desk.finish(page)
    assert set(desk.drain()) == waiting


# -- length and life


def test_the_length_is_known_without_reading_the_store():
    desk = Desk(max_active=1)
    for number in range(100):
        desk.insert(f"host{number % 10}", number)
    page = desk.take()
    desk.commit()
    desk.store.close()
    assert (len(desk.frontier), desk.frontier.queued, desk.frontier.n_hosts) == (99, 100, 10)
    desk.release(page)
    assert len(desk.frontier) == 99


@pytest.mark.parametrize("max_active", [1, 3, 100])
def test_everything_waits_again_after_a_reopen(max_active):
    dice = random.Random(3)
    desk = Desk(max_active=3)
    for number in range(100):
        desk.insert(f"host{number % 10}", number, dice.randrange(64))
    for gap in (0.0, 40.0, 50.0, 60.0, 70.0, 80.0):
        desk.release(desk.take(), gap=gap)
    desk.commit()
    desk.reopen(max_active)
    assert len(desk.frontier) == desk.frontier.queued == 100
    desk.now += 100
    pages = desk.drain()
    assert sorted(pages) == sorted(desk.levels)
    assert all(desk.levels[first] >= desk.levels[second] for first, second in pairwise(pages))


def test_a_reopen_names_the_hosts_that_were_leased_and_when():
    desk = Desk()
    for host in "abc":
        desk.insert(host, 1)
    first = desk.take()
    desk.now += 7
    second = desk.take()
    desk.now += 1
    third = desk.take()
    desk.release(third)
    desk.commit()
    assert sorted(desk.reopen()) == sorted([(host_key(first[0]), 1000.0), (host_key(second[0]), 1007.0)])


def test_a_reopen_keeps_the_times_of_the_hosts():
    desk = Desk(max_active=1)
    for host in "abc":
        desk.insert(host, 1)
        desk.insert(host, 2)
    pages = [desk.take() for _ in "abc"]
    for page in pages:
        desk.release(page, gap=30.0)
        desk.finish(page)
    desk.commit()
    desk.now += 29.0
    desk.reopen()
    waits = desk.try_to_take()
    assert isinstance(waits, NotBefore)
    assert waits.instant == pytest.approx(1030.0, abs=0.0011)
    desk.now += 2.0
    assert {page[0] for page in desk.drain()} == set("abc")


def test_a_page_that_moved_up_while_it_was_leased_waits_there_after_a_reopen():
    desk = Desk()
    desk.insert("a", 1, 10)
    desk.insert("b", 2, 5)
    assert desk.take() == ("a", 1)
    desk.move_up("a", 1, 40)
    desk.insert("b", 3, 30)
    desk.commit()
    desk.reopen()
    assert desk.drain() == [("a", 1), ("b", 3), ("b", 2)]


def test_a_host_has_one_index_row_or_none():
    desk = Desk(max_active=2)
    for number in range(20):
        desk.insert("abcdef"[number % 6], number, number)
    for step in range(19):
        desk.fetch(gap=step % 3)
        desk.now += 1.0
        desk.commit()
        rows = [key[-HOST_BYTES:] for key, _ in desk.store.scan(Family.META)]
        queued = {page[:HOST_BYTES] for page, _ in desk.store.scan(Family.QUEUE)}
        assert sorted(rows) == sorted(queued)

"""Where hosts are: the table of phases, and what must be true of all hosts whatever happens to them."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from support.core_crawl import saved_of, write_changes
from support.frontier_invariants import check
from support.naming import case

from scrapy_aopic.core.crawl_totals import CrawlTotals
from scrapy_aopic.core.domains import Domains
from scrapy_aopic.core.frontier.frontier import Frontier, NotBefore, Taken, Unlocated
from scrapy_aopic.core.frontier.host_state import TRANSITIONS, Event, HostState, Phase, go, unpack_state
from scrapy_aopic.core.order import Aopic, DepthFirst, LargerSites
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, HostRecord, host_key, pack_host, page_key, queue_row
from scrapy_aopic.exceptions import CallError, StorageError
from scrapy_aopic.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.order import Order


# -- the table


def test_nothing_happens_to_a_host_that_is_not_in_the_table():
    for phase in Phase:
        for event in Event:
            with case(event, phase):
                host = HostState("a.test", phase=phase)
                if (phase, event) in TRANSITIONS:
                    go(host, event)
                    assert host.phase == TRANSITIONS[phase, event]
                else:
                    with pytest.raises(CallError, match=rf"'a\.test', as it is {phase.name}\."):
                        go(host, event)
                    assert host.phase == phase


def test_a_host_moves_between_two_places_unless_it_is_requested_right_away():
    for (phase, _), after in TRANSITIONS.items():
        is_request = phase in (Phase.READY, Phase.LATE) and after in (Phase.LEASED, Phase.LOCATING)
        assert is_request or (phase == Phase.MOVING) != (after == Phase.MOVING)
    assert {phase for phase, _ in TRANSITIONS} == set(TRANSITIONS.values()) == set(map(int, Phase))


def test_a_host_that_is_read_is_where_its_index_row_is():
    for row, phase in [
        (b"", Phase.IDLE),
        (b"A", Phase.MOVING),
        (b"F\0rank", Phase.SHELVED),
        (b"F\1", Phase.SHELVED),
        (b"P", Phase.PARKED),
        (b"D", Phase.DEAD),
    ]:
        assert unpack_state(pack_host(HostRecord("a", row=row))).phase == phase, (row, phase)


def test_a_host_that_says_it_is_nowhere_is_a_damaged_one():
    with pytest.raises(StorageError, match=r"'a' .*salvage"):
        unpack_state(pack_host(HostRecord("a", row=b"X")))


# -- calls out of order, and damaged stores


def frontier_of(*pages: int) -> Frontier:
    frontier = Frontier(MemoryStore())
    for page in pages:
        frontier.insert(page_key(host_key("a"), b"%d" % page), "a", 10, page, 0.0)
    return frontier


def test_a_page_is_ended_once_and_a_host_released_once():
    frontier = frontier_of(1, 2)
    taken = frontier.take(0.0)
    assert isinstance(taken, Taken)
    frontier.release(taken.page, 0.0)
    with pytest.raises(CallError, match=taken.page.hex()):
        frontier.release(taken.page, 0.0)
    frontier.finish(taken.page, 10, 1)
    with pytest.raises(CallError, match=taken.page.hex()):
        frontier.finish(taken.page, 10, 1)
    with pytest.raises(CallError, match=taken.page.hex()):
        frontier.put_back(taken.page, 10, 1, 0.0)
    with pytest.raises(CallError, match="No host is leased"):
        frontier.release(page_key(host_key("b"), b"1"), 0.0)
    assert check(frontier) == []


def test_a_row_of_the_index_without_its_host_is_said_to_be_damage():
    store = MemoryStore()
    store.write({Family.META: {b"A" + b"no host ": b""}}, sync=True)
    with pytest.raises(StorageError, match=rf"{b'no host '.hex()}.*salvage"):
        Frontier(store).load(CrawlTotals("", created_at=0.0, saved_at=0.0), 0.0)
    with pytest.raises(StorageError, match="salvage"):
        Frontier(store).move(b"no host ", [(b"old", b"new", b"page")], 0.0)


# -- the check itself


def break_phase(frontier: Frontier, host: HostState) -> None:
    host.phase = Phase.WAITING


def break_entry(frontier: Frontier, host: HostState) -> None:
    frontier.places.ready.void(host_key(host.name))
    frontier.places.ready.push(b"nobody", b"")


def break_rank(frontier: Frontier, host: HostState) -> None:
    host.rank = b"another"


def break_row(frontier: Frontier, host: HostState) -> None:
    frontier.index.delete(host.row + host_key(host.name))


def break_counts(frontier: Frontier, host: HostState) -> None:
    frontier.places.shelves.counts[b"F\0\0"] = 1


def break_queue(frontier: Frontier, host: HostState) -> None:
    assert host.back_queue
    host.back_queue.reverse()


def break_whole(frontier: Frontier, host: HostState) -> None:
    assert host.back_queue
    host.back_queue.pop()


def break_sums(frontier: Frontier, host: HostState) -> None:
    frontier.pending += 1


def break_flight(frontier: Frontier, host: HostState) -> None:
    host.in_flight[b"page"] = 1


def break_gate(frontier: Frontier, host: HostState) -> None:
    frontier.gates.holders[b"gate"] = host_key(host.name)


def test_the_check_finds_what_is_wrong():
    for damage in [
        break_phase, break_entry, break_rank, break_row, break_counts, break_queue, break_whole, break_sums,
        break_flight, break_gate,
    ]:  # fmt: skip
        frontier = frontier_of(1, 2, 3)
        host = frontier.host(host_key("a"))
        assert host is not None, damage
        assert check(frontier) == [], damage
        damage(frontier, host)
        assert check(frontier) != [], damage


# -- a walk by dice


def label(host: str) -> str:
    return host.rpartition(".")[2]


class Walk:
    """A frontier to which everything happens that can, by *dice*, with all that hosts can share."""

    def __init__(
        self,
        dice: random.Random,
        *,
        order: type[Order],
        max_active: int,
        connections: int,
        at_once: Callable[[str], int] | None = None,
    ) -> None:
        self.dice = dice
        self.order = order()
        self.order.budget, self.order.allowance = dice.choice([(0.0, 0.0), (0.02, 2.0), (0.1, 2.0)])
        self.how = {"max_active": max_active, "connections": connections}
        self.how["uses_addresses"] = dice.random() < 0.5
        self.domain_of = label if dice.random() < 0.5 else None
        self.politeness = Politeness(min_gap=1.0, backoff=5.0, dead_after=2, connections=at_once)
        self.store = MemoryStore()
        self.now = 1000.0
        self.rows: dict[bytes, tuple[int, int]] = {}  # of pages that are not ended
        self.taken: dict[bytes, bool] = {}  # and whether the host was released
        self.late: list[bytes] = []  # pages that have ended, and of which the transfers go on
        self.sought: list[bytes] = []
        self.known: set[bytes] = set()
        self.open()

    def open(self) -> None:
        domains = Domains(self.store, label, self.order.budget, self.order.allowance)
        self.domains = domains if self.order.uses_domains else None
        self.frontier = Frontier(
            self.store, self.order, self.domains, politeness=self.politeness, domain_of=self.domain_of, **self.how
        )  # fmt: skip

    def host(self) -> str:
        return f"h{int(12 * self.dice.random() ** 2)}.d{int(10 * self.dice.random() ** 2)}"

    def step(self) -> None:
        self.now += self.dice.choice([0.0, 0.0, 0.1, 1.0, 5.0])
        often = [self.insert] * 20 + [self.take] * 30 + [self.go_on] * 30 + [self.move] * 8
        self.dice.choice([*often, self.support, self.hear, self.commit, self.commit, self.locate])()
        if self.dice.random() < 0.005:
            self.reopen()

    def insert(self) -> None:
        host, rows = self.host(), {}
        for _ in range(self.dice.choice([1, 1, 2, 40]) if self.dice.random() < 0.2 else 1):
            row = (self.dice.randrange(30), len(self.rows) + self.dice.getrandbits(30))
            page = page_key(host_key(host), b"%d" % row[1])
            self.rows[page] = row
            rows[queue_row(*row)] = page[HOST_BYTES:]
        self.frontier.insert_all(host_key(host), host, rows, self.now)

    def move(self) -> None:
        if self.rows:
            page = self.dice.choice(list(self.rows))
            old = self.rows[page]
            new = self.rows[page] = (self.dice.randrange(40), old[1])
            if old != new:
                move = (queue_row(*old), queue_row(*new), page[HOST_BYTES:])
                self.frontier.move(page[:HOST_BYTES], [move], self.now)

    def take(self) -> None:
        taken = self.frontier.take(self.now)
        if isinstance(taken, Taken):
            assert taken.row == queue_row(*self.rows[taken.page])
            assert taken.page not in self.taken
            assert taken.page not in self.late
            self.taken[taken.page] = False
        elif isinstance(taken, Unlocated):
            self.sought.append(taken.key)
        elif isinstance(taken, NotBefore) and self.dice.random() < 0.3:
            self.now = max(self.now, taken.instant)

    def locate(self) -> None:
        while self.sought:
            self.frontier.locate(self.sought.pop(), self.dice.choice(["", "1", "2", "3"]), self.now)

    def go_on(self) -> None:
        """End a transfer, a page in flight, or both, in either order."""
        if self.late and self.dice.random() < 0.3:
            self.transfer(self.late.pop())
            return
        if not self.taken:
            return
        page = self.dice.choice(list(self.taken))
        is_first = self.dice.random() < 0.1
        if is_first:
            is_released = self.end(page)
            if not is_released:
                self.late.append(page)
        elif self.taken[page]:
            self.end(page)
        else:
            self.transfer(page)
            self.taken[page] = True

    def transfer(self, page: bytes) -> None:
        """End the transfer of *page*."""
        host, name = page[:HOST_BYTES], self.frontier.active[page[:HOST_BYTES]].name
        outcome = self.dice.choice([*[Outcome.ANSWER] * 5, Outcome.ERROR, Outcome.DOWN, Outcome.DOWN])
        seconds, address = self.dice.choice([0.1, 3.0, 20.0]), self.dice.choice(["", "1", "2"])
        self.frontier.transferred(host, name, TransferResult(seconds, outcome, address=address), self.now)
        self.frontier.release(page, self.now)

    def end(self, page: bytes) -> bool:
        """End *page*; returns whether its host was released before."""
        row, is_released = self.rows[page], self.taken.pop(page)
        if self.dice.random() < 0.2:
            self.frontier.put_back(page, *row, self.now)
        else:
            self.frontier.count(self.frontier.finish(page, *row))
            del self.rows[page]
        return is_released

    def support(self) -> None:
        if self.domains is None:
            return
        key = self.domains.key(HostState(self.host()))
        supporter = self.dice.choice([*sorted(self.known), b""])
        if not supporter:
            self.domains.vouch(key, self.dice.randbytes(16))
            self.frontier.supported(key)
        elif supporter != key and self.domains.support(key, supporter):
            self.frontier.supported(key)
        self.known.add(key)
        self.frontier.look_again(host_key(self.host()), self.now)

    def hear(self) -> None:
        """Something is heard of a host, whether it is known or not."""
        host = self.host() + self.dice.choice(["", "x"])
        key, seconds = host_key(host), self.dice.choice([3.0, 30.0])
        self.frontier.set_crawl_delay(key, host, seconds, self.now)
        self.frontier.transferred(
            key, host, TransferResult(0.5, self.dice.choice([Outcome.ANSWER, Outcome.DOWN])), self.now
        )
        self.frontier.defer_all(key, self.now + seconds)
        assert self.frontier.not_before(key) >= self.now + seconds

    def commit(self) -> None:
        tables = [*self.frontier.tables, *([self.domains.table] if self.domains is not None else [])]
        write_changes(tables, self.store)

    def reopen(self) -> None:
        self.commit()
        old, seeds = self.frontier, self.domains.seeds if self.domains is not None else 0
        self.open()
        if self.domains is not None:
            self.domains.seeds = seeds
        self.frontier.load(saved_of(old), self.now, crashed_at=self.dice.choice([0.0, self.now]))
        self.taken.clear()
        self.late.clear()
        self.sought.clear()


@pytest.mark.slow
@pytest.mark.crossed
@pytest.mark.parametrize("connections", [0, 4])
@pytest.mark.parametrize("max_active", [1, 3, 8, 100])
@pytest.mark.parametrize("order", [Aopic, DepthFirst, LargerSites])
def test_whatever_happens_each_host_is_in_one_place_and_nothing_is_lost(order, max_active, connections):
    seen: set[int] = set()
    for seed in range(3):
        walk = Walk(random.Random(seed), order=order, max_active=max_active, connections=connections)
        for _ in range(400):
            walk.step()
            assert check(walk.frontier) == []
            seen.update(host.phase for host in walk.frontier.active.values())
        assert walk.frontier.queued == len(walk.rows)
        assert len(walk.frontier) == len(walk.rows) - len(walk.taken)
    assert seen >= {Phase.DRY, Phase.READY, Phase.WAITING, Phase.LEASED}


@pytest.mark.parametrize("max_active", [1, 3, 100])
def test_a_host_gets_as_many_requests_at_once_as_it_has_connections_and_others_get_one(max_active):
    most, gates = 0, Counter[bool]()
    for seed in range(4):
        how = {"max_active": max_active, "connections": 8, "at_once": lambda name: 3 if name < "h4" else 1}
        walk = Walk(random.Random(seed), order=Aopic, **how)
        for _ in range(300):
            before = {key: len(host.transfers) for key, host in walk.frontier.active.items()}
            walk.step()
            assert check(walk.frontier) == []
            under_way = [page for page, is_released in walk.taken.items() if not is_released]
            counts = Counter(page[:HOST_BYTES] for page in [*under_way, *walk.late])
            shared: dict[bytes, bytes] = {}
            for key, n in counts.items():
                host = walk.frontier.active[key]
                assert len(host.transfers) == n
                has_three = host.name < "h4" and not (host.errors or host.crawl_delay)
                assert host.at_once in (1, 3 if has_three else 1)
                assert n <= max(before.get(key, 0), host.at_once), host
                assert host.leased_at == min(host.transfers.values())
                most = max(most, n)
                for gate in host.entered:
                    assert shared.setdefault(gate, key) == key
                    gates[n > 1] += 1
        assert walk.frontier.queued == len(walk.rows)
        assert len(walk.frontier) == len(walk.rows) - len(walk.taken)
    assert most == 3 or max_active == 1
    assert gates[True] or max_active == 1

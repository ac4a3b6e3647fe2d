"""What hosts share: one transfer at a time in a domain or from an address, and connections for fast hosts."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from support.core_crawl import NOW, Job, link

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.frontier.free_connections import FreeConnections
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore, Unlocated
from scrapy_aopic.core.frontier.host_places import HostPlaces
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import HOST_BYTES, Link, host_key

POLITE = Politeness(factor=10, min_gap=0, max_gap=60, backoff=0)


def domain_of(host: str) -> str:
    return host.partition(".")[2]


class Shared(Job):
    """A crawl whose hosts share domains, or addresses, which are those in *addresses*."""

    def __init__(self, addresses: dict[str, str] | None = None, **policy: Any) -> None:
        self.addresses = addresses or {}
        super().__init__(**{"politeness": POLITE, "domain_of": domain_of, **policy})

    def try_lease(self) -> Lease | NotBefore | Empty:
        """Lease a page; addresses are told as soon as they are asked for."""
        while isinstance(lease := self.crawl.lease(self.now), Unlocated):
            self.crawl.locate(lease, self.addresses[lease.name], self.now)
        return lease

    def lease(self) -> Lease:
        lease = self.try_lease()
        assert isinstance(lease, Lease), lease
        return lease

    def end(self, lease: Lease, *, transfer: float = 0.1, **how: Any) -> None:
        """End the transfer of *lease*, which took *transfer* seconds, and its visit."""
        self.crawl.transferred(lease.host, TransferResult(transfer, Outcome.ANSWER, **how), self.now)
        self.finish(lease)


# -- domains and addresses


@pytest.fixture(params=["domain", "address"])
def shared(request: pytest.FixtureRequest) -> Shared:
    """A crawl in which a.one and b.one count as one host, and c.two does not."""
    if request.param == "domain":
        return Shared(by_domain=True)
    return Shared({"a.one": "10.0.0.1", "b.one": "10.0.0.1", "c.two": "10.0.0.2"}, by_address=True)


def test_hosts_that_share_a_gate_are_asked_one_after_the_other(shared):
    shared.seed(link("a.one"), link("b.one"), link("c.two"))
    first, other = shared.lease(), shared.lease()
    assert {first.host[2:], other.host[2:]} == {"one", "two"}
    assert shared.try_lease() == Empty()
    shared.end(other if first.host == "a.one" else first)
    assert shared.try_lease() == Empty()
    shared.end(first if first.host == "a.one" else other)
    assert shared.try_lease() == NotBefore(shared.now + 1.0)
    shared.now += 1.0
    assert shared.lease().host == "b.one"


def test_without_such_a_key_each_host_is_on_its_own():
    job = Shared()
    job.seed(link("a.one"), link("b.one"))
    assert {job.lease().host, job.lease().host} == {"a.one", "b.one"}


def test_the_best_host_at_a_gate_is_let_in_first(shared):
    shared.seed(link("a.one"), link("b.one", shift=-3))
    lease = shared.lease()
    shared.seed(link("a.one", 1, shift=3))
    shared.end(lease)
    shared.now += 1.0
    assert shared.lease().host == "a.one"


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_clock_of_a_gate_outlives_the_process_also_if_its_host_has_nothing_left(shared, is_clean):
    shared.seed(link("a.one"))
    shared.end(shared.lease(), transfer=4.0)
    shared.seed(link("b.one"))
    shared.commit(is_clean=is_clean)
    shared.reopen(later=1.0)
    if is_clean and shared.policy.by_domain:  # else its address is not known yet, or it waits for the crash
        assert shared.crawl.not_before(host_key("b.one")) == NOW + 40.0
    shared.now = NOW + 39.0
    assert shared.try_lease() == NotBefore(NOW + 40.0)
    shared.now = NOW + 40.0
    assert shared.lease().host == "b.one"


def test_after_a_crash_the_gate_of_a_leased_host_is_shut_as_long_as_the_host_waits(shared):
    shared.seed(link("a.one"), link("b.one"))
    lease = shared.lease()
    shared.now += 3.0
    shared.kill()
    waits = 10 * (3.0 + shared.policy.commit_within)
    for host in ("a.one", "b.one"):
        assert shared.crawl.not_before(host_key(host)) == (
            pytest.approx(shared.now + waits)
            if host == lease.host or not shared.policy.by_address
            else pytest.approx(shared.now + 10.0)
        )
    shared.now += waits - 0.1
    shared.seed(link("c.two"))
    assert shared.lease().host == "c.two"
    assert isinstance(shared.try_lease(), (NotBefore, Empty))


def test_the_wish_of_a_host_to_be_left_alone_binds_those_beside_it_for_the_longest_gap_only(shared):
    shared.seed(link("a.one"), link("a.one", 1), link("b.one"))
    lease = shared.lease()
    shared.crawl.transferred(lease.host, TransferResult(0.1, Outcome.DOWN, retry_after=3600.0), shared.now)
    shared.crawl.release(lease, shared.now)
    assert shared.try_lease() == NotBefore(NOW + 60.0)
    shared.now += 60.0
    assert shared.lease().host == "b.one"
    assert isinstance(shared.try_lease(), (NotBefore, Empty))
    shared.settle(lease)


def test_a_host_is_located_again_if_another_address_answers():
    job = Shared({"a.one": "1", "b.one": "2"}, by_address=True)
    job.seed(link("a.one"), link("a.one", 1), link("b.one"))
    first = job.lease()
    assert first.host == "a.one"
    job.end(first, address="2")
    assert job.try_lease() == NotBefore(job.now + 1.0)


def test_a_host_that_has_no_address_is_asked_alone():
    job = Shared({"a.one": "", "b.one": ""}, by_address=True)
    job.seed(link("a.one"), link("b.one"))
    assert {job.lease().host, job.lease().host} == {"a.one", "b.one"}


def test_hosts_whose_address_is_not_known_keep_nobody_waiting():
    job = Shared(by_address=True)
    job.seed(*(link(f"h{n}.one", shift=3) for n in range(300)), link("known.two"))
    asked = []
    while isinstance(lease := job.crawl.lease(job.now), Unlocated):
        asked.append(lease)
        if lease.name == "known.two":
            job.crawl.locate(lease, "2", job.now)
    # Not all at once, but the one that is known was not kept waiting until they all are.
    assert len(asked) == 256
    assert lease == Empty()
    for host in asked[:60]:
        job.crawl.locate(host, host.name, job.now)
    names = set()
    while isinstance(lease := job.crawl.lease(job.now), (Lease, Unlocated)):
        if isinstance(lease, Lease):
            names.add(lease.host)
        else:
            job.crawl.locate(lease, lease.name, job.now)
    assert names == {f"h{n}.one" for n in range(300)} - {host.name for host in asked[60:]} | {"known.two"}


class Walk:
    """Hosts that share domains and addresses, with a plain record of who may be asked when beside them."""

    def __init__(self, dice: random.Random, max_active: int) -> None:
        self.dice = dice
        self.hosts = [f"h{n}.d{dice.randrange(4)}" for n in range(14)]
        addresses = {host: str(dice.randrange(5)) for host in self.hosts}
        self.job = Shared(addresses, by_domain=True, by_address=True, max_active=max_active)
        self.waiting: dict[str, int] = {}
        self.leased: dict[str, Lease] = {}
        self.clocks: dict[str, float] = {}
        self.pages = 0

    def keys(self, host: str) -> set[str]:
        return {host, domain_of(host), f"address {self.job.addresses[host]}"}

    def may_be_asked(self, host: str) -> bool:
        held = {key for other in self.leased for key in self.keys(other)}
        keys = self.keys(host)
        return not keys & held and all(self.clocks.get(key, 0.0) <= self.job.now for key in keys)

    def seed(self) -> None:
        host = self.dice.choice(self.hosts)
        self.pages += 1
        self.job.seed(link(host, self.pages, shift=self.dice.randrange(-2, 3)))
        self.waiting[host] = self.waiting.get(host, 0) + 1

    def lease(self) -> None:
        lease = self.job.try_lease()
        due = {host for host, pages in self.waiting.items() if pages and self.may_be_asked(host)}
        if isinstance(lease, Lease):
            assert lease.host in due, "asked too early, or beside another one"
            self.waiting[lease.host] -= 1
            self.leased[lease.host] = lease
        elif isinstance(lease, NotBefore) and lease.instant <= self.job.now + 0.011:
            pass  # hosts that come from the disk, some at once
        else:
            hosts = ((host, self.job.crawl.frontier.host(host_key(host))) for host in due)
            in_memory = [name for name, host in hosts if host is not None and host.row[:1] != b"P"]
            assert not in_memory, "left waiting for nothing"

    def end(self) -> None:
        if not self.leased:
            return
        host = self.dice.choice(sorted(self.leased))
        lease, gap = self.leased.pop(host), self.dice.choice((0.0, 0.1, 0.7))
        self.job.end(lease, transfer=gap / 10)
        for key in self.keys(host):
            self.clocks[key] = max(self.clocks.get(key, 0.0), self.job.now + gap)

    def ask_elsewhere(self) -> None:
        """Ask for something that the crawl has not leased."""
        host = self.dice.choice(self.hosts)
        if host in self.leased:
            return
        address = self.job.addresses[host]
        self.job.crawl.transferred(host, TransferResult(0.05, Outcome.ANSWER, address=address), self.job.now)
        for key in self.keys(host):
            self.clocks[key] = max(self.clocks.get(key, 0.0), self.job.now + 0.5)

    def restart(self) -> None:
        for lease in self.leased.values():
            self.job.end(lease, transfer=0.0)
        self.leased = {}
        self.job.commit(is_clean=True)
        self.job.reopen()


@pytest.mark.crossed
@pytest.mark.parametrize("max_active", [1, 3, 100])
@pytest.mark.parametrize("number", range(4))
def test_a_walk_by_dice_never_breaks_a_rule_and_never_waits_for_nothing(number, max_active):
    dice = random.Random(f"{number} {max_active}")
    walk = Walk(dice, max_active)
    for _ in range(1500):
        step = dice.randrange(100)
        if step < 25:
            walk.seed()
        elif step < 60:
            walk.lease()
        elif step < 80:
            walk.end()
        elif step < 95:
            walk.job.now += dice.choice((0.05, 0.2, 1.0))
        elif step < 99:
            walk.ask_elsewhere()
        else:
            walk.restart()
    while walk.leased:
        walk.end()
    for _ in range(100 * walk.pages):
        if not any(walk.waiting.values()):
            break
        walk.job.now += 0.25
        walk.lease()
        walk.end()
    assert not any(walk.waiting.values())
    walk.job.commit(is_clean=True)


def test_clocks_that_have_run_down_are_forgotten():
    job = Shared(by_domain=True)
    for number in range(3000):
        job.crawl.transferred(f"a.d{number}", TransferResult(0.01, Outcome.ANSWER), job.now)
        job.now += 0.01
    job.seed(link("a.d1", 1))
    job.end(job.lease())
    job.now += 1.0
    job.commit()
    rows = [key for key, _ in job.store.scan(4) if key[:1] == b"G"]
    assert len(rows) < 20


# -- fast and slow hosts


class Line:
    """A crawl of hosts that take half a second and of others that take half a minute, on a virtual clock."""

    def __init__(self, fast: int, slow: int, connections: int) -> None:
        self.job = Job(politeness=POLITE, connections=connections)
        self.connections = connections
        self.takes = {f"fast{n}": 0.5 for n in range(fast)} | {f"slow{n}": 30.0 for n in range(slow)}
        self.n_queued = 0
        self.under_way: list[tuple[float, Lease]] = []
        self.done = {0.5: 0, 30.0: 0}
        for name in random.Random(1).sample(sorted(self.takes), len(self.takes)):
            self.queue(name)

    def queue(self, name: str) -> None:
        self.n_queued += 1
        self.job.seed(link(name, self.n_queued))

    def pass_time(self, seconds: float) -> dict[float, int]:
        """Pages that were fetched in *seconds*, by the time that they took; every host has one more."""
        before, until = dict(self.done), self.job.now + seconds
        while self.job.now < until:
            while len(self.under_way) < self.connections and isinstance(
                lease := self.job.crawl.lease(self.job.now), Lease
            ):
                self.under_way.append((self.job.now + self.takes[lease.host], lease))
            self.job.now += 0.25
            for end, lease in [each for each in self.under_way if each[0] <= self.job.now]:
                self.under_way.remove((end, lease))
                self.done[self.takes[lease.host]] += 1
                self.queue(lease.host)
                self.job.crawl.transferred(
                    lease.host, TransferResult(self.takes[lease.host], Outcome.ANSWER), self.job.now
                )
                self.job.crawl.release(lease, self.job.now)
                self.job.settle(lease)
        return {takes: self.done[takes] - before[takes] for takes in before}


@pytest.mark.slow
def test_slow_hosts_that_are_known_do_not_keep_fast_ones_from_their_connections():
    alone, mixed = Line(30, 0, 20), Line(30, 60, 20)
    for line in (alone, mixed):
        line.pass_time(300)  # by then all were asked once
    expected, found = alone.pass_time(600)[0.5], mixed.pass_time(600)
    assert found[0.5] >= 0.98 * expected
    assert found[30.0] >= 0.9 * 600 / 30 * (20 - 7)  # 3 for fast ones and some more for their ups and downs


def test_after_a_restart_it_is_known_who_is_slow():
    line = Line(30, 60, 20)
    line.pass_time(300)
    expected = line.pass_time(100)[0.5]
    for _, lease in line.under_way:
        line.job.crawl.release(lease, line.job.now)
        line.job.settle(lease)
        line.queue(lease.host)
    line.under_way = []
    line.job.commit(is_clean=True)
    line.job.reopen()
    assert line.pass_time(100)[0.5] >= 0.9 * expected


def test_slow_hosts_have_all_connections_if_there_are_no_others():
    line = Line(0, 60, 10)
    assert line.pass_time(310)[30.0] == 10 * 10


def test_without_a_number_of_connections_nobody_waits_for_others():
    job = Job(*(link(f"h{n}") for n in range(50)), politeness=POLITE)
    for n in range(50):
        job.crawl.transferred(f"h{n}", TransferResult(30.0, Outcome.ANSWER), job.now - 1000)
        assert isinstance(job.lease(), Lease)


def test_a_host_is_classed_by_the_time_that_it_took():
    classes = [FreeConnections.class_of(seconds) for seconds in (0.0, 0.1, 0.99, 1.0, 15.9, 16.0, 1e9)]
    assert classes == [0, 0, 0, 1, 1, 2, 2]


def free_connections(connections: int, *, needed: int) -> FreeConnections:
    """Connections of which fast hosts need as many connections as *needed*."""
    free = FreeConnections(connections)
    for number in range(11 * needed):
        free.note(b"fast %d" % number, 0.5, 5.0)
    return free


def test_a_quarter_of_the_connections_is_for_slow_hosts_whatever_fast_ones_need():
    free = free_connections(8, needed=100)
    free.begin(b"slow", 30.0, 0.0)
    assert not free.full_class(30.0, 0.0)
    free.begin(b"slower", 30.0, 0.0)
    assert free.full_class(30.0, 0.0)


def test_a_transfer_that_takes_long_counts_as_slow_before_it_ends():
    free = free_connections(8, needed=2)
    for number in range(3):
        free.begin(b"%d" % number, 0.5, 0.0)
    assert not free.full_class(30.0, 0.9)
    assert not free.full_class(5.0, 0.9)
    assert free.full_class(5.0, 1.0) == 1
    assert free.full_class(30.0, 1.0) == 1
    assert free.full_class(30.0, 16.0) == 2
    for number in range(3):
        free.end(b"%d" % number, 16.0)
    assert not free.full_class(30.0, 16.0)


def fill_with_unknown_hosts(free: FreeConnections, now: float) -> int:
    """Lease hosts that were never asked as long as there is room; returns how many there were."""
    for number in range(20):
        if free.full_class(0.0, now):
            return number
        free.begin(b"unknown %d" % number, 0.0, now)
    return 20


def test_hosts_that_were_never_asked_wait_with_the_slow_ones_until_such_hosts_turn_out_to_be_fast():
    free = free_connections(20, needed=4)
    assert fill_with_unknown_hosts(free, 0.0) == 12
    for number in range(12):
        free.end(b"unknown %d" % number, 0.9)
    for number in range(200):
        free.begin(b"new", 0.0, 2.0 * number)
        free.end(b"new", 2.0 * number + 0.9)
    assert fill_with_unknown_hosts(free, 400.0) == 20


def test_a_few_slow_hosts_among_the_never_asked_count_for_the_time_that_they_hold_connections():
    free = free_connections(20, needed=4)
    for number in range(100):
        for fast in range(10):
            free.begin(b"fast %d" % fast, 0.0, 40.0 * number)
            free.end(b"fast %d" % fast, 40.0 * number + 0.2)
        free.begin(b"slow", 0.0, 40.0 * number)
        free.full_class(0.0, 40.0 * number + 30.0)
        free.end(b"slow", 40.0 * number + 30.0)
    assert fill_with_unknown_hosts(free, 4000.0) == 17  # instead of the 12 if all were slow


def test_the_address_of_a_leased_host_is_kept_with_it():
    job = Shared({"a.one": "10.0.0.1"}, by_address=True)
    job.seed(link("a.one"))
    lease = job.lease()
    job.kill()
    host = job.crawl.frontier.host(lease.key[:HOST_BYTES])
    assert host is not None
    assert (host.address, host.is_located) == ("10.0.0.1", False)


def test_it_is_known_whom_the_crawl_waits_for(shared):
    assert shared.crawl.awaited() == (math.inf, "")
    shared.seed(link("a.one", shift=1), link("a.one", 1, shift=1))
    shared.end(shared.lease(), transfer=2.0)
    assert shared.crawl.awaited() == (NOW + 20.0, "a.one")
    shared.seed(link("b.one"))
    shared.try_lease()
    assert shared.crawl.awaited()[0] == NOW + 20.0
    assert shared.crawl.awaited()[1] in ("a.one", "b.one")


def test_it_is_known_whom_the_crawl_waits_for_if_that_is_on_the_disk():
    job = Job(*(link(f"h{n}", m) for n in range(4) for m in range(2)), politeness=Politeness(), max_active=1)
    asked = []
    for n in range(4):
        lease = job.lease()
        job.crawl.transferred(lease.host, TransferResult(1.0 + n, Outcome.ANSWER), job.now)
        job.finish(lease)
        asked.append(lease.host)
    assert job.crawl.awaited() == (pytest.approx(NOW + 10.0, abs=0.01), asked[0])


@pytest.mark.parametrize("looks_up", [True, False])
def test_a_step_moves_few_hosts_however_many_wait_for_a_connection(looks_up, monkeypatch):
    """A page may link to thousands of hosts, which none but the first ten find free."""
    job = Job(politeness=POLITE, connections=10, looks_up=looks_up, max_active=1_000)
    moved: list[bytes] = []
    settle = HostPlaces.settle

    def note(self: HostPlaces, key: bytes, *args: Any, **kwargs: Any) -> None:
        moved.append(key)
        settle(self, key, *args, **kwargs)

    monkeypatch.setattr(HostPlaces, "settle", note)
    job.seed(*(link(f"h{n}") for n in range(2_000)))
    most, leased = 0, 0
    for _ in range(400):
        moved.clear()
        taken = job.crawl.lease(job.now)
        most = max(most, len(moved))
        leased += isinstance(taken, Lease)
        if isinstance(taken, Unlocated):
            job.crawl.locate(taken, "", job.now)
    assert leased == 10
    assert most <= 250


def test_new_hosts_that_wait_for_their_turn_only_count_as_ready():
    """Else politeness would seem to be what limits a crawl of many hosts."""
    job = Job(*(link(f"h{n}") for n in range(500)), politeness=POLITE, connections=10)
    assert job.crawl.hosts_by_place.ready == 500
    while isinstance(job.crawl.lease(job.now), Lease):
        pass
    assert job.crawl.hosts_by_place.ready < 120


def test_a_host_whose_address_was_looked_up_is_requested_before_others_are_looked_up():
    job = Job(*(link(f"h{n}") for n in range(50)), politeness=POLITE, connections=100, looks_up=True)
    first = job.crawl.lease(job.now)
    assert isinstance(first, Unlocated)
    job.crawl.locate(first, "", job.now)
    lease = job.crawl.lease(job.now)
    assert isinstance(lease, Lease)
    assert lease.host == first.name


def pages_beside(dead: int) -> int:
    """Pages of three hosts that answer, each with one more after each, beside *dead* ones, over ten connections in a minute."""
    job = Job(
        politeness=Politeness(factor=10, min_gap=0, max_gap=60, backoff=5),
        connections=10,
        waits_for=lambda request: (request.decode().partition("/")[0], True),
    )
    names = [*(f"dead{n}" for n in range(dead)), *(f"live{n}" for n in range(3))]
    job.seed(*(link(name) for name in random.Random(1).sample(names, len(names))))
    under_way: list[tuple[float, Lease]] = []
    pages, until = 0, job.now + 60.0
    while job.now < until:
        while len(under_way) < 10 and isinstance(lease := job.crawl.lease(job.now), Lease):
            under_way.append((job.now + 0.25, lease))
        job.now += 0.25
        for each in [each for each in under_way if each[0] <= job.now]:
            under_way.remove(each)
            lease = each[1]
            if lease.host.startswith("live"):
                pages += 1
                job.seed(link(lease.host, pages))
                job.crawl.transferred(lease.host, TransferResult(0.1), job.now)
                job.finish(lease)
            else:
                result = TransferResult(0.0, Outcome.SILENT, origin=lease.host)
                job.crawl.transferred(lease.host, result, job.now)
                job.crawl.release(lease, job.now)
                job.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), job.now)
    return pages


def test_hosts_that_answer_come_before_those_that_never_did():
    """Of the silent ones there are always some that were never tried, and rank as high as those that answer."""
    alone = pages_beside(0)
    assert pages_beside(20) == alone
    assert pages_beside(400) >= 0.75 * alone  # they have to be found first, by as many tries

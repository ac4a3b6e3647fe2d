"""What an operator asks of a crawl, as a value; and hosts that are blocked, in the frontier."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_crawl import NOW, link
from support.frontier_invariants import check
from support.naming import case

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.host_rules import NO_RULES, HostRule, HostRules
from scrapy_aopic.core.operator_control import Control, Slow, checked_name, covering, unpack_control
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import Link
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.storage.memory import MemoryStore

# -- the value


def test_a_name_covers_itself_and_what_is_below_it():
    names = {"example.com": 1, "a.example.com": 2, "test": 3}
    assert covering(names, "example.com") == covering(names, "www.example.com") == "example.com"
    assert covering(names, "x.a.example.com") == "a.example.com", "the nearest one counts"
    assert covering(names, "b.test") == "test"
    assert covering(names, "notexample.com") == covering(names, "com") == covering(names, "") == ""


def test_names_are_written_as_the_crawl_writes_them():
    for text, name in [
        ("Example.COM", "example.com"),
        (" example.com. ", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
    ]:
        assert checked_name(text) == name, (text, name)


def test_what_is_no_name_is_refused():
    for text in ["", ".", "http://a.test/", "*.a.test", "a test", "a/b", "a" * 254, "ü" * 100 + ".x"]:
        with case(text), pytest.raises(SettingError, match="is no name of a host or domain"):
            checked_name(text)


def test_changes_add_up_and_can_be_taken_back():
    control = Control().paused(5.0).paused(6.0).blocking(["a.test"], 7.0).blocking(["a.test", "b.test"], 8.0)
    control = control.slowing(["c.test"], 3.0, 9.0).limited(connections=4, rate=0.5)
    assert control == Control(5.0, {"a.test": 7.0, "b.test": 8.0}, {"c.test": Slow(3.0, 9.0)}, 4, 0.5)
    denied = control.denying(["/calendar/", "a|b"], 10.0)
    assert [bool(denied.denies().search(url)) for url in ("/calendar/1", "/b", "/c")] == [True, True, False]
    assert denied.sentences(str)[-1] == "no links to: /calendar/, a|b"
    assert denied.undoing()[-3:] == ["allow /calendar/", "allow a|b", "slow 0 c.test"]
    assert unpack_control(denied.packed()) == denied
    assert denied.denying(["/calendar/", "a|b"], None) == control
    assert control.denies() is None
    assert (control.blocks("www.a.test"), control.blocks("c.test")) == ("a.test", "")
    assert (control.gap("x.c.test"), control.gap("a.test")) == (3.0, 0.0)
    assert unpack_control(control.packed()) == control
    assert control.sentences(str) == [
        "paused since 5.0: no page is requested",
        "at most 4 transfers at once",
        "at most 0.5 pages a second",
        "blocked: a.test, b.test",
        "slowed down: c.test (3 s)",
    ]
    control = control.resumed().unblocking(["a.test", "b.test"]).slowing(["c.test"], 0.0, 10.0)
    assert control.limited(connections=0, rate=0.0) == Control()
    assert not Control().sentences(str)


def test_what_cannot_be_asked_is_refused():
    for change, said in [
        (lambda c: c.unblocking(["b.test"]), "b.test is not blocked: blocked are a.test"),
        (lambda c: c.slowing(["b.test"], 0, 1), "b.test is not slowed down: nothing is slowed down"),
        (lambda c: c.slowing(["b.test"], -1, 1), "a gap of -1 s for b.test cannot be"),
        (lambda c: c.slowing(["b.test"], float("nan"), 1), "a gap of nan s for b.test cannot be"),
        (lambda c: c.slowing(["b.test"], 1e6, 1), "at most 86400 s"),
        (lambda c: c.limited(connections=-1), "a limit of -1 transfers at once cannot be"),
        (lambda c: c.limited(rate=float("nan")), "a limit of nan pages a second cannot be"),
        (lambda c: c.limited(rate=-1.0), "a limit of -1 pages a second cannot be"),
        (lambda c: c.denying(["a("], 1.0), r"'a\(' is no regular expression: missing \)"),
        (lambda c: c.denying(["a"], None), "a is not denied: nothing is denied"),
        (lambda c: c.blocking([f"h{n}.test" for n in range(100_001)], 1), "at most 100,000 may be"),
    ]:
        with case(change, said), pytest.raises(SettingError, match=said):
            change(Control().blocking(["a.test"], 1.0))


def test_what_is_damaged_is_refused():
    for data in [
        b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000,
        b'{"pause": 1}', b'{"connections": -1}', b'{"paused_since": 1e300}', b'{"blocked": ["a.test"]}',
        b'{"blocked": {"a.test": -1}}', b'{"blocked": {"*.a.test": 1}}', b'{"blocked": {"A.test": 1}}',
        b'{"slowed": {"a.test": {"gap": 0, "since": 1}}}',
    ]:  # fmt: skip
        with case(data), pytest.raises(SettingError):
            unpack_control(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_else(data):
    with suppress(SettingError):
        unpack_control(data)


# -- blocked hosts


class Blocking:
    """A crawl of hosts that link to one another, some of which are blocked."""

    def __init__(self, max_active: int = 100, rules: HostRules = NO_RULES) -> None:
        self.store = MemoryStore()
        pace = Politeness(factor=0, min_gap=1.0)
        self.policy = Policy(share=0.25, politeness=pace, max_active=max_active, rules=rules)
        self.crawl = Crawl(self.store, self.policy, NOW)
        self.now = NOW
        self.control = Control()
        self.visited: list[str] = []

    def block(self, *names: str) -> None:
        self.control = Control(blocked=dict.fromkeys(names, 1.0))
        self.crawl.block(self.control.blocks if names else None, self.now)

    def step(self) -> bool:
        """Visit a page, or wait; returns whether there was anything to do."""
        lease = self.crawl.lease(self.now)
        if isinstance(lease, Lease):
            assert not self.control.blocks(lease.host)
            self.visited.append(lease.host)
            self.crawl.release(lease, self.now)
            self.crawl.transferred(lease.host, TransferResult(0.1, Outcome.ANSWER), self.now)
            self.crawl.settle(lease, (), self.now)
        elif isinstance(lease, NotBefore) and self.crawl.has_work(self.now):
            self.now = max(self.now + 0.01, lease.instant)
        else:
            return False
        assert check(self.crawl.frontier) == []
        return True

    def run(self) -> None:
        while self.step():
            pass

    def commit(self) -> None:
        self.store.write(self.crawl.take_changes(self.now), sync=True)
        self.crawl.changes_landed()
        assert audit(self.store).violations == []

    def restart(self) -> None:
        self.commit()
        self.crawl = Crawl(self.store, self.policy, self.now)
        if self.control:
            self.crawl.block(self.control.blocks, self.now)


@pytest.mark.parametrize("max_active", [100, 3])
def test_a_crawl_ends_without_blocked_hosts_whose_pages_stay_queued(max_active):
    blocking = Blocking(max_active)
    hosts = [f"{letter}.{domain}.test" for letter in "abcdef" for domain in ("x", "y")]
    for n, host in enumerate(hosts * 3):
        blocking.crawl.seed(link(host, n), blocking.now)
    blocking.block("x.test")
    blocking.run()
    assert sorted(blocking.visited) == sorted(host for host in hosts * 3 if host.endswith("y.test"))
    assert blocking.crawl.blocked == (6, 18)
    assert blocking.crawl.counts.queued == 18
    assert blocking.now < NOW + 100, "it does not wait"
    blocking.crawl.seed(link("a.x.test", 1000), blocking.now)
    blocking.crawl.seed(link("new.x.test", 1001), blocking.now)
    blocking.run()
    assert blocking.crawl.blocked == (7, 20)
    blocking.block()
    blocking.run()
    assert sorted(blocking.visited) == sorted([*hosts * 3, "a.x.test", "new.x.test"])
    assert blocking.crawl.blocked == (0, 0)
    blocking.commit()


def test_a_host_that_is_blocked_in_flight_ends_what_it_began():
    blocking = Blocking()
    for n in range(2):
        blocking.crawl.seed(link("a.test", n), blocking.now)
    lease = blocking.crawl.lease(blocking.now)
    assert isinstance(lease, Lease)
    blocking.block("a.test")
    blocking.crawl.release(lease, blocking.now)
    blocking.now += 1.0
    assert not isinstance(blocking.crawl.lease(blocking.now), Lease)
    assert blocking.crawl.blocked == (1, 1)
    blocking.crawl.put_back(lease, link("a.test", 0), blocking.now)
    assert blocking.crawl.blocked == (1, 2)
    assert check(blocking.crawl.frontier) == []
    assert not blocking.crawl.has_work(blocking.now)


def test_blocks_outlive_a_restart_and_end_after_one():
    blocking = Blocking()
    for n in range(20):
        blocking.crawl.seed(link(f"h{n}.test", n), blocking.now)
    blocking.block(*(f"h{n}.test" for n in range(10)))
    blocking.run()
    blocking.restart()
    blocking.run()
    assert len(blocking.visited) == 10
    blocking.control = Control()
    blocking.restart()
    blocking.run()
    assert sorted(blocking.visited) == sorted(f"h{n}.test" for n in range(20))
    assert blocking.now <= NOW + 400


def test_many_blocked_hosts_on_the_disk_are_passed_in_slices():
    blocking = Blocking(max_active=10)
    for n in range(1000):
        blocking.crawl.seed(link(f"h{n}.x.test", n), blocking.now)
    blocking.block("x.test")
    n_calls = 0
    while not isinstance(blocking.crawl.lease(blocking.now), Empty) and blocking.crawl.has_work(blocking.now):
        n_calls += 1
        blocking.now += 0.02
    assert 5 <= n_calls < 100
    assert blocking.crawl.blocked == (1000, 1000)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_blocked_when_no_page_is_lost_or_visited_beyond_those_that_a_host_may_have(seed):
    chance = random.Random(seed)
    rules = HostRules(
        {"x.test": HostRule(pages=3), "h1.x.test": HostRule(pages=1)}, [("h2*", HostRule(pages=2))]
    )
    blocking = Blocking(max_active=chance.choice([3, 20]), rules=rules)
    hosts = [f"h{n}.{chance.choice('xyz')}.test" for n in range(30)]
    wanted = Counter[str]()
    for n in range(300):
        host = chance.choice(hosts)
        wanted[host] += 1
        blocking.crawl.seed(link(host, n), blocking.now)
        if chance.random() < 0.1:
            blocking.block(*chance.sample(["x.test", "y.test", hosts[0], hosts[1]], chance.randrange(4)))
        if chance.random() < 0.02:
            blocking.restart()
        if chance.random() < 0.3 and isinstance(lease := blocking.crawl.lease(blocking.now), Lease):
            blocking.crawl.release(lease, blocking.now)
            blocking.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), blocking.now)
        for _ in range(chance.randrange(3)):
            blocking.step()
        assert check(blocking.crawl.frontier) == []
    blocking.block()
    blocking.run()
    may = {host: rule.pages if (rule := rules.of(host)) is not None else None for host in hosts}
    left = {host: max(n - (may[host] or n), 0) for host, n in wanted.items()}
    assert Counter(blocking.visited) == {host: n - left[host] for host, n in wanted.items()}
    assert blocking.crawl.blocked[1] == blocking.crawl.counts.queued == sum(left.values()) > 0
    blocking.commit()

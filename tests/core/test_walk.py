"""A crawl does what a small model in plain dictionaries does, in whatever order things happen to it.

The model knows every reason why a page waits where it does: its cash, its priority, and its directory.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace
from support.core_crawl import Modelled, by_cash, link
from support.frontier_invariants import check
from support.short_forms import walks

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.branches import QUEUES
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.layout import BRANCHES, DIRECTORIES
from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.order import front_queue, host_class
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import (
    HOST_BYTES,
    MOST_PRIORITY,
    N_FRONT_QUEUES,
    Link,
    PageState,
    queue_row,
    repeat_key,
    unpack,
)
from scrapy_aopic.core.spending import SPENDING, page_class

pytestmark = pytest.mark.slow

ONCE = [name for name, each in SPENDING.items() if not each.needs_revisits]
"""Policies of a crawl that visits each page once."""

HOSTS, PAGES_PER_HOST = "abcde", 5
CHOSEN = frozenset("bd")
COMMIT_WITHIN = 1.25
# With whole seconds for the steps, no time that a host waits for ends at a step.
POLITENESS = Politeness(10.0, 0.5, 30.5)
MOST_LOWERED = 8


def directory_of(request: bytes) -> bytes:
    """One of two directories, or none; a page whose request changes may move to another."""
    return (b"", b"one", b"two")[request[-1] % 3]


@dataclass
class Account:
    """A page: what it holds, its state, and its queue row (front queue, place)."""

    place: int
    request: bytes
    shift: int
    cash: int = 0
    front_queue: int = 0
    settled_cash: int = 0
    state: PageState = PageState.QUEUED
    visits: int = 0
    is_chosen: bool = False
    lowered: int = 0
    branch: bytes = b""
    clicks: int = 0
    priority: int = 0
    repeat_of: bytes = b""
    is_merged: bool = False

    def wait(self) -> None:
        """Wait where its priority, its shift and the cash that its queue knows of say."""
        number = front_queue(self.settled_cash, self.shift - self.lowered)
        self.front_queue = N_FRONT_QUEUES * self.priority + number

    @property
    def page_class(self) -> int:
        return page_class(is_visited=self.visits > 0, is_chosen=self.is_chosen)


@dataclass
class Model:
    """Every page has its cash in full; the virtual page pays each page of a class one by one."""

    spending: str
    full: int = 0
    crowd: int = 0
    virtual: int = TOTAL
    order: int = 0
    pages: dict[bytes, Account] = field(default_factory=dict)
    leased: dict[bytes, int] = field(default_factory=dict)  # with the cash that they will spend
    asked: dict[bytes, float] = field(default_factory=dict)  # leased hosts, and since when
    not_before: dict[bytes, float] = field(default_factory=dict)
    visited: dict[bytes, int] = field(default_factory=dict)  # per host
    fetched: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)  # per host and directory
    inside: Counter[bytes] = field(default_factory=Counter)  # fetched pages by the head of their branch
    left: Counter[bytes] = field(default_factory=Counter)  # waiting pages of it with a link from elsewhere
    left_to_lower: int = MOST_LOWERED
    claims: dict[bytes, list[bytes]] = field(default_factory=dict)  # visited repeats of pages that were not

    def touch(self, key: bytes, cash: int = 0) -> Account:
        """Add *cash* to that of a page, which becomes known to its queue."""
        page = self.pages[key]
        page.cash = page.settled_cash = page.cash + cash
        page.wait()
        return page

    def admit(self, of: Link, cash: int, finder: bytes = b"") -> None:
        self.order += 1
        page = self.pages[of.key] = Account(
            self.order, of.request, of.shift, is_chosen=of.host in CHOSEN, priority=of.priority
        )
        if finder[:HOST_BYTES] == of.key[:HOST_BYTES]:
            page.clicks = min(self.pages[finder].clicks + 4, 255)
            page.branch = self.behind(finder)
            page.lowered = self.crowding(page.branch)
        self.touch(of.key, cash)

    def again(self, of: Link, cash: int = 0) -> None:
        page = self.pages[of.key]
        if page.state != PageState.QUEUED:
            page.state, page.request = PageState.QUEUED, of.request
            page.shift, page.priority = of.shift, of.priority
            self.order += 1
            page.place = self.order
            self.touch(of.key, cash)
            return
        half = 0 if of.key in self.leased else page.cash // 2
        self.touch(of.key, -half)
        key = repeat_key(of.key, self.order + 1)
        self.admit(replace(of, key=key), cash + half)
        self.pages[key].repeat_of = of.key

    def seed(self, of: Link, *, is_endowed: bool) -> None:
        if of.key not in self.pages:
            units = self.virtual >> SEED_SHIFT if is_endowed else 0
            self.virtual -= units
            self.admit(of, units)
        elif of.again:
            self.again(of)

    def due(self, now: float) -> dict[bytes, list[bytes]]:
        """Pages that may be asked, best first, by the hosts that may be asked."""
        hosts: dict[bytes, list[bytes]] = {}
        for key in sorted(
            self.waiting(), key=lambda key: (-self.pages[key].front_queue, self.pages[key].place)
        ):
            if key[:HOST_BYTES] not in self.asked and self.not_before.get(key[:HOST_BYTES], 0.0) <= now:
                hosts.setdefault(key[:HOST_BYTES], []).append(key)
        return hosts

    def waiting(self) -> list[bytes]:
        queued = (key for key, page in self.pages.items() if page.state == PageState.QUEUED)
        return [key for key in queued if key not in self.leased]

    def class_of(self, key: bytes) -> tuple[int, int]:
        priority, number = divmod(self.pages[key].front_queue, N_FRONT_QUEUES)
        return priority, host_class(number, self.visited.get(key[:HOST_BYTES], 0))

    def is_full(self, key: bytes) -> bool:
        """Whether the page is in a directory of which enough pages were fetched."""
        directory = directory_of(self.pages[key].request)
        return bool(directory and self.full) and self.fetched[key[:HOST_BYTES], directory] >= self.full

    def behind(self, key: bytes) -> bytes:
        """The head of the branch of what a page links to; a page has no score here, so only one without a branch is a head."""
        return (self.pages[key].branch or key) if self.crowd else b""

    def crowding(self, head: bytes) -> int:
        """Front queues by which pages behind *head* wait lower, by how many were fetched; hosts are small here."""
        if not self.inside[head]:
            return 0
        times = self.inside[head] / (self.crowd * (1 + 0.02 * self.left[head]))
        return QUEUES + 2 * math.floor(math.log2(times)) if times >= 1 else 0

    def lowering(self, key: bytes) -> int:
        """Front queues by which a page is to wait lower, if its turn comes now."""
        page = self.pages[key]
        return max(self.crowding(page.branch), int(self.is_full(key)))

    def may_be_lowered(self, key: bytes) -> bool:
        page = self.pages[key]
        return not page.visits and self.lowering(key) > page.lowered

    def lowered(self) -> dict[bytes, int]:
        return {key: page.lowered for key, page in self.pages.items() if page.lowered}

    def lower(self, pages: dict[bytes, int], now: float) -> None:
        """Lower *pages* so much, each when it is the best page of one of the best hosts, by one reason after the other."""
        while pages != self.lowered():
            due = self.due(now)
            best = max(self.class_of(found[0]) for found in due.values())
            keys = [
                found[0]
                for found in due.values()
                if self.class_of(found[0]) == best and self.pages[found[0]].lowered < pages.get(found[0], 0)
            ]
            # One that catches up with its cash may rise all the same; it is leased then, so it was the last.
            key = min(keys, key=lambda key: self.pages[key].cash.bit_length())
            assert self.left_to_lower
            assert self.may_be_lowered(key)
            self.pages[key].lowered = self.lowering(key)
            self.touch(key)
            self.left_to_lower -= 1

    def lease(self, key: bytes, now: float) -> None:
        assert not (self.left_to_lower and self.may_be_lowered(key))
        self.left_to_lower = MOST_LOWERED
        alive = [
            page for page in self.pages.values() if page.state != PageState.FAILED and not page.is_merged
        ]
        classes = SPENDING[self.spending].without_revisits().classes
        members = [page for page in alive if page.page_class in classes]
        if self.virtual > self.pages[key].cash and members:
            for page in members:
                page.cash += self.virtual // len(members)
            self.virtual %= len(members)
        self.leased[key] = self.touch(key).cash
        self.asked[key[:HOST_BYTES]] = now

    def settle(self, key: bytes, links: list[Link], *, n_links: int, outcome: str, is_failure: bool) -> None:
        page, spent, host = self.pages[key], self.leased.pop(key), key[:HOST_BYTES]
        first = {each.key: each for each in reversed(links) if each.key != key}
        live = [each for each in first.values() if each.again or self.state(each.key) != PageState.FAILED]
        endowed = 0
        if SPENDING[self.spending].endows and live and not outcome:
            endowed = (self.virtual >> SEED_SHIFT) * 4.0 / (1 + self.visited.get(host, 0) / 10)
            endowed = int(endowed * 0.5 ** (page.clicks / 8))
        whole = spent + endowed
        paid = (whole - whole // 4) // max(n_links, len(first)) if live else 0
        page.cash -= spent
        self.virtual += spent - paid * len(live)
        page.state = PageState.FAILED if is_failure else PageState.VISITED
        if is_failure:
            self.virtual += page.cash
            page.cash = 0
        head = self.behind(key)
        if page.branch:
            self.inside[head] += 1
        if not page.visits:
            self.visited[host] = self.visited.get(host, 0) + 1
            directory = directory_of(page.request)
            if directory and self.fetched[host, directory] < self.full:
                self.fetched[host, directory] += 1
        once_more = []
        for each in links:
            if first.pop(each.key, None) is None:
                once_more += [each] if each.again else []
            elif each.key not in self.pages:
                self.admit(each, paid, key)
            elif each.again:
                self.again(each, paid)
            elif self.state(each.key) != PageState.FAILED:
                self.meet(self.pages[each.key], head if each.key[:HOST_BYTES] == host else b"")
                self.touch(each.key, paid)
        page.visits, page.branch, page.lowered = page.visits + 1, b"", 0
        for each in once_more:
            self.again(each)
        self.merge_repeats(key, page)

    def merge_repeats(self, key: bytes, page: Account) -> None:
        """A page was visited: merge what can be by now."""
        if page.repeat_of and page.state == PageState.VISITED:
            self.merge(key, page.repeat_of)
        for claimant in self.claims.pop(key, []):
            self.merge(claimant, key)

    def merge(self, repeat: bytes, key: bytes) -> None:
        """The repeat of a page was visited: it is one with that, once that was visited."""
        page, beside = self.pages[key], self.pages[repeat]
        if page.state == PageState.FAILED:
            self.virtual += beside.cash
            beside.cash, beside.state = 0, PageState.FAILED
            return
        if not page.visits:
            self.claims.setdefault(key, []).append(repeat)
            return
        cash, beside.cash, beside.is_merged = beside.cash, 0, True
        self.touch(key, cash)

    def meet(self, page: Account, head: bytes) -> None:
        """A page behind *head*, or of another host, links to *page*."""
        if page.branch and page.branch != head:
            self.left[page.branch] += self.inside[page.branch] > 0
            page.branch, page.lowered = b"", 0

    def put_back(self, of: Link) -> None:
        page = self.pages[of.key]
        page.request, page.shift, page.priority = of.request, of.shift, of.priority
        page.wait()
        del self.leased[of.key]

    def state(self, key: bytes) -> PageState | None:
        return self.pages[key].state if key in self.pages else None


PRIORITIES = [0] * 6 + [1, -1, 300, MOST_PRIORITY]
LINKS = st.builds(
    link,
    st.sampled_from(HOSTS),
    st.integers(0, PAGES_PER_HOST - 1),
    st.sampled_from([b"", b"", b"other"]),
    shift=st.sampled_from([0, 0, 0, 1, -1]),
    priority=st.sampled_from(PRIORITIES),
    again=st.sampled_from([False] * 7 + [True]),
)
PICK = st.integers(0, 1000)


class Walk(Modelled):
    """Steps of a crawl, of its commits and of its end, with the model beside it."""

    @initialize(
        spending=st.sampled_from(ONCE),
        bounds=st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([0, 1, 2])),
        max_active=st.sampled_from([1, 2, 100]),
        page_cache=st.sampled_from([1, 4, 1000]),
        seeds=st.lists(LINKS, min_size=3, max_size=6),
    )
    def begin(self, spending, bounds, max_active, page_cache, seeds):
        order = by_cash()
        order.budget = 0.0  # the sketches of supporters are no part of the model
        order.directory_pages, order.branch_pages = bounds
        policy = Policy(
            order=order,
            politeness=POLITENESS,
            share=0.25,
            endowment=4.0,
            spending=spending,
            directory_of=directory_of,
            chosen=CHOSEN,
            max_active=max_active,
            page_cache=page_cache,
            commit_within=COMMIT_WITHIN,
        )
        self.start(policy, Model(spending, *bounds))
        for of in seeds:
            self.seed(of, is_endowed=True)

    def open(self, model: Model, saved_at: float | None, *, was_clean: bool) -> None:
        super().open(model, saved_at, was_clean=was_clean)
        self.steps = 0
        if not was_clean and saved_at is not None:
            seen = saved_at + COMMIT_WITHIN
            for host, leased_at in model.asked.items():
                self.postpone(host, self.now + POLITENESS.gap(seen - leased_at))
        model.asked = {}
        model.left_to_lower = MOST_LOWERED  # a process begins with all

    def postpone(self, host: bytes, instant: float) -> None:
        self.model.not_before[host] = max(instant, self.model.not_before.get(host, 0.0))

    @rule(seconds=st.sampled_from([1, 3, 9, 40]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(of=LINKS, is_endowed=st.booleans())
    def seed(self, of, is_endowed):
        is_new = of.key not in self.model.pages
        assert self.crawl.seed(of, self.now, is_endowed=is_endowed) is (is_new or of.again)
        self.model.seed(of, is_endowed=is_endowed)

    @rule(n=st.integers(1, 4))
    def lease(self, n):
        for _ in range(n):
            self.lease_one()
            self.everything_is_as_in_the_model()

    def lease_one(self) -> None:
        lease = self.crawl.lease(self.now)
        due = self.model.due(self.now) if self.now >= self.pause else {}
        if not due:
            waits = [
                max(self.model.not_before.get(key[:HOST_BYTES], 0.0), self.pause)
                for key in self.model.waiting()
                if key[:HOST_BYTES] not in self.model.asked or self.now < self.pause
            ]
            if isinstance(lease, Empty):
                assert not waits
            else:
                assert isinstance(lease, NotBefore)
                # Hosts on the disk wait in milliseconds; a host that was deferred twice may be looked at too early.
                assert self.now < lease.instant <= min(waits) + 0.001
            return
        assert isinstance(lease, Lease)
        self.model.lower(self.lowered(), self.now)
        due = self.model.due(self.now)
        pages = due[lease.key[:HOST_BYTES]]
        assert lease.key == pages[0]
        assert self.model.class_of(lease.key) == max(self.model.class_of(pages[0]) for pages in due.values())
        self.model.lease(lease.key, self.now)
        page = self.model.pages[lease.key]
        assert (lease.cash, lease.request, lease.visits) == (page.cash, page.request, page.visits)
        self.to_release.append(lease)
        self.to_settle.append(lease)

    def lowered(self) -> dict[bytes, int]:
        """Pages that wait lower, and by how much; one that is leased may."""
        return {key: page.lowered for key in self.model.pages if (page := self.crawl.page(key)).lowered}

    @precondition(lambda self: self.to_release)
    @rule(pick=PICK, gap=st.sampled_from([None, 0.5, 2.5, 7.5]))
    def release(self, pick, gap=0.5):
        lease = self.to_release.pop(pick % len(self.to_release))
        host = lease.key[:HOST_BYTES]
        if gap is not None:
            self.crawl.defer(host, self.now + gap, gap / 10)
            self.postpone(host, self.now + gap)
        self.crawl.release(lease, self.now)
        del self.model.asked[host]

    @rule(of=LINKS, gap=st.sampled_from([0.5, 4.5]))
    def defer_any(self, of, gap):
        host = of.key[:HOST_BYTES]
        self.crawl.defer(host, self.now + gap, 0.0)
        if any(key[:HOST_BYTES] == host for key in self.model.pages):
            self.postpone(host, self.now + gap)

    @precondition(lambda self: self.to_settle)
    @rule(
        pick=PICK,
        links=st.lists(LINKS, max_size=8),
        itself=st.sampled_from([None, None, False, True]),
        n_filtered=st.integers(0, 2),
        outcome=st.sampled_from(["", "", "", "redirect", "http 404"]),
    )
    def settle(self, pick, links, itself, n_filtered, outcome):
        lease = self.take_lease(pick)
        if itself is not None:
            links = [*links[:2], replace(link(lease.host), key=lease.key, again=itself), *links[2:]]
        n_links = n_filtered and len(links) + n_filtered
        how = {"n_links": n_links, "outcome": outcome, "is_failure": outcome == "http 404"}
        self.crawl.settle(lease, links, self.now, Findings(**how))
        self.model.settle(lease.key, links, **how)

    @precondition(lambda self: self.to_settle)
    @rule(
        pick=PICK,
        shift=st.integers(-1, 1),
        priority=st.sampled_from(PRIORITIES),
        request=st.sampled_from([None, b"retry"]),
    )
    def put_back(self, pick, shift, priority, request):
        lease = self.take_lease(pick)
        again = link(lease.host, 0, request or lease.request, shift=shift, priority=priority)
        of = replace(again, key=lease.key)
        self.crawl.put_back(lease, of, self.now)
        self.model.put_back(of)

    @rule(links=st.lists(LINKS, max_size=8), pick=PICK)
    def visit(self, links, pick):
        self.lease_one()
        if self.to_settle:
            self.settle(-1 if pick % 2 else pick, links, None, 0, "")

    def write(self, *, is_clean: bool = False) -> None:
        model = self.flying[0]
        super().write(is_clean=is_clean)
        assert set(self.store.scan(Family.QUEUE)) == {
            (key[:HOST_BYTES] + queue_row(page.front_queue, page.place), key[HOST_BYTES:])
            for key, page in model.pages.items()
            if page.state == PageState.QUEUED
        }
        rows = self.store.scan(Family.META, DIRECTORIES, bytes((DIRECTORIES[0] + 1,)))
        counted = Counter((key[1 : 1 + HOST_BYTES], value[0]) for key, value in rows)
        assert counted == Counter((host, n) for (host, _), n in model.fetched.items() if n)
        branches = self.store.scan(Family.META, BRANCHES, bytes((BRANCHES[0] + 1,)))
        assert {key[1:]: tuple(unpack(value)) for key, value in branches} == {
            head[:HOST_BYTES] + head[-4:]: (n, model.left[head]) for head, n in model.inside.items() if n
        }

    @precondition(lambda self: self.steps > 12)
    @rule(later=st.integers(0, 40), is_written=st.booleans())
    def crash(self, later, is_written):
        self.kill(later, is_written=is_written)

    @precondition(lambda self: self.steps > 12 and self.flying is None)
    @rule(later=st.integers(0, 40))
    def stop_and_start(self, later):
        while self.to_release:
            self.release(0, None)
        self.stop(later)

    @invariant()
    def everything_is_as_in_the_model(self):
        self.steps += 1
        pages = self.compare()
        assert {key: page.lowered for key, page in pages.items() if page.lowered} == self.model.lowered()
        directories = self.crawl.pages.directories
        full = {key for key, page in self.model.pages.items() if directories.is_full(key, page.request)}
        assert full == set(filter(self.model.is_full, self.model.pages))
        assert check(self.crawl.frontier) == []
        assert self.crawl.frontier.n_hosts == len({key[:HOST_BYTES] for key in self.model.pages})


TestWalk, TestLongWalk = walks(Walk, examples=200, steps=60)


@pytest.mark.crossed
@pytest.mark.parametrize("max_active", [1, 2, 100])
@pytest.mark.parametrize("spending", ONCE)
def test_a_long_walk_by_dice(spending, max_active):
    """Longer than what Hypothesis tries, which begins with short walks and can shorten those that fail."""
    dice = random.Random(f"{spending} {max_active}")

    def some_link() -> Link:
        shift, again, priority = dice.choice((0, 0, 0, 1, -1)), dice.random() < 0.1, dice.choice(PRIORITIES)
        host, number, request = dice.choice("abcdefghij"), dice.randrange(20), b"%d" % dice.randrange(3)
        return link(host, number, request, shift=shift, priority=priority, again=again)

    def links() -> list[Link]:
        return [some_link() for _ in range(dice.randrange(9))]

    walk = Walk()
    bounds = dice.randrange(1, 4), dice.randrange(1, 4)
    walk.begin(spending, bounds, max_active, dice.choice((1, 4, 1000)), links())
    for _ in range(700):
        step = dice.randrange(100)
        if step < 16:
            walk.time_passes(dice.choice((1, 3, 20)))
        elif step < 20:
            walk.seed(some_link(), dice.random() < 0.5)
        elif step < 40:
            walk.lease(dice.randrange(1, 4))
        elif step < 55 and walk.to_release:
            walk.release(dice.randrange(9), dice.choice((None, 0.5, 2.5, 7.5)))
        elif step < 58:
            walk.defer_any(some_link(), dice.choice((0.5, 4.5)))
        elif step < 75 and walk.to_settle:
            itself = dice.choice((None, None, False, True))
            outcome = dice.choice(("", "", "redirect", "http 404"))
            walk.settle(dice.randrange(9), links(), itself, dice.randrange(3), outcome)
        elif step < 81 and walk.to_settle:
            shift, priority, request = map(dice.choice, ((-1, 0, 1), PRIORITIES, (None, b"retry")))
            walk.put_back(dice.randrange(9), shift, priority, request)
        elif step < 84:
            walk.visit(links(), dice.randrange(9))
        elif step < 97:
            walk.commit(dice.random() < 0.7, dice.random() < 0.5)
        elif step == 97 and dice.random() < 0.4:
            walk.crash(dice.randrange(40), dice.random() < 0.5)
        elif step == 98 and walk.flying is None:
            walk.stop_and_start(dice.randrange(40))
        walk.everything_is_as_in_the_model()

"""A crawl with all that may happen to it holds what a ledger in plain dictionaries says, and loses nothing.

What is beside the walk in test_walk.py, which also knows which page is the best: pages that come back, that are united
with others, texts that were seen before, errors of hosts, and windows that change. The number of steps is set by
``AOPIC_STEPS``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from math import fsum

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec import structs
from support.core_crawl import ROUNDING, Modelled, by_cash, link
from support.frontier_invariants import check
from support.short_forms import walks

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, PageState, host_key
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.core.spending import SPENDING, page_class
from scrapy_aopic.core.window import Window

pytestmark = pytest.mark.slow

HOSTS, PAGES_PER_HOST = "abcde", 5
CHOSEN = frozenset("bd")
STEPS = int(os.environ.get("AOPIC_STEPS", "8000"))
COMMIT_WITHIN, MIN_INTERVAL, MAX_INTERVAL = 1.25, 100.0, 1000.0
BACKOFF = 0.7
# Steps take whole seconds, and no time that a host waits for does.
POLITENESS = Politeness(10.0, 0.5, 30.5, backoff=BACKOFF, dead_after=1_000_000)


@dataclass
class Account:
    """A page."""

    cash: int = 0
    state: PageState = PageState.QUEUED
    past: Page = field(default_factory=lambda: Page(PageState.QUEUED, 0))  # its visits, as a window sees them
    is_chosen: bool = False
    united_with: bytes = b""
    height: int = 0
    claims: dict[bytes, int] = field(default_factory=dict)  # visits of the pages that say they are this one

    @property
    def visits(self) -> int:
        return self.past.visits


@dataclass
class Host:
    """When a host may be asked."""

    not_before: float = 0.0
    leased_at: float | None = None
    errors: int = 0


@dataclass
class Model:
    """Every page holds its cash in full; the virtual page pays each page of a class one by one."""

    classes: tuple[int, ...]
    virtual: int = TOTAL
    pages: dict[bytes, Account] = field(default_factory=dict)
    hosts: dict[bytes, Host] = field(default_factory=dict)
    leased: dict[bytes, int] = field(default_factory=dict)  # with the cash that the visit will spend
    texts: dict[bytes, bytes] = field(default_factory=dict)
    second: list[int] = field(default_factory=list)  # histories of ordinary pages at their second visits

    def root(self, key: bytes) -> bytes:
        while self.pages[key].united_with:
            key = self.pages[key].united_with
        return key

    def is_alive(self, key: bytes) -> bool:
        return key in self.pages and self.pages[key].state != PageState.FAILED

    def waiting(self) -> list[bytes]:
        queued = (key for key, page in self.pages.items() if page.state == PageState.QUEUED)
        return [key for key in queued if key not in self.leased]

    def may_be_asked(self, key: bytes, now: float) -> bool:
        host = self.hosts[key[:HOST_BYTES]]
        return host.leased_at is None and host.not_before <= now

    def admit(self, key: bytes, cash: int = 0) -> None:
        self.pages[key] = Account(cash, is_chosen=key[:HOST_BYTES] in map(host_key, CHOSEN))
        self.hosts.setdefault(key[:HOST_BYTES], Host())

    def queue(self, key: bytes) -> None:
        """A page that is done, or was united, waits again."""
        self.pages[key].state, self.pages[key].united_with = PageState.QUEUED, b""

    def grant(self, key: bytes, worth: float) -> None:
        units = min(int((self.virtual >> SEED_SHIFT) * worth), self.virtual // 2)
        self.virtual -= units
        self.pages[key].cash += units

    def members(self) -> list[Account]:
        """Pages that have not failed and stand for themselves."""
        return [
            page for page in self.pages.values() if page.state != PageState.FAILED and not page.united_with
        ]

    def lease(self, key: bytes, now: float) -> None:
        page = self.pages[key]
        members = [
            each
            for each in self.members()
            if page_class(is_visited=each.visits > 0, is_chosen=each.is_chosen) in self.classes
        ]
        if self.virtual > page.cash and members:
            for each in members:
                each.cash += self.virtual // len(members)
            self.virtual %= len(members)
        self.leased[key] = page.cash
        self.hosts[key[:HOST_BYTES]].leased_at = now

    def settle(
        self,
        key: bytes,
        links: list[Link],
        now: float,
        *,
        n_links: int,
        is_failure: bool,
        same: bytes,
        is_duplicate: bool,
        is_plain: bool,
        policy: Policy,
        turn: float,
    ) -> None:
        page, spent = self.pages[key], self.leased.pop(key)
        targets = [each for each in links if each.key != key]
        live = [
            each for each in targets if each.again or each.key not in self.pages or self.is_alive(each.key)
        ]
        n_distinct = max(n_links, len(targets))
        if is_duplicate and not n_distinct:
            spent = 0
        paid = (spent - int(spent * 0.25)) // n_distinct if live else 0
        page.cash -= spent
        self.virtual += spent - paid * len(live)
        n_visited = sum(each.visits > 0 for each in self.members())
        is_known = policy.recrawl is not None and self.second and 2 * len(self.second) >= n_visited
        newcomer = sum(self.second) // len(self.second) if is_known and is_plain else -1
        policy.window.visit(page.past, spent, turn, now, newcomer)
        if page.visits == 2 and is_plain:
            self.second.append(page.past.history)
        page.state = PageState.FAILED if is_failure else PageState.VISITED
        if is_failure:
            self.virtual, page.cash = self.virtual + page.cash, 0
            if policy.recrawl is not None:
                page.past.history, page.past.marks = 0, ()
        # What is paid to united pages comes last: the page that stands for them may wait again by then.
        united = [each for each in live if self.is_united(each)]
        for each in [each for each in live if each not in united] + united:
            self.pay(each, paid)
        other = self.root(same) if same in self.pages else b""
        if not is_failure and self.is_alive(other) and other != key:
            if self.pages[other].visits:
                self.unite(key, other)
            else:
                self.pages[other].claims[key] = page.visits
        claims, page.claims = page.claims, {}
        for source, visits in sorted(claims.items()):
            of, other = self.pages[source], self.root(key)
            is_valid = of.state == PageState.VISITED and of.visits == visits
            if is_valid and self.is_alive(other) and other != source:
                self.unite(source, other)

    def is_united(self, of: Link) -> bool:
        return of.key in self.pages and bool(self.pages[of.key].united_with) and not of.again

    def pay(self, of: Link, units: int) -> None:
        if of.key not in self.pages:
            self.admit(of.key)
        if of.again:
            self.queue(of.key)
        key = self.root(of.key)
        if self.is_alive(key):
            self.pages[key].cash += units
        else:
            self.virtual += units

    def unite(self, key: bytes, other: bytes) -> None:
        page, root = self.pages[key], self.pages[other]
        if page.height < MAX_HEIGHT:
            root.height = max(root.height, page.height + 1)
            root.cash, page.cash, page.united_with = root.cash + page.cash, 0, other
            root.past.history, page.past.history = root.past.history + page.past.history, 0
            root.past.marks = page.past.marks = ()

    def weights(self, *, comes_back: bool) -> dict[bytes, int]:
        """What each page counts for: all that it ever got, or once two visits show a rate, what the last of them made of it."""
        return {
            key: page.past.history + (0 if comes_back and page.visits > 1 else page.cash)
            for key, page in self.pages.items()
        }

    def transferred(self, host: bytes, seconds: float, now: float, outcome: Outcome) -> None:
        known = self.hosts[host]
        known.errors = known.errors + 1 if outcome == Outcome.ERROR else 0
        backoff = min(BACKOFF * 2 ** (known.errors - 1), 30.5) if known.errors else 0.0
        known.not_before = max(known.not_before, now + max(POLITENESS.gap(seconds), backoff))


LINKS = st.builds(
    link,
    st.sampled_from(HOSTS),
    st.integers(0, PAGES_PER_HOST - 1),
    again=st.sampled_from([False] * 7 + [True]),
)
PICK = st.integers(0, 1000)
WINDOWS = st.builds(
    Window, st.sampled_from([1, 3, 50]), st.sampled_from(["interpolation", "ewma", "fixed", "variable"])
)


class Walk(Modelled):
    """Steps of a crawl, of its commits and of its end, with the model beside it."""

    @initialize(
        spending=st.sampled_from(list(SPENDING)),
        recrawl=st.sampled_from([None, Recrawl(MIN_INTERVAL, MAX_INTERVAL, 0.5)]),
        window=WINDOWS,
        max_active=st.sampled_from([1, 2, 100]),
        page_cache=st.sampled_from([1, 4, 1000]),
        seeds=st.lists(LINKS, min_size=3, max_size=6),
    )
    def begin(self, *, spending, recrawl, window, max_active, page_cache, seeds):
        if (how := SPENDING[spending]).needs_revisits:
            recrawl = Recrawl(MIN_INTERVAL, MAX_INTERVAL, 0.5)
        policy = Policy(
            window=window,
            politeness=POLITENESS,
            share=0.25,
            endowment=0.0,
            spending=spending,
            chosen=CHOSEN,
            recrawl=recrawl,
            max_active=max_active,
            page_cache=page_cache,
            commit_within=COMMIT_WITHIN,
        )
        self.announced: dict[int, dict[bytes, Link]] = {}
        self.start(policy, Model((how if recrawl else how.without_revisits()).classes))
        for of in seeds:
            self.seed(of)

    def open(self, model: Model, saved_at: float | None, *, was_clean: bool) -> None:
        order = by_cash()
        order.budget = 0.0
        self.policy = replace(self.policy, order=order)
        super().open(model, saved_at, was_clean=was_clean)
        for host in model.hosts.values():
            if not was_clean and saved_at is not None and host.leased_at is not None:
                at = self.now + POLITENESS.gap(saved_at + COMMIT_WITHIN - host.leased_at)
                host.not_before = max(host.not_before, at)
            host.leased_at = None

    # -- what comes from outside

    @rule(seconds=st.sampled_from([1, 9, 40, 300]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(of=LINKS)
    def seed(self, of):
        model, page = self.model, self.model.pages.get(of.key)
        of = structs.replace(of, again=self.is_done(of))
        assert self.crawl.seed(of, self.now) is (page is None or of.again)
        if page is None:
            model.admit(of.key)
            model.grant(of.key, 1.0)
        elif of.again:
            model.queue(of.key)

    def is_done(self, of: Link) -> bool:
        """Whether *of* asks for another visit of a page that is done; others would make a second request beside."""
        page = self.model.pages.get(of.key)
        return of.again and page is not None and page.state != PageState.QUEUED

    @rule(of=LINKS)
    def enrich(self, of):
        if of.key in self.model.pages:
            self.crawl.enrich(of.key, self.now, 2.0)
            key = self.model.root(of.key)
            if self.model.is_alive(key):
                self.model.grant(key, 2.0)

    # -- visits

    @rule()
    def lease(self):
        self.take()

    def take(self) -> Lease | NotBefore | Empty:
        model, lease = self.model, self.crawl.lease(self.now)
        for key, page in model.pages.items():
            if page.state == PageState.VISITED and self.crawl.page(key).state == PageState.QUEUED:
                assert self.policy.recrawl is not None
                assert self.now - page.past.visited_at >= MIN_INTERVAL
                model.queue(key)
        is_paused = self.now < self.pause
        if isinstance(lease, Lease):
            assert not is_paused
            assert lease.key in model.waiting()
            assert model.may_be_asked(lease.key, self.now)
            model.lease(lease.key, self.now)
            assert lease.cash == model.leased[lease.key]
            self.to_release.append(lease)
            self.to_settle.append(lease)
            return lease
        # Hosts on the disk wait in milliseconds.
        assert is_paused or not any(model.may_be_asked(key, self.now - 0.001) for key in model.waiting())
        waits = [
            max(self.pause, host.not_before)
            for host in (model.hosts[key[:HOST_BYTES]] for key in model.waiting())
            if host.leased_at is None
        ]
        if isinstance(lease, Empty):
            assert not waits
            # None that may come back by itself is forgotten.
            assert self.policy.recrawl is None or all(
                page.state != PageState.VISITED for page in model.pages.values()
            )
        else:
            assert isinstance(lease, NotBefore)
            assert self.now < lease.instant <= min(waits, default=self.now + MAX_INTERVAL) + 0.001
        return lease

    @precondition(lambda self: self.to_release)
    @rule(
        pick=PICK,
        seconds=st.sampled_from([0.01, 0.25, 0.75, 9.0]),
        outcome=st.sampled_from([Outcome.ANSWER, Outcome.ANSWER, Outcome.ERROR]),
    )
    def release(self, pick, seconds=0.25, outcome=Outcome.ANSWER):
        lease = self.to_release.pop(pick % len(self.to_release))
        host = lease.key[:HOST_BYTES]
        self.crawl.transferred(lease.host, TransferResult(seconds, outcome), self.now)
        self.crawl.release(lease, self.now)
        self.model.transferred(host, seconds, self.now, outcome)
        self.model.hosts[host].leased_at = None

    @precondition(lambda self: self.to_settle)
    @rule(pick=PICK, links=st.lists(LINKS, max_size=4, unique_by=lambda of: of.key))
    def announce(self, pick, links):
        """A callback waits for what it has yielded so far."""
        lease, model = self.to_settle[pick % len(self.to_settle)], self.model
        links = [structs.replace(of, again=self.is_done(of)) for of in links]
        given = self.crawl.announce(lease, links, self.now)
        assert [of.key for of in given] == [of.key for of in links]
        for of in links:
            if of.key not in model.pages:
                model.admit(of.key)
            elif of.again:
                model.queue(of.key)
        before = self.announced.setdefault(lease.number, {})
        for of in given:
            before.setdefault(of.key, of)

    @precondition(lambda self: self.to_settle)
    @rule(
        pick=PICK,
        links=st.lists(LINKS, max_size=6, unique_by=lambda of: of.key),
        n_filtered=st.integers(0, 2),
        same=st.none() | st.none() | LINKS,
        text=st.sampled_from([None, None, b"one", b"two"]),
        outcome=st.sampled_from(["", "", "", "redirect", "http 404"]),
    )
    def settle(self, *, pick, links=(), n_filtered=0, same=None, text=None, outcome=""):
        lease = self.take_lease(pick)
        announced = self.announced.pop(lease.number, {})
        links = [structs.replace(of, again=self.is_done(of)) for of in links if of.key not in announced]
        links = [*announced.values(), *links]
        model, key = self.model, lease.key
        twin = self.crawl.judge(lease, text_of(text)).first if text and not outcome else b""
        if twin:
            assert model.texts[twin] == text
            assert model.is_alive(model.root(twin))
        if text and not outcome:
            model.texts[key] = text
        how = {"n_links": n_filtered and len(links) + n_filtered, "is_failure": outcome == "http 404"}
        same_as = same.key if same is not None else b""
        content = Version(b"%d" % pick)
        what = outcome or ("duplicate" if twin else "")
        found = Findings(outcome=what, same_as=same_as, version=content, **how)
        self.crawl.settle(lease, links, self.now, found)
        how |= {"same": twin or same_as, "is_duplicate": bool(twin), "is_plain": not what}
        model.settle(key, links, self.now, policy=self.policy, turn=self.crawl.ledger.totals.turn, **how)

    @precondition(lambda self: hasattr(self, "model") and self.model.waiting())
    @rule(pick=PICK)
    def visit_a_copy(self, pick):
        """The page that is next says that it is one of those that are known; chance alone unites hardly any."""
        if isinstance(self.take(), Lease):
            self.release(-1)
            key = sorted(self.model.pages)[pick % len(self.model.pages)]
            self.settle(pick=-1, same=Link(key, "", b""))

    @precondition(lambda self: self.to_settle)
    @rule(pick=PICK)
    def put_back(self, pick):
        lease = self.take_lease(pick)
        self.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), self.now)
        del self.model.leased[lease.key]

    # -- ends

    @rule(later=st.sampled_from([0, 7, 40]), is_written=st.booleans(), window=WINDOWS)
    def crash(self, later, is_written, window):
        self.policy = replace(self.policy, window=window)
        self.kill(later, is_written=is_written)

    @precondition(lambda self: self.flying is None)
    @rule(later=st.sampled_from([0, 7, 40]), window=WINDOWS)
    def stop_and_start(self, later, window):
        while self.to_release:
            self.release(0)
        self.policy = replace(self.policy, window=window)
        self.stop(later)

    def teardown(self):
        """Nothing is lost: whatever is known and has not failed is visited, and visited again if pages come back."""
        if not hasattr(self, "model"):
            return
        while self.to_settle:
            self.settle(pick=0)
        comes_back = self.policy.recrawl is not None
        missing = {
            key
            for key, page in self.model.pages.items()
            if page.state == PageState.QUEUED or (comes_back and page.state == PageState.VISITED)
        }
        for _ in range(40 * len(missing) + 40):
            if not missing:
                break
            lease = self.take()
            assert not isinstance(lease, Empty), missing
            if isinstance(lease, NotBefore):
                self.now = lease.instant
            else:
                missing.discard(lease.key)
                self.settle(pick=-1)
                self.everything_is_as_in_the_model()
        assert not missing

    @invariant()
    def everything_is_as_in_the_model(self):
        pages, crawl, model = self.compare(), self.crawl, self.model
        assert check(crawl.frontier) == []
        histories = {key: page.past.history for key, page in model.pages.items()}
        assert {key: page.history for key, page in pages.items()} == histories
        assert crawl.ledger.totals.history == sum(histories.values())
        assert all(history >= 0 for history in histories.values())
        self.importance_adds_up(pages)
        for key, page in model.pages.items():
            if page.united_with:
                assert (pages[key].canonical, crawl.same_as(key)) != (b"", b"")
                assert crawl.same_as(key) == model.root(key)
            else:
                assert not pages[key].canonical

    def importance_adds_up(self, pages):
        weights = self.model.weights(comes_back=self.policy.recrawl is not None)
        whole = sum(weights.values())
        importance = {key: self.crawl.ledger.importance(page) for key, page in pages.items()}
        assert importance == {key: weight / whole if whole else 0.0 for key, weight in weights.items()}
        assert abs(fsum(importance.values()) - bool(whole)) <= ROUNDING


TestModel, TestLongModel = walks(Walk, examples=STEPS // 50, steps=50)

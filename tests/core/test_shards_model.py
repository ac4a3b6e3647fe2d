"""Shards that may die at any moment, and mail that may be lost, doubled, late and out of order, lose and make nothing.

The model knows which visits are in commits that landed, and no more: who was paid what by each, and what each spent. Once
all mail has arrived, each page must hold what it was granted and paid, less what it spent, to the unit. The number of
steps is set by ``AOPIC_STEPS``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import reduce
from math import fsum

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from support.core_crawl import NOW, ROUNDING, by_cash, link
from support.core_shards import hosts_of, lead
from support.frontier_invariants import check
from support.short_forms import walks

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.ledger import NOWHERE, TOTAL, Sums
from scrapy_aopic.core.order import LARGEST_VALUE, ORDERS
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.ports import Batch, Family
from scrapy_aopic.core.records import HOST_BYTES, PAGE_BYTES, Link, PageState, unpack_page
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.core.shard import Shard, ShardId
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.spread import counts_of
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.job_view import View

pytestmark = pytest.mark.slow

OF = 3
HOSTS = [host for number in range(OF) for host in hosts_of(number, OF, 2)]
STEPS = int(os.environ.get("AOPIC_STEPS", "4000"))

LINKS = st.builds(
    lambda host, number, value: replace(link(host, number), value=value, weight=value, lead=lead(value)),
    st.sampled_from(HOSTS),
    st.integers(0, 2),
    st.sampled_from([1, 100, LARGEST_VALUE]),
)
SHARDS = st.integers(0, OF - 1)
PICK = st.integers(0, 1000)


@dataclass
class Event:
    """A step of one shard: what pages were granted and paid, wherever they are, what one spent, and which it said it is."""

    links: list[Link]
    got: list[int]
    spent: tuple[bytes, int] = (b"", 0)
    same: bytes = b""
    is_seed: bool = False


@dataclass
class Process:
    """A process that runs a shard; only the last one that opened a store may write it (fencing)."""

    shard: Shard
    begin: int  # events that had landed when it was opened
    events: list[Event] = field(default_factory=list)
    flying: tuple[Batch, int] | None = None  # with the number of its events


def stored_importance(stores: list[MemoryStore]) -> tuple[list[float], int]:
    """The importance of each page in *stores*, and the weight of all of them."""
    found, whole = [], 0
    for view in View(stores).stores:
        saved = read_totals(view)
        if saved is not None:
            estimate = saved.estimate()
            weights = [estimate.weight(unpack_page(data)) for _, data in view.scan(Family.PAGES)]
            found += map(estimate.importance, weights)
            whole += sum(weights)
    return found, whole


class Mail(RuleBasedStateMachine):
    """Several processes, their stores, and whatever is on the wire between them."""

    @initialize(
        order=st.sampled_from(["cash", "aopic", "focused"]),
        recrawl=st.sampled_from([None, Recrawl(100.0, 1000.0, 0.5)]),
        page_cache=st.sampled_from([1, 1000]),
        is_spread=st.booleans(),
        seeds=st.lists(LINKS, min_size=2, max_size=4, unique_by=lambda of: of.key),
    )
    def begin(self, *, order, recrawl, page_cache, is_spread, seeds):
        self.now = NOW
        self.policy = Policy(
            **({"order": by_cash() if order == "cash" else ORDERS[order]()} if order != "aopic" else {}),
            politeness=Politeness(10.0, 0.5, 30.0),
            share=0.25,
            recrawl=recrawl,
            page_cache=page_cache,
            **({"domain_of": lambda _: "d", "spread": frozenset({"d"})} if is_spread else {}),
        )
        self.stores = [MemoryStore() for _ in range(OF)]
        self.landed: list[list[Event]] = [[] for _ in range(OF)]
        self.letters: list[tuple[int, bytes]] = []  # on the wire, with the shards that they are for
        self.words: list[tuple[int, int, int]] = []  # acknowledgements: sender of letters, receiver, number
        self.zombies: list[Process] = []
        self.processes = [self.opened(number) for number in range(OF)]
        for of in [*seeds, *(link(host) for host in HOSTS[::2])]:
            self.seed(of, self.owner(of))

    def opened(self, number: int) -> Process:
        shard = Shard(self.stores[number], self.policy, self.now, ShardId(number, OF))
        return Process(shard, len(self.landed[number]))

    def owner(self, of: Link) -> int:
        return self.processes[0].shard.shard_of(of.host)

    # -- what a worker does

    @rule(seconds=st.sampled_from([1, 40, 300]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(of=LINKS, at=SHARDS)
    def seed(self, of, at):
        process = self.processes[at]
        if self.owner(of) == at:
            if process.shard.seed(of, self.now):
                page = process.shard.page(of.key)
                process.events.append(Event([of], [page.cash], is_seed=True))
        else:  # what its virtual page grants is not known here
            process.shard.seed(of, self.now, is_endowed=False)
            process.events.append(Event([of], [0], is_seed=True))

    @rule(
        at=SHARDS,
        links=st.lists(LINKS, max_size=6, unique_by=lambda of: of.key),
        same=st.none() | LINKS,
        is_failure=st.sampled_from([False] * 5 + [True]),
        announced=st.sampled_from([0, 0, 0, 2]),
        commits=st.booleans(),
    )
    def visit(self, *, at, links, same, is_failure, announced, commits):
        self.now += 1
        self.lease_and_settle(at, links, same, is_failure=is_failure, announced=announced, commits=commits)
        if commits:
            self.commit(at)

    def lease_and_settle(self, at, links=(), same=None, *, is_failure=False, announced=0, commits=False):
        process = self.processes[at]
        lease = process.shard.lease(self.now)
        if not isinstance(lease, Lease):
            return lease
        process.shard.defer(lease.key[:HOST_BYTES], self.now + 0.5, 0.1)
        process.shard.release(lease, self.now)
        if same is not None:
            links = [same, *(of for of in links if of.key != same.key)]
        if announced:
            early, links = links[:announced], links[announced:]
            given = process.shard.announce(lease, early, self.now)
            targets = [of for of in early if of.key != lease.key]
            process.events.append(Event(targets, [0] * len(targets)))
            if commits:
                self.commit(at)
            links = [*given, *links]
        found = Findings(
            outcome="http 404" if is_failure else "redirect" if same is not None else "",
            is_failure=is_failure,
            same_as=same.key if same is not None else b"",
            version=Version(b"%d" % process.shard.frontier.budgets.visits),
        )
        settled = process.shard.settle(lease, links, self.now, found)
        targets = [of for of in links if of.key != lease.key]
        assert len(settled.paid) == len(targets)
        process.events.append(Event(targets, list(settled.paid), (lease.key, lease.cash), found.same_as))
        return lease

    @rule(at=SHARDS)
    def hear_of_the_others(self, at):
        others = [process.shard for number, process in enumerate(self.processes) if number != at]
        sums = reduce(Sums.plus, [other.sums for other in others], NOWHERE)
        self.processes[at].shard.learn(sums, counts_of(other.spread for other in others))

    # -- commits and ends

    @rule(at=SHARDS)
    def take(self, at):
        process = self.processes[at]
        if process.flying is None:
            process.flying = process.shard.take_changes(self.now), len(process.events)

    @rule(at=SHARDS, ending=st.sampled_from(["landed", "landed", "lost", "written, but said to be lost"]))
    def end_of_a_commit(self, at, ending):
        process = self.processes[at]
        if process.flying is None:
            return
        if ending != "lost":
            self.write(at, process)
        process.flying = None
        if ending == "landed":
            process.shard.changes_landed()
        else:
            process.shard.changes_failed()

    @rule(at=SHARDS)
    def commit(self, at):
        """What most commits are; each of its parts is a rule of its own, too, and so are those of the mail."""
        self.end_of_a_commit(at, "landed")
        self.take(at)
        self.end_of_a_commit(at, "landed")

    @rule(
        times=st.integers(1, 2),
        is_reversed=st.booleans(),
        is_lost=st.booleans(),
        commits=st.booleans(),
        expected=st.integers(0, 2),
    )
    def deliver(self, times, is_reversed, is_lost, commits, expected):
        """All that may leave arrives, maybe twice, or one by one out of order, or without what comes first."""
        for at, process in enumerate(self.processes):
            for to in process.shard.mail.waiting():
                letters = process.shard.letters(to, n=1000)[int(is_lost) :] * times
                self.letters += [(to, data) for data in letters[:2]]
                receive = self.processes[to].shard.receive
                for data in letters[:expected]:
                    self.processes[to].shard.expect(data)
                if is_reversed:
                    for data in letters[::-1]:
                        receive([data], self.now)
                else:
                    receive(letters, self.now)
            if commits:
                self.commit(at)

    @rule(at=SHARDS, order=st.permutations(["deliver", "words", "commit"]))
    def die_with_mail(self, at, order):
        """A shard gets mail, says so, commits, in any order; and then dies."""
        for step in order:
            if step == "commit":
                self.commit(at)
            for other, process in enumerate(self.processes):
                if other != at and step == "deliver" and at in process.shard.mail.waiting():
                    self.processes[at].shard.receive(process.shard.letters(at, n=1000), self.now)
                landed = self.processes[at].shard.mail.received_landed()
                if other != at and step == "words" and other in landed:
                    process.shard.acknowledged(at, landed[other])
        self.take_over(at, is_written=False, later=0, lives_on=False)

    @rule(at=SHARDS, gets=st.booleans())
    def die_in_a_commit(self, at, gets):
        """A process dies while its batch is written: what it wrote to others, and said of their mail, counts for nothing."""
        own = self.processes[at].shard
        others = [number for number in range(OF) if number != at]
        self.end_of_a_commit(at, "landed")
        if gets:
            for number in others:
                if at in self.processes[number].shard.mail.waiting():
                    own.receive(self.processes[number].shard.letters(at, n=1000), self.now)
        self.take(at)
        for number in others:
            other = self.processes[number].shard
            other.receive(own.letters(number, n=1000), self.now)
            if number in own.mail.received_landed():
                other.acknowledged(at, own.mail.received_landed()[number])
            self.commit(number)
        self.take_over(at, is_written=False, later=0, lives_on=False)

    def write(self, at: int, process: Process) -> None:
        batch, n = process.flying
        self.stores[at].write(batch, sync=True)
        # What a failed commit has left there is in the next one once more.
        self.landed[at][process.begin :] = process.events[:n]
        assert audit(self.stores[at]).violations == []

    @rule(at=SHARDS, is_written=st.booleans(), later=st.sampled_from([0, 7]), lives_on=st.booleans())
    def take_over(self, at, is_written, later, lives_on):
        """A process dies, or is taken for dead; another one opens the last commit."""
        process = self.processes[at]
        if process.flying is not None and is_written:
            self.write(at, process)
        if lives_on:
            self.zombies.append(process)
        self.now += later
        self.processes[at] = self.opened(at)

    # -- the wire

    @rule(pick=PICK, after=st.integers(0, 3), is_zombie=st.booleans())
    def send(self, pick, after, is_zombie):
        """Letters leave, some of them not for the first time; also from a process that has lost its shard."""
        those = self.zombies if is_zombie and self.zombies else self.processes
        shard = those[pick % len(those)].shard
        try:
            self.letters += [
                (to, data) for to in shard.mail.waiting() for data in shard.letters(to, after, n=3)
            ]
        except StorageError:
            assert those is self.zombies  # its successor was told that they have arrived

    @precondition(lambda self: self.letters)
    @rule(pick=PICK, n=st.integers(1, 3), keeps=st.booleans(), is_reversed=st.booleans())
    def arrive(self, pick, n, keeps, is_reversed):
        to = self.letters[pick % len(self.letters)][0]
        those = [each for each in self.letters if each[0] == to][-n:]
        if not keeps:
            for each in those:
                self.letters.remove(each)
        data = [each for _, each in (reversed(those) if is_reversed else those)]
        self.processes[to].shard.receive(data, self.now)

    @precondition(lambda self: self.letters)
    @rule(pick=PICK)
    def lose(self, pick):
        self.letters.pop(pick % len(self.letters))

    @rule(at=SHARDS)
    def send_words(self, at):
        for sender, number in self.processes[at].shard.mail.received_landed().items():
            self.words.append((sender, at, number))

    @precondition(lambda self: self.words)
    @rule(pick=PICK, keeps=st.booleans())
    def words_arrive(self, pick, keeps):
        place = pick % len(self.words)
        sender, receiver, number = self.words[place] if keeps else self.words.pop(place)
        self.processes[sender].shard.acknowledged(receiver, number)

    # -- what must hold

    @invariant()
    def cash_is_conserved_on_the_disks(self):
        if hasattr(self, "stores"):
            whole = audit_shards(self.stores, str)
            assert whole.violations == []
            assert whole.cash + whole.in_transit == OF * TOTAL
            for process in self.processes:
                assert check(process.shard.frontier) == []
            importance, whole = stored_importance(self.stores)
            assert abs(fsum(importance) - bool(whole)) <= ROUNDING

    def teardown(self):
        if not hasattr(self, "stores"):
            return
        self.everything_arrives()
        self.accounts_are_right()
        # Whatever waits is visited: nothing is known and forgotten.
        for at, process in enumerate(self.processes):
            for _ in range(200):
                found = self.lease_and_settle(at)
                if not isinstance(found, Lease):
                    self.now = getattr(found, "instant", self.now)
            if self.policy.recrawl is None:
                assert process.shard.counts.queued == 0
        self.everything_arrives()
        self.accounts_are_right()

    def everything_arrives(self):
        for _ in range(50):
            for at, process in enumerate(self.processes):
                while process.flying is not None or process.shard.has_changes:
                    self.take(at)
                    self.end_of_a_commit(at, "landed")
            n = 0
            for at, process in enumerate(self.processes):
                for sender, number in process.shard.mail.received_landed().items():
                    self.processes[sender].shard.acknowledged(at, number)
            for process in self.processes:
                for to in process.shard.mail.waiting():
                    letters = process.shard.letters(to, n=1000)
                    n += self.processes[to].shard.receive(letters, self.now).applied
            if not n and not any(process.shard.mail.waiting() for process in self.processes):
                whole = audit_shards(self.stores, str)
                assert (whole.letters, whole.violations) == (0, [])
                return
        raise AssertionError("mail goes round for ever")

    def accounts_are_right(self):
        events = [event for landed in self.landed for event in landed]
        links = {of.key: of for event in events for of in event.links}
        pages = {}
        for key, of in links.items():
            shard = self.processes[self.owner(of)].shard
            pages[key] = shard.page(key)
            assert pages[key] is not None, "a link was lost"
        known = sum(sum(process.shard.counts[:3]) for process in self.processes)
        assert known == len(pages), "a page is known that nobody links to"
        due = dict.fromkeys(pages, 0)
        for event in events:
            for of, units in zip(event.links, event.got, strict=True):
                due[of.key] += units
            if event.spent[0]:
                due[event.spent[0]] -= event.spent[1]
        # Pages that are one, or were one for a while, have the cash of all of them together.
        group = {key: key for key in pages}
        for event in events:
            if event.same:
                one, other = group[event.spent[0]], group[event.same]
                group = {key: one if of == other else of for key, of in group.items()}
        for root in set(group.values()):
            keys = [key for key in pages if group[key] == root]
            if any(pages[key].state == PageState.FAILED for key in keys):
                continue  # its cash went to a virtual page
            cash = [self.processes[self.owner(links[key])].shard.ledger.cash(pages[key]) for key in keys]
            assert sum(cash) == sum(due[key] for key in keys)
        for key, page in pages.items():
            at, hops = key, 0
            while pages[at].canonical:
                at, hops = pages[at].canonical[:PAGE_BYTES], hops + 1
                assert hops <= len(pages), "pages are one in a circle"
            if at != key:
                assert (page.cash, page.history) == (0, 0)
        if self.policy.order.values_links:
            self.values_are_right(events, pages, links)
        self.importance_adds_up(pages, links)

    def importance_adds_up(self, pages, links):
        for at in range(OF):
            self.hear_of_the_others(at)
        importance = [
            self.processes[self.owner(of)].shard.ledger.importance(pages[key]) for key, of in links.items()
        ]
        stored, whole = stored_importance(self.stores)
        assert abs(fsum(importance) - bool(whole)) <= ROUNDING  # it is 0 where no page weighs anything
        assert sorted(importance) == sorted(stored)

    def values_are_right(self, events, pages, links):
        """A page that waits has the value of the best of the links to it, and what is to be kept of that."""
        seeds = {of.key for event in events if event.is_seed for of in event.links}
        best = {}
        for event in events:
            for of in event.links:
                best[of.key] = max(best.get(of.key, 0), of.value)
        for key in pages.keys() - seeds:
            if pages[key].state == PageState.QUEUED and not pages[key].visits:
                assert pages[key].score & LARGEST_VALUE == best[key]
                shard = self.processes[self.owner(links[key])].shard
                assert shard.lead(key) == lead(best[key])


TestMail, TestLongMail = walks(Mail, examples=STEPS // 50, steps=50)

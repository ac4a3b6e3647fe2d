"""The promises of :class:`~scrapy_aopic.core.api.CrawlPort` as tests; needs pytest and Hypothesis.

A frontier passes when this passes::

    class TestMine(CrawlContract):
        def make_crawl(self, store, now):
            return MyCrawl(store, now)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scrapy_aopic.core.api import CrawlPort, Ending, Findings, Lease, Settled
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.politeness import Outcome, TransferResult
from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.exceptions import CallError
from scrapy_aopic.storage.memory import MemoryStore

NOW = 1_000_000_000.0


def link(host: str, number: int = 0) -> Link:
    """A link to page *number* of *host*."""
    return Link(page_key(host_key(host), number.to_bytes(4, "big")), host, f"{host}/{number}".encode())


A, A2, A3, B = link("a"), link("a", 2), link("a", 3), link("b")

# What cannot be right, by the words of the message.
WRONG: list[tuple[str, list[Link], dict[str, Any]]] = [
    ("16 bytes", [replace(B, key=b"short")], {}),
    ("begin with", [replace(B, host="c")], {}),
    ("begin with", [A2, replace(B, key=B.key[8:] + B.key[:8])], {}),
    ("weight", [replace(B, weight=-1)], {}),
    ("n_links", [B], {"n_links": -1}),
    ("weight", [B], {"weight": -1}),
    ("same_as", [B], {"same_as": b"short"}),
]


class Runner:
    """A crawl with its store and its time, which moves on where it must.

    Attributes:
        leases: All that were ever given.
    """

    def __init__(self, make: Callable[[Store, float], CrawlPort]) -> None:
        self._make = make
        self.now = NOW
        self.store = MemoryStore()
        self.crawl = make(self.store, self.now)
        self.leases: list[Lease] = []

    def try_lease(self) -> Lease | None:
        """The next page, later if it must be; ``None`` if only what is in work could bring one."""
        while not isinstance(found := self.crawl.lease(self.now), Lease):
            if isinstance(found, Empty):
                return None
            assert isinstance(found, NotBefore), found
            assert self.now < found.instant < math.inf, "it is said to be possible, but nothing was leased"
            self.now = found.instant
        self.leases.append(found)
        return found

    def lease(self, of: Link | None = None) -> Lease:
        """The next page; that *of* a link."""
        lease = self.try_lease()
        assert lease is not None, "nothing waits"
        assert of is None or lease.key == of.key
        return lease

    def release(self, lease: Lease) -> Ending:
        """The transfer of *lease* is over; its host is left alone."""
        self.crawl.transferred(lease.host, TransferResult(0.1, Outcome.ANSWER), self.now)
        return self.crawl.release(lease, self.now)

    def settle(self, lease: Lease, *links: Link, **how: Any) -> Settled:
        return self.crawl.settle(lease, links, self.now, Findings(**how))

    def put_back(self, lease: Lease) -> Ending:
        return self.crawl.put_back(lease, Link(lease.key, lease.host, lease.request), self.now)

    def visit(self, *links: Link) -> Lease:
        """Visit the next page, which has *links*."""
        lease = self.lease()
        assert self.release(lease) == Ending.OK
        assert self.settle(lease, *links).ending == Ending.OK
        return lease

    def commit(self) -> None:
        """Write all changes; nothing may be lost or made up."""
        self.store.write(self.crawl.take_changes(self.now), sync=True)
        assert not self.crawl.has_changes
        self.crawl.changes_landed()
        assert audit(self.store).violations == []

    def reopen(self) -> None:
        """Start a new run; what was not committed is lost."""
        self.now += 100_000.0  # longer than any pause after a crash
        self.crawl = self._make(self.store, self.now)


class CrawlContract:
    """Inherit, make the crawl, and every promise of the port is tested."""

    def make_crawl(self, store: Store, now: float) -> CrawlPort:
        """A crawl on *store*, which may hold one from before; it visits each page once."""
        raise NotImplementedError

    @pytest.fixture
    def run(self) -> Runner:
        return Runner(self.make_crawl)

    # A visit

    def test_what_is_seeded_is_leased_and_what_it_links_to_is_paid(self, run: Runner) -> None:
        assert run.crawl.seed(A, run.now)
        assert not run.crawl.seed(A, run.now)
        lease = run.lease(A)
        assert (lease.host, lease.request, lease.visits) == ("a", A.request, 0)
        assert run.release(lease) == Ending.OK
        ending, paid = run.settle(lease, A2, B)
        assert ending == Ending.OK
        assert len(paid) == 2
        assert all(units > 0 for units in paid)
        assert run.crawl.counts == (2, 1, 0, 2)
        run.commit()

    def test_nothing_waits_in_a_new_crawl_or_beside_what_is_in_flight(self, run: Runner) -> None:
        assert run.crawl.lease(run.now) == Empty()
        run.crawl.seed(A, run.now)
        run.lease(A)
        assert run.crawl.lease(run.now) == Empty()

    def test_a_host_is_not_asked_before_it_is_released_and_its_gap_is_over(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        run.crawl.seed(A2, run.now)
        lease = run.lease()
        assert not isinstance(run.crawl.lease(run.now + 1e6), Lease)
        gap = run.crawl.transferred("a", TransferResult(0.1, Outcome.ANSWER), run.now)
        run.crawl.release(lease, run.now)
        assert gap.own > 0
        assert run.crawl.lease(run.now) == NotBefore(run.now + gap.own)
        assert isinstance(run.crawl.lease(run.now + gap.own), Lease)

    def test_a_page_that_was_put_back_is_leased_once_more_with_its_cash(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        lease = run.lease(A)
        run.release(lease)
        assert run.put_back(lease) == Ending.OK
        again = run.lease(A)
        assert again.cash == lease.cash
        assert again.number > lease.number
        run.commit()

    # Leases that are held no more

    def test_a_lease_is_settled_once(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        lease = run.visit(B)
        counts = run.crawl.counts
        assert run.settle(lease, A2) == Settled(Ending.DUP)
        assert run.put_back(lease) == Ending.DUP
        assert run.crawl.release(lease, run.now) == Ending.DUP
        assert run.crawl.counts == counts
        run.commit()

    def test_a_lease_that_was_put_back_does_not_end_the_next_one_of_its_page(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        first = run.lease(A)
        run.release(first)
        run.put_back(first)
        run.crawl.seed(replace(A, again=True), run.now)  # one more request, which gets half of the cash
        run.commit()
        second = run.lease()
        run.release(second)
        assert run.settle(first, B) == Settled(Ending.DUP)
        run.commit()
        assert run.settle(second, B).ending == Ending.OK
        run.commit()

    def test_a_release_that_comes_late_does_not_release_the_host_for_another_page(self, run: Runner) -> None:
        for page in (A, A2, A3):
            run.crawl.seed(page, run.now)
        first = run.lease()
        run.release(first)
        second = run.lease()
        assert run.crawl.release(first, run.now) == Ending.DUP
        assert not isinstance(run.crawl.lease(run.now + 1e6), Lease)
        assert run.crawl.release(second, run.now) == Ending.OK
        assert run.settle(first).ending == Ending.OK  # its links came later

    def test_a_lease_of_another_run_is_stale(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        old = run.lease(A)
        run.commit()
        run.reopen()
        assert run.settle(old, B) == Settled(Ending.STALE)
        assert run.put_back(old) == Ending.STALE
        assert run.crawl.release(old, run.now) == Ending.STALE
        new = run.lease(A)
        assert new.number > old.number
        assert run.settle(old, B) == Settled(Ending.STALE)
        assert run.crawl.release(old, run.now) == Ending.STALE
        assert run.release(new) == Ending.OK
        assert run.settle(new, B).ending == Ending.OK
        run.commit()

    # Arguments

    @pytest.mark.parametrize(("words", "links", "how"), WRONG)
    def test_a_call_that_cannot_be_right_changes_nothing(
        self, run: Runner, words: str, links: list[Link], how: dict[str, Any]
    ) -> None:
        run.crawl.seed(A, run.now)
        lease = run.lease(A)
        run.commit()
        counts = run.crawl.counts
        with pytest.raises(CallError, match=words):
            run.settle(lease, *links, **how)
        assert run.crawl.counts == counts
        run.commit()
        assert run.release(lease) == Ending.OK
        assert run.settle(lease, B).ending == Ending.OK
        run.commit()

    def test_a_seed_that_cannot_be_found_again_is_refused(self, run: Runner) -> None:
        for wrong in (replace(A, key=b"short"), replace(A, host="b")):
            with pytest.raises(CallError):
                run.crawl.seed(wrong, run.now)
        assert run.crawl.counts == (0, 0, 0, 0)
        assert run.crawl.lease(run.now) == Empty()

    # Commits

    def test_what_was_not_written_did_not_happen(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        run.commit()
        run.visit(B)
        run.reopen()
        assert run.crawl.counts == (1, 0, 0, 1)
        run.visit(B)
        run.commit()
        run.reopen()
        assert run.crawl.counts == (1, 1, 0, 2)

    def test_a_batch_that_did_not_land_is_in_the_next_one(self, run: Runner) -> None:
        run.crawl.seed(A, run.now)
        run.crawl.take_changes(run.now)
        run.visit(B)
        run.crawl.changes_failed()
        assert run.crawl.has_changes
        run.commit()
        run.reopen()
        assert run.crawl.counts == (1, 1, 0, 2)

    # Everything together

    def test_whatever_is_said_of_whatever_lease_no_cash_and_no_page_is_lost(self) -> None:
        @settings(derandomize=True, max_examples=100, deadline=None, database=None)
        @given(st.randoms(use_true_random=False), st.integers(1, 60))
        def walk(dice: Random, n: int) -> None:
            self._walk(dice, n)

        walk()

    def _walk(self, dice: Random, n: int) -> None:
        run = Runner(self.make_crawl)
        held: set[int] = set()  # numbers of the leases that were not ended
        asking: set[int] = set()  # and of those that were not released
        run.crawl.seed(A, run.now)
        for _ in range(n):
            step = dice.choice(("lease", "release", "settle", "put back", "commit", "reopen"))
            lease = dice.choice(run.leases) if run.leases else None
            if step == "reopen":
                run.commit()
                run.reopen()
                held.clear()
                asking.clear()
            elif step == "commit":
                run.commit()
            elif step == "lease" or lease is None:
                if (new := run.try_lease()) is not None:
                    held.add(new.number)
                    asking.add(new.number)
            elif step == "release":
                assert (run.release(lease) == Ending.OK) == (lease.number in asking)
                asking.discard(lease.number)
            else:
                links = [link(dice.choice("abc"), dice.randrange(5)) for _ in range(dice.randrange(4))]
                ending = run.settle(lease, *links).ending if step == "settle" else run.put_back(lease)
                assert (ending == Ending.OK) == (lease.number in held)
                held.discard(lease.number)
        run.commit()

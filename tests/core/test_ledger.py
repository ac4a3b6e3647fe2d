from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from string import ascii_letters
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from support.naming import case

from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL, Ledger, Totals
from scrapy_aopic.core.records import MOST_CLICKS, Page, PageState, pack, unpack
from scrapy_aopic.core.spending import N_PAGE_CLASSES, SPENDING, Spending, page_class
from scrapy_aopic.core.window import Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOREVER = Window(1e18)


class Web:
    """Pages by name on one ledger; *cash* is what they hold at first, *virtual* what the virtual page holds."""

    def __init__(self, cash: Mapping[str, int], virtual: int = 0, **how) -> None:
        self.ledger = Ledger(Totals(virtual=virtual), how.pop("window", FOREVER), **{"endowment": 0.0, **how})
        self.pages: dict[str, Page] = {}
        for name, units in cash.items():
            self.admit(name, units)
        self.whole = virtual + sum(cash.values())

    def admit(self, name: str, units: int = 0) -> Page:
        page = self.pages[name] = Page(PageState.QUEUED, len(self.pages))
        self.ledger.admit(page, units)
        return page

    def visit(self, name: str, links: str = "", *, spent: int | None = None, n_links: int = 0, **how) -> int:
        """Visit page *name* that links to each letter of *links*; returns what each of them was paid."""
        each, *others = self.visit_weighed(name, links, [1] * len(links), spent, n_links, **how) or [0]
        assert others == [each] * len(others)
        return each

    def visit_weighed(
        self, name: str, links: str, weights: list[int], spent: int | None = None, n_links: int = 0, **how
    ) -> list[int]:
        """Visit page *name* whose links, the letters of *links*, have *weights*; returns what they were paid."""
        page = self.pages[name]
        self.ledger.catch_up(page)
        spent = page.cash if spent is None else spent
        paid = self.ledger.visit(page, spent, weights, max(n_links, len(links)), 0.0, **how)
        for target, units in zip(links, paid, strict=True):
            self.ledger.catch_up(self.pages[target])
            self.ledger.pay(self.pages[target], units)
        assert self.virtual + sum(self.cash.values()) == self.whole
        return paid

    @property
    def cash(self) -> dict[str, int]:
        return {name: self.ledger.cash(page) for name, page in self.pages.items()}

    @property
    def virtual(self) -> int:
        return self.ledger.totals.virtual


# -- links that differ in weight


@given(
    spent=st.integers(0, TOTAL // 2) | st.integers(0, 3000),
    weights=st.lists(st.integers(0, 10**9) | st.integers(0, 3), min_size=1, max_size=20),
    share=st.none() | st.floats(0, 1),
    dropped=st.integers(0, 10**9),
)
def test_whatever_links_weigh_none_loses_a_unit_and_the_heavier_gets_no_less(spent, weights, share, dropped):
    names = ascii_letters[1 : 1 + len(weights)]
    web = Web({"a": spent, **dict.fromkeys(names, 0)}, TOTAL - spent, share=share, endowment=6.0)
    whole = sum(weights) + dropped
    virtual = web.virtual
    paid = web.visit_weighed("a", names, weights, whole=whole, domain_visited=3)  # compares the sum
    amount = spent + web.ledger.totals.virtual_distributed
    shared = amount - int(amount * (1 / (len(weights) + 1) if share is None else share))
    assert paid == [shared * weight // whole if whole else 0 for weight in weights]
    assert sum(paid) + web.virtual == spent + virtual
    ranked = sorted(zip(weights, paid, strict=True))
    assert [units for _, units in ranked] == sorted(paid)


# -- the endowment


def endowed(domain_visited: int | None, clicks: int = 0, **how) -> int:
    """What the virtual page adds when a page without cash is visited that has one link."""
    web = Web({"a": 0, "b": 0}, virtual=TOTAL, **{"share": 0.0, "endowment": 6.0, **how})
    web.pages["a"].clicks = clicks
    return web.visit("a", "b", domain_visited=domain_visited)


def test_the_endowment_fades_with_clicks_inside_the_host():
    seed = TOTAL >> SEED_SHIFT
    assert [endowed(0, clicks) for clicks in (0, 8, 16)] == [6 * seed, 3 * seed, 3 * seed // 2]
    amounts = [endowed(0, clicks) for clicks in range(MOST_CLICKS + 1)]
    assert all(first > second for first, second in pairwise(amounts[:200]))
    assert amounts[-1] == 0


# -- the virtual page visits itself


def test_less_than_a_unit_for_each_is_not_spent():
    web = Web(dict.fromkeys("abc", 0), virtual=2, spending="unvisited")
    assert not web.ledger.spend_virtual(0)
    assert web.virtual == 2


# -- what all pages have together


def test_before_any_cash_is_out_nothing_is_important():
    web = Web({"a": 0}, virtual=TOTAL)
    assert web.ledger.importance(web.pages["a"]) == 0.0


def test_totals_can_be_written_and_read_even_when_they_outgrow_64_bits():
    totals = Totals(5, 1 << 90, 1 << 91, 1 << 92, 2.5, (1 << 93, 1 << 94, 0, 6), [5, 6, 0, 1], (1 << 95, 7))
    assert convert(unpack(pack(asdict(totals))), Totals) == totals


def test_a_turn_is_as_much_cash_distributed_as_pages_hold():
    web = Web({"a": 600, "b": 200}, virtual=TOTAL - 800, share=0.0)
    web.visit("a", "b")
    assert web.ledger.totals.turn == 600 / 800
    web.visit("b", "a")
    assert web.ledger.totals.turn == (600 + 800) / 800


# -- against accounts in plain dictionaries


class Accounts:
    """What each page received and spent; the virtual page really visits every page that it hands cash to."""

    def __init__(self, share: float | None, endowment: float, spending: str) -> None:
        self.share, self.endowment, self.spending = share, endowment, spending
        self.virtual = TOTAL
        self.received: Counter[int] = Counter()
        self.spent: Counter[int] = Counter()
        self.visited: set[int] = set()
        self.known: set[int] = set()
        self.chosen = range(0, 1000, 3)  # pages of chosen domains

    def class_of(self, page: int) -> int:
        return page_class(is_visited=page in self.visited, is_chosen=page in self.chosen)

    def cash(self, page: int) -> int:
        return self.received[page] - self.spent[page]

    def pay(self, page: int, units: int) -> None:
        self.virtual -= units
        self.received[page] += units
        self.known.add(page)

    def hand_out(self, rival: int) -> None:
        members = [page for page in self.known if self.class_of(page) in SPENDING[self.spending].classes]
        if self.virtual > rival and members:
            each = self.virtual // len(members)
            for page in members:
                self.pay(page, each)

    def visit(self, page: int, links: Sequence[int], n_links: int, domain_visited: int) -> None:
        units = self.cash(page)
        self.spent[page] += units
        self.visited.add(page)
        if links and SPENDING[self.spending].endows:
            units_endowed = int((self.virtual >> SEED_SHIFT) * self.endowment / (1 + domain_visited / 10))
        else:
            units_endowed = 0
        self.virtual += units
        whole = units + units_endowed
        for target in links:
            self.pay(
                target,
                (whole - int(whole * (1 / (n_links + 1) if self.share is None else self.share))) // n_links,
            )


@pytest.mark.crossed
@pytest.mark.parametrize("spending", SPENDING)
@pytest.mark.parametrize("share", [0.15, 0.0, None])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_page_holds_and_ever_spent_is_what_it_ever_received(spending, share, seed):
    dice = random.Random(seed)
    graph = {
        page: dice.sample(range(50), 12 if page < 3 else dice.choice((0, 1, 2, 5, 12))) for page in range(50)
    }
    accounts = Accounts(share, 6.0, spending)
    ledger = Ledger(Totals(), FOREVER, share=share, endowment=6.0, spending=spending)
    pages: dict[int, Page] = {}

    def admit(number: int, units: int) -> None:
        pages[number] = Page(PageState.QUEUED, number, is_chosen=number in accounts.chosen)
        ledger.admit(pages[number], units)

    for number in range(3):
        admit(number, 0)
        accounts.pay(number, ledger.grant(pages[number]))
    for step in range(600):
        number = dice.choice(sorted(pages)) if dice.random() < 0.3 else max(sorted(pages), key=accounts.cash)
        page = pages[number]
        accounts.hand_out(accounts.cash(number))
        ledger.spend_virtual(ledger.cash(page))
        links = [target for target in graph[number] if target != number]
        kept = [target for target in links if dice.random() < 0.9]
        domain_visited = dice.randrange(30)
        accounts.visit(number, kept, len(links), domain_visited)
        units = ledger.visit(
            page, ledger.cash(page), [1] * len(kept), len(links), float(step), domain_visited=domain_visited
        )
        for target, each in zip(kept, units, strict=True):
            if target in pages:
                ledger.catch_up(pages[target])
                pages[target].cash += each
            else:
                admit(target, each)
        totals = ledger.totals
        cash = {number: ledger.cash(page) for number, page in pages.items()}
        assert totals.virtual + sum(cash.values()) == TOTAL
        assert (totals.virtual, cash) == (accounts.virtual, {page: accounts.cash(page) for page in pages})
        assert totals.distributed == sum(accounts.spent.values())
        classes = Counter(map(accounts.class_of, pages))
        assert totals.members == [classes[each] for each in range(N_PAGE_CLASSES)]
        assert totals.history == sum(page.history for page in pages.values())
    assert len(pages) > 40
    assert {number: cash[number] + accounts.spent[number] for number in pages} == dict(accounts.received)


# -- what the estimate tends to

STRONG = {0: [1, 2, 3], 1: [2], 2: [0], 3: [0, 4], 4: [5, 0, 1], 5: [3, 6], 6: [5, 2, 7], 7: [0]}


def fixpoint(share: float | None) -> dict[int, float]:
    """Importance of the pages of STRONG, by power iteration, when the virtual page links to all of them.

    Each page gives *share* to the virtual page (``None``: as much as to a link), which gives it to all alike. With
    a constant share that is PageRank with the damping 1 - share.
    """
    rank = dict.fromkeys(STRONG, 1 / len(STRONG))
    for _ in range(500):
        following = dict.fromkeys(STRONG, 0.0)
        for page, links in STRONG.items():
            part = 1 / (len(links) + 1) if share is None else share
            for target in links:
                following[target] += rank[page] * (1 - part) / len(links)
            for target in STRONG:
                following[target] += rank[page] * part / len(STRONG)
        rank = following
    return rank


@pytest.mark.parametrize("share", [0.15, 0.5, None])
def test_greedy_visits_estimate_the_fixpoint_of_the_share(share):
    """With 0.15 that is PageRank(0.85).

    The virtual page must give the same to *all* pages. It does when it spends on the visited ones and all are
    visited; endowments, or handing out to the unvisited only, tend to another fixpoint or none.
    """
    ledger = Ledger(Totals(), FOREVER, share=share, endowment=0.0, spending="visited")
    pages = {number: Page(PageState.QUEUED, number) for number in STRONG}
    for page in pages.values():
        ledger.admit(page)
        ledger.grant(page)
    for visits in range(2500):
        best = max(pages, key=lambda number: ledger.cash(pages[number])) if visits >= len(pages) else visits
        ledger.spend_virtual(ledger.cash(pages[best]))
        links = STRONG[best]
        units = ledger.visit(
            pages[best], ledger.cash(pages[best]), [1] * len(links), len(links), float(visits)
        )
        for target, each in zip(links, units, strict=True):
            ledger.catch_up(pages[target])
            pages[target].cash += each
    expected = fixpoint(share)
    assert sum(abs(ledger.importance(pages[number]) - expected[number]) for number in STRONG) < 0.02


def test_the_virtual_page_either_endows_or_hands_out():
    for how in [{}, {"endows": True, "classes": (0, 2)}]:
        with case(how), pytest.raises(ValueError, match="either endow visits or spend on classes of pages"):
            Spending("a new policy", **how)

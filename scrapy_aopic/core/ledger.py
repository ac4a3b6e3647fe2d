"""The AOPIC cash ledger: who holds how much cash, and where a visit sends it.

Rule 1: cash is conserved to the unit. The cash of all pages and of the virtual page is :data:`TOTAL` after
every step, compared with ``==``; what a division leaves over goes to the virtual page.

Rule 2: the virtual page spends in O(1). It endows single pages from its reserve, or hands the same number of
units to each page of a class by raising that class's running total; a page's cash is then
``cash + handed_now - settled``, and :meth:`Ledger.settle` folds the difference in when the page is touched.

Source: Abiteboul, Preda and Cobena, "Adaptive On-Line Page Importance Computation", WWW 2003; the endowment
with host decay is ours (docs/how-it-works.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from .records import FAILED, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .window import Window

TOTAL = (1 << 53) - 1
"""All cash there is: up to here a double counts exactly. Odd, so that the first seed has no binary digit more."""

SEED_SHIFT = 24
"""A seed gets 2**-24 of the virtual page: the reserve halves only after some ten million seeds or visits."""

ENDOWMENT_HALF_LIFE = 10
"""Visited pages of a host after which its pages are endowed with half as much."""

Spending: TypeAlias = Literal["endowment", "unvisited", "visited", "chosen"]

_CLASSES: dict[str, tuple[int, ...]] = {
    "endowment": (),
    "unvisited": (0, 2),
    "visited": (1, 3),
    "chosen": (2, 3),
}


@dataclass(slots=True)
class Totals:
    """The ledger's sums, all in units.

    Attributes:
        virtual: Cash of the virtual page.
        distributed: |H| without the virtual page's part: all cash that pages ever spent.
        virtual_distributed: All cash that the virtual page ever spent.
        history: Sum of the pages' histories.
        turn: Virtual time: |H| in units of the cash that pages hold, as it was at each distribution. What the
            virtual page keeps in reserve goes round with nobody, so it is not counted.
        handed: Units that each page of a class was handed so far: unvisited and visited pages, and then those of
            chosen domains, unvisited and visited.
        members: Pages in each of the four classes; pages that failed or were united with others are in none.
        newcomers: Sum and number of the histories of pages at their second visit.
    """

    virtual: int = TOTAL
    distributed: int = 0
    virtual_distributed: int = 0
    history: int = 0
    turn: float = 0.0
    handed: tuple[int, ...] = (0, 0, 0, 0)
    members: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    newcomers: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.members = list(self.members)  # a tuple if it was read from a store

    def owed(self, page: Page) -> int:
        """Units that the virtual page handed to *page* since its cash was last brought up to date."""
        return self.handed[class_of(page)] - page.settled if is_member(page) else 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """How important pages are, as of a moment.

    Attributes:
        window: The window, if pages are visited again and again: what a page has shown per window's length counts, up
            to this moment. Without it all cash that a page ever received counts, which is the same measure
            for pages that were visited once and for those that wait.
        now: Seconds since the epoch.
    """

    totals: Totals
    window: Window | None
    now: float

    def weight(self, page: Page) -> int:
        """Units that *page* counts for."""
        cash = page.cash + self.totals.owed(page)
        if self.window is None or not page.visits:
            return page.history + cash
        return self.window.history(page, cash, self.totals.turn, self.now)

    def importance(self, weight: int) -> float:
        """*weight* as a part of all history and of all cash that pages hold."""
        whole = self.totals.history + TOTAL - self.totals.virtual
        return weight / whole if whole else 0.0


def is_member(page: Page) -> bool:
    """Whether *page* is in a class: not if it failed or was united with another one."""
    return page.state != FAILED and not page.canonical


def class_of(page: Page) -> int:
    """Class of *page*: 0 or 1 whether it was visited, 2 more in a chosen domain."""
    return (page.visits > 0) + 2 * page.is_chosen


class Ledger:
    """Moves cash between pages and the virtual page.

    Args:
        totals: The sums, changed in place.
        window: What counts as history.
        share: Part of each distribution that goes to the virtual page, 0 to 1; ``None`` for 1/(links + 1) as in
            the paper. With 0.15 the fixpoint is PageRank(0.85).
        endowment: Cash that the virtual page adds to what a page distributes, in seeds' worth.
        spending: How the virtual page spends: by endowments, or evenly on unvisited pages, on visited pages, or on
            the pages of chosen domains.
        averages: Whether a page's history is the average of its class until its second visit, which is right if
            pages are visited again and again.
    """

    def __init__(
        self,
        totals: Totals,
        window: Window,
        *,
        share: float | None = 0.15,
        endowment: float = 6.0,
        spending: Spending = "endowment",
        averages: bool = False,
    ) -> None:
        self.totals = totals
        self.window = window
        self.share = share
        self.endowment = endowment if spending == "endowment" else 0.0
        self.averages = averages
        self._classes = _CLASSES[spending]
        self._has_handed = any(totals.handed)

    # -- pages come and change class

    def admit(self, page: Page, cash: int = 0) -> None:
        """Let a new page into its class with *cash* that the caller took from elsewhere."""
        page.cash = cash
        self._join(page)

    def grant(self, page: Page, worth: float = 1.0) -> int:
        """Give *page* the cash of *worth* seeds, at least 0, out of the virtual page; returns the units."""
        virtual = self.totals.virtual
        units = min(int((virtual >> SEED_SHIFT) * worth), virtual // 2)
        self.totals.virtual -= units
        page.cash += units
        return units

    def settle(self, page: Page) -> None:
        """Bring ``page.cash`` up to date with what the virtual page handed to its class."""
        if self._has_handed and (owed := self.totals.owed(page)):
            page.cash += owed
            page.settled += owed

    def cash(self, page: Page) -> int:
        """Cash of *page* as of now, without changing it."""
        return page.cash + self.totals.owed(page)

    def _join(self, page: Page) -> None:
        which = class_of(page)
        page.settled = self.totals.handed[which]
        self.totals.members[which] += 1

    def _count(self, page: Page, change: int) -> None:
        self.totals.members[class_of(page)] += change

    def _distributed(self, units: int) -> None:
        """Let virtual time pass because *units* are about to be distributed."""
        in_turn = TOTAL if self._classes else TOTAL - self.totals.virtual
        self.totals.turn += units / in_turn if in_turn else 0.0

    # -- a visit

    def visit(
        self,
        page: Page,
        spent: int,
        weights: Sequence[int],
        n_links: int,
        now: float,
        *,
        whole: int = 0,
        host_visited: int | None = None,
        is_plain: bool = True,
    ) -> list[int]:
        """Let *page* distribute *spent* of its cash over its links, of which those with *weights* are paid.

        The rest, with the virtual page's share, the filtered links' shares and the remainders, goes to the
        virtual page. The caller credits the returned units to the targets.

        Args:
            spent: Units, at most the page's settled cash: what it held when it was leased.
            weights: Whole numbers, 1 for each if links do not differ in weight.
            n_links: Distinct links without the page itself, at least as many as are paid.
            now: Seconds since the epoch.
            whole: Weight of all *n_links*, if they differ in weight; at least that of those that are paid.
            host_visited: Pages of its host, or of its registered domain, visited before, with which the endowment
                falls; ``None`` for no endowment.
            is_plain: Whether it is an ordinary page, for which averages count.

        Returns:
            Units for each link that is paid, in the order of *weights*.
        """
        totals = self.totals
        self.settle(page)
        page.cash -= spent
        self._distributed(spent)
        totals.distributed += spent
        amount = spent
        is_paying = any(weights)
        if is_paying and self.endowment and host_visited is not None:
            endowed = int(
                (totals.virtual >> SEED_SHIFT) * self.endowment / (1 + host_visited / ENDOWMENT_HALF_LIFE)
            )
            totals.virtual -= endowed
            totals.virtual_distributed += endowed
            amount += endowed
        paid = [0] * len(weights)
        if is_paying:
            share = self.share if self.share is not None else 1 / (n_links + 1)
            shared, whole = amount - int(amount * share), whole or n_links
            paid = [shared * weight // whole for weight in weights]
        totals.virtual += amount - sum(paid)
        if not page.visits:
            self._count(page, -1)  # it leaves the unvisited pages
        totals.history -= page.history
        known, n_known = totals.newcomers
        # An average over the few pages that are visited most would be too much for all the others.
        has_average = (
            self.averages and is_plain and n_known and 2 * n_known >= totals.members[1] + totals.members[3]
        )
        newcomer = known // n_known if has_average else -1
        self.window.visit(page, spent, totals.turn, now, newcomer)
        totals.history += page.history
        if page.visits == 1:
            self._join(page)
        elif page.visits == 2 and is_plain:
            totals.newcomers = (known + page.history, n_known + 1)
        return paid

    def fail(self, page: Page) -> int:
        """Let a visited page end for good: its cash goes to the virtual page; returns the units."""
        self.settle(page)
        units, page.cash = page.cash, 0
        self.totals.virtual += units
        self._count(page, -1)
        page.state = FAILED
        return units

    def revive(self, page: Page) -> None:
        """Let a page that failed, or was united with another one, be visited again; the caller sets its state."""
        page.canonical = b""
        self._join(page)

    def unite(self, page: Page, other: Page) -> None:
        """Move all cash and history of *page* to *other*, both of them visited; the caller sets ``canonical``."""
        self.settle(page)
        self.settle(other)
        other.cash += page.cash
        other.history += page.history
        other.marks = page.marks = ()  # its visits are no longer the whole of its history
        page.cash = page.history = 0
        self._count(page, -1)

    def forfeit(self, units: int) -> None:
        """Give *units*, which the caller took from elsewhere, to the virtual page."""
        self.totals.virtual += units

    def split(self, page: Page) -> int:
        """Take half of the cash of *page* for a second request for it; returns the units."""
        self.settle(page)
        half = page.cash // 2
        page.cash -= half
        return half

    def spend_virtual(self, rival: int) -> bool:
        """Let the virtual page visit itself if it holds more than *rival* units (greedy order of the paper).

        Returns:
            Whether units were handed out.
        """
        classes, totals = self._classes, self.totals
        if not classes:
            return False
        n = sum(totals.members[which] for which in classes)
        each = totals.virtual // n if n and totals.virtual > rival else 0
        if not each:
            return False
        spent = each * n
        self._distributed(spent)
        totals.virtual -= spent
        totals.virtual_distributed += spent
        self._has_handed = True
        totals.handed = tuple(
            units + each if which in classes else units for which, units in enumerate(totals.handed)
        )
        return True

    def importance(self, page: Page, now: float = 0.0) -> float:
        """Estimated importance of *page* at *now*, 0 to 1."""
        estimate = Estimate(self.totals, self.window if self.averages else None, now)
        return estimate.importance(estimate.weight(page))

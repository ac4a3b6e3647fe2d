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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from .records import Page, State

if TYPE_CHECKING:
    from .window import Window

TOTAL = (1 << 53) - 1
"""All cash there is: up to here a double counts exactly. Odd, so that the first seed has no binary digit more."""

SEED_SHIFT = 24
"""A seed gets 2**-24 of the virtual page: the reserve halves only after some ten million seeds or visits."""

ENDOWMENT_HALF_LIFE = 10
"""Visited pages of a host after which its pages are endowed with half as much."""

Spending: TypeAlias = Literal["endowment", "unvisited", "visited"]


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
        handed: Units that each page of a class was handed so far: unvisited pages, visited pages.
        members: Pages in each of the two classes; pages that failed are in none.
    """

    virtual: int = TOTAL
    distributed: int = 0
    virtual_distributed: int = 0
    history: int = 0
    turn: float = 0.0
    handed: tuple[int, int] = (0, 0)
    members: tuple[int, int] = (0, 0)

    def owed(self, page: Page) -> int:
        """Units that the virtual page handed to *page* since its cash was last brought up to date."""
        return 0 if page.state == State.FAILED else self.handed[page.visits > 0] - page.settled


class Ledger:
    """Moves cash between pages and the virtual page.

    Args:
        totals: The sums, changed in place.
        window: What counts as history.
        share: Part of each distribution that goes to the virtual page, 0 to 1; ``None`` for 1/(links + 1) as in
            the paper. With 0.15 the fixpoint is PageRank(0.85).
        endowment: Cash that the virtual page adds to what a page distributes, in seeds' worth.
        spending: How the virtual page spends: by endowments, or evenly on the pages of one class.
    """

    def __init__(
        self,
        totals: Totals,
        window: Window,
        *,
        share: float | None = 0.15,
        endowment: float = 6.0,
        spending: Spending = "endowment",
    ) -> None:
        self.totals = totals
        self.window = window
        self.share = share
        self.endowment = endowment if spending == "endowment" else 0.0
        self._class = {"endowment": None, "unvisited": 0, "visited": 1}[spending]

    # -- pages come and change class

    def admit(self, page: Page, cash: int = 0) -> None:
        """Let a new page into the unvisited class with *cash* that the caller took from elsewhere."""
        page.cash = cash
        page.settled = self.totals.handed[0]
        self._count(0, 1)

    def grant(self, page: Page) -> int:
        """Give *page* a seed's cash out of the virtual page; returns the units."""
        units = self.totals.virtual >> SEED_SHIFT
        self.totals.virtual -= units
        page.cash += units
        return units

    def settle(self, page: Page) -> None:
        """Bring ``page.cash`` up to date with what the virtual page handed to its class."""
        if owed := self.totals.owed(page):
            page.cash += owed
            page.settled += owed

    def cash(self, page: Page) -> int:
        """Cash of *page* as of now, without changing it."""
        return page.cash + self.totals.owed(page)

    def _count(self, which: int, change: int) -> None:
        unvisited, visited = self.totals.members
        self.totals.members = (unvisited + change, visited) if which == 0 else (unvisited, visited + change)

    def _distributed(self, units: int) -> None:
        """Let virtual time pass because *units* are about to be distributed."""
        in_turn = TOTAL if self._class is not None else TOTAL - self.totals.virtual
        self.totals.turn += units / in_turn if in_turn else 0.0

    # -- a visit

    def visit(
        self,
        page: Page,
        spent: int,
        n_links: int,
        n_paid: int,
        now: float,
        *,
        host_visited: int | None = None,
    ) -> int:
        """Let *page* distribute *spent* of its cash over *n_links* distinct links, of which *n_paid* are paid.

        The rest, with the virtual page's share, the filtered links' shares and the remainder, goes to the
        virtual page. The caller credits the returned units to each of the *n_paid* targets.

        Args:
            spent: Units, at most the page's settled cash: what it held when it was leased.
            n_links: Distinct links without the page itself, >= *n_paid*.
            now: Seconds since the epoch.
            host_visited: Pages of its host visited before, with which the endowment falls; ``None`` for no endowment.

        Returns:
            Units for each paid target.
        """
        totals = self.totals
        self.settle(page)
        page.cash -= spent
        self._distributed(spent)
        totals.distributed += spent
        amount = spent
        if n_paid and self.endowment and host_visited is not None:
            endowed = int(
                (totals.virtual >> SEED_SHIFT) * self.endowment / (1 + host_visited / ENDOWMENT_HALF_LIFE)
            )
            totals.virtual -= endowed
            totals.virtual_distributed += endowed
            amount += endowed
        each = 0
        if n_paid:
            share = self.share if self.share is not None else 1 / (n_links + 1)
            each = (amount - int(amount * share)) // n_links
        totals.virtual += amount - each * n_paid
        if not page.visits:  # from the unvisited class to the visited one
            self._count(0, -1)
            self._count(1, 1)
            page.settled = totals.handed[1]
        totals.history -= page.history
        self.window.visit(page, spent, totals.turn, now)
        totals.history += page.history
        return each

    def fail(self, page: Page) -> int:
        """Let a visited page end for good: its cash goes to the virtual page; returns the units."""
        self.settle(page)
        units, page.cash = page.cash, 0
        self.totals.virtual += units
        page.state = State.FAILED
        self._count(1, -1)
        return units

    def revive(self, page: Page) -> None:
        """Let a page that failed be visited again; the caller sets its state."""
        self._count(1, 1)
        page.settled = self.totals.handed[1]

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
        which, totals = self._class, self.totals
        if which is None or totals.virtual <= rival or not totals.members[which]:
            return False
        each = totals.virtual // totals.members[which]
        if not each:
            return False
        spent = each * totals.members[which]
        self._distributed(spent)
        totals.virtual -= spent
        totals.virtual_distributed += spent
        unvisited, visited = totals.handed
        totals.handed = (unvisited + each, visited) if which == 0 else (unvisited, visited + each)
        return True

    def importance(self, page: Page) -> float:
        """Estimated importance of *page*: its part of all history and of all cash that pages hold, 0 to 1."""
        whole = self.totals.history + TOTAL - self.totals.virtual
        return (page.history + self.cash(page)) / whole if whole else 0.0

"""The AOPIC cash ledger: who holds how much cash, and where a visit sends it.

Rule 1: cash is conserved to the unit. The cash of all pages and of the virtual page is :data:`TOTAL` after
every step, compared with ``==``; what a division leaves over goes to the virtual page. In a shard of a job it is
:data:`TOTAL` and the shard's *balance*: what came from other shards, less what went to them.

Rule 2: the virtual page spends in O(1). It endows single visits from its reserve, or hands the same number of units
to each page of a class (:mod:`.spending`) by raising that class's running total. A page's cash is then
``cash + handed now - handed then``; :meth:`Ledger.catch_up` folds the difference in when the page is touched.

Rule 3: a method that takes units away from one side either gives them to the other or returns them, and the caller must
pass them on.

Source: Abiteboul, Preda and Cobena, "Adaptive On-Line Page Importance Computation", WWW 2003; the endowment
with host decay is ours (docs/how-it-works.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .records import FAILED, Page
from .spending import N_PAGE_CLASSES, SPENDING, class_of, is_member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .window import Window


TOTAL = (1 << 53) - 1
"""All cash there is: up to here a double counts exactly. Odd, so that the first seed has no binary digit more."""

SHARE = 0.15
"""Part of each distribution that goes to the virtual page by default: importance then tends to PageRank(0.85)."""

ENDOWMENT = 6.0
"""Seeds' worth of cash that the virtual page adds to a distribution by default."""

SEED_SHIFT = 24
"""A seed gets 2**-24 of the virtual page: the reserve halves only after some ten million seeds or visits."""

_ENDOWMENT_HALF_LIFE = 10
"""Visited pages of a registered domain after which its pages are endowed with half as much."""

ENDOWMENT_CLICKS = 8
"""Clicks inside a host after which a page is endowed with half as much.

Else an endless trap on a real host, as a calendar is, would be fed for ever: each of its pages is new, and hands on its
whole endowment (a chain took 61 % of the fetches of a crawl of one site, and takes 1 % with this). Without any endowment
traps starve, too, but order loses .05: it has to fade, not to go. Division by the square of the clicks, each counted
once, fades too slowly for a tree: a million of its pages are twenty clicks away, or six.
"""


class Sums(NamedTuple):
    """Sums that the orders, the estimates and the budgets of a job need over all of its shards.

    Attributes:
        visits: Pages that were visited or failed at least once.
        seeds: Seeds by which domains are supported.
        distributed: All cash that pages ever spent, in units.
        history: Sum of the pages' histories, in units.
        held: Cash that pages hold, in units.
        virtual: Cash of the virtual page, in units.
        new: Cash that new pages hold (:class:`NewPages`), in units.
    """

    visits: int = 0
    seeds: int = 0
    distributed: int = 0
    history: int = 0
    held: int = 0
    virtual: int = 0
    new: int = 0

    def plus(self, other: Sums) -> Sums:
        """Both together."""
        return Sums(*map(int.__add__, self, other))

    def less(self, other: Sums) -> Sums:
        """The sums minus *other*, but not below 0, as the two may be of different moments."""
        return Sums(*(max(own - part, 0) for own, part in zip(self, other, strict=True)))


NOWHERE = Sums()
"""The sums of other shards, if there are none."""


@dataclass(slots=True)
class NewPages:
    """Pages that were visited less than twice, so that the rate at which they get cash is not known.

    Attributes:
        cash: Units that they hold, with what they are owed.
        members: How many of them are in each class.
    """

    cash: int = 0
    members: list[int] = field(default_factory=lambda: [0] * N_PAGE_CLASSES)

    def add(self, page: Page, cash: int) -> None:
        """Count *page*, which holds *cash* units, if it is new."""
        if page.visits < 2:
            self.cash += cash
            self.members[class_of(page)] += is_member(page)


@dataclass(slots=True)
class Totals:
    """The ledger's sums, all in units.

    Attributes:
        virtual: Cash of the virtual page.
        distributed: |H| without the virtual page's part: all cash that pages ever spent.
        virtual_distributed: All cash that the virtual page ever spent.
        history: Sum of the pages' histories.
        turn: Virtual time: |H| in units of the cash that pages hold, as it was at each distribution. What the
            virtual page keeps in reserve does not circulate, so it is not counted.
        handed: Units that each page of a class was handed so far, by class.
        members: Pages in each class.
        newcomers: Sum and number of the histories of pages at their second visit.
        balance: What came from other shards, less what went to them.
        elsewhere: Sums over the other shards, as of the last report.
        new: New pages.
    """

    virtual: int = TOTAL
    distributed: int = 0
    virtual_distributed: int = 0
    history: int = 0
    turn: float = 0.0
    handed: tuple[int, ...] = (0,) * N_PAGE_CLASSES
    members: list[int] = field(default_factory=lambda: [0] * N_PAGE_CLASSES)
    newcomers: tuple[int, int] = (0, 0)
    balance: int = 0
    elsewhere: Sums = NOWHERE
    new: NewPages = field(default_factory=NewPages)

    @property
    def whole(self) -> int:
        """Units that the pages and the virtual page hold together."""
        return TOTAL + self.balance

    @property
    def held(self) -> int:
        """Units that the pages hold together."""
        return TOTAL + self.balance - self.virtual

    def sums(self, *, visits: int, seeds: int) -> Sums:
        """This shard's part of the sums of a job, with the counts of other owners."""
        return Sums(
            visits=visits,
            seeds=seeds,
            distributed=self.distributed,
            history=self.history,
            held=self.held,
            virtual=self.virtual,
            new=self.new.cash,
        )

    def owed(self, page: Page) -> int:
        """Units that the virtual page handed to *page* since its cash was last brought up to date."""
        return self.handed[class_of(page)] - page.handed if is_member(page) else 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """How important pages are.

    Every page has a weight, and its importance is its part of the weight of all pages. So all importances add up to 1, up to
    the rounding of one division a page. The weight of all pages is a sum of totals that the ledger keeps, to the unit.

    Attributes:
        by_window: Whether a page's weight is what the window counted at its last visit. This is so if pages are visited
            repeatedly, from the second visit on, the first one that shows a rate. Cash received since then does not count:
            greedy visits leave about the same with every page, and no sum could be kept of what a window would make of it
            at each moment. Otherwise, and until then, a page's weight is all that it ever received.
    """

    totals: Totals
    by_window: bool

    def weight(self, page: Page) -> int:
        """Units that *page* counts for."""
        if self.by_window and page.visits > 1:
            return page.history
        return page.history + page.cash + self.totals.owed(page)

    def importance(self, weight: int) -> float:
        """*weight* as a part of that of all pages, in all shards."""
        totals, elsewhere = self.totals, self.totals.elsewhere
        whole = totals.history + elsewhere.history
        if self.by_window:
            whole += totals.new.cash + elsewhere.new
        else:
            whole += totals.held + elsewhere.held
        return weight / whole if whole else 0.0


class Ledger:
    """Moves cash between pages and the virtual page.

    Args:
        totals: The sums, changed in place.
        window: What counts as history.
        share: Part of each distribution that goes to the virtual page, 0 to 1; ``None`` for 1/(links + 1) as in
            the paper. With 0.15 the fixpoint is PageRank(0.85).
        endowment: Cash that the virtual page adds to what a page distributes, in seeds' worth.
        spending: How the virtual page spends; a name in :data:`~scrapy_aopic.core.spending.SPENDING`.
        is_once: Whether each page is visited once, so that visited pages cannot spend what they are paid.
        averages: Whether a page's history is the average of its class until its second visit, and is all that the
            page weighs from then on, which is right if pages are visited again and again.
    """

    def __init__(
        self,
        totals: Totals,
        window: Window,
        *,
        share: float | None = SHARE,
        endowment: float = ENDOWMENT,
        spending: str = "endowment",
        is_once: bool = False,
        averages: bool = False,
    ) -> None:
        self.totals = totals
        self.window = window
        self.share = share
        self.averages = averages
        self._spending = SPENDING[spending].without_revisits() if is_once else SPENDING[spending]
        self.endowment = endowment if self._spending.endows else 0.0
        self.has_handed = any(totals.handed)
        self._in_turn_elsewhere = self._in_turn_of(totals.elsewhere)

    # -- other shards

    def learn(self, elsewhere: Sums) -> None:
        """The other shards have these sums by now: what they distributed since lets virtual time pass here, too."""
        totals = self.totals
        spent = elsewhere.distributed - totals.elsewhere.distributed
        # What was spent counts by what circulated before; of a shard that was just opened nothing is known of that.
        before, now = self._in_turn_elsewhere, self._in_turn_of(elsewhere)
        self._in_turn_elsewhere = max(before, now)
        self._pass_time(max(spent, 0))
        totals.elsewhere, self._in_turn_elsewhere = elsewhere, now

    def _in_turn_of(self, sums: Sums) -> int:
        """Cash that circulates among the pages that *sums* are of."""
        return sums.held + sums.virtual if self._spending.classes else sums.held

    # -- pages come and change class

    def admit(self, page: Page, cash: int = 0) -> None:
        """Let a page that is in no class into its own, with *cash* that the caller took from elsewhere."""
        totals, which = self.totals, (page.visits > 0) + 2 * page.is_chosen  # class_of, without a call
        if page.visits < 2:
            totals.new.cash += cash - page.cash
            totals.new.members[which] += 1
        page.cash = cash
        page.handed = totals.handed[which]
        totals.members[which] += 1

    def _leave(self, page: Page) -> None:
        totals, which = self.totals, class_of(page)
        totals.members[which] -= 1
        if page.visits < 2:
            totals.new.members[which] -= 1

    def catch_up(self, page: Page) -> None:
        """Bring ``page.cash`` up to date with what the virtual page handed to its class."""
        if self.has_handed and (owed := self.totals.owed(page)):
            page.cash += owed
            page.handed += owed

    def cash(self, page: Page) -> int:
        """Cash of *page* as of now, without changing it."""
        return page.cash + self.totals.owed(page)

    def pay(self, page: Page, units: int) -> None:
        """Give *page* *units*, which the caller took from elsewhere; less than none are taken from it."""
        page.cash += units
        if page.visits < 2:
            self.count_new(units)

    def count_new(self, units: int) -> None:
        """New pages hold so much more."""
        self.totals.new.cash += units

    def grant(self, page: Page, worth: float = 1.0) -> int:
        """Give *page* the cash of *worth* seeds, at least 0, out of the virtual page; returns the units."""
        virtual = self.totals.virtual
        units = min(int((virtual >> SEED_SHIFT) * worth), virtual // 2)
        self.totals.virtual -= units
        self.pay(page, units)
        return units

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
        domain_visited: int | None = None,
        is_plain: bool = True,
    ) -> list[int]:
        """Let *page* distribute *spent* of its cash over its links, of which those with *weights* are paid.

        The rest, with the virtual page's share, the filtered links' shares and the remainders, goes to the
        virtual page. The caller credits the returned units to the targets.

        Args:
            spent: Units, at most the page's cash once it caught up: what it held when it was leased.
            weights: Whole numbers, 1 for each if links do not differ in weight.
            n_links: Distinct links without the page itself, at least as many as are paid.
            now: Seconds since the epoch.
            whole: Weight of all *n_links*, if they differ in weight; at least that of those that are paid.
            domain_visited: Pages of its registered domain visited before, with which the endowment falls; ``None``
                for no endowment.
            is_plain: Whether it is an ordinary page, for which averages count.

        Returns:
            Units for each link that is paid, in the order of *weights*.
        """
        totals = self.totals
        self.catch_up(page)
        self.pay(page, -spent)
        self._pass_time(spent)
        totals.distributed += spent
        amount = spent
        if any(weights):
            if self.endowment and domain_visited is not None:
                amount += self._endow(domain_visited, page.clicks)
            share = self.share if self.share is not None else 1 / (n_links + 1)
            shared, whole = amount - int(amount * share), whole or n_links
            paid = [shared * weight // whole for weight in weights]
        else:
            paid = [0] * len(weights)
        totals.virtual += amount - sum(paid)
        self._remember(page, spent, now, is_plain=is_plain)
        return paid

    def _pass_time(self, units: int) -> None:
        """Let virtual time pass because *units* are about to be distributed."""
        totals = self.totals
        in_turn = totals.whole if self._spending.classes else totals.held
        in_turn += self._in_turn_elsewhere
        totals.turn += units / in_turn if in_turn else 0.0

    def units_a_link(self, spent: int, n_links: int, domain_visited: int | None, clicks: int) -> int:
        """Units that each of *n_links* would be paid by a visit now; the other arguments are those of :meth:`visit`."""
        amount = spent + (self._endowment(domain_visited, clicks) if domain_visited is not None else 0)
        share = self.share if self.share is not None else 1 / (n_links + 1)
        return (amount - int(amount * share)) // n_links

    def _endowment(self, visited: int, clicks: int) -> int:
        """Units of the endowment of a page with so many *clicks*; *visited* pages of the domain had one before."""
        whole = (self.totals.virtual >> SEED_SHIFT) * self.endowment / (1 + visited / _ENDOWMENT_HALF_LIFE)
        return int(whole * 0.5 ** (clicks / ENDOWMENT_CLICKS))

    def _endow(self, visited: int, clicks: int) -> int:
        """Take that out of the virtual page."""
        totals, units = self.totals, self._endowment(visited, clicks)
        totals.virtual -= units
        totals.virtual_distributed += units
        return units

    def _remember(self, page: Page, spent: int, now: float, *, is_plain: bool) -> None:
        """Add a visit that *spent* so much to the history of *page*, which is among the visited pages from now on."""
        totals = self.totals
        if not page.visits:
            self._leave(page)
        elif page.visits == 1:
            totals.new.cash -= page.cash
            totals.new.members[class_of(page)] -= 1
        totals.history -= page.history
        self.window.visit(page, spent, totals.turn, now, self._newcomer() if is_plain else -1)
        totals.history += page.history
        if page.visits == 1:
            self.admit(page, page.cash)
        elif page.visits == 2 and is_plain:
            known, n = totals.newcomers
            totals.newcomers = (known + page.history, n + 1)

    def _newcomer(self) -> int:
        """History of a page at its first visit, the average of those that were visited twice; -1 if it is unknown.

        An average over the few pages that are visited most would be too high for all the others.
        """
        known, n = self.totals.newcomers
        _, visited, _, visited_chosen = self.totals.members
        return known // n if self.averages and n and 2 * n >= visited + visited_chosen else -1

    # -- pages end, are merged, and wait again

    def fail(self, page: Page) -> int:
        """Let a visited page end for good: its cash goes to the virtual page; returns the units.

        If pages come back its history ends, too: nothing is paid to it any more, and no visit would let that leave
        the window.
        """
        self.catch_up(page)
        units = page.cash
        self.pay(page, -units)
        if self.averages:
            self.totals.history -= page.history
            page.history, page.marks = 0, ()
        self.totals.virtual += units
        self._leave(page)
        page.state = FAILED
        return units

    def revive(self, page: Page) -> None:
        """Let a page that failed, or was merged with another one, be visited again; the caller sets its state."""
        page.canonical = b""
        self.admit(page, page.cash)

    def merge(self, page: Page, other: Page) -> None:
        """Move all cash and history of *page* to *other*, both of them visited; the caller sets ``canonical``."""
        self.catch_up(page)
        self.catch_up(other)
        units = page.cash
        self.pay(page, -units)
        self.pay(other, units)
        other.history += page.history
        other.marks = page.marks = ()  # its visits are no longer the whole of its history
        page.history = 0
        self._leave(page)

    def bequeath(self, page: Page) -> tuple[int, int]:
        """Take all cash and history of *page*, which was visited, for a page of another shard; returns both."""
        self.catch_up(page)
        units, history = page.cash, page.history
        self.totals.history -= history
        self.pay(page, -units)
        page.history = 0
        page.marks = ()
        self._leave(page)
        return units, history

    def inherit(self, page: Page, units: int, history: int) -> None:
        """Give *page* the cash and the history that a page of another shard had."""
        self.catch_up(page)
        self.pay(page, units)
        page.history += history
        self.totals.history += history
        page.marks = ()  # its visits are no longer the whole of its history

    def forfeit(self, units: int) -> None:
        """Give *units*, which the caller took from elsewhere, to the virtual page."""
        self.totals.virtual += units

    def split(self, page: Page) -> int:
        """Take half of the cash of *page* for a second request for it; returns the units."""
        self.catch_up(page)
        half = page.cash // 2
        self.pay(page, -half)
        return half

    def spend_virtual(self, rival: int) -> bool:
        """Let the virtual page visit itself if it holds more than *rival* units (greedy order of the paper).

        Returns:
            Whether units were handed out.
        """
        classes, totals = self._spending.classes, self.totals
        if not classes:
            return False
        n = sum(totals.members[which] for which in classes)
        each = totals.virtual // n if n and totals.virtual > rival else 0
        if not each:
            return False
        spent = each * n
        self._pass_time(spent)
        totals.virtual -= spent
        totals.virtual_distributed += spent
        self.has_handed = True
        totals.new.cash += each * sum(totals.new.members[which] for which in classes)
        totals.handed = tuple(
            units + each if which in classes else units for which, units in enumerate(totals.handed)
        )
        return True

    def importance(self, page: Page) -> float:
        """Estimated importance of *page*, 0 to 1."""
        estimate = Estimate(self.totals, by_window=self.averages)
        return estimate.importance(estimate.weight(page))

"""Windows: how much of a page's past counts as its history (adaptive OPIC, section 4 of the paper).

Every kind of window estimates the same quantity, so that pages, and jobs that change the kind, stay comparable: the cash
that a page spends in a window's length at the rate at which cash reaches it. For cash that arrives at a constant rate,
each gives that rate times the window, whenever the visits happen.

Source: Abiteboul, Preda and Cobena, "Adaptive On-Line Page Importance Computation", WWW 2003; ``"ewma"`` and the
scale of ``"variable"`` are ours (docs/internals.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .records import Page

WindowKind: TypeAlias = Literal["interpolation", "fixed", "variable", "ewma"]
"""Kinds of windows; see :class:`Window`."""

WindowClock: TypeAlias = Literal["turns", "seconds"]
"""The unit in which a window is measured."""

_TURN_BITS, _TIME_BITS = 32, 40
"""Binary digits kept of a visit's virtual time (2e-10 of it), and of its time (2 ms): the zeros behind them compress."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of *size* on the past of every page.

    Attributes:
        size: Length T, in *clock* units, > 0; for ``"variable"`` the number of visits k, a whole number.
        kind: ``"interpolation"`` keeps one number a page and assumes that its cash came evenly.
            ``"ewma"`` keeps one number, too: a mean of rates, whose weights fall by 1/e in T.
            ``"fixed"`` keeps every visit inside the window, and of the one that reaches out of it the part inside.
            ``"variable"`` keeps the last k visits: what they spent in each of the turns that they span, times k.
        clock: ``"turns"`` is virtual time: ``|H|``, all cash ever distributed, in units of the cash that pages hold,
            so that a pause or a faster line does not shift the estimates. ``"seconds"`` is the wall clock.
            ``"variable"`` goes by turns.
    """

    size: float = 8.0
    kind: WindowKind = "interpolation"
    clock: WindowClock = "turns"

    def history(self, page: Page, spent: int, turn: float, now: float, newcomer: int = -1) -> int:
        """History that *page* has once it spends *spent* units at virtual time *turn* and *now* (epoch seconds).

        With the cash that the page holds as *spent*, this is its estimate as of now, however long ago its last
        visit was; nothing is changed.

        Args:
            newcomer: History of a page that is visited for the first time, as it has no past: the average of its
                class, or -1 for what it spent if that is unknown, too.
        """
        if not page.visits:
            return newcomer if newcomer >= 0 else spent
        instant, last = self._instants(page, turn, now)
        passed = (instant - last) / self.size
        if self.kind == "interpolation":
            return int(page.history * (1 - passed)) + spent if passed < 1 else int(spent / passed)
        if self.kind == "ewma":
            part = -math.expm1(-passed)
            return int(page.history * (1 - part)) + int(spent * (part / passed if passed else 1.0))
        marks = self._marks(page, spent, instant, last)
        units, begin = sum(units for _, units in marks[1:]), marks[0][0]
        if self.kind == "variable":
            return int(units * self.size / (instant - begin)) if instant > begin else page.history + spent
        until, oldest = marks[1]
        outside = max(instant - self.size - begin, 0.0)
        return units - int(oldest * (outside / (until - begin))) if outside else units

    def visit(self, page: Page, spent: int, turn: float, now: float, newcomer: int = -1) -> None:
        """Let *page* have spent *spent* units; the arguments are those of :meth:`history`.

        Sets ``history``, ``visits``, ``visited_turn``, ``visited_at`` and, for a kind that keeps visits, ``marks``.
        """
        turn, now = _rounded(turn, _TURN_BITS), _rounded(now, _TIME_BITS)
        history = self.history(page, spent, turn, now, newcomer)
        keeps_visits = page.visits and self.kind in ("fixed", "variable")
        page.marks = self._marks(page, spent, *self._instants(page, turn, now)) if keeps_visits else ()
        page.history = history
        page.visits += 1
        page.visited_turn = turn
        page.visited_at = now

    def expected(self, page: Page, cash: int, turn: float, now: float) -> int:
        """Units that *page*, which holds *cash*, gets in the time since its last visit at its rate in the window.

        What it really got in that time depends much on chance, above all if few pages link to it.
        """
        if not page.visits or self.kind == "variable":
            return cash
        instant, last = self._instants(page, turn, now)
        passed = (instant - last) / self.size
        return int(self.history(page, cash, turn, now) * passed) if passed < 1 else cash

    def _instants(self, page: Page, turn: float, now: float) -> tuple[float, float]:
        """This moment and the last visit by the window's clock; a clock that went backwards counts as stopped."""
        if self.clock == "turns" or self.kind == "variable":
            return max(turn, page.visited_turn), page.visited_turn
        return max(now, page.visited_at), page.visited_at

    def _marks(self, page: Page, spent: int, instant: float, last: float) -> tuple[tuple[float, int], ...]:
        """The visits to keep, oldest first, this one included; of the first one only its instant counts.

        The interval before a page's first visit is unknown. Its history stands for all of it: the whole window, or for
        ``"variable"`` one turn, in which a page is visited once on average.
        """
        k = int(self.size)
        marks = page.marks
        if not marks or marks[-1][0] != last:  # the second visit, or the marks are those of another clock
            marks = (
                ((last - 1, 0), (last, page.history // k))
                if self.kind == "variable"
                else ((last - self.size, 0), (last, page.history))
            )
        marks = (*marks, (instant, spent))
        if self.kind == "variable":
            return marks[-k - 1 :]
        first = 0
        while first + 2 < len(marks) and marks[first + 1][0] <= instant - self.size:
            first += 1
        return marks[first:]


def _rounded(number: float, digits: int) -> float:
    """*number* with that many binary *digits*."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(mantissa * 2**digits), exponent - digits)

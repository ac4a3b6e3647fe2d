"""How much of a page's past counts as its history (adaptive OPIC, section 4 of the paper).

Source: Abiteboul, Preda and Cobena, "Adaptive On-Line Page Importance Computation", WWW 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .records import Page

WindowKind: TypeAlias = Literal["interpolation", "fixed"]
WindowClock: TypeAlias = Literal["turns", "seconds"]


@dataclass(frozen=True, slots=True)
class Window:
    """A window of *size* on the past of every page.

    Attributes:
        size: Length T, in *clock* units, > 0.
        kind: ``"interpolation"`` keeps one number a page and assumes that its cash came evenly;
            ``"fixed"`` keeps every visit inside the window.
        clock: ``"turns"`` is virtual time: |H|, all cash ever distributed, in units of the cash that pages hold,
            so that a pause or a faster line does not shift the estimates. ``"seconds"`` is the wall clock.
    """

    size: float = 8.0
    kind: WindowKind = "interpolation"
    clock: WindowClock = "turns"

    def visit(self, page: Page, spent: int, turn: float, now: float) -> None:
        """Let *page* have spent *spent* units at virtual time *turn* and *now* (epoch seconds).

        Sets ``history``, ``visits``, ``visited_turn``, ``visited_at`` and, for the fixed window, ``marks``.
        """
        instant, last = (turn, page.visited_turn) if self.clock == "turns" else (now, page.visited_at)
        if self.kind == "fixed":
            page.marks = (*(mark for mark in page.marks if mark[0] > instant - self.size), (instant, spent))
            page.history = sum(units for _, units in page.marks)
        else:
            passed = max(instant - last, 0.0)
            if not page.visits:
                page.history = spent  # nothing is known of the time before
            elif passed < self.size:
                page.history = int(page.history * ((self.size - passed) / self.size)) + spent
            else:
                page.history = int(spent * (self.size / passed))
            page.marks = ()
        page.visits += 1
        page.visited_turn = turn
        page.visited_at = now

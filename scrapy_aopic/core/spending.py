"""How the virtual page spends its cash: one small value for each policy.

The virtual page either endows visits, or hands the same number of units to each page of some *classes*. A page is of
one of four classes: visited or not, and of a chosen domain or not; pages that failed or were merged are of none.

A new policy of either kind is a line in :data:`SPENDING`, which ``AOPIC_VIRTUAL_SPENDING`` takes its names from. One
that distinguishes pages by something else needs more classes, and so another :data:`~scrapy_aopic.core.layout.FORMAT`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .records import FAILED

if TYPE_CHECKING:
    from .records import Page

N_PAGE_CLASSES = 4
"""Classes of pages: visited or not, times of a chosen domain or not."""


def page_class(*, is_visited: bool, is_chosen: bool) -> int:
    """Number of a class of pages, 0 to 3."""
    return is_visited + 2 * is_chosen


def class_of(page: Page) -> int:
    """Class of *page*, if it is in one."""
    return (page.visits > 0) + 2 * page.is_chosen  # page_class, without a call


def is_member(page: Page) -> bool:
    """Whether *page* is in a class: not if it failed or was merged with another one."""
    return page.state != FAILED and not page.canonical


@dataclass(frozen=True, slots=True)
class Spending:
    """A policy of the virtual page.

    Attributes:
        endows: Whether it adds to what visited pages distribute.
        classes: Classes of pages among which it spends evenly, whenever it holds more than the page that is leased;
            empty for none.
        needs_chosen: Whether it does nothing unless domains are chosen (``AOPIC_VIRTUAL_DOMAINS``).
    """

    endows: bool = False
    classes: tuple[int, ...] = ()
    needs_chosen: bool = False


_UNVISITED = (page_class(is_visited=False, is_chosen=False), page_class(is_visited=False, is_chosen=True))
_VISITED = (page_class(is_visited=True, is_chosen=False), page_class(is_visited=True, is_chosen=True))
_CHOSEN = (page_class(is_visited=False, is_chosen=True), page_class(is_visited=True, is_chosen=True))

SPENDING: dict[str, Spending] = {
    "endowment": Spending(endows=True),
    "unvisited": Spending(classes=_UNVISITED),
    "visited": Spending(classes=_VISITED),
    "chosen": Spending(classes=_CHOSEN, needs_chosen=True),
}
"""The policies by the names that ``AOPIC_VIRTUAL_SPENDING`` takes."""

"""Policies for what the virtual page spends its cash on: one small value for each.

How much an endowment is, is decided in :mod:`.ledger`; who gets one, in :mod:`.settling`.

The virtual page either endows visits, or hands the same number of units to each page of some *classes*. A page is of
one of four classes: visited or not, and of a chosen domain or not; pages that failed or were merged are of none.

To add a policy of either kind: a line in :data:`SPENDING`, one in the table of classes in tests/core/test_ledger.py,
and the reason for it in docs/order.md. ``AOPIC_VIRTUAL_SPENDING``, its text and the models of the tests take it from here.
A policy that distinguishes pages by something else needs more classes, and so another
:data:`~scrapy_aopic.core.layout.FORMAT`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .records import FAILED, Page

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
        on: What it spends on, for the documentation, in Markdown.
        endows: Whether it adds to what visited pages distribute.
        classes: Classes of pages among which it spends evenly, whenever it holds more than the page that is leased;
            empty for none.
        needs_chosen: Whether it does nothing unless domains are chosen.

    Raises:
        ValueError: Unless it either endows or has classes: the effect of both together on the order was never examined.
    """

    on: str
    endows: bool = False
    classes: tuple[int, ...] = ()
    needs_chosen: bool = False

    def __post_init__(self) -> None:
        if self.endows == bool(self.classes):
            raise ValueError(
                f"The virtual page must either endow visits or spend on classes of pages: {self}."
            )

    @property
    def needs_revisits(self) -> bool:
        """Whether it spends on visited pages alone."""
        return bool(self.classes) and not set(self.classes) & set(_UNVISITED)

    def without_revisits(self) -> Spending:
        """The policy in a crawl that visits each page once, where what a visited page is paid would stay for ever.

        Raises:
            ValueError: If it spends on visited pages alone.
        """
        return replace(self, classes=tuple(which for which in self.classes if which in _UNVISITED))


_UNVISITED = (page_class(is_visited=False, is_chosen=False), page_class(is_visited=False, is_chosen=True))
_VISITED = (page_class(is_visited=True, is_chosen=False), page_class(is_visited=True, is_chosen=True))
_CHOSEN = (page_class(is_visited=False, is_chosen=True), page_class(is_visited=True, is_chosen=True))

SPENDING: dict[str, Spending] = {
    "endowment": Spending(
        "endowments of the links of visited pages, which gives the best order", endows=True
    ),
    "unvisited": Spending("all unvisited pages alike, to broaden the crawl", classes=_UNVISITED),
    "visited": Spending("all visited pages alike, which needs `AOPIC_RECRAWL`", classes=_VISITED),
    "chosen": Spending(
        "all pages of chosen domains alike that will be visited, to focus the crawl",
        classes=_CHOSEN,
        needs_chosen=True,
    ),
}
"""The policies by the names that ``AOPIC_VIRTUAL_SPENDING`` takes."""

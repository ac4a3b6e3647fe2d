"""What a link is worth for a topic before its page is known: one function for each strategy.

A strategy is given a :class:`PageSeen` and its links, and returns their values; it remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from .topic import LinkText, Topic

FLOOR = 0.01
"""Least value of a link. Links of this value come in the order in which they were found, which is exploration."""

PAGE_PART = 0.8
"""How much of a link's value is the grade of its page; the rest is how well its text fits (benchmarks/focused.py)."""

DECAY = 0.5
"""What an irrelevant page passes on of what it inherited (delta of Shark-Search)."""

INHERITED_PART = 0.5
"""How much of a link's potential is inherited (gamma of Shark-Search)."""

ANCHOR_PART = 0.8
"""How much of a link's own score is its text; the rest is what stands around it (beta of Shark-Search)."""


class PageSeen(NamedTuple):
    """A page whose links are to be valued.

    Attributes:
        url: Its URL.
        grade: How relevant it is, 0 to 1.
        value: What it was valued at before it was fetched, 0 to 1.
        is_relevant: Whether it counts as relevant.
    """

    url: str
    grade: float
    value: float
    is_relevant: bool


LinkScorer: TypeAlias = Callable[[PageSeen, Sequence["LinkText"]], Sequence[float]]
"""Says the value, 0 to 1, of each link of a page."""


class Focused:
    """Mostly the grade of the page, and how well the link's text fits: the default."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def __call__(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        match = self._topic.match
        return [PAGE_PART * page.grade + (1.0 - PAGE_PART) * match(link) for link in links]


class BestFirst:
    """The grade of the page (Chakrabarti, van den Berg and Dom, WWW8, 1999, with soft focus)."""

    def __init__(self, topic: Topic) -> None:
        del topic

    def __call__(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [page.grade] * len(links)


class SharkSearch:
    """Links of irrelevant pages inherit half of what led there (Hersovici and others, WWW7, 1998).

    What the page itself had inherited is read from its own value, which holds its text's score, too.
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def __call__(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        inherited = DECAY * (page.grade if page.is_relevant else page.value)
        return [INHERITED_PART * inherited + (1.0 - INHERITED_PART) * self._own(link) for link in links]

    def _own(self, link: LinkText) -> float:
        match = self._topic.match
        anchor = match(link)
        around = 1.0 if anchor > 0.5 else match(link._replace(anchor=f"{link.around} {link.heading}"))
        return ANCHOR_PART * anchor + (1.0 - ANCHOR_PART) * around


SCORERS: dict[str, Callable[[Topic], LinkScorer]] = {
    "focused": Focused,
    "best-first": BestFirst,
    "shark-search": SharkSearch,
}
"""The strategies of this package, by the names that ``AOPIC_LINK_SCORER`` takes."""

"""Strategies by a fixed formula, which remember nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .strategy import PageSeen, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .topic import LinkText

_PAGE_PART = 0.8
"""Part of a link's value that is the grade of its page; the rest is the match of its text (benchmarks/focused.py)."""

_DECAY = 0.5
"""Part of what it inherited that an irrelevant page passes on (delta of Shark-Search)."""

_INHERITED_PART = 0.5
"""Part of a link's potential that is inherited (gamma of Shark-Search)."""

_ANCHOR_PART = 0.8
"""Part of a link's own score that is its text; the rest is the text around it (beta of Shark-Search)."""


class FocusedStrategy(Strategy):
    """Mostly the grade of the page, and how well the link's text fits."""

    reads_names_only: ClassVar[bool] = True

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        match = self.topic.match
        return [_PAGE_PART * page.grade + (1.0 - _PAGE_PART) * match(link) for link in links]


class BestFirst(Strategy):
    """The grade of the page (Chakrabarti, van den Berg and Dom, WWW8, 1999, with soft focus)."""

    reads_names_only: ClassVar[bool] = True

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [page.grade] * len(links)


class SharkSearch(Strategy):
    """Links of irrelevant pages inherit half of what led there (Hersovici and others, WWW7, 1998).

    What the page itself had inherited is read from its own value, which holds its text's score, too.
    """

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        inherited = _DECAY * (page.grade if page.is_relevant else page.value)
        return [_INHERITED_PART * inherited + (1.0 - _INHERITED_PART) * self._own(link) for link in links]

    def _own(self, link: LinkText) -> float:
        match = self.topic.match
        anchor = match(link)
        around = 1.0 if anchor > 0.5 else match(link._replace(anchor=f"{link.around} {link.heading}"))
        return _ANCHOR_PART * anchor + (1.0 - _ANCHOR_PART) * around


_CONTEXT_PART = 0.5
"""Part of a link's relevance that is that of its text and context; the rest is its page's."""


class Otie(Strategy):
    """Cash that goes where the topic seems to be, and nothing else: On-line Topical Importance Estimation (Guan and others, SIGIR
    2008), which the paper on JLSE calls OPIE.

    Pages are fetched by their cash, as in OPIC, but a page's cash goes to its links by how relevant each seems. The formula
    cannot be had; what the abstracts say is that relevance is a weighted sum of the similarity of a link's context and of its
    page's.
    """

    by_cash = True
    power = 1.0
    null_mass = 0.0

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        match = self.topic.match
        rest = (1.0 - _CONTEXT_PART) * page.grade
        return [rest + _CONTEXT_PART * match(_with_context(link)) for link in links]


def _with_context(link: LinkText) -> LinkText:
    return link._replace(anchor=f"{link.anchor} {link.around}")

"""Strategies by a fixed formula, which remember nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.focus.strategy import PageSeen, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.focus.topic import LinkText


class BestFirst(Strategy):
    """The grade of the page (Chakrabarti, van den Berg and Dom, WWW8, 1999, with soft focus)."""

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [page.grade] * len(links)


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
        return [
            rest + _CONTEXT_PART * match(link._replace(anchor=f"{link.anchor} {link.around}"))
            for link in links
        ]

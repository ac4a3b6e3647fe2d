"""A topic as it is learned while crawling: what pages and links are worth for it.

A page is graded by its words. A link is valued before its page is known: by a fixed mix of its text, its surroundings and its
page at first, and by what became of links like it once enough of both kinds are known (:data:`ENOUGH`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .classifier import Classifier
from .words import LINK_CHARACTERS, features, url_words, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .words import Features

FLOOR = 0.01
"""Least value of a link. Links of this value come in the order in which they were found, which is exploration."""

ENOUGH = 15
"""Relevant links, and as many others, whose ends are known before learned values count half."""


class LinkText(NamedTuple):
    """What a page says of a link.

    Attributes:
        anchor: Its text, or that of its image, and its title.
        around: The text before and behind it.
        heading: The heading above it.
        path: Path and query of its URL.
    """

    anchor: str
    around: str = ""
    heading: str = ""
    path: str = ""


class Valued(NamedTuple):
    """A link's value, and what to learn from when its page is known."""

    value: float
    features: Features


class Topic:
    """What a crawl knows of its topic.

    Args:
        keywords: Words and phrases of the topic: what a page and a link are graded by until there are examples.
    """

    def __init__(self, keywords: Iterable[str] = ()) -> None:
        self._keywords = [each for each in (tuple(words(text)) for text in keywords) if each]
        self.pages = Classifier()
        self.links = Classifier(is_balanced=False)

    def learn_page(self, text: str, grade: float) -> None:
        """An example: a page with this *text* is relevant to this degree, 0 to 1."""
        self.pages.learn(features([("page", words(text))]), grade)

    def grade(self, text: str) -> float:
        """How relevant a page with this *text* is, 0 to 1: by examples if there are some of both kinds."""
        found = words(text)
        if min(self.pages.seen) >= 1.0:
            return self.pages.score(features([("page", found)]))
        return self._density(found)

    def value(self, link: LinkText, grade: float) -> Valued:
        """Value of a *link*, :data:`FLOOR` to 1, on a page of this *grade*."""
        anchor = words(link.anchor, LINK_CHARACTERS)
        around = words(link.around, LINK_CHARACTERS)
        heading = words(link.heading, LINK_CHARACTERS)
        path = url_words(link.path)
        found = features([("anchor", anchor), ("around", around), ("heading", heading), ("url", path)])
        found = {place: 0.9 * value for place, value in found.items()}
        # The grade of the link's page, in steps: a number among words is learned too slowly.
        found[-1 - min(int(10 * grade), 9) & (1 << 18) - 1] = 0.5
        cold = 0.4 * self._match(anchor + path) + 0.2 * self._match(around + heading) + 0.4 * grade
        n = min(self.links.seen)
        trust = n / (n + ENOUGH)
        value = trust * self.links.score(found) + (1.0 - trust) * cold
        return Valued(max(value, FLOOR), found)

    def learn_link(self, valued: Valued, grade: float) -> None:
        """The page behind a link that was *valued* before turned out to be of this *grade*."""
        self.links.learn(valued.features, grade)

    def _match(self, found: list[str]) -> float:
        """1 if a keyword occurs; by examples of pages if there are no keywords."""
        if self._keywords:
            return float(any(_occurs(keyword, found) for keyword in self._keywords))
        if found and min(self.pages.seen) >= 1.0:
            return self.pages.score(features([("page", found)]))
        return 0.0

    def _density(self, found: list[str]) -> float:
        """Grade by keywords: 1/2 if one word in 100 begins one."""
        if not found or not self._keywords:
            return 0.0
        n = sum(_count(keyword, found) for keyword in self._keywords)
        density = 100.0 * n / max(len(found), 100)
        return density / (1.0 + density)


def _count(keyword: tuple[str, ...], found: list[str]) -> int:
    """How often *keyword* occurs."""
    if len(keyword) == 1:
        return found.count(keyword[0])
    ends = len(found) - len(keyword) + 1
    return sum(
        1 for i in range(ends) if found[i] == keyword[0] and tuple(found[i : i + len(keyword)]) == keyword
    )


def _occurs(keyword: tuple[str, ...], found: list[str]) -> bool:
    return keyword[0] in found if len(keyword) == 1 else bool(_count(keyword, found))

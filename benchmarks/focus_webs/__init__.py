"""Webs for ``benchmarks/focused.py``, each as its pages, what they say of their links, and which of them are relevant."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from scrapy_aopic.core.focus.harvest_results import Degrees, degrees_of
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.focus.words import Features, all_words, features, words

READ = 20_000
"""Characters of a page's text that are kept, for strategies that read it."""


class Leaf(NamedTuple):
    """A page.

    Attributes:
        url: Its URL.
        text: What it says.
        places: Its features (:func:`scrapy_aopic.core.focus.words.features`)...
        values: ...and their values.
        links: Numbers of the pages that it links to, and what it says of them.
        degrees: How much text and how many links it has.
    """

    url: str
    text: str
    places: array[int]
    values: array[float]
    links: list[tuple[int, LinkText]]
    degrees: Degrees

    @property
    def features(self) -> Features:
        return dict(zip(self.places, self.values, strict=True))


class Web(NamedTuple):
    """A web.

    Attributes:
        pages: Its pages.
        topics: Of each topic, whether each page is relevant to it, and keywords that describe it.
    """

    pages: list[Leaf]
    topics: dict[str, tuple[list[bool], list[str]]]


def leaf(
    url: str, text: str, links: list[tuple[int, LinkText]], parts: tuple[list[str], list[str]] | None = None
) -> Leaf:
    """The page at *url* with this *text*, whose *parts* are between and in links; by default *text* is what is between."""
    found = features([("page", words(text))])
    between, said = parts if parts is not None else ([text], [link.anchor for _, link in links])
    degrees = degrees_of(between, said, all_words)
    return Leaf(url, text[:READ], array("I", found), array("f", found.values()), links, degrees)


def page_rank(web: Web, damping: float = 0.85, rounds: int = 50) -> list[float]:
    """PageRank of each page, by power iteration; what ends in a page without links is spread over all."""
    import numpy as np

    n = len(web.pages)
    sources = np.array([i for i, page in enumerate(web.pages) for _ in page.links], dtype=np.int64)
    targets = np.array([target for page in web.pages for target, _ in page.links], dtype=np.int64)
    out = np.bincount(sources, minlength=n)
    rank = np.full(n, 1.0 / n)
    for _ in range(rounds):
        share = np.divide(rank, out, out=np.zeros(n), where=out > 0)
        lost = rank[out == 0].sum()
        rank = (1 - damping) / n + damping * (np.bincount(targets, share[sources], minlength=n) + lost / n)
    return rank.tolist()


def reachable(web: Web, seeds: list[int]) -> set[int]:
    """Pages that can be reached from *seeds*."""
    found = set(seeds)
    waiting = list(seeds)
    while waiting:
        for target, _ in web.pages[waiting.pop()].links:
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found

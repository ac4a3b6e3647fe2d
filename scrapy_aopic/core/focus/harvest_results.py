"""Whether a page is a result, which is what is looked for, or a list of links to results (JLSE, section 3.1).

A support vector machine tells them apart by three numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

_TEXT_UNIT = 100
"""Words beside links at which the text degree is 0 (k, an empirical constant that the paper does not give)."""


class Degrees(NamedTuple):
    """The three quantities that distinguish results from lists of links.

    Attributes:
        text: Binary logarithm of the words beside links, in :data:`_TEXT_UNIT`.
        link: Binary logarithm of the number of links a word.
        aggregation: How much text stands together. The paper only says that it follows from the number and the size of
            blocks; here it is the binary logarithm of the mean size, in words, of the block that a word is in, and a block
            is the text between two links.
    """

    text: float
    link: float
    aggregation: float


def degrees(blocks: Sequence[int], n_words: int, n_links: int) -> Degrees:
    """Degrees of a page with *n_words*, links included, and *blocks* with these numbers of words beside links.

    Zero words or links count as one, as zero has no logarithm.
    """
    plain = sum(blocks)
    size = sum([each * each for each in blocks]) / plain if plain else 0.0
    return Degrees(
        math.log2(max(plain, 1) / _TEXT_UNIT),
        math.log2(max(n_links, 1) / max(n_words, 1)),
        math.log2(1.0 + size),
    )


def degrees_of(
    blocks: Sequence[str], links: Sequence[str], cut: Callable[[Sequence[str]], list[list[str]]]
) -> Degrees:
    """Degrees of a page whose texts between and of links are these, *cut* into words."""
    sizes = [len(found) for found in cut(blocks) if found]
    linked = sum(map(len, cut(links)))
    return degrees(sizes, sum(sizes) + linked, len(links))


class SupportVectors(NamedTuple):
    """A support vector machine with a Gaussian kernel.

    Attributes:
        gamma: How fast the kernel falls with the square of the distance.
        offset: What is added to the sum over all vectors.
        vectors: Each with what it counts, more than 0 if it is a result.
    """

    gamma: float
    offset: float
    vectors: Sequence[tuple[Degrees, float]]

    def decide(self, page: Degrees) -> float:
        """More than 0 for a result."""
        return self.offset + sum(
            [weight * math.exp(-self.gamma * _square(page, vector)) for vector, weight in self.vectors]
        )


def _square(one: Iterable[float], other: Iterable[float]) -> float:
    """The square of the distance of two pages."""
    return sum([(a - b) ** 2 for a, b in zip(one, other, strict=True)])

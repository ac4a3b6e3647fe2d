"""Whether a relevant page is a result, which is what is looked for, or a list of links to results (JLSE, section 3).

The paper learns it from 667 and 638 samples by a support vector machine over three numbers. There are no samples in a crawl that
has just begun, so a rule takes its place: enough words of which most are no links.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .topic import CutText

TEXT_UNIT = 100
"""Words beside links at which the text degree is 0 (k, which the paper calls empirical)."""

LEAST_WORDS = 80
"""Words of a result."""

MOST_LINKED = 0.4
"""Part of a result's words that are links, at most."""


class Degrees(NamedTuple):
    """What distinguishes the two kinds of pages.

    Attributes:
        text: log2 of the words beside links, by :data:`TEXT_UNIT`.
        link: log2 of links a word.
        aggregation: log2 of the mean size of the block of text that a word stands in; the paper says only that it is about their
            number and size.
    """

    text: float
    link: float
    aggregation: float


def degrees(blocks: Sequence[int], n_words: int, n_links: int) -> Degrees:
    """Degrees of a page with *n_words*, links included, and *blocks* of so many words beside links."""
    plain = sum(blocks)
    size = sum([each * each for each in blocks]) / plain if plain else 0.0
    return Degrees(
        math.log2(max(plain, 1) / TEXT_UNIT),
        math.log2(max(n_links, 1) / max(n_words, 1)),
        math.log2(1.0 + size),
    )


def seems_result(text: str, anchors: Sequence[str], cut: CutText) -> bool:
    """Whether a page with this *text* and links with these texts, which *cut* cuts into words, is a result, by the rule."""
    n = len(cut(text))
    linked = sum([len(cut(anchor)) for anchor in anchors])
    return n >= LEAST_WORDS and linked < MOST_LINKED * n

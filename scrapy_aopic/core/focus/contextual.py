"""The strategy :mod:`.learned`, with words that count differently by the page that they are on.

"Catalog" leads somewhere on a page that says nothing of the topic, and "Details" only on one that does. So each word is
a feature twice: for itself, and together with how relevant its page is, in thirds. And each host is a feature: where
nothing was found, further links are worth less, whatever they say, and where much was found, more. So a host whose catalog
leads to other things costs a few pages, and not all that its catalog has.

What a page is worth is its grade; squared, if the topic was given by examples, as a judge that has seen few of them is wrong
about most of the pages that it thinks rather relevant than not.
"""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

from scrapy_aopic.core.records import HOST_BYTES

from .learned import Learned, Where
from .model_weights import BITS

LEVELS = 3
"""Degrees of relevance of a page that are distinguished."""

HOST_WEIGHT = 3
"""What a host counts, in words."""

DISCOUNT = 0.8
"""What a page is worth of the best one that a link of it leads to: with half, as in :mod:`.learned`, the first of three links to a
relevant page would be worth an eighth."""

_LAST = (1 << BITS) - 1


class Contextual(Learned):
    """Values links by what became of earlier ones with the same words on pages as relevant, and on the same host."""

    discount: ClassVar[float] = DISCOUNT
    n_levels: ClassVar[int] = LEVELS
    host_weight: ClassVar[int] = HOST_WEIGHT

    def _worth(self, grade: float) -> float:
        return grade * grade if self.has_examples else grade

    def _where(self, grade: float, page: bytes) -> Where:
        return Where(min(int(grade * LEVELS), LEVELS - 1) + 1, crc32(page[:HOST_BYTES]) & _LAST)

"""The strategy :mod:`.learned`, with words that count differently by the page that they are on.

"Catalog" leads somewhere on a page that says nothing of the topic, and "Details" only on one that does. So each word is
a feature twice: for itself, and together with how relevant its page is, in thirds. And each host is a feature: where
nothing was found, further links are worth less, whatever they say, and where much was found, more. So a host whose catalog
leads to other things costs a few pages, and not all that its catalog has.

What a page is worth is its grade squared, as a judge that has seen few examples is wrong about most of the pages that it
thinks rather relevant than not.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

from scrapy_aopic.core.records import HOST_BYTES

from .learned import BITS, Learned

if TYPE_CHECKING:
    from .learned import Said
    from .strategy import Chance, PageSeen
    from .topic import LinkText, Topic

LEVELS = 3
"""Degrees of relevance of a page that are distinguished."""

HOST_WEIGHT = 3
"""What a host counts, in words."""

DISCOUNT = 0.8
"""What a page is worth of the best one that a link of it leads to: with half, as in :mod:`.learned`, the first of three links to a
relevant page would be worth an eighth."""

_LAST = (1 << BITS) - 1
_SPREAD = 40503
"""Odd, so that no two words share a place on a level that do not share one without (Knuth, volume 3, 6.4)."""

_STEP = 7919

_CACHE = 5_000
"""Links whose features are kept for a level, some 2 MB: most links of a site are on all of its pages."""


class Contextual(Learned):
    """Values links by what became of earlier ones with the same words on pages as relevant, and on the same host."""

    discount: ClassVar[float] = DISCOUNT

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self._crossed: dict[tuple[LinkText, int], array[int]] = {}

    def learn(self, page: PageSeen) -> None:
        super().learn(page._replace(grade=page.grade * page.grade))

    def _features(self, link: LinkText, grade: float, parent: bytes) -> Said:
        said = super()._features(link, grade, parent)
        level = min(int(grade * LEVELS), LEVELS - 1)
        known = self._crossed.get((link, level))
        if known is None:
            if len(self._crossed) >= _CACHE:
                self._crossed.clear()
            salt = _STEP * (level + 1)
            known = array("H", said.places)
            known.extend([place * _SPREAD + salt & _LAST for place in said.places])
            self._crossed[link, level] = known
        places = known + array("H", [crc32(parent[:HOST_BYTES]) & _LAST] * HOST_WEIGHT)
        return said._replace(places=places, scale=1.0 / math.sqrt(len(places)))

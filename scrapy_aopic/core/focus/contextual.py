"""The strategy :mod:`.learned`, with weights of words that depend on the page that they are on.

"Catalog" may lead to something on a page that does not mention the topic, "Details" only on one that does. So each word
is a feature twice: alone, and together with how relevant its page is, in thirds. Each host is a feature, too: further
links to a host where nothing was found are worth less, whatever they say, and where much was found, more. So a host whose
catalog leads to other things costs a few pages, not the whole catalog.

A page is worth its grade; squared, if the topic was given by examples, because a classifier that has seen few of them is
wrong about most of the pages that it puts just above the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

from scrapy_aopic.core.records import HOST_BYTES

from .learned import Learned, Said, Where
from .model_weights import BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .strategy import Chance, PageSeen
    from .topic import LinkText, Topic

_LEVELS = 3
"""Degrees of relevance of a page that are distinguished."""

_HOST_WEIGHT = 3
"""Weight of the host's feature, in words."""

DISCOUNT = 0.8
"""Part of the worth of the best page that it links to which a page is worth: with half, as in :mod:`.learned`, the first
of three links to a relevant page would be worth an eighth."""

_LAST = (1 << BITS) - 1


class Contextual(Learned):
    """Values links by what became of earlier ones with the same words on pages as relevant, and on the same host."""

    discount: ClassVar[float] = DISCOUNT
    n_levels: ClassVar[int] = _LEVELS
    host_weight: ClassVar[int] = _HOST_WEIGHT

    def _worth(self, grade: float) -> float:
        return grade * grade if self.has_examples else grade

    def _where(self, grade: float, page: bytes) -> Where:
        return Where(min(int(grade * _LEVELS), _LEVELS - 1) + 1, crc32(page[:HOST_BYTES]) & _LAST)


MOST_PAGES = 20_000
"""Pages of which is remembered that their links were valued here, the latest: some 2 MB."""


class StandIn(Contextual):
    """The same, in place of a user's function that may be unavailable: it learns from all pages, but revalues only links that it valued itself."""

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self._own: dict[bytes, None] = {}

    def values_of(self, page: PageSeen, read: Sequence[Said]) -> list[float]:
        self._own[page.key] = None
        if len(self._own) > MOST_PAGES:
            del self._own[next(iter(self._own))]
        return super().values_of(page, read)

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float | None:
        return super().revalue(parent_grade, link, parent) if parent in self._own else None

    def revalue_memo(self, parent_grade: float, memo: bytes, parent: bytes = b"") -> float | None:
        return super().revalue_memo(parent_grade, memo, parent) if parent in self._own else None

"""Values links in place of a user's function that may be unavailable, by what the crawl has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contextual import Contextual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .learned import Said
    from .strategy import Chance, PageSeen
    from .topic import LinkText, Topic

MOST_PAGES = 20_000
"""Pages of which is remembered that their links were valued here, the latest: some 2 MB."""


class StandIn(Contextual):
    """The strategy :mod:`.contextual`; it learns from all pages, but revalues only links that it valued itself."""

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

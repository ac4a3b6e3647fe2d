"""Several strategies, of which those that find more are used more often (Gouriten, Maniu and Senellart, WWW 2014).

For each page, one of the *arms* (the strategies) is drawn to value its links, and when a page is fetched, its verdict goes
to the arm that valued it. Arms are drawn by Thompson sampling, discounted because the web changes along a crawl (Raj and
Kalyani, 2017), with a least chance for each. All arms learn from all pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.exceptions import StorageError, plainly

from .contextual import Contextual
from .fixed import FocusedStrategy
from .jlse import Jlse
from .strategy import Chance, PageSeen, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .topic import LinkText, Topic

DISCOUNT = 0.99
"""Weight of a verdict relative to the next one: some hundred count in all."""

_LEAST_CHANCE = 0.02
"""Least probability of each arm."""

MOST_PAGES = 20_000
"""Pages of which is remembered which arm valued their links, the latest: some 2 MB."""


class Portfolio(Strategy):
    """The arms are :class:`.contextual.Contextual`, :class:`.jlse.Jlse` and :class:`.fixed.FocusedStrategy`."""

    learns: ClassVar[bool] = True

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self._chance = chance
        self._begin()

    def _begin(self) -> None:
        """Know nothing."""
        topic, chance = self.topic, self._chance
        self._arms: tuple[Strategy, ...] = (
            Contextual(topic, chance),
            Jlse(topic, chance),
            FocusedStrategy(topic, chance),
        )
        self._found = [0.0] * len(self._arms)
        self._missed = [0.0] * len(self._arms)
        self._drawn: dict[bytes, int] = {}

    @property
    def version(self) -> int:
        return sum([arm.version for arm in self._arms])

    def learn(self, page: PageSeen) -> None:
        for each in self._arms:
            each.learn(page)
        arm = self._drawn.get(page.parent)
        if arm is None:
            return
        self._found = [DISCOUNT * each for each in self._found]
        self._missed = [DISCOUNT * each for each in self._missed]
        (self._found if page.is_relevant else self._missed)[arm] += 1.0

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> Sequence[float]:
        arm = self._draw()
        if page.key:
            self._drawn.pop(page.key, None)
            self._drawn[page.key] = arm
            if len(self._drawn) > MOST_PAGES:
                del self._drawn[next(iter(self._drawn))]
        return self._arms[arm].values(page, links)

    def _draw(self) -> int:
        n = len(self._arms)
        if self._chance.random() < n * _LEAST_CHANCE:
            return self._chance.randrange(n)
        draw = self._chance.betavariate
        drawn = [
            draw(1.0 + found, 1.0 + missed) for found, missed in zip(self._found, self._missed, strict=True)
        ]
        return drawn.index(max(drawn))

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float | None:
        arm = self._drawn.get(parent)
        return None if arm is None else self._arms[arm].revalue(parent_grade, link, parent)

    def pack(self) -> bytes:
        return pack((self._found, self._missed, [arm.pack() for arm in self._arms]))

    def restore(self, data: bytes) -> None:
        try:
            found, missed, arms = unpack(data)
            counts = [float(each) for each in (*found, *missed)]
            n = len(self._arms)
            if not len(found) == len(missed) == len(arms) == n or not all(
                0.0 <= each < 1e6 for each in counts
            ):
                raise StorageError("it has other arms")
            self._found, self._missed = counts[:n], counts[n:]
            for arm, kept in zip(self._arms, arms, strict=True):
                arm.restore(kept)
        except (*NO_RECORD, StorageError) as error:
            self._begin()
            raise StorageError(f"what its arms have learned is damaged: {plainly(error)}") from None

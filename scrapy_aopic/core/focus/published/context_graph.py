"""The context graph of Diligenti and others (VLDB 2000): how many links a page is away from relevant ones, by its words.

Naive Bayes puts a page into a layer: layer 0 holds relevant pages, layer 1 pages that link to one, and so on to layer 4; a
page that fits several layers is in none. Its links wait in the queue of its layer, and the lowest layer is taken first.

The paper asks a search engine which pages link to the sample pages. There is none here, so the layers are learned in the
crawl, from the paths by which relevant pages were reached; until then all pages but relevant ones are alike.
"""

from __future__ import annotations

import math
import zlib
from array import array
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.focus.strategy import Chance, PageSeen, Strategy
from scrapy_aopic.core.focus.words import word_place
from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.focus.topic import LinkText, Topic

LAYERS = 5
"""Layers, that of relevant pages included (depth 4 in the paper)."""

MOST_OF_LAYER = 300
"""Pages of a layer that are learned from, as in the paper."""

CONFIDENT = 0.5
"""Least probability of a layer for a page to be in it."""

STEP = 0.2
"""How much less a link is worth than one of the layer below. What remains below all layers is for pages in none."""

MOST_PAGES = 2_000
"""Pages whose words are remembered, the latest: 600 bytes each."""

_MOST_WORDS = 300
_PLACES = 1 << 15


class _SeenPage(NamedTuple):
    parent: bytes
    places: array[int]
    layer: int


class Layers:
    """Naive Bayes with a class for each layer, over hashed words."""

    def __init__(self) -> None:
        self._counts = [array("I", bytes(4 * _PLACES)) for _ in range(LAYERS)]
        self._sums = [0] * LAYERS
        self._pages = [0] * LAYERS

    def learn(self, places: Sequence[int], layer: int) -> bool:
        """A page with words at *places* is in *layer*; whether it is learned from, as a layer is full at some point."""
        if self._pages[layer] >= MOST_OF_LAYER:
            return False
        counts = self._counts[layer]
        for place in places:
            counts[place] += 1
        self._sums[layer] += len(places)
        self._pages[layer] += 1
        return True

    def likely(self, places: Sequence[int]) -> list[float]:
        """Probability of each layer for a page with words at *places*, if all are equally frequent; 0 if it is unknown.

        The likelihood is the mean over the page's words, so that long pages do not become certain.
        """
        logs = [
            sum([math.log((1 + counts[place]) / (_PLACES + total)) for place in places]) / len(places)
            if n and places
            else -math.inf
            for counts, total, n in zip(self._counts, self._sums, self._pages, strict=True)
        ]
        best = max(logs)
        if best == -math.inf:
            return [0.0] * LAYERS
        parts = [math.exp(_SHARPNESS * (each - best)) for each in logs]
        return [part / sum(parts) for part in parts]

    def pack(self) -> bytes:
        """The layers as bytes."""
        if not any(self._pages):
            return b""
        head = array("I", [*self._pages, *self._sums]).tobytes()
        return zlib.compress(head + b"".join([counts.tobytes() for counts in self._counts]), 1)

    def restore(self, data: bytes) -> None:
        """Go on from what :meth:`pack` gave.

        Raises:
            StorageError: If *data* is damaged.
        """
        if not data:
            return
        n = 4 * (2 + _PLACES) * LAYERS
        try:
            plain = zlib.decompressobj().decompress(data, n + 1)
        except zlib.error as error:
            raise StorageError("The layers of the context graph are damaged") from error
        if len(plain) != n:
            raise StorageError(f"The layers of the context graph have {n} bytes, not {len(plain)}")
        numbers = array("I", plain)
        self._pages, self._sums = list(numbers[:LAYERS]), list(numbers[LAYERS : 2 * LAYERS])
        self._counts = [
            numbers[2 * LAYERS + at * _PLACES : 2 * LAYERS + (at + 1) * _PLACES] for at in range(LAYERS)
        ]


_SHARPNESS = 10.0
"""Sharpens the probabilities: with 1, one layer would hardly ever be likelier than all others together."""


class ContextGraph(Strategy):
    """Links of pages that are likely to be near to relevant ones first."""

    learns = True
    reads_text = True

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self.layers = Layers()
        self._known: dict[bytes, _SeenPage] = {}

    def learn(self, page: PageSeen) -> None:
        places = self._places(page.text)
        layer = 0 if page.is_relevant and self.layers.learn(places, 0) else LAYERS
        self._known[page.key] = _SeenPage(page.parent, places, layer)
        if len(self._known) > MOST_PAGES:
            del self._known[next(iter(self._known))]
        if not page.is_relevant:
            return
        key = page.parent
        for distance in range(1, LAYERS):
            known = self._known.get(key)
            if known is None or known.layer <= distance:
                return
            if self.layers.learn(known.places, distance):
                self._known[key] = known._replace(layer=distance)
            key = known.parent

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [1.0 - STEP * self.layer(page)] * len(links)

    def layer(self, page: PageSeen) -> int:
        """The layer of *page*; one more than the last if it is in none."""
        if page.is_relevant:
            return 0
        known = self._known.get(page.key)
        likely = self.layers.likely(known.places if known is not None else self._places(page.text))
        best = max(range(LAYERS), key=likely.__getitem__)
        return best if likely[best] >= CONFIDENT else LAYERS

    def pack(self) -> bytes:
        return self.layers.pack()

    def restore(self, data: bytes) -> None:
        self.layers.restore(data)

    def _places(self, text: str) -> array[int]:
        found = self.topic.words(text)
        step = max(len(found) // _MOST_WORDS, 1)
        return array("H", [word_place("page", word) % _PLACES for word in found[::step][:_MOST_WORDS]])

"""Logistic regression that learns one example at a time (AdaGrad: Duchi, Hazan and Singer, JMLR 12, 2011)."""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter
from operator import mul
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError

from .words import BITS, Features, places_in

if TYPE_CHECKING:
    from collections.abc import Iterable


_RATE = 0.5
"""Size of the first step, for vectors of length 1."""

_HEAD = struct.Struct("<4sBdddI")
_ENTRY = struct.Struct("<Iff")
_MAGIC = b"AOFC"

MOST_BYTES = _HEAD.size + (_ENTRY.size << BITS)
"""Bytes of a classifier that has learned something of every place."""

_OFTENER = 10.0
"""An example of the rarer class counts at most this many times as much as one of the other."""


class Classifier:
    """How likely something is to be relevant, by its features.

    An example of the rarer class counts more, so that scores are as if both were as frequent.

    Attributes:
        bias: Log odds of an example without features.
        seen: Sum of the targets over all examples, and sum of 1 - target: relevant examples and others.
    """

    def __init__(self) -> None:
        self._weights = array("f", bytes(4 << BITS))
        self._squares = array("f", bytes(4 << BITS))
        self.bias = 0.0
        self.seen = (0.0, 0.0)

    def score(self, features: Features) -> float:
        """Probability that a text with these *features* is relevant, 0 to 1."""
        weights = self._weights
        return logistic(self.bias + sum([weights[place] * value for place, value in features.items()]))

    def score_words(self, found: Iterable[str]) -> float:
        """Like :meth:`score`, for the words *found* on a page: takes half the time, as it makes no features.

        The result differs only if two of the words share a place, and by too little to matter for a page.
        """
        counts = Counter(found)
        places = map(places_in("page").__getitem__, counts)
        if len(counts) == counts.total():
            x, square = sum(map(self._weights.__getitem__, places)), float(len(counts))
        else:
            values = [1.0 + math.log(n) if n > 1 else 1.0 for n in counts.values()]
            x = sum(map(mul, map(self._weights.__getitem__, places), values))
            square = sum(map(mul, values, values))
        return logistic(self.bias + (x / math.sqrt(square) if square else 0.0))

    def part(self, features: Features, place: int) -> float:
        """The log odds that one *place* of *features* adds."""
        return self._weights[place] * features[place]

    def learn(self, features: Features, target: float) -> None:
        """Take one step towards *target*, 0 to 1.

        Raises:
            ValueError: If *target* is not from 0 to 1.
        """
        if not 0.0 <= target <= 1.0:
            raise ValueError(f"target must be a number from 0 to 1, not {target!r}")
        positive, negative = self.seen = self.seen[0] + target, self.seen[1] + 1.0 - target
        half = (positive + negative) / 2
        rare = target * half / max(positive, 1.0) + (1.0 - target) * half / max(negative, 1.0)
        error = (self.score(features) - target) * min(rare, _OFTENER)
        weights, squares = self._weights, self._squares
        for place, value in features.items():
            slope = error * value
            squares[place] += slope * slope
            if squares[place]:
                weights[place] -= _RATE * slope / math.sqrt(squares[place])
        self.bias -= 0.05 * error

    def pack(self) -> bytes:
        """The classifier as bytes: only the places that were ever learned, 12 bytes each."""
        learned = [place for place, square in enumerate(self._squares) if square]
        head = _HEAD.pack(_MAGIC, BITS, self.bias, *self.seen, len(learned))
        return head + b"".join(
            [_ENTRY.pack(place, self._weights[place], self._squares[place]) for place in learned]
        )

    @classmethod
    def unpack(cls, data: bytes) -> Classifier:
        """The classifier written as *data*.

        Raises:
            StorageError: If it is not one. Memory is allocated by the length of *data*, never by a number in it.
        """
        try:
            magic, bits, bias, positive, negative, n = _HEAD.unpack_from(data)
        except struct.error:
            raise StorageError(f"A classifier has at least {_HEAD.size} bytes, not {len(data)}") from None
        if magic != _MAGIC or bits != BITS or len(data) != _HEAD.size + n * _ENTRY.size:
            raise StorageError("These bytes are no classifier, or one of another version")
        self = cls()
        last = -1
        for place, weight, square in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
            if not last < place < 1 << BITS or not math.isfinite(weight) or not 0 < square < math.inf:
                raise StorageError("This classifier is damaged: its places or its numbers cannot be right")
            self._weights[place], self._squares[place], last = weight, square, place
        if not all(map(math.isfinite, (bias, positive, negative))) or min(positive, negative) < 0:
            raise StorageError("This classifier is damaged: its sums cannot be right")
        self.bias, self.seen = bias, (positive, negative)
        return self


def logistic(x: float) -> float:
    """The number from 0 to 1 whose log odds are *x*."""
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0

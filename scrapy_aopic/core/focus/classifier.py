"""Logistic regression with squared weights (L2), fitted to its end by dual coordinate descent.

Yu, Huang and Lin, "Dual coordinate descent methods for logistic regression and maximum entropy models", Machine Learning 85,
2011, as in liblinear: one number for each example, the rest follows from these.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import mul
from typing import NamedTuple
from zlib import crc32

from scrapy_aopic.exceptions import StorageError

from .words import BITS, Features, places_in

COST = 30.0
"""What a wrong example costs beside the squared length of the weights, for vectors of length 1."""

BIAS = 0.3
"""Value of the feature that all texts have, so that words, not the bias, say what a page is not: the text of a link has few words,
and none of them may say anything."""

_ROUNDS = 100
"""Most times that all examples are gone through; some 20 are enough."""

_LINK = 0.5
"""Log odds of a word of which all examples say the same; with twice as much, a crawl finds less."""

_HALVES = 30
"""Times that an interval of log odds is halved, to a billionth of it."""

_STILL = 0.001
"""Change of log odds below which an example is at rest."""

_HEAD = struct.Struct("<4sBdddI")
_MAGIC = b"AOF2"
_OLD_MAGIC = b"AOFC"
"""Of models that have in place of a link weight a number that only learning needed."""

_ENTRY = struct.Struct("<Iff")

MOST_BYTES = _HEAD.size + (_ENTRY.size << BITS)
"""Bytes of a classifier that has learned something of every place."""

_OFTENER = 10.0
"""An example of the rarer class counts at most this many times as much as one of the other."""


class Example(NamedTuple):
    """What a logistic regression learns from.

    Attributes:
        cost: What being wrong about it costs beside half the squared length of the weights.
        square: That of its length with the bias, or more.
        offset: Log odds that it has before anything is learned.
    """

    features: Features
    is_relevant: bool
    cost: float
    square: float
    offset: float = 0.0


def descend(examples: Sequence[Example], bias: float) -> tuple[dict[int, float], float, list[float]]:
    """Logistic regression of *examples*, to its end. O(their features) a round.

    Args:
        bias: Value of the feature that all have.

    Returns:
        Weights by place, the log odds that the bias adds, and of each example the log odds of its part of what it may cost.
    """
    weights, shift, n = defaultdict[int, float](float), 0.0, len(examples)
    odds = [0.0] * n
    pairs = [(each.features, 1.0 if each.is_relevant else -1.0, *each[2:]) for each in examples]
    for features, sign, cost, _, _ in pairs:
        _add(weights, features, sign * cost / 2)
    shift = bias * bias * sum([sign * cost / 2 for _, sign, cost, _, _ in pairs])
    for number in range(_ROUNDS):
        most = 0.0
        for at in sorted(range(n), key=lambda at: crc32(b"%d %d" % (number, at))):
            features, sign, cost, square, offset = pairs[at]
            before = cost * logistic(odds[at])
            margin = sign * (shift + sum([weights[place] * v for place, v in features.items()]) + offset)
            low, high = -margin - square * (cost - before), -margin + square * before
            for _ in range(_HALVES):
                middle = (low + high) / 2
                if middle + margin + square * (cost * logistic(middle) - before) > 0.0:
                    high = middle
                else:
                    low = middle
            step = sign * (cost * logistic(low) - before)
            most = max(most, abs(low - odds[at]))
            odds[at] = low
            _add(weights, features, step)
            shift += bias * bias * step
        if most < _STILL:
            break
    return weights, shift, odds


class Classifier:
    """How likely something is to be relevant, by its features.

    An example of the rarer class counts more, so that scores are as if both were as frequent.

    Attributes:
        bias: Log odds of an example without features.
        seen: Number of relevant examples that it has learned from, and of others.
    """

    def __init__(self) -> None:
        self._weights = array("f", bytes(4 << BITS))
        self._links = array("f", bytes(4 << BITS))
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
        return logistic(self.bias + _mean(self._weights, found))

    def score_link(self, found: Iterable[str]) -> float:
        """How likely a link with the words *found* leads to something relevant, 0 to 1; 0.5 if they say nothing.

        It has few words, so each counts by how sure it is, however rare: its weight by the root of the squares that it is the
        sum of. With the weights for pages, a crawl finds a quarter less.
        """
        return logistic(_mean(self._links, found))

    def part(self, features: Features, place: int) -> float:
        """The log odds that one *place* of *features* adds."""
        return self._weights[place] * features[place]

    def fit(
        self, examples: Sequence[tuple[Features, bool]], beside: Sequence[tuple[Features, bool]] = ()
    ) -> None:
        """Learn from *examples*, each with whether it is relevant, and from nothing else. O(their features) a round.

        Args:
            beside: Examples that what is said of pages is learned from as well, but not what is said of links.
        """
        self._weights, self._links = array("f", bytes(4 << BITS)), array("f", bytes(4 << BITS))
        given = self._weighed(examples)
        weights, self.bias, odds = descend(given, BIAS)
        squares = defaultdict[int, float](float)
        for (features, _, cost, *_), odd in zip(given, odds, strict=True):
            for place, value in features.items():
                squares[place] += (cost * logistic(odd) * value) ** 2
        for place, weight in weights.items():
            self._links[place] = _LINK * weight / math.sqrt(squares[place])
        if beside:
            weights, self.bias, _ = descend(self._weighed([*examples, *beside]), BIAS)
        for place, weight in weights.items():
            self._weights[place] = weight

    def _weighed(self, examples: Sequence[tuple[Features, bool]]) -> list[Example]:
        """*examples* with what each counts."""
        n = len(examples)
        relevant = sum([is_relevant for _, is_relevant in examples])
        self.seen = float(relevant), float(n - relevant)
        rare = [min(n / (2 * max(seen, 1.0)), _OFTENER) for seen in self.seen]
        return [
            Example(features, is_relevant, COST * rare[not is_relevant], 1.0 + BIAS * BIAS)
            for features, is_relevant in examples
        ]

    def pack(self) -> bytes:
        """The classifier as bytes: only the places that have a weight, 12 bytes each."""
        learned = [place for place, weight in enumerate(self._weights) if weight]
        head = _HEAD.pack(_MAGIC, BITS, self.bias, *self.seen, len(learned))
        return head + b"".join(
            [_ENTRY.pack(place, self._weights[place], self._links[place]) for place in learned]
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
        is_known = magic in (_MAGIC, _OLD_MAGIC)
        if not is_known or bits != BITS or len(data) != _HEAD.size + n * _ENTRY.size:
            raise StorageError("These bytes are no classifier, or one of another version")
        self = cls()
        last = -1
        for place, weight, link in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
            if not last < place < 1 << BITS or not math.isfinite(weight) or not math.isfinite(link):
                raise StorageError("This classifier is damaged: its places or its numbers cannot be right")
            self._weights[place], last = weight, place
            self._links[place] = link if magic == _MAGIC else weight
        if not all(map(math.isfinite, (bias, positive, negative))) or min(positive, negative) < 0:
            raise StorageError("This classifier is damaged: its sums cannot be right")
        self.bias, self.seen = bias, (positive, negative)
        return self


def _mean(weights: Sequence[float], found: Iterable[str]) -> float:
    """The sum of the *weights* of the words *found*, as of their features; 0 without any."""
    counts = Counter(found)
    places = map(places_in("page").__getitem__, counts)
    if len(counts) == counts.total():
        x, square = sum(map(weights.__getitem__, places)), float(len(counts))
    else:
        values = [1.0 + math.log(n) if n > 1 else 1.0 for n in counts.values()]
        x = sum(map(mul, map(weights.__getitem__, places), values))
        square = sum(map(mul, values, values))
    return x / math.sqrt(square) if square else 0.0


def _add(weights: dict[int, float], features: Features, step: float) -> None:
    for place, value in features.items():
        weights[place] += step * value


def logistic(x: float) -> float:
    """The number from 0 to 1 whose log odds are *x*."""
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0

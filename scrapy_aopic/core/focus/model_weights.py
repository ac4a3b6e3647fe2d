"""Learned weights of words, one for each place, in steps of AdaGrad (Duchi, Hazan and Singer, JMLR 12, 2011).

They are in arrays of four bytes each, so that the bytes that are kept are exactly those in memory. Lists of numbers were
tried: they take twice the memory, and in a whole crawl the same time.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable

BITS = 16
"""Places of features are numbers below 2**16, which an array of 16 bits holds."""

_RATE = 0.1
"""Size of the first step of each weight, in log odds."""

_HEAD = struct.Struct("<I")
_PLACE_BYTES = 2 + 4 + 4


class WordWeights:
    """WordWeights of places below 2**16.

    Attributes:
        values: By place, in log odds; 0 where nothing was learned. To be read, and changed by :meth:`descend` only.
    """

    __slots__ = ("_learned", "_squares", "values")

    def __init__(self) -> None:
        self.values = array("f", bytes(4 << BITS))
        self._squares = array("f", bytes(4 << BITS))  # sums of squared slopes
        self._learned: list[int] = []  # places

    def descend(self, places: Iterable[int], slope: float) -> None:
        """Take one step down the *slope* with all *places*; it must not be 0."""
        values, squares, root = self.values, self._squares, math.sqrt
        square, step = slope * slope, _RATE * slope
        for place in places:
            before = squares[place]
            if not before:
                self._learned.append(place)
            squares[place] = total = before + square
            values[place] -= step / root(total)

    def pack(self) -> bytes:
        """All that was learned, as bytes: ten for each place."""
        places = sorted(self._learned)
        return b"".join(
            (
                _HEAD.pack(len(places)),
                array("H", places).tobytes(),
                array("f", map(self.values.__getitem__, places)).tobytes(),
                array("f", map(self._squares.__getitem__, places)).tobytes(),
            )
        )

    @classmethod
    def unpack(cls, data: memoryview) -> tuple[WordWeights, memoryview]:
        """The weights that *data* begins with, and what is behind them.

        Raises:
            ValueError: If these cannot be right, or *data* ends in them.
            struct.error: The same.
        """
        (n,) = _HEAD.unpack_from(data)
        end = _HEAD.size + _PLACE_BYTES * n
        if n > 1 << BITS or len(data) < end:
            raise ValueError("weights are missing")
        places = array("H", bytes(data[_HEAD.size : _HEAD.size + 2 * n]))
        numbers = array("f", bytes(data[_HEAD.size + 2 * n : end]))
        values, squares = numbers[:n], numbers[n:]
        if len(set(places)) != n or not all(map(math.isfinite, numbers)) or min(squares, default=1.0) <= 0.0:
            raise ValueError("its numbers cannot be right")
        self = cls()
        self._learned.extend(places)
        for place, value, square in zip(places, values, squares, strict=True):
            self.values[place], self._squares[place] = value, square
        return self, data[end:]

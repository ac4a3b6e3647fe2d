"""What a page's grade means as a probability, by pages that people have labelled: how likely a page with this grade is relevant,
and with these words.

Of words a job keeps a *gist* of each page, some bytes, as it keeps no texts. So labels tell of pages that were fetched before.

Rule: the order goes by grades, and whatever people are told by probabilities, so labels leave the order as it is.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log, sqrt
from operator import mul
from typing import NamedTuple

from .classifier import logistic
from .words import places_in

_LEAST = 0.001
"""Distance that a grade keeps from 0 and 1, where its log odds are infinite."""


GIST_BYTES = 256
"""Numbers of a gist, a byte each. With half as many, labels say less of other pages; with all words, hardly more."""

_REACHED = 7
"""Of ten examples, those that are below the grade at which others are as likely relevant as not. With 5, .47 of what counts is
relevant in the mean of 16 crawls, with 7 .62, at a recall of .67 and .48."""

_MOST = 127
"""Largest number of a byte with a sign, but for one that is negative."""

LEAST_GRADED = 0.1
"""Grade from which on a page has a gist: hardly a page below it is relevant, and most pages are."""

SURE = 1.959964
"""Standard deviations of a normal distribution that hold 95 % of it, to both sides."""


class Calibration(NamedTuple):
    """A logistic function of the log odds of grades (Platt, 1999) and of what pages are about.

    Attributes:
        slope, shift: The log odds of relevance are *slope* times those of the grade, and *shift*.
        labels: Labels that it was fitted to. Without any, probabilities are *unchecked*: grades, or by
            :func:`unchecked_by`.
        gist: What each number of a page's gist adds; empty if labels say nothing of these.
    """

    slope: float = 1.0
    shift: float = 0.0
    labels: int = 0
    gist: tuple[float, ...] = ()

    def probability(self, grade: float, gist: bytes = b"") -> float:
        """How likely a page with this *grade* and *gist* is relevant, 0 to 1."""
        if not (self.labels or self.shift):
            return grade
        said = sum(map(mul, self.gist, directions(gist)))
        return logistic(self.slope * log_odds(grade) + self.shift + said)


UNCHECKED = Calibration()
"""Without labels."""


def unchecked_by(grades: Sequence[float]) -> Calibration:
    """Without labels, for a topic whose relevant examples have these *grades* by what other examples teach: a page is as likely
    relevant as not if 3 of 10 examples reach its grade, and never at a lower one than 0.5."""
    return Calibration(shift=-max(log_odds(sorted(grades)[_REACHED * len(grades) // 10]), 0.0))


def gist_of(found: Iterable[str]) -> bytes:
    """What a page with the words *found* is about, so that products of two gists tell how many words they share.

    Each word adds to one of its numbers, or takes away, by its hash (Weinberger et al., ICML 2009): as much as how often it
    occurs has binary digits.
    """
    sums = [0] * GIST_BYTES
    counts = Counter(found)
    for place, n in zip(map(places_in("page").__getitem__, counts), counts.values(), strict=True):
        sums[place % GIST_BYTES] += -n.bit_length() if place & GIST_BYTES else n.bit_length()
    largest = max(map(abs, sums))
    if largest > _MOST:  # only their ratios count
        sums = [each * _MOST // largest for each in sums]
    return array("b", sums).tobytes()


def directions(gist: bytes) -> list[float]:
    """The numbers of *gist*, of length 1 together."""
    found = array("b", gist)
    length = sqrt(sum(map(mul, found, found))) or 1.0
    return [each / length for each in found]


def log_odds(grade: float) -> float:
    """The log odds of *grade*, 0 to 1."""
    part = min(max(grade, _LEAST), 1.0 - _LEAST)
    return log(part / (1.0 - part))


def wilson(relevant: int, n: int) -> tuple[float, float]:
    """Interval of 95 % for a part of which *relevant* of *n* were found (Wilson, JASA 22, 1927)."""
    if not n:
        return 0.0, 1.0
    part, square = relevant / n, SURE * SURE
    middle = (part + square / (2 * n)) / (1 + square / n)
    half = SURE / (1 + square / n) * sqrt(part * (1 - part) / n + square / (4 * n * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)

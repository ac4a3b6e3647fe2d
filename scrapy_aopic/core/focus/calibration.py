"""What a page's grade means as a probability, by pages that people have labelled.

Rule: the order goes by grades, and whatever people are told by probabilities, so labels leave the order as it is.
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

from .classifier import logistic

_LEAST = 0.001
"""Distance that a grade keeps from 0 and 1, where its log odds are infinite."""


SURE = 1.959964
"""Standard deviations of a normal distribution that hold 95 % of it, to both sides."""


class Calibration(NamedTuple):
    """A logistic function of the log odds of grades (Platt, 1999).

    Attributes:
        slope, shift: The log odds of relevance are *slope* times those of the grade, and *shift*.
        labels: Labels that it was fitted to. Without any, a grade is taken for a probability, which is *unchecked*.
    """

    slope: float = 1.0
    shift: float = 0.0
    labels: int = 0

    def probability(self, grade: float) -> float:
        """How likely a page with this *grade* is relevant, 0 to 1."""
        return logistic(self.slope * log_odds(grade) + self.shift) if self.labels else grade


UNCHECKED = Calibration()
"""Without labels."""


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

"""Splits a page's cash by the values of its links for the topic: ``q**power / (sum of q**power + null mass)``.

The null mass keeps an off-topic page from handing all of its cash to its off-topic links: its part goes to the virtual
page. Weights are whole numbers, so that the ledger conserves cash to the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

POWER = 2.0
"""Exponent of values: a link that is worth twice as much gets 2**power times as much cash."""

UNIT = 1_000_000
"""Weight of a link whose value is 1, so that a value of 0.001 still weighs something."""

NULL_MASS = 1.0
"""Links of value 1 that the null mass is worth: a page whose links are all relevant keeps little back."""


class Shares(NamedTuple):
    """Weights of a page's links, as the ledger (:mod:`scrapy_aopic.core.ledger`) takes them.

    Attributes:
        weights: Of each link, 0 or more.
        whole: Their sum plus the null mass.
    """

    weights: list[int]
    whole: int


def shares(
    values: Sequence[float], *, focus: float = 1.0, null_mass: float = NULL_MASS, power: float = POWER
) -> Shares:
    """Shares of links of *values*, 0 to 1, at a *focus* from 0 (all the same) to 1 (by their values alone).

    Raises:
        ValueError: If a value or *focus* is not from 0 to 1, or *null_mass* or *power* below 0.
    """
    if not all(0.0 <= value <= 1.0 for value in values) or not 0.0 <= focus <= 1.0:
        raise ValueError(f"values and focus must be from 0 to 1: {focus!r}")
    if not (null_mass >= 0.0 and power >= 0.0):
        raise ValueError(f"null_mass and power must be 0 or more: {null_mass!r}, {power!r}")
    weights = [int(UNIT * (1.0 - focus + focus * value**power)) for value in values]
    return Shares(weights, max(sum(weights) + int(UNIT * focus * null_mass), 1))

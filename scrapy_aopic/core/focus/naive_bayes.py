"""Naive Bayes for two classes, relevant or not, over words, as the paper on JLSE has it (equations 1 and 2)."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .classifier import logistic

if TYPE_CHECKING:
    from collections.abc import Iterable


class NaiveBayes:
    """The probability that a document is relevant.

    Args:
        samples: The words of sample documents, and whether each is relevant; there must be some of both.

    Raises:
        ValueError: If all are of one class.
    """

    def __init__(self, samples: Iterable[tuple[Iterable[str], bool]]) -> None:
        self._counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        n = [0, 0]
        for found, is_relevant in samples:
            self._counts[is_relevant].update(found)
            n[is_relevant] += 1
        if not all(n):
            raise ValueError(
                f"There must be samples of what is relevant and of what is not, not {n[1]} and {n[0]}"
            )
        self._prior = math.log(n[True] / n[False])
        # One is enough to keep a class without any word from dividing by 0.
        self._wholes = [max(len(counts) + counts.total(), 1) for counts in self._counts]

    def word(self, word: str, *, is_relevant: bool) -> float:
        """P(word | class): the probability that a word of a document of the class is this one (equation 2).

        The paper calls V the vocabulary of the class, and so it is here; usually it is the vocabulary of all classes.
        """
        return (1 + self._counts[is_relevant][word]) / self._wholes[is_relevant]

    def probability(self, found: Iterable[str]) -> float:
        """P(relevant | document) of one with the words *found* (equation 1).

        Each word counts once, as a document is the set of its words (definition 1); one that no sample has counts, too, for the
        class with fewer words. P(document), which is printed as a constant, is what makes the two classes add up to 1.
        """
        odds = self._prior
        for word in set(found):
            odds += math.log(self.word(word, is_relevant=True) / self.word(word, is_relevant=False))
        return logistic(odds)

"""BM25 over short documents of several fields: which document is most like a query, and how much.

Robertson and others, TREC-3, 1994, by default with the idf of Lucene, which is never negative. What a term adds to a document's
score is worked out when the index is built (Lù, "BM25S", 2024), so that a search only adds. :meth:`Index.nearest` stops taking
documents in once none of the further terms can bring one up to the best (MaxScore: Turtle and Flood, 1995); its result is the same
as without.

Rule 1: a score of :meth:`Index.nearest` is from 0 to 1: each field's is divided by the score that the query would have as a
document of the index.

Rule 2: an index does not change; a new one takes its place.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

K1 = 2.0
"""How soon repetitions of a term stop counting (k1); as in the paper on JLSE."""

B = 0.75
"""How much longer documents are discounted (b); as in the paper on JLSE."""

MOST_DOCUMENTS = 5_000
"""Documents of an index: some 500,000 terms, 3 MB, and a few milliseconds for the links of a page."""

Document: TypeAlias = "tuple[Sequence[str], ...]"
"""The terms of each field, with repetitions."""


class Match(NamedTuple):
    """A document that is like a query.

    Attributes:
        number: Its place among the documents of the index.
        score: How much it is like the query, 0 to 1.
    """

    number: int
    score: float


class _Postings(NamedTuple):
    """The documents with a term in a field, in ascending order, and what it adds to the score of each."""

    numbers: array[int]
    gains: array[float]
    most: float


class Index:
    """An index of *documents*.

    Args:
        documents: At most :data:`MOST_DOCUMENTS`.
        weights: What each field counts; their sum is 1.
        idf: How much a term counts, by how many documents there are, and how many of these have it.

    Raises:
        ValueError: If there are more documents, or the weights are not of sum 1.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        weights: Sequence[float],
        idf: Callable[[int, int], float] = lambda n, df: math.log(1.0 + (n - df + 0.5) / (df + 0.5)),
    ) -> None:
        if len(documents) > MOST_DOCUMENTS or not math.isclose(sum(weights), 1.0):
            raise ValueError(
                f"At most {MOST_DOCUMENTS} documents, and weights of sum 1, not {len(documents)} and {weights!r}"
            )
        self._n = len(documents)
        self._rarity = partial(idf, self._n)
        self._weights = tuple(weights)
        self._means = [
            sum([len(document[field]) for document in documents]) / self._n or 1.0 if self._n else 1.0
            for field in range(len(weights))
        ]
        listed: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for number, document in enumerate(documents):
            for field, terms in enumerate(document):
                for term, n in Counter(terms).items():
                    listed.setdefault((field, term), []).append((number, n))
        self._idf = {key: self._rarity(len(found)) for key, found in listed.items()}
        self._postings: dict[tuple[int, str], _Postings] = {}
        for key, found in listed.items():
            field = key[0]
            rarity, mean = self._idf[key], self._means[field]
            gains = array(
                "d", [rarity * _part(n, len(documents[number][field]) / mean) for number, n in found]
            )
            self._postings[key] = _Postings(array("H", [number for number, _ in found]), gains, max(gains))

    def scores(self, query: Document) -> list[dict[int, float]]:
        """Of each field, the scores of the documents that have a term of *query* in it, as they are (equation 5 of JLSE)."""
        found: list[dict[int, float]] = []
        for field, terms in enumerate(query):
            scores: dict[int, float] = {}
            for term in dict.fromkeys(terms):
                if (postings := self._postings.get((field, term))) is not None:
                    for number, gain in zip(postings.numbers, postings.gains, strict=True):
                        scores[number] = scores.get(number, 0.0) + gain
            found.append(scores)
        return found

    def nearest(self, query: Document) -> Match | None:
        """The document that is most like *query*, and of equals the earliest; ``None`` if none shares a term with it.

        Only for an idf that is never negative."""
        terms = self._terms(query)
        rest = [0.0]  # what the terms from each on can add at most
        for gain, _, _ in reversed(terms):
            rest.append(rest[-1] + gain)
        rest.reverse()
        scores: dict[int, float] = {}
        bar = 0.0  # the best score so far
        done = 0
        for _, weight, postings in terms:
            if scores and rest[done] <= bar:
                break
            get = scores.get
            for number, gain in zip(postings.numbers, postings.gains, strict=True):
                scores[number] = get(number, 0.0) + weight * gain
            done += 1
            bar = max(scores.values())
        if done < len(terms):
            slack = rest[done] * (1.0 + 1e-9)  # sums in another order differ in the last digits
            close = [number for number, score in scores.items() if score + slack >= bar]
            for _, weight, postings in terms[done:]:
                numbers, gains = postings.numbers, postings.gains
                for number in close:
                    at = bisect_left(numbers, number)
                    if at < len(numbers) and numbers[at] == number:
                        scores[number] += weight * gains[at]
            scores = {number: scores[number] for number in close}
        if not scores:
            return None
        number = max(scores, key=lambda number: (scores[number], -number))
        return Match(number, min(scores[number], 1.0))

    def _terms(self, query: Document) -> list[tuple[float, float, _Postings]]:
        """For each term of *query* in the index: the most it can add, its weight and its postings; the largest first."""
        found = []
        for field, terms in enumerate(query):
            counted = Counter(terms)
            length = len(terms) / self._means[field]
            own = 0.0
            for term, n in counted.items():
                idf = self._idf.get((field, term))
                own += (self._rarity(0) if idf is None else idf) * _part(n, length)
            if not own:
                continue
            weight = self._weights[field] / own
            for term in counted:
                postings = self._postings.get((field, term))
                if postings is not None:
                    found.append((weight * postings.most, weight, postings))
        found.sort(key=lambda item: item[0], reverse=True)
        return found


def _part(n: int, length: float) -> float:
    """What *n* occurrences count in a document of so many times the mean *length*."""
    return n * (K1 + 1.0) / (K1 * (B * length + 1.0 - B) + n)

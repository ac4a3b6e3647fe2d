"""JLSE as printed (Zhang, Li, Yu and Zhang, "Crawling Web resources by joint link similarity evaluation", Chinese Journal of Computers
33, 2010), equation by equation.

It is here to be compared with; :mod:`.jlse` finds more. Where the paper can be read in several ways, or gives no number, the
docstrings say what was chosen. What it drops, all links of pages that are not relevant and of results, is worth nothing here, so it
comes last, in the order in which it was found.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import ClassVar

from scrapy_aopic.core.focus.classifier import logistic
from scrapy_aopic.core.focus.harvest_results import SupportVectors
from scrapy_aopic.core.focus.strategy import Chance, PageSeen, Strategy
from scrapy_aopic.core.focus.topic import LinkText, Topic
from scrapy_aopic.core.focus.words import LINK_CHARACTERS

from .bm25 import Document, Index, Match
from .jlse import FIELDS, LONGEST_CONTEXT, NO_EVIDENCE, Memory, Remembering
from .result_pages import RESULT_PAGES
from .success_graph import GAMMA


class NaiveBayes:
    """The probability that a document is relevant, from its words, by naive Bayes (equations 1 and 2).

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


RELEVANT = 0.5
"""Probability above which naive Bayes puts a document into the relevant class, the likelier one of two."""


def idf(n: int, df: int) -> float:
    """Weight of a term that *df* of *n* documents have (equation 6); negative if more than half of them have it.

    The paper does not give the base of the logarithm; it cancels out where scores are normalised.
    """
    return math.log((n - df + 0.5) / (df + 0.5))


def best_score(columns: Sequence[dict[int, float]]) -> Match | None:
    """The known link with the best score (equations 7 and 8), from the scores of each field; ``None`` if none scores.

    The paper does not say how columns are normalised: here to length 1, as in equation 10. Of equals the first counts.
    """
    scores: dict[int, float] = {}
    for weight, column in zip(FIELDS, columns, strict=True):
        length = math.hypot(*column.values()) or 1.0
        for number, score in column.items():
            scores[number] = scores.get(number, 0.0) + weight * score / length
    best = max(scores, key=lambda number: (scores[number], -number), default=-1)
    return Match(best, scores[best]) if scores.get(best, 0.0) > 0.0 else None


def unit_vector(similarities: Sequence[float]) -> list[float]:
    """*similarities* of the links of a page, all above 0, as a vector of length 1 (the fraction of equation 10)."""
    length = math.hypot(*similarities)
    return [min(each / length, 1.0) for each in similarities]


class MemoryAsPrinted(Memory):
    """The links on the paths to results, G_w, and how like them others are (equations 4 to 9).

    Args:
        words: Cuts text into words, without stop words.
        cf: See :attr:`JlseAsPrinted.cf`.
        leaf: See :attr:`JlseAsPrinted.leaf`.
    """

    def __init__(
        self, topic: Topic, words: Callable[[Iterable[str]], list[str]], cf: int, leaf: float
    ) -> None:
        super().__init__(topic, lambda n: (n // cf + 1) * cf)
        self._words = words
        self._leaf = leaf

    def _value(self, worth: float) -> float:
        """Q of a page (equation 18, with a reward rd of 1): that of the best link on it."""
        return self._leaf if worth == 1.0 else worth / GAMMA

    def _document(self, link: LinkText) -> Document:
        """The terms of a link's text, URL and context (equation 4 and definition 6).

        The context is what stands in the five pieces of text on each side of it, as a distance of 4 to 6 nodes in the tree, which
        is printed, is that of all links of a list; and of the URL it is path and query, without numbers.
        """
        cut = self.topic.words
        return (
            self._words(cut(link.anchor, LINK_CHARACTERS)),
            self._words(self.topic.url_words(link.path)),
            self._words(cut(link.around, 2 * LINK_CHARACTERS))[:LONGEST_CONTEXT],
        )

    def _make_index(self, documents: list[Document]) -> Index:
        """Counts what equation 5 needs, over all documents of a field (definition 7)."""
        return Index(documents, FIELDS, idf)

    def _nearest(self, index: Index, query: Document) -> Match | None:
        """The vertex of G_w that is most like a link: equation 5, then 7 and 8."""
        return best_score(index.scores(query))


class AtaAsPrinted(Strategy):
    """The paper's ATA: JLSE without what links like a link led to, in equation 3.

    Attributes:
        results: Tells results from lists of links.
    """

    reads_text: ClassVar[bool] = True
    reads_degrees: ClassVar[bool] = True
    needs_samples: ClassVar[bool] = True
    results: ClassVar[SupportVectors] = RESULT_PAGES

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        if topic.samples is None:
            raise ValueError("JLSE as printed learns from samples, and this topic has none")
        self._stop = frozenset(chain.from_iterable(map(topic.words, topic.samples.stop_words)))
        self._pages, self._anchors = (
            NaiveBayes([(self._words(topic.words(text)), is_relevant) for text, is_relevant in texts])
            for texts in (topic.samples.pages, topic.samples.anchors)
        )
        self._judged = ("", 0.0)

    def _words(self, found: Iterable[str]) -> list[str]:
        """Those of the words *found* that are no stop words."""
        return [word for word in found if word not in self._stop]

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        """The priorities of the *links* of a *page* (equation 10), if it is relevant and no result (algorithm 2)."""
        similarity = self.page_similarity(page)
        if similarity <= RELEVANT or self.is_result(page):
            return [0.0] * len(links)
        return [similarity * each for each in unit_vector(list(map(self.similarity, links)))]

    def page_similarity(self, page: PageSeen) -> float:
        """P(relevant | page) (equation 1)."""
        text, probability = self._judged
        if page.text != text:
            probability = self._pages.probability(self._words(self.topic.words(page.text)))
            self._judged = page.text, probability
        return probability

    def is_result(self, page: PageSeen) -> bool:
        """Whether a *page* is relevant, and no list of links (algorithm 2, step 1)."""
        return (
            page.degrees is not None
            and self.page_similarity(page) > RELEVANT
            and self.results.decide(page.degrees) > 0.0
        )

    def similarity(self, link: LinkText) -> float:
        """How relevant the text of a *link* is (algorithm 1): by equation 1, or 0.01 if it is classified as irrelevant.

        In the paper, all texts of links to the samples of a class are one document; here each is a document, so that
        P(class) is the part of the texts that are of the class.
        """
        words = self._words(self.topic.words(link.anchor, LINK_CHARACTERS))
        probability = self._anchors.probability(words)
        return probability if probability > RELEVANT else NO_EVIDENCE


class JlseAsPrinted(Remembering, AtaAsPrinted):
    """JLSE as printed. What waits keeps its value, as the paper does not say otherwise.

    A subclass of your own may change what the paper has set by experiment, and be ``AOPIC_LINK_SCORER``.

    Attributes:
        cf: Results after which the graph is read, again and again (definition 8).
        leaf: Q of a result. It has no links, so equation 18 is the maximum over none: here what algorithm 3 begins with, 0. With 1,
            a link like those to results is worth as much as one to a page that has such links.
    """

    cf: ClassVar[int] = 150
    leaf: ClassVar[float] = 0.0

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self.memory = MemoryAsPrinted(topic, self._words, self.cf, self.leaf)

    def learn(self, page: PageSeen) -> None:
        self.memory.note(page, result=self.is_result(page))

    def similarity(self, link: LinkText) -> float:
        """What speaks for a *link*: its text, or what links like it led to, whichever is more (equation 3)."""
        return max(super().similarity(link), self.memory.predict(link))

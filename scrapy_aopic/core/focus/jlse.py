"""JLSE (Zhang, Li, Yu and Zhang, "Crawling Web resources by joint link similarity evaluation") and ATA, as printed and mended.

A link is worth the better of two things: how well its text fits the topic (direct evidence), and how like it is to links that
led to results, times what those were worth (indirect evidence). ATA is the same without the second.

What is mended, as the printed form ends a crawl after some dozens of pages: a page that is not relevant passes on a little instead
of nothing, results are expanded, results have a worth of their own (1, and what leads to them 0.9, instead of nothing and 1), the
value is the root of the product, so that cash is split by the product itself and nothing falls below the floor, the
similarity is that of BM25 divided by what the link would have with itself, the graph is read anew after 15 results and whenever
it has grown by 1.3, instead of every 150, and waiting links are valued anew then.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.exceptions import StorageError

from .bm25 import MOST_DOCUMENTS, Index
from .results import seems_result
from .strategy import Strategy
from .success_graph import GAMMA, Step, SuccessGraph
from .topic import RELEVANT, LinkText
from .words import LINK_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .bm25 import Document
    from .strategy import Chance, PageSeen
    from .topic import Topic

NO_EVIDENCE = 0.01
"""Direct evidence of a link whose text does not fit, or which has none (algorithm 1 of the paper). Links of equal value come in
the order in which they were found, so this is what explores."""

FIELDS = (0.5, 0.2, 0.3)
"""What anchor, URL and context count in the similarity of two links (the paper, section 3)."""

LEAST_PAGE = 0.02
"""What a page passes on if nothing speaks for it: enough to come back to when nothing better is left."""

LONGEST_CONTEXT = 80
"""Words around a link that count."""

MOST_CACHED = 20_000
"""Links whose indirect evidence is kept until the next index: four of five links of a site's pages are on its other ones too."""

MOST_KEPT = 1_000
"""Links that are kept with the job, of some 300 bytes each."""

MOST_BYTES = 8 << 20
"""Bytes of what was kept, unpacked: four texts of at most 500 characters each, in UTF-8."""

_LONGEST_ANCHOR = 30


class Schedule(NamedTuple):
    """When the graph is read anew: after *first* results, and then each time that there are *factor* times as many, and *step*
    more."""

    first: int
    factor: float
    step: int

    def after(self, n: int) -> int:
        """Results at which it is read next, if it was read at *n*."""
        return self.first if n < self.first else max(math.ceil(n * self.factor) + self.step, n + 1)


EVERY_150 = Schedule(150, 1.0, 150)
"""The paper's: cf = 150."""

GROWING = Schedule(15, 1.3, 0)
"""Early, as a crawl for a rare topic has few results, and seldomer the more there are, so that all readings together cost no more
than a few of the last."""


def document(link: LinkText, topic: Topic) -> Document:
    """The terms of a *link*, by the tokeniser of the *topic*: anchor, URL and context."""
    around = topic.words(f"{link.heading} {link.around}", 2 * LINK_CHARACTERS)
    return (
        topic.words(link.anchor, LINK_CHARACTERS)[:_LONGEST_ANCHOR],
        topic.url_words(link.path),
        around[:LONGEST_CONTEXT],
    )


class Memory:
    """Links that led to results, and how like them others are (equations 5 to 9).

    Args:
        topic: What text is cut into words by.
        schedule: When it is read anew.
        gamma: See :mod:`.success_graph`.
        has_leaves: Whether the links of results are among them, with a worth of 1. As printed they are not, and what leads to a
            result is worth 1.

    Attributes:
        graph: Where the links are from.
        version: How often it was read.
    """

    def __init__(
        self, topic: Topic, schedule: Schedule = GROWING, gamma: float = GAMMA, *, has_leaves: bool = True
    ) -> None:
        self._topic = topic
        self.graph = SuccessGraph(gamma)
        self.version = 0
        self._schedule = schedule
        self._scale = 1.0 if has_leaves else 1.0 / gamma
        self._has_leaves = has_leaves
        self._due = schedule.after(0)
        self._index: Index | None = None
        self._worth: list[float] = []
        self._cache: dict[LinkText, float] = {}

    def note(self, page: PageSeen, *, result: bool) -> None:
        """A *page* was fetched."""
        self.graph.note(page.key, page.parent, page.link, is_result=result)
        if self.graph.n_results >= self._due:
            self._due = self._schedule.after(self.graph.n_results)
            self._read()

    def _read(self) -> None:
        known = [
            (document(link, self._topic), worth * self._scale)
            for link, worth in self.graph.successes(MOST_DOCUMENTS)
            if self._has_leaves or worth < 1.0
        ]
        self._index = Index([terms for terms, _ in known], FIELDS)
        self._worth = [worth for _, worth in known]
        self._cache.clear()
        self.version += 1

    def pack(self) -> bytes:
        """The :data:`MOST_KEPT` best of what it knows."""
        known = [(*link, worth) for link, worth in self.graph.successes(MOST_KEPT)]
        return zlib.compress(pack((self.graph.n_results, known)), 1) if known else b""

    def restore(self, data: bytes) -> None:
        """Go on from what :meth:`pack` gave.

        Raises:
            StorageError: If *data* is damaged.
        """
        if not data:
            return
        try:
            opener = zlib.decompressobj()
            n, known = unpack(opener.decompress(data, MOST_BYTES))
            links = [
                (LinkText(*[str(text) for text in texts]), float(worth))
                for *texts, worth in known[:MOST_KEPT]
            ]
            if not all(0.0 < worth <= 1.0 for _, worth in links) or int(n) < 0:
                raise ValueError("a worth is not from 0 to 1")
        except (*NO_RECORD, zlib.error, OverflowError) as error:
            raise StorageError("The links that led to relevant pages are damaged") from error
        for at, (link, worth) in enumerate(reversed(links)):
            self.graph.pages[b"kept %d" % at] = Step(b"", link, worth)
        self.graph.n_results = int(n)
        if self.graph.n_results >= self._due:
            self._due = self._schedule.after(self.graph.n_results)
            self._read()

    def predict(self, link: LinkText) -> float:
        """What the known link that is most like *link* was worth, times how like it is, 0 to 1; 0 before the first reading."""
        if self._index is None:
            return 0.0
        value = self._cache.get(link)
        if value is None:
            best = self._index.nearest(document(link, self._topic))
            value = best[0].score * self._worth[best[0].number] if best else 0.0
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            self._cache[link] = value
        return value


class Jlse(Strategy):
    """JLSE, mended.

    Args:
        topic: What the crawl is for. Its classifier takes the place of the paper's, which learns from the texts of links to
            sample pages.
        chance: Of no use.
        memory: Indirect evidence, if any.
    """

    learns = True

    def __init__(self, topic: Topic, chance: Chance, memory: Memory | None = None) -> None:
        del chance
        self._topic = topic
        self.memory = memory if memory is not None else Memory(topic)

    @property
    def version(self) -> int:
        return self.memory.version

    def learn(self, page: PageSeen) -> None:
        self.memory.note(page, result=page.is_relevant)

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [self.revalue(page.grade, link) for link in links]

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float:
        return math.sqrt(max(parent_grade, LEAST_PAGE) * self._evidence(link))

    def _evidence(self, link: LinkText) -> float:
        """What speaks for a *link* (equation 3)."""
        return max(direct_evidence(self._topic, link), self.memory.predict(link))

    def pack(self) -> bytes:
        return self.memory.pack()

    def restore(self, data: bytes) -> None:
        self.memory.restore(data)


class JlseAsPrinted(Jlse):
    """JLSE as printed: only relevant pages that are no results are expanded, and what speaks for a link is divided by the length
    of the vector of all links of its page (equation 10). Links of other pages are worth nothing, so they come last."""

    reads_text = True

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance, Memory(topic, EVERY_150, has_leaves=False))
        self._waiting: PageSeen | None = None

    @property
    def version(self) -> int:
        return 0  # a value stays as it was

    def learn(self, page: PageSeen) -> None:
        self._note(is_without_links=True)
        self._waiting = page

    def _note(self, *, is_without_links: bool, is_result: bool = False) -> None:
        """Note the page that waits for its links, as they say whether it is a result."""
        page, self._waiting = self._waiting, None
        if page is not None:
            if is_without_links:
                is_result = page.is_relevant and seems_result(page.text, (), self._topic.words)
            self.memory.note(page, result=is_result)

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        is_result = page.is_relevant and seems_result(
            page.text, [link.anchor for link in links], self._topic.words
        )
        self._note(is_without_links=False, is_result=is_result)
        if is_result or not page.is_relevant:
            return [0.0] * len(links)
        return [page.grade * each for each in unit_vector([self._evidence(link) for link in links])]


class Ata(Strategy):
    """How well a link's text fits, times the grade of its page: JLSE without indirect evidence."""

    def __init__(self, topic: Topic, chance: Chance) -> None:
        del chance
        self._topic = topic

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        factor = max(page.grade, LEAST_PAGE)
        return [math.sqrt(factor * direct_evidence(self._topic, link)) for link in links]


def direct_evidence(topic: Topic, link: LinkText) -> float:
    """How well the text of a *link* fits, or :data:`NO_EVIDENCE` (algorithm 1 of the paper)."""
    fit = topic.match(link._replace(path=""))
    return fit if fit >= RELEVANT else NO_EVIDENCE


def unit_vector(evidence: Sequence[float]) -> list[float]:
    """*evidence* for the links of a page as a vector of length 1 (equation 10); of none, nothing."""
    length = math.sqrt(sum([each * each for each in evidence]))
    return [each / length for each in evidence] if length else list(evidence)

"""JLSE (Zhang, Li, Yu and Zhang, "Crawling Web resources by joint link similarity evaluation") and ATA, corrected.

The value of a link is the larger of two numbers: how well its text matches the topic (direct evidence), and its similarity
to links that led to results, times the worth of those (indirect evidence). ATA has direct evidence only.

Differences from the printed form (:mod:`.jlse_as_printed`):

- The topic's own classifier judges pages and texts of links.
- A page that is not relevant passes on a little instead of nothing, and results are expanded.
- Results are worth 1 and links to them 0.9, instead of 0 and 1.
- The value is the root of the product, so that cash is split by the product itself and nothing falls below the floor.
- The similarity is that of BM25 with an idf that is never negative, divided by the link's similarity to itself.
- The graph is read after 15 results and then at 1.3 times as many each time, instead of every 150, and waiting links are
  valued again then.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, convert

from scrapy_aopic.core.focus.strategy import Chance, PageSeen, Strategy
from scrapy_aopic.core.focus.topic import RELEVANT, LinkText, Topic
from scrapy_aopic.core.focus.words import LINK_CHARACTERS
from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.exceptions import StorageError

from .bm25 import MOST_DOCUMENTS, Document, Index, Match
from .success_graph import Step, SuccessGraph

NO_EVIDENCE = 0.01
"""Direct evidence of a link whose text does not fit, or which has none (algorithm 1 of the paper). Links of equal value come in
the order in which they were found, so this is what explores."""

FIELDS = (0.5, 0.2, 0.3)
"""Weights of anchor, URL and context in the similarity of two links (the paper, section 3)."""

LEAST_PAGE = 0.02
"""Least that a page passes on: enough to be fetched when nothing better is left."""

LONGEST_CONTEXT = 80
"""Words around a link that count."""

_MOST_CACHED = 20_000
"""Links whose indirect evidence is kept until the next index: four of five links of a site's pages are on its other ones too."""

_MOST_KEPT = 1_000
"""Links that are kept with the job, of some 300 bytes each."""

MOST_BYTES = 8 << 20
"""Most bytes of the kept graph, unpacked: four texts of at most 500 characters for each link, in UTF-8."""

_Count: TypeAlias = Annotated[int, Meta(ge=0)]
_Kept: TypeAlias = tuple[str, str, str, str, Annotated[float, Meta(gt=0.0, le=1.0)]]

_LONGEST_ANCHOR = 30

FIRST, GROWTH = 15, 1.3
"""Results at which the graph is first read, and how many times as many there are each time after."""


def growing(n: int) -> int:
    """Number of results at which the graph is read next, if there are *n*.

    It is read early, as a crawl for a rare topic has few results, and less often the more there are, so that all readings
    cost no more than a few of the last."""
    return FIRST if n < FIRST else math.ceil(n * GROWTH)


class Memory:
    """Links that led to results, and how like them others are.

    Args:
        topic: What text is cut into words by.
        next_at: At how many results it is read next, of how many there are.

    Attributes:
        graph: Where the links are from.
        version: How often it was read.
    """

    def __init__(self, topic: Topic, next_at: Callable[[int], int] = growing) -> None:
        self.topic = topic
        self.graph = SuccessGraph()
        self.version = 0
        self._next_at = next_at
        self._due = next_at(0)
        self._index: Index | None = None
        self._worth: list[float] = []
        self._cache: dict[LinkText, float] = {}

    def note(self, page: PageSeen, *, result: bool) -> None:
        """A *page* was fetched."""
        self.graph.note(page.key, page.parent, page.link, is_result=result)
        if self.graph.n_results >= self._due:
            self._due = self._next_at(self.graph.n_results)
            self._read()

    def _read(self) -> None:
        known = self.graph.successes(MOST_DOCUMENTS, self._value)
        self._index = self._make_index([self._document(link) for link, _ in known])
        self._worth = [worth for _, worth in known]
        self._cache.clear()
        self.version += 1

    def _value(self, worth: float) -> float:
        """The value of a link by its *worth* in :mod:`.success_graph`."""
        return worth

    def _document(self, link: LinkText) -> Document:
        """The terms of a *link*, by the tokeniser of the topic: anchor, URL and context."""
        around = self.topic.words(f"{link.heading} {link.around}", 2 * LINK_CHARACTERS)
        return (
            self.topic.words(link.anchor, LINK_CHARACTERS)[:_LONGEST_ANCHOR],
            self.topic.url_words(link.path),
            around[:LONGEST_CONTEXT],
        )

    def _make_index(self, documents: list[Document]) -> Index:
        return Index(documents, FIELDS)

    def _nearest(self, index: Index, query: Document) -> Match | None:
        """Which document of *index* is most like *query*, and how much."""
        return index.nearest(query)

    def pack(self) -> bytes:
        """The :data:`_MOST_KEPT` best of what it knows."""
        known = [(*link, worth) for link, worth in self.graph.successes(_MOST_KEPT)]
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
            n, known = convert(unpack(opener.decompress(data, MOST_BYTES)), tuple[_Count, list[_Kept]])
        except (*NO_RECORD, zlib.error) as error:
            raise StorageError("The links that led to relevant pages are damaged") from error
        for at, (*texts, worth) in enumerate(reversed(known[:_MOST_KEPT])):
            self.graph.pages[b"kept %d" % at] = Step(b"", LinkText(*texts), worth)
        self.graph.n_results = n
        if n >= self._due:
            self._due = self._next_at(n)
            self._read()

    def predict(self, link: LinkText) -> float:
        """Worth of the known link most similar to *link*, times the similarity, 0 to 1; 0 before the first reading."""
        if self._index is None:
            return 0.0
        value = self._cache.get(link)
        if value is None:
            best = self._nearest(self._index, self._document(link))
            value = best.score * self._worth[best.number] if best is not None else 0.0
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[link] = value
        return value


class Ata(Strategy):
    """Match of the link's text times the grade of its page: JLSE without indirect evidence."""

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        factor = max(page.grade, LEAST_PAGE)
        return [math.sqrt(factor * self.evidence(link)) for link in links]

    def evidence(self, link: LinkText) -> float:
        """How well the text of a *link* matches the topic, or :data:`NO_EVIDENCE` (algorithm 1 of the paper)."""
        fit = self.topic.match(link._replace(path=""))
        return fit if fit >= RELEVANT else NO_EVIDENCE


class Remembering(Strategy):
    """A strategy with a memory, which is kept with the job.

    Attributes:
        memory: Links that led to results.
    """

    learns: ClassVar[bool] = True
    memory: Memory

    @property
    def version(self) -> int:
        return self.memory.version

    def pack(self) -> bytes:
        return self.memory.pack()

    def restore(self, data: bytes) -> None:
        self.memory.restore(data)


class Jlse(Remembering, Ata):
    """JLSE, mended.

    Args:
        topic: What the crawl is for. Its classifier takes the place of the paper's, which learns from the texts of links to
            sample pages.
        chance: Of no use.
    """

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self.memory = Memory(topic)

    def learn(self, page: PageSeen) -> None:
        self.memory.note(page, result=page.is_relevant)

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float:
        return self.values(PageSeen("", parent_grade, 0.0, is_relevant=False), [link])[0]

    def evidence(self, link: LinkText) -> float:
        """The evidence for a *link* (equation 3), 0 to 1."""
        return max(super().evidence(link), self.memory.predict(link))

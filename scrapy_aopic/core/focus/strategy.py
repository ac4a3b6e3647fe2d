"""The base of strategies, which value links before their pages are known, and may learn from earlier ones.

For each graded page a crawl calls :meth:`Strategy.learn` and then, if the page has links, :meth:`Strategy.values`.
A strategy that learns raises :attr:`Strategy.version` when the values of waiting links have changed; the crawl then calls
:meth:`Strategy.revalue` for them, a slice at a time.

Rule 1: a strategy is pure: no I/O, no clock, no threads. Randomness is an argument of its constructor.

Rule 2: a page costs a bounded time, however many were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from scrapy_aopic.core.order import LARGEST_VALUE, value_of
from scrapy_aopic.core.records import QUEUED, Page

from .harvest_results import Degrees
from .shares import NULL_MASS, POWER
from .topic import LinkText, Topic

FLOOR = 0.01
"""Least value of a link. Links of this value come in the order in which they were found, which is exploration."""


REVALUED = 5
"""Waiting pages that are revalued for each page that is fetched, some 0.3 ms of work in all."""


MOST_OF_MEMO = 1_000
"""Bytes of a memo: places of some 500 words, ten times as many as a link has."""


class Chance(Protocol):
    """A source of randomness, as ``random.Random`` is one: 0 to 1, and below *stop*."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...


class PageSeen(NamedTuple):
    """A page that was fetched and graded.

    Attributes:
        url: Its URL.
        grade: How relevant it is, 0 to 1.
        value: Its value before it was fetched, 0 to 1.
        is_relevant: Whether it counts as relevant.
        key: Its key in the store; empty if it has none.
        parent: Key of the page whose link gave it its value; empty for a seed.
        link: Texts of the link on that page; ``None`` if they are not kept.
        memo: The strategy's memo of them instead; empty if there is none. See :class:`.learned.Learned`.
        parent_grade: How relevant that page is.
        depth: Links from a seed to it on the way by which it was found; 0 for a seed.
        text: Its text; empty if the strategy does not read it.
        degrees: How much text and how many links it has; ``None`` if the strategy does not ask.
    """

    url: str
    grade: float
    value: float
    is_relevant: bool
    key: bytes = b""
    parent: bytes = b""
    link: LinkText | None = None
    depth: int = 0
    parent_grade: float = 0.0
    text: str = ""
    memo: bytes = b""
    degrees: Degrees | None = None


class Strategy:
    """Values links for a topic. The base of all strategies: one that never learns.

    Args:
        topic: Kept as an attribute.
        chance: Where a strategy takes its random numbers from, if it needs any.

    Attributes:
        learns: Whether it learns from links: their texts are then kept while they wait.
        reads_text: Whether it reads the text of pages.
        reads_degrees: Whether it reads :attr:`PageSeen.degrees`.
        needs_samples: Whether it requires :attr:`.topic.Topic.samples`.
        values_known: Whether it values links to pages that were read, too; else see :func:`known_value`.
        by_cash: Whether pages are fetched by their cash alone, whatever their values, which only split it.
        power: See :func:`.shares.shares`.
        null_mass: See :func:`.shares.shares`.
    """

    learns: ClassVar[bool] = False
    reads_text: ClassVar[bool] = False
    reads_degrees: ClassVar[bool] = False
    needs_samples: ClassVar[bool] = False
    values_known: ClassVar[bool] = True
    by_cash: ClassVar[bool] = False
    power: ClassVar[float] = POWER
    null_mass: ClassVar[float] = NULL_MASS

    def __init__(self, topic: Topic, chance: Chance) -> None:
        del chance
        self.topic = topic

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> Sequence[float]:
        """The value, 0 to 1, of each of the *links* of *page*."""
        raise NotImplementedError

    def learn(self, page: PageSeen) -> None:
        """*page* was fetched and graded: learn from what became of the link to it. O(features of that link)."""

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float | None:
        """The present value of a waiting *link* of the page *parent* with the grade *parent_grade*; ``None`` if unchanged."""
        return None

    @property
    def version(self) -> int:
        """Rises whenever waiting links are worth revaluing; 0 for a strategy that never learns."""
        return 0

    def pack(self) -> bytes:
        """The state to be kept with the job, as bytes; empty if there is none."""
        return b""

    def restore(self, data: bytes) -> None:
        """Go on from what :meth:`pack` gave.

        Raises:
            StorageError: If *data* is damaged, or of another strategy; it is as new then.
        """


def known_value(page: Page | None) -> float | None:
    """The value of a link to *page* if the page was read: its grade; ``None`` if a strategy has to value it.

    Also tried: on irrelevant pages, a link to a waiting page keeps that page's value. This saves as much again and finds more
    behind tunnels, but less on real pages.
    """
    if page is None or page.state == QUEUED or page.outcome or not page.score & LARGEST_VALUE:
        return None
    return value_of(page.score)


class ByFunction(Strategy):
    """A user's function of a page and its links."""

    def __init__(self, score: Callable[[PageSeen, Sequence[LinkText]], Sequence[float]]) -> None:
        self._score = score

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> Sequence[float]:
        return self._score(page, links)


MakeStrategy: TypeAlias = "Callable[[Topic, Chance], Strategy]"
"""Makes a strategy for a topic, with a source of randomness."""

"""The *lead* of each waiting page: the page whose link gave it its value, and the texts of that link.

A strategy that learns needs a lead twice: when the page was fetched, as the example to learn from, and while it waits, to
value it again. The texts are kept as they are, or as the strategy's own memo of them: in the store, in the batch of the
page itself, until the page's visit ends.

Rule 1: a page has at most one row, that of the link that gave it its value; a seed has none.

Rule 2: a row takes no more than :data:`MOST_BYTES`, however long the texts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from scrapy_aopic.core.layout import LEADS, STRATEGY_KEY
from scrapy_aopic.core.order import LARGEST_VALUE
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import NO_RECORD, PAGE_BYTES, QUEUED, Page, pack, unpack
from scrapy_aopic.core.tables import BlobTable

from .topic import LinkText

_ANCHOR, _AROUND, _HEADING, _PATH = 80, 200, 60, 100
"""Characters of a link's texts that are kept: some 13 words of its own, 30 around it, 10 of its heading."""

SIDE = _AROUND // 2
"""Characters on each side of a link that are kept."""

IN_FULL = 300
"""Links of a page whose surroundings count: to read those of 2,000 links would take a twentieth of a second."""

MOST_BYTES = PAGE_BYTES + 4 * (_ANCHOR + _AROUND + _HEADING + _PATH) + 32
"""Bytes of a row: four for each character, and what is beside them."""

_GRADES = 1000
"""Steps of a grade: finer than any judgement."""

_DEEPEST = 1_000_000
"""Links from a seed that are counted; a trap has no end."""


class Lead(NamedTuple):
    """The page and the link that led to a waiting page.

    Attributes:
        parent: Key of the page with the link.
        grade: How relevant that page is, 0 to 1.
        depth: Links from a seed to the page that waits.
        link: Texts of the link; ``None`` if a memo is kept.
        memo: A strategy's memo of these; empty if the texts are kept.
        words: Beside a memo, words of the link, for people.
    """

    parent: bytes
    grade: float
    depth: int
    link: LinkText | None
    memo: bytes = b""
    words: str = ""


def bounded(link: LinkText) -> LinkText:
    """As much of *link* as is kept; the link is taken to be in the middle of what stands around it."""
    anchor, around, heading, path = link
    if len(anchor) <= _ANCHOR and len(around) <= _AROUND and len(heading) <= _HEADING and len(path) <= _PATH:
        return link
    begin = max(len(around) - _AROUND, 0) // 2
    return LinkText(anchor[:_ANCHOR], around[begin : begin + _AROUND], heading[:_HEADING], path[:_PATH])


def bounded_path(path: str) -> str:
    """As much of the *path* of a link."""
    return path[:_PATH]


def all_bounded(links: Sequence[LinkText]) -> list[LinkText]:
    """All *links* of a page, each cut as :func:`bounded` does; of those after the first :data:`IN_FULL`, no text around."""
    kept = list(map(bounded, links[:IN_FULL]))
    return kept + [bounded(link._replace(around="", heading="")) for link in links[IN_FULL:]]


def is_led(page: Page | None, value: int) -> bool:
    """Whether a link to *page* that is worth *value*, as links hold it, is what leads to it now: if it waits, the best link is."""
    return page is None or (page.state == QUEUED and value > page.score & LARGEST_VALUE)


class LeadsOfPage:
    """Packs the leads that one page gives to others."""

    def __init__(self, parent: bytes, grade: float, depth: int) -> None:
        self._parent = parent
        self._grade = round(grade * _GRADES)
        self._depth = min(depth, _DEEPEST)

    def pack_memo(self, memo: bytes, words: str) -> bytes:
        """The lead to the page of a link with these *words*, of which a strategy has this *memo*."""
        return self._parent + pack((self._grade, self._depth, memo, whole_text(words[:_ANCHOR])))

    def pack(self, link: LinkText) -> bytes:
        """The lead to the page of *link*."""
        return self._parent + pack((self._grade, self._depth, *map(whole_text, bounded(link))))


def unpack_lead(data: bytes | None) -> Lead | None:
    """The lead written as *data*; ``None`` if there is none that can be understood."""
    if data is None or len(data) > MOST_BYTES:
        return None
    try:
        grade, depth, *said = unpack(data[PAGE_BYTES:])
        if not (0 <= grade <= _GRADES and 0 <= depth <= _DEEPEST):
            return None
        parent, grade = data[:PAGE_BYTES], grade / _GRADES
        if isinstance(said[0], bytes):
            return Lead(parent, grade, depth, None, said[0], *map(str, said[1:2]))
        anchor, around, heading, path = said
    except NO_RECORD:
        return None
    texts = LinkText(anchor, around, heading, path)
    return Lead(parent, grade, depth, texts) if all(isinstance(text, str) for text in texts) else None


def whole_text(text: str) -> str:
    """*text* without halves of characters, as a page may have them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Leads:
    """The leads of all waiting pages, and what a strategy has learned from them, in the store.

    Attributes:
        tables: Its rows, with those that wait for a commit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = BlobTable(store, Family.CONTENT)
        self._learned = BlobTable(store, Family.META)
        self._is_used = False
        self.tables = (self._table, self._learned)

    @property
    def learned(self) -> bytes | None:
        """A strategy's state as it was kept; ``None`` if there is none."""
        return self._learned.get(STRATEGY_KEY)

    def keep_learned(self, data: bytes) -> None:
        """Keep *data*, what a strategy has learned."""
        self._learned.put(STRATEGY_KEY, data)

    def put(self, key: bytes, data: bytes) -> None:
        """Keep *data*, a packed lead, of the page under *key*."""
        self._is_used = True
        self._table.put(LEADS + key, data)

    def drop(self, key: bytes) -> None:
        """Forget what led to the page under *key*."""
        self._table.delete(LEADS + key)

    def get(self, key: bytes) -> bytes | None:
        """The packed lead of the page under *key*; ``None`` if it has none."""
        self._is_used = True
        return self._table.get(LEADS + key)

    def read_ahead(self, keys: Sequence[bytes]) -> None:
        """Read what led to the pages under *keys*, the first of which is wanted now, with one read, if anybody asks for such."""
        if self._is_used and not self._table.is_at_hand(LEADS + keys[0]):
            self._table.read_ahead([LEADS + key for key in keys])

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Begin to read what led to the pages under *keys*, if anybody asks for such, and if the store can do that."""
        if self._is_used:
            self._table.prefetch([LEADS + key for key in keys])

    def after(self, key: bytes, n: int) -> tuple[list[tuple[bytes, bytes | None]], bytes]:
        """Up to *n* pages behind *key* with what led to them, as far as they were committed; and where to go on.

        Returns:
            Keys and packed leads, ``None`` for what was dropped since; and the last key, empty at the end.
        """
        end = bytes((LEADS[0] + 1,))
        rows = list(islice(self._store.scan(Family.CONTENT, LEADS + key + b"\0" * bool(key), end), n))
        found = [
            (row[1:], self._table.get(row) if self._table.is_at_hand(row) else value) for row, value in rows
        ]
        return found, found[-1][0] if len(rows) == n else b""

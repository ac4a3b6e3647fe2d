"""Stored links of visited pages, for revisits without a body, and for orders on the whole graph.

Rule: a page has one row, with the pages that it linked to at its last visit that showed any; the links of a page that
turned out to be another one are kept only for an order on the whole graph. Their weights are kept by :mod:`.settling`, if
they differ and pages are revisited.

Links to pages of other shards have a row of their own, with addresses (:mod:`.shards.cut`), under the page's key and a
zero byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph import KnownGraph, Ranking
from .order import BatchOrder, Order
from .ports import Family, Store
from .records import PAGE_BYTES
from .shards.cut import ADDRESS_BYTES
from .tables import BlobTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .pages import Pages


_ELSEWHERE = b"\0"
"""Suffix of a page's key under which its links to pages of other shards are kept."""


def elsewhere_key(page: bytes) -> bytes:
    """Key of the row with the links of the page under *page* to pages of other shards."""
    return page + _ELSEWHERE


def split_links(source: bytes, targets: bytes) -> list[bytes]:
    """Page keys in the row under *source* of the links family, or addresses if it is of links to pages of other shards."""
    n = PAGE_BYTES if len(source) == PAGE_BYTES else ADDRESS_BYTES
    return [targets[begin : begin + n] for begin in range(0, len(targets), n)]


class KeptLinks:
    """Which pages each visited page linked to at its last visit.

    Args:
        is_on: Whether links are kept.
        has_elsewhere: Whether there are other shards, to whose pages any may lead.
    """

    def __init__(self, store: Store, *, is_on: bool, has_elsewhere: bool) -> None:
        self.table = BlobTable(store, Family.LINKS)
        self.is_on = is_on
        self._has_elsewhere = has_elsewhere

    def keep(self, key: bytes, targets: Sequence[bytes]) -> None:
        """The page under *key* links to *targets*."""
        self.table.put(key, b"".join(targets))

    def keep_elsewhere(self, key: bytes, addresses: Sequence[bytes]) -> None:
        """The page under *key* links to the pages of other shards at *addresses*."""
        if not self._has_elsewhere:
            return
        if addresses:
            self.table.put(elsewhere_key(key), b"".join(addresses))
        else:
            self.table.delete(elsewhere_key(key))

    def elsewhere(self, key: bytes) -> list[bytes]:
        """Addresses of the pages of other shards that the one under *key* linked to at its last visit."""
        row = elsewhere_key(key)
        return split_links(row, self.table.get(row) or b"") if self._has_elsewhere else []

    def of(self, key: bytes) -> list[bytes]:
        """Keys of the pages that the one under *key* linked to at its last visit."""
        return split_links(key, self.table.get(key) or b"")


class Scores:
    """Scores of all pages on the known graph, for a :class:`~scrapy_aopic.core.order.BatchOrder`.

    Args:
        order: What computes them; nothing happens for any other order.
    """

    def __init__(self, store: Store, order: Order, pages: Pages) -> None:
        self._order = order if isinstance(order, BatchOrder) else None
        self._pages = pages
        self._graph = KnownGraph()
        self._n_ranked = 0
        if self._order is not None:
            for key, targets in store.scan(Family.LINKS):
                self._graph.add(key, split_links(key, targets))

    @property
    def is_on(self) -> bool:
        """Whether the order computes scores."""
        return self._order is not None

    def add(self, key: bytes, targets: Sequence[bytes]) -> None:
        """The page under *key* was visited, and links to *targets*."""
        if self._order is not None:
            self._graph.add(key, targets)

    def task(self) -> Callable[[], Ranking] | None:
        """A function that computes the scores of all pages, if it is time; it reads a frozen graph, so any thread may run it."""
        order, graph = self._order, self._graph
        if order is None or len(graph) <= self._n_ranked * (1 + order.growth):
            return None
        self._n_ranked = len(graph)
        return order.ranking(graph)

    def apply(self, scores: Ranking, now: float, begin: int = 0, n: int | None = None) -> int:
        """Give *n* pages from number *begin* on the *scores* of a :meth:`task`; returns the next *begin*."""
        end = len(scores) if n is None else min(begin + n, len(scores))
        keys = self._graph.keys[begin:end]
        for key, page, score in zip(keys, self._pages.get_many(keys), scores[begin:end], strict=True):
            if page is not None and page.score != score:
                self._pages.rescore(key, page, score, now)
        return end

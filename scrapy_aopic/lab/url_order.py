"""A base of orders that see the URLs of a graph: for an idea of which page is next that needs them.

A real crawl shows no URL to an order, since the frontier keeps none in memory; so such an order is for simulations alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.order import Order
from scrapy_aopic.core.records import serial_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.order import PageView

    from .graphs import Graph


class UrlOrder(Order):
    """Beside another order, a base of one that looks at URLs, such as ``class Shallow(UrlOrder, Aopic)``.

    In a real crawl all URLs are empty.
    """

    _graph: Graph | None = None
    _pages: Sequence[int] = ()

    def begin(self, graph: Graph, pages: Sequence[int]) -> None:
        """A crawl of *graph* begins; *pages* will have the number of each page, in the order in which they were queued."""
        self._graph, self._pages = graph, pages

    def url(self, page: PageView) -> str:
        """URL of *page*; ``""`` if the graph has no URLs."""
        if self._graph is None or not self._graph.urls:
            return ""
        return self._graph.urls[self._pages[serial_of(page.place) - 1]]

    def directory(self, page: PageView) -> str:
        """The URL of *page* up to its last slash, without what follows a question mark."""
        return self.url(page).partition("?")[0].rpartition("/")[0]

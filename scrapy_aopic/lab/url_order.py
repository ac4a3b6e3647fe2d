"""A base of orders that see the URLs of a graph: for an idea of which page is next that needs them.

A real crawl shows no URL to an order, since the frontier keeps none in memory; so such an order is for simulations alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scrapy_aopic.core.order import Order, PageView
from scrapy_aopic.core.records import serial_of


class UrlOrder(Order):
    """Beside another order, a base of one that looks at URLs, such as ``class Shallow(UrlOrder, Aopic)``.

    In a real crawl all URLs are empty.
    """

    _url_of: Callable[[int], str] | None = None
    _pages: Sequence[int] = ()

    def begin(self, url_of: Callable[[int], str], pages: Sequence[int]) -> None:
        """A crawl begins; *url_of* gives the URL of a page by its number, and *pages* will have all numbers as they are queued."""
        self._url_of, self._pages = url_of, pages

    def url(self, page: PageView) -> str:
        """URL of *page*; ``""`` if the graph has no URLs."""
        return self._url_of(self._pages[serial_of(page.place) - 1]) if self._url_of is not None else ""

    def directory(self, page: PageView) -> str:
        """The URL of *page* up to its last slash, without what follows a question mark."""
        return self.url(page).partition("?")[0].rpartition("/")[0]

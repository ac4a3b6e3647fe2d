"""The types of a user's own functions that grade pages or value links.

Each may also be a class whose instances are callable; one is made for each crawl, by ``from_crawler`` if it has that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from scrapy.http import Response

__all__ = ["LinkScorer", "LinkText", "PageScorer", "PageSeen"]


class PageScorer(Protocol):
    """Says how relevant a page is: what ``AOPIC_TOPIC = {"function": ...}`` names."""

    def __call__(self, response: Response, /) -> float | Awaitable[float]:
        """The grade of the page, 0 to 1.

        A coroutine function (``async def``) is awaited before the page's callback is called, for at most
        30 seconds. Any other function is called in the event loop, which waits for it.

        If it raises, the page has no grade; nothing else happens.
        """


class LinkScorer(Protocol):
    """Says what links are worth: what ``AOPIC_LINK_SCORER`` names, if it is no strategy."""

    def __call__(self, page: PageSeen, links: Sequence[LinkText], /) -> Sequence[float]:
        """The value, 0 to 1, of each of the *links* of *page*, in their order.

        It is called in the event loop, which waits for it. If it raises, the links are worth as much as their page.
        """

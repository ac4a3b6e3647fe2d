"""What users may give in the place of the package's own judgement: of pages, and of links.

Both are functions, or classes whose instances are called, which are made once a crawl, by ``from_crawler`` if they have that.
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

        One that is a coroutine function (``async def``) is awaited before the page's callback is called, for
        ``AOPIC_TOPIC_TIMEOUT`` seconds at most. Any other one is called in the event loop, which waits for it.

        Whatever it raises costs the page its grade, and nothing else.
        """


class LinkScorer(Protocol):
    """Says what links are worth: what ``AOPIC_LINK_SCORER`` names, if it is no strategy."""

    def __call__(
        self, page: PageSeen, links: Sequence[LinkText], /
    ) -> Sequence[float] | Awaitable[Sequence[float]]:
        """The value, 0 to 1, of each of the *links* of *page*, in their order.

        One that is a coroutine function (``async def``) is awaited when the page's callback has yielded its last link, for
        ``AOPIC_TOPIC_TIMEOUT`` seconds at most; the links are followed then. Any other one is called in the event loop, which
        waits for it.

        Whatever it raises costs the links its values, and nothing else: what the strategy ``contextual`` has learned in the
        meantime values them, if it is asynchronous, and the strategy ``focused`` if not.
        """

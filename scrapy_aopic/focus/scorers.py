"""What users may give in the place of the package's own judgement: of pages, and of links.

Both are functions, or classes whose instances are called, which are made once a crawl, by ``from_crawler`` if they have that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scrapy_aopic.core.focus.strategy import LinkScorer, PageSeen
from scrapy_aopic.core.focus.topic import LinkText

if TYPE_CHECKING:
    from collections.abc import Awaitable

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

"""Questions that take a look at the store: answered from a snapshot of it, in the thread that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scrapy_aopic.job.queries import top_pages
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.watch.rules import CrawlRules
from scrapy_aopic.watch.why import why

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scrapy_aopic.storage import Address

_LONGEST = 8192
"""Characters of a question: more than a URL that is crawled has."""


class Questions:
    """Answers for the job whose store is in *place*.

    Args:
        settings: Those of its crawl, for the rules on URLs.
    """

    def __init__(self, place: Path | Address, settings: Mapping[Any, Any]) -> None:
        self._place = place
        self._settings = settings
        self._rules: CrawlRules | None = None

    def top_pages(self, n: int) -> list[dict[str, Any]]:
        """The *n* most important pages.

        Raises:
            StorageError: If the store cannot be read.
        """
        store = open_snapshot(self._place)
        try:
            return top_pages(store, n)
        finally:
            store.close()

    def why(self, question: str) -> dict[str, Any]:
        """Why a URL, or a host, is crawled or not.

        Raises:
            StorageError: If the store cannot be read.
            SettingError: If the rules of the crawl cannot be known.
        """
        rules = self._rules = self._rules or CrawlRules(self._settings)
        store = open_snapshot(self._place)
        try:
            answer: dict[str, Any] = msgspec.to_builtins(why(store, question[:_LONGEST], rules))
        finally:
            store.close()
        return answer

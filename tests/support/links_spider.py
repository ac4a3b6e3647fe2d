"""The spider of :mod:`.follow_spider` as a user of this package would write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy import Spider
from scrapy.http import Response

from scrapy_aopic import Links


class Follow(Spider):
    """Follows every link of every page, in batches."""

    name = "follow"
    start_urls = ["http://h0.test/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield Links(response)

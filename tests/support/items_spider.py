"""A spider with items and a pipeline of its own, for processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from scrapy.http import Response

from support.follow_spider import Follow


class Slow:
    """Takes a moment for each item."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0.02)
        return item


class Items(Follow):
    """Two items of each page, with what may be in the fields of tables."""

    name = "items"
    custom_settings = {"ITEM_PIPELINES": {Slow: 100, "scrapy_aopic.ImportancePipeline": 200}}

    def parse(self, response: Response) -> Iterator[Any]:
        for part in ("first, or", 'a "second"\nof two'):
            yield {"url": response.url, "part": part}
        yield from super().parse(response)

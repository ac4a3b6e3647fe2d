"""A spider with items and a pipeline of its own, for processes of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

from scrapy.http import Response

from support.follow_spider import Follow


class Slow:
    """Takes a moment for each item."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0.02)
        return item


class Database:
    """Each item is a row of a database, which has it when ``process_item`` returns."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("items.sqlite3", isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS items (url TEXT, part TEXT)")

    def process_item(self, item: Any) -> Any:
        self._database.execute("INSERT INTO items VALUES (?, ?)", (item["url"], item["part"]))
        return item


class Items(Follow):
    """Two items of each page, with what may be in the fields of tables."""

    name = "items"
    custom_settings = {"ITEM_PIPELINES": {Slow: 100, Database: 150, "scrapy_aopic.ImportancePipeline": 200}}

    def parse(self, response: Response) -> Iterator[Any]:
        for part in ("first, or", 'a "second"\nof two'):
            yield {"url": response.url, "part": part}
        yield from super().parse(response)

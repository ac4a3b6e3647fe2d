"""A spider for processes of their own: ``scrapy runspider follow.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor


class Follow(Spider):
    """Follows every link of every page."""

    name = "follow"
    start_urls = ["http://h0.test/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)

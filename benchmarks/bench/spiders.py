"""The spiders of the whole crawls: what a user writes to follow all links, in three ways."""

from __future__ import annotations

from typing import Any

from scrapy import Spider
from scrapy.linkextractors import LinkExtractor
from scrapy.utils.misc import load_object


def page_path(page: int, *, has_queries: bool) -> str:
    """The URL of a page behind its host."""
    return f"/view?page={page}&lang=en&cat=books" if has_queries else f"/p/{page}"


class Broad(Spider):
    """Follows every link, as Scrapy's documentation says."""

    name = "broad"
    extractor_class: type = LinkExtractor

    def __init__(
        self, hosts: int = 1, *, has_queries: bool = False, site: str = "http://h{}.test", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        front = page_path(0, has_queries=has_queries)
        self.start_urls = [f"{site.format(host)}{front}" for host in range(hosts)]
        self.extract = self.extractor_class()

    def parse(self, response: Any) -> Any:
        for link in self.extract.extract_links(response):
            yield response.follow(link)


class FastBroad(Broad):
    """The same with this package's extractor."""

    def __init__(self, **kwargs: Any) -> None:
        self.extractor_class = load_object("scrapy_aopic.LinkExtractor")
        super().__init__(**kwargs)


class Batch(Broad):
    """Yields the links of a page at once."""

    def __init__(self, **kwargs: Any) -> None:
        from scrapy_aopic import Links

        super().__init__(**kwargs)
        self.links = Links

    def parse(self, response: Any) -> Any:
        yield self.links(response)

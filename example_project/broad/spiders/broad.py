"""A broad crawl: every page of every host it meets, most important first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from os import environ
from pathlib import Path
from typing import Any

import demo_web
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor


class BroadSpider(Spider):
    """``scrapy crawl broad`` crawls the demo web for a minute; ``-a seeds=...`` crawls the real one.

    Args:
        seeds: URLs, comma-separated, or a file with one a line.
        domains: Domains to stay in, comma-separated; everywhere if empty.
    """

    name = "broad"

    def __init__(self, seeds: str = "", domains: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seeds = _read_seeds(seeds)
        self.allowed_domains = [domain.strip() for domain in domains.split(",") if domain.strip()]
        self.link_extractor = LinkExtractor()
        self._resources = ExitStack()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> BroadSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider._resources.close, signal=signals.spider_closed)
        if spider.seeds:
            what = ",".join([*spider.seeds, *spider.allowed_domains])
            _set_default(
                crawler, "JOBDIR", f"crawls/broad-{blake2b(what.encode(), digest_size=4).hexdigest()}"
            )
        else:
            spider._use_demo_web(crawler)
        return spider

    def _use_demo_web(self, crawler: Crawler) -> None:
        self.seeds = demo_web.DemoWeb().seeds
        environ["http_proxy"] = self._resources.enter_context(demo_web.served())
        _set_default(crawler, "JOBDIR", "crawls/demo")
        _set_default(crawler, "CLOSESPIDER_TIMEOUT", 60)

    async def start(self) -> AsyncIterator[Any]:
        for url in self.seeds:
            yield Request(url)

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, TextResponse):
            return
        yield {"url": response.url, "title": (response.css("title::text").get() or "").strip()}
        for link in self.link_extractor.extract_links(response):
            # Only these: a page must not make us read file:///etc/passwd.
            if link.url.startswith(("http://", "https://")):
                yield Request(link.url)


def _read_seeds(seeds: str) -> list[str]:
    """The URLs in *seeds*, which is a list of them or the name of a file."""
    if seeds and "://" not in seeds:
        if not Path(seeds).is_file():
            raise UsageError(f"seeds ({seeds!r}) must be URLs, comma-separated, or a file with one a line")
        return [line.strip() for line in Path(seeds).read_text(encoding="utf-8").splitlines() if line.strip()]
    return [url.strip() for url in seeds.split(",") if url.strip()]


def _set_default(crawler: Crawler, name: str, value: object) -> None:
    """Set what neither the project nor the command line sets."""
    if not crawler.settings.get(name):
        crawler.settings.set(name, value, "spider")

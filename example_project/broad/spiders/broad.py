"""A broad crawl: every page of every host it meets, most important first."""

from __future__ import annotations

from contextlib import ExitStack
from os import environ
from typing import Any

import demo_web
from scrapy import signals
from scrapy.crawler import Crawler

from scrapy_aopic import BroadSpider


class Broad(BroadSpider):
    """``scrapy crawl broad`` crawls the demo web for a minute; ``-a seeds=...`` crawls the real one."""

    name = "broad"
    fields = ("url", "title")

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Broad:
        resources = ExitStack()
        if not kwargs.get("seeds"):
            kwargs["seeds"] = demo_web.DemoWeb().seeds
            environ["http_proxy"] = resources.enter_context(demo_web.served())
            crawler.settings.setdict({"JOBDIR": "crawls/demo", "CLOSESPIDER_TIMEOUT": 60}, "spider")
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.resources = resources  # signals keep no receiver alive
        crawler.signals.connect(resources.close, signal=signals.spider_closed)
        return spider

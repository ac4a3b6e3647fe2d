"""A spider for processes of their own: ``scrapy runspider wander_spider.py -a report=FILE``. Tests do not import it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor

from scrapy_aopic.core import duplicates
from scrapy_aopic.downloadermiddlewares import robots

robots.RETRY = 0.1
duplicates.SAME_WORDS = 10


class Wander(Spider):
    """Follows every link; writes the stats, and the most memory that its process ever held, to the file *report*."""

    name = "wander"
    start_urls = ["http://site0.test/0"]
    report: str

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, TextResponse):
            return
        try:
            links = LinkExtractor().extract_links(response)
        except ValueError:  # what it says of a base URL that is none
            return
        for link in links:
            with suppress(ValueError):
                yield Request(link.url)

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        # Not ru_maxrss, which begins with what the process that started this one held.
        status = Path("/proc/self/status")
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
        report = {
            "reason": reason,
            "stats": self.crawler.stats.get_stats(),
            "peak_mb": int(peak[1]) / 1024 if peak else None,
        }
        Path(self.report).write_text(json.dumps(report, default=str))

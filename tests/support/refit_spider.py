"""A spider whose crawl learns in a thread that is always at work: ``scrapy runspider refit_spider.py``."""

from __future__ import annotations

import time
from collections.abc import Callable

from scrapy_aopic.core.focus.learned import Learned
from support.follow_spider import Follow


class AlwaysAtWork(Learned):
    """As ``learned``, with a piece of work in a thread that has no use."""

    is_under_way = False

    def refit(self) -> Callable[[], object] | None:
        if self.is_under_way:
            return None
        self.is_under_way = True
        return lambda: time.sleep(0.05)

    def adopt(self, result: object) -> None:
        self.is_under_way = False


class Learns(Follow):
    name = "learns"
    custom_settings = {
        "AOPIC_ORDER": "focused",
        "AOPIC_TOPIC": {"keywords": ["h3"]},
        "AOPIC_LINK_SCORER": AlwaysAtWork,
    }

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.crawl_contract import CrawlContract

from scrapy_aopic.core.api import CrawlPort
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.order import ORDERS
from scrapy_aopic.core.policy import Policy

if TYPE_CHECKING:
    from scrapy_aopic.core.ports import Store


class TestCrawl(CrawlContract):
    def make_crawl(self, store: Store, now: float) -> CrawlPort:
        return Crawl(store, Policy(), now)


class TestCrawlInAnotherOrder(CrawlContract):
    def make_crawl(self, store: Store, now: float) -> CrawlPort:
        return Crawl(store, Policy(order=ORDERS["breadth-first"](), by_domain=True, share=None), now)


def test_a_contract_that_nobody_fulfils_fails():
    with pytest.raises(NotImplementedError):
        CrawlContract().make_crawl(None, 0.0)  # type: ignore[arg-type]

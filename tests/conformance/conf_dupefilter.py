"""The unit tests of Scrapy's duplicate filter, run on ours.

Left out are tests of what only the stock class has: the file ``requests.seen``, deprecated attributes, and the name
of its logger. The stock class's log line is checked here in our own words.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request
from scrapy.settings import default_settings
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler
from tests.spiders import SimpleSpider
from tests.test_dupefilters import TestRFPDupeFilter as Stock

from scrapy_aopic import DupeFilter
from tests import test_dupefilters

if TYPE_CHECKING:
    from typing_extensions import Self

del test_dupefilters.TestRFPDupeFilter, test_dupefilters.TestBaseDupeFilter


class FromCrawler(DupeFilter):
    """Upstream's ``FromCrawlerRFPDupeFilter``, of ours."""

    method: str

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        made = super().from_crawler(crawler)
        made.method = "from_crawler"
        return made

    @property
    def debug(self) -> bool:
        return self._debug


@pytest.mark.parametrize(("mode", "store"), [("exact", "sqlite"), ("exact", "rocksdb"), ("bloom", "memory")])
class TestDupeFilter:
    @pytest.fixture(autouse=True)
    def ours(self, mode: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(default_settings, "DUPEFILTER_CLASS", "scrapy_aopic.DupeFilter")
        monkeypatch.setattr(default_settings, "AOPIC_DUPEFILTER", mode, raising=False)
        monkeypatch.setattr(default_settings, "AOPIC_STORE", store, raising=False)
        monkeypatch.setattr(test_dupefilters, "FromCrawlerRFPDupeFilter", FromCrawler)

    test_df_from_crawler_scheduler = Stock.test_df_from_crawler_scheduler
    test_df_direct_scheduler = Stock.test_df_direct_scheduler
    test_filter = Stock.test_filter
    test_dupefilter_path = Stock.test_dupefilter_path
    test_request_fingerprint = Stock.test_request_fingerprint

    @pytest.mark.parametrize("debug", [False, True])
    def test_log(self, caplog: pytest.LogCaptureFixture, debug: bool) -> None:
        crawler = get_crawler(SimpleSpider, {"DUPEFILTER_DEBUG": debug})
        spider = SimpleSpider.from_crawler(crawler)
        dupefilter = build_from_crawler(DupeFilter, crawler)
        with caplog.at_level(logging.DEBUG):
            for referer in ("http://scrapytest.org/1", "http://scrapytest.org/2"):
                dupefilter.log(Request("http://scrapytest.org/", headers={"Referer": referer}), spider)
        lines = [line for line in caplog.messages if line.startswith("Filtered duplicate request: ")]
        assert len(lines) == 1 + debug
        assert "<GET http://scrapytest.org/> (referer: http://scrapytest.org/1)" in lines[0]
        assert crawler.stats is not None
        assert crawler.stats.get_value("dupefilter/filtered") == 2

"""``DUPEFILTER_CLASS = "scrapy_aopic.DupeFilter"`` beside Scrapy's own scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler
from support.small_web import Follow, crawl

from scrapy_aopic import DupeFilter


def opened(folder: Path | None, **settings: Any) -> DupeFilter:
    values = {"AOPIC_STORE": "sqlite", **settings}
    if folder is not None:
        values["JOBDIR"] = str(folder)
    crawler = get_crawler(Follow, values)
    crawler._apply_settings()
    dupefilter = build_from_crawler(DupeFilter, crawler)
    dupefilter.open()
    return dupefilter


@pytest.mark.parametrize("mode", ["exact", "bloom"])
async def test_pages_are_fetched_once(serve, mode):
    web = serve(
        {"http://a.test/": ["/1", "/2"], "http://a.test/1": ["/2", "/"], "http://a.test/2": ["/1?", "/1#x"]}
    )
    settings = {"DUPEFILTER_CLASS": "scrapy_aopic.DupeFilter", "AOPIC_DUPEFILTER": mode}
    crawler = await crawl(Follow, settings)
    assert sorted(web.asked) == ["http://a.test/", "http://a.test/", "http://a.test/1", "http://a.test/2"]
    assert crawler.stats.get_value("dupefilter/filtered") == 5  # the seed, not filtered, is fetched twice


@pytest.mark.parametrize("mode", ["exact", "bloom"])
def test_fingerprints_outlive_the_process(tmp_path, mode):
    first = opened(tmp_path, AOPIC_DUPEFILTER=mode)
    assert not first.request_seen(Request("http://a.test/1"))
    first.close("finished")
    second = opened(tmp_path, AOPIC_DUPEFILTER=mode)
    assert second.request_seen(Request("http://a.test/1"))
    assert not second.request_seen(Request("http://a.test/2"))
    second.close("finished")


def test_what_falls_out_of_memory_is_found_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("scrapy_aopic.dupefilter.page_cache", lambda _: 100)
    dupefilter = opened(tmp_path)
    urls = [f"http://a.test/{n}" for n in range(2000)]
    assert not any(dupefilter.request_seen(Request(url)) for url in urls)
    assert all(dupefilter.request_seen(Request(url)) for url in urls)
    dupefilter.close("finished")


def test_a_temporary_store_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dupefilter = opened(None)
    assert not dupefilter.request_seen(Request("http://a.test/"))
    assert list(tmp_path.iterdir())
    dupefilter.close("finished")
    assert not list(tmp_path.iterdir())


def test_the_bloom_filter_loses_about_as_many_urls_as_it_says(monkeypatch):
    monkeypatch.setattr("scrapy_aopic.dupefilter.ERROR_RATE", 0.01)
    monkeypatch.setattr("scrapy_aopic.dupefilter.CAPACITY", 1000)
    dupefilter = opened(None, AOPIC_DUPEFILTER="bloom")
    lost = sum(dupefilter.request_seen(Request(f"http://a.test/{n}")) for n in range(5000))
    assert lost <= 150
    assert all(dupefilter.request_seen(Request(f"http://a.test/{n}")) for n in range(5000))
    dupefilter.close("finished")

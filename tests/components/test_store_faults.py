"""A store that fails under a real crawl: one sentence, no exception into the engine, and nothing lost."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler
from support.faulty_store import Fault, FaultyStore
from support.short_forms import some_of
from support.small_web import Follow

from scrapy_aopic.core.audit import audit
from scrapy_aopic.storage.memory import MemoryStore

pytestmark = pytest.mark.slow


def url(n: int) -> str:
    return f"http://{'abc'[n % 3]}.test/{n or ''}"


PAGES = {url(n): [url(2 * n + 1), url(2 * n + 2)] if n < 6 else [] for n in range(13)}


class Disk(MemoryStore):
    """Outlives the job that it is opened for."""

    def close(self) -> None:
        pass


async def crawl_on(store: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Crawler, str]:
    """Crawl with *store*; returns the reason why the spider was closed, too."""
    reasons: list[str] = []
    monkeypatch.setattr("scrapy_aopic.job.job.open_store", lambda *_, **__: store)
    monkeypatch.setattr("scrapy_aopic.settings.build.max_active_of", lambda _: 1)
    settings = {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "AOPIC_STORE": "memory",
        "AOPIC_POLITENESS_FACTOR": 0,
        "AOPIC_BACKOFF": 0,
        "AOPIC_DURABILITY": "page",
        "ROBOTSTXT_OBEY": True,
    }
    crawler = get_crawler(Follow, settings)
    crawler.signals.connect(lambda spider, reason: reasons.append(reason), signals.spider_closed, weak=False)
    await crawler.crawl_async()
    return crawler, reasons[0]


@pytest.mark.parametrize("kind", ["fail", "torn"])
@pytest.mark.parametrize("each", some_of([6, 1]))
async def test_whatever_operation_fails_the_crawl_stops_with_one_sentence_and_goes_on_later(
    serve, monkeypatch, caplog, kind, each
):
    serve(PAGES)
    for at in count(1, each):
        disk = Disk()
        faulty = FaultyStore(disk, Fault(kind, at))
        caplog.clear()
        crawler, reason = await crawl_on(faulty, monkeypatch)
        if not faulty.n_faults:
            assert reason == "finished"
            break
        said = [
            record.getMessage()
            for record in caplog.records
            if record.levelname == "ERROR" and record.name.startswith("scrapy_aopic")
        ]
        assert "Traceback" not in caplog.text, at
        assert crawler.stats.get_value("aopic/errors") is None
        if (
            reason == "finished"
        ):  # it came up while the job was closed, and the last commit may have made up for it
            assert len(said) <= 1
        else:
            assert reason == "aopic_storage"
            assert len(said) == 1, at
            assert re.search(
                rf"the store: fault at operation {at}\. (See scrapy aopic docs \S+ )?The crawl ", said[0]
            ), said
        assert audit(disk).violations == [], at
        _, reason = await crawl_on(disk, monkeypatch)
        assert reason == "finished"
        result = audit(disk)
        assert (result.violations, result.visited, result.queued) == ([], len(PAGES), 0), at
    assert at > 30

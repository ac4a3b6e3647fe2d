"""What a crawl that failed tells the shell: exit code 1, also if it failed before, or at, its end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider, signals
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from support import processes
from support.crawls import OURS, logged
from support.faulty_store import Fault, FaultyStore
from support.small_web import Follow

from scrapy_aopic._engine.closing import Closing
from scrapy_aopic.storage.memory import MemoryStore

pytestmark = pytest.mark.slow


SPIDER = """
import scrapy

class Nothing(scrapy.Spider):
    name = "nothing"
    start_urls = ["data:,"]
    custom_settings = {"TELNETCONSOLE_ENABLED": False}

    def parse(self, response):
        pass
"""

ADDON = {"ADDONS": '{"scrapy_aopic.Addon": 500}'}
DOWNLOADER = {"DOWNLOADER_MIDDLEWARES": '{"scrapy_aopic.PolitenessMiddleware": 990}'}
PIPELINE = {"ITEM_PIPELINES": '{"scrapy_aopic.PagesPipeline": 300}'}
FILTER = {"DUPEFILTER_CLASS": "scrapy_aopic.DupeFilter"}
PROGRESS = {"EXTENSIONS": '{"scrapy_aopic.Progress": 0}'}
ROBOTS = {"DOWNLOADER_MIDDLEWARES": '{"scrapy_aopic.RobotsMiddleware": 100}', "ROBOTSTXT_OBEY": "True"}

REFUSED = [
    (OURS, {"AOPIC_WINDOW": "often"}),
    (OURS, {"AOPIC_WINDOWS": "8"}),
    (OURS, {"AOPIC_SEEDS": "nowhere"}),
    (OURS, {"JOBDIR": "job"}),
    (OURS, {"AOPIC_ORDER": "json.JSONDecoder"}),
    (ADDON, {"AOPIC_MIN_GAP": "-1"}),
    # Beside Scrapy's own scheduler, a component that is left out is worse than a crawl that does not start.
    (DOWNLOADER, {"AOPIC_MIN_GAP": "-1"}),
    (DOWNLOADER, {"AOPIC_MINGAP": "5"}),
    (ROBOTS, {"AOPIC_SITEMAPS": "maybe"}),
    (PIPELINE, {"AOPIC_WARC_FILE": ""}),
    (PROGRESS, {"AOPIC_MAX_WAITS": "1"}),
    (FILTER, {"AOPIC_DUPEFILTER": "boom"}),
    (FILTER, {"AOPIC_DUPEFILTERS": "bloom"}),
]


def runspider(settings: dict[str, Any]) -> list[str]:
    """The command line of a crawl with these *settings*."""
    options = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    return [sys.executable, "-m", "scrapy", "runspider", "spider.py", *options]


@pytest.mark.parametrize(("components", "wrong"), REFUSED)
def test_a_crawl_that_does_not_start_says_why_in_one_sentence_and_ends_with_1(tmp_path, components, wrong):
    (tmp_path / "spider.py").write_text(SPIDER)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "aopic").write_text("no folder of a store")
    quiet = {"LOG_LEVEL": "WARNING", "REMOTE_CONTROL_ENABLED": "True"}
    done = processes.run(
        runspider({**quiet, **components, **wrong}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    said = done.stderr.strip().splitlines()
    assert len(said) == 1, done.stderr
    assert said[0].endswith("The crawl does not start.")
    assert all(name in said[0] or value in said[0] for name, value in wrong.items())


def runner_of(**settings: Any) -> tuple[AsyncCrawlerRunner, Crawler]:
    """A crawl with these *settings* that a script could run."""
    runner = AsyncCrawlerRunner({**OURS, "AOPIC_STORE": "memory", "TELNETCONSOLE_ENABLED": False, **settings})
    return runner, runner.create_crawler(Follow)


async def test_a_crawl_that_ends_well_keeps_its_spider(serve):
    serve({"http://a.test/": []})
    runner, crawler = runner_of()
    await runner.crawl(crawler)
    assert not runner.bootstrap_failed
    assert isinstance(crawler.spider, Spider)


@pytest.mark.parametrize("where", ["between", "close"])
async def test_a_crawl_that_its_store_stops_has_failed(serve, monkeypatch, caplog, where):
    serve({"http://a.test/": ["http://a.test/1"], "http://a.test/1": []})
    disk = MemoryStore()
    store = disk if where == "close" else FaultyStore(disk, Fault("fail", 4))
    monkeypatch.setattr("scrapy_aopic.job.job.open_store", lambda *_, **__: store)
    if where == "close":  # when nothing but the last commit is left to do
        monkeypatch.setattr(disk, "write", FaultyStore(disk, Fault("fail", 1)).write)
    runner, crawler = runner_of(AOPIC_DURABILITY="close")
    seen: list[Any] = []
    crawler.signals.connect(lambda: seen.append(crawler.spider), signal=signals.engine_stopped, weak=False)
    await runner.crawl(crawler)
    assert runner.bootstrap_failed
    assert isinstance(seen[0], Spider)  # who is told that the engine has stopped still finds it
    assert len(logged(caplog, "ERROR")) == 1


async def test_a_crawl_that_is_refused_before_its_engine_runs_has_failed(serve, monkeypatch):
    """The spider is closed while receivers of other signals keep the engine from its start."""
    serve({"http://a.test/": []})
    runner, crawler = runner_of(AOPIC_WINDOW="often")

    async def slow() -> None:
        await asyncio.sleep(0.2)

    crawler.signals.connect(slow, signal=signals.spider_opened, weak=False)
    crawler.signals.connect(slow, signal=signals.engine_started, weak=False)
    await runner.crawl(crawler)
    assert runner.bootstrap_failed


async def test_who_stops_a_crawl_that_is_over_is_not_in_the_way(serve, caplog):
    serve({"http://a.test/": []})
    runner, crawler = runner_of()
    closing = Closing(crawler)
    crawler.signals.connect(lambda: closing.abort("aopic_storage"), signal=signals.spider_closed, weak=False)
    await runner.crawl(crawler)
    await asyncio.sleep(0.05)
    assert runner.bootstrap_failed
    assert logged(caplog, "ERROR") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_a_report_that_cannot_be_printed_is_one_sentence(tmp_path, where):
    (tmp_path / "spider.py").write_text(SPIDER)
    command = runspider({**OURS, "AOPIC_REPORT": "1", "LOG_LEVEL": "WARNING"})
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" >{where}', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.strip().splitlines()
    assert len(said) == 1, done.stderr
    assert "What AOPIC_REPORT asks for cannot be printed: " in said[0]

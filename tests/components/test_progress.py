"""The progress line: there on a terminal, silent elsewhere; and the temporary store of a crawl without JOBDIR."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from support.commands import Terminal
from support.small_web import Follow, crawl

from scrapy_aopic import extensions

SCHEDULER = {"SCHEDULER": "scrapy_aopic.Scheduler"}


class Slow(Follow):
    """Waits until the line was shown a few times."""

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield Request("http://b.test/", self.done)
        await asyncio.sleep(0.1)

    async def done(self, response: Response) -> None:
        await asyncio.sleep(0.4)  # so that the other page, which waits meanwhile, is over first


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
async def test_a_line_is_shown_on_a_terminal_if_it_is_wanted(serve, monkeypatch, is_terminal, wanted):
    monkeypatch.setattr(extensions, "_EVERY", 0.01)
    shown = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    serve({"http://a.test/": [], "http://b.test/": []})
    await crawl(Slow, {**SCHEDULER, "LOGSTATS_INTERVAL": 60 if wanted else 0, "LOG_ENABLED": False})
    assert ("0 pages · " in shown.getvalue()) == (is_terminal and wanted)
    assert ("limited by politeness" in shown.getvalue()) == (is_terminal and wanted)


async def test_what_is_logged_meanwhile_has_a_line_of_its_own(serve, monkeypatch):
    class Logging(Slow):
        async def done(self, response: Response) -> None:
            await super().done(response)
            logging.getLogger("a").warning("A warning")

    monkeypatch.setattr(extensions, "_EVERY", 0.01)
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers, log := logging.StreamHandler()])
    serve({"http://a.test/": [], "http://b.test/": []})
    await crawl(Logging, {**SCHEDULER, "LOG_ENABLED": False})
    before, found, _ = shown.getvalue().partition("A warning\n")
    assert found
    assert " pages · " in before
    assert before.endswith("\r")  # of the line that was there, nothing is left but blanks
    assert before.split("\r")[-2].isspace()
    assert log.filters == []


async def test_what_earlier_runs_did_is_no_speed_of_this_one(serve, monkeypatch, tmp_path):
    monkeypatch.setattr(extensions, "_EVERY", 0.01)
    serve({"http://a.test/": [], "http://b.test/": []})
    settings = {**SCHEDULER, "JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite", "LOG_ENABLED": False}
    await crawl(Slow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    await crawl(Slow, settings)
    first = re.search(r"\d+ pages? · [^\r]*", shown.getvalue())
    assert first[0].startswith("1 page · ")
    assert "/s" not in first[0] or " 0.0/s" in first[0]


@pytest.mark.parametrize("store", ["auto", "rocksdb", "sqlite"])
async def test_without_a_job_folder_nothing_is_left_behind(serve, tmp_path, monkeypatch, store):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Path] = []

    class Looks(Slow):
        async def done(self, response: Response) -> None:
            seen.extend(tmp_path.iterdir())

    serve({"http://a.test/": [], "http://b.test/": []})
    await crawl(Looks, {**SCHEDULER, "AOPIC_STORE": store})
    assert seen
    assert not list(tmp_path.iterdir())


async def test_the_link_middleware_says_that_it_needs_the_scheduler(serve, caplog):
    web = serve({"http://a.test/": [], "http://b.test/": []})
    await crawl(Slow, {"SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000}})
    assert 'LinkMiddleware pays cash only with SCHEDULER = "scrapy_aopic.Scheduler"' in caplog.text
    assert len(web.asked) == 2


@pytest.mark.slow
async def test_a_terminal_that_is_gone_is_no_error(serve, monkeypatch, caplog):
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(extensions, "_EVERY", 0.01)
    web = serve({"http://a.test/": [], "http://b.test/": []})
    monkeypatch.setattr(sys, "stderr", Gone())
    await crawl(Slow, SCHEDULER)
    monkeypatch.undo()
    assert len(web.asked) == 2
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []

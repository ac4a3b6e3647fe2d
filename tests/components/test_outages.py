"""A crawl that reaches nothing says so at once, and why its hosts wait."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from support.commands import run_here
from support.crawls import OURS, Visits
from support.small_web import ask_view, crawl, until

from scrapy_aopic.session.outage_detector import OutageDetector
from scrapy_aopic.session.session import Session
from scrapy_aopic.view.stored import count


@pytest.fixture
def crawler() -> Crawler:
    return get_crawler()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage() for each in caplog.records if each.name == "scrapy_aopic.session.outage_detector"
    ]


def ask_in_vain(reach: OutageDetector, hosts: range, n_hosts: int = 1000) -> None:
    for n in hosts:
        reach.failed(f"h{n}.test", Request(f"http://h{n}.test/"), "DNSLookupError: no such name", n_hosts)


def test_ten_silent_hosts_at_first_are_told_once(crawler, caplog):
    reach = OutageDetector(crawler)
    ask_in_vain(reach, range(9))
    assert said(caplog) == []
    ask_in_vain(reach, range(9, 100))
    (warning,) = said(caplog)
    assert warning.startswith(
        "No host can be reached: the first 10 hosts that were tried gave no answer, at last h9.test "
        "(DNSLookupError: no such name). Is there a network?"
    )


def test_the_same_host_again_is_no_further_host(crawler, caplog):
    reach = OutageDetector(crawler)
    for _ in range(20):
        ask_in_vain(reach, range(3))
    assert said(caplog) == []


def test_of_a_crawl_of_few_hosts_all_must_be_silent(crawler, caplog):
    reach = OutageDetector(crawler)
    ask_in_vain(reach, range(1), n_hosts=1)
    assert said(caplog) == []
    ask_in_vain(reach, range(1), n_hosts=1)
    assert len(said(caplog)) == 1


def test_an_answer_ends_it_and_later_it_takes_more(crawler, caplog):
    now = 0.0
    reach = OutageDetector(crawler, lambda: now)
    with caplog.at_level("INFO"):
        for _ in range(5):
            ask_in_vain(reach, range(9))
            reach.answered()
        now = 59.0
        ask_in_vain(reach, range(100))  # they may have been asked at once
        reach.answered()
        now = 119.0
        ask_in_vain(reach, range(29))
        assert said(caplog) == []
        ask_in_vain(reach, range(29, 31))
        reach.answered()
        reach.answered()
    warning, end = said(caplog)
    assert "the last 30 hosts that were tried" in warning
    assert end == "Hosts can be reached again."


SEEDS = [f"http://h{n}.test/" for n in range(12)]


async def crawl_seeds(*, waits: dict[str, int] | None = None, **settings: Any) -> None:
    """Crawl until each host was asked once, and hosts have the *waits* that are given."""
    asked: set[str] = set()
    spiders: list[Spider] = []

    def is_enough() -> bool:
        if len(asked) < 12 or waits is None:
            return len(asked) == 12
        session = Session.of(spiders[0].crawler)
        return session is not None and session.watch.snapshot().hosts.waits == waits

    class Note:
        def process_response(self, request: Request, response: Response) -> Response:
            asked.add(request.url)
            return response

        def process_exception(self, request: Request, exception: Exception) -> None:
            asked.add(request.url)

    ours = {**OURS, "DOWNLOADER_MIDDLEWARES": {Note: 999}, "RETRY_ENABLED": False}
    told = {signals.spider_opened: lambda spider: spiders.append(spider)}  # noqa: PLW0108 - of a signal
    await crawl(until(is_enough, Visits), {**ours, **settings}, told=told, start_urls=SEEDS)


@pytest.mark.slow
async def test_a_wrong_proxy_is_told_and_status_says_why_the_hosts_wait(
    nobody, tmp_path, monkeypatch, caplog, capsys
):
    monkeypatch.setenv("http_proxy", nobody)
    on_disk = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"}
    await crawl_seeds(waits={"down": 12}, AOPIC_BACKOFF=600, CONCURRENT_REQUESTS=100, **on_disk)
    (warning,) = said(caplog)
    assert "the first 10 hosts" in warning
    assert f"Is the proxy {nobody} in order?" in warning

    counted = ask_view(tmp_path, count)
    assert counted.waits == {"down": 12}
    assert len(counted.waiting) == 10
    longest = counted.waiting[0]
    assert longest.name.startswith("h")
    assert 0 < longest.wait < 601
    assert longest.down == 1

    capsys.readouterr()
    code, shown, _ = run_here(capsys, "status", tmp_path, "--json")
    assert (code, json.loads(shown)["counted"]["waits"]) == (0, {"down": 12})
    code, shown, _ = run_here(capsys, "status", tmp_path, "--all")
    assert code == 0
    assert f"{longest.name}: 1 transfer in a row without a response, waits " in shown


async def test_a_proxy_that_wants_a_password_is_told(serve, caplog):
    serve({f"http://h{n}.test/": Answer(407) for n in range(12)})
    await crawl_seeds(CONCURRENT_REQUESTS=100)
    (warning,) = said(caplog)
    assert "(the proxy does not know who asks)" in warning


async def test_hosts_that_answer_are_no_news(serve, caplog):
    serve({f"http://h{n}.test/": Answer(503 if n % 2 else 404) for n in range(12)})
    await crawl_seeds()
    assert said(caplog) == []

"""How long a transfer took: as the network saw it, not as late as a busy process gets round to it."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from demo_web.server import Answer
from demo_web.server_log import audit
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from support.crawls import ADDON, OURS, Visits
from support.small_web import crawl, until

from scrapy_aopic._engine import network
from scrapy_aopic._engine.network import Span, TransferWatch
from scrapy_aopic.session.lateness import Lateness
from scrapy_aopic.session.pacer import JobPacer

TICK = 0.01
NO_BODY = Request("http://a.test/")
AIOHTTP = "scrapy.core.downloader.handlers._aiohttp"
BODY = Request("http://a.test/", method="POST", body=b"much")


class Connection:
    """A socket whose kernel tells what it is told; instants are seconds of the clock below."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent = self.received = self.heard = 0.0
        self.n_resent = 0
        self.is_closed = False

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        if self.is_closed:
            raise OSError("Bad file descriptor")
        ago = [round(1000 * (self.now - instant)) for instant in (self.sent, self.received, self.heard)]
        return struct.pack("=44xIIII40xI", ago[0], 0, ago[1], ago[2], self.n_resent)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    connection = Connection()
    monkeypatch.setattr(network, "monotonic", lambda: connection.now)
    monkeypatch.setattr(network, "_TICK", TICK)
    monkeypatch.setattr(network, "_TCP_INFO", 11)
    monkeypatch.setattr(network, "_polled", lambda: connection.now - 0.5)
    return connection


def transfer(connection: Connection) -> tuple[TransferWatch, Any]:
    """A transfer on *connection*: at hand at 100.0, sent at 100.3, there at 100.4, and read at 102.0."""
    wire = network.Wire(lambda data: None, lambda: connection)
    watch = TransferWatch()
    watch.connected(wire)
    connection.sent, connection.received, connection.heard = 100.3, 100.4, 100.4
    connection.now = 102.0
    wire(b"all of it")
    connection.now = 103.0
    return watch, wire


def answer(**how: Any) -> Response:
    return Response("http://a.test/", **how)


def check(span: Span, seconds: float, end: float) -> None:
    assert span.seconds == pytest.approx(seconds)
    assert span.end == pytest.approx(end)


def test_a_transfer_lasts_from_its_sending_to_its_arrival_however_late_that_is_noticed(connection):
    watch, _ = transfer(connection)
    check(watch.span(99.0, NO_BODY, answer()), 0.1 + TICK, 100.4 + TICK)


def test_the_process_knows_better_than_the_kernel_if_it_is_in_time(connection):
    wire = network.Wire(lambda data: None, lambda: connection)
    watch = TransferWatch()
    watch.connected(wire)
    connection.sent = connection.received = connection.heard = 100.0
    connection.now = 100.002
    wire(b"all of it")
    check(watch.span(99.0, NO_BODY, answer()), 0.002, 100.002)


@pytest.mark.parametrize("what", ["body", "sent again"])
def test_a_request_that_was_not_sent_at_once_counts_from_when_its_connection_was_at_hand(connection, what):
    if what == "body":
        watch, _ = transfer(connection)
        check(watch.span(99.0, BODY, answer()), 0.4 + TICK, 100.4 + TICK)
        return
    wire = network.Wire(lambda data: None, lambda: connection)
    watch = TransferWatch()
    watch.connected(wire)
    connection.sent, connection.received, connection.n_resent = 100.3, 100.4, 1
    connection.now = 102.0
    wire(b"all of it")
    check(watch.span(99.0, NO_BODY, answer()), 0.4 + TICK, 100.4 + TICK)


def test_what_is_sent_once_an_answer_comes_is_no_request(connection):
    watch, wire = transfer(connection)
    connection.sent, connection.received = 102.9, 102.95
    wire(b"and more")
    check(watch.span(99.0, NO_BODY, answer()), 2.65 + TICK, 102.95 + TICK)


def test_an_answer_that_ends_with_its_connection_ends_when_that_did(connection):
    watch, wire = transfer(connection)
    connection.heard = 102.5
    assert wire.lose(lambda reason: reason, "done") == "done"
    connection.now, connection.is_closed = 110.0, True
    check(watch.span(99.0, NO_BODY, answer(flags=["partial"])), 2.2 + TICK, 102.5 + TICK)
    check(watch.span(99.0, NO_BODY, answer()), 0.1 + TICK, 100.4 + TICK)


@pytest.mark.parametrize("flags", [["partial"], ["dataloss"], ["download_stopped"]])
def test_an_answer_that_was_not_read_to_its_end_ends_now(connection, flags):
    watch, _ = transfer(connection)
    span = watch.span(99.0, NO_BODY, answer(flags=flags))
    assert span.end == 103.0
    assert span.seconds >= 3.0


def test_no_answer_counts_from_the_start_until_now(connection):
    watch, _ = transfer(connection)
    check(watch.span(99.0, NO_BODY, None), 4.0, 103.0)


def test_without_a_connection_the_loop_knows_when_it_last_looked(connection):
    check(TransferWatch().span(99.0, NO_BODY, answer()), 0.5, 99.5)


def test_where_the_kernel_does_not_tell_the_time_of_reading_counts(connection):
    connection.is_closed = True
    watch, _ = transfer(connection)
    check(watch.span(99.0, NO_BODY, answer()), 2.0, 102.0)


def test_the_next_transfer_on_a_connection_does_not_count_for_the_last(connection):
    watch, wire = transfer(connection)
    following = TransferWatch()
    following.connected(wire)
    connection.sent, connection.received = 103.5, 104.0
    connection.now = 105.0
    wire(b"another one")
    check(watch.span(99.0, NO_BODY, answer()), 0.1 + TICK, 100.4 + TICK)
    check(following.span(103.0, NO_BODY, answer()), 0.5 + TICK, 104.0 + TICK)


HANDLERS: dict[str, dict[str, Any]] = {
    "Twisted": {"AOPIC_FAST_DOWNLOADS": False},
    "fast": {},
    "aiohttp": {"DOWNLOAD_HANDLERS": {"http": f"{AIOHTTP}.AiohttpDownloadHandler"}},
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell")
@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_host_does_not_wait_for_the_callbacks_of_others(serve, handler):
    if handler == "aiohttp":
        pytest.importorskip(AIOHTTP)

    def parse(response: Response) -> Iterator[Any]:
        if response.url == "http://busy.test/":
            time.sleep(2)  # the answer of a.test comes meanwhile
            yield from (Request(f"http://busy.test/{n}") for n in range(3))
        elif response.url == "http://a.test/":
            yield Request("http://a.test/1")

    page = Answer(headers={"Content-Type": "text/html"}, body=b"<html></html>")
    slow = Answer(headers={"Content-Type": "text/html"}, body=b"<html></html>", delay=0.1)
    pages = {"http://a.test/": slow, "http://a.test/1": slow, "http://busy.test/": page}
    web = serve({**pages, **{f"http://busy.test/{n}": page for n in range(3)}})
    rules = {"busy.test": {"factor": 0, "min_gap": 2.5}}
    settings = {**OURS, "AOPIC_POLITENESS_FACTOR": 3, "AOPIC_HOST_RULES": rules, **HANDLERS[handler]}
    is_asked = until(lambda: "http://a.test/1" in web.asked, Visits)
    starts = ["http://busy.test/", "http://a.test/"]
    await asyncio.wait_for(crawl(is_asked, settings, start_urls=starts, parse=parse), 60)
    # By the loop's clock it took 2 seconds, and had to be left alone for 6; the third page of the other host has to wait for 5.
    assert "http://busy.test/2" not in web.asked
    assert audit([entry for entry in web.log if entry.host == "a.test"], 3).is_polite


@pytest.mark.parametrize("handler", HANDLERS)
async def test_what_may_no_longer_be_sent_when_its_connection_is_at_hand_waits_again(
    serve, monkeypatch, handler
):
    """As when the process was frozen meanwhile, and others may have its hosts; on new connections and on kept ones."""
    if handler == "aiohttp":
        pytest.importorskip(AIOHTTP)
    urls = [f"http://a.test/{n}" for n in range(8)]
    web = serve({url: Answer() for url in urls})
    refused: list[str] = []

    def permit(self: JobPacer, key: str, request: Request) -> Callable[[], bool]:
        assert key == "a.test"

        def may() -> bool:
            assert request.url not in web.asked
            if int(request.url[-1]) % 3 or request.url in refused:
                return True
            refused.append(request.url)
            return False

        return may

    monkeypatch.setattr(JobPacer, "permit", permit)

    settings = {**OURS, "AOPIC_MIN_GAP": 0, **HANDLERS[handler]}
    crawler = await asyncio.wait_for(crawl(Visits, settings, start_urls=urls), 60)
    assert sorted(refused) == [f"http://a.test/{n}" for n in (0, 3, 6)]
    assert sorted(web.asked) == urls
    assert audit(web.log, 0).n_overlaps == 0
    assert crawler.stats.get_value("aopic/politeness/refused") == 3
    assert crawler.stats.get_value("aopic/pages/visited") == 8


@pytest.mark.parametrize("handler", ["Twisted", "fast"])
async def test_what_may_be_sent_is_sent_before_anything_else_happens(serve, monkeypatch, handler):
    """A process that is frozen then has sent it before, and not when it goes on; on new connections and on kept ones."""
    urls = [f"http://a.test/{n}" for n in range(3)]
    web = serve({url: Answer() for url in urls})
    sent: list[bool] = []

    def wait_for(url: str) -> None:
        until = time.monotonic() + 30
        while url not in web.asked and time.monotonic() < until:
            time.sleep(0.001)
        sent.append(url in web.asked)

    def permit(self: JobPacer, key: str, request: Request) -> Callable[[], bool]:
        def may() -> bool:
            asyncio.get_running_loop().call_soon(wait_for, request.url)
            return True

        return may

    monkeypatch.setattr(JobPacer, "permit", permit)

    settings = {**OURS, "AOPIC_MIN_GAP": 0, **HANDLERS[handler]}
    await asyncio.wait_for(crawl(Visits, settings, start_urls=urls), 60)
    assert sent == [True] * 3


# -- lateness


def test_instants_that_nobody_looked_at_count_as_late_as_they_were():
    for late in [[0.0, 0.03, 0.05], [0.0, 0.35, 0.02], [2.05, 0.0], [10.0]]:
        crawler = get_crawler()
        lateness = Lateness(crawler)
        due, instants = 0.1, []
        for seconds in late:
            now = due + seconds
            while due <= now:
                instants.append(now - due)
                due = round(due + 0.1, 6)
            assert lateness.note(seconds) >= 1, late
        assert crawler.stats is not None, late
        mean = crawler.stats.get_value("aopic/loop/late_seconds/mean")
        assert mean == pytest.approx(sum(instants) / len(instants), abs=1e-3), late
        assert crawler.stats.get_value("aopic/loop/late_seconds/max") == max(late)


def test_it_is_said_once_if_this_machine_is_too_slow(caplog):
    lateness = Lateness(get_crawler())
    for _ in range(299):
        lateness.note(0.05)
    lateness.note(1.0)  # one callback that blocks says nothing of the machine
    lateness.note(600.0)  # nor does a process that was stopped
    assert not caplog.records
    for _ in range(1000):
        lateness.note(0.5)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "This machine is slower than the web that it crawls" in record.getMessage()


@pytest.mark.slow
async def test_a_crawl_tells_how_late_its_loop_was(serve):
    def parse(response: Response) -> Iterator[Any]:
        if response.url == "http://a.test/":
            time.sleep(0.5)
            yield Request("http://a.test/1")

    serve({"http://a.test/": [], "http://a.test/1": []})
    settings = {**OURS, "AOPIC_MIN_GAP": 0.2}
    crawler = await crawl(Visits, settings, start_urls=["http://a.test/"], parse=parse)
    longest = crawler.stats.get_value("aopic/loop/late_seconds/max")
    assert longest >= 0.3
    assert 0 < crawler.stats.get_value("aopic/loop/late_seconds/mean") < longest


@pytest.mark.parametrize("handler", ["Twisted", "fast"])
async def test_connections_to_a_proxy_serve_one_host_after_the_other(serve, handler):
    urls = [f"http://h{n % 20}.test/{n}" for n in range(200)]
    web = serve({url: Answer(delay=0.002) for url in urls})
    quick = {"LOGSTATS_INTERVAL": 0, "AOPIC_MIN_GAP": 0, "CONCURRENT_REQUESTS": 8, "ROBOTSTXT_OBEY": False}
    crawler = await crawl(Visits, {**ADDON, **quick, **HANDLERS[handler]}, start_urls=urls)
    assert "aopic/downloads/slow" not in crawler.stats.get_stats()
    assert len(web.asked) == 200
    assert web.n_connections <= 8

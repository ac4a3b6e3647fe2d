"""How a visit ends: what the engine is done with, what became of the page, and what happens when something fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.signalmanager import SignalManager
from support.small_web import Follow, crawl

from scrapy_aopic._engine.in_work import InWork
from scrapy_aopic.core.revisits import Version
from scrapy_aopic.session.stats import FirstOnly, Stats
from scrapy_aopic.session.visit import Visit

NEW = Version(b"digest")
SAME = Version(is_same=True)
MISSING = Version(is_missing=True)


def responded(status: int, version: Version | None = None) -> methodcaller:
    return methodcaller("responded", status, version)


def failed(reason: str) -> methodcaller:
    return methodcaller("failed", reason)


REDIRECTED = methodcaller("redirected")
DUPLICATE = methodcaller("compared", is_duplicate=True, is_excess=False)

ENDINGS = [
    # Of first visits, and of repeated ones
    (0, [responded(200)], ("", False, None)),
    (0, [responded(200), DUPLICATE], ("duplicate", False, None)),
    (0, [responded(404)], ("http 404", True, None)),
    (0, [responded(500), DUPLICATE], ("http 500", True, None)),
    (0, [], ("no answer", True, None)),
    (0, [failed("TimeoutError")], ("TimeoutError", True, None)),
    (0, [failed("TimeoutError"), failed("")], ("TimeoutError", True, None)),
    (0, [REDIRECTED], ("redirect", False, None)),
    (0, [REDIRECTED, failed("content type")], ("content type", False, None)),
    (1, [responded(200, NEW)], ("", False, NEW)),
    (1, [responded(304, SAME)], ("", False, SAME)),
    (1, [responded(200)], ("", False, Version())),
    (1, [responded(404, NEW)], ("http 404", True, NEW)),
    (1, [responded(410, NEW)], ("http 410", True, NEW)),
    (1, [responded(500, NEW)], ("http 500", False, MISSING)),
    (1, [failed("TimeoutError")], ("TimeoutError", False, MISSING)),
    (1, [REDIRECTED], ("redirect", False, Version())),
]


@pytest.mark.parametrize("recrawls", [False, True])
def test_a_visit_ends_with(recrawls):
    for visits, events, ending in ENDINGS if recrawls else (each for each in ENDINGS if not each[0]):
        lease: Any = SimpleNamespace(key=b"", visits=visits)
        visit = Visit(Request("http://a.test/"), lease, 1, lambda _: ("", b""), 100)
        for event in events:
            event(visit)
        found = visit.findings(recrawls=recrawls)
        assert (found.outcome, found.is_failure, found.version) == ending, (visits, events)


class Engine:
    """The sets of Scrapy's engine, and what was said of them."""

    def __init__(self, active: Any = None, inprogress: Any = None) -> None:
        sets = {"active": active, "inprogress": inprogress}
        self.downloader = SimpleNamespace(**{"active": sets["active"]} if active is not None else {})
        self._slot = SimpleNamespace(**{"inprogress": sets["inprogress"]} if inprogress is not None else {})
        self.said: list[str] = []
        self.in_work = InWork(
            cast("Any", SimpleNamespace(engine=self, signals=SignalManager())),
            lambda request: self.said.append(f"transferred {request.url[-1]}"),
            lambda request: self.said.append(f"finished {request.url[-1]}"),
        )

    def starts(self, request: Request) -> None:
        self._slot.inprogress.add(request)
        self.downloader.active.add(request)


def test_the_end_of_a_request_is_said_when_the_engine_is_done_with_it():
    engine = Engine(set(), set())
    one, two = Request("http://a.test/1"), Request("http://a.test/2")
    for request in (one, two):
        engine.in_work.hand_out(request)
        engine.starts(request)
    engine.in_work.look()
    assert engine.said == []
    engine.downloader.active.remove(two)
    assert engine.said == ["transferred 2"]
    engine._slot.inprogress.remove(two)
    assert engine.said == ["transferred 2", "finished 2"]
    engine.in_work.look()
    engine.downloader.active.discard(one)
    engine._slot.inprogress.discard(one)
    assert engine.said[2:] == ["transferred 1", "finished 1"]
    with pytest.raises(KeyError):
        engine.downloader.active.remove(one)
    assert len(engine.said) == 4


def test_what_is_still_downloaded_is_finished_after_that():
    engine = Engine(set(), set())
    request = Request("http://a.test/1")
    engine.starts(request)
    engine._slot.inprogress.remove(request)
    assert engine.said == []
    engine.downloader.active.remove(request)
    assert engine.said == ["transferred 1", "finished 1"]


@pytest.mark.parametrize("sets", [(set(), set()), (None, None)], ids=["unused", "none"])
def test_a_request_that_the_engine_does_not_begin_with_is_over_at_the_next_look(sets):
    engine = Engine(*sets)
    engine.in_work.hand_out(Request("http://a.test/1"))
    assert engine.said == []
    engine.in_work.look()
    engine.in_work.look()
    assert engine.said == ["transferred 1", "finished 1"]


def test_the_collector_is_told_ten_times_a_second(monkeypatch):
    told: list[tuple[str, int]] = []
    collector = SimpleNamespace(inc_value=lambda name, n: told.append((name, n)))
    stats, now = Stats(cast("Any", collector)), 5.0
    monkeypatch.setattr("scrapy_aopic.session.stats.perf_counter", lambda: now)
    for _ in range(30):
        stats.count("pages")
        stats.beat()
        now += 1 / 128
    assert [name for name, _ in told] == ["pages"] * 3
    stats.flush()
    assert sum(n for _, n in told) == 30


def test_a_text_of_a_stranger_is_logged_in_short_and_as_a_terminal_shows_it(caplog):
    first = FirstOnly(logging.getLogger("test"), cast("Any", SimpleNamespace(spider=None)))
    first.warning("long", "%(url)s", url=f"http://a.test/\x1b{'x' * 1_000_000}")
    first.warning("error", "%(error)r", error=ValueError("short"))
    long, error = (record.getMessage() for record in caplog.records)
    assert long.startswith("http://a.test/ xx")
    assert len(long) < 1000
    assert error == "ValueError('short')"


class Shared:
    """A spider middleware that puts all links into one download slot, without making new requests."""

    async def process_spider_output(self, response: Response, result: Any) -> Any:
        async for item in result:
            item.meta["download_slot"] = "shared"
            yield item


class Fan(Follow):
    start_urls = ["http://a.test/"]

    def parse(self, response: Response) -> Iterator[Any]:
        assert response.url == "http://a.test/" or response.meta["download_slot"] == "shared"
        yield from super().parse(response)


async def test_a_link_that_a_middleware_changes_belongs_where_it_says(serve):
    web = serve(
        {"http://a.test/": ["http://b.test/", "http://c.test/"], "http://b.test/": [], "http://c.test/": []}
    )
    crawler = await crawl(Fan, {"SCHEDULER": "scrapy_aopic.Scheduler", "SPIDER_MIDDLEWARES": {Shared: 100}})
    assert sorted(web.asked) == ["http://a.test/", "http://b.test/", "http://c.test/"]
    assert crawler.stats.get_value("aopic/job/hosts") == 2

"""The crawler of the hostile web, and a watchdog that says who keeps its event loop busy."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.utils.asyncio import create_looping_call
from twisted.python.failure import Failure

import scrapy_aopic
from scrapy_aopic._engine.process_memory import resident
from scrapy_aopic.downloadermiddlewares import robots

robots.RETRY = 0.5  # of those that are unreachable, which is tried again once

NAME, OURS = "scrapy_aopic", str(Path(scrapy_aopic.__file__).parent)

PASSING = "_engine"
"""Folder of ours in which functions stand in for some of Scrapy's or Twisted's, which do the work."""

TICK, LATE = 0.01, 0.1
"""Seconds between beats of the event loop, and from which on it is late."""


Clocks = tuple[float, float, float, float]


class Wander(Spider):
    """Follows every link that is one."""

    name = "wander"
    hosts = "1000"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.start_urls = [f"http://h{n}.test/p0" for n in range(int(self.hosts))]

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, TextResponse):
            return
        links: list[Any] = []
        with suppress(Exception):  # what extractors say of some pages
            links = LinkExtractor().extract_links(response)
        for link in links:
            with suppress(ValueError):
                yield Request(link.url, errback=self.failed)
        yield {"url": response.url, "text": response.text[:20]}

    def failed(self, failure: Failure) -> None:
        pass


class Call:
    """A call that the event loop made, as far as it was seen.

    Args:
        clocks: When it may have begun; see :func:`clocks`.
    """

    def __init__(self, frame: FrameType | None, clocks: Clocks) -> None:
        self.frame = frame  # kept, so that the next one is another object
        self._began = self.last = clocks
        self.owners: Counter[str] = Counter()

    def report(self, began: float) -> dict[str, Any]:
        """What took how long, and which part of it was ours."""
        wall, ran, waited, collected = (
            last - first for first, last in zip(self._began, self.last, strict=True)
        )
        return {
            "at": self._began[0] - began,
            "seconds": wall,
            "ran": ran,
            "waited": waited,
            "collected": collected,
            "ours": sum(n for name, n in self.owners.items() if name.startswith(NAME)) / self.owners.total(),
            "seen": self.owners.most_common(4),
        }


class Watchdog:
    """Looks at the stack of the main thread while the event loop is late, and at the memory now and then.

    It does so from a signal: frames of another thread cannot be looked at safely. What is measured is each single call
    that the loop makes. Of its time, that part is ours in which the innermost frame of ours or of the spider is ours:
    what the spider does between two of our frames is its own affair.
    """

    def __init__(self, crawler: Crawler, report: Path) -> None:
        self._report = report
        self._crawler = crawler
        self._call: Call | None = None
        self._calls: list[dict[str, Any]] = []
        self._late: list[float] = []
        self._memory: list[tuple[float, float, int]] = []
        self._began = time.perf_counter()
        self._beat = clocks()
        crawler.signals.connect(self._start, signal=signals.spider_opened)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Watchdog:
        return cls(crawler, Path(crawler.settings["HOSTILE_REPORT"]))

    def _start(self) -> None:
        self._began = time.perf_counter()
        self._beat = clocks()
        self._loop = create_looping_call(self._note)
        self._loop.start(TICK, now=False)
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, TICK, TICK)

    def _note(self) -> None:
        """The event loop beats."""
        self._end_call()
        now = clocks()
        if now[0] - self._beat[0] > LATE:
            self._late.append(now[0] - self._beat[0])
        self._beat = now
        if not self._memory or now[0] - self._began - self._memory[-1][0] > 1:
            assert self._crawler.stats is not None
            pages = self._crawler.stats.get_value("response_received_count", 0)
            self._memory.append((now[0] - self._began, resident() / 1e6, pages))

    def _look(self, _: int, frame: FrameType | None) -> None:
        """Look at what the main thread does, if it is late for its next beat."""
        if time.perf_counter() - self._beat[0] < 2 * TICK:
            return
        now, called = clocks(), call_of(frame)
        if self._call is None or self._call.frame is not called:
            # It may have begun just after the last look, during which signals do not come.
            before = self._beat if self._call is None else self._call.last
            self._end_call()
            self._call = Call(called, before)
        self._call.last = now
        self._call.owners["garbage" if collections.is_running else owner(frame)] += 1

    def _end_call(self) -> None:
        call, self._call = self._call, None
        if call is not None and (report := call.report(self._began))["seconds"] > LATE / 2:
            self._calls.append(report)

    def _stop(self, reason: str) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._loop.stop()
        assert self._crawler.stats is not None
        report = {
            "reason": reason,
            "calls": self._calls,
            "late": self._late,
            "memory": self._memory,
            "stats": self._crawler.stats.get_stats(),
        }
        self._report.write_text(json.dumps(report, default=str))


class Collections:
    """Seconds for which Python collected garbage, which may come in the middle of anything."""

    def __init__(self) -> None:
        self._seconds = self._began = 0.0
        self.is_running = False
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        self.is_running = phase == "start"
        if self.is_running:
            self._began = time.perf_counter()
        else:
            self._seconds += time.perf_counter() - self._began

    @property
    def seconds(self) -> float:
        """With those of one that is under way: finalisers are Python, so signals come in the middle of it."""
        return self._seconds + self.is_running * (time.perf_counter() - self._began)


collections = Collections()


def clocks() -> Clocks:
    """Seconds of the wall, of this thread, for which it was ready while the system ran others, and for garbage."""
    try:
        waited = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        waited = 0.0
    return time.perf_counter(), time.thread_time(), waited, collections.seconds


def call_of(frame: FrameType | None) -> FrameType | None:
    """The outermost call of the event loop that *frame* is part of."""
    found = None
    while frame is not None:
        if frame.f_code is asyncio.Handle._run.__code__:
            found = frame
        frame = frame.f_back
    return found


def owner(frame: FrameType | None) -> str:
    """Who is to blame for *frame*: the innermost function of ours or of this file, or else of anybody.

    For a function of ours it is told, too, what it was called by, and what it has called.
    """
    innermost, ours = "", []
    while frame is not None:
        code = frame.f_code
        if code.co_qualname == "Scheduler.close":
            return "the end of the crawl"  # which waits for the disk
        is_ours = code.co_filename.startswith(OURS)
        if not (innermost and is_ours and Path(code.co_filename).parent.name == PASSING):
            innermost = innermost or f"{Path(code.co_filename).name}:{code.co_qualname}"
            if is_ours:
                ours.append(f"{Path(code.co_filename).relative_to(OURS)}:{code.co_qualname}")
            elif code.co_filename == __file__ and not ours:
                return f"spider ({innermost})"
        frame = frame.f_back
    return f"{NAME}/{' < '.join(ours[:4])} ({innermost})" if ours else f"others ({innermost})"


logging.getLogger("scrapy.core.scraper").setLevel(logging.ERROR)

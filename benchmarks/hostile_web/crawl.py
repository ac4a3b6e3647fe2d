"""The crawler of the hostile web, and a watchdog that says who keeps its event loop busy."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
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

NAME, OURS = "scrapy_aopic", str(Path(scrapy_aopic.__file__).parent)

PASSING = {"_HeaderBound.__call__", "PoliteSlot._end", "_Transfers.remove"}
"""Functions of ours that stand in for some of Scrapy's or Twisted's, which do the work."""

TICK, LATE = 0.01, 0.1
"""Seconds between beats of the event loop, and from which on it is late."""


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
        with suppress(ValueError, UnicodeError, LookupError):  # what extractors say of some pages
            links = LinkExtractor().extract_links(response)
        for link in links:
            with suppress(ValueError):
                yield Request(link.url, errback=self.failed)
        yield {"url": response.url, "text": response.text[:20]}

    def failed(self, failure: Failure) -> None:
        pass


class Call:
    """A call that the event loop made, as far as it was seen."""

    def __init__(self, frame: FrameType | None, now: float, waited: float) -> None:
        self.frame = frame  # kept, so that the next one is another object
        self.began = self.seen = now
        self.waited = (waited, waited)
        self.owners: Counter[str] = Counter()

    def report(self, began: float) -> dict[str, Any]:
        """What took how long: seconds in all, and those in which the system ran other processes."""
        return {
            "at": self.began - began,
            "seconds": self.seen - self.began + TICK,
            "others": self.waited[1] - self.waited[0],
            "ours": sum(n for name, n in self.owners.items() if name.startswith(NAME)) / self.owners.total(),
            "seen": self.owners.most_common(4),
        }


class Watchdog:
    """Looks at the stack of the main thread while the event loop is late, and at the memory now and then.

    What is measured is each single call that the loop makes. Of its time, that part is ours in which the innermost
    frame of ours or of the spider is ours: what the spider does between two of our frames is its own affair.
    """

    def __init__(self, crawler: Crawler, report: Path) -> None:
        self._report = report
        self._crawler = crawler
        self._main = threading.main_thread()
        self._beat = time.perf_counter()
        self._calls: list[dict[str, Any]] = []
        self._late: list[float] = []
        self._memory: list[tuple[float, float, int]] = []
        self._began = time.perf_counter()
        self._ends = threading.Event()
        crawler.signals.connect(self._start, signal=signals.spider_opened)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Watchdog:
        return cls(crawler, Path(crawler.settings["HOSTILE_REPORT"]))

    def _start(self) -> None:
        self._beat = self._began = time.perf_counter()
        self._loop = create_looping_call(self._note)
        self._loop.start(TICK, now=False)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _note(self) -> None:
        now = time.perf_counter()
        if now - self._beat > LATE:
            self._late.append(now - self._beat)
        self._beat = now

    def _watch(self) -> None:
        while not self._ends.wait(TICK):
            if time.perf_counter() - self._beat > 2 * TICK:
                self._follow(self._beat)
            if not self._memory or time.perf_counter() - self._began - self._memory[-1][0] > 1:
                stats = self._crawler.stats
                pages = stats.get_value("response_received_count", 0) if stats is not None else 0
                self._memory.append((time.perf_counter() - self._began, resident(), pages))

    def _follow(self, beat: float) -> None:
        """Look at what the main thread does until its next beat."""
        call: Call | None = None
        while self._beat == beat and not self._ends.is_set():
            frame = sys._current_frames().get(self._main.ident or 0)
            now, waited, called = time.perf_counter(), self._waited(), call_of(frame)
            if call is None or call.frame is not called:
                self._end(call)
                call = Call(called, now, waited)
            call.seen, call.waited = now, (call.waited[0], waited)
            call.owners[owner(frame)] += 1
            del frame
            time.sleep(TICK / 2)
        self._end(call)

    def _end(self, call: Call | None) -> None:
        if call is not None and call.seen - call.began + TICK > LATE / 2:
            self._calls.append(call.report(self._began))

    def _waited(self) -> float:
        """Seconds for which the main thread was ready, but did not run; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/self/task/{self._main.native_id}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def _stop(self, reason: str) -> None:
        self._loop.stop()
        self._ends.set()
        assert self._crawler.stats is not None
        report = {
            "reason": reason,
            "calls": self._calls,
            "late": self._late,
            "memory": self._memory,
            "stats": self._crawler.stats.get_stats(),
        }
        self._report.write_text(json.dumps(report, default=str))


def call_of(frame: FrameType | None) -> FrameType | None:
    """The outermost call of the event loop that *frame* is part of."""
    found = None
    while frame is not None:
        if frame.f_code is asyncio.Handle._run.__code__:
            found = frame
        frame = frame.f_back
    return found


def owner(frame: FrameType | None) -> str:
    """Who is to blame for *frame*: the innermost function of ours or of this file, or else of anybody."""
    innermost = ""
    while frame is not None:
        code = frame.f_code
        if innermost and code.co_qualname in PASSING:
            frame = frame.f_back
            continue
        innermost = innermost or f"{Path(code.co_filename).name}:{code.co_qualname}"
        if code.co_filename.startswith(OURS):
            return f"{NAME}/{Path(code.co_filename).relative_to(OURS)}:{code.co_qualname} ({innermost})"
        if code.co_filename == __file__:
            return f"spider ({innermost})"
        frame = frame.f_back
    return f"others ({innermost})"


def resident() -> float:
    """Megabytes of memory of this process; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 / 1e6 if status.exists() else 0.0


logging.getLogger("scrapy.core.scraper").setLevel(logging.ERROR)

"""A crawl whose instructions are counted: the same in every run, however slow, loaded or emulated the machine is.

Its clock goes on with its pages and with nothing else, so what is done once in a second is done once in so many pages. It
ends in the callback of the last page, and Python's garbage collector, which runs at other pages after any change, is off.
Only public names are used, so that it runs with the package of any commit.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import threading
import time
from typing import Any

_PAGE = 0.003
"""Seconds that a page takes by the clock."""

_NO_GAPS = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_MIN_GAP": 0}

_PATIENCE = 5.0
"""Seconds, real ones, in which the network may go on with something before the clock goes on to the next timer."""


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0  # small: the event loop adds nanoseconds

    def __call__(self) -> float:
        return self.now


_clock = _Clock()
for _name in ("monotonic", "perf_counter", "process_time", "thread_time"):
    setattr(time, _name, _clock)  # before anything else is imported that takes them by name
time.time = lambda: 1.7e9 + _clock()

import crawls
import spiders
from scrapy import signals
from scrapy.crawler import CrawlerProcess

_wait = selectors.EpollSelector.select
_wait_for_event = threading.Event.wait


def _wait_long(self: threading.Event, timeout: float | None = None) -> bool:
    """Threads that look at something from time to time live by the clock on the wall: let them sleep."""
    return _wait_for_event(self, timeout and timeout * 10_000)


def _select(self: Any, timeout: float | None = None) -> Any:
    """What is ready; the clock goes on if nothing is for a while."""
    if timeout is not None and timeout <= 0:
        return _wait(self, timeout)
    events = _wait(self, _PATIENCE)
    if not events and timeout is not None:
        _clock.now += timeout
    return events


class _Pages:
    """Counts pages, with which the clock goes on; at the *last* one it prints how many, and exits at once."""

    def __init__(self, last: int) -> None:
        self.n, self._last = 0, last

    def add(self) -> None:
        self.n += 1
        _clock.now += _PAGE
        if self.n == self._last:
            print(json.dumps({"pages": self.n}), flush=True)
            os._exit(0)


def crawl(*, pages: int, kind: str, settings: dict[str, Any] | None = None, **web: Any) -> None:
    """Crawl as many *pages* as :func:`crawls.crawl`, print how many, and exit at once."""
    settings = {**_NO_GAPS, **(settings or {})}
    own, spider, is_durable = crawls.KINDS[kind]
    counted = _Pages(pages)

    class Counted(spider):  # type: ignore[valid-type, misc]
        def parse(self, response: Any) -> Any:
            counted.add()
            return super().parse(response)

    crawls.KINDS[kind] = crawls.Kind(own, Counted, is_durable)
    _begin()
    crawls.crawl(pages=10 * pages, kind=kind, settings=settings, **web)


def _begin() -> None:
    selectors.EpollSelector.select = _select  # type: ignore[method-assign]
    threading.Event.wait = _wait_long  # type: ignore[method-assign]
    gc.disable()


def revisit(*, pages: int, folder: str, settings: dict[str, Any], **web: Any) -> None:
    """A round of the job in *folder*, until so many *pages* have answered, or until its end if it is 0; print how many."""
    own = {"JOBDIR": folder, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}
    process = CrawlerProcess({**crawls.ADDON, **crawls.ALIKE, **_NO_GAPS, **own, **settings})
    crawler = process.create_crawler(spiders.Batch)
    counted = _Pages(pages)

    def answered(**_: Any) -> None:
        counted.add()

    crawler.signals.connect(answered, signal=signals.response_received)
    _clock.now += 1e6 * bool(pages)  # later than the round before
    with crawls.served(**web):
        process.crawl(crawler, hosts=web["hosts"])
        _begin()
        process.start()
    print(json.dumps({"pages": counted.n}))

"""What a worker tells the process that has started it, and is told by it: see :mod:`scrapy_aopic.local_workers`.

Rule: a worker whose parent is gone, however it went, settles and ends: nobody would count for it, or start it again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals
from scrapy.utils.asyncio import create_looping_call

from scrapy_aopic.web.origins import FILES, origin_of_file

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_aopic._engine.closing import Closing

MARK = "\x1eaopic "
"""Begin of a line on standard error that is no message, but figures."""

COUNTS = ("pages", "response_received_count", "item_scraped_count", "spider_exceptions/count")
"""What a worker reports as it goes on: responses without robots.txt and the like, and stats."""

_BEAT = 0.05
"""Seconds between reports, if anything has changed."""


def has_parent() -> bool:
    """Whether the process that has started this worker still runs, as far as the system can tell."""
    if not hasattr(select, "poll"):
        return True
    pipe = select.poll()
    pipe.register(0, select.POLLIN)
    return not any(event & select.POLLHUP for _, event in pipe.poll(0))


class WorkerLink:
    """The link of the crawl by *crawler* to its parent, by standard input and standard error."""

    def __init__(self, crawler: Crawler, closing: Closing) -> None:
        self._crawler = crawler
        self._closing = closing
        self._asked = ""
        self._told = ""
        self._pages = 0
        self._beats = create_looping_call(self._beat)
        crawler.signals.connect(self._received, signal=signals.response_received)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)
        threading.Thread(target=self._listen, name="aopic-parent", daemon=True).start()
        self._beats.start(_BEAT, now=False)

    def _listen(self) -> None:
        with suppress(OSError):
            # Not by sys.stdin, whose lock a thread that waits would still have when the process ends.
            while said := os.read(0, 1_000):
                self._asked = said.decode().split()[-1]
        os.kill(os.getpid(), signal.SIGTERM)

    def _received(self, request: Request) -> None:
        self._pages += origin_of_file(request.url, *FILES) is None

    def _beat(self) -> None:
        if self._asked:
            asked, self._asked = self._asked, ""
            self._closing.close(asked)
        self._tell({})

    def _tell(self, more: dict[str, Any]) -> None:
        assert self._crawler.stats is not None
        stats = self._crawler.stats.get_stats()
        told = json.dumps({"pages": self._pages, **{name: stats.get(name, 0) for name in COUNTS[1:]}, **more})
        if told != self._told:
            self._told = told
            with suppress(OSError):  # the parent is gone
                sys.stderr.write(f"{MARK}{told}\n")
                sys.stderr.flush()

    def _closed(self, spider: Spider, reason: str) -> None:
        del spider
        self._beats.stop()
        assert self._crawler.stats is not None
        stats = self._crawler.stats.get_stats().items()
        self._tell({"reason": reason, "stats": {name: n for name, n in stats if isinstance(n, (int, float))}})

"""How often the event loop of a crawl waits for its server, and for how long, and how many requests its commits make: an
extension that counts and writes it to a file.

EXTENSIONS = {"support.store_waits.StoreWaits": 0}
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrapy import signals
from scrapy.crawler import Crawler

from scrapy_aopic.storage.redis.connection import Connection
from scrapy_aopic.storage.redis.read_ahead import ReadAhead

PATTERN = "store-waits-*.json"
"""Names of the files, one for each process, in its working folder: an object with ``waits``, seconds of each wait,
``writes``, requests of the thread that commits, and ``commits``."""

WRITER = "aopic-commit"
"""What the name of that thread begins with."""


class StoreWaits:
    """Notes each wait of the thread that made it, and each request of the one that commits, until the spider is closed."""

    def __init__(self, crawler: Crawler) -> None:
        self._seconds: list[float] = []
        self._writes = 0
        self._thread = threading.get_ident()
        self._stats = crawler.stats
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> StoreWaits:
        return cls(crawler)

    def _opened(self) -> None:
        ask, look, exchange = Connection.ask, ReadAhead.look, Connection._exchange

        def exchanged(link: Connection, commands: Any) -> Any:
            replies = exchange(link, commands)
            if replies and threading.current_thread().name.startswith(WRITER):
                self._writes += 1
            return replies

        def asked(link: Connection, *commands: Any) -> Any:
            return self._timed(ask, link, *commands)

        def looked(ahead: ReadAhead, *, waits: bool = False) -> None:
            look(ahead)
            if waits and not ahead.has_come(ahead._n_sent):
                self._timed(look, ahead, waits=True)

        setattr(Connection, "_exchange", exchanged)  # noqa: B010 - as below
        setattr(Connection, "ask", asked)  # noqa: B010 - mypy takes methods to be what they were
        setattr(ReadAhead, "look", looked)  # noqa: B010

    def _timed(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if threading.get_ident() != self._thread:
            return method(*arguments, **options)
        began = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            self._seconds.append(time.perf_counter() - began)

    def _closed(self) -> None:
        commits = self._stats.get_value("aopic/commits") if self._stats is not None else None
        Path(PATTERN.replace("*", str(os.getpid()))).write_text(
            json.dumps({"waits": self._seconds, "writes": self._writes, "commits": commits}), "utf-8"
        )

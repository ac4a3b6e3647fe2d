"""The progress line that a user sees while the crawl runs."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import AsyncioLoopingCall, create_looping_call
from twisted.internet.task import LoopingCall
from typing_extensions import Self

from ._engine.closing import configured
from .session.session import Session
from .view.text import short_summary, summary

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger(__name__)

_EVERY = 1.0
"""Seconds between updates of the line: its figures take about 2 ms."""


class Progress:
    """A progress line on a terminal: how far the crawl is, and what limits it; elsewhere a line in the log every ``LOGSTATS_INTERVAL`` seconds. With 0 there is neither."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._log_every = crawler.settings.getfloat("LOGSTATS_INTERVAL")
        self._line: tqdm[None] | None = None
        self._logs: list[logging.Handler] = []
        self._loop: AsyncioLoopingCall | LoopingCall | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            progress = cls(crawler)
        crawler.signals.connect(progress.start, signal=signals.spider_opened)
        crawler.signals.connect(progress.stop, signal=signals.spider_closed)
        return progress

    def start(self) -> None:
        """Show the line if standard error is a terminal, else log one now and then."""
        if self._loop is not None or not self._log_every:
            return
        if not sys.stderr.isatty():
            self._loop = create_looping_call(self._log)
            self._loop.start(self._log_every, now=False)
            return
        from tqdm import tqdm  # noqa: PLC0415  (most crawls show no line)

        self._line = tqdm(bar_format="{desc}", leave=False, file=sys.stderr)
        # logging_redirect_tqdm() does this, too, but shows records below the level of the handler that it replaces.
        self._logs = [
            each
            for each in logging.root.handlers
            if isinstance(each, logging.StreamHandler) and each.stream is sys.stderr
        ]
        for each in self._logs:
            each.addFilter(self._make_room)
        self._loop = create_looping_call(self._show)
        self._loop.start(_EVERY, now=False)

    def _show(self) -> None:
        session = Session.of(self._crawler)
        if session is None or self._line is None:
            return
        line = short_summary(session.watch.snapshot(), get_terminal_size().columns - 1)
        try:
            self._line.set_description_str(line)
        except OSError:  # the terminal is gone
            self.stop()

    def _make_room(self, _: logging.LogRecord) -> bool:
        """Remove the line before something is logged in its place; the next update shows it again, below."""
        if self._line is not None:
            with suppress(OSError):
                self._line.clear()
        return True

    def _log(self) -> None:
        session = Session.of(self._crawler)
        if session is not None:
            logger.info(
                "%(line)s",
                {"line": summary(session.watch.snapshot())},
                extra={"spider": self._crawler.spider},
            )

    def stop(self) -> None:
        """Remove the line."""
        if self._loop is not None and self._loop.running:
            self._loop.stop()
        for each in self._logs:
            each.removeFilter(self._make_room)
        line, self._line, self._loop, self._logs = self._line, None, None, []
        if line is not None:
            with suppress(OSError):
                line.close()

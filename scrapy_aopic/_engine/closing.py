"""Ends a crawl that cannot start or cannot go on: its spider is closed, and the process has exit code 1."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.utils.asyncio import CallLaterResult, call_later

from scrapy_aopic.exceptions import SettingError, StorageError
from scrapy_aopic.settings import check_names, page_of
from scrapy_aopic.version import DOCS

from .loop import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)

_SOON = 0.01
"""Seconds between looks at an engine that is starting, which takes as long as the receivers of its signals."""

_refused: WeakSet[Crawler] = WeakSet()
"""Crawlers for which the log already says why the crawl cannot start."""


@contextmanager
def configured(crawler: Crawler) -> Iterator[None]:
    """A context in which a component reads its settings: one that cannot be used stops the crawl, in one sentence.

    Otherwise Scrapy would leave out the component, and the crawl would be less polite than was wanted; or it would end
    with a traceback.
    """
    try:
        check_names(crawler.settings)
        yield
    except SettingError as error:
        Closing(crawler).refuse(error)
        raise NotConfigured from error


class Closing:
    """Closes the spider of one crawl, for a reason."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._timer: CallLaterResult | None = None
        self._refusal = ""
        self._connected: list[tuple[Callable[[], None], object]] = []

    def abort(self, reason: str) -> None:
        """Make the engine close the spider, and the process end with exit code 1."""
        self.fail()
        self.close(reason)

    def close(self, reason: str) -> None:
        """Make the engine close the spider."""
        call_later(0, start, partial(self._close, reason))

    async def _close(self, reason: str) -> None:
        engine = self._crawler.engine
        if engine is not None and engine.spider is not None:  # else it is closed, for whatever reason
            await engine.close_spider_async(reason=reason)

    def fail(self) -> None:
        """Make the process end with exit code 1 when the crawl is over.

        Scrapy's commands, and ``bootstrap_failed`` of its runners, know two signs of a crawl that failed: an
        exception out of it, which would be logged with a traceback, and a crawler without a spider in the end.
        """
        # Connected last, so that other receivers still find the spider.
        self._connect(self._unset_spider, signals.engine_stopped)

    def _unset_spider(self) -> None:
        self._crawler.spider = None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        connected, self._connected = self._connected, []
        for receiver, signal in connected:
            self._crawler.signals.disconnect(receiver, signal=signal, weak=False)

    def _connect(self, receiver: Callable[[], None], signal: object) -> None:
        """Call *receiver* at *signal*, not weakly: nothing else may refer to this object.

        So it must be disconnected in the end, or the crawler would stay in memory.
        """
        if (receiver, signal) not in self._connected:
            self._connected.append((receiver, signal))
            self._crawler.signals.connect(receiver, signal=signal, weak=False)

    def refuse(self, error: SettingError | StorageError) -> None:
        """Say why the crawl cannot start, and close the spider once all is open: only then can it be closed.

        Only the first reason is logged, since several components may read the same setting.
        """
        if self._crawler in _refused:
            return
        _refused.add(self._crawler)
        page = (
            page_of(error) if isinstance(error, SettingError) else "troubleshooting#the-crawl-does-not-start"
        )
        logger.error(
            "%(error)s See %(docs)s %(page)s. The crawl does not start.",
            {"error": error, "docs": DOCS, "page": page},
            extra={"spider": self._crawler.spider},
        )
        self._refusal = "aopic_setting" if isinstance(error, SettingError) else "aopic_storage"
        self._connect(self._refuse, signals.spider_opened)
        self._connect(self._refuse_idle, signals.spider_idle)

    def _refuse(self) -> None:
        """Close the spider as soon as the engine runs: before, it would not send the signal that it has stopped."""
        engine = self._crawler.engine
        if engine.running:
            self.abort(self._refusal)
        elif engine.spider is not None:
            self._timer = call_later(_SOON, self._refuse)

    def _refuse_idle(self) -> None:
        """Close the spider of an engine that has found nothing to do before :meth:`_refuse` saw it run."""
        self.fail()
        raise CloseSpider(self._refusal)

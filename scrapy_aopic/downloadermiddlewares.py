"""Politeness at the downloader: what is asked of a host, and when, whoever asks."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from ._engine import Slots
from .exceptions import SettingError
from .settings import read_politeness

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from .core.politeness import Politeness

_REMEMBERED = 10_000


class PolitenessMiddleware:
    """Never asks a host twice at once, and leaves it alone for a multiple of the time a transfer took.

    Holds for every request that reaches the downloader: scheduled ones, robots.txt, media and requests that
    callbacks make inline. Works beside any scheduler; only :class:`scrapy_aopic.Scheduler` also keeps requests
    that must wait out of the downloader, so that they do not take up ``CONCURRENT_REQUESTS``.

    Order: innermost (990 in ``DOWNLOADER_MIDDLEWARES``).

    Attributes:
        on_transfer: Called with a slot's key, the seconds that a transfer took and the gap in seconds after it.
        on_failure: Called with a request and the exception that ended it.
        waits: Seconds for which a host without a slot must still be left alone.
    """

    def __init__(self, crawler: Crawler, politeness: Politeness) -> None:
        self._crawler = crawler
        self._slots = Slots(crawler, politeness, self._ended, self._wait)
        self._clocks: OrderedDict[str, float] = OrderedDict()
        self.on_transfer: Callable[[str, float, float], None] | None = None
        self.on_failure: Callable[[Request, Exception], None] | None = None
        self.waits: Callable[[str], float] = self._remembered

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        try:
            return cls(crawler, read_politeness(crawler.settings))
        except SettingError as error:
            raise NotConfigured(str(error)) from error

    def process_request(self, request: Request) -> None:
        self._slots.govern(request)

    def process_exception(self, request: Request, exception: Exception) -> None:
        if self.on_failure is not None:
            self.on_failure(request, exception)

    def _ended(self, key: str, transfer: float, gap: float) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value("aopic/politeness/transfers")
        self._clocks[key] = monotonic() + gap
        self._clocks.move_to_end(key)
        if len(self._clocks) > _REMEMBERED:  # slots of hosts with a gap that long are hardly ever dropped
            self._clocks.popitem(last=False)
        if self.on_transfer is not None:
            self.on_transfer(key, transfer, gap)

    def _wait(self, key: str) -> float:
        return self.waits(key)

    def _remembered(self, key: str) -> float:
        return self._clocks.get(key, 0.0) - monotonic()

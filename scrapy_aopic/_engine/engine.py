"""The running engine: when it requests more from the scheduler.

Scrapy's engine does so when a request is done, and every 5 seconds. A host that becomes ready in between would wait
for that; so the engine is woken (``engine._slot.nextcall``, which Scrapy 2.16 to 2.19 do not promise).
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import signals
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.utils.asyncio import CallLaterResult, call_later

from .private import downloader_of, engine_slot_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


def is_operated_by_hand(crawler: Crawler) -> bool:
    """Whether the engine of *crawler* only fetches single URLs on demand, as in ``scrapy shell``."""
    return not getattr(engine_slot_of(crawler), "close_if_idle", True)


class Engine:
    """The running engine of *crawler*."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._timer: CallLaterResult | None = None
        self._due = float("inf")
        self._can_wake = True
        self._scraper_slot: Any = None

    def probe(self) -> None:
        """Look for the private names that a crawl needs, and say in one warning what does not work without them."""
        slot, downloader = engine_slot_of(self._crawler), downloader_of(self._crawler)
        missing = [name for name in ("inprogress", "nextcall") if not hasattr(slot, name)]
        missing += [name for name in ("active", "slots") if not hasattr(downloader, name)]
        if missing:
            self._can_wake = "nextcall" not in missing
            logger.warning(
                "This Scrapy has no %(names)s, which the scheduler needs to know when a request is over and to be "
                "asked in time: hosts may wait up to 5 seconds too long, and pages may be settled too early.",
                {"names": ", ".join(missing)},
            )

    @property
    def is_closing(self) -> bool:
        """Whether the spider is being closed."""
        return getattr(engine_slot_of(self._crawler), "closing", None) is not None

    def is_told_of_requests(self) -> bool:
        """Whether anything is connected to Scrapy's signals for requests that are scheduled, or dropped.

        Scrapy's filter of ``allowed_domains`` always is, and counts only if there are such domains.
        """
        crawler = self._crawler
        receivers = [
            receiver
            for signal in (signals.request_scheduled, signals.request_dropped)
            for receiver in liveReceivers(getAllReceivers(crawler, signal))
        ]
        is_bounded = bool(getattr(crawler.spider, "allowed_domains", None))
        return any(
            is_bounded or type(getattr(receiver, "__self__", None)) is not OffsiteMiddleware
            for receiver in receivers
        )

    def make_room(self, n_bytes: int) -> None:
        """Let responses in work have *n_bytes* more before the engine stops to request, which something else bounds."""
        slot = self._scraper_slot
        if slot is None:
            slot = self._scraper_slot = getattr(getattr(self._crawler.engine, "scraper", None), "slot", None)
        if slot is not None and hasattr(slot, "max_active_size"):
            slot.max_active_size += n_bytes

    def wake(self) -> None:
        """Have the engine request more as soon as it can."""
        self._due = float("inf")
        slot = engine_slot_of(self._crawler)
        if slot is not None and self._can_wake:
            slot.nextcall.schedule()

    def wake_in(self, delay: float) -> None:
        """Have the engine request more after *delay* seconds, unless it is to do so sooner."""
        due = monotonic() + delay
        if due >= self._due:
            return
        self.sleep()
        self._due = due
        self._timer = call_later(max(delay, 0.0), self.wake)

    def sleep(self) -> None:
        """Do not wake the engine at the time that was set."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, float("inf")

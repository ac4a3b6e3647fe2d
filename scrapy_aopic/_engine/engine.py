"""The running engine: which popped requests it is done with, and when it asks for more.

What Scrapy 2.16 to 2.19 does not offer in public, each looked for once, when the crawl starts:

* which popped requests are still in work (``engine._slot.inprogress``), which ends a lease;
* waking the engine at a given time (``engine._slot.nextcall``); without it a host that becomes ready waits for
  the engine's heartbeat, up to 5 seconds.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import signals
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

logger = logging.getLogger(__name__)


class Engine:
    """What the scheduler needs of the running engine."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._timer: CallLaterResult | None = None
        self._due = float("inf")
        self._can_wake = True

    def probe(self) -> None:
        """Look for every private name once; say in one warning what will not work without it."""
        slot = getattr(self._crawler.engine, "_slot", None)
        missing = [name for name in ("inprogress", "nextcall") if not hasattr(slot, name)]
        missing += [name for name in ("active", "slots") if not hasattr(self._downloader, name)]
        if missing:
            self._can_wake = "nextcall" not in missing
            logger.warning(
                "This Scrapy has no %(names)s, which the scheduler needs to know when a request is over and to be "
                "asked in time: hosts may wait up to 5 seconds too long, and pages may be settled too early.",
                {"names": ", ".join(missing)},
            )

    @property
    def _downloader(self) -> Any:
        return getattr(self._crawler.engine, "downloader", None)

    def downloading(self) -> AbstractSet[Request]:
        """Popped requests that the downloader, its middlewares included, is not done with."""
        return cast("AbstractSet[Request]", getattr(self._downloader, "active", frozenset()))

    def in_progress(self) -> AbstractSet[Request]:
        """Popped requests whose callbacks, pipelines and links are not all done."""
        slot = getattr(self._crawler.engine, "_slot", None)
        return cast("AbstractSet[Request]", getattr(slot, "inprogress", frozenset()))

    def is_told_of_requests(self) -> bool:
        """Whether anybody looks at the requests that are scheduled, or dropped, by Scrapy's signals.

        Scrapy's filter of ``allowed_domains`` does only if there are any.
        """
        crawler = self._crawler
        told = [
            receiver
            for signal in (signals.request_scheduled, signals.request_dropped)
            for receiver in liveReceivers(getAllReceivers(crawler, signal))
        ]
        is_bounded = bool(getattr(crawler.spider, "allowed_domains", None))
        return any(
            is_bounded or type(getattr(receiver, "__self__", None)) is not OffsiteMiddleware
            for receiver in told
        )

    def wake(self) -> None:
        """Make the engine ask for requests as soon as it can."""
        self._due = float("inf")
        slot = getattr(self._crawler.engine, "_slot", None)
        if slot is not None and self._can_wake:
            slot.nextcall.schedule()

    def wake_in(self, delay: float) -> None:
        """Make the engine ask for requests after *delay* seconds, unless it will sooner."""
        due = monotonic() + delay
        if due >= self._due:
            return
        self.sleep()
        self._due = due
        self._timer = call_later(max(delay, 0.0), self.wake)

    def sleep(self) -> None:
        """Forget the time to wake."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, float("inf")

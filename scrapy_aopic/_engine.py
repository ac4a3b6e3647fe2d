"""The only file that touches Scrapy's private names; each is looked for once, when the crawl starts.

What Scrapy 2.16 to 2.19 does not offer in public:

* which popped requests are still in work (``engine._slot.inprogress``), which ends a lease;
* waking the engine at a given time (``engine._slot.nextcall``); without it a host that becomes ready waits for
  the engine's heartbeat, up to 5 seconds;
* adding a middleware that the user did not list (``MiddlewareManager._add_middleware``);
* a download slot that knows when a transfer ended, and that is asked before each start;
* that Twisted and aiohttp send a request again by themselves, at once, when a kept connection breaks.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scrapy import signals
from scrapy.core.downloader import Slot
from scrapy.utils.asyncio import call_later
from scrapy.utils.httpobj import urlparse_cached

from .exceptions import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from .core.politeness import Politeness
    from .exceptions import StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLOT = "download_slot"
"""Key of ``Request.meta`` that names the download slot; the downloader sets it if the user does not."""

OWN_SLOT = "_aopic_slot"
"""Key of ``Request.meta`` that tells a slot that was not the user's choice: copies for other hosts carry it along."""


def slot_key(request: Request) -> str:
    """Name of the download slot of *request*: what counts as its host."""
    slot = request.meta.get(SLOT)
    if slot is None or slot == request.meta.get(OWN_SLOT):
        return urlparse_cached(request).hostname or ""
    return str(slot)


class Engine:
    """What the scheduler needs of the running engine."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._timer: CallLaterResult | None = None
        self._due = float("inf")
        self._can_wake = True
        self._refusal = ""

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

    @property
    def _scraper(self) -> Any:
        return getattr(self._crawler.engine, "scraper", None)

    def downloading(self) -> AbstractSet[Request]:
        """Popped requests that the downloader, its middlewares included, is not done with."""
        return cast("AbstractSet[Request]", getattr(self._downloader, "active", frozenset()))

    def in_progress(self) -> AbstractSet[Request]:
        """Popped requests whose callbacks, pipelines and links are not all done."""
        slot = getattr(self._crawler.engine, "_slot", None)
        return cast("AbstractSet[Request]", getattr(slot, "inprogress", frozenset()))

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

    def close(self, reason: str) -> None:
        """Make the engine close the spider."""
        engine = self._crawler.engine
        if engine is not None and engine.spider is not None:
            call_later(0, _start, engine.close_spider_async, reason)

    def refuse(self, error: SettingError | StorageError) -> None:
        """Say why the crawl cannot start, and close the spider once all is open: what is closed must have been."""
        logger.error(
            "%(error)s The crawl does not start.", {"error": error}, extra={"spider": self._crawler.spider}
        )
        self._refusal = "aopic_setting" if isinstance(error, SettingError) else "aopic_storage"
        # Not weakly: whoever refuses may have no other use for this object.
        self._crawler.signals.connect(self._refuse, signal=signals.spider_opened, weak=False)

    def _refuse(self) -> None:
        self.close(self._refusal)

    # -- components that the user did not list

    def find(self, kind: type[T]) -> T | None:
        """The middleware of class *kind* that the user listed."""
        managers = (self._scraper.spidermw, self._downloader.middleware)
        found = (middleware for manager in managers for middleware in manager.middlewares)
        return next((middleware for middleware in found if isinstance(middleware, kind)), None)

    def add_spider_middleware(self, middleware: object) -> None:
        """Put *middleware* next to the spider: it sees all that a callback yields before any other."""
        self._scraper.spidermw._add_middleware(middleware)

    def add_downloader_middleware(self, middleware: object) -> None:
        """Put *middleware* next to the downloader: the last to see a request, the first to see an answer."""
        self._downloader.middleware._add_middleware(middleware)


def _start(close: Callable[..., Any], reason: str) -> None:
    from scrapy.utils.defer import deferred_from_coro  # noqa: PLC0415  # needs an installed reactor in old versions

    deferred_from_coro(close(reason=reason))


class _Transfers(set["Request"]):
    """The requests that a slot transfers; the downloader adds one when it starts and removes it when it ends."""

    def __init__(self, ended: Callable[[], None]) -> None:
        super().__init__()
        self._ended = ended

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._ended()


class PoliteSlot(Slot):
    """A download slot that makes one transfer at a time and then leaves its host alone.

    The downloader asks :meth:`download_delay` before every start and removes a request from ``transferring``
    when its transfer ends, whether it worked or not and whoever asked for it, so no request can slip by. A delay
    that others set on the slot (AutoThrottle, ``DOWNLOAD_SLOTS``) stays a lower bound.

    Attributes:
        not_before: Instant (``time.monotonic``) before which no transfer may start.
    """

    __slots__ = ("_ended", "_idle_since", "_politeness", "not_before")

    def __init__(
        self, delay: float, politeness: Politeness, not_before: float, ended: Callable[[float, float], None]
    ) -> None:
        super().__init__(1, delay, 0)
        self.not_before = not_before
        self._politeness = politeness
        self._ended = ended
        self._idle_since = 0.0
        self.transferring = _Transfers(self._end)

    def download_delay(self) -> float:
        """Seconds from the start of the last transfer to the earliest start of the next; never 0.

        A delay of 0 makes the asyncio downloader start everything that is queued at once.
        """
        return max(self.delay, self.not_before - self.lastseen, 1e-4)

    def free_transfer_slots(self) -> int:
        """1 if no transfer is under way, else 0.

        The downloader sets ``lastseen`` at a start; in asyncio mode ``transferring`` learns of it only later.
        """
        return 0 if self.lastseen > self._idle_since else 1

    def _end(self) -> None:
        now = self._idle_since = monotonic()
        transfer = now - self.lastseen
        self.not_before = max(
            self.not_before, now + self._politeness.gap(transfer), self.lastseen + self.delay
        )
        self._ended(transfer, self.not_before - now)


class Slots:
    """Makes the downloader's slots polite.

    Args:
        ended: Called with the slot's key, the seconds that a transfer took and the gap in seconds after it.
        waits: Seconds for which a host that has no slot yet must still be left alone.
    """

    def __init__(
        self,
        crawler: Crawler,
        politeness: Politeness,
        ended: Callable[[str, float, float], None],
        waits: Callable[[str], float],
    ) -> None:
        self._crawler = crawler
        self._politeness = politeness
        self._ended = ended
        self._waits = waits
        self._own_delays: dict[str, dict[str, Any]] = crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._delay = crawler.settings.getfloat("DOWNLOAD_DELAY")
        self._is_prepared = False

    def govern(self, request: Request) -> None:
        """Make sure that the slot *request* is about to enter is a polite one."""
        downloader: Any = getattr(self._crawler.engine, "downloader", None)
        if not self._is_prepared:
            self._is_prepared = True
            _forbid_hidden_retries(downloader)
        key = slot_key(request)
        if request.meta.get(SLOT) in (None, request.meta.get(OWN_SLOT)):
            request.meta[SLOT] = request.meta[OWN_SLOT] = key
        slot = downloader.slots.get(key)
        if isinstance(slot, PoliteSlot) or (slot is not None and slot.active):
            return
        delay = float(self._own_delays.get(key, {}).get("delay", self._delay))
        downloader.slots[key] = PoliteSlot(
            delay,
            self._politeness,
            monotonic() + self._waits(key),
            lambda transfer, gap: self._ended(key, transfer, gap),
        )
        downloader._start_slot_gc()


def _forbid_hidden_retries(downloader: Any) -> None:
    """Leave retries to RetryMiddleware, which goes through the scheduler and so keeps the gap."""
    for scheme in ("http", "https"):
        handler = downloader.handlers._get_handler(scheme)
        for owner, name in (
            ("_pool", "retryAutomatically"),
            ("_session", "_retry_connection"),
        ):  # Twisted, aiohttp
            client: Any = getattr(handler, owner, None)
            if hasattr(client, name):
                setattr(client, name, False)

"""Download slots that leave their hosts alone: one transfer at a time, or a few, and a gap after each.

Rule 1: the crawl decides and the slot complies. The pacer computes the gap of a host once, when a transfer has ended or
a robots.txt was read, and tells the slot, with how many transfers may be under way at once; the slot computes nothing itself.

Rule 2: the instants of the slot and of the crawl are not synchronised. Each says "not before", and the later one counts:
the scheduler hands out no page before the crawl's, and the downloader starts nothing before the slot's. The slot has its
own because robots.txt, media, downloads inside callbacks, and the requests of other crawls in the process bypass the
scheduler, and because other code sets delays on it. It does not ask the crawl before each start: that may take a read of
the store, which blocks and may fail, and the downloader examines a slot whenever anything happens to it.

Rule 3: slots of all crawls of a process share clocks: one slot at a time transfers from a host, domain or address, and goes on
until another one waits.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.core.downloader import Slot

from scrapy_aopic.core.politeness import Gap
from scrapy_aopic.web.meta import OWN_SLOT, SERVER_SECONDS, slot_key
from scrapy_aopic.web.request_rows import SLOT

from .connections import watch_connections
from .private import Downloader, downloader_of
from .transfers import SlotTransfers, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from .addresses import Addresses
    from .network import TransferWatch


logger = logging.getLogger(__name__)

_LONGEST_ELSEWHERE = 60.0
"""Most seconds for which a transfer of one crawl keeps other crawls of the same process from a host. Their requests wait
in their downloaders, so it must be short; a host that wants a longer gap tells each crawl itself."""

_SHORTEST_DELAY = 1e-4
"""Seconds between starts, at least: with a delay of 0 the downloader of asyncio mode starts all that is queued at once."""


_REMEMBERED = 10_000
"""Clocks that are remembered: 4 MB. One that is forgotten is the one that was used least recently, and not in use; what
it knew of other crawls is lost with it, while each job remembers the times of its own hosts."""


class Clock:
    """Lets one of the slots that share it transfer at a time, and none before an instant.

    Attributes:
        holder: The slot that transfers.
        not_before: Instant (``time.monotonic``) before which no transfer may start.
        waiting: Slots that would have started while another one transferred.
    """

    __slots__ = ("holder", "not_before", "waiting")

    def __init__(self) -> None:
        self.holder: PoliteSlot | None = None
        self.not_before = 0.0
        self.waiting: set[PoliteSlot] = set()

    def release(self) -> None:
        """Note that the holder transfers no more, and start the slots that wait."""
        self.holder = None
        waiting, self.waiting = self.waiting, set()
        for slot in waiting:
            slot.kick()


class Clocks:
    """The clocks of the crawls that run at the same time in an event loop, which is one thread.

    They are dropped with the last of these crawls: each job stores the times of its own hosts.
    """

    _of_threads = threading.local()

    def __init__(self) -> None:
        self._clocks: OrderedDict[str, Clock] = OrderedDict()
        self._users: set[object] = set()

    @classmethod
    def join(cls, user: object) -> Clocks:
        """The clocks of this thread, from now on also those of *user*."""
        clocks: Clocks | None = getattr(cls._of_threads, "clocks", None)
        if clocks is None:
            clocks = cls._of_threads.clocks = cls()
        clocks._users.add(user)
        return clocks

    def leave(self, user: object, slots: AbstractSet[PoliteSlot]) -> None:
        """*user* is done, and its *slots* transfer no more."""
        self._users.discard(user)
        if not self._users and getattr(self._of_threads, "clocks", None) is self:
            del self._of_threads.clocks
        for clock in list(self._clocks.values()):
            clock.waiting -= slots
            if clock.holder in slots:
                clock.release()

    def get(self, name: str) -> Clock:
        """The clock called *name*."""
        clock = self._clocks.get(name)
        if clock is None:
            clock = self._clocks[name] = Clock()
        self._clocks.move_to_end(name)
        while len(self._clocks) > _REMEMBERED and next(iter(self._clocks.values())).holder is None:
            self._clocks.popitem(last=False)
        return clock


class PoliteSlot(Slot):
    """A download slot that makes one transfer at a time, or as many as it was told to, and then leaves its host alone.

    The downloader calls :meth:`download_delay` before every start, sets :attr:`lastseen` at the start, and removes the
    request from ``transferring`` at the end of the transfer, whether it worked or not and whatever made the request; so
    no request can slip by. A delay that others set on the slot (AutoThrottle, ``DOWNLOAD_SLOTS``) stays a lower bound.

    Attributes:
        not_before: Instant (``time.monotonic``) before which no transfer may start.
        at_once: Transfers that may be under way at once: one until it was told of more.
        clocks: What it shares with slots of other crawls, and maybe of other hosts: first the clock of its host.
    """

    __slots__ = ("_default", "_ended", "_kick", "_lastseen", "_under_way", "at_once", "clocks", "not_before")

    def __init__(
        self,
        delay: float,
        not_before: float,
        *,
        ended: Callable[[PoliteSlot, Request, TransferWatch, float], tuple[float, Gap]],
        kick: Callable[[PoliteSlot], None],
        permit: Callable[[Request], Callable[[], None] | None],
        door: Callable[[Request], Callable[[str], bool] | None],
        flow: Callable[[Request], Callable[[TransferWatch], None] | None],
        default: Gap,
    ) -> None:
        self._default = default
        self._lastseen = 0.0
        self._under_way = 0
        self.at_once = 1
        self.clocks: tuple[Clock, ...] = ()
        super().__init__(1, delay, 0)
        self.not_before = not_before
        self._ended = ended
        self._kick = kick
        self.transferring: SlotTransfers = SlotTransfers(self._end, permit, door, flow)

    @property
    def lastseen(self) -> float:
        """Instant of the last start."""
        return self._lastseen

    @lastseen.setter
    def lastseen(self, instant: float) -> None:
        self._lastseen = instant
        if instant:  # which is 0 when the slot is made
            self._under_way += 1
            for clock in self.clocks:
                clock.holder = self

    @property
    def is_busy(self) -> bool:
        """Whether a transfer is under way; in asyncio mode ``transferring`` learns of it only later."""
        return self._under_way > 0

    def download_delay(self) -> float:
        """Seconds from the start of the last transfer to the earliest start of the next; never 0.

        The last transfer of a new slot was when the machine was started, and does not count, however young that is.
        """
        not_before = max(self.not_before, *(clock.not_before for clock in self.clocks), 0.0)
        return max(self.delay if self.lastseen else 0.0, not_before - self.lastseen, _SHORTEST_DELAY)

    def free_transfer_slots(self) -> int:
        """Transfers that may start: none while one that shares a clock transfers, or waits for this one to be done."""
        free = max(self.at_once - self._under_way, 0)
        if not free or (self._under_way and any(clock.waiting for clock in self.clocks)):
            return 0
        held = [clock for clock in self.clocks if clock.holder not in (None, self)]
        for clock in held:
            clock.waiting.add(self)
        return 0 if held else free

    def _end(self, request: Request, watch: TransferWatch, began: float) -> None:
        end, gap = monotonic(), self._default
        try:
            end, gap = self._ended(self, request, watch, began)
        finally:
            self._release(end, gap)

    def _release(self, end: float, gap: Gap) -> None:
        """Let transfers from the host, and from what it shares with others, start when *gap* has passed since *end*."""
        self._under_way -= 1
        self.at_once = gap.at_once
        self.not_before = max(self.not_before, end + gap.own, self.lastseen + self.delay)
        for clock in self.clocks[:1]:  # of the host
            clock.not_before = max(clock.not_before, end + min(gap.own, _LONGEST_ELSEWHERE))
        for clock in self.clocks[1:]:
            clock.not_before = max(clock.not_before, end + gap.shared)
        if self._under_way:
            return
        for clock in self.clocks:
            clock.holder = None
        for clock in self.clocks:
            clock.release()

    def kick(self) -> None:
        """Start what waits, if it may start."""
        if self.queue:
            self._kick(self)


class Slots:
    """Makes the downloader's slots polite.

    Args:
        ended: Called at the end of a transfer; gives the gap for which its host is left alone from then on.
        waits: Gives the seconds for which a host must still be left alone, by the key of its slot.
        shares: Gives the names of what a slot shares with others, by its key.
        addresses: Looks up names.
        permit: Gives what raises if a request may not be sent any more when its connection is at hand, by the key of its slot;
            ``None`` if it always may.
        door: Gives what says of an address whether a request may be sent there; ``None`` if it may be sent anywhere.
        flow: Gives what is told of the data of a request as it comes; ``None`` for nobody.
        default: Gap in seconds if *ended* fails.
        is_fast: Whether plain requests are made without Scrapy's download handler.

    Attributes:
        unguarded: Schemes whose download handler does not ask that, once a request was governed.
    """

    def __init__(
        self,
        crawler: Crawler,
        ended: Callable[[Transfer], Gap],
        waits: Callable[[str], float],
        shares: Callable[[str], Iterable[str]],
        permit: Callable[[str, Request], Callable[[], None] | None],
        *,
        addresses: Addresses,
        door: Callable[[Request], Callable[[str], bool] | None],
        flow: Callable[[Request], Callable[[TransferWatch], None] | None],
        default: float,
        is_fast: bool,
    ) -> None:
        self._crawler = crawler
        self._addresses = addresses
        self._is_fast = is_fast
        self._ended = ended
        self._default = Gap(default, default)
        self._waits = waits
        self._shares = shares
        self._permit = permit
        self._door = door
        self._flow = flow
        self.unguarded: frozenset[str] = frozenset()
        self._own_delays: dict[str, dict[str, Any]] = crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._delay = crawler.settings.getfloat("DOWNLOAD_DELAY")
        self._clocks: Clocks | None = None
        self._responses: dict[Request, Response] = {}
        self._complained: set[type[Exception]] = set()

    @property
    def _downloader(self) -> Downloader:
        return downloader_of(self._crawler)

    def govern(self, request: Request) -> None:
        """Make sure that the slot that *request* is about to enter is a polite one."""
        downloader = self._downloader
        if self._clocks is None:
            self._clocks = Clocks.join(self)
            self._crawler.signals.connect(self._leave, signal=signals.spider_closed)
            self.unguarded = watch_connections(
                downloader, self._addresses, at_once=self._crawler.settings.getint("CONCURRENT_REQUESTS")
            )
            if self._is_fast:
                self._make_fast()
            self._crawler.signals.connect(self._downloaded, signal=signals.response_downloaded)
        key = slot_key(request)
        if request.meta.get(SLOT) in (None, request.meta.get(OWN_SLOT)):
            request.meta[SLOT] = request.meta[OWN_SLOT] = key
        slot = downloader.slots.get(key)
        if not isinstance(slot, PoliteSlot):
            if slot is not None and slot.active:
                return
            slot = downloader.slots[key] = self._make(key)
            downloader._start_slot_gc()
        if not slot.is_busy:
            slot.clocks = (self._clocks.get(f"host {key}"), *map(self._clocks.get, self._shares(key)))

    def _make_fast(self) -> None:
        """Make plain requests without Scrapy's download handler, where it can be known what that would do."""
        try:
            from .fast_downloads import make_fast  # noqa: PLC0415  # to import a download handler takes a tenth of a second

            make_fast(self._crawler, self._downloader)
        except Exception as error:  # noqa: BLE001 - logged, and what it would change works as it is
            logger.warning(
                "Scrapy's own download handler makes all requests, which takes more CPU time, because this Scrapy or Twisted "
                "is not as fast downloads need it (%(error)s). AOPIC_FAST_DOWNLOADS = False is the same, without this line.",
                {"error": type(error).__name__},
                extra={"spider": self._crawler.spider},
            )

    def _leave(self) -> None:
        if self._clocks is not None:
            self._clocks.leave(
                self, {slot for slot in self._downloader.slots.values() if isinstance(slot, PoliteSlot)}
            )

    def _make(self, key: str) -> PoliteSlot:
        delay = float(self._own_delays.get(key, {}).get("delay", self._delay))

        return PoliteSlot(
            delay,
            monotonic() + self._waits(key),
            ended=partial(self._end, key),
            kick=self._kick,
            permit=partial(self._permit, key),
            door=self._door,
            flow=self._flow,
            default=self._default,
        )

    def _end(
        self, key: str, slot: PoliteSlot, request: Request, watch: TransferWatch, began: float
    ) -> tuple[float, Gap]:
        """Take note of a transfer that ended; gives the instant of its end, and the gap after it.

        Nothing may be raised: other slots wait for this one.
        """
        now = monotonic()
        try:
            # The downloader removes the request in a "finally", while the exception is on its way to the caller.
            response, error = self._responses.pop(request, None), sys.exc_info()[1]
            span = watch.span(began, request, response)
            at_least = began + slot.delay - span.end
            seconds = float(request.meta.pop(SERVER_SECONDS, span.seconds))
            transfer = Transfer(key, request, seconds, now - span.end, at_least, response, error)
            return span.end, self._ended(transfer)
        except Exception as error:  # noqa: BLE001 - logged below
            self._complain(error, f"The end of a transfer from {key} was not understood")
            return now, self._default

    def _kick(self, slot: PoliteSlot) -> None:
        try:
            self._downloader._process_queue(slot)
        except Exception as error:  # noqa: BLE001 - logged below
            self._complain(error, "A download slot that waited for another one did not start")

    def _complain(self, error: Exception, what: str) -> None:
        """Log the first error of each kind, and count all."""
        if self._crawler.stats is not None:
            with suppress(Exception):  # maybe it is the stats that fail
                self._crawler.stats.inc_value("aopic/errors")
        if type(error) not in self._complained:
            self._complained.add(type(error))
            logger.error(
                "%(what)s; further errors of this kind are only counted (aopic/errors)",
                {"what": what},
                exc_info=error,
                extra={"spider": self._crawler.spider},
            )

    def _downloaded(self, response: Response, request: Request) -> None:
        if isinstance(self._downloader.slots.get(request.meta.get(SLOT, "")), PoliteSlot):
            self._responses[request] = response

    def wait(self, key: str) -> float:
        """Seconds for which the slot under *key* makes no transfer."""
        slot = self._downloader.slots.get(key)
        return slot.not_before - monotonic() if isinstance(slot, PoliteSlot) else self._waits(key)

    def delay(self, key: str) -> float:
        """Delay in seconds that others have set on the slot under *key*."""
        slot = self._downloader.slots.get(key)
        return float(slot.delay) if slot is not None else self._delay

    def hold(self, key: str, seconds: float) -> None:
        """Leave the host of the slot under *key* alone for *seconds* from now, if not longer."""
        slot = self._downloader.slots.get(key)
        if isinstance(slot, PoliteSlot):
            slot.not_before = max(slot.not_before, monotonic() + seconds)
            if seconds > 0:
                slot.at_once = 1
            for clock in slot.clocks[:1]:
                clock.not_before = max(clock.not_before, monotonic() + min(seconds, _LONGEST_ELSEWHERE))

    def lift(self, key: str, seconds: float) -> None:
        """Leave the host of the slot under *key* alone for *seconds* from now, and not longer."""
        slot = self._downloader.slots.get(key)
        if isinstance(slot, PoliteSlot):
            slot.not_before = min(slot.not_before, monotonic() + seconds)
            for clock in slot.clocks[:1]:
                clock.not_before = min(clock.not_before, slot.not_before)
            if slot.latercall is not None:  # at the instant as it was
                slot.latercall.cancel()
                slot.latercall = None
                slot.kick()

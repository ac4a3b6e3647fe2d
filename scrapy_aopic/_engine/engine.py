"""Touches the private names of Scrapy's engine; each is looked for once, when the crawl starts.

What Scrapy 2.16 to 2.19 does not offer in public:

* which popped requests are still in work (``engine._slot.inprogress``), which ends a lease;
* waking the engine at a given time (``engine._slot.nextcall``); without it a host that becomes ready waits for
  the engine's heartbeat, up to 5 seconds;
* adding a middleware that the user did not list (``MiddlewareManager._add_middleware``);
* a download slot that knows when a transfer started and how it ended, and that is asked before each start;
* an exit code for a crawl that failed after its spider was opened.

Those of its connections are touched in :mod:`.network`, and no others anywhere.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import OrderedDict
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from weakref import WeakSet

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import signals
from scrapy.core.downloader import Slot
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.utils.asyncio import call_later
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet.defer import Deferred

from scrapy_aopic.core.politeness import Gap
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.settings import check_names
from scrapy_aopic.web.meta import OWN_SLOT, SLOT, slot_key

from .clocks import Clocks
from .network import Watch, watch_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_aopic.exceptions import StorageError

    from .clocks import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")


_SOON = 0.01
"""Seconds between looks at an engine that starts."""

_ADDRESSES = 10_000
"""Addresses that are remembered."""

_LONGEST_ELSEWHERE = 60.0
"""Seconds for which a transfer of one crawl keeps others of the same process from a host: they wait in their
downloaders, and know about longer wishes when they were told themselves."""


_refused: WeakSet[Crawler] = WeakSet()
"""Crawlers that have been told why their crawl cannot start."""


@contextmanager
def configured(crawler: Crawler) -> Iterator[None]:
    """Inside it, a component reads its settings; one that cannot be used stops the start of the crawl.

    Without it Scrapy would leave out the component, or end with a traceback: a crawl that is not as polite as was
    wanted, or that says too much.
    """
    try:
        check_names(crawler.settings)
        yield
    except SettingError as error:
        Engine(crawler).refuse(error)
        raise NotConfigured from error


class Engine:
    """What the scheduler needs of the running engine."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._timer: CallLaterResult | None = None
        self._due = float("inf")
        self._can_wake = True
        self._refusal = ""
        self._connected: list[tuple[Callable[[], None], object]] = []

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

    def abort(self, reason: str) -> None:
        """Make the engine close the spider, and the process end with exit code 1."""
        self.fail()
        self.close(reason)

    def close(self, reason: str) -> None:
        """Make the engine close the spider."""
        call_later(0, _start, partial(self._close, reason))

    async def _close(self, reason: str) -> None:
        engine = self._crawler.engine
        if engine is not None and engine.spider is not None:  # else it is closed, for whatever reason
            await engine.close_spider_async(reason=reason)

    def fail(self) -> None:
        """Make the process end with exit code 1 when the crawl is over.

        Scrapy's commands, and ``bootstrap_failed`` of its runners, know two signs of a crawl that failed: an
        exception out of it, which would be logged with a traceback, and that it has no spider in the end.
        """
        # Connected late, so that other receivers still find the spider.
        self._connect(self._unset_spider, signals.engine_stopped)

    def _unset_spider(self) -> None:
        self._crawler.spider = None
        self.sleep()
        connected, self._connected = self._connected, []
        for receiver, signal in connected:
            self._crawler.signals.disconnect(receiver, signal=signal, weak=False)

    def _connect(self, receiver: Callable[[], None], signal: object) -> None:
        """Call *receiver* at *signal*, not weakly: whoever refuses may have no other use for this object.

        So it must be disconnected in the end, or the crawl would outlive its end.
        """
        if (receiver, signal) not in self._connected:
            self._connected.append((receiver, signal))
            self._crawler.signals.connect(receiver, signal=signal, weak=False)

    def refuse(self, error: SettingError | StorageError) -> None:
        """Say why the crawl cannot start, and close the spider once all is open: what is closed must have been.

        The first reason is enough: what else reads the setting has nothing to add.
        """
        if self._crawler in _refused:
            return
        _refused.add(self._crawler)
        logger.error(
            "%(error)s The crawl does not start.", {"error": error}, extra={"spider": self._crawler.spider}
        )
        self._refusal = "aopic_setting" if isinstance(error, SettingError) else "aopic_storage"
        self._connect(self._refuse, signals.spider_opened)
        self._connect(self._refuse_idle, signals.spider_idle)

    def _refuse(self) -> None:
        """Close the spider as soon as the engine runs: one that does not would not say that it has stopped."""
        engine = self._crawler.engine
        if engine.running:
            self.abort(self._refusal)
        elif engine.spider is not None:
            self._timer = call_later(_SOON, self._refuse)

    def _refuse_idle(self) -> None:
        """The engine has found nothing to do before it was looked at."""
        self.fail()
        raise CloseSpider(self._refusal)

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

    def replace(self, kind: type, make: Callable[[], Any]) -> bool:
        """Put what *make* makes in the place of the downloader middleware of exactly this *kind*.

        Only for middlewares that do nothing but ``process_request``.

        Returns:
            Whether there was one.
        """
        manager = self._downloader.middleware
        old: Any = next((each for each in manager.middlewares if type(each) is kind), None)
        if old is None:
            return False
        new: Any = make()
        manager.middlewares = tuple(new if each is old else each for each in manager.middlewares)
        methods = manager.methods["process_request"]
        methods[methods.index(old.process_request)] = new.process_request
        return True


def _start(call: Callable[[], Any]) -> None:
    from scrapy.utils.defer import deferred_from_coro  # noqa: PLC0415  # needs an installed reactor in old versions

    deferred_from_coro(call())


class _Transfers(set["Request"]):
    """The requests that a slot transfers; the downloader adds one when it starts and removes it when it ends.

    It does so, and all that it has to do with the request in between, in one context.

    Attributes:
        watch: Over the transfer that was started last.
    """

    def __init__(self, ended: Callable[[Request], None]) -> None:
        super().__init__()
        self._ended = ended
        self.watch = Watch()

    def add(self, request: Request) -> None:
        super().add(request)
        self.watch = Watch()
        Watch.current.set(self.watch)

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._ended(request)


class Transfer(NamedTuple):
    """A transfer that ended.

    Attributes:
        key: Key of its slot.
        seconds: How long it took.
        ago: Seconds since it was over.
        at_least: Seconds from then for which others (AutoThrottle, ``DOWNLOAD_SLOTS``) want the slot to be left alone.
        response: The answer, if there was one.
        error: The exception that ended it, if there was one.
    """

    key: str
    request: Request
    seconds: float
    ago: float
    at_least: float
    response: Response | None
    error: BaseException | None


class PoliteSlot(Slot):
    """A download slot that makes one transfer at a time and then leaves its host alone.

    The downloader asks :meth:`download_delay` before every start, sets :attr:`lastseen` when it starts, and removes
    a request from ``transferring`` when its transfer ends, whether it worked or not and whoever asked for it, so no
    request can slip by. A delay that others set on the slot (AutoThrottle, ``DOWNLOAD_SLOTS``) stays a lower bound.

    Attributes:
        not_before: Instant (``time.monotonic``) before which no transfer may start.
        clocks: What it shares with other slots: that of its host, for other crawls, and maybe others.
    """

    __slots__ = ("_default", "_ended", "_is_busy", "_kick", "_lastseen", "clocks", "not_before")

    def __init__(
        self,
        delay: float,
        not_before: float,
        *,
        ended: Callable[[PoliteSlot, Request], tuple[float, Gap]],
        kick: Callable[[PoliteSlot], None],
        default: Gap,
    ) -> None:
        self._default = default
        self._lastseen = 0.0
        self._is_busy = False
        self.clocks: tuple[Clock, ...] = ()
        super().__init__(1, delay, 0)
        self.not_before = not_before
        self._ended = ended
        self._kick = kick
        self.transferring: _Transfers = _Transfers(self._end)

    @property
    def lastseen(self) -> float:
        """Instant of the last start."""
        return self._lastseen

    @lastseen.setter
    def lastseen(self, instant: float) -> None:
        self._lastseen = instant
        if instant:  # it is set once when the slot is made
            self._is_busy = True
            for clock in self.clocks:
                clock.holder = self

    @property
    def is_busy(self) -> bool:
        """Whether a transfer is under way; in asyncio mode ``transferring`` learns of it only later."""
        return self._is_busy

    def download_delay(self) -> float:
        """Seconds from the start of the last transfer to the earliest start of the next; never 0.

        A delay of 0 makes the asyncio downloader start everything that is queued at once.
        """
        not_before = max(self.not_before, *(clock.not_before for clock in self.clocks), 0.0)
        return max(self.delay, not_before - self.lastseen, 1e-4)

    def free_transfer_slots(self) -> int:
        """1 if neither this slot nor one that shares a clock with it transfers, else 0."""
        if self._is_busy:
            return 0
        held = [clock for clock in self.clocks if clock.holder is not None]
        for clock in held:
            clock.waiting.add(self)
        return 0 if held else 1

    def _end(self, request: Request) -> None:
        end, gap = monotonic(), self._default
        try:
            end, gap = self._ended(self, request)
        finally:
            self._release(end, gap)

    def _release(self, end: float, gap: Gap) -> None:
        """Let the host and what it shares with others be asked again when *gap* has passed since *end*."""
        self._is_busy = False
        self.not_before = max(self.not_before, end + gap.own, self.lastseen + self.delay)
        for clock in self.clocks[:1]:  # of the host
            clock.not_before = max(clock.not_before, end + min(gap.own, _LONGEST_ELSEWHERE))
        for clock in self.clocks[1:]:
            clock.not_before = max(clock.not_before, end + gap.shared)
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
        ended: Called when a transfer ends; returns for how long its host is left alone from then on.
        waits: Seconds for which a host must still be left alone, by the key of its slot.
        shares: Names of what a slot shares with others.
        default: For how long a host is left alone if *ended* fails.
    """

    def __init__(
        self,
        crawler: Crawler,
        ended: Callable[[Transfer], Gap],
        waits: Callable[[str], float],
        shares: Callable[[str], Iterable[str]],
        default: float,
    ) -> None:
        self._crawler = crawler
        self._ended = ended
        self._default = Gap(default, default)
        self._waits = waits
        self._shares = shares
        self._own_delays: dict[str, dict[str, Any]] = crawler.settings.getdict("DOWNLOAD_SLOTS")
        self._delay = crawler.settings.getfloat("DOWNLOAD_DELAY")
        self._clocks: Clocks | None = None
        self._responses: dict[Request, Response] = {}
        self._complained: set[type[Exception]] = set()

    @property
    def _downloader(self) -> Any:
        return getattr(self._crawler.engine, "downloader", None)

    def govern(self, request: Request) -> None:
        """Make sure that the slot *request* is about to enter is a polite one."""
        downloader = self._downloader
        if self._clocks is None:
            self._clocks = Clocks.join(self)
            self._crawler.signals.connect(self._leave, signal=signals.spider_closed)
            watch_connections(downloader)
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
            default=self._default,
        )

    def _end(self, key: str, slot: PoliteSlot, request: Request) -> tuple[float, Gap]:
        """Take note of a transfer that ended; returns when, and the gap after it.

        Nothing may be raised: others wait for what the slot holds.
        """
        now = monotonic()
        try:
            # The downloader is between the end of the transfer and whoever waits for it, who gets the exception.
            response, error = self._responses.pop(request, None), sys.exc_info()[1]
            span = slot.transferring.watch.span(slot.lastseen, request, response)
            at_least = slot.lastseen + slot.delay - span.end
            transfer = Transfer(key, request, span.seconds, now - span.end, at_least, response, error)
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
        if isinstance(self._downloader.slots.get(request.meta.get(SLOT)), PoliteSlot):
            self._responses[request] = response

    def wait(self, key: str) -> float:
        """Seconds for which the slot under *key* makes no transfer."""
        slot = self._downloader.slots.get(key)
        return slot.not_before - monotonic() if isinstance(slot, PoliteSlot) else self._waits(key)

    def delay(self, key: str) -> float:
        """Delay that others have set on the slot under *key*."""
        slot = self._downloader.slots.get(key)
        return float(slot.delay) if slot is not None else self._delay

    def hold(self, key: str, seconds: float) -> None:
        """Leave the host of the slot under *key* alone for *seconds* from now, if not longer."""
        slot = self._downloader.slots.get(key)
        if isinstance(slot, PoliteSlot):
            slot.not_before = max(slot.not_before, monotonic() + seconds)
            for clock in slot.clocks[:1]:
                clock.not_before = max(clock.not_before, monotonic() + min(seconds, _LONGEST_ELSEWHERE))


class _Receiver:
    """Takes the first address that Twisted finds."""

    def __init__(self, found: Callable[[str], None]) -> None:
        self._found = found
        self._address = ""

    def resolutionBegan(self, resolution: object) -> None:
        pass

    def addressResolved(self, address: Any) -> None:
        self._address = self._address or address.host

    def resolutionComplete(self) -> None:
        self._found(self._address)


class Addresses:
    """Network addresses of hosts, each looked up once at a time and without waiting for it.

    With a reactor they come from the resolver that the downloader uses, and its cache, so that they are the ones
    that it connects to.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        self._asking: dict[str, list[Callable[[str], None]]] = {}

    def get(self, name: str) -> str:
        """Address of the host called *name*, empty if it is not known."""
        return self._known.get(name, "")

    def note(self, name: str, address: str) -> None:
        """The host called *name* has *address*."""
        self._known[name] = address
        self._known.move_to_end(name)
        if len(self._known) > _ADDRESSES:
            self._known.popitem(last=False)

    def look_up(self, name: str, found: Callable[[str], None]) -> None:
        """Call *found* with the address of the host called *name*, empty if it has none; maybe at once."""
        known = self.get(name) or (name if _is_address(name) else "")
        if known or not name:
            found(known)
        elif name in self._asking:
            self._asking[name].append(found)
        else:
            self._asking[name] = [found]
            self._ask(name)

    async def find(self, name: str) -> str:
        """Address of the host called *name*, empty if it has none."""
        from scrapy.utils.defer import maybe_deferred_to_future  # noqa: PLC0415  # as in _start

        answer: Deferred[str] = Deferred()
        self.look_up(name, answer.callback)
        return await maybe_deferred_to_future(answer)

    def _ask(self, name: str) -> None:
        if not is_reactor_installed():
            _start(partial(self._ask_loop, name))
            return
        from twisted.internet import reactor  # noqa: PLC0415  # whichever was installed

        receiver = _Receiver(partial(self._answer, name))
        try:
            cast("Any", reactor).nameResolver.resolveHostName(receiver, name)
        except ValueError:  # no name that could be one
            self._answer(name, "")

    async def _ask_loop(self, name: str) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            found = []
        self._answer(name, str(found[0][4][0]) if found else "")

    def _answer(self, name: str, address: str) -> None:
        if address:
            self.note(name, address)
        for found in self._asking.pop(name, ()):
            found(address)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

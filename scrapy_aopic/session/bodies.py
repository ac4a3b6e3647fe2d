"""Which pages are in memory: bodies that are on their way or wait, and pages that are read, which take far more.

A tree takes up to 30 times the bytes of its page, and lasts until its callback is over. So pages wait as bytes, packed ones
as they came, and are read one after the other.

Rule 1: there are two lanes, since a page that takes seconds must not hold up those that take milliseconds. Pages with more than
:data:`SMALL` bytes whose callbacks are not over have :data:`READ` bytes together, or there is one alone; the smaller ones have a
quarter of that. The others wait, first come, first served. A page that waits counts as one of those in the downloader: its host
is left alone, and it takes one of the ``CONCURRENT_REQUESTS``.

Rule 2: nothing more is requested while all bodies, with those that are expected, have more than :data:`HELD` bytes. So it is
the crawl that becomes slower, and not the machine. Large ones do not bring that about: once they have half of it, the
connections of all but one of those that still come are not read, and their hosts wait until others are done with.

Rule 3: no page waits for ever. A callback may itself wait for another page, so the next one is read beside it after
:data:`PATIENCE` beats in which none ended or went on with its links.

Rule 4: large pages do not close Scrapy's own gate, ``SCRAPER_SLOT_MAX_ACTIVE_SIZE``: rules 1 and 2 bound them, and the engine
goes on to ask for others.

Only pages that the scheduler handed out count: robots.txt, and what a callback downloads inline, never waits here.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from .stats import FirstOnly, Stats
from .visit import Visit, Visits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_aopic._engine.network import TransferWatch


logger = logging.getLogger(__name__)

READ = 4_000_000
"""Bytes of the large pages that are read at once: their trees take 120 MB."""

SMALL = 250_000
"""Bytes of a page up to which it is read beside the large ones."""

HELD = 64_000_000
"""Bytes of all bodies, from which on nothing more is requested."""

PATIENCE = 80
"""Beats, of 0.25 seconds, for which pages wait while no callback goes on."""

_FIRST = 1_000_000
"""Bytes that a page is expected to have while none is known: so 64 are requested until the first one has come."""

_RECENT = 20
"""Pages whose mean, roughly, is what the next one is expected to have: with fewer, one large page would stop all requests."""


class _Page(NamedTuple):
    """A page that is to be read.

    Attributes:
        n_bytes: Bytes of its body.
        is_packed: Whether it will have more.
    """

    visit: Visit
    n_bytes: int
    is_packed: bool


class _Lane:
    """Pages that are read beside those of the other lane.

    Attributes:
        read: The bytes of each page that is read.
        n_read: Their sum.
        waiting: The pages that wait for their turn.
    """

    def __init__(self) -> None:
        self.read: dict[Visit, int] = {}
        self.n_read = 0
        self.waiting: deque[tuple[_Page, Deferred[None]]] = deque()

    def take(self, visit: Visit, n_bytes: int) -> None:
        """*visit* is read, and has *n_bytes*."""
        self.n_read += n_bytes - self.read.get(visit, 0)
        self.read[visit] = n_bytes

    def drop(self, visit: Visit) -> None:
        """*visit* is read no more, or in the other lane."""
        self.n_read -= self.read.pop(visit, 0)


class Bodies:
    """Lets pages be read one after the other, and says when there are enough of them.

    It is also a downloader middleware next to the engine, which sees how large a body is once it is unpacked.

    Args:
        make_room: Has Scrapy's gate for pages in work open for so many bytes more.

    Attributes:
        coming: The large pages that are on their way, with their transfers.
    """

    def __init__(
        self, crawler: Crawler, visits: Visits, stats: Stats, make_room: Callable[[int], None]
    ) -> None:
        self._visits = visits
        self._make_room = make_room
        self._stats = stats
        self._first = FirstOnly(logger, crawler)
        self._held: dict[Visit, int] = {}
        self._n_held = 0
        self.coming: dict[Visit, TransferWatch] = {}
        self._paused: dict[Visit, TransferWatch] = {}
        self._most_expected = float("inf")  # until it is known that transfers can be paused
        self._small, self._large = self._lanes = _Lane(), _Lane()
        self._beside: dict[Visit, int] = {}  # large ones, which Scrapy's gate does not count
        self._packed: Visit | None = None  # let in just now, and not yet unpacked
        self._learns: set[Visit] = set()  # those that were let in like that
        self._expected = float(_FIRST)
        self._n_beats = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be requested."""
        return self._n_held > HELD

    @property
    def largest(self) -> Visit | None:
        """The largest page that is read; ``None`` if none is."""
        read = self._small.read | self._large.read
        return max(read, key=read.__getitem__, default=None)

    def size(self, visit: Visit) -> int:
        """Bytes of the body of *visit*."""
        return self._held.get(visit, 0)

    # -- a page from its request to its end

    def begin(self, visit: Visit) -> None:
        """The request of *visit* goes out."""
        self._held[visit] = expected = int(min(self._expected, self._most_expected))
        self._n_held += expected

    def announce(self, visit: Visit, n_bytes: int) -> None:
        """The host says that the page of *visit* has *n_bytes*."""
        if self._most_expected > SMALL:
            self._hold(visit, max(n_bytes, self._held.get(visit, 0)))

    def flow(self, request: Request) -> Callable[[TransferWatch], None] | None:
        """What is told of the data of *request* as it comes; ``None`` for what is no visit."""
        visit = self._visits.get(request)
        return partial(self._flows, visit) if visit is not None else None

    def _flows(self, visit: Visit, watch: TransferWatch) -> None:
        self._most_expected = SMALL
        before = self._held.get(visit, 0)
        self._hold(visit, max(watch.n_bytes, min(before, SMALL)))
        if watch.n_bytes > SMALL:
            self.coming[visit] = watch
            if self._is_to_pause(visit):
                self._paused[visit] = watch
                watch.pause(True)

    def _is_to_pause(self, visit: Visit) -> bool:
        """Whether large bodies have their share, and one of them goes on if that of *visit* does not."""
        large = {each: n for each, n in self._held.items() if n > SMALL}
        return sum(large.values()) > HELD // 2 and any(
            each is not visit and each not in self._paused for each in large
        )

    def _resume(self) -> None:
        """Read those that were paused, as far as there is room."""
        while self._paused:
            visit, watch = next(iter(self._paused.items()))
            if self._is_to_pause(visit):
                break
            del self._paused[visit]
            watch.pause(False)

    def admit(self, request: Request, response: Response) -> Response | Awaitable[Response]:
        """*response*, once it may be read."""
        visit = self._visits.get(request)
        if visit is None or visit not in self._held:
            return response
        visit.received()
        self.coming.pop(visit, None)
        n_bytes, is_packed = len(response.body), b"Content-Encoding" in response.headers
        self._hold(visit, n_bytes)
        if not is_packed:
            self._learn(n_bytes)
        page = _Page(visit, n_bytes, is_packed)
        lane = self._lane_of(self._weight(page))
        if not lane.waiting and self._has_room(lane, page):
            self._let_in(page)
            return response
        self._stats.count("aopic/memory/waited")
        return self._wait(page, response)

    async def _wait(self, page: _Page, response: Response) -> Response:
        turn: Deferred[None] = Deferred()
        self._lane_of(self._weight(page)).waiting.append((page, turn))
        self._go_on()
        await maybe_deferred_to_future(turn)
        return response

    def process_response(self, request: Request, response: Response) -> Response:
        """Note how large the body of *response* is by now."""
        visit = self._visits.get(request)
        if visit is not None and any(visit in lane.read for lane in self._lanes):
            n_bytes = len(response.body)
            self._note_size(visit, n_bytes)
            self._hold(visit, n_bytes)
            if visit in self._learns:
                self._learns.remove(visit)
                self._learn(n_bytes)
                self._unpacked(visit)
            self._go_on()
        return response

    def goes_on(self) -> None:
        """A callback yields links, and takes its time because there are many."""
        self._n_beats = 0

    def over(self, visit: Visit) -> None:
        """The page of *visit* is read: its tree is gone."""
        if any(visit in lane.read for lane in self._lanes):
            self._n_beats = 0
            for lane in self._lanes:
                lane.drop(visit)
            self._learns.discard(visit)
            self._unpacked(visit)
            self._go_on()

    def end(self, visit: Visit) -> None:
        """*visit* ends: its body is gone."""
        self._n_held -= self._held.pop(visit, 0)
        self.coming.pop(visit, None)
        self._paused.pop(visit, None)
        self._resume()
        self._make_room(-self._beside.pop(visit, 0))
        self.over(visit)

    def beat(self) -> None:
        """Let a page in if others have waited for long enough; to be called at each beat."""
        if not any(lane.waiting for lane in self._lanes):
            self._n_beats = 0
            return
        self._n_beats += 1
        if self._n_beats < PATIENCE:
            return
        self._stats.count("aopic/memory/overtaken")
        self._packed = None
        largest = self.largest
        self._first.warning(
            "overtaken",
            "The callback of %(url)s (%(n).1f MB) takes long, and other pages wait for it, which keeps memory within bounds. "
            "They are read beside it now, and memory may grow; further times are only counted (aopic/memory/overtaken). "
            "See AOPIC_MEMORY_MB in the docs",
            url=largest.request.url if largest is not None else "a page",
            n=self.size(largest) / 1e6 if largest is not None else 0.0,
        )
        for lane in self._lanes:
            if lane.waiting:
                self._let_in_next(lane)

    # -- inside

    def _learn(self, n_bytes: int) -> None:
        """A page has *n_bytes*."""
        self._expected += (n_bytes - self._expected) / _RECENT

    def _hold(self, visit: Visit, n_bytes: int) -> None:
        before = self._held.get(visit)
        if before is not None:
            self._n_held += n_bytes - before
            self._held[visit] = n_bytes

    def _weight(self, page: _Page) -> int:
        """Bytes that *page* should have when it is read."""
        return max(page.n_bytes, int(self._expected)) if page.is_packed else page.n_bytes

    def _lane_of(self, n_bytes: int) -> _Lane:
        return self._large if n_bytes > SMALL else self._small

    def _has_room(self, lane: _Lane, page: _Page) -> bool:
        most = READ if lane is self._large else READ // 4
        return self._packed is None and (not lane.read or lane.n_read + self._weight(page) <= most)

    def _let_in(self, page: _Page) -> None:
        self._n_beats = 0
        if page.visit in self._held:  # else it has ended
            self._note_size(page.visit, self._weight(page))
            if page.is_packed:
                self._packed = page.visit
                self._learns.add(page.visit)

    def _note_size(self, visit: Visit, n_bytes: int) -> None:
        """*visit* is read, and has *n_bytes* as far as that is known."""
        lane = self._lane_of(n_bytes)
        for each in self._lanes:
            if each is not lane:
                each.drop(visit)
        lane.take(visit, n_bytes)
        beside = n_bytes if lane is self._large else 0
        self._make_room(beside - self._beside.get(visit, 0))
        self._beside[visit] = beside

    def _let_in_next(self, lane: _Lane) -> None:
        page, turn = lane.waiting.popleft()
        self._let_in(page)
        turn.callback(None)

    def _go_on(self) -> None:
        """Let in who waits, as far as there is room."""
        for lane in self._lanes:
            while lane.waiting and self._has_room(lane, lane.waiting[0][0]):
                self._let_in_next(lane)
        if self._packed is not None and any(lane.waiting for lane in self._lanes):
            call_later(0, self._is_late, self._packed)

    def _is_late(self, visit: Visit) -> None:
        """Stop waiting for the body of *visit*, which another middleware must be keeping, or it would be unpacked by now."""
        self._unpacked(visit)
        self._go_on()

    def _unpacked(self, visit: Visit) -> None:
        """Note that the body of *visit* is unpacked, or that it is no longer waited for."""
        if visit is self._packed:
            self._packed = None

"""Measures how long a transfer took and when it ended, at the network.

The event loop learns of a response late: after the callbacks of other responses, and after whatever else the machine is
busy with. The kernel knows better. For each connection, Linux tells how long ago data was last sent and received
(``tcpi_last_data_sent`` and ``tcpi_last_data_recv`` of ``TCP_INFO``), in ticks of its clock. So a transfer lasts from the
moment at which its request left until its last byte arrived, without looking up names, making connections and the backlog
of this process.

The duration is the smallest of these upper bounds that hold:

* from the moment at which the connection was at hand until this process read the last data; this always holds;
* from then until the last data had arrived, plus a tick;
* from when data was sent last, as seen when the response began, until the last data had arrived, plus a tick. This
  holds if the request has no body, so that it was sent at once, and if nothing was sent again: the kernel knows of the
  last sending only.

A response whose end is that of its connection ends with the last segment. One that was not read to its end, or that
never came, ends when this process gave it up. Without a known connection, a transfer begins when it is started, and
ends when the event loop last looked at its sockets: it read the last data after that.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from contextvars import ContextVar
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response

_TCP_INFO = getattr(socket, "TCP_INFO", 0)
"""Option of sockets that gives a ``struct tcp_info``; 0 where there is none."""

_INFO = Struct("=44xI4xII40xI")
"""The fields of ``struct tcp_info`` (``linux/tcp.h``) that are read: milliseconds since data was sent
(``tcpi_last_data_sent``), since data was received (``tcpi_last_data_recv``), since anything was received
(``tcpi_last_ack_recv``), and the number of segments that were sent again (``tcpi_total_retrans``)."""

_CUT_SHORT = frozenset({"partial", "dataloss"})
"""Flags of responses that ended because their connection did."""

_FEW = 65_536
"""Bytes of a transfer up to which nobody is told of them."""

_STOPPED = "download_stopped"
"""Flag of responses that were not read to their end because of ``StopDownload``."""


def _tick() -> float:
    """Seconds by which what ``TCP_INFO`` says may be too early: a tick of its clock, and what a millisecond cuts off."""
    coarse = getattr(time, "CLOCK_MONOTONIC_COARSE", None)
    return (time.clock_getres(coarse) if coarse is not None else 0.01) + 0.001


_TICK = _tick()


class Socket(Protocol):
    """A socket, as far as it is looked at."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Value of an option, of at most *size* bytes."""


class Span(NamedTuple):
    """A transfer as the network saw it.

    Attributes:
        seconds: Upper bound of how long it took.
        end: Latest instant (``time.monotonic``) at which it may have ended.
    """

    seconds: float
    end: float


class _WireState(NamedTuple):
    """The state of a connection. Instants are those of ``time.monotonic``; the kernel's are exact to a tick.

    Attributes:
        instant: When this was read.
        sent: When data was sent last, or up to a tick later; infinite if that is unknown.
        received: When data was received last, at the latest; *instant* if that is unknown.
        heard: When anything was received last, at the latest; *instant* if that is unknown.
        n_resent: Segments that were sent again.
    """

    instant: float
    sent: float
    received: float
    heard: float
    n_resent: int


class _Polls:
    """Stands in for ``select`` of the event loop's selector, and remembers when that last came back."""

    def __init__(self, select: Callable[..., Any]) -> None:
        self._select = select
        self.last = monotonic()

    def __call__(self, timeout: float | None = None) -> Any:
        events = self._select(timeout)
        self.last = monotonic()
        return events


def _polled() -> float:
    """When the event loop last looked at its sockets; now, if that cannot be known."""
    try:
        selector: Any = getattr(asyncio.get_running_loop(), "_selector", None)
    except RuntimeError:  # one of Twisted's own
        return monotonic()
    select = getattr(selector, "select", None)
    if select is None:
        return monotonic()
    if not isinstance(select, _Polls):
        select = selector.select = _Polls(select)
    return select.last


class Wire:
    """Receives a connection's data in place of its parser: reads the kernel's times, then passes the data on.

    Attributes:
        watch: The watch over the connection's last transfer. The next one may begin before that has been evaluated.
    """

    def __init__(self, receive: Callable[[bytes], None], socket_of: Callable[[], Socket | None]) -> None:
        self._receive = receive
        self._socket_of = socket_of
        self.watch = TransferWatch()
        self._is_paused = False

    def __call__(self, data: bytes) -> None:
        if data:  # aiohttp calls it without any, too
            self.watch.see(self.look())
            self.watch.received(len(data))
        self._receive(data)

    def pause(self, is_on: bool) -> None:
        """Read nothing more from the connection, or go on with it."""
        if is_on != self._is_paused:
            self._is_paused = is_on
            self._pause(is_on)

    def _pause(self, is_on: bool) -> None:
        pass

    def give_up(self, error: Exception) -> None:
        """End the transfer with *error*, if its body is on the way: there is a bound on what comes before that."""

    def lose(self, lose: Callable[..., Any], *args: Any) -> Any:
        """Call *lose*, which is called at the end of the connection, after a last look."""
        self.watch.lost = self.look()
        return lose(*args)

    def is_told_of_end(self, response: Response) -> bool:
        """Whether *response* says itself where it ends, unless a flag denies it."""
        return True

    def look(self) -> _WireState:
        """The present state of the connection."""
        now, connection = monotonic(), self._socket_of()
        if connection is None or not _TCP_INFO:
            return _WireState(now, math.inf, now, now, 0)
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        except OSError:  # closed, or none of TCP
            info = b""
        if len(info) < _INFO.size:
            return _WireState(now, math.inf, now, now, 0)
        sent, received, heard, n_resent = _INFO.unpack(info)
        later = monotonic()  # this process may have been stopped in between
        return _WireState(
            now, now - sent / 1000, later - received / 1000 + _TICK, later - heard / 1000 + _TICK, n_resent
        )


class TransferWatch:
    """Watches one transfer.

    Args:
        permit: Raises if the request may not be sent any more; ``None`` if it always may.
        door: Says of an address whether the request may be sent there; ``None`` if it may be sent anywhere.
        flow: Told that the connection is at hand, and that data has come; it may pause the transfer.

    Attributes:
        door: The same, until the transfer has ended.
        n_bytes: Bytes that have come.
        refused: An address where it may not be sent, if the host has no other.
        lost: What was known at the end of its connection, if that has ended.
    """

    current: ContextVar[TransferWatch | None] = ContextVar("aopic_watch", default=None)
    """The watch over the transfer that is started in this context."""

    def __init__(
        self,
        permit: Callable[[], None] | None = None,
        door: Callable[[str], bool] | None = None,
        flow: Callable[[TransferWatch], None] | None = None,
    ) -> None:
        self.door = door
        self.n_bytes = 0
        self._flow = flow
        self.refused = ""
        self._lets_some = False
        self.lost: _WireState | None = None
        self._permit = permit
        self._first: _WireState | None = None
        self._last: _WireState | None = None
        self._began = 0.0
        self._wire: Wire | None = None
        self._n_resent = 0

    def connected(self, wire: object) -> None:
        """*wire* is the connection for the request, of which nothing was sent yet.

        Raises:
            Exception: Whatever the permit raises: nothing may be sent then.
        """
        if self._permit is not None:
            self._permit()
        if isinstance(wire, Wire):
            wire.watch, self._wire = self, wire
            self._n_resent = wire.look().n_resent
            self._began = monotonic()
            wire.pause(False)  # as the last transfer may have left it
            if self._flow is not None:
                self._flow(self)

    def received(self, n_bytes: int) -> None:
        """*n_bytes* more have come."""
        self.n_bytes += n_bytes
        if self.n_bytes > _FEW and self._flow is not None:
            self._flow(self)

    def pause(self, is_on: bool) -> None:
        """Have the host send nothing more, or go on: what is not read fills the buffers of the system, and then it waits."""
        if self._wire is not None and self._wire.watch is self:
            self._wire.pause(is_on)

    def give_up(self, error: Exception) -> None:
        """End the transfer with *error*."""
        if self._wire is not None and self._wire.watch is self:
            self._wire.give_up(error)

    def release(self) -> None:
        """Let go of the crawl and of the connection: the event loop keeps timers that were cancelled, and this with them."""
        self._permit = self._flow = self._wire = None

    def lets(self, address: str) -> bool:
        """Whether a connection to *address* may be made."""
        if self.door is None or self.door(address):
            self._lets_some, self.refused = True, ""
            return True
        if not self._lets_some:
            self.refused = address
        return False

    def see(self, look: _WireState) -> None:
        """Data was received; *look* is what is known of the connection."""
        self._first = self._first or look
        self._last = look

    def span(self, began: float, request: Request, response: Response | None) -> Span:
        """How long the transfer took, and when it ended.

        Args:
            began: Instant at which the downloader started it.
        """
        now = monotonic()
        if response is None or _STOPPED in response.flags:
            return Span(now - began, now)
        wire = self._wire
        if wire is None:
            return Span(_polled() - began, _polled())
        is_whole = _CUT_SHORT.isdisjoint(response.flags) and wire.is_told_of_end(response)
        first, last = self._first, self._last if is_whole else self.lost
        if first is None or last is None:
            return Span(now - self._began, now)
        # Linux takes a short cut for data that comes without an acknowledgement, and then *heard* does not change.
        over = last.received if is_whole else max(last.received, last.heard)
        end = min(last.instant, over)
        seconds = end - self._began
        # What is sent after the response began is no request, but belongs to TLS.
        if not request.body and first.n_resent == self._n_resent and over >= first.sent:
            seconds = min(seconds, over - first.sent)
        return Span(max(seconds, 0.0), end)

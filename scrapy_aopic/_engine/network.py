"""What the network saw of a transfer, and what connections are kept from doing.

The event loop learns of an answer when it gets round to it: after the callbacks of others, and after whatever else the
machine is busy with. The kernel knows better. Linux tells for each connection how long ago it last sent and last
received data (``tcpi_last_data_sent`` and ``tcpi_last_data_recv`` of ``TCP_INFO``), in ticks of its clock. So a
transfer lasts from the moment at which its request left until its last byte was there; names that were looked up,
connections that were made and the backlog of this process are no part of it.

What is known is an upper bound, the smallest of those that hold:

* from the moment at which the connection was at hand until this process read the last data; this holds everywhere;
* from then until the last data had arrived, a tick added;
* from when the last data was sent, looked at when the answer began, until the last data had arrived, a tick added: if
  the request has no body, so that it went out at once, and nothing was sent again, as the kernel tells the last
  sending only.

An answer that ends with its connection ends when the last segment came, and one that was not read to its end, or is
none, when this process gave it up. Without a known connection, a transfer begins when it is started and ends when the
loop last looked at its sockets before it got to the end: that was after it had read the last data.

The connections are those of Scrapy's handlers for Twisted's HTTP/1.1 and for aiohttp, TLS and proxies included. Their
private names are touched here and in :mod:`.engine` alone.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from contextvars import ContextVar
from functools import partial
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response

_MAX_HEADER = 256 * 1024
"""Bytes of an answer before its body: as much as Chrome takes; curl takes 300 kB."""

_TCP_INFO = getattr(socket, "TCP_INFO", 0)

_INFO = Struct("=44xI4xII40xI")
"""Of ``struct tcp_info``: milliseconds since data was sent, data was received, anything was received; segments that
were sent again."""

_CUT_SHORT = frozenset({"partial", "dataloss"})
"""Flags of answers that ended with their connection."""

_DELIMITED = frozenset({b"Content-Length", b"Transfer-Encoding"})
"""Headers of which an answer has one unless it ends with its connection, or has no body."""

_BODILESS = (204, 304)

_STOPPED = "download_stopped"


def _tick() -> float:
    """Seconds between ticks of the clock of ``TCP_INFO``, and its milliseconds cut off."""
    coarse = getattr(time, "CLOCK_MONOTONIC_COARSE", None)
    return (time.clock_getres(coarse) if coarse is not None else 0.01) + 0.001


_TICK = _tick()


class Span(NamedTuple):
    """A transfer as the network saw it.

    Attributes:
        seconds: How long it took, at most.
        end: Instant (``time.monotonic``) at which it was over, at the latest.
    """

    seconds: float
    end: float


class _Look(NamedTuple):
    """What is known of a connection; instants are by ``time.monotonic``, those of the kernel in ticks.

    Attributes:
        instant: When it was looked at.
        sent: When data was sent last, or up to a tick later; infinite if that is not known.
        received: When data was received last, at the latest; *instant* if that is not known.
        heard: When anything was, at the latest; *instant* if that is not known.
        n_resent: Segments that were sent again.
    """

    instant: float
    sent: float
    received: float
    heard: float
    n_resent: int


class _Polls:
    """What the loop's selector does, and when it last came back."""

    def __init__(self, select: Callable[..., Any]) -> None:
        self._select = select
        self.last = monotonic()

    def __call__(self, timeout: float | None = None) -> Any:
        events = self._select(timeout)
        self.last = monotonic()
        return events


def _polled() -> float:
    """When the event loop last looked at its sockets; now, if it does not tell."""
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


class _Wire:
    """Data of a connection, on its way to the parser: looks at the clocks first.

    Attributes:
        watch: Over the last transfer; the next one may begin before that is taken note of.
    """

    def __init__(self, receive: Callable[[bytes], None], socket_of: Callable[[], Any]) -> None:
        self._receive = receive
        self._socket_of = socket_of
        self.watch = Watch()

    def __call__(self, data: bytes) -> None:
        if data:  # aiohttp says it when there is none, too
            self.watch.see(self.look())
        self._receive(data)

    def lose(self, lose: Callable[..., Any], *args: Any) -> Any:
        """Do what is done at the end of the connection, and look before."""
        self.watch.lost = self.look()
        return lose(*args)

    def is_told_of_end(self, response: Response) -> bool:
        """Whether *response* itself tells where it ends, if no flag denies it."""
        return True

    def look(self) -> _Look:
        """What is known of the connection now."""
        now, connection = monotonic(), self._socket_of()
        if connection is None or not _TCP_INFO:
            return _Look(now, math.inf, now, now, 0)
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        except OSError:  # closed, or none of TCP
            info = b""
        if len(info) < _INFO.size:
            return _Look(now, math.inf, now, now, 0)
        sent, received, heard, n_resent = _INFO.unpack(info)
        later = monotonic()  # this process may have been stopped in between
        return _Look(
            now, now - sent / 1000, later - received / 1000 + _TICK, later - heard / 1000 + _TICK, n_resent
        )


class _AiohttpWire(_Wire):
    """A connection of aiohttp's."""

    def __init__(self, protocol: Any) -> None:
        super().__init__(protocol.data_received, self._socket)
        self._protocol = protocol
        protocol.eof_received = partial(self.lose, protocol.eof_received)

    def is_told_of_end(self, response: Response) -> bool:
        return response.status in _BODILESS or not _DELIMITED.isdisjoint(response.headers)

    def _socket(self) -> Any:
        transport = self._protocol.transport
        return transport.get_extra_info("socket") if transport is not None else None


class _TwistedWire(_Wire):
    """A connection of Twisted's, which hangs up if the header of an answer is too long."""

    def __init__(self, protocol: Any) -> None:
        super().__init__(protocol.dataReceived, self._socket)
        self._protocol = protocol
        self._connection: Any = None
        self._parser: Any = None  # there is one for each answer
        self._n_bytes = 0

    def __call__(self, data: bytes) -> None:
        parser = self._protocol._parser
        if parser is not self._parser:
            self._parser, self._n_bytes = parser, 0
        if parser is not None and parser.state in ("STATUS", "HEADER"):
            self._n_bytes += len(data)
            if self._n_bytes > _MAX_HEADER:
                self._protocol.transport.abortConnection()
                return
        super().__call__(data)

    def _socket(self) -> Any:
        if self._connection is None:
            self._connection = _connection_below(self._protocol.transport)
            if self._connection is not None:
                # Called with the socket still open; what the protocol is told comes after it was closed.
                self._connection.connectionLost = partial(self.lose, self._connection.connectionLost)
        return getattr(self._connection, "socket", None)


def _connection_below(transport: Any) -> Any:
    """The TCP connection below *transport*, which may be TLS."""
    while transport is not None and "socket" not in getattr(transport, "__dict__", ()):
        transport = getattr(transport, "__dict__", {}).get("transport")
    return transport


class Watch:
    """Watches one transfer.

    Attributes:
        lost: What was known at the end of its connection, if that has ended.
    """

    __slots__ = ("_began", "_first", "_last", "_n_resent", "_wire", "lost")

    current: ContextVar[Watch | None] = ContextVar("aopic_watch", default=None)
    """The watch over the transfer that is started in this context."""

    def __init__(self) -> None:
        self.lost: _Look | None = None
        self._first: _Look | None = None
        self._last: _Look | None = None
        self._began = 0.0
        self._wire: _Wire | None = None
        self._n_resent = 0

    def connected(self, wire: object) -> None:
        """The connection for the request is at hand; nothing is sent yet."""
        if isinstance(wire, _Wire):
            wire.watch, self._wire = self, wire
            self._n_resent = wire.look().n_resent
            self._began = monotonic()

    def see(self, look: _Look) -> None:
        """Data has come, and this is known of the connection."""
        self._first = self._first or look
        self._last = look

    def span(self, began: float, request: Request, response: Response | None) -> Span:
        """The transfer, which is over.

        Args:
            began: Instant at which it was started here.
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
        # Data by itself is not heard: Linux takes a short cut for it.
        over = last.received if is_whole else max(last.received, last.heard)
        end = min(last.instant, over)
        seconds = end - self._began
        # Once an answer comes, what is sent is no request, but belongs to TLS.
        if not request.body and first.n_resent == self._n_resent and over >= first.sent:
            seconds = min(seconds, over - first.sent)
        return Span(max(seconds, 0.0), end)


# -- the handlers


def watch_connections(downloader: Any) -> None:
    """Have the connections of *downloader* tell :class:`Watch`, and do nothing behind our back.

    Retries are left to RetryMiddleware, which goes through the scheduler and so keeps the gap: Twisted and aiohttp
    send a request again by themselves, at once, when a kept connection breaks. Headers are bounded: Twisted reads
    them without end, as long as each line is short, while aiohttp takes 128 of 8 kB.
    """
    for scheme in ("http", "https"):
        handler: Any = downloader.handlers._get_handler(scheme)
        pool: Any = getattr(handler, "_pool", None)
        session: Any = getattr(handler, "_session", None)
        for owner, name in ((pool, "retryAutomatically"), (session, "_retry_connection")):
            if hasattr(owner, name):
                setattr(owner, name, False)
        if hasattr(pool, "_factory") and hasattr(pool, "getConnection"):
            pool._factory = partial(_make_wired, pool._factory)
            pool.getConnection = partial(_get_connection, pool.getConnection)
        connector: Any = getattr(session, "connector", None)
        if hasattr(connector, "connect"):
            connector.connect = partial(_connect, connector.connect)


def _make_wired(make: Callable[..., Any], *args: Any) -> Any:
    """A factory of Twisted's connections, as *make* makes it, whose data goes over a :class:`_TwistedWire`."""
    factory = make(*args)
    build = factory.buildProtocol

    def build_wired(address: Any) -> Any:
        protocol = build(address)
        protocol.dataReceived = _TwistedWire(protocol)
        return protocol

    factory.buildProtocol = build_wired
    return factory


def _get_connection(get: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    deferred, watch = get(*args, **kwargs), Watch.current.get()
    return deferred.addCallback(partial(_got, watch)) if watch is not None else deferred


def _got(watch: Watch, protocol: Any) -> Any:
    watch.connected(protocol.dataReceived)
    return protocol


async def _connect(connect: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    connection = await connect(*args, **kwargs)
    watch, protocol = Watch.current.get(), connection.protocol
    if watch is not None and protocol is not None:
        if not isinstance(protocol.data_received, _Wire):
            protocol.data_received = _AiohttpWire(protocol)
        watch.connected(protocol.data_received)
    return connection

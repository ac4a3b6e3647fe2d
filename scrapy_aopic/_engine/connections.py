"""The connections of Scrapy's download handlers, which tell :mod:`.network` when data comes, and are kept from harm.

They are those of its handlers for Twisted's HTTP/1.1 and for aiohttp, TLS and proxies included. The handlers' private
names are touched here alone; a handler without them is left as it is, and its transfers are measured by the event loop.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from scrapy_aopic.request_errors import NetworkError, resolved

from .framing import ChunkedDecoder
from .network import Socket, TransferWatch, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response
    from twisted.internet.defer import Deferred

    from .addresses import Addresses
    from .name_lookups import NameLookups
    from .private import Downloader

_MAX_HEADER = 256 * 1024
"""Bytes of a response before its body: as much as Chrome takes; curl takes 300 kB."""

_DELIMITED = frozenset({b"Content-Length", b"Transfer-Encoding"})
"""Headers of which a response has one, unless its end is that of its connection or it has no body (RFC 9112, 6.3)."""

BODILESS = (204, 304)
"""Statuses of responses without a body (RFC 9112, 6.3)."""


class _AiohttpTransport(Protocol):
    def get_extra_info(self, name: str) -> Socket | None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class _AiohttpProtocol(Protocol):
    """``aiohttp.client_proto.ResponseHandler``."""

    transport: _AiohttpTransport | None
    _payload: Any
    data_received: Callable[[bytes], None]
    eof_received: Callable[[], object]


class _TwistedParser(Protocol):
    """``twisted.web._newclient.HTTPClientParser``; there is one for each response."""

    state: str


class TwistedProtocol(Protocol):
    """``twisted.web._newclient.HTTP11ClientProtocol``.

    Attributes:
        _state: ``QUIESCENT`` if it is free, ``WAITING`` if a request was sent.
        _parser: Is given the data and the end of the connection; what it raises ends that.
        _transportProxy: Stands between the parser and the transport.
        _quiescentCallback: Puts it back into its pool.
    """

    _state: str
    _parser: _TwistedParser | None
    _transportProxy: object
    _quiescentCallback: Callable[[object], None]
    transport: Any
    dataReceived: Callable[[bytes], None]
    request: Callable[..., Any]


class _TwistedConnection(Protocol):
    """``twisted.internet.tcp.Connection``."""

    socket: Socket
    producer: object
    disconnecting: bool
    disconnected: bool
    connectionLost: Callable[..., object]
    pauseProducing: Callable[[], None]
    resumeProducing: Callable[[], None]

    def doWrite(self) -> object: ...


class _AiohttpWire(Wire):
    """A connection of aiohttp's."""

    def __init__(self, protocol: _AiohttpProtocol) -> None:
        super().__init__(protocol.data_received, self._socket)
        self._protocol = protocol
        protocol.eof_received = partial(self.lose, protocol.eof_received)

    def _pause(self, is_on: bool) -> None:
        transport = self._protocol.transport
        if transport is not None:
            (transport.pause_reading if is_on else transport.resume_reading)()

    def give_up(self, error: Exception) -> None:
        if self._protocol._payload is not None:
            self._protocol._payload.set_exception(error)  # whoever reads it then closes the connection

    def is_told_of_end(self, response: Response) -> bool:
        return response.status in BODILESS or not _DELIMITED.isdisjoint(response.headers)

    def _socket(self) -> Socket | None:
        transport = self._protocol.transport
        return transport.get_extra_info("socket") if transport is not None else None


class _AiohttpResolver:
    """Looks names up for aiohttp (``aiohttp.abc.AbstractResolver``)."""

    def __init__(self, names: NameLookups) -> None:
        self._names = names

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[dict[str, Any]]:
        answer = await self._names.get(host)
        known = {"hostname": host, "port": port, "proto": 0, "flags": socket.AI_NUMERICHOST}
        kinds = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in answer.addresses]
        if socket.AF_UNSPEC != family not in kinds or not kinds:
            raise OSError(None, "there is no host of that name")
        return [
            {**known, "host": address, "family": kind}
            for address, kind in zip(answer.addresses, kinds, strict=True)
            if family in (kind, socket.AF_UNSPEC)
        ]

    async def close(self) -> None:
        pass


class _TwistedWire(Wire):
    """A connection of Twisted's, which is closed if the header of a response is too long, or a body too finely divided."""

    def __init__(self, protocol: TwistedProtocol) -> None:
        super().__init__(protocol.dataReceived, self._socket)
        self._protocol = protocol
        self._connection: _TwistedConnection | None = None
        self._parser: _TwistedParser | None = None
        self._n_bytes = 0
        self._decoders = {b"chunked": partial(ChunkedDecoder, refuse=self.give_up)}

    def __call__(self, data: bytes) -> None:
        parser = self._protocol._parser
        if parser is not self._parser:
            self._parser, self._n_bytes = parser, 0
            if hasattr(parser, "_transferDecoders"):  # one of Twisted's
                setattr(parser, "_transferDecoders", self._decoders)  # noqa: B010 - it is private
        if parser is not None and parser.state in ("STATUS", "HEADER"):
            self._n_bytes += len(data)
            if self._n_bytes > _MAX_HEADER:
                self._protocol.transport.abortConnection()
                return
        super().__call__(data)

    def _pause(self, is_on: bool) -> None:
        connection = _connection_below(self._protocol.transport)
        if connection is not None and not (connection.disconnecting or connection.disconnected):
            (connection.pauseProducing if is_on else connection.resumeProducing)()

    def give_up(self, error: Exception) -> None:
        parser: Any = self._protocol._parser
        if hasattr(parser, "give_up"):  # of a fast download
            parser.give_up(error)
            return
        reader = getattr(getattr(parser, "response", None), "_bodyProtocol", None)  # Scrapy's
        if reader is not None:
            if not reader._finished.called:
                reader._finished.errback(error)
            self._protocol.transport.abortConnection()

    def _socket(self) -> Socket | None:
        if self._connection is None:
            self._connection = _connection_below(self._protocol.transport)
            if self._connection is not None:
                # Called while the socket is open; the protocol hears of the end only after it was closed.
                self._connection.connectionLost = partial(self.lose, self._connection.connectionLost)
        return getattr(self._connection, "socket", None)


def _connection_below(transport: Any) -> _TwistedConnection | None:
    """The TCP connection below *transport*, which may be one of TLS over others."""
    while transport is not None and "socket" not in getattr(transport, "__dict__", ()):
        transport = getattr(transport, "__dict__", {}).get("transport")
    found: _TwistedConnection | None = transport
    return found


def watch_connections(downloader: Downloader, addresses: Addresses, *, at_once: int) -> frozenset[str]:
    """Have the connections of *downloader* report to :class:`~.network.TransferWatch`, and send nothing by themselves.

    Names are looked up by *addresses*, and not in the few threads that reactors and event loops have for everything.

    Retries are left to RetryMiddleware, which goes through the scheduler and so keeps the gap: Twisted and aiohttp
    send a request again by themselves, at once, when a kept connection breaks. Headers are bounded: Twisted reads
    them without end, as long as each line is short, while aiohttp takes 128 of 8 kB.

    Connections to a proxy serve all hosts, so Twisted's pool keeps as many of them as are used at a time. Scrapy sets it
    to as many as one host may have, which is one with the add-on: nearly every request would make a new one.

    Args:
        at_once: Most requests that are in progress (``CONCURRENT_REQUESTS``).

    Returns:
        Schemes whose handler does not check where a transfer may go: it is not one of Scrapy's for Twisted and aiohttp.
    """
    unguarded, names = set(), addresses.names
    for scheme in ("http", "https"):
        handler = downloader.handlers._get_handler(scheme)
        pool: Any = getattr(handler, "_pool", None)
        session: Any = getattr(handler, "_session", None)
        for owner, name in ((pool, "retryAutomatically"), (session, "_retry_connection")):
            if hasattr(owner, name):
                setattr(owner, name, False)
        if hasattr(pool, "maxPersistentPerHost"):
            pool.maxPersistentPerHost = max(pool.maxPersistentPerHost, at_once)
        if hasattr(pool, "_factory") and hasattr(pool, "getConnection"):
            pool._factory = partial(_make_wired, pool._factory)
            pool.getConnection = partial(_get_connection, pool.getConnection)
        connector: Any = getattr(session, "connector", None)
        if type(getattr(connector, "_resolver", None)).__name__ == "ThreadedResolver":
            connector._resolver = _AiohttpResolver(names)
        if hasattr(connector, "_resolve_host"):
            connector._resolve_host = partial(_resolve, connector._resolve_host)
        if hasattr(connector, "connect"):
            connector.connect = partial(_connect, connector.connect)
        is_scrapys = type(handler).__module__.startswith("scrapy.core.downloader.")
        if not is_scrapys or not (pool is not None or hasattr(connector, "_resolve_host")):
            unguarded.add(scheme)
    return frozenset(unguarded)


# What follows stands in for methods of others and passes their arguments on, whatever they are.


def _make_wired(make: Callable[..., Any], *args: Any) -> Any:
    """A factory of Twisted's connections, as *make* makes it, whose data goes over a :class:`_TwistedWire`."""
    factory = make(*args)
    build = factory.buildProtocol

    def build_wired(address: object) -> TwistedProtocol:
        protocol: TwistedProtocol = build(address)
        protocol.dataReceived = _TwistedWire(protocol)
        protocol.request = partial(send_at_once, protocol, protocol.request)
        return protocol

    factory.buildProtocol = build_wired
    return factory


def send_at_once(protocol: TwistedProtocol, request: Callable[..., Any], *args: Any) -> Any:
    """Call *request*, send at once what it has written, and return its result.

    Twisted would send it in the next turn of the event loop. A process that is frozen before that would send the requests of
    a whole turn when it goes on, to hosts that other workers may have by then.
    """
    answer = request(*args)
    connection = _connection_below(protocol.transport)
    # Not if it has a body, which follows by and by, or could not be written.
    if connection is not None and connection.producer is None and not connection.disconnecting:
        connection.doWrite()  # if that fails, it is tried again, and noticed, in the next turn
    return answer


def _get_connection(
    get: Callable[..., Deferred[TwistedProtocol]], *args: Any, **kwargs: Any
) -> Deferred[TwistedProtocol]:
    deferred, watch = get(*args, **kwargs), TransferWatch.current.get()
    if watch is None:
        return deferred
    return deferred.addCallbacks(partial(_got, watch), partial(_got_none, watch))


def _got(watch: TransferWatch, protocol: TwistedProtocol) -> TwistedProtocol:
    try:
        watch.connected(protocol.dataReceived)
    except BaseException:
        protocol.transport.abortConnection()  # the pool no longer has it
        raise
    return protocol


def _got_none(watch: TransferWatch, failure: Any) -> Any:
    _raise_refusal(watch)
    return failure


def _raise_refusal(watch: TransferWatch) -> None:
    """Say that no connection was made because it must not be, if that is so.

    Raises:
        NetworkError: If it is.
    """
    if watch.refused:
        raise NetworkError(resolved(watch.refused))


async def _resolve(resolve: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    found, watch = await resolve(*args, **kwargs), TransferWatch.current.get()
    if watch is None or watch.door is None:
        return found
    let = [each for each in found if watch.lets(each["host"])]
    if not let:
        _raise_refusal(watch)
    return let


async def _connect(connect: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    connection = await connect(*args, **kwargs)
    watch, protocol = TransferWatch.current.get(), connection.protocol
    if watch is not None and protocol is not None:
        if not isinstance(protocol.data_received, _AiohttpWire):
            protocol.data_received = _AiohttpWire(protocol)
        try:
            watch.connected(protocol.data_received)
        except BaseException:
            connection.close()
            raise
    return connection

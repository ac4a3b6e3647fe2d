"""Plain downloads without most of what Scrapy and Twisted do for each (``AOPIC_FAST_DOWNLOADS``).

1. The connections are those of Scrapy's handler: its pool, resolver, TLS and time limits. So what :mod:`.connections` does
   holds here, too: the network rule, the permit before sending, the times of transfers, and that nothing is sent twice.
2. Between them and Scrapy stands one object for each request (:class:`HttpExchange`), in place of Twisted's agent, request,
   parser and response, Scrapy's reader, and the callbacks that join them. It decides as they do: which lines are headers,
   when a body is over, what is an error and of which type.
3. What is not plain (:meth:`FastHandler._plan`) goes to Scrapy's handler.

A client on asyncio's own transports was considered: once the objects are gone, nearly all that is left of a download is the
call of the kernel that sends it.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from inspect import isfunction
from ipaddress import IPv4Address, IPv6Address, ip_address
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request, signals
from scrapy.core.downloader.handlers import http11
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadTimeoutError,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Headers, Response
from scrapy.utils._download_handlers import (
    check_stop_download,
    get_dataloss_msg,
    get_maxsize_msg,
    get_warnsize_msg,
    make_response,
    wrap_twisted_exceptions,
)
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.python import to_unicode
from scrapy.utils.url import add_http_if_no_scheme
from twisted.internet import ssl
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure
from twisted.web._newclient import BadResponseVersion, ParseError, ResponseNeverReceived, _contentLength
from twisted.web.client import URI, Agent, ResponseFailed
from twisted.web.http import PotentialDataLoss, _DataLoss, _IdentityTransferDecoder
from twisted.web.http_headers import Headers as TwistedHeaders
from twisted.web.iweb import UNKNOWN_LENGTH

from .connections import BODILESS, TwistedProtocol, send_at_once
from .framing import ChunkedDecoder

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from .private import Downloader

logger = logging.getLogger(__name__)

_URL = re.compile(
    r"((https?)://([A-Za-z0-9._-]+)(?::([0-9]{1,5}))?"  # no user, no IPv6 address
    r"(/(?!/)[!-\"$->@-~]*(?<!;)(?:\?[!-\"$-~]+)?)?)(?:#|\Z)"  # nothing that Twisted would write in another way
)
_PORTS = {"http": 80, "https": 443}

_LONGEST_LINE = 16_384
"""Bytes of a line before the body (``LineReceiver.MAX_LENGTH``); all lines together are bounded by :mod:`.connections`."""

_REMEMBERED = 250
"""Names of headers that are remembered: the names of a hostile host may have 16 kB each."""

_OF_HANDLER = (
    "_bind_address",
    "_contextFactory",
    "_default_maxsize",
    "_default_warnsize",
    "_fail_on_dataloss",
    "_fail_on_dataloss_warned",
    "_pool",
    "_tls_verbose_logging",
)
"""Attributes of Scrapy's handler."""

_OF_CONNECTION = frozenset(
    b"Connection Content-Length Keep-Alive Proxy-Connection Te Trailers Transfer-Encoding Upgrade".split()
)
"""Headers that are about the transfer: no spider sees them, but for the length if it is known."""


class _Plan(NamedTuple):
    """How a request is sent.

    Attributes:
        key: Of its connections in the pool.
        uri: Where a new one leads.
        head: What is written.
    """

    key: tuple[object, ...]
    uri: bytes
    head: bytes


class _Endpoint:
    """What the pool makes a new connection with, if it has none (``IStreamClientEndpoint``)."""

    def __init__(self, handler: Any, uri: bytes, timeout: float) -> None:
        self._handler = handler
        self._uri = uri
        self._timeout = timeout

    def connect(self, factory: object) -> Deferred[Any]:
        connecting: Deferred[Any] = self.made().connect(factory)
        return connecting

    def made(self) -> Any:
        """Twisted's, of which this one stands in for those that are not needed."""
        from twisted.internet import reactor  # noqa: PLC0415  # whichever was installed

        agent: Any = Agent(reactor, self._handler._contextFactory, connectTimeout=self._timeout)
        return agent._getEndpoint(URI.fromBytes(self._uri))


@lru_cache(_REMEMBERED)
def _written(name: bytes) -> bytes:
    """The name of a header as Twisted writes it.

    Raises:
        ValueError: If that is no name.
    """
    [(written, _)] = TwistedHeaders({name: [b""]}).getAllRawHeaders()
    return written


@lru_cache(_REMEMBERED)
def _shown(name: bytes) -> bytes:
    """The name of a header as responses have it.

    Raises:
        ValueError: If that is no name.
    """
    return _written(name.lower()).title()


@lru_cache(_REMEMBERED)
def _proxy(url: str) -> tuple[bytes, tuple[object, ...]]:
    """The URI of a proxy, and the key of its connections."""
    uri = add_http_if_no_scheme(url).encode("ascii")
    parsed = URI.fromBytes(uri)
    return uri, (b"http-proxy", parsed.host, parsed.port, None)


class FastHandler:
    """Makes plain requests itself, over the connections of Scrapy's *handler*, and gives all others to it."""

    lazy = False

    def __init__(self, crawler: Crawler, handler: Any) -> None:
        self.crawler = crawler
        self.handler = handler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)  # for whoever knows Scrapy's

    async def download_request(self, request: Request) -> Response:
        plan = self._plan(request)
        if plan is None:
            assert self.crawler.stats is not None
            self.crawler.stats.inc_value("aopic/downloads/slow")
            response: Response = await self.handler.download_request(request)
            return response
        timeout: float = request.meta.get("download_timeout") or 10
        exchange = HttpExchange(self.crawler, self.handler, request, plan.head)
        endpoint = _Endpoint(self.handler, plan.uri, timeout)
        timer = call_later(timeout, exchange.expire, timeout)
        try:
            with wrap_twisted_exceptions():
                exchange.begin(self.handler._pool.getConnection(plan.key, endpoint))
                await maybe_deferred_to_future(exchange.done)
        except ResponseDataLossError:
            if not self.handler._fail_on_dataloss_warned:
                logger.warning(get_dataloss_msg(request.url))
                self.handler._fail_on_dataloss_warned = True
            raise
        finally:
            timer.cancel()
        return exchange.response()

    async def close(self) -> None:
        await self.handler.close()

    def _plan(self, request: Request) -> _Plan | None:
        """How *request* is sent; ``None`` if Scrapy's handler must do it."""
        match, meta, method = _URL.match(request.url), request.meta, request.method
        if (
            match is None
            or method not in ("GET", "HEAD")
            or request.body
            or self.handler._bind_address
            or self.handler._tls_verbose_logging
            or meta.get("bindaddress")
            or hasattr(self.crawler.spider, "download_maxsize")
            or hasattr(self.crawler.spider, "download_warnsize")
        ):
            return None
        url, scheme, host, digits, target = match.groups()
        port = int(digits) if digits else _PORTS[scheme]
        proxy = meta.get("proxy")
        key: tuple[object, ...]
        try:
            if not proxy:
                uri, key = url.encode(), (scheme.encode(), host.encode(), port, None)
            elif scheme == "http":
                (uri, key), target = _proxy(proxy), url
            else:
                return None
            fields = [
                b"%b: %b\r\n" % (_written(name), value)
                for name, values in dict.items(request.headers)
                for value in values
            ]
        except ValueError:
            return None
        hosts = dict.get(request.headers, b"Host")
        if hosts is None:
            name = host if port == _PORTS[scheme] else f"{host}:{port}"
            fields.append(b"Host: %b\r\n" % name.encode())
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), (target or "/").encode(), b"".join(fields))
        # A line more, or less, than there are headers is one that a header brought with it.
        if (hosts is not None and len(hosts) != 1) or not (
            head.count(b"\n") == head.count(b"\r") == len(fields) + 2
        ):
            return None
        return _Plan(key, uri, head)


class HttpExchange:
    """A request, and its response as far as it has come; the connection takes it for its parser.

    Args:
        handler: Scrapy's, for its settings.
        head: What is written.

    Attributes:
        done: Fires when the response is complete, or with an error.
        state: What is read next (``STATUS``, ``HEADER``, ``BODY``), or ``DONE``.
    """

    def __init__(self, crawler: Crawler, handler: Any, request: Request, head: bytes) -> None:
        self._crawler = crawler
        self._handler = handler
        self._request = request
        self._head = head
        self._url = request.url.partition("#")[0]
        self._began = monotonic()
        self.done: Deferred[None] = Deferred(self._abort)
        self._connecting: Deferred[Any] | None = None
        self._connection: TwistedProtocol | None = None
        self.state = "STATUS"
        self._is_answered = False
        self._rest = b""  # the beginning of a line
        self._field: list[bytes] = []  # the last one, and the lines that continue it
        self._status = 0
        self._version = (b"HTTP", 1, 1)
        self._fields: dict[bytes, list[bytes]] = {}
        self._of_connection: dict[bytes, list[bytes]] = {}
        self._decoder: Any = None
        self._body: list[bytes] = []
        self._n_bytes = 0
        self._maxsize = self._warnsize = 0
        self._flags: list[str] = []
        self._stopped: StopDownload | None = None
        self._certificate: ssl.Certificate | None = None
        self._address: IPv4Address | IPv6Address | None = None

    # -- its beginning and its end

    def begin(self, connecting: Deferred[Any]) -> None:
        """Send the request as soon as *connecting* has a connection."""
        self._connecting = connecting
        connecting.addCallback(self._send).addErrback(self._fail)

    def expire(self, timeout: float) -> None:
        """Give up after *timeout* seconds."""
        if not self.done.called:
            self.give_up(DownloadTimeoutError(f"Getting {self._url} took longer than {timeout} seconds."))

    def response(self) -> Response:
        """The response.

        Raises:
            StopDownload: If a receiver of a signal wants that.
        """
        protocol, major, minor = self._version
        return make_response(
            url=self._url,
            status=self._status,
            headers=self._headers(),
            body=b"".join(self._body),
            flags=self._flags,
            certificate=self._certificate,
            ip_address=self._address,
            protocol=f"{to_unicode(protocol)}/{major}.{minor}",
            stop_download=self._stopped,
        )

    def _send(self, connection: TwistedProtocol) -> None:
        self._connection = connection
        connection._state, connection._parser, connection._transportProxy = "WAITING", self, self
        send_at_once(connection, connection.transport.write, self._head)

    def _abort(self, _: object = None) -> None:
        if self._connection is not None:
            self._connection.transport.abortConnection()
        elif self._connecting is not None:
            self._connecting.cancel()

    def _fail(self, error: Failure | BaseException) -> None:
        if not self.done.called:
            self.done.errback(error)

    def give_up(self, error: Exception) -> None:
        """End with *error*."""
        self._fail(error)
        self._abort()

    def _finish(self, *flags: str) -> None:
        if not self.done.called:
            self._flags += flags
            self.done.callback(None)

    def _stop(self, stopped: StopDownload) -> None:
        """Read no more, as *stopped* says."""
        self._stopped = stopped
        if self.state != "DONE":
            assert self._connection is not None
            self._connection.transport.stopProducing()
            self._connection.transport.loseConnection()
        self._finish()

    def _release(self) -> None:
        """The response is complete: the connection is free for the next request."""
        self.state, connection = "DONE", self._connection
        if connection is None or connection._parser is not self:
            return  # it has ended
        connection._parser = connection._transportProxy = None
        connection._state = "QUIESCENT"
        if b"close" in self._of_connection.get(b"Connection", ()):
            connection.transport.loseConnection()
        else:
            connection._quiescentCallback(connection)

    # -- what the connection calls

    def dataReceived(self, data: bytes) -> None:
        """Take *data*; what it raises ends the connection, and is in the error that :meth:`connectionLost` makes.

        Raises:
            Exception: If it is no response.
        """
        if self.done.called:
            return
        self._is_answered = True
        start = 0
        if self.state != "BODY":
            data = self._rest + data
        while self.state in ("STATUS", "HEADER"):
            end = data.find(b"\n", start)
            line = data[start:] if end < 0 else data[start:end]
            if len(line) > _LONGEST_LINE:
                raise ValueError(f"A line of a header is longer than {_LONGEST_LINE} bytes")
            if end < 0:
                self._rest = line
                return
            start = end + 1
            self._read_line(line.removesuffix(b"\r"))
        if self.state == "BODY" and start < len(data):
            self._decoder.dataReceived(data[start:] if start else data)

    def connectionLost(self, reason: Failure) -> None:
        """The connection has ended, or was given up, for *reason*."""
        if self.done.called:
            return
        if self._decoder is None:
            self._fail(ResponseFailed([reason]) if self._is_answered else ResponseNeverReceived([reason]))
            return
        try:
            self._decoder.noMoreData()
        except PotentialDataLoss:
            self._finish("partial")
        except _DataLoss:
            if not self._option("download_fail_on_dataloss", self._handler._fail_on_dataloss):
                self._finish("dataloss")
                return
            error = ResponseDataLossError()
            error.__cause__ = ResponseFailed([reason, Failure()])
            self._fail(error)

    def stopProxying(self) -> None:
        """Nothing: the connection asks for this at its end."""

    # -- reading

    def _read_line(self, line: bytes) -> None:
        if self.state == "STATUS":
            parts = line.split(b" ", 2)
            if len(parts) < 2:
                raise ParseError("wrong number of parts", line)
            version, status = parts[:2]
            try:
                self._status = int(status)
            except ValueError:
                raise ParseError("non-integer status code", line) from None
            if version != b"HTTP/1.1":
                self._version = _read_version(version)
            self.state = "HEADER"
        elif line[:1] in (b" ", b"\t"):
            if not self._field:
                raise ValueError("The first header continues none")
            self._field.append(line)
        else:
            if self._field:
                self._read_field(b"".join(self._field))
            self._field = [line]
            if not line:
                self._begin_body()

    def _read_field(self, field: bytes) -> None:
        name, colon, value = field.partition(b":")
        if not colon:
            logger.debug("A header line without a colon is left out: %r", field)
            return
        name = _shown(name)
        is_of_connection = name in _OF_CONNECTION and not (
            name == b"Content-Length" and self._request.method == "HEAD"
        )
        fields = self._of_connection if is_of_connection else self._fields
        fields.setdefault(name, []).append(b" ".join(value.strip().splitlines()))

    def _begin_body(self) -> None:
        if 100 <= self._status < 200:  # the real one follows
            self.state, self._field = "STATUS", []
            self._fields, self._of_connection = {}, {}
            self._version = (b"HTTP", 1, 1)
            return
        length, decoder = self._length()
        if length == 0:
            self._release()
        else:
            self.state, self._decoder = "BODY", decoder
        if length is not None:
            self._fields = {b"Content-Length": [b"%d" % length], **self._fields}
        self._request.meta["download_latency"] = monotonic() - self._began
        body_length = UNKNOWN_LENGTH if length is None else length
        stopped = self._signal(signals.headers_received, headers=self._headers(), body_length=body_length)
        if stopped is not None:
            self._stop(stopped)
            return
        self._note_peer()
        if length == 0:
            self._finish()
            return
        self._maxsize = self._option("download_maxsize", self._handler._default_maxsize)
        self._warnsize = self._option("download_warnsize", self._handler._default_warnsize)
        self._check_size(length or 0, is_expected=True)

    def _length(self) -> tuple[int | None, Any]:
        """Length of the body in bytes, ``None`` if it is not known before its end, and what reads it.

        Raises:
            KeyError, ValueError: If the headers cannot be understood.
        """
        if self._status in BODILESS or self._request.method == "HEAD":
            return 0, None
        codings = self._of_connection.get(b"Transfer-Encoding")
        if codings:
            decoder = {b"chunked": ChunkedDecoder}[codings[0].lower()]
            return None, decoder(self._take, self._take_last, refuse=self.give_up)
        lengths = self._of_connection.get(b"Content-Length")
        length = _contentLength(TwistedHeaders({b"Content-Length": lengths})) if lengths else None
        return length, _IdentityTransferDecoder(length, self._take, self._take_last)

    def _take(self, data: bytes) -> None:
        """Take *data* of the body."""
        if self.done.called:
            return
        self._body.append(data)
        self._n_bytes += len(data)
        stopped = self._signal(signals.bytes_received, data=data)
        if stopped is not None:
            self._stop(stopped)
        else:
            self._check_size(self._n_bytes, is_expected=False)

    def _take_last(self, rest: bytes) -> None:
        """The body is over; *rest* is what came behind it."""
        self._decoder = None  # it refers to this
        is_open = self._connection is not None and self._connection._parser is self
        self._release()
        if is_open:
            self._finish()

    def _check_size(self, n_bytes: int, *, is_expected: bool) -> None:
        if self._maxsize and n_bytes > self._maxsize:
            message = get_maxsize_msg(n_bytes, self._maxsize, self._request, expected=is_expected)
            logger.warning(message)
            self._body = []
            self.give_up(DownloadCancelledError(message))
        elif self._warnsize and n_bytes > self._warnsize:
            logger.warning(get_warnsize_msg(n_bytes, self._warnsize, self._request, expected=is_expected))
            self._warnsize = 0

    def _signal(self, signal: object, **what: Any) -> StopDownload | None:
        return check_stop_download(signal, self._crawler, self._request, **what)

    def _option(self, name: str, default: Any) -> Any:
        return self._request.meta.get(name, default)

    def _headers(self) -> Headers:
        headers = Headers()
        dict.update(headers, {name: list(values) for name, values in self._fields.items()})
        return headers

    def _note_peer(self) -> None:
        assert self._connection is not None
        transport = self._connection.transport
        self._address = ip_address(transport.getPeer().host)
        if hasattr(transport, "getPeerCertificate"):
            self._certificate = ssl.Certificate(transport.getPeerCertificate())


def _read_version(version: bytes) -> tuple[bytes, int, int]:
    """Protocol and version of a status line.

    Raises:
        BadResponseVersion: If it is invalid.
    """
    try:
        protocol, number = version.split(b"/")
        major, minor = number.split(b".")
        numbers = int(major), int(minor)
    except ValueError as error:
        raise BadResponseVersion(str(error), version) from None
    if min(numbers) < 0:
        raise BadResponseVersion("version may not be negative", version)
    return protocol, *numbers


def make_fast(crawler: Crawler, downloader: Downloader) -> None:
    """Put a :class:`FastHandler` before each of Scrapy's own handlers for HTTP/1.1 of *downloader*; those of users stay.

    Raises:
        Exception: If what is needed of Scrapy and Twisted is not there, or works in another way.
    """
    handlers, own = downloader.handlers, crawler.settings.getdict("DOWNLOAD_HANDLERS")
    for scheme in ("http", "https"):
        handler = handlers._get_handler(scheme)
        if type(handler) is HTTP11DownloadHandler and scheme not in own:
            _probe(crawler, handler)
            handlers._handlers[scheme] = FastHandler(crawler, handler)


def _probe(crawler: Crawler, handler: Any) -> None:
    """Send a request over a connection that leads nowhere, receive the beginning of a response, and release it.

    Raises:
        Exception: If that does not work, an attribute is missing, or somebody has replaced a method of Scrapy's, as for proxies
            that it does not know.
    """
    for kind in (HTTP11DownloadHandler, http11._ScrapyAgent):
        if any(isfunction(each) and each.__globals__ is not vars(http11) for each in vars(kind).values()):
            raise RuntimeError(f"{kind.__name__} was changed")
    for name in _OF_HANDLER:
        getattr(handler, name)
    _Endpoint(handler, b"https://nowhere.invalid/", 1).made()
    kept: list[object] = []
    sent: list[bytes] = []
    protocol: Any = handler._pool._factory(kept.append, "").buildProtocol(None)
    protocol.makeConnection(SimpleNamespace(write=sent.append, loseConnection=lambda: None))
    exchange = HttpExchange(crawler, handler, Request("http://nowhere.invalid/"), b"request")
    exchange.done.addErrback(lambda _: None)
    exchange.begin(succeed(protocol))
    protocol.dataReceived(b"HTTP/1.1 103 Early Hints\r\n\r\n")
    exchange._release()
    if (exchange._status, sent, kept, protocol._state) != (103, [b"request"], [protocol], "QUIESCENT"):
        raise RuntimeError("connections are used in another way")

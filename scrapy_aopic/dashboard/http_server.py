"""The HTTP server: reads requests in threads of its own and answers from a table of paths.

It is Python's ``http.server``, with bounds: a request has :data:`_REQUEST_SECONDS` and :data:`_REQUEST_BYTES` in all and no
body, an answer :data:`_SEND_SECONDS` for each write.

A client without the token can hold up neither visitors nor probes: a connection counts as a stranger's until its request has
shown the token, a new one takes the place of the oldest of at most :data:`_STRANGERS`, and visitors have :data:`_VISITORS` places
of their own, :data:`STREAMS` of them for streams. Connections are taken at a pace, so that a flood of them costs the crawl little.

Considered instead: ``twisted.web``, which needs a reactor; ``aiohttp``, which not every version of Scrapy brings along; ``h11``,
a dependency for what Python's own parser does as well where each connection has one request without a body; and a server in
the event loop of the crawl, which a slow answer would delay.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from threading import Condition, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from scrapy_aopic.view.verdict import why_ended

from .feed import Feed

if TYPE_CHECKING:
    from .guard import Guard

logger = logging.getLogger(__name__)

STREAMS = 8
"""Streams of events at once; each is an open page."""

_VISITORS = 32
"""Connections at once that have shown the token: the streams, and some that are answered at once."""

_STRANGERS = 64
"""Connections at once that have not, or not yet; the next one takes the place of the oldest."""

_CONNECTIONS = _VISITORS + 2 * _STRANGERS
"""All of them, and those that have lost their place and whose threads are about to end."""

_RATE = 128
"""Connections that are taken a second: few enough to cost the crawl little."""

_BURST = 32
"""Connections that are taken at once after a rest: a page asks for a dozen files. So few that a stranger keeps its place for
a quarter of a second however many come, in which anybody honest has sent a request."""

_REQUEST_SECONDS = 5.0
"""Time in which a request must have been sent, from the moment the connection is taken to the end of the headers."""

_REQUEST_BYTES = 16_384
"""Bytes of a request: a browser sends some hundreds."""

_DRAIN_SECONDS = 1.0
"""Time to read what a client goes on to send after its request was refused."""

_DRAIN_BYTES = 262_144
"""Bytes of that."""

_SEND_SECONDS = 10.0
"""Time for a client to take what is written to it before it is dropped."""

_SEND_BUFFER = 65_536
"""Bytes that the system takes for a client which reads slowly, so that it is noticed soon."""

_WORTH_PACKING = 1000
"""Bytes from which on an answer is compressed, if the client can read that."""

_ALIVE_EVERY = 15.0
"""Seconds without news after which a stream is sent a comment, so that a client that has gone is noticed."""

_PAUSE = 0.1
"""Seconds before the next connection is taken after one could not be, as when the process has too many open files."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer: it is not cached, loads nothing from other sites, and is not shown inside another page."""

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


class HttpAnswer(NamedTuple):
    """The answer for a path."""

    body: bytes
    content_type: str = _JSON
    status: int = 200


def sentence(status: int, text: str) -> HttpAnswer:
    """An answer of one sentence."""
    return HttpAnswer(f"{text}\n".encode(), _TEXT, status)


class Site(NamedTuple):
    """The paths of the server.

    Attributes:
        feed: Source of snapshots.
        paths: Functions that answer other paths; each is given the query, with the first value of each name.
        open_paths: Functions for paths that need no token, which must not show anything of the crawl.
        orders: Functions for paths that change something, by POST.
    """

    feed: Feed
    paths: Mapping[str, Callable[[Mapping[str, str]], HttpAnswer]]
    open_paths: Mapping[str, Callable[[Mapping[str, str]], HttpAnswer]]
    orders: Mapping[str, Callable[[Mapping[str, str]], HttpAnswer]] = {}


class _TooLarge(Exception):
    """A request has too many bytes."""


class _BoundedReader(io.RawIOBase):
    """Reads from a connection, up to a number of bytes and until a time."""

    def __init__(self, connection: socket.socket, n: int, seconds: float) -> None:
        self._connection = connection
        self._left = n
        self._until = monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise _TooLarge
        remaining = self._until - monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._connection.settimeout(remaining)
        n = self._connection.recv_into(buffer, min(len(buffer), self._left))
        if n == 0:  # part of a request does not count
            raise ConnectionResetError
        self._left -= n
        return n


class _Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    # -- the connection

    def setup(self) -> None:
        super().setup()
        self.rfile.close()  # which has no bounds
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.rfile = io.BufferedReader(
            _BoundedReader(self.connection, _REQUEST_BYTES, self.server.request_seconds), 4096
        )

    def handle(self) -> None:
        self.close_connection = True
        self._has_rest = False
        self.requestline = self.request_version = self.command = ""
        try:
            self.handle_one_request()
        except _TooLarge:
            self.send_error(431)
        except OSError:  # the client has gone, is too slow, or has lost its place
            return
        if self._has_rest:
            self._drain()

    def _drain(self) -> None:
        """Read some of the rest of a request: closing without that would take back the answer."""
        rest, buffer = (
            _BoundedReader(self.connection, _DRAIN_BYTES, _DRAIN_SECONDS),
            bytearray(_REQUEST_BYTES),
        )
        with suppress(OSError, _TooLarge):
            self.connection.shutdown(socket.SHUT_WR)
            while rest.readinto(buffer):
                pass

    def log_message(self, *_: object) -> None:
        """Requests are not logged: their addresses may have the token in them."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be understood."""
        del message, explain  # may quote the request
        self._has_rest = True
        self.request_version = self.protocol_version  # else there would be no status line
        short, long = self.responses.get(code, ("Error", ""))
        with suppress(OSError):
            self._send(sentence(code, f"{short}. {long}".strip()))

    # -- answers

    def handle_expect_100(self) -> bool:
        """No body is wanted, so nothing says that it may come."""
        return True

    def _refuse(self) -> None:
        self._has_rest = True
        self._send(sentence(405, "What is there can only be read."), {"Allow": "GET, HEAD"})

    def do_POST(self) -> None:
        if self.path.partition("?")[0] in self.server.site.orders:
            self._answer()
        else:
            self._refuse()

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _answer(self) -> None:
        server, changes = self.server, self.command == "POST"
        paths = server.site.orders if changes else server.site.paths
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._has_rest = True
            self._send(sentence(413, "A request must not have a body."))
            return
        try:
            address = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(address.query, max_num_fields=16).items()}
        except ValueError:
            self._send(sentence(400, "The address cannot be understood."))
            return
        path = address.path
        if (show := server.site.open_paths.get(path)) is not None:
            self._show(show, query)
            return
        if refusal := server.guard.refusal(self.headers, changes=changes):
            self._send(sentence(403, refusal))
        elif path == "/" and "token" in query:
            self._let_in(query["token"])
        elif not server.guard.is_visitor(self.headers):
            self._send(
                sentence(401, "A token is needed: open the address that the log shows."),
                {"WWW-Authenticate": "Bearer"},
            )
        elif not server.admit(self.connection):
            self._send(
                sentence(503, f"{_VISITORS} requests are being answered already, and that is the most."),
                {"Retry-After": "1"},
            )
        elif path == "/events":
            self._stream()
        elif (show := paths.get(path)) is not None:
            self._show(show, query)
        else:
            self._send(sentence(404, "There is no such page."))

    do_GET = do_HEAD = _answer

    def _show(self, show: Callable[[Mapping[str, str]], HttpAnswer], query: Mapping[str, str]) -> None:
        try:
            answer = show(query)
        except Exception:
            logger.exception(
                "The dashboard could not answer a request for %(path)s", {"path": self.path[:80]}
            )
            answer = sentence(500, "This could not be answered; the log says why.")
        self._send(answer)

    def _let_in(self, token: str) -> None:
        """Have the browser keep the token, and take it out of the address."""
        if self.server.guard.knows(token):
            self._send(
                HttpAnswer(b"", _TEXT, 303),
                {"Location": "/", "Set-Cookie": self.server.guard.cookie_header()},
            )
        else:
            self._send(sentence(401, "The token is not that of this run; the log shows the address with it."))

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**HEADERS, **headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, answer: HttpAnswer, headers: Mapping[str, str] | None = None) -> None:
        self.connection.settimeout(_SEND_SECONDS)
        body, more = answer.body, dict(headers or {})
        if len(body) >= _WORTH_PACKING and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, more["Content-Encoding"] = gzip.compress(body, 6), "gzip"
        more |= {"Content-Type": answer.content_type, "Content-Length": str(len(body))}
        self._send_head(answer.status, more)
        if self.command != "HEAD":
            self.wfile.write(body)

    # -- streams

    def _stream(self) -> None:
        """Send each snapshot, until the client goes, reads too slowly, or the crawl is over."""
        server = self.server
        if self.command == "HEAD":
            self._send(HttpAnswer(b"", "text/event-stream"))
            return
        if not server.enter_stream():
            self._send(
                sentence(503, f"{STREAMS} pages are watching already, and that is the most; close one."),
                {"Retry-After": "10"},
            )
            return
        try:
            self.connection.settimeout(server.send_seconds)
            self._send_head(200, {"Content-Type": "text/event-stream"})
            self.wfile.write(b"retry: 2000\n\n")
            number = 0
            while True:
                frame = server.site.feed.after(number, _ALIVE_EVERY)
                if frame is not None:  # frames that came meanwhile are left out
                    number = frame.number
                    self.wfile.write(b"event: snapshot\ndata: " + frame.json + b"\n\n")
                if server.site.feed.reason:
                    reason = server.site.feed.reason
                    over = json.dumps({"reason": reason, "why": why_ended(reason)})
                    self.wfile.write(f"event: bye\ndata: {over}\n\n".encode())
                    return
                if frame is None:
                    self.wfile.write(b": nothing new\n\n")
        finally:
            server.leave_stream()


class Server(ThreadingMixIn, HTTPServer):
    """Serves a site until it is closed.

    Args:
        host: Address or name to listen on.
        port: To listen on; 0 for any that is free.
        send_seconds: For each write to a stream.

    Raises:
        OSError: If it cannot listen there.

    Attributes:
        port: Port that it listens on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024  # of the system's, less with some: connections that arrive meanwhile wait here

    def __init__(
        self,
        host: str,
        port: int,
        *,
        send_seconds: float = _SEND_SECONDS,
        request_seconds: float = _REQUEST_SECONDS,
    ) -> None:
        name = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in name else socket.AF_INET
        self.send_seconds = send_seconds
        self.request_seconds = request_seconds
        self._lock = Condition()
        self._connections: set[socket.socket] = set()
        self._strangers: dict[socket.socket, str] = {}  # and their addresses, oldest first
        self._visitors: set[socket.socket] = set()
        self._has_warned = False
        self._n_streams = 0
        self._is_closed = False
        super().__init__((name, port), _Handler)
        self.port: int = self.server_address[1]

    def server_bind(self) -> None:
        """Listen, without asking what this machine is called, which may take seconds."""
        super(HTTPServer, self).server_bind()

    def start(self, site: Site, guard: Guard) -> None:
        """Begin to answer."""
        self.site, self.guard = site, guard
        self._thread = Thread(target=self._accept, name="aopic-dashboard", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        due = 0.0
        while not self._is_closed:
            self.handle_request()
            now = monotonic()
            due = max(due, now - _BURST / _RATE) + 1 / _RATE
            if due > now:
                sleep(due - now)

    @property
    def n_open(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    def enter_stream(self) -> bool:
        """Take a place for a stream; ``False`` if there is none."""
        with self._lock:
            if self._n_streams >= STREAMS:
                return False
            self._n_streams += 1
            return True

    def leave_stream(self) -> None:
        """Give the place back."""
        with self._lock:
            self._n_streams -= 1
            self._lock.notify_all()

    def get_request(self) -> tuple[Any, Any]:
        """The next connection."""
        try:
            return super().get_request()
        except OSError:
            sleep(_PAUSE)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more connection, of a stranger for now."""
        with self._lock:
            if self._is_closed or len(self._connections) >= _CONNECTIONS:
                return False
            self._connections.add(request)
            self._strangers[request] = client_address[0]
            if len(self._strangers) > _STRANGERS:
                self._make_room()
        return True

    def _make_room(self) -> None:
        """End the oldest connection of the address that strangers have most connections from."""
        ((address, n),) = Counter(self._strangers.values()).most_common(1)
        oldest = next(each for each, its in self._strangers.items() if its == address)
        del self._strangers[oldest]
        with suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "More than %(most)d connections to the dashboard have not shown its token, %(n)d of them from %(address)s: "
                "the oldest are closed, and the crawl goes on. AOPIC_DASHBOARD says who can connect. Further ones are not "
                "logged",
                {"most": _STRANGERS, "n": n, "address": address},
            )

    def admit(self, connection: socket.socket) -> bool:
        """Give a stranger that has shown the token a visitor's place; ``False`` if there is none."""
        with self._lock:
            self._strangers.pop(connection, None)
            if len(self._visitors) >= _VISITORS:
                return False
            self._visitors.add(connection)
            return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        with self._lock:
            self._connections.discard(request)
            self._visitors.discard(request)
            self._strangers.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An error that no handler foresaw."""
        logger.error("The dashboard could not answer a request", exc_info=sys.exc_info())

    def close(self) -> None:
        """Release the port and end all connections but those that are about to end by themselves.

        Streams have a second to send their last words: the process may end next, and their threads with it.
        """
        self._is_closed = True
        with suppress(OSError):  # handle_request() waits for a connection
            host = self.server_address[0]
            wake = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))  # noqa: S104
            socket.create_connection((wake, self.port), timeout=0.5).close()
        self._thread.join(timeout=1)
        with self._lock:
            self._lock.wait_for(lambda: not self._n_streams, timeout=1)
        self.server_close()

"""A small web on one loopback port.

The server decides nothing about content: a function maps each :class:`Exchange` to an :class:`Answer`.
What it adds is a log that is worth trusting, because politeness is what the server saw, not what the
crawler believes; :mod:`.server_log` judges it.

Rule 1: a request starts when its header has been read and ends when the last byte of its answer is
handed to the operating system; a client that leaves earlier ends it at that moment, with status 0.

Rule 2: the server answers as a proxy (``GET http://host.example/path HTTP/1.1``), so that one port holds
any number of hosts, and directly (``GET /path``, host from the ``Host`` header).

Rule 3: there are no tasks, only one timer a connection, so that nothing can be left behind at the end.

Not there, because no test needs it: CONNECT, chunked bodies, half-closed connections (a client that
closes its sending side counts as gone).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, TextIO

from .server_log import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from ssl import SSLContext

__all__ = ["Answer", "Exchange", "Running", "Server"]

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 65_536  # as much as asyncio's streams take for a line; nginx takes 32 kB in all
BODILESS = frozenset({204, 304})
HOST = re.compile(r"[^\s/?#@]+")
TARGET = re.compile(r"/[^\x00-\x20\x7f]*")  # a tab or a line end would also break the log


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as the server saw it.

    ``host`` is lower-case and without a port. ``target`` is path and query in both request forms, so that
    an answering function need not know how it was reached. The names in ``headers`` are lower-case; the
    values of a repeated header are joined by a comma. ``body`` is whole.
    """

    method: str
    host: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send back, and how slowly.

    ``Content-Length`` is added unless ``headers`` has its own, which may be wrong on purpose: the
    connection is then closed after the answer. With ``abort`` it is reset after ``delay``, unanswered. With
    ``endless`` the body comes again and again, ``body_delay`` seconds apart, until the client leaves.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0  # seconds before the header is sent
    body_delay: float = 0.0  # seconds between header and body
    abort: bool = False
    endless: bool = False


class Running(NamedTuple):
    """Where a server runs and what it has logged so far.

    A client may read an answer just before its entry is in the log; the log is complete when the block
    of :meth:`Server.run_in_thread` has been left.
    """

    port: int
    log: list[Entry]
    url: str  # its address, to be used as proxy or directly


class Server:
    """Answers by *answer*, in the order of arrival on each connection, and logs every request.

    Files: with *log* every request becomes one line of tab-separated values, without a heading, in the
    order of their ends: start, end, host, target, status, in_flight. A path is opened for appending when
    the server starts, an open file is left open; either is flushed line by line, so that the lines are
    there whatever happens to the crawler or to this process.

    Args:
        answer: Called in the thread of the server, so it must not block. If it raises, the client gets
            status 500 and the error is logged.
        log: Where to write the log, apart from :attr:`entries`.
        host: Address to listen at.
        port: Port to listen at; 0 takes a free one, then found in :attr:`port`.
        tls: How it is spoken to, if not in plain words.

    Attributes:
        entries: What it has logged.
        n_accepted: Connections that clients have made.
    """

    def __init__(
        self,
        answer: Callable[[Exchange], Answer],
        *,
        log: TextIO | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.entries: list[Entry] = []
        self.n_accepted = 0
        self._answer = answer
        self._log = log
        self._tls = tls
        self._file: TextIO | None = None
        self._epoch_offset = 0.0
        self._in_flight: Counter[str] = Counter()
        self._connections: set[_Connection] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Its address, to be used as proxy or directly."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. When this returns, :attr:`port` is known and connections are accepted.

        Raises:
            OSError: If the port is taken or the log cannot be opened; nothing is left open then.
        """
        loop = asyncio.get_running_loop()
        # 400 hosts crawled at once may connect in the same moment; asyncio's default of 100 would stall some.
        listener = await loop.create_server(
            lambda: _Connection(self), self.host, self.port, backlog=1024, ssl=self._tls
        )
        try:
            self._open_log()
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self.port = listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Reset every connection (what is under way is logged with status 0) and close the log. Idempotent."""
        if self._listener is None:
            return
        await close_listener(self._listener)
        for connection in list(self._connections):
            connection.abort()
        while self._connections:  # noqa: ASYNC110 - an aborted connection is gone at the next turn
            await asyncio.sleep(0)
        await self._listener.wait_closed()
        self._listener = None
        if self._file is not None and self._file is not self._log:
            self._file.close()
        self._file = None

    @contextmanager
    def run_in_thread(self) -> Iterator[Running]:
        """Serve from a thread of its own while the block runs."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            stopping = asyncio.Event()
            try:
                await self.start()
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
                started.set_exception(error)
                return
            started.set_result((asyncio.get_running_loop(), stopping))
            await stopping.wait()
            await self.stop()

        thread = Thread(target=lambda: asyncio.run(serve()), name="scrapy-aopic-test-server", daemon=True)
        thread.start()
        try:
            loop, stopping = started.result()
        except Exception:
            thread.join()
            raise
        try:
            yield Running(self.port, self.entries, self.url)
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join()

    def _open_log(self) -> None:
        # One offset for the whole run: a clock that is set back meanwhile must not look like impoliteness.
        self._epoch_offset = time.time() - time.monotonic()
        if isinstance(self._log, Path):
            self._file = self._log.open("a", buffering=1, encoding="utf-8", newline="\n")
        else:
            self._file = self._log

    @property
    def n_under_way(self) -> int:
        """Requests that are not in the log yet; an answer may be read before its entry is there."""
        return sum(self._in_flight.copy().values())

    def _begin(self, host: str) -> int:
        self._in_flight[host] += 1
        return self._in_flight[host]

    def _end(self, entry: Entry) -> None:
        self.entries.append(entry)  # first, so that whoever sees nothing under way finds it
        self._in_flight[entry.host] -= 1
        if not self._in_flight[entry.host]:
            del self._in_flight[entry.host]
        if self._file is not None:
            start, end = entry.start + self._epoch_offset, entry.end + self._epoch_offset
            self._file.write(
                f"{start:.6f}\t{end:.6f}\t{entry.host}\t{entry.target}\t{entry.status}\t{entry.in_flight}\n"
            )
            self._file.flush()


async def close_listener(listener: asyncio.Server) -> None:
    """Close *listener* once every connection that it has accepted is known to its protocol.

    asyncio accepts a connection in one turn of the loop and makes its transport in the next. If the listener
    is closed in between, that fails in silence, and the socket stays open until it is collected as garbage.
    """
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # the loop that is the default on Windows
        for listening in listener.sockets:
            loop.remove_reader(listening.fileno())  # accepts no more; who connects now is reset by close()
    for _ in range(3):  # a connection just accepted needs two turns of the loop until it is known
        await asyncio.sleep(0)
    listener.close()


class _RefusedError(Exception):
    """The request is not one this server understands; carries the status that says so."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class _Request:
    """A request under way."""

    exchange: Exchange
    start: float
    in_flight: int
    body_left: int  # bytes of the request's body still to be read
    keep_alive: bool
    body: bytearray = field(default_factory=bytearray)
    answer: Answer | None = None
    all_written: bool = False


class _Connection(asyncio.Protocol):
    """One client: at most one request is under way, what follows it waits in the buffer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._request: _Request | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_flushing = False

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # With no room in the buffer, resume_writing() means that the last byte is out: rule 1.
        transport.set_write_buffer_limits(high=0)
        self._server._connections.add(self)
        self._server.n_accepted += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._advance()

    def pause_writing(self) -> None:
        self._is_flushing = True

    def resume_writing(self) -> None:
        self._is_flushing = False
        request = self._request
        if request is None:
            return
        if request.all_written:
            self._finish()
            self._advance()
        elif request.answer is not None and request.answer.endless:
            self._send_on(request, request.answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._finish(whole=False)
        self._server._connections.discard(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The life of a request

    def _advance(self) -> None:
        """Take from the buffer whatever can be taken now."""
        assert self._transport is not None
        try:
            while not self._transport.is_closing():
                if self._request is None:
                    del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))]
                    end = self._buffer.find(b"\r\n\r\n")
                    if end < 0:
                        break
                    head = bytes(self._buffer[:end])
                    del self._buffer[: end + 4]
                    self._begin(head)
                assert self._request is not None
                if self._request.answer is not None:
                    break
                n_taken = min(self._request.body_left, len(self._buffer))
                self._request.body += self._buffer[:n_taken]
                del self._buffer[:n_taken]
                self._request.body_left -= n_taken
                if self._request.body_left:
                    break
                self._reply(self._request)
            if len(self._buffer) > MAX_HEADER_BYTES:
                # Not read more slowly instead: who does not read does not see a client leave.
                raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except _RefusedError as refusal:
            self._refuse(refusal.status)

    def _begin(self, head: bytes) -> None:
        start = time.monotonic()
        exchange, keep_alive = _parse(head)
        try:
            n_body_bytes = int(exchange.headers.get("content-length", "0"))
        except ValueError:
            raise _RefusedError(HTTPStatus.BAD_REQUEST) from None
        if n_body_bytes < 0:
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        in_flight = self._server._begin(exchange.host)
        self._request = _Request(exchange, start, in_flight, n_body_bytes, keep_alive)

    def _reply(self, request: _Request) -> None:
        exchange = replace(request.exchange, body=bytes(request.body)) if request.body else request.exchange
        try:
            answer = self._server._answer(exchange)
        except Exception:
            logger.exception("No answer to %(exchange)s", {"exchange": exchange})
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR)
        request.answer = answer
        if answer.delay > 0:
            self._timer = self._loop.call_later(answer.delay, self._send_head, request, answer)
        else:
            self._send_head(request, answer)

    def _send_head(self, request: _Request, answer: Answer) -> None:
        self._timer = None
        assert self._transport is not None
        if answer.abort:
            self._finish(whole=False)
            self._transport.abort()
            return
        head = _head(answer, request)
        body = b"" if request.exchange.method == "HEAD" or answer.status in BODILESS else answer.body
        if body and answer.endless:
            self._transport.write(head)
            self._send_on(request, answer)
        elif body and answer.body_delay > 0:
            self._transport.write(head)
            self._timer = self._loop.call_later(answer.body_delay, self._send_last, request, body)
        else:
            self._send_last(request, head + body)

    def _send_on(self, request: _Request, answer: Answer) -> None:
        """Send the body once more after its delay, unless the one before is not out yet."""
        if not self._is_flushing and self._timer is None:
            self._timer = self._loop.call_later(answer.body_delay, self._send_more, request, answer)

    def _send_more(self, request: _Request, answer: Answer) -> None:
        self._timer = None
        assert self._transport is not None
        self._transport.write(answer.body)
        if self._request is request:  # else the client has left
            self._send_on(request, answer)

    def _send_last(self, request: _Request, data: bytes) -> None:
        self._timer = None
        assert self._transport is not None
        # Taken before: writing wakes the client, which may keep the processor for a while.
        now = time.monotonic()
        self._transport.write(data)
        request.all_written = True
        # A broken connection closes the transport inside write(): connection_lost() then writes the entry.
        if not self._is_flushing and not self._transport.is_closing():
            self._finish(now)
            if self._buffer:  # soon, not now: pipelined requests must not grow the stack
                self._loop.call_soon(self._advance)

    def _finish(self, end: float | None = None, *, whole: bool = True) -> None:
        request, self._request = self._request, None
        assert request is not None
        assert self._transport is not None
        status = request.answer.status if whole and request.answer is not None else 0
        exchange = request.exchange
        self._server._end(
            Entry(
                request.start,
                time.monotonic() if end is None else end,
                exchange.host,
                exchange.target,
                status,
                request.in_flight,
            )
        )
        if not request.keep_alive:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        """Answer what is not an exchange (it has no place in the log), and hang up."""
        assert self._transport is not None
        self._buffer.clear()
        if self._request is None:
            self._transport.write(
                f"HTTP/1.1 {_status_line(status)}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            self._transport.close()
        else:
            self._transport.abort()  # in the middle of an answer there is no way to say more


def _parse(head: bytes) -> tuple[Exchange, bool]:
    """Read a request's header; also tell whether the connection is to be kept."""
    request_line, *lines = head.decode("latin-1").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or parts[2] not in {"HTTP/1.0", "HTTP/1.1"}:
        raise _RefusedError(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if "transfer-encoding" in headers or method == "CONNECT":
        raise _RefusedError(HTTPStatus.NOT_IMPLEMENTED)
    if target[:7].lower() == "http://":
        # RFC 9112, 3.2.2: the absolute form wins over the Host header.
        authority, target = _split(target[7:])
    else:
        authority = headers.get("host", "")
    host = _without_port(authority.rpartition("@")[2])
    if not TARGET.fullmatch(target) or not HOST.fullmatch(host):
        raise _RefusedError(HTTPStatus.BAD_REQUEST)
    wishes = f"{headers.get('connection', '')},{headers.get('proxy-connection', '')}".lower()
    keep_alive = version == "HTTP/1.1" and "close" not in wishes
    return Exchange(method, host, target, headers), keep_alive


def _split(rest: str) -> tuple[str, str]:
    """Split an absolute target, without its scheme, into authority and path with query."""
    for position, character in enumerate(rest):
        if character == "/":
            return rest[:position], rest[position:]
        if character == "?":
            return rest[:position], "/" + rest[position:]
    return rest, "/"


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return authority.partition(":")[0].lower()


@lru_cache(maxsize=64)
def _status_line(status: int) -> str:
    try:
        return f"{status:d} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status:d} "


def _head(answer: Answer, request: _Request) -> bytes:
    names = {name.lower(): value for name, value in answer.headers.items()}
    lines = [f"HTTP/1.1 {_status_line(answer.status)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if "content-length" in names or answer.endless:
        request.keep_alive = False
    elif answer.status not in BODILESS:
        lines.append(f"Content-Length: {len(answer.body)}")
    if "close" in names.get("connection", "").lower():
        request.keep_alive = False
    elif not request.keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

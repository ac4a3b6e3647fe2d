"""A server that says and does what a plan says, byte by byte, and logs what it saw as the test server does."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread

from demo_web.server import close_listener
from demo_web.server_log import Entry
from grammar import Plan

logger = logging.getLogger(__name__)

REQUEST = re.compile(rb"([A-Z]+) (?:[hH][tT][tT][pP]://)?([^ /?#]*)([^ ]*) HTTP/1\.[01]")
HOST = re.compile(rb"\r\nhost: *([^\r\n]+)", re.IGNORECASE)

_BEAT = 0.005


class Raw:
    """Serves as a proxy for any number of hosts, or as each of them.

    Attributes:
        entries: What was asked for, in the order of the ends; a request ends with the last byte of its plan, or when
            its client is gone, and a plan that says no more than a part ends only then. On a busy machine that may be
            noticed late, so the end is then the earliest instant at which it may have been.
    """

    def __init__(self, plan: Callable[[str, str], Plan]) -> None:
        self.plan = plan
        self.entries: list[Entry] = []
        self.in_flight: Counter[str] = Counter()
        self.port = 0
        self.noticed_by = self._beat = 0.0

    def beat(self) -> None:
        """Note that all is known that had happened before the last beat but one."""
        self.noticed_by, self._beat = self._beat, time.monotonic()
        asyncio.get_running_loop().call_later(_BEAT, self.beat)

    @contextmanager
    def run_in_thread(self) -> Iterator[str]:
        """Serve while the block runs; gives the URL of the proxy."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            loop, stopping = asyncio.get_running_loop(), asyncio.Event()
            connections: set[_Connection] = set()
            server = await loop.create_server(
                lambda: _Connection(self, connections), "127.0.0.1", 0, backlog=1024
            )
            self.beat()
            self.port = server.sockets[0].getsockname()[1]
            started.set_result((loop, stopping))
            await stopping.wait()
            await close_listener(server)
            for connection in list(connections):
                connection.transport.abort()
            await asyncio.sleep(0.1)

        thread = Thread(target=lambda: asyncio.run(serve()), name="hostile-web", daemon=True)
        thread.start()
        loop, stopping = started.result()
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join()


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, server: Raw, connections: set[_Connection]) -> None:
        self._server = server
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._request: tuple[float, str, str, int] | None = None
        self._plan = Plan([], "close", 0)
        self._at = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_flushing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._finish(0, max(self._server.noticed_by, self._request[0]))

    def pause_writing(self) -> None:
        self._is_flushing = True

    def resume_writing(self) -> None:
        self._is_flushing = False
        if self._request is not None:
            self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._request is None:
            self._begin()

    def _begin(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end or self.transport.is_closing():
            return
        self._buffer = rest
        match = REQUEST.match(head)
        if match is None:
            self.transport.abort()
            return
        method, authority, target = (part.decode("latin-1") for part in match.groups())
        if not authority and (named := HOST.search(head)) is not None:
            authority = named[1].decode("latin-1")
        host = authority.rpartition("@")[2].lower()
        if not host.endswith("]"):
            host = re.sub(r":\d*$", "", host)
        self._server.in_flight[host] += 1
        self._request = (time.monotonic(), host, target or "/", self._server.in_flight[host])
        try:
            if method == "CONNECT":
                self._plan = Plan([(0.0, b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")], "close", 502)
            else:
                self._plan = self._server.plan(host, target or "/")
        except Exception:
            logger.exception("There is no plan for %(host)s %(target)s", {"host": host, "target": target})
            self._plan = Plan([], "abort", 0)
        self._at = 0
        self._next()

    def _next(self) -> None:
        """Wait for the next piece, or end."""
        if self._timer is not None or self._is_flushing:
            return
        if self._at < len(self._plan.pieces):
            wait = self._plan.pieces[self._at][0]
            if wait:
                self._timer = self._loop.call_later(wait, self._send)
            else:
                self._send()
            return
        if self._plan.end == "hang":  # until the client has enough of it
            return
        self._finish(self._plan.status)
        if self._plan.end == "abort":
            self.transport.abort()
        elif self._plan.end == "close":
            self.transport.close()
        elif self._buffer:
            self._loop.call_soon(self._begin)

    def _send(self) -> None:
        self._timer = None
        piece = self._plan.pieces[self._at][1]
        self._at += 1
        if self._at == len(self._plan.pieces) and self._plan.end != "hang":
            self._finish_after(piece)
        else:
            self.transport.write(piece)
            if self._request is not None:
                self._next()

    def _finish_after(self, piece: bytes) -> None:
        # The end is taken before: writing wakes the client, which may keep the processor for a while.
        now = time.monotonic()
        self.transport.write(piece)
        if not self._is_flushing and self._request is not None:
            self._finish(self._plan.status, now)
        self._next()

    def _finish(self, status: int, end: float | None = None) -> None:
        if self._request is None:
            return
        (start, host, target, in_flight), self._request = self._request, None
        self._server.in_flight[host] -= 1
        self._server.entries.append(
            Entry(start, time.monotonic() if end is None else end, host, target, status, in_flight)
        )

"""A TCP proxy between a worker and its server, which cuts, stalls, and loses replies or half of one."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from ssl import SSLContext
from threading import Thread
from time import monotonic
from typing import Any

from demo_web.server import close_listener
from typing_extensions import Self


class Proxy:
    """Forwards connections to *port* of this machine, in a thread of its own.

    Args:
        tls: How it is spoken to, if not in plain words.

    Attributes:
        port: Where it listens.
        target: Port that new connections are forwarded to.
        lost: When replies were lost (``time.monotonic``).
    """

    def __init__(self, port: int, tls: SSLContext | None = None) -> None:
        self.target = port
        self._tls = tls
        self.port = 0
        self.lost: list[float] = []
        self._is_cut = False
        self._n_closed = 0
        self._loses = b""
        self._n_whole = -1
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        started: Future[int] = Future()
        self._loop.call_soon(lambda: self._loop.create_task(self._start(started)))
        self._thread.start()
        self.port = started.result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Of a Redis server behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    async def _start(self, started: Future[int]) -> None:
        self._flows.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        started.set_result(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._is_cut = True
        await close_listener(self._server)
        self._flows.set()
        self._reset()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=0.1)
            self._reset()

    def _call(self, function: Any, *args: Any) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    # -- what goes wrong

    def cut(self) -> None:
        """Reset all connections, and any that is made."""
        self._is_cut = True
        self._call(self._reset)

    def hang_up(self, n: int) -> None:
        """Close all connections, and the next *n* that are made: as a balancer does whose server is away."""
        self._n_closed = n
        self._call(self._close)

    def stall(self) -> None:
        """Forward nothing, and say nothing."""
        self._call(self._flows.clear)

    def heal(self) -> None:
        """Forward everything again."""
        self._is_cut = False
        self._call(self._flows.set)

    def move(self, port: int) -> None:
        """Forward to another *port*; connections there are have ended."""
        self.target = port
        self._call(self._reset)

    def lose_reply(self, to: bytes) -> None:
        """Reset the next connection on which a request with the bytes *to* was made, once the server has replied."""
        self._loses = to

    def halve_reply(self, number: int) -> None:
        """Of the reply with this *number*, from 1 and from now on, only the first half gets through before all connections are reset."""
        self._n_whole = number - 1

    @property
    def has_halved(self) -> bool:
        """Whether the reply that :meth:`halve_reply` names has come."""
        return self._n_whole < 0

    def _reset(self) -> None:
        for writer in self._writers:
            if (transport := writer.transport) is not None:
                transport.abort()

    def _close(self) -> None:
        for writer in self._writers:
            writer.close()

    # -- connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        if self._n_closed:
            self._n_closed -= 1
            writer.close()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there[1]}
        loses = [False]
        await asyncio.gather(
            self._forward(reader, there[1], loses, is_request=True),
            self._forward(there[0], writer, loses, is_request=False),
        )
        self._writers -= {writer, there[1]}

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        loses: list[bool],
        *,
        is_request: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                if is_request and self._loses and self._loses in data:
                    self._loses, loses[0] = b"", True
                elif not is_request and loses[0]:
                    self.lost.append(monotonic())
                    self._reset()
                    break
                elif not is_request and self._n_whole >= 0:
                    self._n_whole -= 1
                    if self._n_whole < 0:
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                        self._reset()
                        break
                writer.write(data)
                await writer.drain()
        writer.close()

"""A server of the dashboard with figures that a test makes, and requests to one."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import msgspec

from scrapy_aopic.dashboard.feed import Feed, FeedItem
from scrapy_aopic.dashboard.guard import Guard
from scrapy_aopic.dashboard.http_server import HttpAnswer, Server, Site, sentence
from scrapy_aopic.dashboard.serving import serve
from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.place.place import Place
from scrapy_aopic.settings import Listen
from scrapy_aopic.view.snapshot import Snapshot

from . import processes

TOKEN = "a-token-that-a-test-knows"


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: http.client.HTTPMessage
    text: str


class Served:
    """A server, and whoever takes its figures: a thread in the place of an event loop."""

    def __init__(self, *, every: float = 0.01, **options: Any) -> None:
        self.figures: dict[str, Any] = {"spider": "first"}
        self.taken = 0
        self.feed = Feed(self.take, every=every)
        self.server = Server("127.0.0.1", 0, **options)
        self.port = self.server.port
        self.guard = Guard(TOKEN, "127.0.0.1", port=self.port)
        self.paths: dict[str, Callable[[Mapping[str, str]], HttpAnswer]] = {
            "/": lambda _: sentence(200, "the page"),
            "/echo": lambda query: sentence(200, str(dict(query))),
        }
        site = Site(self.feed, self.paths, {"/healthz": lambda _: sentence(200, "ok")})
        self.server.start(site, self.guard)
        self._is_over = Event()
        self._beats = Thread(target=self._beat)
        self._beats.start()

    def take(self) -> FeedItem:
        self.taken += 1
        return FeedItem(msgspec.convert({"at": 0.0, **self.figures}, Snapshot, str_keys=True), {})

    def _beat(self) -> None:
        while not self._is_over.wait(0.005):
            self.feed.beat()

    def close(self) -> None:
        self._is_over.set()
        self._beats.join()
        self.feed.close("finished")
        self.server.close()

    def get(self, path: str, *, token: str | None = TOKEN, method: str = "GET", **headers: str) -> Got:
        """The answer to a request; underscores in names of *headers* stand for hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given.setdefault("Authorization", f"Bearer {token}")
        connection.request(method, path, headers=given)
        with closing(connection):
            response = connection.getresponse()
            return Got(response.status, response.headers, response.read().decode())

    @contextmanager
    def connect(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            yield connection

    def ask_for_stream(self, connection: socket.socket) -> None:
        request = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(request.encode())


def get(port: int, path: str) -> Got:
    """The answer of a dashboard on *port*."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        return Got(response.status, response.headers, response.read().decode())


@contextmanager
def run_with_dashboard(
    arguments: list[str], settings: dict[str, Any], *, folder: Path, **environment: str
) -> Iterator[tuple[processes.Process, int]]:
    """A crawl by a process of its own, with a dashboard on any free port: the process and the port."""
    settings = {"AOPIC_DASHBOARD": "127.0.0.1:0", "AOPIC_DASHBOARD_TOKEN": TOKEN, **settings}
    process = processes.start(
        [sys.executable, "-m", "scrapy", *arguments]
        + [part for name, value in settings.items() for part in ("-s", f"{name}={value}")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    found = (re.search(r"Dashboard: http://127\.0\.0\.1:(\d+)/", line) for line in process.stderr)
    port = next((int(match[1]) for match in found if match), 0)
    rest = Thread(target=process.stderr.read, daemon=True)
    rest.start()
    try:
        assert port
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        rest.join(10)
        process.stderr.close()


class _Over(Exception):
    """The end of a server."""


@contextmanager
def serve_job(job: Place) -> Iterator[int]:
    """Serve *job* as ``scrapy aopic dashboard`` does, ten times as fast; gives the port.

    Raises:
        AopicError: If it cannot be served.
    """
    over, began = Event(), Event()
    addresses: list[str] = []
    errors: list[Exception] = []

    def sleep(seconds: float) -> None:
        if over.wait(seconds / 10):
            raise _Over

    def say(address: str) -> None:
        addresses.append(address)
        began.set()

    def run() -> None:
        try:
            serve(job, Listen("127.0.0.1", 0), {"AOPIC_DASHBOARD_TOKEN": TOKEN}, say=say, sleep=sleep)
        except _Over:
            pass
        except (AopicError, OSError) as error:
            errors.append(error)
        finally:
            began.set()

    server = Thread(target=run)
    server.start()
    try:
        began.wait()
        if errors:
            raise errors[0]
        yield int(addresses[0].partition("?")[0].rstrip("/").rpartition(":")[2])
    finally:
        over.set()
        server.join()

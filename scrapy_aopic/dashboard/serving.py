"""Begins to serve a crawl, or a stored job: where, to whom, and what."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.settings import Listen, read_values

from .guard import Guard, new_token
from .http_server import Server
from .site import Shown, make_site

if TYPE_CHECKING:
    from collections.abc import Mapping


BEAT = 0.25
"""Seconds between looks at whether a client waits."""

PORTS = range(6810, 6830)
"""Ports for a dashboard if none is set; the first free one is taken. They are near the port of Scrapyd."""


class Serving(NamedTuple):
    """A running dashboard.

    Attributes:
        address: URL to open in a browser.
    """

    server: Server
    address: str


def listen(where: Listen) -> Server:
    """A server that listens at *where*.

    Raises:
        OSError: If it cannot.
    """
    if where.port is not None:
        return Server(where.host, where.port)
    for port in PORTS:
        with suppress(OSError):  # another process listens there
            return Server(where.host, port)
    return Server(where.host, 0)


def start(shown: Shown, where: Listen, settings: Mapping[Any, Any]) -> Serving:
    """Serve what is *shown* at *where*, with the token of *settings*.

    Raises:
        OSError: If nothing can listen there.
    """
    server = listen(where)
    token = read_values(settings).dashboard_token or new_token()
    guard = Guard(token, where.host, port=server.port)
    server.start(make_site(shown), guard)
    host = f"[{where.host}]" if ":" in where.host else where.host
    return Serving(server, f"http://{host}:{server.port}/?token={token}")

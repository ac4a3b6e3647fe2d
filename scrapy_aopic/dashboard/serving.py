"""Begins to serve a crawl, or a stored job: where, to whom, and what.

The store of a stored job is opened for a moment when a client asks, at most every
:data:`~scrapy_aopic.view.stored_watch.EVERY` seconds, so a crawl that runs is not disturbed.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.settings import Listen, read_dashboard, read_values
from scrapy_aopic.view.history import FILE_NAME
from scrapy_aopic.view.questions import Questions
from scrapy_aopic.view.snapshot_stats import stats_of
from scrapy_aopic.view.stored_watch import EVERY, StoredWatch

from .feed import Feed, FeedItem
from .guard import Guard, new_token
from .http_server import Server
from .site import Shown, make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.place.place import Place

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


def serve(
    job: Place,
    where: Listen,
    settings: Mapping[Any, Any],
    *,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Serve *job* at *where* until *sleep* raises an exception.

    Args:
        say: Is given the address once it is served.

    Raises:
        SettingError: If a setting cannot be used, or other machines could reach it without a token of the user's.
        StorageError: If there is no job, or it cannot be read.
        OSError: If nothing can listen there.
    """
    read_dashboard({**settings, "AOPIC_DASHBOARD": f"{where.host}:{where.port or 0}"})
    watch = StoredWatch(job)
    watch.snapshot()

    def look() -> FeedItem:
        now = watch.snapshot()
        return FeedItem(now, stats_of(now))

    feed = Feed(look, every=EVERY)
    shown = Shown(
        feed,
        history=job.folder / FILE_NAME if job.folder is not None else None,
        questions=Questions(job, settings),
    )
    serving = start(shown, where, settings)
    try:
        say(serving.address)
        while True:
            feed.beat()
            sleep(BEAT)
    finally:
        feed.close("this dashboard was closed")
        serving.server.close()

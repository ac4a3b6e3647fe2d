"""Begins to serve a crawl, or a stored job: where, to whom, and what.

The store of a stored job is opened for a moment when a client asks, at most every
:data:`~scrapy_aopic.view.stored.EVERY` seconds, so a crawl that runs is not disturbed.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Spider, signals
from scrapy.utils.asyncio import create_looping_call

from scrapy_aopic.exceptions import plainly
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.settings import Listen, read_address, read_dashboard, read_values
from scrapy_aopic.view.history import FILE_NAME
from scrapy_aopic.view.questions import Questions
from scrapy_aopic.view.snapshot_stats import stats_of
from scrapy_aopic.view.stored import EVERY, StoredWatch

from .feed import Feed, FeedItem
from .guard import Guard, new_token
from .http_server import Server
from .site import Shown, make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy.crawler import Crawler

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.session.session import Session
    from scrapy_aopic.view.snapshot import Snapshot


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


logger = logging.getLogger(__name__)

_OLDEST_COMMIT = 30.0
"""Seconds since the last commit from which a crawl is not well, however often it is to commit."""

_DURABILITIES = 10
"""The same as a multiple of the interval between commits."""


class Dashboard:
    """Shows a crawl as long as it runs.

    Args:
        where: To listen; without a port that is free there is no dashboard, and the log says so.
    """

    def __init__(self, crawler: Crawler, session: Session, where: Listen) -> None:
        self._crawler = crawler
        self._session = session
        self._where = where
        self._has_failed = False
        self._feed = Feed(self._look)
        self._beats = create_looping_call(self._feed.beat)
        self._server: Server | None = None

    def start(self) -> None:
        """Begin, and log the address."""
        crawler, settings = self._crawler, self._crawler.settings
        extra = {"spider": crawler.spider}
        place = self._place()
        durability = read_values(settings).durability
        shown = Shown(
            self._feed,
            oldest_commit=max(_OLDEST_COMMIT, _DURABILITIES * durability),
            spider=str(getattr(crawler.spider, "name", "")),
            history=Path(settings["JOBDIR"]) / FILE_NAME if settings.get("JOBDIR") else None,
            job=self._job(place),
            questions=Questions(place, settings, lambda: self._session.dropped.samples)
            if place is not None
            else None,
            place=place,
        )
        try:
            self._server, address = start(shown, self._where, settings)
        except OSError as error:
            logger.warning(
                "There is no dashboard, as AOPIC_DASHBOARD (%(setting)r) cannot be listened on: %(error)s. The crawl "
                "goes on.",
                {"setting": settings.get("AOPIC_DASHBOARD"), "error": plainly(error)},
                extra=extra,
            )
            return
        self._beats.start(BEAT, now=False)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)
        is_quiet = settings.get("LOG_LEVEL") not in {"DEBUG", "INFO", logging.DEBUG, logging.INFO}
        logger.log(
            logging.WARNING if is_quiet else logging.INFO,  # without the address it could not be opened
            "Dashboard: %(address)s",
            {"address": address},
            extra=extra,
        )

    def _place(self) -> Place | None:
        """Where the job can be looked at; ``None`` if it is in memory, or in a folder that goes with the crawl."""
        settings = self._crawler.settings
        kind = read_values(settings).store
        if kind == "redis":
            return ServerPlace(read_address(settings, str(getattr(self._crawler.spider, "name", ""))))
        folder = settings.get("JOBDIR")
        return FolderPlace(Path(folder)) if folder and kind != "memory" else None

    def _job(self, place: Place | None) -> Callable[[], Snapshot] | None:
        """A function that takes a snapshot of all shards of the job at *place*; ``None`` for a job in one piece."""
        values = read_values(self._crawler.settings)
        is_cut = values.store == "redis" and values.shards.n > 1
        return StoredWatch(place).snapshot if is_cut and place is not None else None

    def _look(self) -> FeedItem | None:
        if not self._session.is_open:
            return None
        try:
            now = self._session.watch.snapshot()
        except Exception:  # what only looks must not end the crawl
            if not self._has_failed:
                self._has_failed = True
                logger.exception(
                    "The dashboard cannot see the crawl, which goes on. Further errors are not logged",
                    extra={"spider": self._crawler.spider},
                )
            return None
        stats = self._crawler.stats.get_stats() if self._crawler.stats is not None else {}
        return FeedItem(now, {**stats, **stats_of(now)})

    def _stop(self, spider: Spider, reason: str) -> None:
        if self._beats.running:
            self._beats.stop()
        self._feed.close(reason)
        if self._server is not None:
            self._server.close()
            self._server = None

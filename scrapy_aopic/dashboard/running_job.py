"""Serves the crawl of this process."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from scrapy import signals
from scrapy.utils.asyncio import create_looping_call

from scrapy_aopic.exceptions import plainly
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.settings import read, read_address
from scrapy_aopic.view.history import FILE_NAME
from scrapy_aopic.view.live_stats import live_stats

from .feed import Feed, Seen
from .guard import Guard, new_token
from .http_server import Server
from .questions import Questions
from .site import make_site

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.session.session import Session
    from scrapy_aopic.settings import Listen
    from scrapy_aopic.view.snapshot import Snapshot
    from scrapy_aopic.view.verdict import Verdict

logger = logging.getLogger(__name__)

_BEAT = 0.25
"""Seconds between looks at whether somebody waits."""

PORTS = range(6810, 6830)
"""Where a dashboard may be if no port is asked for, the first that is free: near the port of Scrapyd."""

_OLDEST_COMMIT = 30.0
"""Seconds since the last commit from which a crawl is not well, however often it is to commit."""

_DURABILITIES = 10
"""The same in intervals between commits."""


def listen(where: Listen) -> Server:
    """A server that listens at *where*.

    Raises:
        OSError: If it cannot.
    """
    if where.port is not None:
        return Server(where.host, where.port)
    for port in PORTS:
        with suppress(OSError):  # somebody else listens there
            return Server(where.host, port)
    return Server(where.host, 0)


def address_of(server: Server, where: Listen, token: str) -> str:
    """What to open in a browser."""
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"http://{host}:{server.port}/?token={token}"


def point_of(figures: dict[str, Any]) -> dict[str, float | None]:
    """What of *figures* is drawn over time."""
    rate, work = figures.get("rate") or {}, figures.get("connections") or {}
    return {
        "at": figures["at"],
        "pages": rate.get("pages"),
        "bytes": rate.get("bytes"),
        "ceiling": figures["hosts"]["ceiling"],
        **{name: figures["pages"][name] for name in ("queued", "visited", "failed")},
        "in_use": work.get("in_use"),
    }


def figures_of(now: Snapshot, found: Verdict) -> dict[str, Any]:
    """A snapshot and its verdict as JSON can have them."""
    return {**msgspec.to_builtins(now, str_keys=True), "verdict": found._asdict()}


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
        try:
            server = listen(self._where)
        except OSError as error:
            logger.warning(
                "There is no dashboard, as AOPIC_DASHBOARD (%(setting)r) cannot be listened on: %(error)s. The crawl "
                "goes on.",
                {"setting": settings.get("AOPIC_DASHBOARD"), "error": plainly(error)},
                extra=extra,
            )
            return
        token = read(settings, "AOPIC_DASHBOARD_TOKEN") or new_token()
        guard = Guard(token, self._where.host, port=server.port)
        durability: float = read(settings, "AOPIC_DURABILITY")
        place = self._place()
        site = make_site(
            self._feed,
            oldest_commit=max(_OLDEST_COMMIT, _DURABILITIES * durability),
            spider=str(getattr(crawler.spider, "name", "")),
            history=Path(settings["JOBDIR"]) / FILE_NAME if settings.get("JOBDIR") else None,
            questions=Questions(place, settings, lambda: self._session.dropped.samples)
            if place is not None
            else None,
            whole=self._whole(),
        )
        server.start(site, guard)
        self._server = server
        self._beats.start(_BEAT, now=False)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)
        is_quiet = settings.get("LOG_LEVEL") not in {"DEBUG", "INFO", logging.DEBUG, logging.INFO}
        logger.log(
            logging.WARNING if is_quiet else logging.INFO,  # without the address nobody could open it
            "Dashboard: %(address)s",
            {"address": address_of(server, self._where, token)},
            extra=extra,
        )

    def _place(self) -> Place | None:
        """Where the job can be looked at; ``None`` if it is in memory, or in a folder that goes with the crawl."""
        settings = self._crawler.settings
        kind = read(settings, "AOPIC_STORE")
        if kind == "redis":
            return ServerPlace(read_address(settings, str(getattr(self._crawler.spider, "name", ""))))
        folder = settings.get("JOBDIR")
        return FolderPlace(Path(folder)) if folder and kind != "memory" else None

    def _whole(self) -> Callable[[], dict[str, Any]] | None:
        """What looks at all shards, of a job that is cut into some."""
        settings = self._crawler.settings
        if read(settings, "AOPIC_STORE") != "redis" or read(settings, "AOPIC_SHARDS") < 2:
            return None
        from .sharded_job import WholeJob  # noqa: PLC0415  # needs a package that other jobs do not

        return WholeJob(read_address(settings, str(getattr(self._crawler.spider, "name", "")))).look

    def _look(self) -> Seen | None:
        if not self._session.is_open:
            return None
        try:
            now, found = self._session.watch.look()
            figures = figures_of(now, found)
        except Exception:  # what only looks must not end the crawl
            if not self._has_failed:
                self._has_failed = True
                logger.exception(
                    "The dashboard cannot see the crawl, which goes on. Further errors are not logged",
                    extra={"spider": self._crawler.spider},
                )
            return None
        stats = self._crawler.stats.get_stats() if self._crawler.stats is not None else {}
        return Seen(figures, point_of(figures), {**stats, **live_stats(now, found)})

    def _stop(self, spider: Spider, reason: str) -> None:
        if self._beats.running:
            self._beats.stop()
        self._feed.close(reason)
        if self._server is not None:
            self._server.close()
            self._server = None

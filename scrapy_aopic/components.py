"""The components of a crawl by importance: found where the user listed them, else put in place.

This is the only module that knows the scheduler's session and the middlewares that work for it; these are given what they
need of it, and look for nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.utils.misc import build_from_crawler

from ._engine import middlewares
from .downloadermiddlewares.polite_downloads import PolitenessMiddleware
from .downloadermiddlewares.robots import RobotsMiddleware
from .extensions import Progress
from .settings import read_dashboard
from .spidermiddlewares import LinkMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from .session.session import Session

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Components:
    """The middlewares and extensions that a session works with.

    Attributes:
        links: Marks the links of pages.
        politeness: Makes transfers wait, wherever they come from.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._added: list[str] = []
        self.links = self._find(LinkMiddleware, middlewares.add_spider_middleware)
        self.politeness = self._find(PolitenessMiddleware, middlewares.add_downloader_middleware)
        self._robots = middlewares.find(crawler, RobotsMiddleware)
        middlewares.replace(crawler, RobotsTxtMiddleware, self._make_robots)
        manager = crawler.extensions
        extensions: tuple[Any, ...] = tuple(manager.middlewares) if manager is not None else ()
        if not any(isinstance(extension, Progress) for extension in extensions):
            self._progress = self._make(Progress)
            self._progress.start()
        if self._added:
            logger.info(
                "Put in place by the scheduler: %(names)s",
                {"names": ", ".join(self._added)},
                extra={"spider": crawler.spider},
            )

    def _find(self, kind: type[T], add: Callable[[Crawler, T], None]) -> T:
        """The component of this *kind*; *add* puts one in place if there is none."""
        component = middlewares.find(self._crawler, kind)
        if component is None:
            component = self._make(kind)
            add(self._crawler, component)
        return component

    def _make(self, kind: type[T]) -> T:
        self._added.append(kind.__name__)
        component: T = build_from_crawler(kind, self._crawler)
        return component

    def _make_robots(self) -> RobotsMiddleware:
        """The middleware in place of Scrapy's own, which reads each robots.txt once a process."""
        if self._robots is None:
            self._robots = self._make(RobotsMiddleware)
        return self._robots

    def serve(self, session: Session | None) -> None:
        """Work for *session* from now on; for ``None`` alone, as beside any other scheduler."""
        self.links.session = session
        self.politeness.serve(session.pacer if session is not None else None)
        if self._robots is not None:
            self._robots.pacer = session.pacer if session is not None else None
        if session is not None:
            session.intake.rerouted = self.politeness.rerouted
            middlewares.add_response_middleware(self._crawler, session.bodies)
            middlewares.add_response_middleware(self._crawler, session.responses)
            middlewares.add_response_middleware(self._crawler, self.politeness.proxies)
        if session is not None and session.focus is not None and session.focus.grading.judging is not None:
            middlewares.add_response_middleware(self._crawler, session.focus.grading.judging)
        if session is not None and (where := read_dashboard(self._crawler.settings)) is not None:
            from .dashboard.serving import Dashboard  # noqa: PLC0415  # few crawls have one

            self._dashboard = Dashboard(self._crawler, session, where)
            self._dashboard.start()

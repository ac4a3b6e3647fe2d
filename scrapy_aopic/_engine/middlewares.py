"""Puts middlewares that the user did not list into the managers of an engine that was made already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from .private import Middlewares, downloader_of, engine_of, spider_middlewares_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


T = TypeVar("T")


class StartMiddleware(Protocol):
    """A spider middleware that sees what ``start()`` yields."""

    def process_start(self, start: AsyncIterator[object]) -> AsyncIterator[object]:
        """The iterator to use instead of *start*."""


class RequestMiddleware(Protocol):
    """A downloader middleware that has no other method than this one."""

    def process_request(self, request: Request) -> Awaitable[Request | Response | None]:
        """Judge *request*."""


class ResponseMiddleware(Protocol):
    """A downloader middleware that has no other method than this one."""

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response | Awaitable[Response]:
        """Take *response* to *request* on, or request something else."""


def find(crawler: Crawler, kind: type[T]) -> T | None:
    """The middleware of class *kind* that the user listed."""
    managers = (spider_middlewares_of(crawler), downloader_of(crawler).middleware)
    found = (middleware for manager in managers for middleware in manager.middlewares)
    return next((middleware for middleware in found if isinstance(middleware, kind)), None)


def add_spider_middleware(crawler: Crawler, middleware: StartMiddleware) -> None:
    """Put *middleware* next to the spider: it sees all that a callback yields before any other does.

    The engine has called ``start()`` by then, so what that yields comes last to *middleware*.
    """
    _add(spider_middlewares_of(crawler), middleware)
    start = getattr(engine_of(crawler), "_start", None)
    if start is not None:
        engine_of(crawler)._start = middleware.process_start(start)


def add_downloader_middleware(crawler: Crawler, middleware: object) -> None:
    """Put *middleware* next to the downloader: the last to see a request, the first to see a response."""
    _add(downloader_of(crawler).middleware, middleware)


def add_response_middleware(crawler: Crawler, middleware: ResponseMiddleware) -> None:
    """Put *middleware* next to the engine: the last to see a response, when it is that of a page."""
    manager = downloader_of(crawler).middleware
    manager.middlewares = (middleware, *manager.middlewares)
    manager.methods["process_response"].append(middleware.process_response)


def _add(manager: Middlewares, middleware: object) -> None:
    """Have *manager* call *middleware*, and find it when it is looked for (``Crawler.get_downloader_middleware``)."""
    manager._add_middleware(middleware)
    manager.middlewares = (*manager.middlewares, middleware)


def replace(crawler: Crawler, kind: type, make: Callable[[], RequestMiddleware]) -> bool:
    """Put what *make* makes in the place of the downloader middleware of exactly this *kind*.

    Both must have no method of a middleware but ``process_request``.

    Returns:
        Whether there was one.
    """
    manager = downloader_of(crawler).middleware
    old = next((each for each in manager.middlewares if type(each) is kind), None)
    if old is None:
        return False
    new = make()
    manager.middlewares = tuple(new if each is old else each for each in manager.middlewares)
    methods = manager.methods["process_request"]
    methods[methods.index(getattr(old, "process_request"))] = new.process_request  # noqa: B009  # its class is any
    return True

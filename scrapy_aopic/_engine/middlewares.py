"""Puts middlewares that the user did not list into the managers of a crawl whose engine was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

T = TypeVar("T")


def _spider_manager(crawler: Crawler) -> Any:
    scraper: Any = getattr(crawler.engine, "scraper", None)
    return scraper.spidermw


def _downloader_manager(crawler: Crawler) -> Any:
    downloader: Any = getattr(crawler.engine, "downloader", None)
    return downloader.middleware


def find(crawler: Crawler, kind: type[T]) -> T | None:
    """The middleware of class *kind* that the user listed."""
    managers = (_spider_manager(crawler), _downloader_manager(crawler))
    found = (middleware for manager in managers for middleware in manager.middlewares)
    return next((middleware for middleware in found if isinstance(middleware, kind)), None)


def add_spider_middleware(crawler: Crawler, middleware: object) -> None:
    """Put *middleware* next to the spider: it sees all that a callback yields before any other."""
    _add(_spider_manager(crawler), middleware)


def add_downloader_middleware(crawler: Crawler, middleware: object) -> None:
    """Put *middleware* next to the downloader: the last to see a request, the first to see an answer."""
    _add(_downloader_manager(crawler), middleware)


def _add(manager: Any, middleware: object) -> None:
    """Have *manager* call *middleware*, and find it when it is looked for (``Crawler.get_downloader_middleware``)."""
    manager._add_middleware(middleware)
    manager.middlewares = (*manager.middlewares, middleware)


def replace(crawler: Crawler, kind: type, make: Callable[[], Any]) -> bool:
    """Put what *make* makes in the place of the downloader middleware of exactly this *kind*.

    Only for middlewares that do nothing but ``process_request``.

    Returns:
        Whether there was one.
    """
    manager = _downloader_manager(crawler)
    old: Any = next((each for each in manager.middlewares if type(each) is kind), None)
    if old is None:
        return False
    new: Any = make()
    manager.middlewares = tuple(new if each is old else each for each in manager.middlewares)
    methods = manager.methods["process_request"]
    methods[methods.index(old.process_request)] = new.process_request
    return True

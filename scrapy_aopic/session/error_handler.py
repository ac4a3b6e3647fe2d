"""Handles errors inside the calls of Scrapy's engine, which cannot handle an exception there."""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from scrapy_aopic.exceptions import ANY_ERROR, ComponentError, GoneError, LostError, StorageError

from .stats import FirstOnly, Stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_aopic._engine.closing import Closing
    from scrapy_aopic.job.job import Job

    class _HasErrorHandler(Protocol):
        """Whose methods are guarded."""

        @property
        def errors(self) -> ErrorHandler:
            """Who deals with what they raise."""


logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S", bound="_HasErrorHandler")


class ErrorHandler:
    """Logs and counts errors, and closes the spider if the store cannot be used any more."""

    def __init__(self, crawler: Crawler, closing: Closing, job: Job, stats: Stats) -> None:
        self._crawler = crawler
        self._closing = closing
        self._job = job
        self._stats = stats
        self._first = FirstOnly(logger, crawler)
        self.is_store_known = False
        """Whether the log says that the store failed."""

    def failed(self, name: str, error: BaseException, args: object) -> None:
        """The method called *name* raised *error*.

        A store that cannot be read ends the crawl, or its part in it: see :attr:`Job.is_broken`.
        """
        if isinstance(error, StorageError) and (self._job.is_broken or self._job.has_broken_shards):
            self.watch()
            return
        self._stats.count("aopic/errors")
        if isinstance(error, ComponentError):
            self._first.exception(
                f"component: {type(error.__cause__).__name__}",
                "%(error)s; further errors of this kind are only counted (aopic/errors)",
                error=error,
            )
            return
        self._first.exception(
            f"{name}: {type(error).__name__}",
            "The scheduler failed on %(args)s; further errors of this kind are only counted (aopic/errors)",
            args=args or name,
        )

    def watch(self) -> None:
        """Close the spider if the store takes no more."""
        error = self._job.failure
        if error is None or self.is_store_known:
            return
        self.is_store_known = True
        advice = "; nothing that was committed is lost, run the same command to go on."
        logger.error(
            "%(error)s The crawl stops%(advice)s",
            {"error": error, "advice": "." if isinstance(error, LostError) else advice},
            extra={"spider": self._crawler.spider},
        )
        self._closing.abort("aopic_gone" if isinstance(error, GoneError) else "aopic_storage")


def guarded(otherwise: D) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T | D]]:
    """Make a method return *otherwise* instead of raising."""

    def decorate(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | D]:
        @wraps(method)
        def guard(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return method(self, *args, **kwargs)
            except ANY_ERROR as error:  # logged
                self.errors.failed(method.__name__, error, args)
                return otherwise

        return guard

    return decorate

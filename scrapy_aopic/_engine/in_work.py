"""The requests that the engine has in work, and two events for which Scrapy has no signal.

A popped request is in two sets of Scrapy's: ``downloader.active`` until the downloader and its middlewares are done
with it, and ``engine._slot.inprogress`` until its callback is over and the last request that this yielded has reached the
scheduler. Both sets are replaced by sets that report each removal. Nothing else in Scrapy covers that time:
``request_left_downloader`` is not sent for requests that never reach the network, and a spider middleware's generator
ends before its last links are scheduled.

Rule 1: for each request that is handed out, the ``transferred`` and then the ``finished`` of :class:`InWork` are called,
at least once each. They must not raise, and must ignore requests that they do not know: robots.txt and requests that
callbacks download inline are in these sets, too.

Rule 2: what a request that failed leaves in memory is freed with it (:func:`.process_memory.clear_frames`).

Rule 3: if an engine lacks these sets, or never puts a request into them, the request counts as done at the next look.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from scrapy import Request, signals

from .process_memory import clear_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure


class _WatchedSet(set[Request]):
    """A set of requests that says what is taken out of it."""

    def __init__(self, requests: Iterable[Request], taken_out: Callable[[Request], None]) -> None:
        super().__init__(requests)
        self._taken_out = taken_out

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._taken_out(request)

    def discard(self, request: object) -> None:
        if isinstance(request, Request) and request in self:
            self.remove(request)


class InWork:
    """The requests that the engine has in work.

    Args:
        transferred: Called with a request that the downloader is done with.
        finished: Called with a request that the engine is done with, and the downloader before.
    """

    def __init__(
        self, crawler: Crawler, transferred: Callable[[Request], None], finished: Callable[[Request], None]
    ) -> None:
        self._transferred = transferred
        self._finished = finished
        self._handed_out: list[Request] = []
        self._errors: dict[Request, BaseException] = {}
        crawler.signals.connect(self._callback_failed, signals.spider_error)
        engine: Any = crawler.engine
        self._downloading = _watch(getattr(engine, "downloader", None), "active", self._left_downloader)
        self._in_progress = _watch(getattr(engine, "_slot", None), "inprogress", self._left_engine)

    def hand_out(self, request: Request) -> None:
        """The engine gets *request*."""
        self._handed_out.append(request)

    def look(self) -> None:
        """See that what was handed out since the last look is in work; nothing more will be heard of the rest."""
        if self._handed_out:
            requests, self._handed_out = self._handed_out, []
            for request in requests:
                if request not in self._downloading:
                    self._left_downloader(request)

    def _left_downloader(self, request: Request) -> None:
        # The downloader takes it out in a "finally", while the exception of a failed download is on its way to the engine.
        error = sys.exc_info()[1]
        if error is not None:
            clear_frames(error)
            self._errors[request] = error
        self._transferred(request)
        if request not in self._in_progress:
            self._end(request)

    def _left_engine(self, request: Request) -> None:
        if request not in self._downloading:
            self._end(request)

    def _callback_failed(self, failure: Failure, response: Response | None = None) -> None:
        error = failure.value
        request = response.request if response is not None else None  # there is none if start() fails
        if request is not None and request in self._in_progress and error is not None:
            self._errors[request] = error

    def _end(self, request: Request) -> None:
        error = self._errors.pop(request, None)
        if error is not None:
            clear_frames(error)  # those that it has come through since, which keep it in a cycle
        self._finished(request)


def _watch(owner: object, name: str, taken_out: Callable[[Request], None]) -> AbstractSet[Request]:
    """The set of *owner* under *name*, which says from now on what is taken out of it; an empty one if it has none."""
    requests = getattr(owner, name, None)
    if not isinstance(requests, set):
        return frozenset()
    watched = _WatchedSet(cast("set[Request]", requests), taken_out)
    setattr(owner, name, watched)
    return watched

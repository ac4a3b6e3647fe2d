"""Requests for pages that were visited before: they ask only for what has changed since, so that the rest costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request, signals

if TYPE_CHECKING:
    from .parts import SessionParts

_CONDITIONS = ("If-None-Match", "If-Modified-Since")
"""Headers that request a page only if it has changed, by ``ETag`` and ``Last-Modified`` of its last visit."""


class ConditionalRequests:
    """Makes repeated requests conditional while they are transferred.

    Only for so long: their copies, such as retries and redirects, may be for something else.
    """

    def __init__(self, parts: SessionParts) -> None:
        self._crawl = parts.job.crawl
        self._visits = parts.visits
        connect = parts.crawler.signals.connect
        connect(self._set_conditions, signal=signals.request_reached_downloader)
        connect(self._drop_conditions, signal=signals.request_left_downloader)

    def _set_conditions(self, request: Request) -> None:
        visit = self._visits.get(request)
        if visit is None or not visit.lease.visits:
            return
        page = self._crawl.page(visit.lease.key)
        is_users = any(name in request.headers for name in _CONDITIONS)
        if page is None or page.changes is None or is_users or request.method not in ("GET", "HEAD"):
            return
        for name, value in zip(_CONDITIONS, (page.changes.etag, page.changes.modified), strict=True):
            if value:
                request.headers[name] = value
                visit.asked_if_changed()

    def _drop_conditions(self, request: Request) -> None:
        visit = self._visits.get(request)
        if visit is not None and visit.is_conditional:
            for name in _CONDITIONS:
                request.headers.pop(name, None)

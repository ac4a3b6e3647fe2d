"""What may be queued, under which URL, and which answers are read: the rules on URLs and types in a crawl."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from .settings import read
from .urls import Normaliser

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http.headers import Headers

logger = logging.getLogger(__name__)

_YEARS_AHEAD = 2
"""Years from now that calendars are followed into."""


class Admission:
    """Gives the requests of a crawl the normal form of their URL, and turns away those that are not worth a place.

    Raises:
        SettingError: If one of its settings cannot be used.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._is_wanted: Callable[[str], bool] = read(settings, "AOPIC_CONTENT_TYPES")
        self._user_rewrite: Callable[[str], str | None] | None = read(settings, "AOPIC_URL_REWRITE")
        self._has_complained = False
        rules: frozenset[str] = read(settings, "AOPIC_URL_RULES")
        self._normalise = Normaliser(
            rules,
            rewrite=self._rewrite if self._user_rewrite is not None else None,
            max_length=read(settings, "AOPIC_MAX_URL_LENGTH"),
            max_depth=read(settings, "AOPIC_MAX_PATH_DEPTH"),
            max_repeats=read(settings, "AOPIC_MAX_REPEATS"),
            max_parameters=read(settings, "AOPIC_MAX_PARAMETERS"),
            extensions=read(settings, "AOPIC_SKIP_EXTENSIONS"),
            last_year=datetime.now(tz=timezone.utc).year + _YEARS_AHEAD,
        )

    def admit(self, request: Request, page: str = "") -> Request | None:
        """*request* under the normal form of its URL; ``None`` if it is turned away, which is counted.

        *page* is the URL of the page that links to it: only there a scheme other than HTTP's is out of place.
        What a spider does on purpose stays possible: with ``dont_filter`` nothing is turned away, and forms and
        ``verbatim_url`` are left alone.
        """
        if request.method not in ("GET", "HEAD") or request.meta.get("verbatim_url"):
            return request
        url, reason = self._normalise(request.url)
        is_misplaced = reason != "scheme" or page.startswith("http")
        if reason and is_misplaced and not request.dont_filter:
            self._count(f"aopic/urls/refused/{reason}")
            return None
        if url == request.url:
            return request
        self._count("aopic/urls/changed")
        return request.replace(url=url)

    def admit_url(self, url: str) -> str | None:
        """Normal form of *url*; ``None`` if it is turned away, which is counted."""
        normal, reason = self._normalise(url)
        if reason:
            self._count(f"aopic/urls/refused/{reason}")
            return None
        if normal != url:
            self._count("aopic/urls/changed")
        return normal

    def is_wanted(self, headers: Headers) -> bool:
        """Whether an answer with *headers* is of a content type that is read; one that does not say is."""
        value = headers.get("Content-Type") or b""
        kind = value.partition(b";")[0].strip().lower().decode("latin-1")
        return not kind or self._is_wanted(kind)

    def _rewrite(self, url: str) -> str | None:
        """The user's rule on *url*; no change if it fails, which is counted and logged once."""
        assert self._user_rewrite is not None
        try:
            rewritten = self._user_rewrite(url)
            if rewritten is not None and not isinstance(rewritten, str):
                raise TypeError(f"{rewritten!r} is neither a URL nor None")
        except Exception:
            self._count("aopic/urls/unrewritten")
            if not self._has_complained:
                self._has_complained = True
                logger.exception(
                    "AOPIC_URL_REWRITE fails on %(url)s, which is not rewritten; further ones are only counted "
                    "(aopic/urls/unrewritten)",
                    {"url": url},
                    extra={"spider": self._crawler.spider},
                )
            return url
        return rewritten

    def _count(self, name: str) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(name)

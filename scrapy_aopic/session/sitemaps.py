"""Sitemaps as requests: those that a robots.txt or an index names are downloaded, and their pages are links.

A sitemap may be on any host. What it names counts only within the registered domain of the robots.txt that named it.
The spider sees no sitemap, but its method ``wants_of_sitemap``, if it has one, may turn pages down.

Pages are yielded some at a time as :class:`~scrapy_aopic.Links`, if the link middleware takes first what is yielded here: one
nearer to the spider expects requests. A URL that a request would not leave as it is becomes one in any case.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from scrapy import Request, signals
from w3lib.url import safe_url_string

from scrapy_aopic._engine.passage import first_of
from scrapy_aopic.links import Links
from scrapy_aopic.web.links import is_absolute
from scrapy_aopic.web.meta import SITEMAP
from scrapy_aopic.web.origins import host_name
from scrapy_aopic.web.sitemaps import PAGES, Sitemap, sitemaps_in
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.urls import is_parsable

from .session import Session
from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response

MAX_SITEMAPS = 100
"""Sitemaps that are taken from one robots.txt, or from one index."""

_AT_ONCE = 200
"""Pages that are yielded together: as many as are looked up together (``session/batch.py``)."""

_PRIORITY = -3
"""Priority of the request for a sitemap: it waits like a page with an eighth of its cash."""

_WEB = ("http://", "https://")


class Sitemaps:
    """Follows sitemaps, in one crawl."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        crawler.signals.connect(self._response_received, signal=signals.response_received)

    def _count(self, name: str) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(name)

    def requests(self, robots_txt: bytes, url: str) -> Iterator[Request]:
        """Requests for the sitemaps that *robots_txt*, found at *url*, names."""
        domain = registered_domain(host_name(url))
        for sitemap in islice(sitemaps_in(robots_txt, url), MAX_SITEMAPS):
            if sitemap.startswith(_WEB):
                yield _request(sitemap, domain)

    def _response_received(self, request: Request) -> None:
        # Not from the start: a queued request is written with its callback, which must be the spider's.
        if SITEMAP in request.meta:
            request.callback = self._follow

    def _takes_links(self) -> bool:
        """Whether :class:`Links` may be yielded."""
        session = Session.of(self._crawler)
        return session is not None and getattr(first_of(self._crawler), "session", None) is session

    async def _follow(self, response: Response) -> AsyncIterator[Request | Links]:
        """Requests for the pages, or the sitemaps, that a sitemap names."""
        domain, is_of_index = response.meta[SITEMAP]
        sitemap = Sitemap(response.body)
        wants = getattr(self._crawler.spider, "wants_of_sitemap", None)
        turns, takes_links = Turns(), self._takes_links()
        n_sitemaps = 0
        plain: list[str] = []
        for url in sitemap:
            if url is None:
                await turns.step()
            elif not is_parsable(url):
                self._count("aopic/sitemaps/refused")
            elif url.startswith(_WEB) and registered_domain(host_name(url)) == domain:
                if sitemap.kind == PAGES:
                    if wants is None or wants(url, response.url):
                        self._count("aopic/sitemaps/pages")
                        if takes_links and is_absolute(url):
                            plain.append(url)
                            if len(plain) < _AT_ONCE:
                                continue
                            yield Links(response, plain)
                        else:
                            if plain:
                                yield Links(response, plain)  # which come first
                            yield Request(url)
                        plain = []
                elif not is_of_index and n_sitemaps < MAX_SITEMAPS:
                    n_sitemaps += 1
                    yield _request(url, domain, is_of_index=True)
        if plain:
            yield Links(response, plain)
        self._count("aopic/sitemaps/read" if sitemap.kind else "aopic/sitemaps/bad")


def _request(url: str, domain: str, *, is_of_index: bool = False) -> Request:
    # Its URL is taken as it stands, since no rule about URLs of pages applies, but in a form that can be requested.
    meta = {SITEMAP: (domain, is_of_index), "verbatim_url": True}
    return Request(safe_url_string(url), priority=_PRIORITY, meta=meta)

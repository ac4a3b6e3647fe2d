"""Sitemaps as requests: those that a robots.txt or an index names are downloaded, and their pages are links.

A sitemap may be on any host. Pages that it names count only within the registered domain of the robots.txt that named it;
sitemaps that an index names, also within that of the index. What is left out is counted, and the first of each kind logged.
The spider sees no sitemap, but its method ``wants_of_sitemap``, if it has one, may turn pages down.

Pages are yielded some at a time as :class:`~scrapy_aopic.Links`, if the link middleware takes first what is yielded here: one
nearer to the spider expects requests. A URL that a request would not leave as it is becomes one in any case.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from scrapy import Request, signals
from scrapy.http import HtmlResponse, Response
from w3lib.url import safe_url_string

from scrapy_aopic._engine.direct_requests import first_of
from scrapy_aopic.links import Links
from scrapy_aopic.web.link_extraction import is_absolute
from scrapy_aopic.web.meta import SITEMAP
from scrapy_aopic.web.origins import host_name
from scrapy_aopic.web.sitemaps import MAX_BYTES, MAX_ENTRIES, PAGES, Sitemap, feeds_in, sitemaps_in
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.urls import is_parsable

from .links.page_links import LINKS_A_READ
from .session import Session
from .stats import FirstOnly
from .time_slices import TimeSlices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

MAX_SITEMAPS = 100
"""Sitemaps that are taken from one robots.txt, or from one index."""

_MOST_NAMED = 1_000
"""Sitemaps of one robots.txt that are looked at: each may take 50 microseconds, and there may be 20,000."""

MAX_DEPTH = 3
"""Indexes one above the other: the protocol allows one, and some sites have two."""

_FEEDS, _MOST_DOMAINS = 3, 10_000
"""Feeds that are taken from pages of a registered domain, and such domains, in a run: each gets cash as a sitemap does."""

_WEB = ("http://", "https://")

LEFT_OUT = {
    "domain": "{n} of its entries are of another registered domain than the robots.txt that led to it",
    "url": "{n} of its entries are no URLs that can be requested",
    "lines": "{n} of its lines are no URLs",
    "too long": "{n} of its entries are too long",
    "entries": f"{{n}} of its entries come after the first {MAX_ENTRIES:,}",
    "alternates": f"{{n}} of its pages in other languages come after the first {MAX_ENTRIES:,}",
    "sitemaps": f"{{n}} of its sitemaps come after the first {MAX_SITEMAPS}",
    "depth": f"{{n}} of its sitemaps are below more than {MAX_DEPTH} indexes",
    "rest": f"it ends in the middle, or is larger than {MAX_BYTES >> 20} MiB",
}
"""Why something of a sitemap is left out."""


class Sitemaps:
    """Follows sitemaps, in one crawl.

    Args:
        takes_feeds: Whether feeds that pages name are read, too, if pages are revisited.
    """

    def __init__(self, crawler: Crawler, *, takes_feeds: bool = False) -> None:
        self._crawler = crawler
        self._takes_feeds = takes_feeds
        self._feeds: dict[str, set[str]] = {}  # by registered domain
        self._first = FirstOnly(logger, crawler)
        crawler.signals.connect(self._response_received, signal=signals.response_received)

    def requests(self, robots_txt: bytes, url: str) -> Iterator[Request]:
        """Requests for the sitemaps that *robots_txt*, found at *url*, names."""
        domain, left_out, n_sitemaps = registered_domain(host_name(url)), Counter[str](), 0
        for sitemap in sitemaps_in(robots_txt, url, _MOST_NAMED):
            if n_sitemaps == MAX_SITEMAPS or not sitemap:
                left_out["sitemaps"] += 1
            elif not sitemap.startswith(_WEB):
                left_out["url"] += 1
            else:
                n_sitemaps += 1
                yield _request(sitemap, domain, 0)
        self._note(url, left_out)

    def _response_received(self, response: Response, request: Request) -> None:
        # Not from the start: a queued request is written with its callback, which must be the spider's.
        if SITEMAP in request.meta:
            request.callback = self._follow
        elif self._takes_feeds and isinstance(response, HtmlResponse) and len(self._feeds) < _MOST_DOMAINS:
            self._take_feeds(response, request)

    def _take_feeds(self, response: Response, request: Request) -> None:
        """Queue the feeds that the page of *response* names and that are new, as pages that say what changes."""
        session = Session.of(self._crawler)
        if session is None or not session.recrawls or session.visits.get(request) is None:
            return
        assert self._crawler.engine is not None
        domain = registered_domain(host_name(response.url))
        for each in islice(feeds_in(response.body), _FEEDS):
            feed = _request(_absolute(each, response.url, joined="") or response.url, domain, 0)
            known = self._feeds.setdefault(domain, set())
            if (
                len(known) < _FEEDS
                and feed.url not in {response.url, *known}
                and registered_domain(host_name(feed.url)) == domain
            ):
                known.add(feed.url)
                self._crawler.engine.crawl(feed)

    def _takes_links(self) -> bool:
        """Whether :class:`Links` may be yielded."""
        session = Session.of(self._crawler)
        return session is not None and getattr(first_of(self._crawler), "session", None) is session

    async def _follow(  # noqa: PLR0912  # a helper of its own would cost each entry a call
        self, response: Response
    ) -> AsyncIterator[Request | Links]:
        """Requests for the pages, or the sitemaps, that a sitemap names."""
        scope = _Scope(response, getattr(self._crawler.spider, "wants_of_sitemap", None))
        session = Session.of(self._crawler)
        sitemap = Sitemap(response.body, has_dates=session is not None and session.recrawls)
        slices, takes_links = TimeSlices(), self._takes_links()
        plain: list[str] = []
        visit = session.visits.of(response.request) if session is not None and response.request else None
        clock = session.costs.clock if session is not None else float
        began = clock()
        for entry in sitemap:
            if entry is None:
                if session is not None and visit is not None:
                    session.costs.since(began, visit)
                    if session.costs.gives_up(visit):
                        return
                await slices.step()
                began = clock()
                continue
            url = _absolute(entry, response.url)
            if not scope.takes(url, is_page=sitemap.kind == PAGES):
                continue
            if sitemap.kind != PAGES:
                yield _request(url, scope.domain, scope.depth + 1)
                began = clock()  # others may have worked meanwhile
                continue
            self._first.count("aopic/sitemaps/pages")
            if takes_links and is_absolute(url):
                plain.append(url)
                if len(plain) < LINKS_A_READ:
                    continue
                yield Links(response, plain, dates=sitemap.dates)
            else:
                if plain:
                    yield Links(response, plain, dates=sitemap.dates)  # which come first
                yield Request(url)
            plain, began = [], clock()
        if plain:
            yield Links(response, plain, dates=sitemap.dates)
        if visit is not None:
            visit.comes_every(sitemap.every)
        if sitemap.kind:
            self._first.count("aopic/sitemaps/read")
            self._note(response.url, scope.left_out + sitemap.left_out)
        else:
            self._first.count("aopic/sitemaps/bad")
            self._first.warning(
                "bad",
                "%(url)s is no sitemap that can be read; further ones are only counted (aopic/sitemaps/bad)",
                url=response.url,
            )

    def _note(self, url: str, left_out: Counter[str]) -> None:
        """Count what is *left_out* of the sitemap, or of those of the robots.txt, at *url*; the first of each kind is logged."""
        for reason, n in left_out.items():
            self._first.count(f"aopic/sitemaps/left_out/{reason}", n)
            self._first.warning(
                reason,
                "%(url)s is not followed in full, because %(why)s; further cases are only counted "
                "(aopic/sitemaps/left_out/%(reason)s)",
                url=url,
                why=LEFT_OUT[reason].format(n=n),
                reason=reason,
            )


class _Scope:
    """Decides which entries of the sitemap in *response* are followed.

    Args:
        wants: Whether the spider wants a page that a sitemap names, by the URLs of both; ``None`` if it wants all.

    Attributes:
        domain: The registered domain whose pages it may name.
        depth: Indexes above it.
        left_out: Number of entries that are not followed, by reason.
    """

    def __init__(self, response: Response, wants: Callable[[str, str], bool] | None) -> None:
        self.domain: str
        self.depth: int
        self.domain, self.depth = response.meta[SITEMAP]
        self.left_out: Counter[str] = Counter()
        self._url = response.url
        self._domains = (self.domain, registered_domain(host_name(response.url)))
        self._wants = wants
        self._n_sitemaps = 0

    def takes(self, url: str, *, is_page: bool) -> bool:
        """Whether *url*, ``""`` if it is not valid, is to be followed."""
        domain = registered_domain(host_name(url)) if url else ""
        if domain and is_page and domain == self.domain:
            return self._wants is None or self._wants(url, self._url)
        if not domain:
            self.left_out["url"] += 1
        elif is_page or domain not in self._domains:
            self.left_out["domain"] += 1
        elif self.depth >= MAX_DEPTH:
            self.left_out["depth"] += 1
        elif self._n_sitemaps == MAX_SITEMAPS:
            self.left_out["sitemaps"] += 1
        else:
            self._n_sitemaps += 1
            return True
        return False


def _absolute(entry: str, base_url: str, *, joined: str = "/") -> str:
    """URL of *entry* at *base_url*, relative if it begins with *joined*; ``""`` if it cannot be requested."""
    if not is_parsable(entry):
        return ""
    if entry.startswith(joined):
        try:
            entry = urljoin(base_url, entry)
        except ValueError:
            return ""
    return entry if entry[:8].lower().startswith(_WEB) else ""


def _request(url: str, domain: str, depth: int) -> Request:
    # Its URL is taken as it stands, since no rule about URLs of pages applies, but in a form that can be requested.
    meta = {SITEMAP: (domain, depth), "verbatim_url": True}
    return Request(safe_url_string(url), meta=meta)

"""Shortcuts for links past Scrapy's spider middlewares: their effects, worked out once a page.

Between callback and scheduler, a request passes the spider middlewares and two signals. Nested generators and signals cost
more than their effects: Scrapy's own middlewares give each link the same depth and nearly always the same ``Referer``, and
check that its URL is not too long and its host is in ``allowed_domains``.

Rule 1: there is a shortcut only if all middlewares and listeners are exactly of the classes below: a subclass, or one that
is not Scrapy's, may do anything, and gets requests, one by one.

Rule 2: a shortcut has the same effects as Scrapy. Effects that differ between the links of a page are left to Scrapy's own
objects, with a request.

Rule 3: links keep their order: a request goes through at once, not through the tasks in which Scrapy handles the output of
a callback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares import referer
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.spidermiddlewares.start import StartSpiderMiddleware
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware

from .private import spider_middlewares_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

_DEPTH = ("maxdepth", "prio", "stats", "verbose_stats")
_OFFSITE = ("domains_seen", "stats", "request_scheduled")
"""Attributes that a shortcut reads; a Scrapy that has them no longer makes every link a request."""

_DROPS: dict[type, str] = {DepthMiddleware: "depth", UrlLengthMiddleware: "length"}
"""The reason for which a middleware drops a request."""

# This one looks at keys of ``meta``, which a link has none of. Older releases do not have it.
_WITHOUT_EFFECT = "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware"

# What these say depends on nothing of the link but its scheme, and whether it has the origin of its page.
_KNOWN = (
    referer.NoReferrerPolicy,
    referer.NoReferrerWhenDowngradePolicy,
    referer.DefaultReferrerPolicy,
    referer.OriginPolicy,
    referer.StrictOriginPolicy,
    referer.UnsafeUrlPolicy,
    referer.SameOriginPolicy,
    referer.OriginWhenCrossOriginPolicy,
    referer.StrictOriginWhenCrossOriginPolicy,
)


_IS_STRIPPED = re.compile(r"https?://[^/?#@]+/[!$-:<->@-~]*(?:\?[!$-:<-~]+)?").fullmatch
"""Whether a policy would take nothing out of a URL, but for the port of its scheme."""


@lru_cache
def _sent(kind: type[referer.ReferrerPolicy], page: str, link: str) -> tuple[bool, bool]:
    """Whether a policy of this *kind* sends the URL of a page, and whether its origin.

    Args:
        page: The first five characters of its URL.
        link: Those of the link's URL; empty if that has the same origin.
    """
    origin = f"{page.rstrip(':')}://page.example/"
    sent = kind().referrer(f"{origin}path", f"{link.rstrip(':')}://link.example/" if link else origin)
    return sent == f"{origin}path", sent == origin


_NOTHING: Callable[[str], str] = itemgetter(slice(0))

_A_LINK = Request("data:,")
"""Any link: of a request the policy depends on its ``meta`` alone, and the one of a link is empty."""


def first_of(crawler: Crawler) -> object:
    """The spider middleware that takes first what a callback yields; ``None`` if none does."""
    methods = spider_middlewares_of(crawler).methods["process_spider_output"]
    return next((getattr(method, "__self__", None) for method in methods if method is not None), None)


class Shortcuts:
    """The shortcuts of a crawl, from one of its spider middlewares to the scheduler.

    Args:
        begin: The spider middleware after which they begin.
    """

    def __init__(self, crawler: Crawler, begin: object) -> None:
        self._crawler = crawler
        self._begin = begin
        self._looked_at: tuple[object, ...] | None = None
        self._is_known = False
        self._all: list[BaseSpiderMiddleware] = []
        self._depth: DepthMiddleware | None = None
        self._length: UrlLengthMiddleware | None = None
        self._referer: RefererMiddleware | None = None

    def of(self, response: Response) -> Shortcut | None:
        """The shortcut for the links of *response*; ``None`` if there is an unknown middleware or listener."""
        manager = spider_middlewares_of(self._crawler)
        if manager.middlewares is not self._looked_at:
            self._looked_at = manager.middlewares
            self._is_known = self._look()
        if not self._is_known:
            return None
        is_known, offsite = self._listeners()
        if not is_known:
            return None
        depth, is_uniform = 0, True
        if self._depth is not None:
            before = response.meta.get("depth")
            is_uniform = type(before) is int and not self._depth.prio
            if type(before) is int:
                depth = before + 1
                is_uniform = is_uniform and not 0 < self._depth.maxdepth < depth
        return Shortcut(
            response,
            self._all,
            self._depth,
            self._referer,
            offsite,
            depth=depth,
            is_uniform=is_uniform,
            longest=self._length.maxlength if self._length is not None else 0,
            has_domains=offsite is not None,
        )

    def _look(self) -> bool:
        """Examine the middlewares and listeners in between; returns whether all are known."""
        self._depth = self._length = self._referer = None
        self._all = []
        engine: Any = self._crawler.engine
        if type(engine) is not ExecutionEngine or vars(engine).keys() & {"crawl", "_schedule_request"}:
            return False
        methods = spider_middlewares_of(self._crawler).methods["process_spider_output"]
        owners: list[Any] = [getattr(method, "__self__", None) for method in methods if method is not None]
        if self._begin not in owners:
            return False
        for owner in owners[owners.index(self._begin) + 1 :]:
            kind = type(owner)
            self._all.append(owner)
            if kind is DepthMiddleware and all(hasattr(owner, name) for name in _DEPTH):
                self._depth = owner
            elif kind is UrlLengthMiddleware:
                self._length = owner
            elif kind is RefererMiddleware:
                self._referer = owner
            elif (
                kind is not StartSpiderMiddleware
                and f"{kind.__module__}.{kind.__qualname__}" != _WITHOUT_EFFECT
            ):
                return False
        return True

    def _listeners(self) -> tuple[bool, OffsiteMiddleware | None]:
        """Whether all that listens to the signals is known, and what holds to ``allowed_domains``, if there are any."""
        crawler, offsite = self._crawler, None
        for _ in liveReceivers(getAllReceivers(crawler, signals.request_dropped)):
            return False, None
        for receiver in liveReceivers(getAllReceivers(crawler, signals.request_scheduled)):
            owner = getattr(receiver, "__self__", None)
            if (
                type(owner) is not OffsiteMiddleware
                or offsite is not None
                or not all(hasattr(owner, name) for name in _OFFSITE)
            ):
                return False, None
            offsite = owner
        return True, offsite if getattr(crawler.spider, "allowed_domains", None) else None


@dataclass(eq=False)
class Shortcut:
    """The effects of Scrapy's middlewares on the links of *response*.

    Attributes:
        depth: Depth of the links; 0 if none is kept.
        is_uniform: Whether the same happens to all links that are not too long.
        longest: Characters of the longest URL that is not dropped; 0 for any. A longer one is for :meth:`send`.
        has_domains: Whether any link can be :meth:`is_offsite`.
        dropped_for: Why the last request that :meth:`send` dropped was: ``depth``, ``length``, ``offsite`` or ``middleware``.
    """

    _response: Response
    _middlewares: list[BaseSpiderMiddleware]
    _counts: DepthMiddleware | None
    _referer: RefererMiddleware | None
    _offsite: OffsiteMiddleware | None
    depth: int
    is_uniform: bool
    longest: int
    has_domains: bool
    dropped_for: str = ""
    _known: dict[str, bool] = field(default_factory=dict)

    def is_offsite(self, url: str, host: str) -> bool:
        """Whether a link with *url*, to *host*, is outside ``allowed_domains``, if there are any; it is counted then."""
        offsite = self._offsite
        if offsite is None:
            return False
        known = self._known.get(host)
        if known:
            offsite.stats.inc_value("offsite/filtered")
        elif known is None:
            # Scrapy's own object decides, and logs what is new to it.
            try:
                assert offsite.crawler.spider is not None
                offsite.request_scheduled(Request(url), offsite.crawler.spider)
                self._known[host] = False
            except IgnoreRequest:
                self._known[host] = True
        return self._known[host]

    @cached_property
    def _policy(self) -> referer.ReferrerPolicy:
        assert self._referer is not None
        return self._referer.policy(self._response, _A_LINK)

    @cached_property
    def _own(self) -> str:
        return _own_part(self._response.url)

    @property
    def alike(self) -> Callable[[str], str]:
        """Says of a link's URL, in normal form, what those with the same ``Referer`` have in common."""
        if self._referer is None:
            return _NOTHING
        kind = type(self._policy)
        if kind not in _KNOWN:
            return str
        if own := self._own:
            if len({_sent(kind, own[:5], link) for link in ("", "http:", "https")}) == 1:
                return _NOTHING
            return lambda url: own if url.startswith(own) else url[:5]
        return lambda url: url[: url.find("/", len("https://"))]  # its origin

    def referer(self, url: str) -> str:
        """The ``Referer`` of a link with *url*, in normal form; ``""`` for none."""
        if self._referer is None:
            return ""
        kind, page = type(self._policy), self._response.url
        if kind in _KNOWN and (own := self._own) and _IS_STRIPPED(page):
            whole, origin = _sent(kind, page[:5], "" if url.startswith(own) else url[:5])
            return page if whole else own if origin else ""
        return self._policy.referrer(page, url) or ""

    def send(self, request: Request) -> Request | None:
        """Apply Scrapy's own objects to *request* and return the result; ``None`` if it is dropped."""
        sent = request
        for middleware in self._middlewares:
            processed = middleware.get_processed_request(sent, self._response)
            if processed is None:
                self.dropped_for = _DROPS.get(type(middleware), "middleware")
                return None
            sent = processed
        if self._offsite is not None:
            assert self._offsite.crawler.spider is not None
            try:
                self._offsite.request_scheduled(sent, self._offsite.crawler.spider)
            except IgnoreRequest:
                self.dropped_for = "offsite"
                return None
        return sent

    def count(self, n: int) -> None:
        """Count *n* links that came as far as the depth is counted, and are not sent by :meth:`send`."""
        counts = self._counts
        if counts is not None and n:
            if counts.verbose_stats:
                counts.stats.inc_value(f"request_depth_count/{self.depth}", n)
            counts.stats.max_value("request_depth_max", self.depth)


def _own_part(url: str) -> str:
    """Beginning of all URLs in normal form that have the origin of *url*; ``""`` if that may be written in another way there."""
    part = url[: url.find("/", len("https://")) + 1]
    is_normal = part.startswith(("http://", "https://")) and part.islower() and "@" not in part
    return part if is_normal and not part.endswith((":80/", ":443/")) else ""

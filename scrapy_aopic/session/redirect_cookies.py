"""Cookies of redirect chains: what a host sets on the way to a page is sent until the page is there, and then forgotten.

Consent pages, load balancers and log-in checks redirect until they get their cookie back, as they do from every browser.
So each chain has a jar of its own, with the rules of Scrapy's cookies: no other host than those that a cookie is for gets
it, and none is for a public suffix. A chain goes through the queue, so its jar waits here meanwhile, in memory only: it is
no part of the queued request, and a chain that comes back after others, or in another run, begins without cookies.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from scrapy_aopic.request_errors import ReloadError
from scrapy_aopic.web.chain_cookies import ChainCookies

from .stats import FirstOnly, Stats

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from .visit import Visit

logger = logging.getLogger(__name__)

MAX_CHAINS = 1000
"""Chains that wait in the queue with their cookies: 10 MB at most, and 3 MB with a cookie each."""


class RedirectCookies:
    """Keeps the cookies of chains that wait.

    Args:
        is_on: Whether cookies are kept at all: only if nothing else does, and nobody has turned them off.
    """

    def __init__(self, crawler: Crawler, stats: Stats, *, is_on: bool) -> None:
        self._is_on = is_on
        self._stats = stats
        self._first = FirstOnly(logger, crawler)
        self._waiting: OrderedDict[str, ChainCookies] = OrderedDict()

    def send(self, visit: Visit) -> None:
        """Add the cookies of its chain to the request of *visit*."""
        request = visit.request
        if not self._waiting or "redirect_urls" not in request.meta:
            return
        cookies = self._waiting.pop(_chain(request), None)
        if cookies is not None:
            visit.sends(cookies)
            cookies.add_to(request)

    def keep(self, request: Request, visit: Visit) -> bool:
        """Keep the cookies of *visit* for *request*, which a middleware made of its request; returns whether there are any."""
        cookies, sent = visit.cookies, visit.request
        if not self._is_on:
            return False
        is_redirect = request.meta.get("redirect_times") != sent.meta.get("redirect_times")
        if is_redirect and visit.answer is not None and "Set-Cookie" in visit.answer.headers:
            if cookies is None:
                cookies = ChainCookies()
                self._stats.count("aopic/cookies/chains")
            cookies.take(sent, visit.answer)
        if cookies is None:
            return False
        if visit.cookies is not None and request.headers.get("Cookie") == sent.headers.get("Cookie"):
            request.headers.setlist("Cookie", visit.cookies.given)
        self._waiting[_chain(request)] = cookies
        if len(self._waiting) > MAX_CHAINS:
            self._waiting.popitem(last=False)
        return True

    def forget(self, request: Request) -> None:
        """*request*, whose cookies were kept, will not be made."""
        self._waiting.pop(_chain(request), None)

    def lost(self, visit: Visit) -> None:
        """No middleware let the answer of *visit* through, and its page fails: say so if it asks for cookies in vain."""
        assert visit.answer is not None
        if visit.cookies is None and visit.failure != ReloadError.reason:
            return
        self._stats.count("aopic/cookies/in_vain")
        hint = ""
        if visit.cookies is not None:
            hint = ", although the cookies that were set on the way were sent"
        elif "Set-Cookie" in visit.answer.headers:
            hint = ", and the cookies that it sets are not kept (COOKIES_ENABLED)"
        self._first.warning(
            "in vain",
            "%(url)s redirects again and again%(hint)s, and is not fetched; further such pages are only counted "
            "(aopic/cookies/in_vain)",
            url=visit.request.url,
            hint=hint,
        )


def _chain(request: Request) -> str:
    """URL with which the chain of *request* began."""
    urls = request.meta.get("redirect_urls")
    return str(urls[0]) if urls else request.url

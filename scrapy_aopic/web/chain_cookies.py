"""The cookies of a chain of redirects, by the rules of Scrapy's middleware for cookies.

That middleware itself would fetch the public suffix list from the web for the first cookie with a domain, and nothing else
goes on meanwhile: so what is a public suffix is said by the list that the crawl has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.http.cookies import CookieJar
from scrapy.utils.httpobj import urlparse_cached

from .suffixes import is_public_suffix

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

MAX_BYTES = 8192
"""Bytes of the cookies of a chain: servers take no longer headers. What a response sets beyond them is not kept."""

MAX_COOKIES = 50
"""Cookies of a chain; browsers have as many for a domain."""


class ChainCookies:
    """The cookies of one chain.

    Attributes:
        given: ``Cookie`` headers that its last request had without them.
    """

    def __init__(self) -> None:
        self._jar = CookieJar()
        self.given: list[bytes] = []
        self._n_bytes = self._n = 0

    def take(self, request: Request, response: Response) -> None:
        """Keep what *response* to *request* sets, unless there is no room for it."""
        lines = response.headers.getlist("Set-Cookie")
        n_bytes, n = self._n_bytes + sum(map(len, lines)), self._n + len(lines)
        if n_bytes > MAX_BYTES or n > MAX_COOKIES or request.meta.get("dont_merge_cookies"):
            return
        self._n_bytes, self._n = n_bytes, n
        host = urlparse_cached(request).hostname or ""
        for cookie in self._jar.make_cookies(response, request):
            domain = cookie.domain.removeprefix(".")
            if is_public_suffix(domain):
                if domain != host:
                    continue
                cookie.domain = host
            self._jar.set_cookie_if_ok(cookie, request)

    def add_to(self, request: Request) -> None:
        """Have *request* sent with the cookies that belong to its URL, behind those that it is given by the spider."""
        self.given = request.headers.getlist("Cookie")
        if request.meta.get("dont_merge_cookies"):
            return
        request.headers.pop("Cookie", None)
        self._jar.add_cookie_header(request)
        if self.given:
            request.headers["Cookie"] = b"; ".join([*self.given, *request.headers.getlist("Cookie")])

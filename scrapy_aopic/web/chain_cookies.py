"""The cookies of a chain of redirects, by the rules of Scrapy's middleware for cookies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.cookies import CookiesMiddleware

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

MAX_BYTES = 8192
"""Bytes of the cookies of a chain: servers take no longer headers. What a response sets beyond them is not kept."""

MAX_COOKIES = 50
"""Cookies of a chain; browsers have as many for a domain."""


class ChainCookies(CookiesMiddleware):
    """The cookies of one chain.

    Attributes:
        given: ``Cookie`` headers that its last request had without them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given: list[bytes] = []
        self._n_bytes = self._n = 0

    def take(self, request: Request, response: Response) -> None:
        """Keep what *response* to *request* sets, unless there is no room for it."""
        lines = response.headers.getlist("Set-Cookie")
        n_bytes, n = self._n_bytes + sum(map(len, lines)), self._n + len(lines)
        if n_bytes <= MAX_BYTES and n <= MAX_COOKIES:
            self._n_bytes, self._n = n_bytes, n
            self.process_response(request, response)

    def add_to(self, request: Request) -> None:
        """Have *request* sent with the cookies that belong to its URL, behind those that it is given by the spider."""
        self.given = request.headers.getlist("Cookie")
        self.process_request(request)
        if self.given:
            request.headers["Cookie"] = b"; ".join([*self.given, *request.headers.getlist("Cookie")])

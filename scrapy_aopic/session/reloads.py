"""Pages that lead to themselves: a redirect or a refresh to itself is followed once, and again only if something has changed.

Such a page may want a cookie, which the next request sends, or may be one that browsers reload, such as a news ticker. If the
next response has the same body, leads to the same place and sets no cookie that was not sent, nothing more will come. What
refreshes itself is then taken for the page, and what only redirects has failed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from scrapy_aopic.request_errors import ReloadError
from scrapy_aopic.web.meta import RELOADED

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from .visit import Visit, Visits


REDIRECTS = (301, 302, 303, 307, 308)


class Reloads:
    """Notices when a page that leads to itself stays as it is.

    Args:
        keeps_cookies: Whether cookies are kept and sent, if only for a chain of redirects.
    """

    def __init__(self, visits: Visits, *, keeps_cookies: bool) -> None:
        self._visits = visits
        self._keeps_cookies = keeps_cookies

    def answered(self, request: Request, response: Response) -> None:
        """*response* came to *request*, and no middleware has looked at it yet.

        Raises:
            ReloadError: If it leads to the same page without end.
        """
        visit = self._visits.get(request)
        if visit is None:
            return
        visit.answered(response)
        if (before := request.meta.get(RELOADED)) is None:
            return
        visits, trace = before
        if visits != visit.lease.visits:
            _begin_anew(request)
        if trace == _trace(response) and not self._sets_cookie(request, response):
            if response.status in REDIRECTS:
                visit.failed(ReloadError.reason)
                raise ReloadError(f"{request.url} redirects to itself, and nothing has changed since")
            request.meta.setdefault("dont_redirect", True)

    def mark(self, request: Request, visit: Visit) -> None:
        """*request* is what a middleware made of that of *visit*, for the same page: note by what it is a reload."""
        times = request.meta.get("redirect_times")
        if visit.answer is not None and times and times != visit.request.meta.get("redirect_times"):
            request.meta[RELOADED] = visit.lease.visits, _trace(visit.answer)

    def _sets_cookie(self, request: Request, response: Response) -> bool:
        """Whether the next request would send a cookie that *request* did not."""
        if not self._keeps_cookies or request.meta.get("dont_merge_cookies"):
            return False
        sent = {each.strip() for each in (request.headers.get("Cookie") or b"").split(b";")}
        return any(
            each.partition(b";")[0].strip() not in sent for each in response.headers.getlist("Set-Cookie")
        )


def _begin_anew(request: Request) -> None:
    """Let *request*, which visits its page again, not be bound by how often it led to itself at former visits."""
    meta = request.meta
    times, urls, reasons = (
        meta.get(f"redirect_{name}", default)
        for name, default in (("times", 0), ("urls", []), ("reasons", []))
    )
    own = 0
    while own < len(urls) and urls[-1 - own] == request.url:
        own += 1
    meta["redirect_times"], meta["redirect_urls"], meta["redirect_reasons"] = (
        max(times - own, 0), urls[: len(urls) - own], reasons[: len(reasons) - own],
    )  # fmt: skip
    meta.pop("redirect_ttl", None)


def _trace(response: Response) -> bytes:
    """Bytes that differ if *response* differs from another one that leads to the same page, or leads elsewhere."""
    return blake2b((response.headers.get("Location") or b"") + b"\n" + response.body, digest_size=8).digest()

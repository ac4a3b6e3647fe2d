"""A link on its way from a callback to the queue: what makes a request a link, and how a link is stored without a request.

Rule 1: rules against traps, and against files that are no pages, apply to links, because anybody can write a link. A request
that a spider makes on purpose is sent as it is, whatever its URL looks like and whatever type the response has.

Rule 2: a link that is for nothing but a URL becomes a line of text, and most are. Nothing happens to them on their way to the
scheduler that is not the same for all links of the page (:mod:`scrapy_aopic._engine.direct_requests`), so no request is made of
them before their page is about to be fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from msgspec import Struct
from scrapy import Request, Spider
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse
from scrapy.spiders import CrawlSpider

from scrapy_aopic.links import Links
from scrapy_aopic.web.meta import SITEMAP
from scrapy_aopic.web.request_codec import name_of
from scrapy_aopic.web.request_rows import tail_of

if TYPE_CHECKING:
    from scrapy_aopic._engine.direct_requests import Shortcut

Callback: TypeAlias = Callable[..., Any] | None

Drop: TypeAlias = "Callable[[FoundLink, Response], None]"
"""Counts and logs that a link of a page is dropped."""

_HAS_ANCHOR = re.compile(r"<(?:[a-z]\w*:)?(?:a|area)\s", re.IGNORECASE).search

_NO_NAMES = ("", "")


class FoundLink(Struct, gc=False):
    """A link of a page, or a request that its callback makes on purpose: found, admitted, sent.

    Attributes:
        url: Its URL: as the callback has it, and in normal form once it is admitted.
        request: The request for it; ``None`` if there is only a URL.
        is_link: Whether it is a link that the page happens to have, and not made on purpose.
        names: Names of its callback and errback, if it is for nothing but its URL and can be stored as a line of text;
            ``None`` if it is sent as a request.
        links: The object that yielded it, if there is only a URL.
        is_canonical: Whether the page names it as its canonical page.
        is_refused: Whether it is not to be queued.
        host: Name of the host; empty if *key* is no page key.
        key: Page key; other bytes that stand for its URL if it has none, and empty if it does not count as a link.
        weight: Weight in thousandths, ``None`` if links do not differ in weight.
        tail: The rest of its line after the URL, if it is stored as one.
        kept: The request for it, if the spider has made one with the same URL, as long as it has other references.
    """

    url: str
    request: Request | None
    is_link: bool
    names: tuple[str, str] | None = None
    links: Links | None = None
    is_canonical: bool = False
    is_refused: bool = False
    host: str = ""
    key: bytes = b""
    weight: int | None = None
    tail: str = ""
    kept: ref[Request] | None = None

    def made(self) -> Request:
        """The request for it, which is made if there is none with its URL.

        Raises:
            ValueError: If its URL is invalid.
        """
        request = self.request
        if request is None:
            assert self.links is not None
            self.request = request = self.links.request(self.url)
        elif request.url != self.url:
            self.request = request = request.replace(url=self.url)
        return request


def link_test(response: Response, spider: Spider) -> Callable[[Request], bool]:
    """Returns a test whether a request that a callback yields for *response* is a link, and not made on purpose.

    It is a link if nothing distinguishes it from the page that it is on: an ordinary GET or HEAD with the page's own callback,
    from a page of the web that has links at all; or if a rule of a ``CrawlSpider`` made it. So an API's reference to its next
    page is no link, and neither are a list's entries for another callback, sitemaps and forms.
    """
    asked = response.request
    is_sitemap = SITEMAP in response.meta if asked is not None else False
    makes_links = is_sitemap or (response.url.startswith("http") and _has_links(response))
    default: Callable[..., object] | None = getattr(spider, "parse", None)
    own = asked.callback if asked is not None and asked.callback is not None else default
    has_rules = isinstance(spider, CrawlSpider)

    def is_link(request: Request) -> bool:
        if not makes_links or request.dont_filter or request.method not in ("GET", "HEAD"):
            return False
        meta = request.meta
        if meta.get("verbatim_url") or SITEMAP in meta:
            return False
        if is_sitemap or asked is None or (has_rules and "rule" in meta):
            return True
        callback = request.callback
        return (callback if callback is not None else default) == own

    return is_link


def _has_links(response: Response) -> bool:
    if isinstance(response, HtmlResponse):
        return True
    if isinstance(response, JsonResponse) or not isinstance(response, TextResponse):
        return False
    try:
        return _HAS_ANCHOR(response.text) is not None
    except (LookupError, ValueError):  # its charset is unknown: no parser finds a link in it
        return False


class LinkWriter:
    """Writes links of one page as lines.

    Args:
        shortcut: The changes that middlewares make to all links of the page.
    """

    def __init__(self, spider: Spider, shortcut: Shortcut) -> None:
        self._spider = spider
        self._shortcut = shortcut
        self._names: dict[tuple[Callback, Callback], tuple[str, str] | None] = {}
        self._tails: dict[tuple[tuple[str, str], bool], dict[str, str | None]] = {}

    def names(self, callback: Callback, errback: Callback) -> tuple[str, str] | None:
        """Names of *callback* and *errback* in a line; ``None`` if they are no methods of the spider."""
        if callback is None and errback is None:
            return _NO_NAMES
        try:
            if (callback, errback) not in self._names:
                self._names[callback, errback] = self._look_up(callback, errback)
            return self._names[callback, errback]
        except TypeError:  # it has no hash
            return self._look_up(callback, errback)

    def _look_up(self, callback: Callback, errback: Callback) -> tuple[str, str] | None:
        try:
            return (
                name_of(self._spider, callback) if callback is not None else "",
                name_of(self._spider, errback) if errback is not None else "",
            )
        except ValueError:
            return None

    def write(self, links: Iterable[FoundLink]) -> None:
        """Set what is written after the URL of each of *links* that has names; take these from what cannot be a line."""
        longest, alike = self._shortcut.longest, self._shortcut.alike
        before, is_before, tails = _NO_NAMES, True, self._tails.setdefault((_NO_NAMES, True), {})
        for link in links:
            names, url, is_link = link.names, link.url, link.is_link
            if names is None or link.is_refused:
                continue
            if names is not before or is_link is not is_before:  # most are as the one before them
                before, is_before = names, is_link
                tails = self._tails.setdefault((names, is_link), {})
            part = alike(url)
            if part not in tails:
                tails[part] = self._tail(names, self._shortcut.referer(url), is_link=is_link)
            tail = tails[part]
            if tail is None or 0 < longest < len(url):
                link.names = None
            else:
                link.tail = tail

    def _tail(self, names: tuple[str, str], referer: str, *, is_link: bool) -> str | None:
        if referer and not is_line(referer):
            return None
        return tail_of(*names, self._shortcut.depth, referer, is_on_purpose=not is_link)


def is_line(url: str) -> bool:
    """Whether *url* is of the web, and can be written as a line of text."""
    return url.startswith(("http://", "https://")) and url.isascii() and url.isprintable()

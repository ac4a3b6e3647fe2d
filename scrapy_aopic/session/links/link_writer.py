"""Writes links of a page as lines of text, without requests: those that are for nothing but a URL.

Most links are. Nothing happens to them on their way to the scheduler that is not the same for all links of the page
(:mod:`scrapy_aopic._engine.direct_requests`), so no request is made of them before their page is about to be fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy_aopic.web.request_codec import name_of
from scrapy_aopic.web.request_rows import tail_of

from .link_targets import is_line

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_aopic._engine.direct_requests import Shortcut

    from .found_link import FoundLink

Callback: TypeAlias = Callable[..., Any] | None

_NO_NAMES = ("", "")


class LinkWriter:
    """Writes links of one page as lines.

    Args:
        shortcut: The changes that middlewares make to all links of the page.
    """

    def __init__(self, spider: Spider, shortcut: Shortcut) -> None:
        self._spider = spider
        self._shortcut = shortcut
        self._names: dict[tuple[Callback, Callback], tuple[str, str] | None] = {}
        self._tails: dict[tuple[tuple[str, str], str, bool], str | None] = {}

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
        tails, longest, alike = self._tails, self._shortcut.longest, self._shortcut.alike
        for link in links:
            names, url = link.names, link.url
            if names is None or link.is_refused:
                continue
            kind = names, alike(url), link.is_link
            if kind not in tails:
                tails[kind] = self._tail(names, self._shortcut.referer(url), is_link=link.is_link)
            tail = tails[kind]
            if tail is None or 0 < longest < len(url):
                link.names = None
            else:
                link.tail = tail

    def _tail(self, names: tuple[str, str], referer: str, *, is_link: bool) -> str | None:
        if referer and not is_line(referer):
            return None
        return tail_of(*names, self._shortcut.depth, referer, is_on_purpose=not is_link)

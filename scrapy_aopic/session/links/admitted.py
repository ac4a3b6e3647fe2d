"""What the URL of a link comes to: its normal form and its page key, or why it is not to be queued."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.records import HOST_BYTES
from scrapy_aopic.web.urls import REMEMBERED, SHORT, Verdict

if TYPE_CHECKING:
    from scrapy_aopic.web.page_keys import PageKeys

    from .admission import Admission


class Place(NamedTuple):
    """What the URL of a link comes to.

    Attributes:
        verdict: Its normal form, or why it is refused.
        host: Name of the host.
        key: Page key; that of the URL as it is, if it is refused; empty if that is none.
        page: The part of it that distinguishes pages, whatever counts as their host.
        is_line: Whether the normal form is :func:`is_line`.
    """

    verdict: Verdict
    host: str
    key: bytes
    page: bytes
    is_line: bool


class Places:
    """Finds the places of URLs; the last ones are remembered, as most links are to pages that others link to as well."""

    def __init__(self, admission: Admission, keys: PageKeys) -> None:
        self._judge = admission.judge_link
        self._key = keys.of_link
        # A rule of the user's own may say something else the next time.
        self._remembered = self._find
        if not admission.has_own_rule:
            self._remembered = remembered = lru_cache(REMEMBERED)(self._find)
            admission.networks.on_change(remembered.cache_clear)

    def of(self, url: str) -> Place:
        """The place of *url*."""
        return self._remembered(url) if len(url) <= SHORT else self._find(url)

    def _find(self, url: str) -> Place:
        verdict = self._judge(url)
        normal = verdict.url
        try:
            host, key = self._key(url if verdict.reason else normal)
        except ValueError:  # no request can be made of it
            host, key = "", b""
        return Place(verdict, host, key, key[HOST_BYTES:], is_line(normal))


def is_line(url: str) -> bool:
    """Whether *url* is of the web, and can be written as a line of text."""
    return url.startswith(("http://", "https://")) and url.isascii() and url.isprintable()

"""Admission of found links: the normal form of each URL and its page key, or why it is not to be queued."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import ComponentError
from scrapy_aopic.web.url_keys import key_of_plain_url
from scrapy_aopic.web.urls import REMEMBERED, SHORT, JudgedUrl

from .found_link import FoundLink, is_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.web.page_keys import PageKeys

    from .admission import Admission

LONG = 20_000
"""Characters of a URL from which on links are distinguished by it as it is: its normal form takes a tenth of a second a megabyte."""


class LinkTarget(NamedTuple):
    """The page that a link leads to, or why it is refused.

    Attributes:
        judged: Its normal form, or why it is refused.
        host: Name of the host.
        key: Page key; that of the URL as it is, if it is refused; empty if that is invalid.
        is_line: Whether the normal form is :func:`is_line`.
    """

    judged: JudgedUrl
    host: str
    key: bytes
    is_line: bool


class LinkTargets:
    """Admits links, and finds what URLs lead to; the last ones are remembered, as most links are to pages that others link to as well."""

    def __init__(self, admission: Admission, keys: PageKeys) -> None:
        self._admission = admission
        self._judge = admission.judge_link
        self._keys = keys
        # A rule of the user's own may say something else the next time.
        self._remembered = self._find
        if not admission.has_own_rule:
            self._remembered = remembered = lru_cache(REMEMBERED)(self._find)
            admission.networks.on_change(remembered.cache_clear)

    def of(self, url: str) -> LinkTarget:
        """The target of a link with *url*."""
        return self._remembered(url) if len(url) <= SHORT else self._find(url)

    def admit(self, found: Iterable[FoundLink], page: str) -> None:
        """Give each of *found* its URL in normal form, host and page key, or refuse it, which is counted and logged.

        Args:
            page: URL of the page that has them.
        """
        remembered = self._remembered
        for link in found:
            if link.names is None or not link.is_link:
                self._admit_request(link, page)
                continue
            url = link.url
            target = remembered(url) if len(url) <= SHORT else self._find(url)
            judged = target.judged
            link.host = target.host
            link.key = target.key
            if judged.reason or judged.url != url:
                link.is_refused = not self._admission.admit_judged(url, judged, page)
                link.url = judged.url
            if not target.is_line:
                link.names = None

    def _admit_request(self, link: FoundLink, page: str) -> None:
        """Admit a *link* that is a request, of which more than the URL is judged."""
        admission = self._admission
        try:
            request = link.made()
        except ValueError:  # its URL is not valid, which is reported as for all others
            admission.admit_judged(link.url, self._judge(link.url), page)
            link.is_refused = True
            return
        admitted = admission.admit_link(request, page) if link.is_link else admission.admit(request, page)
        link.is_refused = admitted is None
        link.request = admitted if admitted is not None else request
        self.identify(link)
        if link.names is not None and not is_line(link.url):
            link.names = None

    def identify(self, link: FoundLink) -> None:
        """Set the URL, the host and the page key of *link*, which has a request."""
        request = link.request
        assert request is not None
        link.url = url = request.url
        if len(url) <= LONG:
            try:
                link.host, link.key = self._keys(request)
            except ComponentError:  # the scheduler meets it again, and says so
                pass
            else:
                return
        link.host, link.key = "", sha1(url.encode()).digest()  # noqa: S324

    def _find(self, url: str) -> LinkTarget:
        judged = self._judge(url)
        normal, reason, host = judged
        if host and not reason:  # as most are
            return LinkTarget(judged, host, key_of_plain_url(host, normal), is_line=True)
        try:
            host, key = self._keys.of_link(url if reason else normal)
        except ValueError:  # no request can be made of it
            host, key = "", b""
        return LinkTarget(judged, host, key, is_line(normal))

"""The page that a request is for: the name of its host, and its page key.

A page key is made of Scrapy's fingerprint of the request. A crawl needs it several times for each link, most links are
to pages that others link to as well, and most URLs look alike. So under Scrapy's own fingerprinter the fingerprint of a
plain request is computed from its URL alone, and the last ones are remembered. It is the same fingerprint, which is
checked with two requests when a crawl starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.utils.python import global_object_name
from scrapy.utils.request import RequestFingerprinter, RequestFingerprinterProtocol

from scrapy_aopic.core.records import host_key, page_key
from scrapy_aopic.exceptions import ANY_ERROR, ComponentError

from .meta import OWN_SLOT, slot_key
from .request_rows import SLOT
from .url_keys import key_of_parts, key_of_plain_url, key_of_url
from .urls import REMEMBERED, SHORT, plain_host

_PROBES = (
    "http://host.example/a/page",
    "http://host.example/a/page?b=2&a=%7e#c",
    # escapes of each kind, in the forms that are changed and in those that are not
    "http://host.example:8080/%7e%20%2f%2c%C3%a9%C3%A9/(a)",
    "http://host.example/?b=%e9&b=/&a[]=1+2&a=%20=&&%26&a1",
)
"""URLs by which the two fingerprints are compared."""


class PageKeys:
    """Gives the page keys of requests, with the names of their hosts.

    Args:
        fingerprinter: That of the crawl.
        note_slow: Is called for each key that is found the slow way.

    Raises:
        ComponentError: If that raises, or gives what is no fingerprint.
    """

    def __init__(
        self, fingerprinter: RequestFingerprinterProtocol, note_slow: Callable[[], object] = lambda: None
    ) -> None:
        self._fingerprint = fingerprinter.fingerprint
        self._name = global_object_name(type(fingerprinter))
        # Scrapy may change what it hashes; a fingerprinter of the user's may look at headers.
        self.are_of_urls = type(fingerprinter) is RequestFingerprinter and all(
            key_of_url(url) == self._by_fingerprinter(Request(url)) for url in _PROBES
        )
        self._note_slow = note_slow
        self._remembered = lru_cache(REMEMBERED)(self._find)

    def __call__(self, request: Request) -> tuple[str, bytes]:
        """Name of the host of *request*, and key of its page."""
        meta = request.meta
        slot = meta.get(SLOT)
        if (
            self.are_of_urls
            and request.method == "GET"
            and not request.body
            and (slot is None or slot == meta.get(OWN_SLOT))
            and not meta.get("verbatim_url")
        ):
            url = request.url
            return self._remembered(url) if len(url) <= SHORT else self._find(url)
        self._note_slow()
        return self._by_fingerprinter(request)

    def of_link(self, url: str) -> tuple[str, bytes]:
        """Host and page key of a request for nothing but *url*, if that is all that they depend on (``are_of_urls``)."""
        return self._remembered(url) if len(url) <= SHORT else self._find(url)

    def of_url(self, url: str) -> tuple[str, bytes] | None:
        """Host and page key of a request for *url*, in normal form; ``None`` if they depend on more than the URL."""
        name = plain_host(url)
        return (name, key_of_plain_url(name, url)) if self.are_of_urls and name else None

    def _find(self, url: str) -> tuple[str, bytes]:
        name = plain_host(url)
        if name:
            return name, key_of_plain_url(name, url)
        self._note_slow()
        return key_of_parts(urlsplit(url).hostname or "", url)

    def _by_fingerprinter(self, request: Request) -> tuple[str, bytes]:
        """Host and page key of *request*, by the fingerprinter of the crawl."""
        name = slot_key(request)
        try:
            fingerprint = self._fingerprint(request)
            return name, page_key(host_key(name), fingerprint)
        except ANY_ERROR as error:
            raise ComponentError(
                f"REQUEST_FINGERPRINTER_CLASS ({self._name}) gives no fingerprint of {request}, which is not requested: "
                f"{type(error).__name__}: {error}"
            ) from error

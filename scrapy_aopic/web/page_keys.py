"""Where a request belongs: the name of its host, and the key of its page.

A page is told by Scrapy's fingerprint of the request. A crawl asks for it several times for each link, most links are
to pages that others link to as well, and most URLs look alike; so that of a plain request under Scrapy's own
fingerprinter is worked out from the URL alone, and the last ones are remembered. It is the same fingerprint, which is
compared once.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.utils.request import RequestFingerprinter
from w3lib.url import canonicalize_url

from scrapy_aopic.core.records import host_key, page_key

from .meta import OWN_SLOT, SLOT, slot_key
from .urls import REMEMBERED, SHORT, plain_host

if TYPE_CHECKING:
    from scrapy.utils.request import RequestFingerprinterProtocol

_PROBE = "http://host.example/a/page?b=2&a=%7e#c"


class Places:
    """Finds the places of requests.

    Args:
        fingerprinter: That of the crawl.
    """

    def __init__(self, fingerprinter: RequestFingerprinterProtocol) -> None:
        self._fingerprint = fingerprinter.fingerprint
        # Scrapy may change what it hashes; one of the user's may look at headers.
        self.are_of_urls = type(fingerprinter) is RequestFingerprinter and all(
            _place(url) == self._asked(Request(url)) for url in (_PROBE, _PROBE.partition("?")[0])
        )
        self._of_url = lru_cache(REMEMBERED)(_place)

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
            return self._of_url(url) if len(url) <= SHORT else _place(url)
        return self._asked(request)

    def of_url(self, url: str) -> tuple[str, bytes] | None:
        """Place of a request for nothing but *url*, in normal form; ``None`` if only the request itself can tell."""
        name = plain_host(url)
        return _plain_place(url, name) if self.are_of_urls and name else None

    def _asked(self, request: Request) -> tuple[str, bytes]:
        """Place of *request* by the fingerprint that its crawl gives it."""
        name = slot_key(request)
        return name, page_key(host_key(name), self._fingerprint(request))


def _place(url: str) -> tuple[str, bytes]:
    """Place of a plain request for *url*."""
    name = plain_host(url)
    if not name:
        url, name = json.dumps(canonicalize_url(url))[1:-1], urlsplit(url).hostname or ""
    return _plain_place(url, name)


def _plain_place(url: str, name: str) -> tuple[str, bytes]:
    """Place of a plain request for *url*, which is canonical and needs no escapes in JSON, of the host called *name*."""
    data = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'  # what Scrapy hashes
    return name, page_key(host_key(name), sha1(data.encode(), usedforsecurity=False).digest())

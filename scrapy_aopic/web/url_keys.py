"""The page key of a request under Scrapy's own fingerprinter, of what it is for alone: without a request, and without Scrapy.

:class:`~.page_keys.PageKeys` compares it with Scrapy's when a crawl starts.
"""

from __future__ import annotations

import json
from hashlib import sha1
from urllib.parse import urlsplit

from w3lib.url import canonicalize_url

from scrapy_aopic.core.records import host_key, page_key

from .urls import plain_host


def key_of_url(url: str) -> tuple[str, bytes]:
    """Host and page key of a plain request for *url*."""
    name = plain_host(url)
    if not name:
        return key_of_parts(urlsplit(url).hostname or "", url)
    return key_of_plain_url(name, url)


def key_of_plain_url(name: str, url: str) -> tuple[str, bytes]:
    """Host *name* and page key of a plain request for *url*, which is canonical and needs no escapes in JSON."""
    data = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'  # what Scrapy hashes
    return name, page_key(host_key(name), sha1(data.encode(), usedforsecurity=False).digest())


def key_of_parts(
    name: str, url: str, method: str = "GET", body: bytes = b"", *, is_verbatim: bool = False
) -> tuple[str, bytes]:
    """Host *name* and page key of a request that is more than a plain URL."""
    url = url if is_verbatim else canonicalize_url(url)
    data = json.dumps({"body": body.hex(), "headers": {}, "method": method, "url": url}, sort_keys=True)
    return name, page_key(host_key(name), sha1(data.encode(), usedforsecurity=False).digest())

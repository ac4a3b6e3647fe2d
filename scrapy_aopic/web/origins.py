"""Origins: a scheme, a name and a port, each with a robots.txt of its own (RFC 9309, 2.3; RFC 6454)."""

from __future__ import annotations

from urllib.parse import urlsplit

from scrapy_aopic.core.records import host_key, page_key

FILES = ROBOTS_TXT, TDMREP_JSON = "/robots.txt", "/.well-known/tdmrep.json"
"""Paths of the files of an origin that a crawl fetches for itself."""

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def origin_of(scheme: str, netloc: str) -> str:
    """The origin of URLs with *scheme* and *netloc*, such as ``https://example.com``: without user and default port."""
    name = netloc.rpartition("@")[2].lower()
    return f"{scheme}://{name.removesuffix(_DEFAULT_PORTS.get(scheme, ':80'))}"


def origin_of_file(url: str, *paths: str) -> str | None:
    """The origin whose file at one of *paths*, such as ``/robots.txt``, *url* is; ``None`` if it is another file.

    Raises:
        ValueError: If *url* is not a URL.
    """
    parts = urlsplit(url)
    is_one = parts.path in paths and not parts.query
    return origin_of(parts.scheme, parts.netloc) if is_one else None


def file_key(origin: str, path: str = ROBOTS_TXT) -> bytes:
    """Key of what a job keeps of the file of *origin* at *path*, beside all else of its host."""
    name = origin if path == ROBOTS_TXT else f"{origin}{path}"
    return page_key(host_key(host_name(origin)), name.encode())


def host_name(url: str) -> str:
    """Name of the host of *url*, or of an origin; ``""`` if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""

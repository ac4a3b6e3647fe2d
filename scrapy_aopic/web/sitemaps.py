"""Sitemaps, which anyone may have written: parsed in steps, and dropped from memory as they are parsed.

The format is that of https://www.sitemaps.org/protocol.html: a ``urlset`` has a ``loc`` in each ``url``, a
``sitemapindex`` one in each ``sitemap``.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from lxml import etree  # type: ignore[import-untyped]  # has no types

from scrapy_aopic.core.robots.rules import lines_of

from .urls import is_parsable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 50 << 20
"""Bytes of a sitemap that are read, decompressed: as many as the protocol allows."""

MAX_ENTRIES = 50_000
"""Entries of a sitemap that are read: as many as the protocol allows."""

PAGES, SITEMAPS = "urlset", "sitemapindex"

_CHUNK = 16_384
"""Bytes that are parsed in a step, which takes 0.3 to 8 ms, depending on how many elements they have."""

_BEGINNING = 1 << 20
"""Bytes within which the root element must begin: in a text without one, nothing can be dropped from memory."""

_NAMED = re.compile(rb"^[ \t]*sitemap[ \t]*:([^\n]*)", re.IGNORECASE | re.MULTILINE)

_GZIP = b"\x1f\x8b\x08"
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_MEMBERS = 100
"""Members of a gzip file that are read: an empty one takes 20 bytes only, so that a small file may have very many."""


def sitemaps_in(robots_txt: bytes, base_url: str) -> Iterator[str]:
    """The sitemaps that *robots_txt*, found at *base_url*, names."""
    for match in _NAMED.finditer(lines_of(robots_txt)):
        url = match[1].partition(b"#")[0].strip().decode("utf-8", "replace")
        if is_parsable(url):
            with suppress(ValueError):  # no URL
                yield urljoin(base_url, url)


class Sitemap:
    """The entries of the sitemap in *body*, compressed or not.

    Attributes:
        kind: :data:`PAGES` or :data:`SITEMAPS`; ``""`` until that is known.
    """

    def __init__(self, body: bytes) -> None:
        self.kind = ""
        self._body = body

    def __iter__(self) -> Iterator[str | None]:
        """URLs as they stand in the text, and ``None`` after each step, up to where the text is no sitemap any more."""
        parser = etree.XMLPullParser(
            ("start", "end"),
            tag=("{*}loc", f"{{*}}{PAGES}", f"{{*}}{SITEMAPS}"),
            recover=True,
            resolve_entities=False,  # and no collect_ids=False, with which lxml 6 opens the DTD that a text names
            remove_comments=True,
            remove_pis=True,
        )
        root: Any = None
        n_bytes = n_entries = 0
        with suppress(etree.LxmlError):
            for chunk in _chunks(self._body):
                parser.feed(chunk)
                for event, element in parser.read_events():
                    name = etree.QName(element).localname
                    if root is None and name != "loc" and element.getparent() is None:
                        root, self.kind = element, name
                    elif event == "end" and name == "loc" and (url := _entry(element)):
                        n_entries += 1
                        if n_entries > MAX_ENTRIES:
                            return
                        yield url
                n_bytes += len(chunk)
                if n_bytes > (MAX_BYTES if self.kind else _BEGINNING):
                    return
                _forget(root)
                yield None


def _entry(element: Any) -> str:
    """URL in the ``loc`` *element*, if it is the one of an entry: images and videos have others."""
    parent = element.getparent()
    is_one = parent is not None and etree.QName(parent).localname in ("url", "sitemap")
    return (element.text or "").strip() if is_one else ""


def _forget(element: Any) -> None:
    """Remove from *element* all that was read: all but its last child, which may still be open."""
    while element is not None and len(element):
        del element[:-1]
        element = element[-1]


def _chunks(body: bytes) -> Iterator[bytes]:
    """*body*, decompressed if need be; of a broken one, what comes before the break."""
    if not body.startswith(_GZIP):
        body = body.lstrip()
        for at in range(0, len(body), _CHUNK):
            yield body[at : at + _CHUNK]
        return
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    n_members = 1
    for at in range(0, len(body), _CHUNK):
        packed = body[at : at + _CHUNK]
        while packed:
            try:
                yield unpacker.decompress(packed, _CHUNK)
            except zlib.error:
                return
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_OR_ZLIB)
                n_members += 1
                if n_members > _MEMBERS:
                    return

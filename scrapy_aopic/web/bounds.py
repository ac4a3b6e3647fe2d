"""Responses that are refused because reading them would block the event loop for minutes.

These are bounds on what other libraries do with a response, before or after this package; each costs more than linear
time in the bytes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from lxml import etree  # type: ignore[import-untyped]  # has no types
from scrapy.http import HtmlResponse

if TYPE_CHECKING:
    from scrapy.http import Response
    from scrapy.http.headers import Headers

MAX_CODINGS = 5
"""Content codings of a body: as many as curl takes. Scrapy undoes as many as the header names: 10 MB in fifty thousand
layers of gzip take five minutes."""

MAX_ATTRIBUTES = 1000
"""Attributes of an element. libxml2 appends each to a list by walking along it: 400 kB of them take four seconds, and
10 MB forty minutes."""

_LONG_TAG = 2 * MAX_ATTRIBUTES
"""Bytes of a start tag, at least, that has more attributes: each is a name of a letter or more, and something that ends
it."""

_MORE_THAN_TAG = re.compile(rb"=[\x00-\x20]*(?:\"[^\">]*>|'[^'>]*>)")
"""A quoted value of an attribute with a ">" in it. Without such a value, each start tag ends at the next ">"."""

_SMALL = 32_768
"""Bytes of a page that is parsed in less than 0.1 s, whatever they are; so it is not looked at."""

_CHUNK = 16_384
"""Bytes that are parsed before the next look at whether enough is known."""

_DEEPEST = 2048
"""Nested elements up to which libxml2 builds a tree; it reads nothing beyond them."""


class _Attributes:
    """Target of a parser that builds no tree, and so takes time linear in the bytes, up to the greatest depth.

    Attributes:
        are_too_many: Whether an element has more than :data:`MAX_ATTRIBUTES`.
        is_over: Whether the rest of the page need not be parsed.
    """

    def __init__(self) -> None:
        self.are_too_many = self.is_over = False
        self._depth = 0

    def start(self, _: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if not self.is_over and len(attributes) > MAX_ATTRIBUTES:
            self.are_too_many = True
        self.is_over |= self.are_too_many or self._depth > _DEEPEST

    def end(self, _: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        pass


def is_packed_too_often(headers: Headers) -> bool:
    """Whether a response with *headers* has more than :data:`MAX_CODINGS`."""
    return sum(value.count(b",") + 1 for value in headers.getlist("Content-Encoding")) > MAX_CODINGS


def may_have_long_tag(html: bytes, length: int) -> bool:
    """Whether a start tag in *html* may be longer than *length* bytes, in whatever state a parser comes to it.

    Never wrong if it says no. It says so of nearly all pages, and takes a seventh of the time of parsing one.
    """
    if _MORE_THAN_TAG.search(html):
        return True
    at = 0
    while at + length < len(html):
        end = html.rfind(b">", at, at + length + 1)
        if end < 0:  # the next one is farther away: a long text, unless a tag begins in it
            end = html.find(b">", at)
            end = len(html) if end < 0 else end
            begin = html.find(b"<", at, end)
            if 0 <= begin < end - length:
                return True
        at = end + 1
    return False


def has_too_many_attributes(response: Response) -> bool:
    """Whether an element of *response*, a page of HTML, has more than :data:`MAX_ATTRIBUTES`."""
    if not isinstance(response, HtmlResponse) or len(response.body) < _SMALL:
        return False
    try:
        html = response.text.replace("\0", "").encode("utf-8", "replace")  # what Scrapy's selectors parse
    except (LookupError, ValueError):  # its charset does not exist
        return False
    if not may_have_long_tag(html, _LONG_TAG):
        return False
    attributes = _Attributes()
    parser = etree.HTMLParser(target=attributes, encoding="utf-8", huge_tree=True)
    with suppress(etree.LxmlError):  # there is nothing in it
        for at in range(0, len(html), _CHUNK):  # an exception out of the target would not stop the parser
            if attributes.is_over:
                break
            parser.feed(html[at : at + _CHUNK])
        else:
            parser.close()
    return attributes.are_too_many

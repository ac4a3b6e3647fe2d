"""Content types as browsers read them: by the header if it says something, and else by how the body begins.

Sources: how the Fetch standard extracts a type from headers (https://fetch.spec.whatwg.org/#concept-header-extract-mime-type),
and the MIME sniffing standard (https://mimesniff.spec.whatwg.org/#mime-type-sniffing-algorithm), except for what
distinguishes images, sound and archives from other binary data.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from scrapy.http import HtmlResponse, Response

if TYPE_CHECKING:
    from scrapy.http.headers import Headers

_SHORT = 200
"""Bytes of a header up to which it is remembered what it says."""

_SNIFFED = 1445
"""Bytes of a body that are looked at."""

_TYPE = re.compile(rb"[\t\n\r ]*([!#-'*+.^_`|~\w-]+/[!#-'*+.^_`|~\w-]+)[\t\n\r ]*(?:;|\Z)")
_CHARSET = re.compile(rb";[\t\n\r ]*charset=\"?([^\";]+)", re.IGNORECASE)
_ELEMENT = re.compile(rb'(?:[^",]+|"(?:[^"\\]|\\.)*(?:"|\\?\Z))+', re.DOTALL)

_SAYS_NOTHING = ("*/*", "unknown/unknown", "application/unknown")

_HTML = re.compile(
    rb"<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[ >]",
    re.IGNORECASE,
)
_OTHERS = {
    b"%PDF-": "application/pdf",
    b"%!PS-Adobe-": "application/postscript",
    b"\xef\xbb\xbf": "text/plain",
    b"\xfe\xff": "text/plain",
    b"\xff\xfe": "text/plain",
}
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


class Declared(NamedTuple):
    """The ``Content-Type`` of a response.

    Attributes:
        essence: The type, in lower case and without parameters; ``""`` if it says nothing.
        charset: The charset, if Scrapy does not find it; ``""`` if it does, or there is none.
        is_odd: Whether Scrapy reads something else: it takes what is before the first ``;`` of the last header.
    """

    essence: str
    charset: str
    is_odd: bool


def declared_type(headers: Headers) -> Declared:
    """The content type that *headers* declare."""
    values = tuple(headers.getlist("Content-Type"))
    return _known(values) if sum(map(len, values)) <= _SHORT else _extract(values)


def content_type(response: Response) -> str:
    """Content type of *response*, in lower case and without parameters: what it says, or else looks like."""
    essence = declared_type(response.headers).essence
    if essence or isinstance(response, HtmlResponse):  # which Scrapy takes it for, by its URL or its body
        return essence or "text/html"
    options = b",".join(response.headers.getlist("X-Content-Type-Options")).partition(b",")[0]
    return _sniff(response.body[:_SNIFFED], may_be_markup=options.strip().lower() != b"nosniff")


def _extract(values: tuple[bytes, ...]) -> Declared:
    essence = charset = ""
    for element in _ELEMENT.findall(b",".join(values)):
        match = _TYPE.match(element)
        if match is None or match[1] == b"*/*":
            continue
        stated = _CHARSET.search(element)
        if (found := match[1].decode().lower()) != essence:
            essence, charset = found, ""
        if stated is not None:
            charset = stated[1].decode("latin-1").strip()
    if essence in _SAYS_NOTHING:
        essence = charset = ""
    last = values[-1] if values else b""
    if b"charset" in last.lower():
        charset = ""
    is_odd = bool(charset) or last.partition(b";")[0].strip().lower().decode("latin-1") != essence
    return Declared(essence, charset, is_odd)


_known = lru_cache(1000)(_extract)


def _sniff(beginning: bytes, *, may_be_markup: bool) -> str:
    """The type of a body with this *beginning*.

    Args:
        may_be_markup: Whether the server allows that it is taken for something that runs scripts.
    """
    text = beginning.lstrip(b"\t\n\x0c\r ")
    if may_be_markup and _HTML.match(text):
        return "text/html"
    if may_be_markup and text.startswith(b"<?xml"):
        return "text/xml"
    for signature, kind in _OTHERS.items():
        if beginning.startswith(signature):
            return kind
    return "application/octet-stream" if _BINARY.search(beginning) else "text/plain"

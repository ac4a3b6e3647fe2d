"""The language that a page declares."""

from __future__ import annotations

from scrapy.http import HtmlResponse, Response

from scrapy_aopic.core.printable import printable

from .parse_limits import attributes_of
from .robots_marks import in_utf8

_BEGINNING = 8192
"""Bytes of a page among which its ``html`` element begins; comments may stand before it."""

_LONGEST = 200
"""Characters that are kept of what a page declares."""


def declared_language(response: Response) -> str:
    """What the page of *response* declares: ``lang`` or ``xml:lang`` of its ``html``, or else ``Content-Language``; empty if nothing.

    No tree is made for that.
    """
    stated = ""
    if isinstance(response, HtmlResponse):
        root = next(attributes_of(in_utf8(response, response.body[:_BEGINNING]), "html"), {})
        stated = (root.get("lang") or root.get("xml:lang") or "").strip()
    header = response.headers.get("Content-Language") or b""
    return printable(stated or header.decode("latin-1").strip())[:_LONGEST]

"""The language that a page declares."""

from __future__ import annotations

from scrapy.http import HtmlResponse, Response

from scrapy_aopic.core.printable import printable

from .parse_limits import MAX_ATTRIBUTES, Attributes, look_at_all
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
        root = _Root()
        look_at_all(in_utf8(response, response.body[:_BEGINNING]), root)
        stated = root.language.strip()
    header = response.headers.get("Content-Language") or b""
    return printable(stated or header.decode("latin-1").strip())[:_LONGEST]


class _Root(Attributes):
    """Takes the language of the first ``html`` element.

    Attributes:
        language: As it stands there.
    """

    def __init__(self) -> None:
        super().__init__(MAX_ATTRIBUTES)
        self.language = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        super().start(tag, attributes)
        if not self.is_over and tag == "html":
            self.language = attributes.get("lang") or attributes.get("xml:lang") or ""
        self.is_over = True  # an element that stands before it is inside of it

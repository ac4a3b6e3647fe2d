"""What an answer says of its page: its visible text, and the URL that it wants to be known by.

Only HTML has a text here: the texts of all elements but scripts, styles and templates, and the title; white space and
case do not count. Numbers do: the pages of a list or of a calendar may differ in nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from scrapy.http import HtmlResponse

from .core.content import Text, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response

MIN_CHARACTERS = 200
"""Characters of text below which a page is not judged by it: many pages say little more than "not found"."""

# From "descendant" it takes a third of the time that it takes from "//".
_TEXTS = "descendant::text()[not(parent::script or parent::style or parent::template)]"
_LINKS = "/html/head/link[@rel and @href]"

# RFC 8288: <URL>; rel="canonical"; other="..."
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r";\s*rel\s*=\s*\"?([^\";,]*)", re.IGNORECASE)


def read_text(response: Response, *, has_sketch: bool = False) -> Text | None:
    """The text of *response*; one without a digest if there is little, ``None`` if it is no page of HTML."""
    if not isinstance(response, HtmlResponse) or not 200 <= response.status < 300:
        return None
    try:
        root = response.selector.root
    except ValueError:  # Scrapy reads no page whose base URL is none
        return None
    texts = root.xpath(_TEXTS, smart_strings=False)
    text = " ".join(" ".join(texts).lower().split())
    return text_of(text, has_sketch=has_sketch) if len(text) >= MIN_CHARACTERS else Text(b"")


def read_canonical(response: Response) -> str:
    """The URL that *response* names as canonical (RFC 6596); ``""`` if it names none, or more than one."""
    if not 200 <= response.status < 300:
        return ""
    try:
        urls = set(_canonicals(response))
    except ValueError:  # no URL
        return ""
    return urls.pop() if len(urls) == 1 else ""


def _canonicals(response: Response) -> Iterator[str]:
    for header in response.headers.getlist("Link"):
        for url, parameters in _LINK.findall(header.decode("latin-1")):
            rel = _REL.search(parameters)
            if rel is not None and "canonical" in rel[1].lower().split():
                yield urljoin(response.url, url.strip())
    if isinstance(response, HtmlResponse):
        for link in response.selector.root.xpath(_LINKS):
            if "canonical" in link.get("rel").lower().split():
                yield response.urljoin(link.get("href").strip())

"""What a page says of its links: their texts, what stands around them, the heading above them.

One pass over the tree, in document order. Time and memory are linear in the page, whatever it consists of: of each text no
more is read than counts, and what stands around a link is cut out of a window, not searched for.
"""

from __future__ import annotations

import unicodedata
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urljoin, urlsplit

from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.focus.words import LINK_CHARACTERS, PAGE_CHARACTERS

Element: TypeAlias = Any
"""An element of lxml."""

AROUND = 5
"""Pieces of text on each side that count as around a link (leaf offsets: Chakrabarti, Punera and Subramanyam, WWW 2002)."""

MOST_LINKS = 2_000
"""Links of a page that are looked at; further ones are none's favourites."""

MOST_ELEMENTS = 20_000
"""Elements of a page that are looked at, a twentieth of a second: ten times as many as an ordinary page has."""

_SIDE = LINK_CHARACTERS // 2
"""Characters on each side of a link that count as around it. Cut from each piece, as thousands of links may share a long one."""

_UNSEEN = frozenset(("script", "style", "noscript", "template"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))


class PageContext(NamedTuple):
    """What a page says.

    Attributes:
        text: Its title and its text.
        links: What it says of each URL that it links to, absolute and without fragment; the first link to it counts.
    """

    text: str
    links: dict[str, LinkText]


def page_context(root: Element, base: str) -> PageContext:
    """What the page with the tree *root* says; its links are relative to the URL *base*."""
    reader = _Reader()
    reader.read(root)
    pieces = reader.pieces
    links: dict[str, LinkText] = {}
    for href, begin, end, heading, extra in reader.found:
        try:
            url = urljoin(base, href.strip()[:2048]).partition("#")[0]
            parts = urlsplit(url)
        except ValueError:  # no URL
            continue
        if url in links or parts.scheme not in ("http", "https"):
            continue
        anchor = " ".join(
            [*extra, *[piece[:LINK_CHARACTERS] for piece in pieces[begin : min(end, begin + 20)]]]
        )
        before = " ".join([piece[-_SIDE:] for piece in pieces[max(begin - AROUND, 0) : begin]])[-_SIDE:]
        behind = " ".join([piece[:_SIDE] for piece in pieces[end : end + AROUND]])[:_SIDE]
        path = f"{parts.path}?{parts.query}"
        links[url] = LinkText(_clean(anchor), _clean(f"{before} {behind}"), _clean(heading), path)
    return PageContext(_normal(" ".join(pieces)[:PAGE_CHARACTERS]), links)


class _Reader:
    """Reads a tree without recursion, as hostile ones are deep."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.found: list[tuple[str, int, int, str, list[str]]] = []
        self._heading = ""

    def read(self, root: Element) -> None:
        stack: list[tuple[Any, Any, int]] = [
            (root, None, 0)
        ]  # an element, or one that ends, and where it began
        n = 0
        while stack and n < MOST_ELEMENTS:
            element, children, begin = stack.pop()
            if children is None:
                n += 1
                if not isinstance(element.tag, str) or element.tag in _UNSEEN:
                    self._add(element.tail)
                    continue
                begin = len(self.pieces)
                self._add(element.text)
                children = iter(element)
            child = next(children, None)
            if child is not None:
                stack.append((element, children, begin))
                stack.append((child, None, 0))
                continue
            self._end(element, begin)
            self._add(element.tail if element is not root else None)

    def _add(self, text: str | None) -> None:
        if text and not text.isspace():
            self.pieces.append(text)

    def _end(self, element: Element, begin: int) -> None:
        end = len(self.pieces)
        tag = element.tag
        if tag in _HEADINGS:
            self._heading = " ".join(
                [piece[:LINK_CHARACTERS] for piece in self.pieces[begin : min(end, begin + 20)]]
            )
        elif tag == "img" and element.get("alt"):
            self._add(element.get("alt"))
        elif tag == "a" and len(self.found) < MOST_LINKS and (href := element.get("href")):
            title = element.get("title")
            self.found.append((href, begin, end, self._heading, [title[:LINK_CHARACTERS]] if title else []))


def _clean(text: str) -> str:
    return " ".join(_normal(text[: 2 * LINK_CHARACTERS]).split())[:LINK_CHARACTERS]


def _normal(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)

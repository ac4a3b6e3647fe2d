"""What a page says of its links: their texts, what stands around them, the heading above them.

One pass over the tree, in document order. Time and memory are linear in the page, whatever it consists of: of each text no
more is read than counts, and what stands around a link is cut out of a window, not searched for.

What an element itself hides (``hidden``, ``display: none`` or ``visibility: hidden`` in its ``style``) is neither text of the
page nor of a link. What style sheets or scripts hide is text: nobody knows without rendering the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

from lxml import etree  # type: ignore[import-untyped]  # has no types

from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.focus.words import LINK_CHARACTERS, PAGE_CHARACTERS

from .links import Page

Element: TypeAlias = Any
"""An element of lxml."""

AROUND = 5
"""Pieces of text on each side that count as around a link (leaf offsets: Chakrabarti, Punera and Subramanyam, WWW 2002)."""

MOST_LINKS = 2_000
"""Links of a page that are looked at; further ones are none's favourites."""

MOST_ELEMENTS = 20_000
"""Elements of a page that are looked at, a twentieth of a second: ten times as many as an ordinary page has."""

_SIDE = LINK_CHARACTERS // 2
"""Characters on each side of a link that count as around it, at most. Cut from each piece, as thousands of links may share a long one."""

_UNSEEN, _LINK, _HEADING, _IMAGE = range(4)
_KINDS = {
    **dict.fromkeys(("script", "style", "noscript", "template"), _UNSEEN),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _HEADING),
    "a": _LINK,
    "img": _IMAGE,
}
_EVENTS = ("start", "end", "comment", "pi")

_LONGEST_HREF = 2_048
"""Characters of a link that has a context; longer ones are none that a page is known by."""

_PIECES = 20
"""Pieces of text that count of a link and of a heading; ordinary ones have one or two."""

_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)


class PageContext(NamedTuple):
    """What a page says.

    Attributes:
        text: Its title and its text, without what it hides.
        links: What it says of each URL that it links to, absolute and without fragment; the first link to it counts. A
            hidden one says nothing but its URL. It is put together when it is asked for, as most of it seldom is.
    """

    text: str
    links: Mapping[str, LinkText]


class _Found(NamedTuple):
    """A link: its ``href``, the pieces of its text, the heading above it and its title; no text if it is hidden."""

    href: str
    begin: int
    end: int
    heading: str
    title: str
    is_hidden: bool = False


def page_context(
    root: Element,
    url: str,
    base: str = "",
    encoding: str = "utf-8",
    *,
    has_links: bool = True,
    side: int = _SIDE,
) -> PageContext:
    """What the page at *url* with the tree *root* says.

    Args:
        base: URL that its links are relative to, if it is another one.
        encoding: Of the page; queries are escaped in it.
        has_links: Whether its links are wanted.
        side: Characters on each side of a link that are wanted.
    """
    reader = _Reader(has_links=has_links, side=min(side, _SIDE))
    reader.read(root)
    links: dict[str, _Found] = {}
    join = Page(url, base or url, encoding).join
    for found in reader.found:
        joined = join(found.href) if len(found.href) <= _LONGEST_HREF else None
        if joined is None or not joined.startswith(("http://", "https://")):
            continue
        target = joined.partition("#")[0]
        links.setdefault(target, found)
    return PageContext(
        _normal(" ".join(reader.pieces)[:PAGE_CHARACTERS]), _LinkTexts(links, reader) if links else {}
    )


class _LinkTexts(Mapping[str, LinkText]):
    """What a page that *reader* has read says of *links*, by URL."""

    def __init__(self, links: dict[str, _Found], reader: _Reader) -> None:
        self._links = links
        self._reader = reader

    def __getitem__(self, url: str) -> LinkText:
        return self._reader.text_of(self._links[url], url)

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)


class _Reader:
    """Reads a tree in document order, without recursion, as hostile ones are deep.

    Attributes:
        pieces: Its texts.
        found: Its links.
    """

    def __init__(self, *, has_links: bool, side: int) -> None:
        self._side = side
        self.pieces: list[str] = []
        self.found: list[_Found] = []
        self._heading = ""
        self._most = MOST_LINKS if has_links else 0

    def read(self, root: Element) -> None:
        """Read the tree under *root*, up to :data:`MOST_ELEMENTS` of it."""
        add, kind_of = self.pieces.append, _KINDS.get
        begins: list[int] = []  # of links and headings that have not ended
        walk = etree.iterwalk(root, events=_EVENTS)
        n = 0
        skipped: Element | None = None
        for event, element in walk:
            if event == "start":
                n += 1
                if n > MOST_ELEMENTS:
                    break
                kind = kind_of(element.tag)
                style = element.get("style")
                if (
                    kind == _UNSEEN
                    or (style is not None and _INVISIBLE.search(style[:LINK_CHARACTERS]))
                    or element.get("hidden") is not None
                ):
                    skipped = element
                    walk.skip_subtree()
                    if kind != _UNSEEN:
                        self._find_hidden(element)
                    continue
                if kind is not None and kind != _IMAGE:
                    begins.append(len(self.pieces))
                text = element.text
            else:
                if element is skipped:
                    skipped = None
                elif event == "end" and (kind := kind_of(element.tag)) is not None:
                    self._end(element, kind, begins.pop() if kind != _IMAGE else 0)
                text = element.tail
            if text and not text.isspace():
                add(text)

    def _end(self, element: Element, kind: int, begin: int) -> None:
        end = len(self.pieces)
        if kind == _LINK:
            if len(self.found) < self._most and (href := element.get("href")):
                title = element.get("title") or ""
                self.found.append(_Found(href, begin, end, self._heading, title[:LINK_CHARACTERS]))
        elif kind == _HEADING:
            self._heading = _clean(self._text(begin, end))
        elif alt := element.get("alt"):
            self.pieces.append(alt)

    def _find_hidden(self, element: Element) -> None:
        """Find the links of a hidden *element*."""
        at = len(self.pieces)
        for link in islice(element.iter("a"), max(self._most - len(self.found), 0)):
            if href := link.get("href"):
                self.found.append(_Found(href, at, at, "", "", is_hidden=True))

    def text_of(self, found: _Found, url: str) -> LinkText:
        """What the page says of a link that it has, and that leads to *url*."""
        at = url.find("/", 8)  # behind the host
        path = url[at:] if at > 0 else ""
        if found.is_hidden:
            return LinkText("", path=path)
        pieces, begin, end = self.pieces, found.begin, found.end
        anchor = self._text(begin, end)
        if found.title:
            anchor = f"{found.title} {anchor}"
        side = self._side
        before = " ".join([piece[-side:] for piece in pieces[max(begin - AROUND, 0) : begin]])[-side:]
        behind = " ".join([piece[:side] for piece in pieces[end : end + AROUND]])[:side]
        return LinkText(_clean(anchor), _clean(f"{before} {behind}"), found.heading, path)

    def _text(self, begin: int, end: int) -> str:
        if end - begin == 1:
            return self.pieces[begin][:LINK_CHARACTERS]
        return " ".join([piece[:LINK_CHARACTERS] for piece in self.pieces[begin : min(end, begin + _PIECES)]])


def _clean(text: str) -> str:
    return " ".join(_normal(text[: 2 * LINK_CHARACTERS]).split())[:LINK_CHARACTERS]


def _normal(text: str) -> str:
    """*text* in NFKC; word by word, as most are ASCII, and spaces compose with nothing."""
    if text.isascii():
        return text
    return " ".join([word if word.isascii() else normalize("NFKC", word) for word in text.split(" ")])

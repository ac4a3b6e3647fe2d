"""The context of each link on a page: its text, the text around it, the heading above it.

The tree is serialised as XML, which takes a tenth of the time of a walk over its elements, and cut at its tags: in it, unlike
in the page as received, each element has an end, and no text has a "<" or a ">". The context of a link is cut out on demand.
Time and memory are linear in the page, whatever it consists of.

Text that its element hides (``hidden``, ``display: none`` or ``visibility: hidden`` in its ``style``) is neither text of
the page nor of a link. Text that style sheets or scripts hide counts, as only rendering the page would tell.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from html import unescape
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeAlias, cast

from lxml import etree  # type: ignore[import-untyped]  # has no types

from scrapy_aopic.core.focus.topic import LinkText, PageWords
from scrapy_aopic.core.focus.words import LINK_CHARACTERS, PAGE_CHARACTERS, compatible

from .link_extraction import LinkJoiner

Element: TypeAlias = Any
"""An element of lxml."""

Cut: TypeAlias = Callable[[Sequence[str]], list[list[str]]]
"""Cuts several texts into words."""

_AROUND = 5
"""Pieces of text on each side that count as around a link (leaf offsets: Chakrabarti, Punera and Subramanyam, WWW 2002)."""

MOST_LINKS = 2_000
"""Most links of a page that have a context."""

MOST_TAGS = 40_000
"""Tags of a page that are looked at, a fiftieth of a second: ten times as many as an ordinary page has."""

_MOST_CHARACTERS = 2 * PAGE_CHARACTERS
"""Characters of a page in which links have a context; links after them have only their URL."""

_SIDE = LINK_CHARACTERS // 2
"""Most characters on each side of a link that count as around it. Cut from each piece, as thousands of links may share one."""

_WORD_CHARACTERS = 7
"""Characters of a word, with the space behind it: how many words are around a link if these are counted."""

_LONGEST_HREF = 2_048
"""Most characters of a link that has a context; no page is known by a longer URL."""

_PIECES = 20
"""Pieces of text that count of a link and of a heading; ordinary ones have one or two."""

_ANY_TAG = re.compile(r"<(!--.*?--|\?.*?\?|[^>]*)>", re.DOTALL)
_TAG = re.compile(
    r"<(?:(/?(?:a|img|h[1-6]|script|style|noscript|template)(?![^ />])[^>]*)|!--.*?--|\?.*?\?|[^>]*)>",
    re.DOTALL,
)
"""Any tag, captured only if it means something here."""

_ATTRIBUTE = re.compile(r'\s([^\s=]+)="([^"]*)"')
_WEB = ("http://", "https://")

_HREF_FIRST = 'a href="'

_UNSEEN, _BEGIN, _END, _IMAGE = range(4)
_KINDS = {
    **dict.fromkeys(("script", "style", "noscript", "template"), _UNSEEN),
    **dict.fromkeys(("a", "h1", "h2", "h3", "h4", "h5", "h6"), _BEGIN),
    **dict.fromkeys(("/a", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6"), _END),
    "img": _IMAGE,
}

_NOTHING = (0, 0, 0, 0, 0, 0)
"""Stands for something that is not a link."""

_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)


class PageContext:
    """The text of a page and the context of its links; empty if nothing was read.

    Attributes:
        links: The context of each URL that it links to, absolute and without fragment; the first link to it counts. A
            hidden link has only its URL. Contexts are made on demand, as most are never needed.
        words: The words of its text, if a tokeniser was given.
        joined: The absolute URL for each ``href``; ``None`` if it has none.
    """

    def __init__(
        self,
        said: _PageText | None = None,
        links: dict[str, _RawLink] | None = None,
        joined: Mapping[str, str | None] | None = None,
    ) -> None:
        self.joined = joined or {}
        self._said = said if said is not None else _PageText([], 0)
        self._links = links or {}
        self.links: Mapping[str, LinkText] = _LinkTexts(self._links, self._said)
        self.words = self._said.words_within(PAGE_CHARACTERS)

    @cached_property
    def text(self) -> str:
        """Its title and its text, without what it hides, in NFKC and with single spaces."""
        return self._said.beginning(PAGE_CHARACTERS)

    def beginning(self, n: int) -> str:
        """The first *n* characters of its text."""
        return self._said.beginning(n)

    def parts(self) -> tuple[list[str], list[str]]:
        """The texts between its links, one for each run without any, and those of its links; of several to a URL the first is one."""
        return self._said.parts(self._links.values())

    def cut(self, urls: Sequence[str | None], n_in_full: int) -> PageWords | None:
        """The words of its links to *urls*, in which ``None`` stands for no link; ``None`` if its words were not cut.

        Args:
            n_in_full: How many of them get the words around them, and a heading.
        """
        if self._said.words is None:
            return None
        find = self._links.get
        return self._said.cut([find(url) if url is not None else None for url in urls], n_in_full)


class _LinkTexts(Mapping[str, LinkText]):
    """The contexts of *links* in the text *said*, by URL."""

    def __init__(self, links: dict[str, _RawLink], said: _PageText) -> None:
        self._links = links
        self._said = said

    def __getitem__(self, url: str) -> LinkText:
        return self._said.of(self._links[url], url)

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)


class _RawLink(NamedTuple):
    """A link: the pieces of its text, those of the heading above it, and its title; no text if it is hidden."""

    begin: int
    end: int
    heading: tuple[int, int]
    title: str = ""
    is_hidden: bool = False


def page_context(
    root: Element,
    url: str,
    base: str = "",
    encoding: str = "utf-8",
    *,
    has_links: bool = True,
    side: int = _SIDE,
    cut: Cut | None = None,
) -> PageContext:
    """The context of all links of the page at *url* with the tree *root*.

    Args:
        base: URL that its links are relative to, if it is another one.
        encoding: Of the page; queries are escaped in it.
        has_links: Whether its links are wanted.
        side: Characters on each side of a link that are wanted.
        cut: Cuts its text into words, if these are wanted.
    """
    reader = _ContextReader(MOST_LINKS if has_links else 0)
    reader.read(etree.tostring(root, encoding="unicode", with_tail=False))
    join = LinkJoiner(url, base or url, encoding).join
    joined = {href: join(href) if len(href) <= _LONGEST_HREF else None for href in reader.found}
    links: dict[str, _RawLink] = {}
    for absolute, found in zip(joined.values(), reader.found.values(), strict=True):
        if absolute is not None and absolute.startswith(_WEB):
            links.setdefault(absolute.partition("#")[0] if "#" in absolute else absolute, found)
    return PageContext(_PageText(reader.pieces, min(side, _SIDE), cut), links, joined)


def text_context(text: str) -> PageContext:
    """The context of a page that has only *text* and no links."""
    return PageContext(_PageText([text], 0))


class _ContextReader:
    """Reads a page tag by tag, without recursion, as hostile ones are deep.

    Args:
        most: Links that are wanted.

    Attributes:
        pieces: Its texts, none of them blank.
        found: Its links, by their ``href``; the first one counts.
    """

    def __init__(self, most: int) -> None:
        self.pieces: list[str] = []
        self.found: dict[str, _RawLink] = {}
        self._heading = (0, 0)
        self._begun: list[tuple[int, str]] = []  # links and headings that have not ended
        self._most = most

    def read(self, whole: str) -> None:
        """Read a page, serialised as *whole*.

        At most :data:`MOST_TAGS` of it are read, and at most :data:`PAGE_CHARACTERS` of its text unless more links are wanted.
        """
        may_hide = ' hidden="' in whole or ' style="' in whole
        parts: list[str | None] = (_ANY_TAG if may_hide else _TAG).split(whole, MOST_TAGS)
        if len(parts) > 2 * MOST_TAGS:
            parts[-1] = ""  # all the rest
        add, kind_of = self.pieces.append, _KINDS.get
        pairs = zip(parts[1::2], cast("list[str]", parts[2::2]), strict=True)
        wants_links, n_left = self._most > 0, PAGE_CHARACTERS
        for tag, behind in pairs:
            text = behind
            if tag is not None:
                kind = kind_of(tag.partition(" ")[0])
                if may_hide and kind != _UNSEEN and _is_hidden(tag):
                    text = self._skip(tag, behind, pairs, has_links=True)
                elif kind == _UNSEEN:
                    text = self._skip(tag, behind, pairs, has_links=False)
                elif kind is not None:
                    self._note(kind, tag)
                    if wants_links and len(self.found) >= self._most:
                        wants_links = False
                        n_left -= sum(map(len, self.pieces))
            if text and not text.isspace():
                add(unescape(text) if "&" in text else text)
                if not wants_links:
                    n_left -= len(text)
                    if n_left <= 0:
                        break

    def _note(self, kind: int, tag: str) -> None:
        """Note where what *tag* is of begins or ends, or what it shows."""
        if kind == _BEGIN:
            self._begun.append((len(self.pieces), tag))
            if tag[-1] == "/":
                self._end(*self._begun.pop())
        elif kind == _END:
            self._end(*self._begun.pop())
        elif (alt := _attributes(tag).get("alt")) and not alt.isspace():
            self.pieces.append(alt)

    def _end(self, begin: int, tag: str) -> None:
        """The link or heading with this *tag*, which began at the piece *begin*, has ended."""
        end = len(self.pieces)
        if tag[0] != "a":
            self._heading = (begin, end)
        elif len(self.found) < self._most:
            href, title = _link(tag)
            if href and href not in self.found:
                self.found[href] = _RawLink(begin, end, self._heading, title)

    def _skip(
        self, tag: str, behind: str, pairs: Iterator[tuple[str | None, str]], *, has_links: bool
    ) -> str:
        """Skip the element that begins with *tag*, but find its links, if it *has_links*; returns the text behind it."""
        name = tag.partition(" ")[0].rstrip("/")
        begin, end = f"{name} ", f"/{name}"
        depth = 0
        at: str | None = tag
        while at is not None:
            if at == name or at.startswith(begin):
                depth += at[-1] != "/"
            elif at == end:
                depth -= 1
            if has_links and at.startswith("a ") and len(self.found) < self._most:
                href, here = _link(at)[0], len(self.pieces)
                if href:
                    self.found.setdefault(href, _RawLink(here, here, (0, 0), is_hidden=True))
            if depth == 0:
                break
            at, behind = next(((each, text) for each, text in pairs if each is not None), (None, ""))
        return behind


def _attributes(tag: str) -> dict[str, str]:
    return {name: unescape(value) for name, value in _ATTRIBUTE.findall(tag)}


def _is_hidden(tag: str) -> bool:
    """Whether the element with this *tag* hides itself."""
    if ' hidden="' not in tag and ' style="' not in tag:
        return False
    attributes = _attributes(tag)
    style = attributes.get("style", "")[:LINK_CHARACTERS]
    return "hidden" in attributes or (bool(style) and _INVISIBLE.search(style) is not None)


def _link(tag: str) -> tuple[str, str]:
    """Where a link with this *tag* leads to, and its title; empty for what it does not have."""
    if tag.startswith(_HREF_FIRST) and ' title="' not in tag:
        begin = len(_HREF_FIRST)
        href = tag[begin : tag.index('"', begin)]
        return unescape(href) if "&" in href else href, ""
    attributes = _attributes(tag)
    return attributes.get("href", ""), attributes.get("title", "")[:LINK_CHARACTERS]


class _PageText:
    """The text of a page in *pieces*, in their order.

    Args:
        pieces: Texts between tags; not one of them is blank.
        side: Most characters on each side of a link that count as around it.
        cut: Cuts the text into words, if these are wanted.

    Attributes:
        words: Its words, those of all pieces; ``None`` if they are not wanted.
    """

    def __init__(self, pieces: list[str], side: int, cut: Cut | None = None) -> None:
        self._pieces = pieces
        self._side = side
        self._headings: dict[tuple[int, int], str] = {}
        self.words: list[str] | None = None
        if cut is not None:
            if sum(map(len, pieces)) > _MOST_CHARACTERS:
                pieces = list(_first(pieces, _MOST_CHARACTERS))
            found = cut(pieces)
            self.words = list(chain.from_iterable(found))
            # Where the words of each piece begin, and behind the last one its end.
            self._begins = list(accumulate(map(len, found), initial=0))
            self._begins += [len(self.words)] * (len(self._pieces) - len(pieces))

    def beginning(self, n: int) -> str:
        """Its first *n* characters, in NFKC and with single spaces."""
        return _clean(" ".join(_first(self._pieces, n)))[:n]

    def words_within(self, n: int) -> list[str] | None:
        """The words of its first *n* characters, or of a few more; ``None`` if they are not wanted."""
        if self.words is None or sum(map(len, self._pieces)) <= n:
            return self.words
        n_pieces = bisect_right(list(accumulate(map(len, self._pieces))), n) + 1
        return self.words[: self._begins[min(n_pieces, len(self._pieces))]]

    def cut(self, links: Sequence[_RawLink | None], n_in_full: int) -> PageWords:
        """The words of *links*, and nothing for those that were not found."""
        assert self.words is not None, "they were to be cut"
        begins, n, last = self._begins, self._side // _WORD_CHARACTERS, len(self._begins) - 1
        said = []
        titles = {}
        for number, found in enumerate(links):
            if found is None or found.is_hidden:
                said.append(_NOTHING)
                continue
            begin, end, (above, below), title, _ = found
            left, right = begins[begin], begins[end]
            if title:
                titles[number] = title
            if number >= n_in_full:
                said.append((left, left, right, right, 0, 0))
                continue
            first, behind = begins[max(begin - _AROUND, 0)], begins[min(end + _AROUND, last)]
            around = max(first, left - n), left, right, min(behind, right + n)
            said.append((*around, begins[above], begins[below]))
        return PageWords(self.words, said, titles)

    def of(self, found: _RawLink, url: str) -> LinkText:
        """The context of a link that was *found* and leads to *url*."""
        path = path_of(url)
        begin, end, heading, title, is_hidden = found
        if is_hidden:
            return LinkText("", path=path)
        anchor = self._text(begin, end)
        if title:
            anchor = _clean(f"{title} {anchor}")[:LINK_CHARACTERS]
        pieces, side = self._pieces, self._side
        before = " ".join([piece[-side:] for piece in pieces[max(begin - _AROUND, 0) : begin]])[-side:]
        behind = " ".join([piece[:side] for piece in pieces[end : end + _AROUND]])[:side]
        around = _clean(f"{before} {behind}")[: 2 * side]
        said_above = self._headings.get(heading)
        if said_above is None:
            said_above = self._headings[heading] = self._text(*heading)
        return LinkText(anchor, around, said_above, path)

    def parts(self, links: Iterable[_RawLink]) -> tuple[list[str], list[str]]:
        """The texts between *links*, and those of *links*, within its first :data:`PAGE_CHARACTERS`."""
        pieces = list(_first(self._pieces, PAGE_CHARACTERS))
        texts: tuple[list[str], list[str]] = ([], [])
        behind = 0
        for begin, end in sorted((found.begin, found.end) for found in links if not found.is_hidden):
            texts[0].append(" ".join(pieces[behind:begin]))
            texts[1].append(" ".join(pieces[max(begin, behind) : end]))
            behind = max(behind, end)
        texts[0].append(" ".join(pieces[behind:]))
        return texts

    def _text(self, begin: int, end: int) -> str:
        """The text of the pieces from *begin* to *end*, or the beginning of it."""
        if end - begin == 1:
            piece = self._pieces[begin][: 2 * LINK_CHARACTERS]
            return (" ".join(piece.split()) if piece.isascii() else _clean(piece))[:LINK_CHARACTERS]
        some = self._pieces[begin : min(end, begin + _PIECES)]
        return _clean(" ".join([piece[:LINK_CHARACTERS] for piece in some]))[:LINK_CHARACTERS]


def path_of(url: str) -> str:
    """Path and query of an absolute *url*."""
    at = url.find("/", 8)  # behind the host
    return url[at:] if at > 0 else ""


def _first(pieces: Iterable[str], n: int) -> Iterator[str]:
    """*pieces*, as far as they have *n* characters."""
    for piece in pieces:
        if n <= 0:
            return
        yield piece[:n]
        n -= len(piece)


def _clean(text: str) -> str:
    """*text* in NFKC, with single spaces; word by word, as most are ASCII, and spaces compose with nothing."""
    found = text.split()
    if not text.isascii():
        found = [word if word.isascii() else compatible(word) for word in found]
    return " ".join(found)

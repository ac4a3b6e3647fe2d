"""Limits on the responses that are decoded and parsed: some are refused, and of a huge page no tree is built.

They bound what other libraries do with a response, before or after this package. Without them a hostile response would
block the event loop for minutes, because its cost grows faster than its bytes; and the tree of a huge page takes up to 30
times its bytes, or 85 MB for 3 MB of paragraphs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from lxml import etree  # type: ignore[import-untyped]  # has no types
from parsel import Selector
from scrapy.http import HtmlResponse, Response, TextResponse
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from scrapy.http.headers import Headers

MAX_CODINGS = 5
"""Most content codings of a body: as many as curl accepts. Scrapy decodes as many as the header names: 10 MB in fifty
thousand layers of gzip take five minutes."""

MAX_ATTRIBUTES = 1000
"""Attributes of an element. libxml2 appends each to a list by walking along it: 400 kB of them take four seconds, and
10 MB forty minutes."""

HUGE = 1_000_000
"""Bytes of a page from which on this package does not build its complete tree."""

_GUESSED_BY = 65_536
"""Bytes by which the charset of a huge response is guessed."""

_SMALL = 32_768
"""Bytes of a page that is parsed in less than 0.1 s, whatever they are; so it is not looked at."""

_CHUNK = 16_384
"""Bytes that are parsed before the next look at whether enough is known."""

_LONGEST = 16
"""Chunks without an element, after which a tag is ended, if there is one: a million attributes are parsed in one step else."""

_DEEPEST = 2048
"""Nested elements up to which libxml2 builds a tree; it reads nothing beyond them."""

_TAG = re.compile(rb"<[A-Za-z_:.]")
_SEPARATORS = (b" ", b"\t", b"\n", b"\r", b"\f", b"/", b'"', b"'")
_VALUES = {b'"': re.compile(rb"=[\x00-\x20]*\"[^\">]*>"), b"'": re.compile(rb"=[\x00-\x20]*'[^'>]*>")}

_MAX_VALUES = 1000
"""Values with a ``>``, and tags among them, that are looked at one by one, which takes some milliseconds."""


class Attributes:
    """Target of a parser that builds no tree, and so takes time linear in the bytes, up to the greatest depth.

    Attributes:
        are_too_many: Whether an element has more than *most*.
        is_over: Whether the rest of the page need not be parsed.
        n: Elements that have begun.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.are_too_many = self.is_over = False
        self._depth = self.n = 0

    def start(self, _: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self.n += 1
        if not self.is_over and len(attributes) > self._most:
            self.are_too_many = True
        self.is_over |= self.are_too_many or self._depth > _DEEPEST

    def end(self, _: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        pass


class Elements(Attributes):
    """Keeps the attributes of elements that have one of the names *tags*."""

    def __init__(self, tags: Collection[str], most: int) -> None:
        super().__init__(most)
        self._tags = frozenset(tags)
        self._found: list[dict[str, str]] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        super().start(tag, attributes)
        if tag in self._tags and not self.is_over:
            self._found.append(attributes)

    def take(self) -> list[dict[str, str]]:
        """What was found since the last call."""
        found, self._found = self._found, []
        return found


def is_packed_too_often(headers: Headers) -> bool:
    """Whether a response with *headers* has more than :data:`MAX_CODINGS`."""
    return sum(value.count(b",") + 1 for value in headers.getlist("Content-Encoding")) > MAX_CODINGS


def guessed_charset(response: TextResponse) -> str | None:
    """The charset of *response* by a part of it, if it is huge, states none, and is no UTF-8; else ``None``.

    Scrapy guesses by all of it, which takes 1.7 s for 10 MB. The part begins where it is no UTF-8, with the element there.
    """
    body, kind = response.body, (response.headers.get(b"Content-Type") or b"").decode("latin-1")
    if (
        len(body) < HUGE
        or http_content_type_encoding(kind)
        or read_bom(body)[0]
        or html_body_declared_encoding(body)
        or body.isascii()
    ):
        return None
    try:
        body.decode()
    except UnicodeDecodeError as error:
        at = error.start
    else:
        return None
    start, end = body.rfind(b"<", max(at - _GUESSED_BY, 0), at), body.rfind(b"<", at, at + _GUESSED_BY)
    part = body[start if start >= 0 else at : end if end > 0 else at + _GUESSED_BY]
    return TextResponse(response.url, body=part).encoding


def too_many_attributes(response: Response) -> Iterator[bool]:
    """Whether an element of *response*, a page of HTML, has more than :data:`MAX_ATTRIBUTES`: as far as is known after each step.

    There is no step of most pages.
    """
    if not isinstance(response, HtmlResponse) or len(response.body) < _SMALL:
        return
    try:
        html = html_of(response)
    except (LookupError, ValueError):  # its charset does not exist
        return
    if may_have_more_attributes(html, MAX_ATTRIBUTES):
        attributes = Attributes(MAX_ATTRIBUTES)
        for _ in look_at(html, attributes):
            yield attributes.are_too_many
        yield attributes.are_too_many


def html_of(response: HtmlResponse) -> bytes:
    """The text of *response* that Scrapy's selectors parse.

    Raises:
        LookupError, ValueError: If its charset does not exist.
    """
    return response.text.replace("\0", "").encode("utf-8", "replace")


def is_huge(response: Response) -> bool:
    """Whether *response* is a page of HTML of which no tree should be made."""
    return len(response.body) >= HUGE and isinstance(response, HtmlResponse)


def root_of(response: HtmlResponse) -> Any:
    """The root of the tree of *response*; of a huge page, of a tree of its beginning, where its head is.

    Raises:
        LookupError, ValueError: If its charset does not exist, or it is not huge and its base URL is not valid.
    """
    if is_huge(response):
        return Selector(response.text[:HUGE], type="html").root
    return response.selector.root


def attributes_of(html: bytes, *tags: str, most: int = MAX_ATTRIBUTES) -> Iterator[dict[str, str]]:
    """The attributes of each element with one of the names *tags* in *html*, read step by step, and without a tree.

    The rest of a page is left out from an element on that has more than *most* attributes, or that is too deep.
    """
    elements = Elements(tags, most)
    for _ in look_at(html, elements):
        yield from elements.take()
    yield from elements.take()


def look_at(html: bytes, attributes: Attributes) -> Iterator[None]:
    """Show *attributes* the elements of *html* until it has seen enough, some of them at each step."""
    parser = etree.HTMLParser(target=attributes, encoding="utf-8", huge_tree=True)
    n, n_chunks = 0, 0  # without an element
    with suppress(etree.LxmlError):  # there is nothing in it
        for at in range(0, len(html), _CHUNK):  # an exception out of the target would not stop the parser
            if attributes.is_over:
                break
            chunk = html[at : at + _CHUNK]
            n, n_chunks = attributes.n, n_chunks + 1 if attributes.n == n else 0
            parser.feed(chunk if n_chunks < _LONGEST else chunk + b"'\">")
            yield
        else:
            parser.close()


def may_have_more_attributes(html: bytes, n: int) -> bool:
    """Whether a tag in *html* may have more than *n* attributes; for most pages that have none it is false.

    It takes a seventh of the time of a parser. Whatever a parser sees as a tag with so many is found: as each attribute
    has a name and a separator in front of it, the tag is ``2 * n`` bytes long or longer, and has *n* separators or more.
    Within it a ``>`` stands only in a quoted value, whose quote stands behind the beginning of the tag.
    """
    values = [list(islice(_values(html, quote), _MAX_VALUES + 1)) for quote in (b'"', b"'")]
    if max(map(len, values)) > _MAX_VALUES:
        return True
    masked = bytearray(html)
    for value in chain(*values):
        masked[value.end : value.stop] = masked[value.end : value.stop].replace(b">", b"-")
    at, n_tags = 0, 0
    while len(html) - at >= 2 * n:
        end = masked.rfind(b">", at, at + 2 * n)
        if end < 0:  # nothing ends for so long
            end = masked.find(b">", at + 2 * n)
            end = len(html) if end < 0 else end
            while (tag := _TAG.search(html, at, end)) is not None:
                n_tags += 1
                at = _end_of_tag(html, tag.start(), end, values)
                if n_tags > _MAX_VALUES or (
                    at - tag.start() >= 2 * n
                    and sum(html.count(each, tag.start(), at) for each in _SEPARATORS) >= n
                ):
                    return True
        at = end + 1
    return False


class _Value(NamedTuple):
    """A text that would be the value of an attribute if there were a tag around it, and that has a ``>``.

    Attributes:
        begin: Where its quote is.
        end: Where its first ``>`` is.
        stop: Where the next such quote is.
    """

    begin: int
    end: int
    stop: int


def _values(html: bytes, quote: bytes) -> Iterator[_Value]:
    for match in _VALUES[quote].finditer(html):
        stop = html.find(quote, match.end())
        yield _Value(match.start(), match.end() - 1, len(html) if stop < 0 else stop)


def _end_of_tag(html: bytes, begin: int, end: int, values: list[list[_Value]]) -> int:
    """Where a tag ends, *end* at the latest, if one begins at *begin* and as much as may be is a value."""
    at = begin
    while (at := html.find(b">", at, end)) >= 0:
        for each in values:
            n = bisect_right(each, at, key=attrgetter("end"))
            if n and each[n - 1].stop > at and each[n - 1].begin > begin:
                at = each[n - 1].stop
                break
        else:
            return at
    return end

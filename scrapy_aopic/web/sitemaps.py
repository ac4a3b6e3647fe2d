"""Sitemaps, which anyone may have written: read in steps, as leniently as possible, without keeping them in memory.

The formats are those of https://www.sitemaps.org/protocol.html: a ``urlset`` has a ``loc`` in each ``url``, a
``sitemapindex`` one in each ``sitemap``, a text a URL in each line, an RSS feed a ``link`` in each ``item``, and an Atom feed
one in each ``entry``. A ``link`` with ``hreflang`` in a ``url`` names the page in another language
(https://developers.google.com/search/docs/specialty/international/localized-versions).

They are not read by a parser of XML, because many are not valid: an unescaped ``&``, bytes of another encoding, or a
surplus end tag would end a list, or hold up the rest of it until its end. Only names of tags count, and which entry is
open.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import NamedTuple
from urllib.parse import urljoin

from w3lib.encoding import read_bom, resolve_encoding

from scrapy_aopic.core.robots.rules import lines_of

from .http_dates import read_stated_date
from .urls import is_parsable

MAX_BYTES = 50 << 20
"""Bytes of a sitemap that are read, decompressed: as many as the protocol allows."""

MAX_ENTRIES = 50_000
"""Entries of a sitemap that are read: as many as the protocol allows. As many pages in other languages are read, too."""

PAGES, SITEMAPS = "urlset", "sitemapindex"

_CHUNK = 16_384
"""Bytes that are read in a step, which takes up to 8 ms, depending on how many tags they have."""

_BEGINNING = 1 << 20
"""Bytes within which the root element must begin, after whatever a server puts before it, such as warnings."""

_LONGEST = 100_000
"""Characters of a tag or an entry that are kept until its end has come: more than any URL has."""

_LONGEST_DATE = 100
"""Characters of a date that are read."""

_SPACE = " \t\r\n\f\v\0\ufeff"
_WEB = ("http://", "https://")

_NAMED = re.compile(rb"^[ \t]*sitemap[ \t]*:([^\n]*)", re.IGNORECASE | re.MULTILINE)

_MARKUP = re.compile(
    r"<(?:(!--|!\[CDATA\[)|(/?)(?:([\w.-]+):)?"
    r"(url|loc|link|sitemap|item|entry|urlset|sitemapindex|rss|rdf|feed|lastmod|pubdate|updated|date|ttl|updateperiod|updatefrequency)"
    r"(?=[\s/>])([^<>]*)>([^<]*))",
    re.IGNORECASE,
)
"""The beginning of a comment or a ``CDATA``, or a tag that counts: its slash, prefix, name, rest, and the text after it."""

_DATES = {"lastmod", "pubdate", "updated", "date"}
"""Elements with the instant of the last change: of a sitemap, of RSS, of Atom, and of RDF (``dc:date``)."""

_OWN = {"ttl", "updateperiod", "updatefrequency"}
"""Elements with which a feed says how often it is updated: of RSS, in minutes, and of its module for syndication."""

_YEAR = 365 * 86_400.0
_PERIODS = {"hourly": 3600.0, "daily": 86_400.0, "weekly": _YEAR / 52, "monthly": _YEAR / 12, "yearly": _YEAR}

_FEED = re.compile(rb"<link\b([^<>]*)>", re.IGNORECASE)
_HEAD = 50_000
"""Bytes at the beginning of a page among which it names its feeds."""

_SECTIONS = ("<!--", "<![CDATA[")
_ATTRIBUTE = re.compile(
    r"(?<![\w:.-])(href|rel)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE
)
_REFERENCE = re.compile(r"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos));")
_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_DECLARED = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
_CHARSETS = re.compile(r"cp\d|iso8859|koi8|gb|big5|shift_jis|euc_|tis-620|mac")
_UNDECODED = re.compile("[\udc80-\udcff]")

_GZIP = b"\x1f\x8b\x08"
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_MEMBERS = 100
"""Members of a gzip file that are read: an empty one takes 20 bytes only, so that a small file may have very many."""


class _Format(NamedTuple):
    """The names of the elements of one kind of sitemap.

    Attributes:
        root: The root element.
        kind: What its entries are.
        entries: Elements that stand for an entry.
        url: The element in them whose text is the URL; ``""`` if it is a ``link`` with ``href``.
    """

    root: str
    kind: str
    entries: tuple[str, ...]
    url: str


_FORMATS = {
    each.root: each
    for each in (
        _Format("urlset", PAGES, ("url", "sitemap"), "loc"),
        _Format("sitemapindex", SITEMAPS, ("sitemap", "url"), "loc"),
        _Format("rss", PAGES, ("item",), "link"),
        _Format("rdf", PAGES, ("item",), "link"),
        _Format("feed", PAGES, ("entry",), ""),
    )
}


def sitemaps_in(robots_txt: bytes, base_url: str, most: int) -> Iterator[str]:
    """The sitemaps that *robots_txt*, found at *base_url*, names; empty for those beyond *most*, which are not looked at."""
    for number, match in enumerate(_NAMED.finditer(lines_of(robots_txt))):
        if number >= most:
            yield ""
            continue
        url = match[1].partition(b"#")[0].strip().decode("utf-8", "replace")
        if is_parsable(url):
            with suppress(ValueError):  # no URL
                yield urljoin(base_url, url)


def feeds_in(html: bytes) -> Iterator[str]:
    """The feeds that *html* names by ``rel="alternate"``, as they stand there."""
    head = html[:_HEAD]
    for match in _FEED.finditer(head) if b"+xml" in head else ():
        text = match[1].decode("latin-1")
        found, is_feed = _attributes(text), "rss+xml" in text.lower() or "atom+xml" in text.lower()
        if is_feed and "alternate" in found.get("rel", "").lower().split() and found.get("href"):
            yield _plain(found["href"])


class Sitemap:
    """The entries of the sitemap in *body*, compressed or not.

    Args:
        has_dates: Whether the dates of entries are read.

    Attributes:
        kind: :data:`PAGES` or :data:`SITEMAPS`; ``""`` until that is known.
        left_out: How much of it is not among its URLs, once they have been read: ``entries`` and ``alternates`` beyond the
            bounds, ``lines`` that are no URL, and what is ``too long``; ``rest`` is 1 if it is too large or ends in the middle.
        dates: When pages were changed last, in seconds since the epoch, by URL as it stands in the text; an entry has been read
            when the URL of the next one comes.
    """

    def __init__(self, body: bytes, *, has_dates: bool = False) -> None:
        self.dates: dict[str, float] = {}
        self._has_dates = has_dates
        self._url, self._date = "", 0.0  # of the entry that is open
        self._own: dict[str, str] = {}
        self.kind = ""
        self.left_out: Counter[str] = Counter()
        self._body = body
        self._format: _Format | None = None
        self._is_whole = False
        self._text = ""  # which was not read yet, because it may go on
        self._is_in_entry = False
        self._prefix: str | None = None  # that of the entry
        self._held: StringIO | None = None  # what was read of the URL that is open
        self._until = ""  # what ends the comment, or the CDATA, that is open
        self._seen: set[int] = set()
        self._n: Counter[str] = Counter()

    @property
    def every(self) -> float:
        """Seconds after which it is to be read again by its own words; 0 if it does not say."""
        ttl, often = (
            int(text[:9]) if text.isdecimal() else 0
            for text in map(self._own.get, ("ttl", "updatefrequency"), ("", ""))
        )
        return min(60.0 * ttl, _YEAR) or _PERIODS.get(self._own.get("updateperiod", "").lower(), 0) / (
            often or 1
        )

    def __iter__(self) -> Iterator[str | None]:
        """URLs as they stand in the text, each once, and ``None`` after each step."""
        decoder: codecs.IncrementalDecoder | None = None
        read, n_bytes = self._tags, 0
        for chunk in self._chunks():
            if decoder is None:
                decoder = _decoder(chunk)
            self._text += decoder.decode(chunk)
            if not n_bytes and _is_of_web(self._text.lstrip(_SPACE)):
                self.kind, read = PAGES, self._lines
            yield from read()
            if len(self._text) > _LONGEST:
                self.left_out["too long"] += 1
                self._text = ""
            n_bytes += len(chunk)
            if n_bytes > (MAX_BYTES if self.kind else _BEGINNING):
                self.left_out["rest"] = 1
                return
            yield None
        if read == self._lines:
            self._text += "\n"
            yield from self._lines()
        else:
            if self._text.rstrip(_SPACE).endswith(">"):
                self._text += "<" + " " * len(_SECTIONS[-1])
                yield from self._tags()
            if not self._is_whole:
                self.left_out["rest"] = 1

    def _lines(self) -> Iterator[str]:
        *lines, self._text = self._text.split("\n")
        for line in lines:
            url = line.strip(_SPACE)
            if not _is_of_web(url):
                self.left_out["lines"] += bool(url)
            elif self._is_new(url, "entries"):
                yield url

    def _tags(self) -> Iterator[str]:
        text, at = self._text, 0
        while True:
            if self._until or self._held is not None:
                at = self._go_on(text, at)
                if at < 0:
                    return
                if self._held is not None and not text.startswith(_SECTIONS, at):
                    url, self._held = _plain(self._held.getvalue()), None
                    if self._is_new(url, "entries"):
                        yield url
            end = text.rfind("<", at, -1)  # what comes from there on may go on
            if end < 0:
                self._text = "<" if text.endswith("<", at) else ""
                return
            self._text = text[end:]
            for match in _MARKUP.finditer(text, at, end):
                if match[1]:
                    at, self._until = match.end(), "-->" if match[1] == "!--" else "]]>"
                    break
                if url := self._tag(match):
                    yield url
                elif self._held is not None:
                    at = match.start(6)
                    break
            else:
                return

    def _tag(self, tag: re.Match[str]) -> str:
        """The URL that *tag* has, and that is new; ``""`` if it has none, or may go on."""
        _, slash, prefix, name, rest, behind = tag.groups()
        name, known = name.lower(), self._format
        if known is None:
            if not slash and name in _FORMATS:
                self._format = known = _FORMATS[name]
                self.kind, self._is_whole = known.kind, rest.endswith("/")
        elif name in known.entries:
            self._is_in_entry, self._prefix = not slash, prefix
            self._url, self._date = "", 0.0
        elif slash:
            self._is_whole = self._is_whole or name == known.root
        elif not self._is_in_entry:
            if name in _OWN:
                self._own[name] = behind[:_LONGEST_DATE].strip(_SPACE)
        elif name == known.url and prefix == self._prefix:  # images and videos have others
            if tag.string.startswith("<!", tag.end()):
                self._held = StringIO()
            elif self._is_new(url := _plain(behind), "entries"):
                return url
        elif name in _DATES:
            if self._has_dates and not self._date:
                self._date = read_stated_date(behind[:_LONGEST_DATE])
                self._note_date()
        elif name == "link" and known.url != "link":
            return self._link(rest, "alternates" if known.url else "entries")
        return ""

    def _link(self, attributes: str, what: str) -> str:
        """The URL in the *attributes* of a ``link``, if it is new."""
        found = _attributes(attributes)
        relations = (found.get("rel") or ("alternate" if what == "entries" else "")).lower().split()
        url = _plain(found.get("href") or "")
        return url if "alternate" in relations and self._is_new(url, what) else ""

    def _note_date(self) -> None:
        """Note the date of the open entry, if that has a URL and a date."""
        if self._url and self._date:
            self.dates[self._url] = self._date

    def _go_on(self, text: str, at: int) -> int:
        """Read what is open, in *text* from *at* on; returns where the next tag begins, -1 if that is not there yet."""
        if self._until:
            end = text.find(self._until, at)
            if self._until == "]]>":
                self._hold(text[at : end if end >= 0 else max(at, len(text) - 2)].replace("&", "&amp;"))
            if end < 0:
                self._text = text[max(at, len(text) - 2) :]
                return -1
            at, self._until = end + 3, ""
        if self._held is None:
            return at
        start = text.find("<", at)
        self._hold(text[at : start if start >= 0 else len(text)])
        self._text = text[start:] if start >= 0 else ""
        return start if 0 <= start <= len(text) - len(_SECTIONS[-1]) else -1

    def _hold(self, text: str) -> None:
        """Keep *text* if it is of a URL."""
        if self._held is not None and self._held.tell() + self._held.write(text) > _LONGEST:
            self.left_out["too long"] += 1
            self._held = None

    def _is_new(self, url: str, what: str) -> bool:
        """Whether *url* is to be taken; it was from now on."""
        if what == "entries" and self._has_dates:
            self._url = url
            self._note_date()
        number = hash(url)
        if not url or number in self._seen:
            return False
        if self._n[what] >= MAX_ENTRIES:
            self.left_out[what] += 1
            return False
        self._n[what] += 1
        self._seen.add(number)
        return True

    def _chunks(self) -> Iterator[bytes]:
        """The body, decompressed if need be; of a broken one, what comes before the break."""
        body = self._body
        if not body.startswith(_GZIP):
            for at in range(0, len(body), _CHUNK):
                yield body[at : at + _CHUNK]
            return
        unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        n_members = 1
        for at in range(0, len(body), _CHUNK):
            packed = body[at : at + _CHUNK]
            while packed:
                try:
                    chunk = unpacker.decompress(packed, _CHUNK)
                except zlib.error:
                    self.left_out["rest"] = 1
                    return
                if chunk:
                    yield chunk
                packed = unpacker.unconsumed_tail
                if unpacker.eof:
                    packed, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_OR_ZLIB)
                    n_members += 1
                    if n_members > _MEMBERS:
                        self.left_out["rest"] = 1
                        return


def _decoder(beginning: bytes) -> codecs.IncrementalDecoder:
    """A lenient decoder for a sitemap with this *beginning*."""
    encoding = read_bom(beginning)[0]
    if encoding is None and b"\0" in beginning[:4]:
        encoding = "utf-16-be" if beginning.startswith(b"\0") else "utf-16-le"
    if encoding is None:
        declared = _DECLARED.search(beginning[:1024])
        encoding = resolve_encoding(declared[1].decode()) if declared is not None else None
        # Python has codecs that are none, and some are slow
        if encoding is None or not _CHARSETS.match(encoding):
            encoding = "utf-8"
    # Bytes that are not UTF-8 stay what they are, and are escaped in URLs.
    return codecs.getincrementaldecoder(encoding)("surrogateescape" if encoding == "utf-8" else "replace")


def _attributes(text: str) -> dict[str, str]:
    """``href`` and ``rel`` among the attributes in *text*."""
    return {each[1].lower(): each[2] or each[3] or each[4] or "" for each in _ATTRIBUTE.finditer(text)}


def _is_of_web(text: str) -> bool:
    return text[:8].lower().startswith(_WEB)


def _plain(text: str) -> str:
    """*text* between tags, or in an attribute, without references to characters and without space around it."""
    if "&" in text:
        text = _REFERENCE.sub(_character, text)
    if not text.isascii():
        text = _UNDECODED.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)
    return text.strip(_SPACE)


def _character(reference: re.Match[str]) -> str:
    if reference[3]:
        return _CHARACTERS[reference[3]]
    code = int(reference[1]) if reference[1] else int(reference[2], 16)
    return "" if not code or 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code)

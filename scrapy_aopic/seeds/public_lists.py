"""Lists of pages and hosts that others publish: indexes and host ranks of Common Crawl, archives, sitemaps, and ranks by Tranco.

Rule: they are told by how they begin, so that a list has any name. Only WARC is told by its name.

Sources: the CDXJ of pywb, https://pywb.readthedocs.io/en/latest/manual/indexing.html; the CDX of the Wayback Machine,
https://iipc.github.io/warc-specifications/specifications/cdx-format/cdx-2015/; https://commoncrawl.org/web-graphs;
https://tranco-list.eu; https://www.sitemaps.org/protocol.html; ISO 28500:2017 (WARC 1.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

import msgspec

from scrapy_aopic.exceptions import ExchangeError, plainly
from scrapy_aopic.place.remote_files import opening
from scrapy_aopic.storage.named_files import lines_of_file
from scrapy_aopic.web.sitemaps import MAX_BYTES, MAX_ENTRIES, PAGES, Sitemap

_CDXJ = re.compile(r"\S+ [0-9]{14} \{")
_CDX = re.compile(r" CDX( \S)+\s*|\S+ [0-9]{14}( \S+){4,}\s*")
_RANKED = re.compile(r"[0-9]+,[^\s,/:]+\.[^\s,/:]+\s*")

_PAGERANK = "pr_val"
"""Column of the score in host ranks: what cash estimates, too."""

_CDX_COLUMNS = "Nbamsk"
"""Letters of the first columns of a CDX without a line that names them: key, date, URL, type, status and digest."""

_READ = ("200", "304", "")
"""Statuses of pages that were read. An index has none for a capture that was the same as the one before."""


class ListedPage(NamedTuple):
    """What a list says of a page.

    Attributes:
        where: Its place in the list.
        url: Its URL, whatever stands in its place.
        score: Its score, whatever stands in its place; ``None`` if the list has no scores.
        left_out: Why it is no page to begin with, although nothing is wrong with the list; ``""`` if it is one.
        digest: SHA-1 of its body in base 32, with or without ``sha1:``; ``""`` if the list does not say.
        date: When it was fetched, as 14 digits or in ISO 8601.
        record: ID of its WARC record.
        by_others: Whether the list is not of the operator's making, so that it opens no host that is not public.
    """

    where: str
    url: object
    score: object = None
    left_out: str = ""
    digest: str = ""
    date: str = ""
    record: str = ""
    by_others: bool = False


class _Capture(msgspec.Struct):
    url: object = ""
    status: object = ""
    digest: object = ""
    timestamp: object = ""


_capture = msgspec.json.Decoder(_Capture).decode


def captured(found: ListedPage, status: object) -> ListedPage:
    """What was *found*, a page that was fetched with *status*."""
    code = "" if status in (None, "-") else str(status)
    return found if code in _READ else found._replace(left_out=f"of status {code}")


def public_reader(first: str) -> Callable[[str, Iterator[str], str], Iterator[ListedPage]] | None:
    """What reads the text that begins with the line *first*; ``None`` if it is none that is known here.

    A reader is given the name of the list, its lines, and the column of scores (``""`` for the usual one).
    """
    if first.startswith("{") or _CDXJ.match(first):
        return _read_index
    if _CDX.fullmatch(first):
        return _read_cdx
    if first.startswith("#") and "host_rev" in first:
        return _read_ranks
    if _RANKED.fullmatch(first):
        return _read_tranco
    return _read_sitemap if first.lstrip().startswith("<") else None


def _read_index(_: str, lines: Iterator[str], __: str) -> Iterator[ListedPage]:
    for number, line in enumerate(lines, 1):
        try:
            key, brace, rest = line.partition("{")
            found = _capture(brace + rest)
        except (msgspec.DecodeError, UnicodeError):
            yield ListedPage(f"line {number}", "")
            continue
        date = found.timestamp or (key.split()[1:] or [""])[0]
        page = ListedPage(f"line {number}", found.url, None, "", str(found.digest), str(date), by_others=True)
        yield captured(page, found.status)


def _read_cdx(_: str, lines: Iterator[str], __: str) -> Iterator[ListedPage]:
    names: Sequence[str] = _CDX_COLUMNS
    for number, line in enumerate(lines, 1):
        values = line.split()
        if line.startswith(" CDX "):  # at the beginning of each of the files that were joined
            names = values[1:]
            continue
        found = dict(zip(names, values, strict=False)) if len(values) >= len(names) else {}
        digest, date = found.get("k", ""), found.get("b", "")
        page = ListedPage(f"line {number}", found.get("a", ""), None, "", digest, date, by_others=True)
        yield captured(page, found.get("s"))


def _read_ranks(path: str, lines: Iterator[str], score: str) -> Iterator[ListedPage]:
    names = [name.lstrip("#") for name in next(lines).split()]
    if (score or _PAGERANK) not in names:
        raise ExchangeError(f"{path} has no column {score or _PAGERANK}, only {', '.join(names)}.")
    host, value = names.index("host_rev"), names.index(score or _PAGERANK)
    for number, line in enumerate(lines, 2):
        values = line.split("\t")
        if len(values) < len(names):
            yield ListedPage(f"line {number}", "", "0")
            continue
        name = ".".join(reversed(values[host].strip().split(".")))
        yield ListedPage(f"line {number}", f"https://{name}/", values[value], by_others=True)


def _read_tranco(_: str, lines: Iterator[str], __: str) -> Iterator[ListedPage]:
    for number, line in enumerate(lines, 1):
        rank, _, name = line.strip().partition(",")
        is_rank = rank.isdecimal() and int(rank) > 0
        # The rule by which that list itself joins others (Dowdall's).
        yield ListedPage(
            f"line {number}", f"https://{name}/", 1 / int(rank) if is_rank else rank, by_others=True
        )


def _read_sitemap(path: str, lines: Iterator[str], _: str, *, index: str = "") -> Iterator[ListedPage]:
    """The pages of the sitemap at *path*, or of those that it names unless an *index* names it."""
    parts, size = [], 0
    for line in lines:
        parts.append(line.encode("utf-8", "surrogateescape"))
        size += len(parts[-1])
        if size > MAX_BYTES:
            break
    sitemap = Sitemap(b"".join(parts))
    for number, url in enumerate(filter(None, sitemap), 1):
        if sitemap.kind == PAGES:
            where = f"{path}, entry {number}" if index else f"entry {number}"
            yield ListedPage(where, url.strip(), by_others=True)
        elif not index:
            yield from _read_named(path, url)
    if not sitemap.kind or (index and sitemap.kind != PAGES):
        what = "names other sitemaps in its turn" if index else "begins as XML does, but is no sitemap"
        raise ExchangeError(f"{path} {what}.")
    if sitemap.left_out:
        raise ExchangeError(
            f"{path} is not whole, or has more than a sitemap may have ({MAX_ENTRIES:,} entries, {MAX_BYTES >> 20} MB): "
            f"{', '.join(f'{n:,} {what}' for what, n in sitemap.left_out.items())} would be missing."
        )


def _read_named(index: str, url: str) -> Iterator[ListedPage]:
    """The pages of the sitemap *url* that the *index* names: a file beside it, as no list of others may open an address."""
    its_name, name = (re.split(r"[/\\\0]", each.rstrip("/"))[-1] for each in (index, url))
    path = index.removesuffix(its_name) + name
    try:
        with opening(path) as file:
            yield from _read_sitemap(path, lines_of_file(file, path), "", index=index)
    except ExchangeError as error:
        raise ExchangeError(f"{index} names {url}, which must be beside it: {error}") from error


def read_warc(path: str, file: IO[bytes]) -> Iterator[ListedPage]:
    """The pages in the archive *file*, compressed or not, that is called *path*.

    Raises:
        ExchangeError: If it cannot be read.
    """
    try:
        from warcio.archiveiterator import ArchiveIterator  # noqa: PLC0415  # an extra
        from warcio.exceptions import ArchiveLoadFailed  # noqa: PLC0415
    except ImportError as error:
        raise ExchangeError(f"WARC needs warcio, which {plainly(error)}: pip install warcio.") from error
    try:
        for number, record in enumerate(ArchiveIterator(file), 1):
            if record.rec_type not in {"response", "revisit"}:
                continue
            say = record.rec_headers.get_header
            status = record.http_headers.get_statuscode() if record.http_headers is not None else ""
            # A revisit names the record with the body, and a body that was cut is none.
            has_body = record.rec_type == "response" and not say("WARC-Truncated")
            digest = say("WARC-Payload-Digest", "") if has_body else ""
            page = ListedPage(f"record {number}", say("WARC-Target-URI"), None, "", digest)
            page = page._replace(date=say("WARC-Date", ""), record=say("WARC-Record-ID", ""), by_others=True)
            yield captured(page, status)
    except (ArchiveLoadFailed, OSError, EOFError, AttributeError) as error:  # what it makes of a torn record
        raise ExchangeError(f"{path} cannot be read as WARC: {plainly(error)}.") from error

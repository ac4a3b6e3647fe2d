"""Lists of seeds, as other programs write them: a URL a line, or a table with a column ``url`` and maybe one of scores.

What others publish is read by :mod:`.public_lists`.

Rule: a list of any length takes the memory of one chunk, and a bad row is a row that says what is wrong with it.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlsplit

from scrapy_aopic.exceptions import ExchangeError, plainly
from scrapy_aopic.place.file_formats import CHUNK, is_csv, is_parquet, load_pyarrow
from scrapy_aopic.place.remote_files import is_remote, opening
from scrapy_aopic.storage.named_files import lines_of_file
from scrapy_aopic.web.networks import Allowed, Networks
from scrapy_aopic.web.urls import plain_host

from .public_lists import ListedPage, captured, public_reader, read_warc

_SCORES = ("score", "importance")
"""Columns of a table of seeds that hold the score, the first that there is."""

_NETLOC = re.compile(r"([^\s\\\[\]@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s\\\[\]@:]+)(:[0-9]*)?")
"""User, host and port: stricter than the standard, so that every seed can become a request."""


_SHOWN = 200
"""Characters of what is wrong that are shown."""


class Row(NamedTuple):
    """A row of a list of seeds.

    Attributes:
        score: What the page is worth, >= 0; ``None`` if the list has no scores.
        error: Why it cannot be used, with the file and the line; ``""`` if it can.
        reason: Why it is no seed, in words that fit many rows, after "rows"; ``""`` if it is one.
        found: What the list says of the page.
    """

    url: str
    score: float | None
    error: str
    reason: str
    found: ListedPage


def is_list_url(source: str) -> bool:
    """Whether *source* is the URL of a list, for fsspec, and neither a seed nor a path."""
    return is_remote(source) and not source.lower().startswith(("http://", "https://"))


def read_seeds(source: str, score: str = "", networks: Networks | None = None) -> Iterator[Row]:
    """The rows of the list *source*, those that are no seeds included; see :func:`read_list`.

    Args:
        networks: Where the crawl may go: lists that others publish open no other hosts. By default to the Internet.
    """
    networks = networks or Networks(Allowed())
    return (check(source, found, networks) for found in read_list(source, score))


def read_list(source: str, score: str = "") -> Iterator[ListedPage]:
    """What the list *source*, a path or a URL for fsspec, says of its pages.

    Args:
        score: The column of the scores, if it is not the usual one.

    Raises:
        ExchangeError: If it cannot be read as what its name and its beginning say.
    """
    with opening(source) as file:
        if is_parquet(source):
            yield from _read_parquet(source, file, score)
        elif source.lower().endswith((".warc", ".warc.gz")):
            yield from read_warc(source, file)
        else:
            yield from _read_text(source, file, score)


def check(source: str, found: ListedPage, networks: Networks) -> Row:
    """The row of what was *found* in the list *source*, by a crawl that may go to *networks*."""
    url, score, left_out = found.url, found.score, found.left_out
    fault = url_fault(url)
    reason = f"whose URL {fault}" if fault else "with a bad score"
    error = url_error(url) if fault else _score_error(score)
    if error:
        return Row(str(url), None, f"{source}, {found.where}: {error}", reason, found)
    if found.by_others and not left_out and networks.refusal(str(url), is_by_others=True):
        left_out = "of hosts or ports that AOPIC_ALLOW_NETWORKS does not allow"
    return Row(str(url), None if score is None else float(cast("Any", score)), "", left_out, found)


def url_error(url: object) -> str:
    """Why *url* is no URL that can be a seed; ``""`` if it is one."""
    fault = url_fault(url)
    if not isinstance(url, str) or not url:
        return "there is no URL"
    return fault and f"{repr(url[:_SHOWN])[:_SHOWN]}{'...' * (len(url) > _SHOWN)} {fault}"


def url_fault(url: object) -> str:
    """The same without the URL."""
    if not isinstance(url, str) or not url:
        return "is not there"
    if plain_host(url):  # true of most, in a tenth of the time
        return ""
    try:
        url.encode()
        parts = urlsplit(url)
        _ = parts.port  # is checked when it is read
    except UnicodeEncodeError:
        return "is not UTF-8"
    except ValueError:
        return "is no URL: its host or its port cannot be one"
    if parts.scheme not in ("http", "https") or not _NETLOC.fullmatch(parts.netloc):
        return "is no http or https URL with a host"
    return ""


def _score_error(score: object) -> str:
    if score is None:
        return ""
    try:
        number = float(cast("Any", score))
    except (TypeError, ValueError):
        number = math.nan
    return "" if 0 <= number < math.inf else f"the score ({score!r}) must be a number of 0 or more"


def _read_text(source: str, file: IO[bytes], score: str) -> Iterator[ListedPage]:
    lines = lines_of_file(file, source)
    first = next(lines, "")
    lines = chain((first,), lines)
    if reader := public_reader(first):
        yield from reader(source, lines, score)
    elif is_csv(source):
        yield from _read_csv(source, lines, score)
    else:
        for number, line in enumerate(lines, 1):
            entry = line.strip()
            if entry and not entry.startswith("#"):
                yield ListedPage(f"line {number}", entry)


def _read_csv(source: str, lines: Iterator[str], column: str) -> Iterator[ListedPage]:
    rows = csv.reader(lines)
    try:
        url, score = _columns(source, [name.strip() for name in next(rows, [])], column)
        for row in rows:
            if row:
                values = [*row, *[""] * (1 + max(url, score or 0) - len(row))]
                yield ListedPage(
                    f"line {rows.line_num}", values[url].strip(), None if score is None else values[score]
                )
    except (
        csv.Error
    ) as error:  # a field of 128 KB, as one makes of the rest of a file whose quotes are not closed
        raise ExchangeError(
            f"{source} cannot be read: line {rows.line_num} is no row of a table; are its quotes closed?"
        ) from error


_OF_INDEX = ("fetch_status", "content_digest", "fetch_time")
"""Columns of the URL index of Common Crawl."""


def _read_parquet(source: str, file: IO[bytes], column: str) -> Iterator[ListedPage]:
    arrow = load_pyarrow()
    try:
        table = arrow.parquet.ParquetFile(file)
        columns = table.schema_arrow.names
        url, score = _columns(source, columns, column)
        names = [columns[each] for each in (url, score) if each is not None]
        names += [each for each in _OF_INDEX if each in columns]
        number = 0
        for batch in table.iter_batches(CHUNK, columns=names):
            none = [None] * batch.num_rows
            read = {name: batch.column(name).to_pylist() for name in names}
            scores = none if score is None else read[columns[score]]
            facts = zip(*(read.get(each, none) for each in _OF_INDEX), strict=True)
            for url_value, value, (status, digest, date) in zip(
                read[columns[url]], scores, facts, strict=True
            ):
                number += 1
                found = ListedPage(
                    f"row {number}", url_value, None if score is None else "" if value is None else value
                )
                if status is not None:
                    found = captured(
                        found._replace(digest=str(digest or ""), date=str(date or ""), by_others=True), status
                    )
                yield found
    except (arrow.lib.ArrowException, OSError) as error:
        raise ExchangeError(f"{source} cannot be read as Parquet: {plainly(error)}.") from error


def _columns(source: str, names: list[str], score: str) -> tuple[int, int | None]:
    """Where the URL and the score are."""
    lower = [name.lower() for name in names]
    for name in filter(None, ("url", score.lower())):
        if name not in lower:
            found = ", ".join(each if each.isprintable() else repr(each) for each in names)[:_SHOWN]
            raise ExchangeError(
                f"{source} has no column {name}, only {found or 'none'}: its first line must name the columns."
            )
    scores = (score.lower(),) if score else _SCORES
    return lower.index("url"), next((lower.index(name) for name in scores if name in lower), None)

"""Lists of seeds, as other programs write them: a URL a line, or a table with a column ``url`` and maybe one of scores.

Rule: a list of any length takes the memory of one chunk, and a bad row is a row that says what is wrong with it.
"""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from scrapy_aopic.exceptions import ExchangeError, plainly
from scrapy_aopic.place.file_formats import CHUNK, is_csv, is_parquet, load_pyarrow
from scrapy_aopic.storage.named_files import open_given, read_entries, read_lines
from scrapy_aopic.web.urls import plain_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    """

    url: str
    score: float | None
    error: str


def read_seeds(path: Path) -> Iterator[Row]:
    """The rows of a list of seeds, bad ones included.

    Raises:
        ExchangeError: If *path* cannot be read as what its name says.
    """
    name = path.name
    rows = _read_parquet if is_parquet(name) else _read_csv if is_csv(name) else _read_text
    for where, url, score in rows(path):
        error = url_error(url) or _score_error(score)
        value = None if score is None or error else float(cast("Any", score))
        yield Row(str(url), value, f"{path}, {where}: {error}" if error else "")


def url_error(url: object) -> str:
    """Why *url* is no URL that can be a seed; ``""`` if it is one."""
    if not isinstance(url, str) or not url:
        return "there is no URL"
    if plain_host(url):  # true of most, in a tenth of the time
        return ""
    shown = repr(url[:_SHOWN])[:_SHOWN] + "..." * (len(url) > _SHOWN)
    try:
        url.encode()
        parts = urlsplit(url)
        _ = parts.port  # is checked when it is read
    except UnicodeEncodeError:
        return f"{shown} is not UTF-8"
    except ValueError:
        return f"{shown} is no URL: its host or its port cannot be one"
    if parts.scheme not in ("http", "https") or not _NETLOC.fullmatch(parts.netloc):
        return f"{shown} is no http or https URL with a host"
    return ""


def _score_error(score: object) -> str:
    if score is None:
        return ""
    try:
        number = float(cast("Any", score))
    except (TypeError, ValueError):
        number = math.nan
    return "" if 0 <= number < math.inf else f"the score ({score!r}) must be a number of 0 or more"


def _read_text(path: Path) -> Iterator[tuple[str, object, object]]:
    for where, url in read_entries(path):
        yield where, url, None


def _read_csv(path: Path) -> Iterator[tuple[str, object, object]]:
    rows = csv.reader(read_lines(path))
    try:
        url, score = _columns(path, [name.strip() for name in next(rows, [])])
        for row in rows:
            if row:
                values = [*row, *[""] * (1 + max(url, score or 0) - len(row))]
                yield f"line {rows.line_num}", values[url].strip(), None if score is None else values[score]
    except (
        csv.Error
    ) as error:  # a field of 128 KB, as one makes of the rest of a file whose quotes are not closed
        raise ExchangeError(
            f"{path} cannot be read: line {rows.line_num} is no row of a table; are its quotes closed?"
        ) from error


def _read_parquet(path: Path) -> Iterator[tuple[str, object, object]]:
    arrow = load_pyarrow()
    try:
        file = open_given(path)
    except OSError as error:
        raise ExchangeError(f"{path} cannot be read: {plainly(error)}.") from error
    with file:
        try:
            table = arrow.parquet.ParquetFile(file)
            url, score = _columns(path, table.schema_arrow.names)
            names = [table.schema_arrow.names[column] for column in (url, score) if column is not None]
            number = 0
            for batch in table.iter_batches(CHUNK, columns=names):
                urls = batch.column(names[0]).to_pylist()
                scores = batch.column(names[1]).to_pylist() if score is not None else [None] * len(urls)
                for url_value, value in zip(urls, scores, strict=True):
                    number += 1
                    yield f"row {number}", url_value, "" if value is None and score is not None else value
        except (arrow.lib.ArrowException, OSError) as error:
            raise ExchangeError(f"{path} cannot be read as Parquet: {plainly(error)}.") from error


def _columns(path: Path, names: list[str]) -> tuple[int, int | None]:
    """Where the URL and the score are."""
    lower = [name.lower() for name in names]
    if "url" not in lower:
        found = ", ".join(name if name.isprintable() else repr(name) for name in names)[:_SHOWN]
        raise ExchangeError(
            f"{path} has no column url, only {found or 'none'}: its first line must name the columns."
        )
    return lower.index("url"), next((lower.index(name) for name in _SCORES if name in lower), None)

"""Lists of seeds, as other programs write them: a URL a line, or a table with a column ``url`` and maybe one of scores.

Rule: a list of any length takes the memory of one chunk, and a bad row is a row that says what is wrong with it.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.web.urls import plain_host

from .formats import CHUNK, is_csv, is_parquet, load_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCORES = ("score", "importance")
"""Columns of a table of seeds that hold the score, the first that there is."""

_NETLOC = re.compile(r"([^\s\\\[\]@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s\\\[\]@:]+)(:[0-9]*)?")
"""User, host and port: stricter than the standard, so that every seed can become a request."""


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
    try:
        for where, url, score in rows(path):
            error = url_error(url) or _score_error(score)
            value = None if score is None or error else float(cast("Any", score))
            yield Row(str(url), value, f"{path}, {where}: {error}" if error else "")
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise ExchangeError(f"{path} cannot be read: {error}.") from error


def url_error(url: object) -> str:
    """Why *url* is no URL that can be a seed; ``""`` if it is one."""
    if not isinstance(url, str) or not url:
        return "there is no URL"
    if plain_host(url):  # true of most, in a tenth of the time
        return ""
    shown = repr(url if len(url) <= 200 else url[:200] + "...")
    try:
        url.encode()
        parts = urlsplit(url)
        _ = parts.port  # is checked when it is read
    except UnicodeEncodeError:
        return f"{shown} is not UTF-8"
    except ValueError as error:
        return f"{shown} is no URL ({error})"
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


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
        for number, line in enumerate(cast("IO[bytes]", file)):
            # What is not UTF-8 comes as lone surrogates, which no URL may have: one bad row, not a bad file.
            text = line.decode("utf-8", "surrogateescape")
            yield text.removeprefix("\ufeff") if not number else text


def _read_text(path: Path) -> Iterator[tuple[str, object, object]]:
    for number, line in enumerate(_lines(path), 1):
        url = line.strip()
        if url and not url.startswith("#"):
            yield f"line {number}", url, None


def _read_csv(path: Path) -> Iterator[tuple[str, object, object]]:
    rows = csv.reader(_lines(path))
    url, score = _columns(path, [name.strip() for name in next(rows, [])])
    for row in rows:
        if row:
            values = [*row, *[""] * (1 + max(url, score or 0) - len(row))]
            yield f"line {rows.line_num}", values[url].strip(), None if score is None else values[score]


def _read_parquet(path: Path) -> Iterator[tuple[str, object, object]]:
    arrow = load_pyarrow()
    with path.open("rb") as file:  # for the plain message of a file that is not there
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
        except arrow.lib.ArrowException as error:
            raise ExchangeError(f"{path} cannot be read as Parquet: {error}.") from error


def _columns(path: Path, names: list[str]) -> tuple[int, int | None]:
    """Where the URL and the score are."""
    lower = [name.lower() for name in names]
    if "url" not in lower:
        raise ExchangeError(
            f"{path} has no column url, only {', '.join(names)[:200] or 'none'}: its first line must name the columns."
        )
    return lower.index("url"), next((lower.index(name) for name in _SCORES if name in lower), None)

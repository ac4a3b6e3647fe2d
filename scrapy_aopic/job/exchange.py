"""Files that other programs read and write: lists of seeds come in, pages and links go out.

Everything streams: a file of any length takes the memory of one chunk. The name says the format: ``.csv`` and
``.parquet`` are tables, any other list of seeds has one URL a line; ``.gz`` behind a name of text is compressed.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from tqdm import tqdm

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import ExchangeError, StorageError
from scrapy_aopic.web.urls import plain_host

from .queries import LINK_COLUMNS, PAGE_COLUMNS, count_pages, each_link, each_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

_SCORES = ("score", "importance")
"""Columns of a table of seeds that hold the score, the first that there is."""

_NETLOC = re.compile(r"([^\s\\\[\]@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s\\\[\]@:]+)(:[0-9]*)?")
"""User, host and port; stricter than a URL need be, so that every seed can become a request."""

_CHUNK = 10_000


class Row(NamedTuple):
    """A row of a list of seeds.

    Attributes:
        score: What the page is worth, >= 0; ``None`` if the list has no scores.
        error: Why it cannot be used, with the file and the line; ``""`` if it can.
    """

    url: str
    score: float | None
    error: str


# -- seeds come in


def read_seeds(path: Path) -> Iterator[Row]:
    """The rows of a list of seeds, bad ones included.

    Raises:
        ExchangeError: If *path* cannot be read as what its name says.
    """
    name = path.name.lower()
    rows = _read_parquet if name.endswith(".parquet") else _read_csv if _is_csv(name) else _read_text
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
    if plain_host(url):  # most are, and it takes a tenth of the time
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


def _is_csv(name: str) -> bool:
    return name.lower().endswith((".csv", ".csv.gz"))


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
    arrow = _pyarrow()
    with path.open("rb") as file:  # for the plain message of a file that is not there
        try:
            table = arrow.parquet.ParquetFile(file)
            url, score = _columns(path, table.schema_arrow.names)
            names = [table.schema_arrow.names[column] for column in (url, score) if column is not None]
            number = 0
            for batch in table.iter_batches(_CHUNK, columns=names):
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


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415  # an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ExchangeError(
            f"Parquet needs pyarrow ({error}): pip install 'scrapy-aopic[parquet]', or use a .csv file."
        ) from error
    return pyarrow


# -- pages and links go out


def export_pages(store: Store, path: Path, *, progress: bool = False) -> int:
    """Write every page that the job knows to *path*; returns how many.

    Raises:
        ExchangeError: If *path* cannot be written.
    """
    return _export(
        path,
        PAGE_COLUMNS,
        each_page(store, _CHUNK),
        unit="pages",
        total=count_pages(store),
        progress=progress,
    )


def export_links(store: Store, path: Path, *, progress: bool = False) -> int:
    """Write every link that was kept to *path*; returns how many.

    Raises:
        ExchangeError: If no links were kept, or *path* cannot be written.
    """
    if next(store.scan(Family.LINKS), None) is None:
        raise ExchangeError(
            f"{path} is not written: this job has kept no links. AOPIC_KEEP_LINKS = True keeps those of the pages "
            "that are visited from then on."
        )
    return _export(path, LINK_COLUMNS, each_link(store, _CHUNK), unit="links", total=None, progress=progress)


def check_export(path: Path) -> None:
    """Raise what writing *path* would raise for its name.

    Raises:
        ExchangeError: If the name is of no format, or the format cannot be written here.
    """
    if path.name.lower().endswith(".parquet"):
        _pyarrow()
    elif not _is_csv(path.name):
        raise ExchangeError(f"The name of the file {path} must end in .csv, .csv.gz or .parquet.")


def _export(
    path: Path,
    columns: Mapping[str, type],
    chunks: Iterable[Sequence[tuple[Any, ...]]],
    *,
    unit: str,
    total: int | None,
    progress: bool,
) -> int:
    check_export(path)
    # Under another name until it is whole, so that nobody takes half of an export for all of it.
    part = path.with_name(path.name + ".part")
    rows = 0
    try:
        with (
            (_parquet if path.name.lower().endswith(".parquet") else _csv)(part, columns) as write,
            tqdm(total=total, unit=f" {unit}", disable=None if progress else True, leave=False) as line,
        ):
            for chunk in chunks:
                write(chunk)
                rows += len(chunk)
                line.update(len(chunk))
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise ExchangeError(f"{path} cannot be written: {error}.") from error
        raise
    return rows


@contextmanager
def _csv(path: Path, columns: Mapping[str, type]) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
    is_compressed = path.name.lower().endswith(".gz.part")
    with (
        gzip.open(path, "wt", compresslevel=6, encoding="utf-8", newline="")
        if is_compressed
        else path.open("w", encoding="utf-8", newline="")
    ) as file:
        writer = csv.writer(cast("IO[str]", file))
        writer.writerow(columns)
        yield writer.writerows


@contextmanager
def _parquet(
    path: Path, columns: Mapping[str, type]
) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
    arrow = _pyarrow()
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])

    def write(rows: Sequence[tuple[Any, ...]]) -> None:
        values = [
            list(map(kind, column))
            for kind, column in zip(columns.values(), zip(*rows, strict=True), strict=True)
        ]
        writer.write_table(arrow.table(values, schema=schema))

    with arrow.parquet.ParquetWriter(str(path), schema, compression="zstd") as writer:
        yield write

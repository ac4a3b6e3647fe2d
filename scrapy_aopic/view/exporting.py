"""Pages and links as files that other programs read.

To add a column: a field of :class:`~.queries.PageRow`, a line in ``docs/commands.md``, and CHANGELOG.md.

Rule: everything streams, and a file gets its name only when it is complete.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from scrapy_aopic.exceptions import ExchangeError, StorageError, plainly
from scrapy_aopic.place.file_formats import CHUNK, cell, is_csv, is_jsonl, is_parquet, load_pyarrow
from scrapy_aopic.place.remote_files import find_filesystem, is_remote, sending
from scrapy_aopic.storage.named_files import is_special
from scrapy_aopic.storage.store_folder import replacing
from scrapy_aopic.web.warc_index import NOT_THERE, WarcPlace, find_records

from .columns import ArrowTable, Row, Rows, columns_of
from .queries import (
    LinkRow,
    PageRow,
    changes_in,
    count_pages,
    each_link,
    facts_of,
    instants_of,
    pages_in,
    top_pages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .job_view import View


def export_pages(
    view: View,
    target: str,
    *,
    top: int = 0,
    by: str = "importance",
    since: datetime | int | None = None,
    index: Path | None = None,
    progress: bool = False,
) -> int:
    """Write every page that the job in *view* knows, or only the *top* most important ones, to *target*; returns how many.

    Args:
        target: A path, or a URL for fsspec.
        by: What the *top* pages have most of: ``"importance"``, or ``"relevance"``.
        since: Only pages that are new, changed, moved or gone since then, or since the beginning of the round of that number,
            0 for the last one.
        index: A CDXJ file of WARC files, for further columns that say where the *top* pages are in them.

    Raises:
        ExchangeError: If *target* cannot be written, *index* not be read, or there was no such round.
    """
    if not top:
        chunks = partial(pages_in, view, CHUNK)
        if since is not None:
            chunks = partial(changes_in, view, CHUNK, instants_of(view, since))
        rows = Rows(columns_of(PageRow), chunks, lambda: facts_of(view))
        total = count_pages(view) if since is None else None
        return _export(target, rows, unit="pages", total=total, progress=progress)
    best = top_pages(view, top, by=by)
    pages: Sequence[tuple[Any, ...]] = best
    columns = columns_of(PageRow)
    if index is not None:
        columns |= columns_of(WarcPlace)
        places = find_records(index, {page.url for page in best})
        pages = [(*page, *places.get(page.url, NOT_THERE)) for page in best]
    table = Rows(columns, lambda: iter([pages]), lambda: facts_of(view))
    return _export(target, table, unit="pages", total=len(pages), progress=progress)


def export_links(view: View, target: str, *, progress: bool = False) -> int:
    """Write every link that the job in *view* has kept to *target*; see :func:`export_pages`.

    Raises:
        ExchangeError: If no links were kept, or *target* cannot be written.
    """

    def links() -> Iterator[list[LinkRow]]:
        try:
            return each_link(view, CHUNK)
        except ExchangeError as error:
            raise ExchangeError(f"{target} is not written. {error}") from error

    rows = Rows(columns_of(LinkRow), links, lambda: facts_of(view))
    return _export(target, rows, unit="links", total=None, progress=progress)


def check_export(target: str) -> None:
    """Raise what writing *target* would raise for its name, or what is there.

    Raises:
        ExchangeError: If the name is of no format, the format cannot be written here, or no file can take that place.
    """
    if is_parquet(target):
        load_pyarrow()
    elif not (is_csv(target) or is_jsonl(target)):
        raise ExchangeError(
            f"The name of the file {target} must end in .csv, .jsonl, one of these and .gz, or .parquet."
        )
    if is_remote(target):
        find_filesystem(target)
        return
    path = Path(target)
    if path.is_dir() or is_special(path):
        what = (
            "a folder"
            if path.is_dir()
            else "a pipe or a device, and the file is written under another name first"
        )
        raise ExchangeError(f"{path} cannot be written: it is {what}.")


def _export(target: str, table: Rows[Row], *, unit: str, total: int | None, progress: bool) -> int:
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    check_export(target)
    n = 0
    try:
        with (
            # Under another name until it is complete, so that half an export is never taken for all of it.
            sending(target) if is_remote(target) else replacing(Path(target)) as file,
            (_parquet if is_parquet(target) else _csv if is_csv(target) else _jsonl)(
                file, target, table
            ) as write,
            tqdm(total=total, unit=f" {unit}", disable=None if progress else True, leave=False) as line,
        ):
            for rows in filter(None, table.chunks()):
                write(rows)
                n += len(rows)
                line.update(len(rows))
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise ExchangeError(f"{target} cannot be written: {plainly(error)}.") from error
    return n


def _text(file: IO[bytes], name: str) -> IO[Any]:
    """*file* as text, which is compressed if its *name* says so."""
    if name.lower().endswith(".gz"):
        return gzip.open(file, "wt", compresslevel=6, encoding="utf-8", newline="")
    return os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8", newline="")


@contextmanager
def _jsonl(file: IO[bytes], name: str, table: Rows[Row]) -> Iterator[Callable[[Sequence[Row]], None]]:
    encode = json.JSONEncoder(ensure_ascii=False, default=_CELLS[datetime]).encode
    with _text(file, name) as text:
        yield lambda rows: text.writelines(
            f"{encode(dict(zip(table.columns, row, strict=True)))}\n" for row in rows
        )


@contextmanager
def _csv(file: IO[bytes], name: str, table: Rows[Row]) -> Iterator[Callable[[Sequence[Row]], None]]:
    with _text(file, name) as text:
        writer = csv.writer(text)
        writer.writerow(table.columns)
        written = [_CELLS.get(kind) for kind in table.columns.values()]

        def write(rows: Sequence[Row]) -> None:
            values = [
                column if to_cell is None else map(to_cell, column)
                for column, to_cell in zip(zip(*rows, strict=True), written, strict=True)
            ]
            writer.writerows(zip(*values, strict=True))

        yield write


_CELLS: dict[type, Callable[[Any], str]] = {
    str: cell,
    datetime: lambda time: time.isoformat(timespec="milliseconds") if time is not None else "",
}
"""What makes a cell of a value, by its type; of other types Python's own writer does."""


@contextmanager
def _parquet(file: IO[bytes], _: str, table: Rows[Row]) -> Iterator[Callable[[Sequence[Row]], None]]:
    arrow = load_pyarrow()
    made = ArrowTable(table.columns, table.facts())
    with arrow.parquet.ParquetWriter(file, made.schema, compression="zstd") as writer:
        yield lambda rows: writer.write_batch(made.batch(rows))

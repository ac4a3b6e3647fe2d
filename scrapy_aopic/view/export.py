"""Pages and links as tables that other programs read.

To add a column: a line in :data:`PAGE_COLUMNS`, one in ``docs/commands.md``, and CHANGELOG.md. If a page's record lacks
the figure, also a field of :class:`~.queries.KnownPage`.

Rule: everything streams, and a file gets its name only when it is complete.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Generic, TypeVar, cast

from tqdm import tqdm

from scrapy_aopic.core.order import relevance_of
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import PageState
from scrapy_aopic.core.walk import find_order
from scrapy_aopic.exceptions import ExchangeError, StorageError, plainly
from scrapy_aopic.place.file_formats import CHUNK, cell, is_csv, is_parquet, load_pyarrow
from scrapy_aopic.storage.named_files import is_special
from scrapy_aopic.storage.store_folder import replacing

from .queries import count_pages, each_link, each_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from scrapy_aopic.core.saved import Saved

    from .job_view import View
    from .queries import KnownPage

Row = TypeVar("Row")

_STATES = {int(state): state.name.lower() for state in PageState}


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    Attributes:
        kind: Type of its values; only Parquet has types.
        of: Its value in a row.
    """

    kind: type
    of: Callable[[Row], object]


PAGE_COLUMNS: dict[str, Column[KnownPage]] = {
    "url": Column(str, lambda page: page.url),
    "host": Column(str, lambda page: page.host),
    "importance": Column(float, lambda page: page.importance),
    "cash": Column(int, lambda page: page.cash),
    # In Parquet a float: an integer there has 64 bits, which may be too few.
    "history": Column(float, lambda page: page.record.history),
    "visits": Column(int, lambda page: page.record.visits),
    "state": Column(str, lambda page: _STATES[page.record.state]),
    "outcome": Column(str, lambda page: page.record.outcome),
    "merged_into": Column(str, lambda page: page.root_url),
}

TOPIC_COLUMNS: dict[str, Column[KnownPage]] = {
    "relevance": Column(float, lambda page: relevance_of(page.record)),
}
"""Further columns of a job that was crawled for a topic."""


LINK_COLUMNS: dict[str, Column[tuple[str, str]]] = {
    "source": Column(str, lambda link: link[0]),
    "target": Column(str, lambda link: link[1]),
}


def export_pages(view: View, path: Path, *, progress: bool = False) -> int:
    """Write every page that the job in *view* knows to *path*; returns how many.

    Raises:
        ExchangeError: If *path* cannot be written.
    """
    return _export(
        path,
        {**PAGE_COLUMNS, **TOPIC_COLUMNS} if any(map(_is_for_topic, view.saved)) else PAGE_COLUMNS,
        each_page(view, CHUNK),
        unit="pages",
        total=count_pages(view),
        progress=progress,
    )


def _is_for_topic(saved: Saved | None) -> bool:
    """Whether the pages of the shard with the totals *saved* have values for a topic."""
    order = find_order(saved.order_name) if saved is not None else None
    return order is not None and order.values_links


def export_links(view: View, path: Path, *, progress: bool = False) -> int:
    """Write every link that the job in *view* has kept to *path*; returns how many.

    Raises:
        ExchangeError: If no links were kept, or *path* cannot be written.
    """
    if all(next(store.scan(Family.LINKS), None) is None for store in view.stores):
        raise ExchangeError(
            f"{path} is not written: this job has kept no links. AOPIC_KEEP_LINKS = True keeps those of the pages "
            "that are visited from then on."
        )
    return _export(path, LINK_COLUMNS, each_link(view, CHUNK), unit="links", total=None, progress=progress)


def check_export(path: Path) -> None:
    """Raise what writing *path* would raise for its name, or what is there.

    Raises:
        ExchangeError: If the name is of no format, the format cannot be written here, or no file can take that place.
    """
    if path.is_dir() or is_special(path):
        what = (
            "a folder"
            if path.is_dir()
            else "a pipe or a device, and the file is written under another name first"
        )
        raise ExchangeError(f"{path} cannot be written: it is {what}.")
    if is_parquet(path.name):
        load_pyarrow()
    elif not is_csv(path.name):
        raise ExchangeError(f"The name of the file {path} must end in .csv, .csv.gz or .parquet.")


def _export(
    path: Path,
    columns: Mapping[str, Column[Row]],
    chunks: Iterable[Sequence[Row]],
    *,
    unit: str,
    total: int | None,
    progress: bool,
) -> int:
    check_export(path)
    n = 0
    try:
        with (
            # Under another name until it is complete, so that half an export is never taken for all of it.
            replacing(path) as file,
            (_parquet if is_parquet(path.name) else _csv)(file, path.name, columns) as write,
            tqdm(total=total, unit=f" {unit}", disable=None if progress else True, leave=False) as line,
        ):
            for rows in chunks:
                write([list(map(column.of, rows)) for column in columns.values()])
                n += len(rows)
                line.update(len(rows))
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise ExchangeError(f"{path} cannot be written: {plainly(error)}.") from error
    return n


_Write = Callable[[Sequence[Sequence[object]]], None]
"""Appends rows to a table, given as the values of each column."""


@contextmanager
def _csv(file: IO[bytes], name: str, columns: Mapping[str, Column[Row]]) -> Iterator[_Write]:
    is_compressed = name.lower().endswith(".gz")
    with (
        gzip.open(file, "wt", compresslevel=6, encoding="utf-8", newline="")
        if is_compressed
        else os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8", newline="")
    ) as text:
        writer = csv.writer(cast("IO[str]", text))
        writer.writerow(columns)
        texts = [column.kind is str for column in columns.values()]

        def write(values: Sequence[Sequence[object]]) -> None:
            safe = [
                list(map(cell, cast("Sequence[str]", each))) if is_text else each
                for each, is_text in zip(values, texts, strict=True)
            ]
            writer.writerows(zip(*safe, strict=True))

        yield write


@contextmanager
def _parquet(file: IO[bytes], _: str, columns: Mapping[str, Column[Row]]) -> Iterator[_Write]:
    arrow = load_pyarrow()
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[column.kind]) for name, column in columns.items()])

    def write(values: Sequence[Sequence[object]]) -> None:
        typed = [list(map(column.kind, each)) for column, each in zip(columns.values(), values, strict=True)]
        writer.write_table(arrow.table(typed, schema=schema))

    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield write

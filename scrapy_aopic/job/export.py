"""Pages and links as tables that other programs read.

Rule: everything streams, and a file has its name only when it is whole.
"""

from __future__ import annotations

import csv
import gzip
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, cast

from tqdm import tqdm

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import ExchangeError, StorageError

from .formats import CHUNK, is_csv, is_parquet, load_pyarrow
from .queries import LINK_COLUMNS, PAGE_COLUMNS, count_pages, each_link, each_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scrapy_aopic.core.ports import Store


def export_pages(store: Store, path: Path, *, progress: bool = False) -> int:
    """Write every page that the job knows to *path*; returns how many.

    Raises:
        ExchangeError: If *path* cannot be written.
    """
    return _export(
        path,
        PAGE_COLUMNS,
        each_page(store, CHUNK),
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
    return _export(path, LINK_COLUMNS, each_link(store, CHUNK), unit="links", total=None, progress=progress)


def check_export(path: Path) -> None:
    """Raise what writing *path* would raise for its name.

    Raises:
        ExchangeError: If the name is of no format, or the format cannot be written here.
    """
    if is_parquet(path.name):
        load_pyarrow()
    elif not is_csv(path.name):
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
            (_parquet if is_parquet(path.name) else _csv)(part, columns) as write,
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
    arrow = load_pyarrow()
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

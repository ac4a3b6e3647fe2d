"""Items as tables that people open: CSV, and a folder of Parquet that a kill leaves whole."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

from scrapy.exporters import CsvItemExporter

from .exceptions import ExchangeError, plainly
from .place.file_formats import cell, load_pyarrow
from .storage.lock import lock_file
from .storage.store_folder import replacing
from .view.columns import ArrowTable

logger = logging.getLogger(__name__)


class TableExporter(CsvItemExporter):
    """CSV in which no text is a formula: a spreadsheet runs ``=cmd()``, and a title is what a stranger says it is.

    ``scrapy aopic crawl`` uses it; in a project: ``FEED_EXPORTERS = {"csv": "scrapy_aopic.exporters.TableExporter"}``.
    """

    def serialize_field(self, field: Any, name: str, value: Any) -> Any:
        serialized = super().serialize_field(field, name, value)
        return cell(serialized) if isinstance(serialized, str) else serialized


COLUMNS: dict[str, type] = {
    "url": str,
    "title": str,
    "language": str,
    "type": str,
    "status": int,
    "depth": int,
    "bytes": int,
    "fetched_at": datetime,
    "headers": dict,
    "robots": str,
    "content_usage": str,
    "text": str,
    "markdown": str,
    "importance": float,
    "cash": int,
    "history": float,
    "visits": int,
    "duplicate_of": str,
    "relevance": float,
}
"""Types of the columns of items that are known to have them, so that they are the same in each file."""

_KINDS = (bool, int, float, str)
"""Types of other columns: the first that all values have, or texts of JSON."""

_HALF = 1 << 63
"""Whole numbers of 64 bits are below."""

_ROWS = 1000
"""Items in memory at a time."""


class ParquetFolder:
    """Items as a folder of Parquet files, ``part-*.parquet``, that grows while a crawl runs.

    A Parquet file cannot be read before its end is written, and an item must be on the disk before the visit of its page
    is committed. So Scrapy writes items as lines of JSON, some thousand to a file, and each complete file is replaced by
    a Parquet file. What a killed crawl leaves is replaced when the next one begins. Readers pass over files whose names
    begin with an underscore.

    Args:
        path: The folder; it is made if need be.
        fields: The columns that come first.

    Raises:
        ExchangeError: If pyarrow is not installed.
    """

    def __init__(self, path: Path, fields: Sequence[str] = ()) -> None:
        load_pyarrow()
        self._path = path
        self._fields = fields
        self._thread = ThreadPoolExecutor(1, "aopic-parquet")
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        """Take the folder, and replace what an earlier crawl has left there.

        Raises:
            ExchangeError: If another process writes there, or it cannot be used.
        """
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = (self._path / "_lock").open("wb")
            is_mine = lock_file(self._lock.fileno())
        except OSError as error:
            raise ExchangeError(
                f"{self._path} cannot be a folder of Parquet files: {plainly(error)}."
            ) from error
        if not is_mine:
            self._lock.close()
            raise ExchangeError(f"Another crawl writes to {self._path}: give each a folder of its own.")
        self._convert_all()

    @property
    def feed(self) -> str:
        """The URI of the feed that writes the items, as Scrapy takes it."""
        folder = str(self._path).replace("%", "%%")
        return f"{folder}/_items-%(batch_time)s-%(batch_id)05d.jsonl"

    def _convert_all(self) -> None:
        for lines in sorted(self._path.glob("_items-*.jsonl")):
            self._convert(lines)

    def slot_closed(self, slot: Any) -> None:
        """Replace the file of a feed that is complete, if it is one of this folder; what fails is tried again by :meth:`close`."""
        lines = Path(slot.uri)
        if lines.parent == self._path:
            self._thread.submit(self._convert, lines)

    def close(self) -> None:
        """Replace what is left, once the crawl is over.

        Raises:
            ExchangeError: If a file cannot be read or written; its lines are still there then.
        """
        self._thread.shutdown()
        try:
            self._convert_all()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _convert(self, lines: Path) -> None:
        part = lines.with_name(f"part-{lines.stem.removeprefix('_items-')}.parquet")
        try:
            kinds = self._kinds(lines)
            if kinds and not part.exists():
                arrow, table = load_pyarrow(), ArrowTable(kinds)
                with (
                    replacing(part) as file,
                    arrow.parquet.ParquetWriter(file, table.schema, compression="zstd") as writer,
                ):
                    items = _items(lines)
                    while chunk := list(islice(items, _ROWS)):
                        rows = [
                            tuple(_cell(item.get(name), kind) for name, kind in kinds.items())
                            for item in chunk
                        ]
                        writer.write_batch(table.batch(rows))
            lines.unlink()
        except OSError as error:
            raise ExchangeError(f"{part} cannot be made of {lines.name}: {plainly(error)}.") from error

    def _kinds(self, lines: Path) -> dict[str, type]:
        """Columns of the items in the file *lines*, with the first type that all values of each have; none without items."""
        possible: dict[str, list[type]] = {}
        has_items = False
        for item in _items(lines, is_first=True):
            has_items = True
            for name, value in item.items():
                kinds = possible.get(name)
                if value is not None:
                    known = [COLUMNS[name]] if name in COLUMNS else []
                    possible[name] = [kind for kind in kinds or (*known, *_KINDS) if _fits(value, kind)] or [
                        str
                    ]
                elif kinds is None:
                    possible[name] = []
        names = dict.fromkeys((*self._fields, *possible)) if has_items else {}
        return {name: next(iter(possible.get(name, ())), COLUMNS.get(name, str)) for name in names}


def _items(lines: Path, *, is_first: bool = False) -> Iterator[dict[str, Any]]:
    """The items in a file; a line that a crash has torn is left out, which is said the first time."""
    with lines.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                item = json.loads(line)
            except (ValueError, RecursionError):
                item = None
            if isinstance(item, dict):
                yield item
            elif is_first:
                logger.warning(
                    "Line %(number)d of %(file)s is no whole item and is left out: if a crash has torn it, its page is "
                    "visited again.",
                    {"number": number, "file": lines},
                )


def _fits(value: object, kind: type) -> bool:
    """Whether *value*, of JSON, can be in a column of a *kind*."""
    if kind is datetime:
        return isinstance(value, str) and _time(value) is not None
    if kind is dict:
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_HALF <= value < _HALF
    return isinstance(value, kind)


def _cell(value: Any, kind: type) -> Any:
    """*value*, of JSON, in a column of a *kind*."""
    if value is None or _fits(value, kind):
        return _time(value) if kind is datetime and value is not None else value
    return json.dumps(value, ensure_ascii=False)


def _time(text: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return None

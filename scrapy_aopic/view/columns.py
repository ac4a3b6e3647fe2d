"""Records as tables: rows for Python, columns for Arrow, and through it for pandas, Polars, DuckDB and Parquet.

A record is a named tuple of texts, numbers and times; its fields are the columns, and their annotations the types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from scrapy_aopic.place.file_formats import load_pyarrow

Row = TypeVar("Row", bound=tuple[Any, ...])


def columns_of(kind: type[Row]) -> dict[str, type]:
    """The columns of records of a *kind*, by name: ``str``, ``int``, ``float`` or ``datetime``; any value may be ``None``."""
    return {
        name: next(each for each in (*get_args(hint), hint) if each is not NoneType)
        for name, hint in get_type_hints(kind).items()
    }


class ArrowTable:
    """Makes Arrow's record batches of records; needs pyarrow.

    Args:
        columns: Types by name: those of :func:`columns_of`, ``bool``, and ``dict`` for texts by text.
        facts: What the metadata of the schema says, under names that begin with ``scrapy_aopic.``.

    Attributes:
        schema: A :class:`pyarrow.Schema`.

    Raises:
        ExchangeError: If pyarrow is not installed.
    """

    def __init__(self, columns: Mapping[str, type], facts: Mapping[str, str] | None = None) -> None:
        self._arrow = load_pyarrow()
        types = {
            str: self._arrow.string(),
            int: self._arrow.int64(),
            float: self._arrow.float64(),
            bool: self._arrow.bool_(),
            datetime: self._arrow.timestamp("ms", tz="UTC"),
            dict: self._arrow.map_(self._arrow.string(), self._arrow.string()),
        }
        self._columns = columns
        self.schema = self._arrow.schema(
            [(name, types[each]) for name, each in self._columns.items()],
            metadata={f"scrapy_aopic.{name}": text for name, text in (facts or {}).items()},
        )

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        """*rows* as a :class:`pyarrow.RecordBatch`."""
        columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        values = [
            # Whole numbers, too: 64 bits may be too few for them.
            [None if value is None else float(value) for value in column] if kind is float else column
            for kind, column in zip(self._columns.values(), columns, strict=True)
        ]
        arrays = [
            self._arrow.array(column, type=field.type)
            for column, field in zip(values, self.schema, strict=True)
        ]
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)


class Rows(Generic[Row]):
    """The records of a table, which are read from the job each time that somebody goes through them.

    pandas, Polars, DuckDB and pyarrow take it as it is: those that know Arrow's C stream protocol (``__arrow_c_stream__``,
    which needs pyarrow) by columns, any other as an iterable of named tuples. No more than some
    thousand records are in memory at a time.

    Args:
        columns: Types by name, as :func:`columns_of` gives them.
        chunks: Reads them, some at a time.
        facts: As for :class:`ArrowTable`.

    Attributes:
        cursor: Of changes, after a walk through all of them: where the next one goes on.
    """

    cursor = ""

    def __init__(
        self,
        columns: Mapping[str, type],
        chunks: Callable[[], Iterator[Sequence[Row]]],
        facts: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.columns = columns
        self.chunks = chunks
        self.facts = facts

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self.chunks())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records as an Arrow stream.

        Raises:
            ExchangeError: If pyarrow is not installed.
        """
        arrow, table = load_pyarrow(), ArrowTable(self.columns, self.facts())
        batches = map(table.batch, self.chunks())
        stream: object = arrow.RecordBatchReader.from_batches(table.schema, batches).__arrow_c_stream__(
            requested_schema
        )
        return stream

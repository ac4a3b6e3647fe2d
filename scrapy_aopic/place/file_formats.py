"""Formats of the files that other programs read and write, by the ends of their names.

``.csv`` and ``.parquet`` are tables, ``.jsonl`` has an object a line; ``.gz`` behind the name of a text says that it is compressed.
"""

from __future__ import annotations

from typing import Any

from scrapy_aopic.exceptions import ExchangeError, plainly

CHUNK = 10_000
"""Rows in memory at a time: some megabytes."""

_FORMULAS = frozenset("=+-@\t\r")
"""Characters with which a spreadsheet takes a cell for a formula (OWASP, CSV injection)."""


def is_csv(name: str) -> bool:
    """Whether a file of this *name* is a table of text, compressed or not."""
    return name.lower().endswith((".csv", ".csv.gz"))


def is_jsonl(name: str) -> bool:
    """Whether a file of this *name* has a JSON object a line, compressed or not."""
    return name.lower().endswith((".jsonl", ".jsonl.gz"))


def is_parquet(name: str) -> bool:
    """Whether a file of this *name* is a Parquet table."""
    return name.lower().endswith(".parquet")


def cell(text: str) -> str:
    """*text*, which a stranger wrote, as a cell of a table: with a ``'`` before it if a spreadsheet takes it for a formula."""
    return f"'{text}" if text[:1] in _FORMULAS else text


def load_pyarrow() -> Any:
    """The module :mod:`pyarrow`, with what reads and writes Parquet.

    Raises:
        ExchangeError: If it is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415  # an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ExchangeError(
            f"Parquet needs pyarrow, which {plainly(error)}: pip install pyarrow, or use a .csv file."
        ) from error
    return pyarrow

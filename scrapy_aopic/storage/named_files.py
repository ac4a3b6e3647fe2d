"""Files that a user names to be read or written, whatever is there: pipes and devices, too.

Rule: nothing is waited for that may never come. A pipe without a writer is empty, and one without a reader is an error.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from scrapy_aopic.exceptions import ExchangeError, plainly

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)

_LONGEST_LINE = 1_000_000
"""Bytes of a line of a list: more than any URL has that a server takes."""


def open_given(path: Path, mode: str = "rb") -> IO[bytes]:
    """The file at *path*.

    Raises:
        OSError: If it cannot be opened, or is a pipe to be written that no process reads.
    """
    file: IO[bytes] = open(path, mode, opener=lambda name, flags: os.open(name, flags | _AT_ONCE, 0o666))  # noqa: SIM115
    if _AT_ONCE:
        os.set_blocking(file.fileno(), True)
    return file


def read_given(path: Path) -> bytes:
    """All of the file at *path*.

    Raises:
        OSError: If it cannot be read.
    """
    with open_given(path) as file:
        return file.read()


def read_lines(path: Path) -> Iterator[str]:
    """The lines of the text at *path*: see :func:`lines_of_file`."""
    try:
        with open_given(path) as file:
            yield from lines_of_file(file, str(path))
    except OSError as error:
        raise ExchangeError(f"{path} cannot be read: {plainly(error)}.") from error


def lines_of_file(file: IO[bytes], path: str) -> Iterator[str]:
    """The lines of the text in *file*, which is called *path* and may be compressed (``.gz``), with their ends.

    What is not UTF-8 comes as lone surrogates, which no name and no URL may have: one bad line, not a bad file.

    Raises:
        ExchangeError: If it cannot be read, or has a line that is longer than any of a list.
    """
    try:
        with gzip.open(file) if path.lower().endswith(".gz") else nullcontext(file) as lines:
            number = 0
            while line := lines.readline(_LONGEST_LINE + 1):
                number += 1
                if len(line) > _LONGEST_LINE:
                    raise ExchangeError(
                        f"{path} cannot be read: line {number} has more than {_LONGEST_LINE:,} bytes, so it is no list."
                    )
                text = line.decode("utf-8", "surrogateescape")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except (OSError, EOFError, zlib.error) as error:
        raise ExchangeError(f"{path} cannot be read: {plainly(error)}.") from error


def read_entries(path: Path) -> Iterator[tuple[str, str]]:
    """The entries of a list with one a line, each with its place in the file; empty lines and those with ``#`` are skipped.

    Raises:
        ExchangeError: If *path* cannot be read.
    """
    for number, line in enumerate(read_lines(path), 1):
        entry = line.strip()
        if entry and not entry.startswith("#"):
            yield f"line {number}", entry


def is_list(text: str) -> bool:
    """Whether *text* names a list, by its ending: no domain ends like that."""
    return text.lower().endswith((".txt", ".csv", ".tsv", ".gz", ".parquet", ".list"))


def is_file(path: Path) -> bool:
    """Whether there is a file at *path*, which can be read twice."""
    try:
        return path.is_file()
    except OSError:  # its name is too long, for example
        return False


def is_special(path: Path) -> bool:
    """Whether *path* is there and neither a file nor a folder, so that nothing may take its place: ``/dev/stdout``, for example."""
    return path.exists() and not path.is_file() and not path.is_dir()

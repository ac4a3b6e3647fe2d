"""Reads as much of RocksDB's write-ahead log as it takes to distinguish damage from a commit that had not landed.

RocksDB itself cannot do that. All that it knows of an incomplete commit is whether the file continues behind it, and
so it does when the power fails while the blocks of that commit are written, which happens in any order. What counts is
whether a *later* commit begins behind it: commits are synchronised one after another, so then the incomplete one had
landed.

Format: "Write Ahead Log File Format" in RocksDB's wiki. A file is blocks of 32 KB, a record is fragments that do not
cross blocks, and the record of a commit begins with the number of its first row and the number of its rows.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .commit_number import check_landed
from .store_folder import damaged

_BLOCK = 32 * 1024
"""Bytes of a block."""

_HEADER = 7
"""Bytes of the header of a fragment: checksum (4), length (2), kind (1)."""

_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
"""Kinds of fragments."""

_NUMBERS = 12
"""Bytes with which the record of a commit begins: number of its first row (8), number of its rows (4)."""


class _Log(NamedTuple):
    """A log file, by its headers.

    Attributes:
        first: Number of its first row; ``None`` if it does not begin with a commit.
        last: Number of the last row of the last commit before the headers end or break off.
        end: Where that commit ends.
        size: Its bytes when it was read; a live store may have added more.
    """

    path: Path
    first: int | None
    last: int
    end: int
    size: int


def check_logs(folder: Path, oldest: int, number: int, landed: int) -> None:
    """Raise an error if commits are missing before, in or behind the logs of the store in *folder*.

    RocksDB may not notice: it takes a damaged header in the last block of a log, or of its list of tables, for the end,
    and a log that is gone for one that is no longer needed.

    Args:
        oldest: Number of the oldest log that is needed.
        number: Of the last row that is known without the logs.
        landed: Number of the last row that is known to have landed.
    """
    logs = _read_logs(folder, oldest)
    for log in logs:
        if log.first is not None:
            if log.first > number + 1:
                raise damaged(folder, f"commits before its log {log.path.name} are damaged or gone")
            number = max(number, log.last)
    if logs and _has_later_commit(log, log.end, (log.last if log.end else number) + 1):
        raise damaged(folder, f"its log {log.path.name} has commits behind a damaged one")
    check_landed(folder, landed, number)


def find_end(folder: Path, oldest: int, number: int, landed: int) -> tuple[Path, int] | None:
    """The log that ends in a commit that had not landed, and the offset of that commit; ``None`` if there is none.

    Args:
        oldest: Number of the oldest log that is needed.
        number: Number of the last row before the first damage.
        landed: Number of the last row that is known to have landed.

    Raises:
        StorageError: If the commit after *number* had landed, so that this is damage.
    """
    check_landed(folder, landed, number)
    logs = _read_logs(folder, oldest)
    if not logs:
        return None
    log = logs[-1]
    end = _end_behind(log.path, number)
    if (log.first is not None and log.first > number + 1) or _has_later_commit(log, end, number + 1):
        raise damaged(folder, f"its log {log.path.name} has commits behind a damaged one")
    return log.path, end


def _read_logs(folder: Path, oldest: int) -> list[_Log]:
    """The log files in *folder* that are not empty, from number *oldest* on, oldest first."""
    paths = sorted((int(path.stem), path) for path in folder.glob("*.log") if path.stem.isdecimal())
    return [_read(path) for number, path in paths if number >= oldest and path.stat().st_size]


def _read(path: Path) -> _Log:
    first, last, end = None, 0, 0
    with _mapped(path) as data:
        for begin, last, end in _commits(data):  # noqa: B007
            first = begin if first is None else first
        return _Log(path, first, last, end, len(data))


def _end_behind(path: Path, number: int) -> int:
    """Offset in the log file at *path* at which the commit ends whose last row is *number*; 0 if there is none."""
    with _mapped(path) as data:
        return next((end for _, last, end in _commits(data) if last == number), 0)


def _has_later_commit(log: _Log, at: int, number: int) -> bool:
    """Whether behind the offset *at* in *log* a commit begins that is later than the one that begins with *number*."""
    with _mapped(log.path) as data:
        # Each row takes at least a byte, which limits the numbers that can be there.
        highest = number + log.size - at
        tops = {(value >> 40).to_bytes(3, "little") for value in (number, highest)}
        pattern = b"|".join(b"[\\x01\\x02](?=.{5}" + re.escape(top) + b")" for top in sorted(tops))
        for found in re.compile(pattern, re.DOTALL).finditer(data, at + _HEADER - 1, log.size):
            kind = found.start()
            first = int.from_bytes(data[kind + 1 : kind + 9], "little")
            if number < first <= highest and _is_fragment(data, kind - _HEADER + 1, log.size):
                return True
    return False


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _commits(data: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """First row, last row and end of each commit, as long as one follows the other; checksums are not compared."""
    at, expected = 0, None
    while (record := _record(data, at)) is not None:
        numbers, at = record
        first, rows = int.from_bytes(numbers[:8], "little"), int.from_bytes(numbers[8:], "little")
        if expected not in {None, first}:
            return
        expected = first + rows
        yield first, expected - 1, at


def _record(data: mmap.mmap, at: int) -> tuple[bytes, int] | None:
    """The numbers with which the record at the offset *at* begins, and its end; ``None`` if there is no record."""
    numbers, allowed = b"", {_FULL, _FIRST}
    while True:
        room = _BLOCK - at % _BLOCK
        if room < _HEADER:  # filled with zeros
            at += room
            continue
        if at + _HEADER > len(data):
            return None
        length, kind = data[at + 4] | data[at + 5] << 8, data[at + 6]
        begin, at = at + _HEADER, at + _HEADER + length
        if kind not in allowed or _HEADER + length > room or at > len(data):
            return None
        numbers += data[begin : min(at, begin + _NUMBERS - len(numbers))]
        if kind in {_FULL, _LAST}:
            return (numbers, at) if len(numbers) == _NUMBERS else None
        allowed = {_MIDDLE, _LAST}


def _is_fragment(data: mmap.mmap, at: int, size: int) -> bool:
    """Whether there is a fragment at the offset *at*, within the first *size* bytes, whose checksum is right."""
    end = at + _HEADER + (data[at + 4] | data[at + 5] << 8)
    if end > size or end - at > _BLOCK - at % _BLOCK:
        return False
    crc = _crc32c(data[at + 6 : end])
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF
    return masked == int.from_bytes(data[at : at + 4], "little")


def _crc32c(data: bytes) -> int:
    """Checksum of *data* with the Castagnoli polynomial, which neither zlib nor binascii has."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _row(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_row(value) for value in range(256)]

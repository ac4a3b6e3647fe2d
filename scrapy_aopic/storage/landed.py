"""The number of the last commit that landed, kept beside the files of the store that holds the commit itself.

It is written after the commit was synchronised and is not synchronised itself. So whatever is on the disk after a crash,
a power failure included, is too low or right: a store whose last commit has a lower number has lost one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

_FILE = "landed"


def read_landed(folder: Path) -> int:
    """Number of the last commit that is known to have landed in the store in *folder*; 0 if none is."""
    try:
        found = re.fullmatch(rb"(\d{20}) (\w{8})\n", (folder / _FILE).read_bytes())
    except OSError:
        return 0
    return int(found[1]) if found and found[2] == _seal(found[1]) else 0


def forget_landed(folder: Path) -> None:
    """The store in *folder* may hold less than what landed: it is being repaired."""
    (folder / _FILE).unlink(missing_ok=True)


def check_landed(folder: Path, landed: int, number: int) -> None:
    """Raise an error if the last commit in the store in *folder* is *number*, but *landed* had landed."""
    if number < landed:
        raise StorageError(
            f"The store in {folder} is damaged: its last commit is number {number:,}, but number {landed:,} had landed. "
            "'scrapy aopic repair' saves what can be saved."
        )


class Landed:
    """Notes which commits have landed in the store in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._file: BinaryIO | None = None

    def note(self, number: int) -> None:
        """The commit *number* has landed. It costs 2 us; if it fails, the note is too low, which it may be."""
        digits = b"%020d" % number
        with suppress(OSError):
            if self._file is None:
                self._path.touch()
                self._file = self._path.open("r+b", buffering=0)
            self._file.seek(0)
            self._file.write(
                digits + b" " + _seal(digits) + b"\n"
            )  # always as long: nothing is left of the one before

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _seal(digits: bytes) -> bytes:
    return b"%08x" % crc32(digits)

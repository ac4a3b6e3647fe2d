"""The number of the last commit that landed, in a file beside those of the store.

It is written after the commit was synchronised, and is not synchronised itself. So after any crash, a power failure
included, it is right or too low: a store whose last commit has a lower number has lost commits.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from .named_files import read_given
from .store_folder import damaged

_FILE = "landed"
"""Its line has 20 digits and the CRC-32 of these."""


def read_landed(folder: Path) -> int:
    """Number of the last commit that is known to have landed in *folder*; 0 if none is."""
    try:
        found = re.fullmatch(rb"(\d{20}) (\w{8})\n", read_given(folder / _FILE))
    except OSError:
        return 0
    return int(found[1]) if found and found[2] == _seal(found[1]) else 0


def forget_landed(folder: Path) -> None:
    """Forget the number, because the store in *folder* is a copy to be read, and may hold less than what landed."""
    (folder / _FILE).unlink(missing_ok=True)


def check_landed(folder: Path, landed: int, number: int) -> None:
    """Raise an error if the last commit in *folder* is *number*, but *landed* had landed."""
    if number < landed:
        raise damaged(folder, f"its last commit is number {number:,}, but number {landed:,} had landed")


class Landed:
    """Notes each commit that landed in the store in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._file: BinaryIO | None = None

    def note(self, number: int) -> None:
        """Note that the commit *number* has landed. Takes 2 us; a note that fails leaves a number that is too low."""
        digits = b"%020d" % number
        with suppress(OSError):
            if self._file is None:
                self._path.touch()
                self._file = self._path.open("r+b", buffering=0)
            self._file.seek(0)
            # always of the same length, so that nothing is left of the number before
            self._file.write(digits + b" " + _seal(digits) + b"\n")

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _seal(digits: bytes) -> bytes:
    return b"%08x" % crc32(digits)

"""Standard output that a full disk, a closed pipe or an odd terminal cannot break."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from io import TextIOWrapper

from scrapy_aopic.exceptions import plainly


class OutputError(Exception):
    """Standard output takes no more; the cause is what the system says."""


_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, which a terminal obeys instead of showing them, but for tabs and ends of lines: some host names have them."""

_ERASE = "\x1b[H\x1b[2J"
"""Home, and erase the screen."""


def write(text: str, *, erases: bool = False) -> None:
    """Write *text*, without what a terminal would obey, and the end of a line; on an empty screen if it *erases* it.

    Raises:
        OutputError: If not all of it could be written.
    """
    text = (_ERASE if erases else "") + _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)
    if sys.stdout is None:  # it was closed when the process began
        raise OutputError("it is closed")
    try:
        if not isinstance(sys.stdout, TextIOWrapper):  # this process reads it
            sys.stdout.write(text + "\n")
            return
        # URLs and host names may have characters that a terminal cannot show. And with PYTHONUNBUFFERED a text counts as
        # written although a pipe or a disk has taken only a part of it.
        data = memoryview(f"{text}\n".encode(sys.stdout.encoding, "backslashreplace"))
        sys.stdout.flush()
        while data:
            data = data[sys.stdout.buffer.write(data) :]
    except (OSError, ValueError) as error:
        raise _error(error) from error


def flush() -> None:
    """Hand over what was written.

    Raises:
        OutputError: If it could not be.
    """
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError) as error:
            raise _error(error) from error


def _error(error: OSError | ValueError) -> OutputError:
    """The error to raise for *error* of standard output; a ``ValueError`` means that this process has closed it."""
    return OutputError(plainly(error) if isinstance(error, OSError) else "it is closed")


def drop() -> None:
    """Discard what is not written yet: Python would try again at its exit, and complain."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # it is no file
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())
            os.close(nothing)

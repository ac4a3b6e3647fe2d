"""Standard output that a full disk, a closed pipe or an odd terminal cannot break, and colours where it is a terminal."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from enum import Enum
from io import TextIOWrapper
from shutil import get_terminal_size

from scrapy_aopic.exceptions import plainly


class OutputError(Exception):
    """Standard output takes no more; the cause is what the system says."""


class Colour(Enum):
    """How a terminal shows a word: each means one thing, the same as on the dashboard.

    The value is the parameter of SGR (ECMA-48, 8.3.117), so that the terminal's own palette decides what is legible.
    """

    STRONG = 1
    FAINT = 2
    FAILED = 31
    READY = 32
    WAITING = 33
    FETCHED = 34


_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, which a terminal obeys instead of showing them, but for tabs and ends of lines: some host names have them."""

_BEGINS = {colour: chr(0xFDD0 + number) for number, colour in enumerate(Colour)}
_END = "\ufdef"
"""Marks of where a colour begins and ends, as :func:`write` lets no sequence of a terminal through. They are noncharacters of
Unicode, which no text has; one that a name has after all colours the rest of its line."""

_COLOURED_LINE = re.compile(f"^.*[{''.join(_BEGINS.values())}].*$", re.MULTILINE)
_SEQUENCES = str.maketrans(
    {**{mark: f"\x1b[{colour.value}m" for colour, mark in _BEGINS.items()}, _END: "\x1b[0m"}
)


def is_terminal() -> bool:
    """Whether people see standard output as it comes."""
    return sys.stdout is not None and sys.stdout.isatty()


def n_columns() -> int | None:
    """Characters that a line of the terminal has room for; ``None`` if standard output is none, and so has no width."""
    return get_terminal_size().columns if is_terminal() else None


def painted(text: str, colour: Colour | None) -> str:
    """*text*, in a *colour* if standard output is a terminal that shows colours, and nobody has forbidden them.

    See https://no-color.org/ for ``NO_COLOR``.
    """
    if colour is None or not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"{_BEGINS[colour]}{text}{_END}"


def write(text: str, *, erases: bool = False) -> None:
    """Write *text*, without what a terminal would obey, and the end of a line.

    Args:
        erases: Whether it takes the place of all that the terminal shows; what does not fit is cut off.

    Raises:
        OutputError: If not all of it could be written.
    """
    text = _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)
    if is_terminal():
        text = _COLOURED_LINE.sub(rf"\g<0>{_END}", text).translate(_SEQUENCES)
    if erases:
        text = _on_whole_screen(text)
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


def _on_whole_screen(text: str) -> str:
    """*text*, each line over what the terminal shows there, so that nothing flickers; DECAWM is what wraps lines."""
    lines = text.split("\n")[: get_terminal_size().lines - 1]
    return "\x1b[?7l\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[K\x1b[J\x1b[?7h"


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

"""Tables as text that fit the width of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .output import Colour, painted

_ROOM = 50
"""Characters that the last column should have at least; other columns go to make room for it."""

_LONGEST_BAR = 10
"""Characters of the bar of the largest number."""

_EIGHTHS = " ▏▎▍▌▋▊▉"
"""The part of a character by which a bar goes on behind whole ones."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        head: Its heading.
        cells: A text for each row.
        is_left: Whether they begin at the left; numbers end at the right.
        goes: Which columns go first where all are too wide: those with the lowest number; with 0 a column stays.
        paints: Gives the colour of a cell.
    """

    head: str
    cells: list[str]
    is_left: bool = False
    goes: int = 0
    paints: Callable[[str], Colour | None] = lambda _: None


def format_table(columns: list[Column], width: int | None) -> str:
    """A line of headings, and a line for each row.

    Args:
        columns: The last one takes what the others leave of a line. Those without any text are left out.
        width: Characters of a line; to fit, columns go and the cells of the last one are cut. ``None`` for any number.
    """
    *shown, last = [column for column in columns if column.head or any(column.cells)]
    while width is not None and _width(shown) + min(_widest(last), _ROOM) > width:
        first = min((column for column in shown if column.goes), key=lambda column: column.goes, default=None)
        if first is None:
            break
        shown.remove(first)
    room = None if width is None else max(width - _width(shown), 1)
    heads = [*(_padded(column, column.head) for column in shown), last.head]
    texts = [
        *(
            [painted(_padded(column, cell), column.paints(cell) if cell else None) for cell in column.cells]
            for column in shown
        ),
        [cut(cell, room) for cell in last.cells],
    ]
    return "\n".join([painted("  ".join(heads), Colour.FAINT), *map("  ".join, zip(*texts, strict=True))])


def _widest(column: Column) -> int:
    return max(map(len, (column.head, *column.cells)))


def _width(columns: list[Column]) -> int:
    """Characters of *columns*, with the gaps behind them."""
    return sum(_widest(column) + 2 for column in columns)


def _padded(column: Column, text: str) -> str:
    return text.ljust(_widest(column)) if column.is_left else text.rjust(_widest(column))


def cut(text: str, width: int | None) -> str:
    """*text* in at most *width* characters, without its middle if it has more: of a URL, begin and end say most."""
    if width is None or len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def bars(numbers: list[float]) -> list[str]:
    """A bar for each of *numbers*, the longest for the largest."""
    most = max(numbers, default=0.0)
    n_eighths = [round(number / most * _LONGEST_BAR * 8) if most else 0 for number in numbers]
    return [f"{'█' * (n // 8)}{_EIGHTHS[n % 8].strip()}" for n in n_eighths]

"""The history of a crawl: a line of figures every few seconds, in a file of the job folder.

The file is a table of comma-separated values with a header, for pandas, spreadsheets and the dashboard; the next run of
a job appends to it.

Rule 1: it is bounded. When it has more than :data:`MOST_ROWS` rows, every second one of the older half is dropped, so the
distant past has fewer points.

Rule 2: it is not part of the job. A crawl reads nothing from it, a line that a crash has cut off is dropped, and a full disk
ends it with one warning.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from scrapy_aopic.exceptions import plainly
from scrapy_aopic.storage.named_files import read_given
from scrapy_aopic.storage.store_folder import replace_file

from .snapshot import WINDOW, Figure, Machine, Rate, Snapshot, figure

logger = logging.getLogger(__name__)

FILE_NAME = "aopic-history.csv"
"""Name of the file in the job folder."""

MOST_ROWS = 20_000
"""Rows that are kept: two days at one in ten seconds, some 4 MB."""

COLUMNS = (
    "at", "started_at", "verdict.limit", "pages.queued", "pages.visited", "pages.failed", "hosts.known", "hosts.dead",
    "hosts.ready", "hosts.waiting", "hosts.backing_off", "connections.in_use", "connections.callbacks", "rate.pages",
    "rate.failed", "rate.bytes", "hosts.ceiling", "outcomes", "outcomes.page", "outcomes.redirect", "transfers.n", "transfers.bytes",
    "transfers.down", "put_back", "refused", "ledger.virtual", "ledger.turns", "queue_seconds", "store.last_commit",
    "store.size_bytes", "machine.memory", "machine.memory_limit", "machine.cpu", "machine.loop_lag", "machine.standstill",
    "hosts.in_flight", "reason", "statuses.2xx", "statuses.3xx", "statuses.4xx", "statuses.5xx", "statuses.none",
    "media.html", "media.image", "media.application", "media", "found.unchanged", "found",
)  # fmt: skip
"""Columns: paths of figures of a snapshot (:func:`.snapshot.figure`)."""

POINT = (
    "at", "rate.pages", "rate.failed", "hosts.ceiling", "pages.queued", "hosts.ready", "hosts.waiting", "hosts.in_flight",
    "statuses.2xx", "statuses.3xx", "statuses.4xx", "statuses.5xx", "statuses.none", "media.html", "media.image",
    "media.application", "media", "ledger.turns", "found.unchanged", "found",
)  # fmt: skip
"""The columns that a dashboard draws."""

_OLDEST = 60.0
"""Seconds by which a row may be older than the last commit: it is written every ten, and less often of a slow machine."""

_MOST_POINTS = 1000
"""Points that a chart is given: more than a screen has columns for."""

Point: TypeAlias = "dict[str, float | None]"
"""Figures of an instant, by their paths."""


def row_of(now: Snapshot) -> list[object]:
    """The row for a snapshot."""
    return [_cell(figure(now, path)) for path in COLUMNS]


def _cell(value: Figure) -> object:
    if value is None:
        return ""
    if not isinstance(value, float):
        return value
    if value.is_integer():
        return int(value)
    return round(value, 3) if abs(value) >= 1 else float(f"{value:.4g}")


def point_of(now: Snapshot) -> Point:
    """The figures of a snapshot that are drawn over time."""
    return {path: _number(str(figure(now, path))) for path in POINT}


class History:
    """The file at *path*; its methods wait for the disk, so they are called in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._n: int | None = None
        self._is_over = False

    def append(self, row: Sequence[object]) -> None:
        """Add *row*; errors of the system end the history."""
        if self._is_over:
            return
        try:
            if self._n is None or self._n >= MOST_ROWS:
                self._n = self._tidy()
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(_line(row))
            self._n += 1
        except OSError as error:
            self._is_over = True
            logger.warning(
                "The history of the crawl cannot be written and ends here: %(error)s.",
                {"error": plainly(error)},
            )

    def _tidy(self) -> int:
        """Leave whole rows of today's columns in the file, and no more than there may be; returns how many."""
        rows = read_history(self._path)
        while len(rows) >= MOST_ROWS:
            half = len(rows) // 2
            rows = rows[:half:2] + rows[half:]
        lines = (COLUMNS, *([row.get(name, "") for name in COLUMNS] for row in rows))
        replace_file(self._path, "".join(map(_line, lines)))
        return len(rows)


def _line(values: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def read_history(path: Path) -> list[dict[str, str]]:
    """The rows of the history at *path*, oldest first, as they are written; none if there is no such file.

    Rows that are not whole, as a crash may leave one, are left out.
    """
    try:
        text = read_given(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    rows: list[list[str]] = []
    with suppress(csv.Error):  # quotes that are not closed
        rows += csv.reader(line for line in lines if "\0" not in line)
    if not rows:
        return []
    header = rows[0]
    whole = (row for row in rows[1:] if len(row) == len(header) and _number(row[0]) is not None)
    return [dict(zip(header, row, strict=True)) for row in whole]


def column(rows: Sequence[dict[str, str]], name: str) -> list[float | None]:
    """A column of numbers; ``None`` where there is none."""
    return [_number(row.get(name, "")) for row in rows]


def drawn(rows: Sequence[dict[str, str]]) -> list[Point]:
    """The points in *rows* of a history: at most about :data:`_MOST_POINTS`, the last one among them.

    Those that have no instant are left out.
    """
    columns = {name: column(rows, name) for name in POINT}
    found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    points = [point for point in found if point["at"] is not None and isfinite(point["at"])]
    every = -(-len(points) // _MOST_POINTS) or 1
    return points[::-1][::every][::-1]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def with_last_row(now: Snapshot, rows: Sequence[dict[str, str]]) -> Snapshot:
    """*now*, of a stored job, with what the last of *rows* says of the seconds before its commit, if it is no older."""
    at = _number(rows[-1].get("at", "")) if rows else None
    if at is None or now.at - at > _OLDEST:
        return now
    row = {name: _number(value) for name, value in rows[-1].items()}
    pages, memory = row.get("rate.pages"), row.get("machine.memory")
    if pages is not None:
        now = replace(
            now,
            rate=Rate(
                seconds=WINDOW, pages=pages, failed=row.get("rate.failed"), bytes=row.get("rate.bytes")
            ),
        )
    if memory:
        limit, cpu = row.get("machine.memory_limit"), row.get("machine.cpu")
        machine = Machine(
            memory=int(memory),
            memory_limit=int(limit or 0),
            cpu=cpu or 0.0,
            loop_lag=row.get("machine.loop_lag"),
            standstill=row.get("machine.standstill"),
        )
        now = replace(now, machine=machine)
    return replace(now, limit=rows[-1].get("verdict.limit", ""), reason=rows[-1].get("reason", ""))

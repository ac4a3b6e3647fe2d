"""What a crawl was like over time: one line of figures every few seconds, in a file of the job folder.

The file is a table of comma-separated values with a header, for pandas, spreadsheets and :mod:`.html_report`; it goes on over
the runs of a job.

Rule 1: it is bounded. Of more than :data:`MOST_ROWS` rows every second one of the older half is dropped, again and again,
so what is long ago is told more coarsely.

Rule 2: it is no part of the job. Nothing is read from it by a crawl, a line that a crash has torn is dropped, and a disk
that takes no more ends it with one warning.
"""

from __future__ import annotations

import csv
import io
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import plainly
from scrapy_aopic.storage.named_files import read_given
from scrapy_aopic.storage.store_folder import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .snapshot import Snapshot
    from .verdict import Verdict

logger = logging.getLogger(__name__)

FILE_NAME = "aopic-history.csv"
"""Name of the file in the job folder."""

MOST_ROWS = 20_000
"""Rows that are kept: two days at one in ten seconds, some 4 MB."""

COLUMNS = (
    "at", "started_at", "limit", "queued", "visited", "failed", "hosts", "dead_hosts", "ready", "waiting", "backing_off",
    "connections", "callbacks", "pages_per_second", "bytes_per_second", "ceiling", "pages", "redirects", "errors",
    "transfers", "bytes", "down", "put_back", "refused", "virtual", "turns", "queue_seconds", "commit_seconds",
    "store_bytes", "memory", "memory_limit", "cpu", "loop_lag",
)  # fmt: skip
"""Columns; those after ``ceiling`` up to ``refused`` only grow. Instants are seconds since the epoch."""


def row_of(now: Snapshot, verdict: Verdict) -> list[object]:
    """The row for a snapshot."""
    rate, work, machine, hosts = now.rate, now.connections, now.machine, now.hosts
    ordinary, redirects = now.outcomes.get("page", 0), now.outcomes.get("redirect", 0)
    return [
        round(now.at, 1),
        round(now.started_at or 0.0, 3),
        verdict.limit,
        now.pages.queued,
        now.pages.visited,
        now.pages.failed,
        hosts.known,
        hosts.dead,
        hosts.ready,
        hosts.waiting,
        hosts.backing_off,
        work.in_use if work is not None else "",
        work.callbacks if work is not None else "",
        round(rate.pages, 2) if rate is not None else "",
        round(rate.bytes) if rate is not None else "",
        round(hosts.ceiling, 2),
        ordinary,
        redirects,
        sum(now.outcomes.values()) - ordinary - redirects,
        now.transfers.n,
        now.transfers.bytes,
        now.transfers.down,
        now.put_back,
        sum(now.refused.values()),
        now.ledger.virtual,
        round(now.ledger.turns, 6),
        round(now.queue_seconds, 2) if now.queue_seconds is not None else "",
        round(now.store.last_commit or 0.0, 3),
        now.store.size_bytes if now.store.size_bytes is not None else "",
        machine.memory if machine is not None else "",
        machine.memory_limit if machine is not None else "",
        round(machine.cpu, 3) if machine is not None else "",
        round(machine.loop_lag, 4) if machine is not None and machine.loop_lag is not None else "",
    ]


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
    return [
        dict(zip(header, row, strict=True)) for row in rows[1:] if len(row) == len(header) and _is_row(row)
    ]


def _is_row(row: list[str]) -> bool:
    return _number(row[0]) is not None


def column(rows: Sequence[dict[str, str]], name: str) -> list[float | None]:
    """A column of numbers; ``None`` where there is none."""
    return [_number(row.get(name, "")) for row in rows]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_RECENT = 60.0
"""Seconds before a commit from which on a row says what the crawl was like then."""


def recent(rows: Sequence[dict[str, str]], saved_at: float) -> dict[str, dict[str, float | str | None]]:
    """What the last row says of the minute before the commit at *saved_at*; empty if it is older.

    Returns:
        ``rate``: ``last_minute``, pages a second, and ``limit``, what limited the crawl (:data:`.verdict.Limit`); and ``memory``
        of the process: ``bytes`` that it took, and the ``limit`` that it should not exceed.
    """
    if not rows:
        return {}
    row = rows[-1]
    at = _number(row.get("at", ""))
    if at is None or saved_at - at > _RECENT:
        return {}
    rate = {"last_minute": _number(row.get("pages_per_second", "")), "limit": row.get("limit", "")}
    taken, limit = (_number(row.get(name, "")) for name in ("memory", "memory_limit"))
    return {"rate": rate, **({"memory": {"bytes": taken, "limit": limit}} if taken and limit else {})}

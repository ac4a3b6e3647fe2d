"""The points of the dashboard's charts: the history of the job, and what this run has seen since it was last written."""

from __future__ import annotations

from math import isfinite
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from scrapy_aopic.view.history import POINT, Point, column, read_history

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAX_POINTS = 1000
"""Points that a chart is given: more than a screen has columns for."""

_EVERY = 10.0
"""Seconds for which the file is not read again, however many pages are opened."""


class ChartHistory:
    """The points of a crawl over time.

    Args:
        seen: Returns the points of this run.
        path: File of the history; ``None`` for none.
    """

    def __init__(self, seen: Callable[[], list[Point]], path: Path | None) -> None:
        self._seen = seen
        self._path = path
        self._lock = Lock()
        self._until = 0.0
        self._written: list[Point] = []

    def points(self) -> list[Point]:
        """Points, oldest first."""
        with self._lock:
            if self._path is not None and monotonic() >= self._until:
                self._written = _thinned(_points_in(self._path))
                self._until = monotonic() + _EVERY
            written = self._written
        last = written[-1]["at"] or 0.0 if written else 0.0
        return [*written, *(point for point in self._seen() if (point.get("at") or 0.0) > last)]


def _points_in(path: Path) -> list[Point]:
    """The points in the history at *path*, without those that have no instant; none if it cannot be read."""
    try:
        rows = read_history(path)
    except OSError:
        return []
    columns = {name: column(rows, name) for name in POINT}
    points = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [point for point in points if point["at"] is not None and isfinite(point["at"])]


def _thinned(points: list[Point]) -> list[Point]:
    """At most about :data:`_MAX_POINTS` of *points*, the last one among them."""
    every = -(-len(points) // _MAX_POINTS) or 1
    return points[::-1][::every][::-1]

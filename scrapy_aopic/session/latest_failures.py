"""The visits that failed last, for who looks at the crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.view.snapshot import N_LISTED, FailureRow

if TYPE_CHECKING:
    from .visit import Visit

_OF_A_CAUSE = 3
"""Rows of one cause, so that what is frequent does not hide what is not."""

_LONGEST = 2000
"""Characters of a URL."""


class LatestFailures:
    """Visits that failed, the latest of each cause.

    Attributes:
        rows: The latest first.
    """

    def __init__(self) -> None:
        self.rows: list[FailureRow] = []

    def note(self, visit: Visit, now: float, *, is_over: bool = True) -> None:
        """*visit* has failed; the page waits for another try unless *is_over*."""
        cause = visit.findings(recrawls=False).outcome
        row = FailureRow(at=now, url=visit.request.url[:_LONGEST], cause=cause, is_over=is_over)
        alike = [n for n, each in enumerate(self.rows) if each.cause == cause]
        if len(alike) >= _OF_A_CAUSE:
            del self.rows[alike[-1]]
        self.rows = [row, *self.rows[: N_LISTED - 1]]

"""The visits that ended and that failed last, for who looks at the crawl."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from scrapy_aopic.view.snapshot import N_LISTED, FailureRow, FetchedRow

if TYPE_CHECKING:
    from scrapy_aopic.core.api import Findings

    from .visit import Visit

_OF_A_CAUSE = 3
"""Rows of one cause, so that what is frequent does not hide what is not."""

_LONGEST = 2000
"""Characters of a URL."""


class LatestFailures:
    """Visits that failed, the latest of each cause; and pages that were fetched.

    Attributes:
        rows: The latest first.
        media: Bytes of the bodies that were read, by media type.
        found: Revisits, by what they have found.
    """

    def __init__(self) -> None:
        self.rows: list[FailureRow] = []
        self.media: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self._fetched: deque[tuple[float, str, int, int]] = deque(maxlen=N_LISTED)

    @property
    def fetched(self) -> list[FetchedRow]:
        """The pages that were fetched last, the latest first, failed or not."""
        return [
            FetchedRow(at=at, url=url[:_LONGEST], status=status, size=size)
            for at, url, status, size in reversed(self._fetched)
        ]

    def settled(self, visit: Visit, found: Findings, now: float) -> None:
        """*visit* is over, and has *found* this."""
        if found.is_failure:
            self.note(visit, now)
        if (fetched := found.fetched) is not None:
            kind = fetched.content_type.partition("/")[0] or "unknown"
            self.media["html" if "html" in fetched.content_type else kind] += fetched.size or 0
            self._fetched.append((now, visit.request.url, fetched.status, fetched.size or 0))

    def note(self, visit: Visit, now: float, *, is_over: bool = True) -> None:
        """*visit* has failed; the page waits for another try unless *is_over*."""
        cause = visit.findings(recrawls=False).outcome
        row = FailureRow(at=now, url=visit.request.url[:_LONGEST], cause=cause, is_over=is_over)
        alike = [n for n, each in enumerate(self.rows) if each.cause == cause]
        if len(alike) >= _OF_A_CAUSE:
            del self.rows[alike[-1]]
        self.rows = [row, *self.rows[: N_LISTED - 1]]

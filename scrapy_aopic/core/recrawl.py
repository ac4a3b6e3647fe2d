"""When a visited page is worth another visit.

A page that was visited comes back with the priority cash x phi(D S): D is the rate at which it changes, S the time
since the last visit, and phi what one more visit is worth for the freshness of its copy. It is compared with the
cash of pages that were never visited. phi is largest near D S = 1.8: a page that has surely not changed yet, and one
that changes faster than it can be followed, both count for less.

Since a front queue is a factor of two, and phi grows at most as S does, it is enough to look at a page again each
time S has doubled. The pages that are due are remembered by the instant of that look, in the store; those looked at
last stand in a heap in memory, best first, from which they are let into the frontier as the budget allows.

Sources: Cho and Garcia-Molina, "Effective Page Refresh Policies for Web Crawlers", TODS 28(4), 2003, and "Estimating
Frequency of Change", TOIT 3(3), 2003; Azar et al., "Tractable near-optimal policies for crawling", PNAS 2018.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .records import Changes, Page

if TYPE_CHECKING:
    from .tables import RowTable

_WAKES = b"W"
_MAX_DUE = 100_000
_MAX_TOKENS = 100.0
_LOOKS = 100


@dataclass(frozen=True, slots=True)
class Recrawl:
    """How visited pages come back.

    Attributes:
        min_interval: Seconds that pass between two visits of a page at least.
        max_interval: Seconds after which a page comes back before all others, however little cash it holds.
        share: Part of the fetches that goes to visited pages while new ones wait, 0 to 1.
        uses_changes: Whether the rate of change counts; else a page's cash alone does.
    """

    min_interval: float = 86_400.0
    max_interval: float = 90 * 86_400.0
    share: float = 0.5
    uses_changes: bool = True

    def worth(self, page: Page, cash: int, now: float) -> int:
        """Units that *page*, which holds *cash*, counts for in the frontier at *now*."""
        if not page.visits or page.changes is None:
            return cash
        passed = max(now - page.visited_at, 0.0)
        if passed >= self.max_interval:
            return 1 << 62
        return int(cash * phi(change_rate(page, passed) * passed)) if self.uses_changes else cash


class Content(NamedTuple):
    """What an answer says of a page's content.

    Attributes:
        digest: Digest of the body.
        etag: ``ETag``.
        modified: ``Last-Modified``.
        is_same: The server says that nothing has changed (304); its links are those of the last visit.
        is_missing: There was no such answer; nothing is known, and the links are those of the last visit.
    """

    digest: bytes = b""
    etag: bytes = b""
    modified: bytes = b""
    is_same: bool = False
    is_missing: bool = False


def phi(x: float) -> float:
    """What a visit is worth at D S = *x*, >= 0."""
    return x / 2 - x * x / 3 if x < 1e-4 else (1 - (1 + x) * math.exp(-x)) / x


def change_rate(page: Page, passed: float) -> float:
    """Estimated changes of *page* a second, from the repeated visits that found it changed.

    One imagined visit that found half a change stands for what is not known yet.

    Args:
        passed: Seconds since the last visit; the interval that counts if the page was visited once.
    """
    changes = page.changes
    assert changes is not None, "a page that may come back"
    n = changes.n_looks
    interval = (page.visited_at - changes.first_visit) / n if n else passed
    return math.log((n + 1) / (n - changes.n_changes + 0.5)) / interval if interval > 0 else 0.0


def noted(page: Page, content: Content, now: float) -> Changes:
    """What is known of *page*, whose visit at *now* is settled, after an answer with *content*."""
    known = page.changes
    if known is None:
        return Changes(0.0, now, 0, 0, content.digest, content.etag, content.modified)
    if content.is_missing:
        return known
    is_same = content.is_same or content.digest == known.digest
    known = known._replace(n_looks=known.n_looks + 1, n_changes=known.n_changes + (not is_same))
    if content.is_same:
        return known
    return known._replace(digest=content.digest, etag=content.etag, modified=content.modified)


class Wheel:
    """Which visited pages are looked at when, and which of those wait to be let in.

    Args:
        index: Rows of the store that say when a page is looked at.
        share: Visits that each fetch pays for.
    """

    def __init__(self, index: RowTable, share: float) -> None:
        self._index = index
        self._share = share
        self._tokens = 0.0
        self._due: list[tuple[int, float, bytes]] = []
        self._next: float | None = None

    def set(self, key: bytes, page: Page, instant: float) -> None:
        """Look at *page* at *instant*, and no more at the time set before."""
        assert page.changes is not None
        if page.changes.wakes_at:
            self._index.delete(_row(page.changes.wakes_at, key))
        page.changes = page.changes._replace(wakes_at=instant)
        if instant:
            self._index.put(_row(instant, key), b"")
            if self._next is not None:
                self._next = min(self._next, instant)

    def when(self) -> float:
        """Instant of the next look; infinite if there is none."""
        if self._next is None:
            rows, _ = self._index.first(_WAKES, 1)
            self._next = _instant(rows[0][0]) if rows else math.inf
        return self._next

    def looks(self, now: float) -> list[bytes]:
        """Keys of some pages to look at; the caller sets their next time."""
        if self.when() > now:
            return []
        rows, _ = self._index.first(_WAKES, _LOOKS)
        self._next = None
        return [row[9:] for row, _ in rows[:_LOOKS] if _instant(row) <= now]

    def offer(self, key: bytes, worth: int, visited_at: float) -> None:
        """Let the page under *key*, last visited at *visited_at*, wait to be let in; it may do so more than once."""
        heapq.heappush(self._due, (-worth, visited_at, key))
        if len(self._due) > _MAX_DUE:
            self._due = heapq.nsmallest(_MAX_DUE // 2, self._due)  # the others come back at their next look

    def fetched(self) -> None:
        """A fetch pays for its share of a repeated visit."""
        self._tokens = min(self._tokens + self._share, _MAX_TOKENS)

    def best(self, *, is_idle: bool) -> tuple[bytes, float] | None:
        """The best page to let in now and the visit it was offered after; for nothing if *is_idle*."""
        if not self._due or (self._tokens < 1 and not is_idle):
            return None
        _, visited_at, key = heapq.heappop(self._due)
        return key, visited_at

    def let_in(self) -> None:
        """A page was let in."""
        self._tokens = max(self._tokens - 1, 0.0)


def _row(instant: float, key: bytes) -> bytes:
    return _WAKES + int(instant * 1000).to_bytes(8, "big") + key


def _instant(row: bytes) -> float:
    return (int.from_bytes(row[1:9], "big") + 1) / 1000

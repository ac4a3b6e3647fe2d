"""What a visit has found of its page, compared with the visit before."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.records import FAILED, Changes, Page

if TYPE_CHECKING:
    from scrapy_aopic.core.api import Findings

NAMES = ("found", "first_seen", "last_changed", "previous_digest")
"""Names of what a visit has found, where users get it."""

_GONE = ("http 404", "http 410")
"""Outcomes of a page that was there and is not any more."""

GONE = b"gone"
"""What the record of a page that is gone has for the digest of its version; nobody is shown it."""

_SHOWN = ("", "redirect", "duplicate", "canonical", "language")
"""Outcomes of visits that have shown something of a page that is not gone."""


class Found(NamedTuple):
    """What a visit has found.

    Attributes:
        what: ``new``, ``changed``, ``unchanged``, ``moved`` (redirected, and not so before), ``gone`` (404 or 410, and not so
            before), ``back`` (there, and gone before) or ``failed``; empty if it is not known, as changes were not looked for.
        first_seen: Instant of the first visit, 0 if that is not known.
        last_changed: Instant of the visit that showed this version, or that the page is gone; 0 if it is not known.
        previous_digest: Digest of the version before, empty if there was none.
    """

    what: str = ""
    first_seen: float = 0.0
    last_changed: float = 0.0
    previous_digest: bytes = b""


def found_now(page: Page | None, found: Findings, now: float) -> Found:
    """What the visit of *page* that ends with *found* at *now* has found; *page* as it was before."""
    visits, known = (page.visits, page.changes) if page is not None else (0, None)
    version, outcome = found.version, found.outcome
    now = (version.at if version is not None else 0.0) or now
    was_gone = known is not None and known.digest == GONE
    if found.is_failure and visits and outcome in _GONE:
        what = "unchanged" if was_gone else "gone"
    elif found.is_failure or (version is not None and version.is_missing):
        what = "failed"
    elif version is not None and (version.is_same or (known is not None and version.digest == known.digest)):
        what = "unchanged"
    elif outcome == "redirect":
        what = "moved"
    else:
        what = "back" if was_gone else "changed" if visits else "new"
    if what in ("unchanged", "failed"):
        return _as_of(known, what)
    if known is None:
        return Found(what, 0.0 if visits else now, now)
    return Found(what, known.first_seen, now, shown(known.digest))


def found_last(page: Page, since: float = inf) -> Found:
    """What the last visit of *page* had found, as far as its record says it; or all visits after *since* together, if any found it changed."""
    known = page.changes
    if (was_gone := is_gone(page)) or page.state == FAILED:
        return _as_of(known, "gone" if was_gone else "failed")
    if known is None or (known.is_blank and page.outcome in _SHOWN):
        first = "moved" if page.outcome == "redirect" else "new"
        return Found(first, page.visited_at, page.visited_at) if page.visits == 1 else Found()
    if page.outcome not in _SHOWN and since == inf:
        what = "failed"
    elif known.changed_at < known.seen_at and since == inf:
        what = "unchanged" if known.changed_at else ""
    elif page.outcome == "redirect":
        what = "moved"
    else:
        is_new = known.first_seen == known.changed_at or known.first_seen > since
        what = "new" if is_new else "back" if known.previous == GONE else "changed"
    return _as_of(known, what)


def _as_of(known: Changes | None, what: str) -> Found:
    if known is None:
        return Found(what)
    return Found(what, known.first_seen, known.changed_at, shown(known.previous))


def left(known: Changes, at: float, now: float) -> Changes:
    """*known* of a page that is gone at *at*, as a visit shows that ends *now*: whatever comes back is another version."""
    if known.digest == GONE:
        return known._replace(wakes_at=0.0, seen_at=at)
    first = known.first_seen
    return Changes(0.0, at, known.evidence, GONE, b"", b"", first, at, known.digest, noted_at=now)


def is_gone(page: Page) -> bool:
    """Whether *page* was there, and was gone when it was seen last; records of earlier releases say so by their state alone."""
    was_there = page.state == FAILED and page.visits > 1 and page.outcome in _GONE
    return was_there or (page.changes is not None and page.changes.digest == GONE)


def shown(digest: bytes) -> bytes:
    """*digest* of a version as users get it, empty for that of a page that is gone."""
    return digest if digest != GONE else b""

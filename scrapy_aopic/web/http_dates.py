"""Dates and waits in HTTP headers, in any form that servers write.

The three forms of RFC 9110, section 5.6.7, are read, and others that mail uses. A server's clock may be wrong by any
amount, so an instant that it names counts only as a distance from another one that it named at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

_MAX_DATE = 256
"""Bytes of a date that may mean anything; the longest form of RFC 9110 has 33."""

_MAX_WAIT = 1000
"""Bytes of a ``Retry-After`` that may mean anything: a number has as many digits as its server likes."""

_DAY, _DAY_ALONE = 86_400, len("2026-11-29")

_FIRST_WEB_PAGE = 659_000_000.0
"""Seconds since the epoch: November 1990. An older page is a file that lost its date: 1970 and 1980 are common."""


def read_date(text: bytes) -> float | None:
    """Seconds since the epoch at the date in *text*; ``None`` if there is none."""
    if len(text) > _MAX_DATE:
        return None
    try:
        date = parsedate_to_datetime(text.decode("latin-1"))
        return (date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def read_stated_date(text: str) -> float:
    """Seconds since the epoch at the date in *text*, of a sitemap or a feed; 0 if there is none.

    It may be in the form of W3C's note on dates, which a sitemap and Atom have, or in that of mail, as in RSS. A day is
    over at its end, so that a page that changed on the day of its visit counts as changed.
    """
    text = text.strip()
    if not text[:4].isdigit():
        return read_date(text.encode("latin-1", "replace")) or 0.0
    try:
        date = datetime.fromisoformat(text[:_MAX_DATE])
        seconds = (date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return seconds + (_DAY - 1 if len(text) <= _DAY_ALONE else 0)


def changed_at(modified: bytes, date: bytes, now: float) -> float:
    """When a page last changed, in seconds since the epoch; 0 if its server does not say so or cannot be believed.

    Args:
        modified: The response's ``Last-Modified``.
        date: Its ``Date``. A cache's ``Age`` is not added: many caches name the date at which they responded.
        now: When it was received, by the caller's clock, in seconds since the epoch.
    """
    if not modified or not date:
        return 0.0
    then, sent = read_date(modified), read_date(date)
    if then is None or sent is None or then > sent:
        return 0.0
    changed = now - (sent - then)
    return changed if changed >= _FIRST_WEB_PAGE else 0.0


def read_retry_after(values: Iterable[bytes], now: float) -> float | None:
    """Seconds that ``Retry-After`` headers ask for, the longest of several; ``None`` if none means anything.

    Args:
        now: Seconds since the epoch.
    """
    waits = (_read_wait(value.strip(), now) for value in values)
    return max((wait for wait in waits if wait is not None), default=None)


def _read_wait(text: bytes, now: float) -> float | None:
    if len(text) > _MAX_WAIT:
        return None
    if text.isdigit():
        return float(text)
    date = read_date(text)
    return max(date - now, 0.0) if date is not None else None

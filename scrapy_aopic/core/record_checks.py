"""Checks single records of a job: can they be understood, and are they of what they lie under?

:mod:`.audit` reports those that are not, and checks whether records agree with each other. Times, and counts that nothing adds up
to, are not checked: nobody edits rows by hand, and what a store reads is what was written.

Each function returns the fault, as words that follow the name of the record; ``""`` if there is none.
"""

from __future__ import annotations

import zlib

from . import layout
from .domain import KEY_BYTES, unpack_domain
from .focus.calibration import GIST_BYTES
from .kept_links import split_links
from .records import (
    FAILED,
    HOST_BYTES,
    MOST_PRIORITY,
    NO_RECORD,
    PAGE_BYTES,
    PART_BYTES,
    QUEUED,
    VISITED,
    HostRecord,
    Page,
    host_key,
    read_wishes,
    serial_of,
    unpack,
)
from .robots.state import RobotsTxt
from .shards.cut import ADDRESS_BYTES

_TEXTS = (2 * 8, 2 * 8 + 64)
"""Bytes of a text's digests, without and with a sketch."""

_COUNT = 4
"""Bytes of the number of pages with the same words."""

_SIZES = {
    layout.TEXTS: _TEXTS,
    layout.GISTS: (GIST_BYTES,),
    layout.FIRST_OF_TEXT: (PAGE_BYTES,),
    layout.SITE_TEXTS: (PAGE_BYTES,),
    layout.BANDS: (PAGE_BYTES,),
    layout.VARIETIES: (PAGE_BYTES + _COUNT,),
}
"""Bytes of rows of the content family, by letter."""


def wrong_page(page: Page, order: int) -> str:  # noqa: PLR0911  # one for each part
    """The fault of *page*, of a job in which *order* pages were queued so far."""
    if page.state not in (QUEUED, VISITED, FAILED):
        return f"has the state {page.state}, which there is not"
    if not 0 < serial_of(page.place) <= min(order, page.place):
        return f"is newer than the last commit, or has no number: {serial_of(page.place)}, of {order}"
    if not -MOST_PRIORITY <= page.priority <= MOST_PRIORITY:
        return f"has the priority {page.priority}, which there is not"
    if page.state == FAILED and page.cash:
        return f"failed, but holds {page.cash} units"
    if (page.lowered or page.branch) and (page.visits or page.state != QUEUED):
        return "was visited, but waits lower because of its directory, or is in a branch"
    if page.visits <= 0 and page.state != QUEUED:
        return "was never visited, but waits no more"
    if not page.visits and (page.history or page.visited_at or page.marks or page.fetched or page.outcome):
        return "was never visited, but has a history"
    return ""


def wrong_host(key: bytes, host: HostRecord) -> str:
    """The fault of *host*, under *key*."""
    if host_key(host.name) != key:
        return "has another name than the one that its key was made of"
    if host.row and host.row[:1] not in layout.HOST_ROWS:
        return f"waits at {host.row!r}, and there is no such place"
    return ""


def wrong_outsider(key: bytes, host: HostRecord) -> str:
    """The fault of *host*, under *key*, of which no page is known."""
    if host.queued or host.visited or host.row:
        return "has pages, but no record of them"
    return wrong_host(key, host)


def wrong_domain(key: bytes, data: bytes) -> tuple[str, int, int]:
    """The fault of a domain's row; and its visited pages and seeds."""
    try:
        domain = unpack_domain(data)
        is_right = len(key) == KEY_BYTES and domain.visited >= 0 <= domain.seeds
    except NO_RECORD:
        return "cannot be understood", 0, 0
    return ("" if is_right else "has counts that there cannot be"), domain.visited, domain.seeds


def wrong_robots(key: bytes, data: bytes) -> str:
    """The fault of a robots.txt's row."""
    try:
        RobotsTxt.from_bytes(data)
    except (*NO_RECORD, zlib.error):
        return "cannot be understood"
    return "" if len(key) == PAGE_BYTES else "is of no host"


def wrong_count(key: bytes, data: bytes) -> str:
    """The fault of the row of a directory or a branch."""
    if len(key) != 1 + HOST_BYTES + PART_BYTES:
        return "is of no host"
    if key[:1] == layout.DIRECTORIES:
        return "" if len(data) == 1 and data[0] else "has a count that there cannot be"
    try:
        n, supporting = unpack(data)
        is_right = n > 0 <= supporting
    except NO_RECORD:
        is_right = False
    return "" if is_right else "has a count that there cannot be"


def wrong_links(key: bytes, data: bytes) -> str:
    """The fault of the row with a page's links."""
    if len(key) not in (PAGE_BYTES, PAGE_BYTES + 1):
        return "is no page"
    size = PAGE_BYTES if len(key) == PAGE_BYTES else ADDRESS_BYTES
    targets = split_links(key, data)
    return "" if all(len(each) == size for each in targets) else "ends in the middle of one"


def wrong_content(key: bytes, data: bytes) -> str:
    """The fault of a row of the content family."""
    letter, size = key[:1], len(data)
    if letter == layout.CLAIMS:
        is_right = len(key) == 1 + 2 * PAGE_BYTES and _is_packed(data)
        return "" if is_right else "cannot be understood"
    if letter in (layout.WISHES, layout.SHARES, layout.HINTS):
        is_right = read_wishes(data) is not None if letter == layout.WISHES else _is_packed(data)
        return "" if is_right else "cannot be understood"
    if letter in _SIZES:
        return "" if size in _SIZES[letter] else f"has {size} bytes"
    return "" if letter in (layout.LEADS, layout.OWN_CLAIMS, layout.FOREIGN_CLAIMS) else "is of no index"


def wrong_value(data: bytes) -> str:
    """The fault of a row with a value that is packed, such as the time at which a gate opens, or the mark of the clock."""
    return "" if _is_packed(data) else "cannot be understood"


def _is_packed(data: bytes) -> bool:
    try:
        unpack(data)
    except NO_RECORD:
        return False
    return True

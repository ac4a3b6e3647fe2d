"""Checks single records of a job: could any crawl have written these numbers and times?

:mod:`.audit` reports impossible records; :mod:`.rebuild` corrects those that it can. Whether records agree with each other
is checked there.

Each function returns the fault, as words that follow the name of the record; ``""`` if there is none.
"""

from __future__ import annotations

import zlib
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from . import layout
from .domain import KEY_BYTES, unpack_domain
from .fetched import read_fetched
from .kept_links import split_links
from .pages import MAX_HEIGHT
from .politeness import LONGEST_WAIT
from .records import (
    FAILED,
    HOST_BYTES,
    LAST_SERIAL,
    MOST_CLICKS,
    N_FRONT_QUEUES,
    NO_RECORD,
    PAGE_BYTES,
    PART_BYTES,
    QUEUED,
    VISITED,
    Changes,
    HostRecord,
    Page,
    host_key,
    read_wishes,
    serial_of,
    unpack,
)
from .robots.state import RobotsTxt
from .shards.cut import ADDRESS_BYTES

if TYPE_CHECKING:
    from .counters import Counters
    from .crawl_totals import CrawlTotals

_ROUNDED = 1.0
"""Seconds, at least, by which a time that was rounded may be later."""

_OFF = 3600.0
"""Seconds by which the clock may differ from the moment of the commit that both were written with."""

_DAY = 86_400.0
"""Seconds that are added to the longest wait: for turns at gates, and looks at hosts that were blocked."""

_A_LITTLE = 1 + 1e-9
"""By what virtual time may be later, because it was rounded."""

MOST_PLACES = 1 << 64
"""Places of pages are below this."""

MOST_SECONDS = 1e11
"""Instants of revisits are before this, some 3,000 years after the epoch."""

_TIME_ROW = 1 + 8
"""Bytes of the index row of a host that waits for an instant, without its key."""

_TEXTS = (2 * 8, 2 * 8 + 64)
"""Bytes of a text's digests, without and with a sketch."""

_COUNT = 4
"""Bytes of the number of pages with the same words."""

_SKETCHES = (0, 64)
"""Bytes of the sketch of a domain's supporters."""

_MOST_IN_REGISTER = 65 - 6
"""Largest value in a register of such a sketch."""


class Limits(NamedTuple):
    """Bounds on all records of a job that follow from its totals.

    Attributes:
        now: Instant of the last commit, after which nothing has happened.
        latest: Instant after which no host waits: no setting allows a longer wait.
        turn: Virtual time of the last commit.
        order: Serial number of the page that was queued last.
    """

    now: float
    latest: float
    turn: float
    order: int

    @classmethod
    def of(cls, saved: CrawlTotals) -> Limits:
        """Those of *saved*."""
        now = saved.saved_at + _ROUNDED
        return cls(now, now + LONGEST_WAIT + _DAY, saved.ledger.turn * _A_LITTLE, saved.order)


def wrong_page(page: Page, limits: Limits) -> str:  # noqa: PLR0911  # one for each part
    """The fault of *page*."""
    if page.state not in (QUEUED, VISITED, FAILED):
        return f"has the state {page.state}, which there is not"
    if not (0 < serial_of(page.place) <= limits.order and 0 < page.place < MOST_PLACES):
        return f"is newer than the last commit, or has no number: {serial_of(page.place)}, of {limits.order}"
    if not 0 <= page.front_queue < N_FRONT_QUEUES:
        return f"is in front queue {page.front_queue}, which there is not"
    if not 0 <= page.height <= MAX_HEIGHT:
        return f"has {page.height} hops of merged pages behind it"
    if page.fetched and read_fetched(page.fetched) is None:
        return f"says by {page.fetched} what was fetched, which there is not"
    if page.state == FAILED and page.cash:
        return f"failed, but holds {page.cash} units"
    if not 0 <= page.lowered < N_FRONT_QUEUES:
        return f"waits {page.lowered} front queues lower, which there are not"
    if not (0 <= page.clicks <= MOST_CLICKS and 0 <= page.branch < 1 << 8 * PART_BYTES):
        return f"is {page.clicks} clicks inside its host, in branch {page.branch}, which there is not"
    if (page.lowered or page.branch) and (page.visits or page.state != QUEUED):
        return "was visited, but waits lower because of its directory, or is in a branch"
    wrong = _wrong_visits(page, limits)
    return wrong or (_wrong_changes(page.changes, limits) if page.changes is not None else "")


def _wrong_visits(page: Page, limits: Limits) -> str:  # noqa: PLR0911
    if page.visits:
        if page.visits < 0 or page.history < 0:
            return f"has {page.visits} visits and a history of {page.history}"
        if not 0 <= page.visited_at <= limits.now:
            return f"was visited at {page.visited_at}, and the last commit was at {limits.now - _ROUNDED}"
        if not 0 <= page.visited_turn <= limits.turn:
            return f"was visited at turn {page.visited_turn}, and it is turn {limits.turn}"
    elif page.state != QUEUED:
        return "was never visited, but waits no more"
    elif page.history or page.visited_at or page.visited_turn or page.marks or page.fetched:
        return "was never visited, but has a history"
    elif page.outcome:
        return f"was never visited, but has the outcome {page.outcome!r}"
    return ""


def _wrong_changes(changes: Changes, limits: Limits) -> str:
    if not 0 <= changes.wakes_at < MOST_SECONDS:
        return f"is to be looked at at {changes.wakes_at}, which is no instant"
    if not 0 <= changes.seen_at <= limits.now:
        return f"was seen at {changes.seen_at}, and the last commit was at {limits.now - _ROUNDED}"
    return ""


def wrong_host(key: bytes, host: HostRecord, limits: Limits) -> str:  # noqa: PLR0911
    """The fault of *host*, under *key*."""
    if host_key(host.name) != key:
        return "has another name than the one that its key was made of"
    for name in ("not_before", "held_until"):
        if not 0 <= getattr(host, name) <= limits.latest:
            return f"is to be left alone until {getattr(host, name)} ({name}), which no setting allows"
    for name, silence in (host.silent or {}).items():
        if not (0 <= silence.until <= limits.latest and silence.n >= 0):
            return f"is to be left alone at {name} until {silence.until}, which no setting allows"
    if not 0 <= host.leased_at <= limits.now:
        return f"was leased at {host.leased_at}, and the last commit was at {limits.now - _ROUNDED}"
    if not (0 <= host.transfer <= LONGEST_WAIT and host.crawl_delay >= 0):
        return f"has a transfer of {host.transfer} s and a crawl delay of {host.crawl_delay} s"
    if min(host.errors, host.down, host.broken, host.visited, host.queued, host.allowed) < 0:
        return "has counts below 0"
    if not -1 <= host.best < N_FRONT_QUEUES:
        return f"has its best page in front queue {host.best}, which there is not"
    return wrong_place(host.row, host, limits) if host.row else ""


def wrong_place(row: bytes, host: HostRecord, limits: Limits) -> str:
    """The fault of *row*, the place where *host* waits."""
    letter = row[:1]
    if letter not in layout.HOST_ROWS or (letter == layout.ACTIVE) != (row == layout.ACTIVE):
        return f"waits at {row!r}, and there is no such place"
    if letter in (layout.PARKED, layout.DEAD):
        if len(row) != _TIME_ROW or int.from_bytes(row[1:], "big") / 1000 > limits.latest:
            return "waits for an instant that no setting allows"
        if letter == layout.DEAD and not host.unanswered:
            return "is said to be dead, but has answered"
    elif letter == layout.SHELVED and len(row) <= len(layout.IN_TIME):
        return f"waits at {row!r}, and there is no such place"
    return ""


def wrong_outsider(key: bytes, host: HostRecord, limits: Limits) -> str:
    """The fault of *host*, under *key*, of which no page is known."""
    if host.queued or host.visited or host.row:
        return "has pages, but no record of them"
    return wrong_host(key, host, limits)


def wrong_clock(data: bytes, saved_at: float) -> str:
    """The fault of a job's clock, written with the commit of *saved_at*."""
    try:
        says = unpack(data)[0]
        is_right = abs(says - saved_at) <= _OFF
    except NO_RECORD:
        return "cannot be understood"
    return "" if is_right else f"stood at {says} at the last commit, which was at {saved_at}"


def wrong_domain(key: bytes, data: bytes) -> tuple[str, int, int]:
    """The fault of a domain's row; and its visited pages and seeds."""
    try:
        domain = unpack_domain(data)
    except NO_RECORD:
        return "cannot be understood", 0, 0
    counts = (domain.visited, domain.seeds, domain.level, *domain.charges)
    is_right = (
        len(key) == KEY_BYTES
        and all(isinstance(n, int) and n >= 0 for n in counts)
        and len(domain.sponsors) == len(domain.charges)
        and all(len(sponsor) == KEY_BYTES for sponsor in domain.sponsors)
        and len(domain.sketch) in _SKETCHES
        and max(domain.sketch, default=0) <= _MOST_IN_REGISTER
    )
    return ("" if is_right else "has counts that there cannot be"), domain.visited, domain.seeds


def wrong_robots(key: bytes, data: bytes, limits: Limits) -> str:
    """The fault of a robots.txt's row."""
    try:
        robots = RobotsTxt.from_bytes(data)
    except (*NO_RECORD, zlib.error):
        return "cannot be understood"
    is_right = (
        len(key) == PAGE_BYTES
        and isinstance(robots.failures, int)
        and robots.failures >= 0
        and 0 <= robots.fetched_at <= limits.now
        and (robots.fetched_at > 0) == (robots.text is not None)
        and 0 <= robots.retry_at <= limits.latest
        and (robots.retry_at > 0) == (robots.failures > 0)
    )
    return "" if is_right else "has times that there cannot be"


def wrong_count(key: bytes, data: bytes) -> str:
    """The fault of the row of a directory or a branch."""
    if len(key) != 1 + HOST_BYTES + PART_BYTES:
        return "is of no host"
    if key[:1] == layout.DIRECTORIES:
        return "" if len(data) == 1 and data[0] else "has a count that there cannot be"
    try:
        fetched, supported = unpack(data)
        is_right = fetched > 0 <= supported
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
        try:
            outcome, visits, *_ = unpack(data)
            is_right = isinstance(outcome, str) and isinstance(visits, int)
        except NO_RECORD:
            is_right = False
        return "" if is_right and len(key) == 1 + 2 * PAGE_BYTES else "cannot be understood"
    if letter == layout.WISHES:
        return "" if read_wishes(data) is not None else "cannot be understood"
    if letter == layout.TEXTS:
        return "" if size in _TEXTS else f"has {size} bytes"
    if letter in (layout.FIRST_OF_TEXT, layout.SITE_TEXTS, layout.BANDS):
        return "" if size == PAGE_BYTES else f"has {size} bytes"
    if letter == layout.VARIETIES:
        return "" if size == PAGE_BYTES + _COUNT else f"has {size} bytes"
    return "" if letter in (layout.LEADS, layout.OWN_CLAIMS, layout.FOREIGN_CLAIMS) else "is of no index"


def wrong_instant(data: bytes, limits: Limits) -> str:
    """The fault of a gate's row, which is the time when it opens."""
    try:
        return "" if 0 <= unpack(data) <= limits.latest else "opens at an instant that no setting allows"
    except NO_RECORD:
        return "cannot be understood"


def wrong_totals(saved: CrawlTotals) -> str:
    """The fault of the totals, apart from sums that can be counted."""
    ledger = saved.ledger
    latest = saved.saved_at + LONGEST_WAIT + _DAY
    times = {
        "created_at": 0 <= saved.created_at <= saved.saved_at + _ROUNDED,
        "crashed_at": 0 <= saved.crashed_at <= saved.saved_at + _ROUNDED,
        "not_before": 0 <= saved.not_before <= latest,
        "commit_within": saved.commit_within >= 0,
        "order": 0 <= saved.order <= LAST_SERIAL,
        "clock": saved.clock >= 0,
        "turn": ledger.turn >= 0 and isfinite(ledger.turn),
        "distributed": ledger.distributed >= 0,
        "virtual_distributed": ledger.virtual_distributed >= 0,
        "newcomers": min(ledger.newcomers) >= 0,
        "elsewhere": min(ledger.elsewhere) >= 0,
        "rates": all(rate >= 0 and isfinite(rate) for rate in saved.rates),
    }
    wrong = next((name for name, is_right in times.items() if not is_right), "")
    if not wrong:
        return ""
    value = getattr(saved, wrong) if hasattr(saved, wrong) else getattr(ledger, wrong)
    return f"have {value} as {wrong}, which there cannot be"


def wrong_counters(counters: Counters, saved: CrawlTotals) -> str:
    """The fault of the counters of all runs."""
    numbers: list[float] = []
    for name in counters.__struct_fields__:
        value = getattr(counters, name)
        if isinstance(value, dict):
            numbers += value.values()
        elif isinstance(value, list):
            numbers += value
        else:
            numbers.append(value)
    if not all(number >= 0 and isfinite(number) for number in numbers):
        return "have a number below 0, or without end"
    if max(counters.since, counters.saved_at) > saved.saved_at + _ROUNDED:
        return "are newer than the last commit"
    if (
        sum(counters.durations) != counters.transfers
        or max(counters.errors, counters.down) > counters.transfers
    ):
        return f"have {counters.transfers} transfers, and other numbers of them by class"
    return ""

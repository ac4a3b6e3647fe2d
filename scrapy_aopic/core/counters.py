"""Counts over all runs of a job: outcomes, transfers, waiting times, refusals.

These figures decide nothing. They are one row in ``META`` (:data:`~.layout.COUNTERS_KEY`), written with each commit, so
that they are as of the same moment as the totals, and survive a crash with them.

Rule 1: a repair may find an earlier row. So it says of which commit it is, and one that is not of the last commit is
incomplete from then on (:attr:`Counters.is_whole`), never wrong in silence.

Rule 2: names are bounded by the code: classes of outcomes, reasons. Never a host, a URL or the name of an exception.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import msgspec

from .layout import COUNTERS_KEY, Family
from .politeness import Outcome, TransferResult

if TYPE_CHECKING:
    from .ports import Store

UNREADABLE = "unreadable"
"""Outcome, with the reason after a colon, of a page whose request cannot be made; a request that can revives it."""

MARKS = ("nofollow", "noindex")
"""Classes of ordinary pages whose owners ask robots for that, obeyed or not; a page that asks for both is of the first."""

OUTCOMES = (
    "page", *MARKS, "redirect", "duplicate", "content type", "content usage", "language", "robots.txt", "not found",
    "other 4xx", "too many requests", "5xx", "no answer", UNREADABLE, "other",
)  # fmt: skip
"""Classes of outcomes of a visit. ``page`` is an ordinary page; ``not found`` is 404 and 410, ``too many requests`` 429;
``no answer`` stands for all errors of the network."""

GONE = ("robots.txt", "not found")
"""Classes of visits that brought nothing, and of which nothing is to be mended: the owner forbids the page, or it is gone."""

FAILED = ("other 4xx", "too many requests", "5xx", "no answer", UNREADABLE, "other")
"""Classes of visits that failed for a cause that may be mended."""

BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper bounds in seconds of the classes in which transfers are counted, a factor of about three apart; the last class,
which has no bound, is beyond them."""

_ENTRIES = 256
"""Entries of the table of instants at which pages were queued; when it is full, every second one is dropped, so an
instant is known to within a hundredth or so of the run."""

_NAMED = {
    "": "page",
    "redirect": "redirect",
    "duplicate": "duplicate",
    "canonical": "duplicate",
    "content type": "content type",
    "content usage": "content usage",
    "language": "language",
    "robots.txt": "robots.txt",
    "robots.txt unreachable": "robots.txt",
    UNREADABLE: UNREADABLE,
    "no answer": "no answer",
    "http 404": "not found",
    "http 410": "not found",
    "http 429": "too many requests",
}


def class_of_outcome(outcome: str) -> str:
    """The class in :data:`OUTCOMES` of a page's *outcome*."""
    known = _NAMED.get(outcome)
    if known is not None:
        return known
    if outcome.startswith("http "):
        return {"4": "other 4xx", "5": "5xx"}.get(outcome[5:6], "other")
    if outcome.startswith(UNREADABLE):
        return UNREADABLE
    return "no answer" if outcome.endswith(("Error", "Exception", "Lost", "Failed", "Timeout")) else "other"


def mark_of(wishes: tuple[str, str] | tuple[()]) -> str:
    """The first of :data:`MARKS` that the owner of a page with these *wishes* asks for; ``""`` if for none."""
    rules = wishes[0].split(", ") if wishes else ()
    return next((mark for mark in MARKS if mark in rules), "")


class Counters(msgspec.Struct):
    """The figures.

    Attributes:
        since: Instant from which they count, in seconds since the epoch.
        is_whole: Whether they count from the beginning of the job, without a gap.
        saved_at: Instant of the commit that they are of.
        outcomes: Visits by class of outcome (:data:`OUTCOMES`), repeated visits included.
        put_back: Leases that ended without a visit.
        deferred: Of these, by reason: ``host down``, ``server error``, ``robots.txt``.
        refused: URLs that were not queued, by reason (docs/urls.md).
        transfers: Transfers that ended, robots.txt and others without a lease included.
        transfer_seconds: How long they took together.
        durations: How many took up to each of :data:`BOUNDS`, and longer.
        received: Bytes of response bodies, as transferred.
        errors: Transfers that ended with a status of 500 or more.
        down: Transfers without a response, or with one that asks to come later.
        waited: Pages whose time in the queue is known: those that were queued in the run that leased them.
        waited_seconds: How long they waited together.
    """

    since: float = 0.0
    is_whole: bool = False
    saved_at: float = 0.0
    outcomes: dict[str, int] = {}
    put_back: int = 0
    deferred: dict[str, int] = {}
    refused: dict[str, int] = {}
    transfers: int = 0
    transfer_seconds: float = 0.0
    durations: list[int] = []  # msgspec gives each one of its own
    received: int = 0
    errors: int = 0
    down: int = 0
    waited: int = 0
    waited_seconds: float = 0.0

    def __post_init__(self) -> None:
        if len(self.durations) != len(BOUNDS) + 1:
            self.durations = [0] * (len(BOUNDS) + 1)

    @property
    def visits(self) -> int:
        """Visits that ended, whatever they showed."""
        return sum(self.outcomes.values())

    def n_of(self, classes: tuple[str, ...]) -> int:
        """Visits of these *classes*."""
        return sum([self.outcomes.get(name, 0) for name in classes])

    @property
    def queue_seconds(self) -> float | None:
        """Average time that pages waited in the queue; ``None`` if none has."""
        return self.waited_seconds / self.waited if self.waited else None

    def settled(self, outcome: str, wishes: tuple[str, str] | tuple[()] = ()) -> None:
        """A visit ended with *outcome*, that of the page, whose owner has these *wishes*."""
        name = class_of_outcome(outcome)
        if name == "page":
            name = mark_of(wishes) or name
        self.outcomes[name] = self.outcomes.get(name, 0) + 1

    def transferred(self, result: TransferResult) -> None:
        """A transfer is over."""
        self.transfers += 1
        self.transfer_seconds += result.seconds
        self.durations[bisect_left(BOUNDS, result.seconds)] += 1
        self.errors += result.outcome == Outcome.ERROR
        self.down += result.outcome.is_down
        self.received += result.n_bytes

    def defer(self, reason: str) -> None:
        """A page waits again for a *reason*."""
        self.deferred[reason] = self.deferred.get(reason, 0) + 1

    def refuse(self, reason: str) -> None:
        """A URL was not queued for a *reason*."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def pack(self, now: float) -> bytes:
        """The row for the commit that is taken at *now*."""
        self.saved_at = now
        return _encode(self)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Counters).decode


def read_counters(store: Store, saved_at: float) -> Counters | None:
    """The counters of the job in *store*, whose last commit was at *saved_at*; ``None`` if it has none.

    A row that cannot be understood counts as none: no figure in it is worth a crawl that cannot start.
    """
    data = store.get_many(Family.META, (COUNTERS_KEY,))[0]
    if data is None:
        return None
    try:
        found = _decode(data)
    except msgspec.DecodeError:
        return None
    found.is_whole = found.is_whole and found.saved_at == saved_at
    return found


class QueueTimes:
    """When pages were queued, by their serial numbers, as far as that can be had in a table of fixed size."""

    def __init__(self) -> None:
        self._serials: list[int] = []
        self._instants: list[float] = []
        self._every = 1

    def note(self, serial: int, now: float) -> None:
        """The pages up to number *serial* have been queued by *now*."""
        serials, instants = self._serials, self._instants
        if serials and serial - serials[-1] < self._every:
            return
        serials.append(serial)
        instants.append(now)
        if len(serials) == _ENTRIES:
            del serials[1::2], instants[1::2]
            self._every = max((serials[-1] - serials[0]) // (_ENTRIES // 2), 1)

    def queued_at(self, serial: int) -> float | None:
        """About when the page with number *serial* was queued; ``None`` if that was before the first note."""
        place = bisect_right(self._serials, serial)
        return self._instants[place - 1] if place else None

"""The clock of a job: a crawl's time, which outlives its processes.

Rule 1: it never goes back, however the machine's clock is set.

Rule 2: while the machine stays up it does not jump either, from one process to the next: the machine's uptime says what
has passed. After a restart only the machine's clock is left; it is used unless it went back.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.core.layout import CLOCK_KEY, Family
from scrapy_aopic.core.records import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.walk import Reader


_DRIFT = 2e-4
"""Seconds a second by which the clocks of two machines may drift apart: twice what a bad quartz does."""

_STANDSTILL = 1.0
"""Seconds by which a clock may be ahead to be corrected: more than that is no drift, but the server's was set."""


class ServerTime(NamedTuple):
    """The time on a server, as it reported it.

    Attributes:
        instant: The time reported, in seconds since the epoch.
        sent_at: When the request was sent (``time.monotonic``).
        received_at: When the reply arrived (``time.monotonic``).
    """

    instant: float
    sent_at: float
    received_at: float

    @property
    def earliest(self) -> float:
        """Seconds by which its clock is ahead of ``time.monotonic``, at least."""
        return self.instant - self.received_at

    @property
    def latest(self) -> float:
        """Seconds by which its clock is ahead of ``time.monotonic``, at most."""
        return self.instant - self.sent_at


class JobClock:
    """The time of a job, in seconds since the epoch.

    Args:
        mark: The return value of :meth:`mark` at the last commit; empty for a new job.

    Attributes:
        jump: Seconds by which the machine's clock was ahead of this one when it began.
    """

    def __init__(self, mark: Sequence[Any] = ()) -> None:
        now = wall = time.time()
        if mark:
            marked, boot, uptime = mark
            is_same_boot = boot and boot == _boot_id()
            now = marked + max(_uptime() - uptime, 0.0) if is_same_boot else max(wall, marked)
        self.jump = wall - now
        self._offset = now - time.monotonic()

    def __call__(self) -> float:
        """The instant now."""
        return self._offset + time.monotonic()

    def mark(self) -> tuple[float, str, float]:
        """The state that the next process needs to go on."""
        return self(), _boot_id(), _uptime()


class SharedClock(JobClock):
    """The time of a job that several machines share: that of its server, asked from time to time.

    An instant before which one process leaves a host alone may bind another process after a hand-over. So no clock may run
    ahead of the server's, and each knows how far behind it may be: instants that it gives away are later by that much.

    Args:
        reply: The server's time.
    """

    def __init__(self, reply: ServerTime) -> None:
        super().__init__()
        self.jump = 0.0
        self._setting = threading.Lock()
        self._floor = 0.0
        self._offset, self._latest, self._received_at = reply.earliest, reply.latest, reply.received_at

    def __call__(self) -> float:
        """The instant now."""
        return max(self._offset + time.monotonic(), self._floor)

    @property
    def lag(self) -> float:
        """Seconds by which it may be behind the server's, and thus behind that of another process."""
        return max(self._latest - self._offset, 0.0)

    def adjust(self, reply: ServerTime) -> None:
        """Follow the server's time: forward at once; back by standing still, if it is little."""
        with self._setting:
            drift = _DRIFT * max(reply.received_at - self._received_at, 0.0)
            self._latest, self._received_at = min(self._latest + drift, reply.latest), reply.received_at
            if self._latest < reply.earliest:  # the server's clock was set
                self._latest = reply.latest
            earliest = max(self._offset - drift, reply.earliest)
            if earliest > reply.latest + _STANDSTILL:
                return
            self._floor = self()
            self._offset = min(earliest, reply.latest)

    def advance(self, instant: float) -> None:
        """It is *instant* already, by a shard that another process has crawled."""
        with self._setting:
            self._offset = max(self._offset, instant - time.monotonic())


def read_mark(store: Reader) -> Sequence[Any]:
    """The return value of :meth:`JobClock.mark` at the last commit of *store*; empty if there was none."""
    mark = store.get_many(Family.META, (CLOCK_KEY,))[0]
    return unpack(mark) if mark is not None else ()


@cache
def _boot_id() -> str:
    """An id that changes with each start of the machine; empty on systems that have none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _uptime() -> float:
    """Seconds since the machine was started, sleep included; 0 on systems that do not distinguish starts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _boot_id() else 0.0

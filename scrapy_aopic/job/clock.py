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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class JobClock:
    """The time of a job, in seconds since the epoch.

    Args:
        mark: What :meth:`mark` returned at the last commit; empty for a new job.

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
        """What the next process needs to go on."""
        return self(), _boot_id(), _uptime()


class SharedClock(JobClock):
    """The time of a job that several machines share: that of its server, which is looked at now and then.

    Args:
        now: The server's time, in seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        super().__init__()
        self.jump = 0.0
        self._setting = threading.Lock()
        self._offset = now - time.monotonic()

    def advance(self, instant: float) -> None:
        """It is *instant* already, by the server or by a shard that another machine has crawled."""
        with self._setting:
            self._offset = max(self._offset, instant - time.monotonic())


@cache
def _boot_id() -> str:
    """What is different after each start of the machine; empty on systems that do not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _uptime() -> float:
    """Seconds since the machine was started, sleep included; 0 on systems that do not distinguish starts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _boot_id() else 0.0

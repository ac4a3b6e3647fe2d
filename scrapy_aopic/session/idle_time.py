"""Whether the event loop has time to spare: what a free connection does not say.

Where the processor is the limit, each page that goes out takes time that an answer waits for which is there already. So
while hosts within their budgets are expected, the others get one page for each *pause* of the loop: a time as long as a
page takes, in which a timer is punctual and this thread has worked for less than half of it. With no host expected they
need no pause.
"""

from __future__ import annotations

from time import monotonic, thread_time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import CallLaterResult, call_later

if TYPE_CHECKING:
    from collections.abc import Callable


_HOLD = 1.0
"""Seconds for which a busy loop holds pages back for a host that is free by then."""

_SHORTEST, _LONGEST = 0.005, 0.1
"""Bounds of the seconds that a page is taken to need: no timer is exact to less, and the first pages bear the start."""

_BUSY = 0.5
"""Part of a pause in which the thread may work."""


class IdleTime:
    """Looks for pauses of the event loop, while a request waits for one.

    Args:
        wake: Called when a pause was found.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: CallLaterResult | None = None
        self._is_found = False
        self._due = self._worked = 0.0
        self._began, self._n_pages = thread_time(), 0

    def hold(self) -> float:
        """Seconds for which pages are held back for a host that is free by then: what a page takes, in a pause."""
        return self._page() if self._is_found else _HOLD

    def used(self) -> None:
        """A page goes out: the pause is over."""
        self._is_found = False
        self._n_pages += 1

    def seek(self) -> None:
        """A page is held back: look for the next pause."""
        self._is_found = False
        if self._timer is None:
            pause = self._page()
            self._due, self._worked = monotonic() + pause, thread_time()
            self._timer = call_later(pause, self._look, pause)

    def _page(self) -> float:
        """Seconds that a page takes of this thread, in the mean."""
        mean = (thread_time() - self._began) / max(self._n_pages, 1)
        return min(max(mean, _SHORTEST), _LONGEST)

    def _look(self, pause: float) -> None:
        self._timer = None
        is_late = monotonic() - self._due > pause
        if is_late or thread_time() - self._worked > _BUSY * pause:
            self.seek()
        else:
            self._is_found = True
            self._wake()

    def close(self) -> None:
        """Look for no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

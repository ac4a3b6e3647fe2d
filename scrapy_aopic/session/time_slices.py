"""Long work in short slices of time, between which the event loop does whatever else is due.

Rule 1: one slice is made at a time, in turns: however many pages are read, whatever else is due waits for one of them.

Rule 2: other work comes first. The next slice begins when the loop has nothing else to do, or when that has had its share
(:data:`SHARE`). So pages that take long fill what time there is, and hosts whose pages take none are asked as before.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

SLICE = 0.01
"""Seconds after which a slice ends, with its current step. Other work waits at most this long, plus one step."""

SHARE = 3
"""Times a slice that other work has before the next one, if it wants as much."""

_IDLE = 0.0002
"""Seconds of this thread in one turn of the event loop up to which it had nothing else to do."""


class _Turns:
    """Those who wait for a slice."""

    def __init__(self) -> None:
        self._waiting: deque[Deferred[None]] = deque()
        self._is_looking = False
        self._share = self._worked = 0.0

    def wait(self) -> Deferred[None]:
        """What is called back when the next slice may begin."""
        turn: Deferred[None] = Deferred()
        self._waiting.append(turn)
        if not self._is_looking:
            self._begin()
        return turn

    def _begin(self) -> None:
        """A slice is over, if there was one."""
        self._is_looking = bool(self._waiting)
        if self._is_looking:
            self._share = SHARE * SLICE
            self._worked = thread_time()
            call_later(0, self._look)

    def _look(self) -> None:
        now = thread_time()
        worked, self._worked = now - self._worked, now
        self._share -= worked
        if worked > _IDLE and self._share > 0:
            call_later(0, self._look)
        else:
            call_later(0, self._begin)  # the slice is made in between: a task goes on in the next turn
            self._waiting.popleft().callback(None)


_LINE = _Turns()
"""There is one event loop in a process."""


class TimeSlices:
    """Divides one piece of work into slices."""

    def __init__(self) -> None:
        self.ends_at = perf_counter() + SLICE
        """Instant (``time.perf_counter``) at which the slice is over: many short steps in a row compare it themselves first."""

    async def step(self) -> None:
        """A step is done: let the event loop go on if the slice is over."""
        if perf_counter() > self.ends_at:
            await maybe_deferred_to_future(_LINE.wait())
            self.ends_at = perf_counter() + SLICE

    async def pause(self, seconds: float) -> None:
        """Let the event loop go on for *seconds*, and begin another slice."""
        waiting: Deferred[None] = Deferred()
        call_later(seconds, waiting.callback, None)
        await maybe_deferred_to_future(waiting)
        self.ends_at = perf_counter() + SLICE


async def in_time_slices(steps: Generator[None, None, T]) -> T:
    """The result of *steps*, taken in slices."""
    slices = TimeSlices()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await slices.step()

"""Long work in short slices of time, between which the event loop does whatever else is due.

Rule 1: one slice is made at a time, in turns: however many pages are read, whatever else is due waits for one of them.

Rule 2: other work comes first. The next slice begins when the loop has nothing else to do, or when that has had its share
(:data:`SHARE`). So pages that take long fill what time there is, and hosts whose pages take none are asked as before.

Rule 3: what has had its :data:`MANY` slices, or their time, comes after what has not, and waits until the loop has had nothing to
do for a while (:data:`_QUIET`). For a page comes in some ten turns of the loop, with nothing to do between two of them; if a slice
were made in each of these pauses, it would take ten times as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from time import perf_counter, thread_time
from typing import TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

T = TypeVar("T")

SLICE = 0.01
"""Seconds after which a slice ends, with its current step. Other work waits at most this long, plus one step."""

SHARE = 3
"""Times what the last slice took that other work has before the next one, if it wants as much."""

MANY = 10
"""Slices of one piece of work that are ordinary."""

_LONG = MANY * SLICE
"""Seconds of one piece of work that are ordinary: a slice may have ended with a long step."""

_IDLE = 0.0002
"""Seconds of this thread in one turn of the event loop up to which it had nothing else to do."""

_PAUSE = 0.001
"""Seconds for which the loop must have had nothing to do: of the ten turns in which a page comes many take less than a look."""

_QUIET = 0.01
"""The same for what has had many slices; all such waits for one slice take at most its share."""


class _Turns:
    """Those who wait for a slice."""

    def __init__(self) -> None:
        self._waiting: deque[Deferred[None]] = deque()
        self._long: deque[Deferred[None]] = deque()
        self._is_looking = False
        self._n = 0  # ordinary slices in a row
        self._share = self._patience = self._worked = self._at = self._quiet = 0.0

    def wait(self, *, is_long: bool) -> Deferred[None]:
        """What is called back when the next slice may begin, of work that *is_long* or of any other."""
        turn: Deferred[None] = Deferred()
        (self._long if is_long else self._waiting).append(turn)
        if not self._is_looking:
            self._begin()
        return turn

    def _begin(self, began: float = 0.0) -> None:
        """The slice that *began* at an instant of this thread is over, if there was one: it may have ended with a long step."""
        self._is_looking = bool(self._waiting or self._long)
        if self._is_looking:
            self._worked, self._at = thread_time(), perf_counter()
            took = self._worked - began if began else 0.0
            self._share = self._patience = SHARE * max(SLICE, took)
            call_later(0, self._look)

    def _look(self) -> None:
        now, at = thread_time(), perf_counter()
        worked, self._worked = now - self._worked, now
        passed, self._at = at - self._at, at
        is_idle = worked <= _IDLE
        self._quiet = self._quiet + passed if is_idle else 0.0
        self._patience -= passed if is_idle else 0.0
        self._share -= 0.0 if is_idle else worked
        is_long = not self._waiting or (bool(self._long) and self._n >= SHARE)
        is_quiet = is_idle and (self._quiet > (_QUIET if is_long else _PAUSE) or self._patience <= 0)
        if not is_quiet and self._share > 0:
            call_later(_PAUSE if is_idle else 0, self._look)
        else:
            self._n = 0 if is_long else self._n + 1
            call_later(0, self._begin, now)  # the slice is made in between: a task goes on in the next turn
            (self._long if is_long else self._waiting).popleft().callback(None)


_LINE = _Turns()
"""There is one event loop in a process."""


class TimeSlices:
    """Divides one piece of work into slices."""

    def __init__(self) -> None:
        self.ends_at = perf_counter() + SLICE
        """Instant (``time.perf_counter``) at which the slice is over: many short steps in a row compare it themselves first."""
        self._n, self._took = 0, 0.0

    async def step(self) -> None:
        """A step is done: let the event loop go on if the slice is over."""
        late = perf_counter() - self.ends_at
        if late > 0:
            self._n, self._took = self._n + 1, self._took + SLICE + late
            await maybe_deferred_to_future(_LINE.wait(is_long=self._n > MANY or self._took > _LONG))
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

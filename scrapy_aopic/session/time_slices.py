"""Long work in short slices of time, between which the event loop does whatever else is due."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

SLICE = 0.02
"""Seconds after which a slice ends, with its current step. Other work waits at most this long, plus one step."""


class TimeSlices:
    """Divides one piece of work into slices."""

    def __init__(self) -> None:
        self.ends_at = perf_counter() + SLICE
        """Instant (``time.perf_counter``) at which the slice is over: many short steps in a row compare it themselves first."""

    async def step(self) -> None:
        """A step is done: let the event loop go on if the slice is over."""
        if perf_counter() > self.ends_at:
            await self.pause(0)

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

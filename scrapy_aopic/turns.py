"""Long work in short turns, between which the event loop does what else is due."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

TURN = 0.02
"""Seconds after which a turn ends with the step that it is at."""


async def in_turns(steps: Generator[None, None, T]) -> T:
    """What *steps* come to."""
    began = perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if perf_counter() - began > TURN:
            waiting: Deferred[None] = Deferred()
            call_later(0, waiting.callback, None)
            await maybe_deferred_to_future(waiting)
            began = perf_counter()

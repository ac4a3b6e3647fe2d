"""Starts coroutines, and calls functions soon, in whichever event loop Scrapy runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


def start(call: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run what *call* gives, without waiting for it."""
    from scrapy.utils.defer import deferred_from_coro  # noqa: PLC0415  # needs an installed reactor in old versions

    deferred_from_coro(call())


def soon(call: Callable[[], None]) -> None:
    """Call *call* in the next turn of the event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # Twisted runs another one
        from scrapy.utils.asyncio import call_later  # noqa: PLC0415

        call_later(0, call)
    else:
        loop.call_soon(call)

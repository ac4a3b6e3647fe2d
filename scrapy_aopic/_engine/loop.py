"""Starts a coroutine in whichever event loop Scrapy runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def start(call: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run what *call* gives, without waiting for it."""
    from scrapy.utils.defer import deferred_from_coro  # noqa: PLC0415  # needs an installed reactor in old versions

    deferred_from_coro(call())

"""Waits for what must come, on however busy a machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    is_true: Callable[[], T], seconds: float = 60.0, *, every: float = 0.02, said: Callable[[], object] = str
) -> T:
    """What *is_true* gives once that is true; *said* is what the failure shows if it does not in so many *seconds*."""
    until = time.monotonic() + seconds
    while not (found := is_true()):
        assert time.monotonic() < until, said()
        time.sleep(every)
    return found

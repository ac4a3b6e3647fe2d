"""Memory of the process while crawls are open: pages are let go at once, Python looks for garbage less often, and what is
free goes back to the system.

A response of text and its selector refer to each other, so that each page would stay, with its tree, until Python's
collector for reference cycles finds it: with pages of 100 kB, 150 MB of them. So the selector is dropped when the callback
is over; who needs it again gets a new one.

With that, little garbage is in cycles, and the collector need not run after each 700 new objects, which is Python's default
until 3.12. Every few rounds it goes through everything that is alive: with Scrapy and Twisted a hundred thousand objects,
which was a fifth of the CPU time of a crawl (docs/speed.md).

The C library keeps what is freed, unless it lies at the end of its heap. Behind a burst of large pages it has gigabytes that
nobody uses, and gives them back only if it is asked. Blocks above a threshold come from the system and go back to it at
once; but with the first large block that is freed, that threshold rises up to 32 MB, after which bodies of all sizes lie in
one heap, between small blocks that stay. So it is held where it begins.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response


def drop_tree(response: Response) -> None:
    """Drop the tree of *response*, whose callback is over; it would be made again."""
    if getattr(response, "_cached_selector", None) is not None:
        setattr(response, "_cached_selector", None)  # noqa: B010  # not every response has it


def resident() -> int:
    """Bytes of this process in memory; where the system does not say, the most there ever were."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    if resource is None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def give_back() -> None:
    """Look for garbage in cycles, and have the C library give back to the system what is free: nothing but glibc can.

    Python counts objects and not their bytes: the body of a transfer that was cut short stays in a cycle, as one of a
    million. A collector that was switched off stays so. Both take about 0.2 s together.
    """
    if gc.isenabled() and gc.get_threshold()[0]:
        gc.collect()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """``malloc_trim`` of glibc; ``None`` where there is none, as with musl and on macOS."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    found: Callable[[int], int] = trim
    return found


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h

_LARGE = 128 * 1024
"""Bytes of a block that the system is asked for by itself: glibc's own threshold, before it rises."""

_KEPT = 16 * 1024 * 1024
"""Free bytes at the end of the heap that are kept: with the 128 kB that glibc has beside a fixed threshold, each page's tree
would be asked of the system anew."""

_OF_GLIBC = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def return_large_blocks() -> bool:
    """Have the C library return large blocks to the system as soon as they are free, for the rest of the process.

    Nothing is changed if the environment sets one of glibc's own variables for that.

    Returns:
        Whether that is so: not without glibc.
    """
    if any(name in os.environ for name in _OF_GLIBC) or _trim() is None:
        return False
    option = ctypes.CDLL(None).mallopt
    option.argtypes, option.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(option(_M_MMAP_THRESHOLD, _LARGE) and option(_M_TRIM_THRESHOLD, _KEPT))


class GarbageThreshold:
    """Has Python look for garbage in cycles after as many new *objects* as the largest one wants, until it is released.

    It is the process's: the last one that is released restores what was there. A collector that was switched off stays so,
    a threshold that was larger counts, and one that somebody else has set since is left alone.
    """

    _held: ClassVar[list[GarbageThreshold]] = []
    _before: ClassVar[tuple[int, int, int]] = (0, 0, 0)
    _now: ClassVar[tuple[int, int, int]] = (0, 0, 0)

    def __init__(self, objects: int) -> None:
        self._objects = objects
        if not self._held:
            type(self)._before = type(self)._now = gc.get_threshold()
        self._held.append(self)
        self._set()

    def release(self) -> None:
        """Want nothing any more."""
        if self in self._held:
            self._held.remove(self)
            self._set()

    @classmethod
    def _set(cls) -> None:
        first, *others = cls._before
        if not first or gc.get_threshold() != cls._now:
            return
        gc.set_threshold(max(first, *(each._objects for each in cls._held), 0), *others)
        cls._now = gc.get_threshold()

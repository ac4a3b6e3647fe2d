"""Memory of the process while crawls are open: pages are freed at once, garbage is collected less often, and free memory
goes back to the system.

A text response and its selector refer to each other, so each page would stay, with its tree, until Python's collector of
reference cycles finds it: with pages of 100 kB, 150 MB of them. So the selector is dropped when the callback is over; if
it is needed again, a new one is made.

The exception of a failed download or callback refers to the frames of the functions that it came through, and one of these
refers to the exception. So what they had would stay, too: a tree, or a body that turned out too large when it was unpacked, up
to ``DOWNLOAD_MAXSIZE`` of it. So these frames are cleared when the request is done with. Among hosts that misbehave at random
this was the larger half of the process.

After that, little garbage is in cycles, and the collector need not run after every 700 new objects, which is Python's
default until 3.12. Every few runs it goes through all live objects: with Scrapy and Twisted a hundred thousand, which was
a fifth of the CPU time of a crawl (docs/measurements.md).

The C library keeps freed memory, unless it is at the end of its heap. After a burst of large pages it has gigabytes that are
unused, and returns them only on request. Blocks above a threshold come from the system and go back to it at once; but when
the first large block is freed, that threshold rises to up to 32 MB, and from then on bodies of all sizes are in one heap,
between small blocks that stay. So the threshold is kept at its initial value.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import os
import sys
from contextlib import suppress
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


_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def clear_frames(error: BaseException) -> None:
    """Clear the local variables of functions that *error*, and the errors that led to it, came through.

    Frames of generators and coroutines are left alone: one that is suspended would be closed. The traceback can still be
    printed. (Without it, ``error.__traceback__ = None``, a spider that keeps errors for its report could not.)
    """
    known: set[int] = set()
    chained: BaseException | None = error
    while chained is not None and id(chained) not in known:
        known.add(id(chained))
        entry = chained.__traceback__
        while entry is not None:
            if not entry.tb_frame.f_code.co_flags & _SUSPENDABLE:
                with suppress(RuntimeError):  # it is still running
                    entry.tb_frame.clear()
            entry = entry.tb_next
        chained = chained.__cause__ or chained.__context__


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
    """Collect garbage in cycles, and have the C library return free memory to the system, which only glibc can.

    Python counts objects and not their bytes: the body of a transfer that was cut short stays in a cycle, as one object of
    a million. A collector that was switched off is left so. Both take about 0.2 s together.
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
    """Has Python collect garbage in cycles only after this many new *objects*, until it is released.

    The threshold is the process's: the largest one that is not released counts, and the last release restores the original.
    A collector that was switched off is left so, a larger original counts, and a value set by other code since is kept.
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

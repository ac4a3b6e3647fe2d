"""Memory of the process while crawls are open: pages are let go at once, and Python looks for garbage less often.

A response of text and its selector refer to each other, so that each page would stay, with its tree, until Python's
collector for reference cycles finds it: with pages of 100 kB, 150 MB of them. So the selector is dropped when the callback
is over; who needs it again gets a new one.

With that, little garbage is in cycles, and the collector need not run after each 700 new objects, which is Python's default
until 3.12. Every few rounds it goes through everything that is alive: with Scrapy and Twisted a hundred thousand objects,
which was a fifth of the CPU time of a crawl (docs/speed.md).
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from scrapy.http import Response


def drop_tree(response: Response) -> None:
    """Drop the tree of *response*, whose callback is over; it would be made again."""
    if getattr(response, "_cached_selector", None) is not None:
        setattr(response, "_cached_selector", None)  # noqa: B010  # not every response has it


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

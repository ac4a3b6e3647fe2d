"""The smallest of many values that mostly rise while nobody looks."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


V = TypeVar("V", float, list[float])


class LazyHeap(Generic[V]):
    """Keys by values that are looked up again when one comes first; of a value that falls it must be told.

    A key has one entry that counts in the heap; others are void.
    """

    def __init__(self) -> None:
        self._values: dict[bytes, V] = {}
        self._heap: list[tuple[V, bytes]] = []

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def note(self, key: bytes, value: V) -> None:
        """Let *key* be there, with *value* if it has no smaller one."""
        known = self._values.get(key)
        if known is None or value < known:
            self._values[key] = value
            heapq.heappush(self._heap, (value, key))

    def forget(self, key: bytes) -> None:
        """Let *key* not be there."""
        self._values.pop(key, None)

    def first(self, measure: Callable[[bytes], V]) -> tuple[V, bytes] | None:
        """The smallest value and its key, as *measure* has them now; ``None`` if there is no key."""
        while self._heap:
            value, key = self._heap[0]
            if self._values.get(key) != value:
                heapq.heappop(self._heap)
            elif (now := measure(key)) > value:
                self._values[key] = now
                heapq.heapreplace(self._heap, (now, key))
            else:
                return value, key
        return None

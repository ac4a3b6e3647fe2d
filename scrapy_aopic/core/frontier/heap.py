"""A heap whose entries can be removed: the frontier keeps hosts, gates and shelves in several of these.

Removing an entry from the middle of a heap takes time linear in its length. So a removed entry stays where it is, *void*,
and is dropped when it comes first, or with all other void entries when most of them are void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

V = TypeVar("V", bytes, float, list[float])

_MAY_BE_VOID = 100
"""Void entries that may stay however few others there are, so that short heaps are not rebuilt all the time."""


class LazyHeap(Generic[V]):
    """Keys by their values, the smallest first.

    A key has one entry at most: ``(value, number, key)``. The *number* decides between equal values, and the key
    between equal numbers.
    """

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[V, int, bytes]] = {}  # those that are not void, by key
        self._heap: list[tuple[V, int, bytes]] = []

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> KeysView[bytes]:
        """All keys, in any order."""
        return self._entries.keys()

    def entries(self) -> Iterable[tuple[V, int, bytes]]:
        """All entries, in any order."""
        return self._entries.values()

    def some(self, n: int) -> Iterator[tuple[V, int, bytes]]:
        """Of the first *n* places of the heap, where small values are, the entries that are not void; O(n)."""
        return (entry for entry in self._heap[:n] if self._entries.get(entry[2]) is entry)

    def value(self, key: bytes) -> V | None:
        """The value of *key*, ``None`` if it is not there."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None else None

    def push(self, key: bytes, value: V, number: int = 0) -> None:
        """Let *key* be there with *value* and *number*, whatever it had before."""
        entries, heap = self._entries, self._heap
        entry = entries[key] = (value, number, key)
        heappush(heap, entry)
        if len(heap) > 2 * len(entries) + _MAY_BE_VOID:
            heap[:] = entries.values()
            heapify(heap)

    def void(self, key: bytes) -> None:
        """Let *key* not be there."""
        self._entries.pop(key, None)

    def up_to(self, value: V) -> Iterator[tuple[V, int, bytes]]:
        """The entries with at most this *value*, in any order; O(their number, void ones included)."""
        heap, at = self._heap, [0]
        while at:
            number = at.pop()
            if number < len(heap) and not heap[number][0] > value:
                at += (2 * number + 1, 2 * number + 2)
                entry = heap[number]
                if self._entries.get(entry[2]) is entry:
                    yield entry

    def first(self) -> tuple[V, int, bytes] | None:
        """The first entry, ``None`` if there is none."""
        entries, heap = self._entries, self._heap
        while heap:
            entry = heap[0]
            if entries.get(entry[2]) is entry:
                return entry
            heappop(heap)
        return None


class RisingHeap(LazyHeap[V]):
    """Keys by values that may rise without a call.

    A value is measured again when its key comes first; a value that falls must be noted.
    """

    __slots__ = ()

    def note(self, key: bytes, value: V) -> None:
        """Let *key* be there, with *value* if it has no smaller one."""
        known = self._entries.get(key)
        if known is None or value < known[0]:
            self.push(key, value)

    def first_by(self, measure: Callable[[bytes], V]) -> tuple[V, int, bytes] | None:
        """The first entry by the values that *measure* finds now, ``None`` if there is none."""
        while (entry := self.first()) is not None:
            key = entry[2]
            value = measure(key)
            if not value > entry[0]:
                return entry
            moved = self._entries[key] = (value, entry[1], key)
            heapreplace(self._heap, moved)
        return None

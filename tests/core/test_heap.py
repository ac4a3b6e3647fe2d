"""Heaps whose entries can be taken back, beside a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.frontier.heap import LazyHeap, RisingHeap

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])


@given(st.lists(st.tuples(KEYS, st.integers(-5, 20).map(float), st.integers(0, 3), st.booleans())))
def test_a_heap_gives_the_least_of_what_is_there(steps):
    heap: LazyHeap[float] = LazyHeap()
    there: dict[bytes, tuple[float, int, bytes]] = {}
    for key, value, number, is_push in steps:
        if is_push:
            there[key] = (value, number, key)
            heap.push(key, value, number)
        else:
            there.pop(key, None)
            heap.void(key)
        assert heap.first() == min(there.values(), default=None)
        assert sorted(heap.entries()) == sorted(there.values())
        assert heap.keys() == there.keys()
        assert sorted(heap.some(len(heap._heap))) == sorted(there.values())
        assert list(heap.some(1)) == ([heap.first()] if there else [])
        assert sorted(heap.up_to(value)) == sorted(entry for entry in there.values() if entry[0] <= value)
        assert (len(heap), key in heap, heap.value(key)) == (len(there), is_push, value if is_push else None)


def test_void_entries_are_never_many():
    heap: LazyHeap[float] = LazyHeap()
    for step in range(10_000):
        heap.push(b"%d" % (step % 7), float(-step), step)
        assert len(heap._heap) - len(heap) <= 107
    assert len(heap) == 7


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(-5, 20), st.sampled_from(["rise", "note", "forget"]))
    )
)
def test_a_lazy_heap_gives_the_least_as_long_as_it_is_told_of_what_falls(steps):
    heap: RisingHeap[float] = RisingHeap()
    values: dict[bytes, float] = {}
    for name, number, what in steps:
        key = name.encode()
        if what == "forget":
            values.pop(key, None)
            heap.void(key)
        elif what == "note":
            values[key] = float(number)
            heap.note(key, float(number))
        elif key in values:
            values[key] += abs(number)
        first = heap.first_by(values.__getitem__)
        assert first == min(((value, 0, key) for key, value in values.items()), default=None)
        assert (len(heap), b"a" in heap) == (len(values), b"a" in values)

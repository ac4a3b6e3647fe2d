"""Which key leaves memory next: the cache against a plain model of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.tables import ClockCache

KEYS = st.integers(0, 5).map(lambda number: b"%d" % number)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "use", "use", "victim"]), KEYS), min_size=40)


class Clock:
    """A dial with a hand, as in the textbooks; new keys are put where the hand has just been."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.hand = 0
        self.marked: set[bytes] = set()

    def add(self, key: bytes) -> None:
        self.keys.insert(self.hand, key)
        self.hand += 1

    def victim(self) -> bytes:
        while True:
            self.hand %= len(self.keys)
            key = self.keys[self.hand]
            if key not in self.marked:
                return self.keys.pop(self.hand)
            self.marked.discard(key)
            self.hand += 1


@pytest.mark.slow
@given(STEPS)
def test_the_key_that_goes_is_that_of_the_model(steps):
    cache, model = ClockCache(), Clock()
    for step, key in [*steps, *[("victim", b"")] * 6]:
        if step == "victim":
            if model.keys:
                assert cache.victim() == model.victim()
        elif step == "use":
            cache.use(key)
            model.marked.add(key)
        elif key not in model.keys:
            cache.add([key])
            model.add(key)
        assert len(cache) == len(model.keys)


@given(st.lists(KEYS), st.lists(KEYS))
def test_to_use_all_is_to_use_each(keys, used):
    one, other = ClockCache(), ClockCache()
    for cache in (one, other):
        cache.add(dict.fromkeys(keys))
    one.use_all(used)
    for key in used:
        other.use(key)
    assert [one.victim() for _ in range(len(one))] == [other.victim() for _ in range(len(other))]

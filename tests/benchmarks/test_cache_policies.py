"""Which key goes next: each policy against a plain model of it."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from cache_policies import CACHES, Cache

KEYS = st.integers(0, 5).map(lambda number: b"%d" % number)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "use", "use", "victim"]), KEYS), min_size=40)


def make(policy: str) -> Cache:
    return CACHES[policy](random.Random(1).random)


class Lru:
    """A list in the order of the last use."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def add(self, key: bytes) -> None:
        self.keys.append(key)

    def use(self, key: bytes) -> None:
        if key in self.keys:
            self.keys.remove(key)
            self.keys.append(key)

    def victim(self) -> bytes:
        return self.keys.pop(0)


class Clock(Lru):
    """A dial with a hand, as in the textbooks; new keys are put where the hand has just been."""

    def __init__(self) -> None:
        super().__init__()
        self.hand = 0
        self.marked: list[bytes] = []

    def add(self, key: bytes) -> None:
        self.keys.insert(self.hand, key)
        self.hand += 1

    def use(self, key: bytes) -> None:
        self.marked.append(key)

    def victim(self) -> bytes:
        while True:
            self.hand %= len(self.keys)
            if self.keys[self.hand] not in self.marked:
                return self.keys.pop(self.hand)
            self.marked = [key for key in self.marked if key != self.keys[self.hand]]
            self.hand += 1


class Static(Lru):
    """The rights to stay are given out until the first key has to go."""

    def __init__(self) -> None:
        super().__init__()
        self.stays: set[bytes] = set()
        self.is_full = False

    def add(self, key: bytes) -> None:
        super().add(key)
        if not self.is_full:
            self.stays.add(key)

    def use(self, key: bytes) -> None:
        pass

    def victim(self) -> bytes:
        self.is_full = True
        others = [key for key in self.keys if key not in self.stays]
        key = (others or self.keys)[-1]
        self.keys.remove(key)
        self.stays.discard(key)
        return key


MODELS = {"lru": Lru, "clock": Clock, "static": Static}


@pytest.mark.slow
@given(st.sampled_from(sorted(MODELS)), STEPS)
def test_the_key_that_goes_is_that_of_the_model(policy: str, steps: list[tuple[str, bytes]]):
    cache, model = make(policy), MODELS[policy]()
    for step, key in [*steps, *[("victim", b"")] * 6]:
        if step == "victim":
            if model.keys:
                assert cache.victim() == model.victim()
        elif step == "use":
            cache.use(key)
            model.use(key)
        elif key not in model.keys:
            cache.add([key])
            model.add(key)
        assert len(cache) == len(model.keys)


@pytest.mark.slow
@given(st.sampled_from(sorted(CACHES)), STEPS)
def test_what_goes_is_a_key_that_may_and_it_goes_once(policy: str, steps: list[tuple[str, bytes]]):
    cache = make(policy)
    keys: set[bytes] = set()
    for step, key in [*steps, *[("victim", b"")] * 6]:
        match step:
            case "victim" if keys:
                keys.remove(cache.victim())
            case "add" if key not in keys:
                cache.add([key])
                keys.add(key)
            case "use":
                cache.use(key)
        assert len(cache) == len(keys)


def test_chance_draws_each_key_equally_often_and_the_same_dice_draw_the_same():
    def drawn(seed: int) -> list[bytes]:
        cache = CACHES["random"](random.Random(seed).random)
        for number in range(10):
            cache.add([b"%d" % number])
        gone = []
        for _ in range(10_000):
            gone.append(cache.victim())
            cache.add([gone[-1]])
        return gone

    gone = drawn(1)
    assert gone == drawn(1) != drawn(2)
    assert sorted(Counter(gone)) == [b"%d" % number for number in range(10)]
    assert all(850 < times < 1150 for times in Counter(gone).values())


@pytest.mark.parametrize(("chance", "first"), [(0.0, b"0"), (1 - 2**-53, b"2")])
def test_the_ends_of_chance_draw_the_first_and_the_last_key(chance: float, first: bytes):
    cache = CACHES["random"](lambda: chance)
    for number in range(3):
        cache.add([b"%d" % number])
    gone = [cache.victim() for _ in range(3)]
    assert gone[0] == first
    assert sorted(gone) == [b"0", b"1", b"2"]


@given(st.sampled_from(sorted(CACHES)), st.lists(KEYS), st.lists(KEYS))
def test_to_use_all_is_to_use_each(policy: str, keys: list[bytes], used: list[bytes]):
    one, other = make(policy), make(policy)
    for cache in (one, other):
        cache.add(dict.fromkeys(keys))
    one.use_all(used)
    for key in used:
        other.use(key)
    assert [one.victim() for _ in range(len(one))] == [other.victim() for _ in range(len(other))]

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from support.store_contract import StoreContract, number

from scrapy_aopic.core.ports import Family, StorePart
from scrapy_aopic.storage.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path


class TestMemoryStore(StoreContract):
    persistent = False

    def make_store(self, folder: Path, *, read_only: bool = False) -> MemoryStore:
        return MemoryStore()


class TestStorePart(StoreContract):
    """The part of a store that has rows of other parts before and behind it."""

    persistent = False

    def make_store(self, folder: Path, *, read_only: bool = False) -> StorePart:
        store = MemoryStore()
        for other in (254, 256):
            StorePart(store, other).write(
                {family: {b"": b"", b"a": b"", b"\xff" * 40: b""} for family in Family}, sync=False
            )
        return StorePart(store, 255)


@pytest.mark.slow
def test_a_long_walk_agrees_with_a_sorted_dictionary():
    """The other backends are compared with this one, so this one with what is obvious."""
    dice = random.Random(3)
    store, model = MemoryStore(), {}
    scans = []
    for _ in range(400):
        keys = [number(dice.randrange(6_000)) for _ in range(dice.choice((1, 30, 3_000)))]
        rows = {key: dice.choice((None, b"x", dice.randbytes(3))) for key in keys}
        store.write({Family.QUEUE: rows}, sync=False)
        model.update(rows)
        model = {key: value for key, value in model.items() if value is not None}
        assert store.size_bytes() == sum(len(key) + len(value) for key, value in model.items())
        start, stop = number(dice.randrange(6_000)), number(dice.randrange(7_000))
        expected = sorted(pair for pair in model.items() if start <= pair[0] < stop)
        scans = [*scans[-3:], (store.scan(Family.QUEUE, start, stop), iter(expected))]
        for scan, pairs in scans:
            assert list(islice(scan, 500)) == list(islice(pairs, 500))
    assert list(store.scan(Family.QUEUE)) == sorted(model.items())

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.tables import BlobTable, RecordTable, RowTable
from scrapy_aopic.storage.memory import MemoryStore


class Box:
    """A record that can be changed in place."""

    def __init__(self, value: int) -> None:
        self.value = value


class CountedStore(MemoryStore):
    """Counts the reads by key."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[list[bytes]] = []

    def get_many(self, family, keys):
        self.reads.append(list(keys))
        return super().get_many(family, keys)


def boxes(store, capacity: int = 100) -> RecordTable[Box]:
    return RecordTable(
        store, Family.PAGES, lambda box: b"%d" % box.value, lambda data: Box(int(data)), capacity
    )


def write(store, table, family: Family = Family.PAGES) -> None:
    store.write({family: table.take()}, sync=True)
    table.landed()


def values(table: RecordTable[Box], *keys: bytes) -> list[int | None]:
    return [box and box.value for box in table.get_many(keys)]


# -- records


def test_a_record_is_read_in_the_order_asked_for_with_one_read_of_the_store():
    store = CountedStore()
    store.write({Family.PAGES: {b"a": b"1", b"b": b"2", b"c": b"3"}}, sync=True)
    table = boxes(store)
    table.get(b"b")
    assert values(table, b"c", b"b", b"x", b"a") == [3, 2, None, 1]
    assert store.reads == [[b"b"], [b"c", b"x", b"a"]]
    assert (table.hits, table.misses) == (1, 4)


def test_what_was_looked_for_in_vain_is_not_read_again_until_it_is_put():
    store = CountedStore()
    table = boxes(store, capacity=2)
    assert values(table, b"a", b"b", b"a") == [None, None, None]
    assert table.get(b"a") is None
    assert len(store.reads) == 1
    table.put(b"a", Box(1))
    write(store, table)
    assert values(table, b"a") == [1]
    for n in range(9):
        table.get(b"%d" % n)  # more than are remembered
    assert table.get(b"b") is None
    assert len(store.reads) == 11


def test_the_least_recently_used_record_goes_first():
    store = CountedStore()
    store.write({Family.PAGES: dict.fromkeys((b"a", b"b", b"c"), b"1")}, sync=True)
    table = boxes(store, capacity=2)
    for key in (b"a", b"b", b"a", b"c", b"a", b"b"):
        table.get(key)
    assert store.reads == [[b"a"], [b"b"], [b"c"], [b"b"]]


def test_memory_shrinks_to_its_capacity_after_the_commit():
    store = CountedStore()
    table = boxes(store, capacity=3)
    for number in range(50):
        table.put(b"%02d" % number, Box(number))
    write(store, table)
    values(table, *(b"%02d" % number for number in range(50)))
    assert len(store.reads[0]) == 47


# -- values that are not cached


def test_a_value_that_has_landed_is_no_longer_held_in_memory():
    store = MemoryStore()
    table = BlobTable(store, Family.REQUESTS)
    table.put(b"a", b"1")
    store.write({Family.REQUESTS: table.take()}, sync=True)
    table.landed()
    store.write({Family.REQUESTS: {b"a": b"2"}}, sync=True)
    assert (table.get(b"a"), table.get_many([b"a"])) == (b"2", [b"2"])


def test_values_that_were_read_ahead_take_one_read_and_are_those_of_the_last_change():
    store = CountedStore()
    keys = [b"a", b"b", b"c", b"d"]
    store.write({Family.REQUESTS: dict.fromkeys(keys, b"old")}, sync=True)
    table = BlobTable(store, Family.REQUESTS)
    table.put(b"d", b"new")
    table.read_ahead([*keys, b"absent"])
    assert store.reads == [[b"a", b"b", b"c", b"absent"]]
    table.put(b"b", b"new")
    table.delete(b"c")
    store.write({Family.REQUESTS: table.take()}, sync=True)
    table.landed()
    table.read_ahead([b"a"])
    assert [table.get(key) for key in (b"a", b"absent")] == [b"old", None]
    assert len(store.reads) == 1
    assert [table.get(key) for key in keys] == [b"old", b"new", None, b"new"]
    assert len(store.reads) == 5, "each is got once without a read"


# -- rows


def rows_of(table: RowTable, bucket: bytes, n: int = 1000) -> list[bytes]:
    return [key for key, _ in table.first(bucket, n)[0]]


@pytest.mark.parametrize("bucket", [b"\xff", b"\xff\xff", b"a\xff", b"\x00"])
def test_a_bucket_may_end_with_the_largest_byte(bucket):
    store = MemoryStore()
    keys = [bucket + b"\x00", bucket + b"\xff", bucket + b"\xff\xff"]
    store.write({Family.QUEUE: dict.fromkeys([*keys, b"a", b"b", b"\x01"], b"")}, sync=True)
    table = RowTable(store, Family.QUEUE, lambda key: key[: len(bucket)])
    assert rows_of(table, bucket) == keys


def test_a_read_passes_over_no_rows_that_were_deleted_in_front():
    scanned: list[bytes] = []

    class Scanned(MemoryStore):
        def scan(self, *where):
            for key, value in super().scan(*where):
                scanned.append(key)
                yield key, value

    store = Scanned()
    keys = [bytes((97, number)) for number in range(100)]
    store.write({Family.QUEUE: dict.fromkeys(keys, b"")}, sync=True)
    table = RowTable(store, Family.QUEUE, lambda key: key[:1])
    for taken in range(90):
        assert rows_of(table, b"a", 1)[0] == keys[taken]
        table.delete(keys[taken])
    assert len(scanned) <= 3 * 90


KEYS = st.sampled_from([b"a%d" % number for number in range(9)] + [b"b1", b"\xff1", b"\xff\xff"])


class Rows(RuleBasedStateMachine):
    """A row table is a sorted dictionary, whatever is pending, in flight, landed or failed."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.table = RowTable(self.store, Family.QUEUE, lambda key: key[:1])
        self.rows: dict[bytes, bytes] = {}
        self.batch: dict[bytes, bytes | None] | None = None

    @rule(key=KEYS, value=st.binary(max_size=1))
    def put(self, key, value):
        self.table.put(key, value)
        self.rows[key] = value

    @rule(key=KEYS)
    def delete(self, key):
        self.table.delete(key)
        self.rows.pop(key, None)

    @rule(bucket=st.sampled_from([b"a", b"b", b"\xff"]))
    def forget(self, bucket):
        self.table.forget(bucket)

    @precondition(lambda self: self.batch is None)
    @rule()
    def take(self):
        self.batch = self.table.take()

    @precondition(lambda self: self.batch is not None)
    @rule()
    def land(self):
        self.store.write({Family.QUEUE: self.batch}, sync=True)
        self.table.landed()
        self.batch = None

    @precondition(lambda self: self.batch is not None)
    @rule(was_written=st.booleans())
    def fail(self, was_written):
        """A commit of which it is not known whether it reached the disk counts as failed, too."""
        if was_written:
            self.store.write({Family.QUEUE: self.batch}, sync=True)
        self.table.failed()
        self.batch = None

    @rule(bucket=st.sampled_from([b"a", b"b", b"\xff"]), n=st.sampled_from([1, 3, 100]))
    def read(self, bucket, n):
        """A rule, not an invariant, because a read remembers where the rows begin."""
        expected = sorted(pair for pair in self.rows.items() if pair[0].startswith(bucket))
        first, whole = self.table.first(bucket, n)
        assert first == expected[: len(first)]
        assert len(first) >= min(n, len(expected))
        assert first == expected or not whole
        assert whole or n < 100

    def teardown(self):
        for bucket in (b"a", b"b", b"\xff"):
            self.read(bucket, 100)


TestRows = pytest.mark.slow(Rows.TestCase)


@given(st.sets(st.binary(min_size=1, max_size=3)), st.binary(min_size=1, max_size=2))
def test_the_rows_of_a_bucket_are_those_whose_keys_start_with_it(keys, bucket):
    store = MemoryStore()
    store.write({Family.QUEUE: dict.fromkeys(keys, b"")}, sync=True)
    expected = sorted(key for key in keys if key.startswith(bucket))
    assert rows_of(RowTable(store, Family.QUEUE, lambda key: key[: len(bucket)]), bucket) == expected
    assert sorted(keys)[bisect_left(sorted(keys), bucket) :][: len(expected)] == expected

"""The promises of :class:`~scrapy_aopic.core.ports.Store` as tests; needs pytest and Hypothesis.

A backend (:class:`~scrapy_aopic.storage.registry.Backend`) passes when this passes::

    class TestMine(StoreContract):
        def make_store(self, folder, *, read_only=False):
            return MyStore(folder, memory_mb=8, read_only=read_only)

Crashes and full disks are real: a child process imports the test class by its name, writes with
:func:`write_transfers`, and is killed or meets the limit; :func:`check_transfers` then judges what it left. Damage is
real, too: a bit of a stored value is changed in the store's files.

What these tests cannot show:

- that ``sync`` reaches the disk: a killed process loses nothing that it gave to the operating system, so a store
  without a single ``fsync`` passes. Only a power cut shows it, or a record of all system calls, as
  ``benchmarks/power.py`` makes one for the stores of this package;
- that every kind of damage is noticed: a file that was cut short, for example, may look like a batch that was
  never committed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_aopic.core.ports import Batch, Family, Store, prefetching
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore

Pairs = list[tuple[bytes, bytes]]

_N_ACCOUNTS = 64
_COUNT = b"count"


class StoreContract:
    """Inherit, make the store, and every promise of the port is tested."""

    #: Whether a store survives its process.
    persistent: ClassVar[bool] = True

    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        """Open the store in *folder*, which may not exist, may be empty, or may hold one from before.

        Args:
            read_only: Open a view of it instead; never so if the store is not *persistent*.
        """
        raise NotImplementedError

    def damage(self, folder: Path, value: bytes) -> None:
        """Change one bit of *value*, 64 bytes without a pattern that are stored under a key, in the files of *folder*.

        To be overridden by a store whose files do not have values as they are (but compressed, say).
        """
        n_found = 0
        for path in filter(Path.is_file, folder.rglob("*")):
            at = path.read_bytes().find(value)
            if at >= 0:
                with path.open("r+b") as file:
                    file.seek(at + len(value) // 2)
                    file.write(bytes((value[len(value) // 2] ^ 1,)))
                n_found += 1
        assert n_found, "no file holds the value as it is; override damage()"

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "job"

    @pytest.fixture
    def store(self, folder: Path) -> Iterator[Store]:
        with closing(self.make_store(folder)) as store:
            yield store

    # Reading by key

    def test_values_come_in_the_order_of_the_keys_asked_for(self, store: Store) -> None:
        write(store, Family.PAGES, {b"a": b"1", b"b": b"2", b"c": b"3"})
        assert store.get_many(Family.PAGES, [b"c", b"a", b"b"]) == [b"3", b"1", b"2"]
        assert store.get_many(Family.PAGES, (b"b", b"b")) == [b"2", b"2"]

    def test_an_absent_key_reads_as_none(self, store: Store) -> None:
        write(store, Family.PAGES, {b"b": b"2"})
        assert store.get_many(Family.PAGES, [b"a", b"b", b"c"]) == [None, b"2", None]

    def test_no_keys_read_as_no_values(self, store: Store) -> None:
        assert store.get_many(Family.PAGES, []) == []

    def test_a_new_store_is_empty(self, store: Store) -> None:
        for family in Family:
            assert store.get_many(family, [b"", b"a"]) == [None, None]
            assert list(store.scan(family)) == []

    def test_many_keys_are_read_at_once(self, store: Store) -> None:
        rows = {number(n): number(-n) for n in range(0, 6_000, 2)}
        write(store, Family.PAGES, rows)
        keys = [number(n) for n in range(6_000)]
        _dice(1).shuffle(keys)
        assert store.get_many(Family.PAGES, keys) == [rows.get(key) for key in keys]

    # Scanning

    def test_a_scan_is_in_the_order_of_unsigned_bytes(self, store: Store) -> None:
        keys = [
            b"\x7f", b"\x80", b"a", b"ab", b"a\x00", b"b", b"\x00", b"\x00\x00", b"\xff", b"\xff\xff", b"A",
        ]  # fmt: skip
        write(store, Family.QUEUE, {key: key[::-1] for key in keys})
        assert list(store.scan(Family.QUEUE)) == [(key, key[::-1]) for key in sorted(keys)]

    def test_a_scan_includes_its_start_and_not_its_stop(self, store: Store) -> None:
        write(store, Family.QUEUE, {number(n): b"" for n in range(300)})

        def scanned(start: bytes, stop: bytes | None) -> list[int]:
            return [int.from_bytes(key, "big") for key, _ in store.scan(Family.QUEUE, start, stop)]

        assert scanned(number(10), number(13)) == [10, 11, 12]
        assert scanned(number(298), None) == [298, 299]
        assert scanned(b"", number(2)) == [0, 1]
        assert scanned(number(5) + b"\x00", number(7) + b"\x00") == [6, 7]
        assert scanned(number(5), number(5)) == []
        assert scanned(number(7), number(5)) == []
        assert scanned(number(300), None) == []
        assert scanned(b"", None) == list(range(300))

    def test_a_scan_shows_the_moment_it_was_made(self, store: Store) -> None:
        before = {number(n): b"before" for n in range(0, 2_000, 2)}
        write(store, Family.QUEUE, before)
        started = store.scan(Family.QUEUE)
        head = list(islice(started, 3))
        unstarted = store.scan(Family.QUEUE, number(600), number(800))
        short = store.scan(Family.QUEUE, number(600), number(604))
        write(store, Family.QUEUE, {number(n): b"after" for n in range(0, 2_000, 3)})
        write(store, Family.QUEUE, {number(n): None for n in range(0, 2_000, 4)})
        pairs = sorted(before.items())
        assert head + list(started) == pairs
        assert list(unstarted) == pairs[300:400]
        assert list(short) == pairs[300:302]
        assert (number(3), b"after") in list(store.scan(Family.QUEUE))

    def test_a_scan_holds_nobody_up(self, store: Store) -> None:
        write(store, Family.QUEUE, {number(n): b"" for n in range(1_000)})
        scan = store.scan(Family.QUEUE)
        next(scan)
        write(store, Family.QUEUE, {number(1): b"new"})
        assert store.get_many(Family.QUEUE, [number(1)]) == [b"new"]
        assert len(list(store.scan(Family.QUEUE))) == 1_000

    def test_scans_may_be_left_unfinished(self, store: Store) -> None:
        write(store, Family.QUEUE, {number(n): b"" for n in range(1_000)})
        for n in range(200):
            assert next(store.scan(Family.QUEUE, number(n))) == (number(n), b"")
        assert len(list(store.scan(Family.QUEUE))) == 1_000

    # Writing

    def test_a_batch_puts_and_deletes_in_all_families(self, store: Store) -> None:
        store.write({Family.PAGES: {b"a": b"1", b"b": b"2"}, Family.HOSTS: {b"a": b"host"}}, sync=False)
        store.write(
            {
                Family.PAGES: {b"a": None, b"b": b"two", b"c": b"3", b"absent": None},
                Family.HOSTS: {b"a": None},
                Family.META: {b"a": b"meta"},
                Family.QUEUE: {},
            },
            sync=True,
        )
        assert list(store.scan(Family.PAGES)) == [(b"b", b"two"), (b"c", b"3")]
        assert list(store.scan(Family.HOSTS)) == []
        assert list(store.scan(Family.META)) == [(b"a", b"meta")]
        assert list(store.scan(Family.QUEUE)) == []

    def test_families_are_independent(self, store: Store) -> None:
        store.write({family: {b"key": family.name.encode()} for family in Family}, sync=False)
        write(store, Family.REQUESTS, {b"key": None})
        expected = [None if family is Family.REQUESTS else family.name.encode() for family in Family]
        assert [store.get_many(family, [b"key"])[0] for family in Family] == expected

    def test_an_empty_batch_changes_nothing(self, store: Store) -> None:
        write(store, Family.PAGES, {b"a": b"1"})
        store.write({}, sync=True)
        assert list(store.scan(Family.PAGES)) == [(b"a", b"1")]

    def test_any_bytes_are_a_key_and_a_value(self, store: Store) -> None:
        every_byte = bytes(range(256))
        rows = {bytes((n,)): bytes((n,)) for n in range(256)}
        rows |= {
            b"": b"",
            b"\x00" * 9: b"\x00",
            b"\xff" * 9: b"\xff",
            every_byte: every_byte * 400,
            b"k": b"",
        }
        write(store, Family.REQUESTS, rows)
        assert store.get_many(Family.REQUESTS, list(rows)) == list(rows.values())
        assert list(store.scan(Family.REQUESTS)) == sorted(rows.items())

    def test_a_big_batch_is_written(self, store: Store) -> None:
        rows = {number(n): b"%08d" % n for n in range(20_000)}
        store.write({Family.PAGES: rows, Family.QUEUE: rows}, sync=True)
        assert list(store.scan(Family.PAGES)) == list(store.scan(Family.QUEUE)) == list(rows.items())
        store.write({Family.QUEUE: dict.fromkeys(rows)}, sync=False)
        assert list(store.scan(Family.QUEUE)) == []
        assert len(list(store.scan(Family.PAGES))) == 20_000

    def test_another_thread_may_write_while_this_one_reads(self, store: Store) -> None:
        both = [b"a", b"b"]
        written = [number(0)]
        write(store, Family.PAGES, dict.fromkeys(both, written[-1]))

        def count() -> None:
            for n in range(1, 200):
                batch: Batch = {
                    Family.PAGES: dict.fromkeys(both, number(n)),
                    Family.REQUESTS: {number(n): b"x" * 1_000},
                }
                store.write(batch, sync=n % 10 == 0)
                written.append(number(n))

        writer = threading.Thread(target=count)
        writer.start()
        while writer.is_alive():
            seen = written[-1]
            _prefetch(store, Family.PAGES, both[: int(seen[-1]) % 3], waits=seen[-1] % 2 == 0)
            first, second = store.get_many(Family.PAGES, both)
            assert first == second, "half a batch was seen"
            assert first is not None
            assert first >= seen, "a batch was not seen although write() had returned"
            assert len({value for _, value in store.scan(Family.PAGES)}) == 1, "half a batch was seen"
        writer.join()
        assert len(list(store.scan(Family.REQUESTS))) == 199

    @pytest.mark.parametrize("waits", [True, False])
    def test_what_was_prefetched_is_what_was_written_last(self, store: Store, waits: bool) -> None:
        keys = [b"changes", b"comes", b"goes", b"stays", b"never"]
        for n in range(20):
            old, new = number(n), number(n + 1)
            write(store, Family.PAGES, {b"changes": old, b"comes": None, b"goes": old, b"stays": b"s"})
            _prefetch(store, Family.PAGES, keys, waits)
            assert store.get_many(Family.PAGES, keys) == [old, None, old, b"s", None]
            _prefetch(store, Family.PAGES, keys, waits)
            write(store, Family.PAGES, {b"changes": new, b"comes": new, b"goes": None})
            assert store.get_many(Family.PAGES, keys) == [new, new, None, b"s", None]

    # Size and end

    def test_a_whole_store_is_verified(self, store: Store) -> None:
        rows = {number(n): b"%d" % n for n in range(3_000)}
        store.write(dict.fromkeys(Family, rows), sync=False)
        store.verify()
        store.close()
        with pytest.raises(StorageError, match="closed"):
            store.verify()

    def test_the_size_grows_with_what_is_stored(self, store: Store) -> None:
        before = store.size_bytes()
        dice = _dice(2)
        write(store, Family.REQUESTS, {number(n): dice.randbytes(1_000) for n in range(500)})
        assert store.size_bytes() >= before + 500_000

    def test_close_may_be_repeated(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_closed_store_says_so(self, store: Store) -> None:
        write(store, Family.PAGES, {b"a": b"1"})
        store.close()
        with pytest.raises(StorageError, match="closed"):
            store.get_many(Family.PAGES, [b"a"])
        with pytest.raises(StorageError, match="closed"):
            store.scan(Family.PAGES)
        with pytest.raises(StorageError, match="closed"):
            store.write({}, sync=False)

    # Damage

    @pytest.mark.parametrize("read_only", [False, True], ids=["store", "view"])
    def test_a_damaged_store_is_refused_or_does_not_verify(
        self, store: Store, folder: Path, *, read_only: bool
    ) -> None:
        self._require_persistence()
        value = _fill(store)
        store.close()
        self.damage(folder, value)
        with pytest.raises(StorageError), closing(self.make_store(folder, read_only=read_only)) as damaged:
            damaged.verify()

    @pytest.mark.parametrize("read_only", [False, True], ids=["store", "view"])
    def test_an_open_store_that_is_damaged_does_not_verify(
        self, store: Store, folder: Path, *, read_only: bool
    ) -> None:
        """Although nothing was wrong when it was opened."""
        self._require_persistence()
        value = _fill(store)
        store.close()
        with closing(self.make_store(folder, read_only=read_only)) as reopened:
            self.damage(folder, value)
            with pytest.raises(StorageError):
                reopened.verify()

    # Views

    def test_a_view_shows_the_moment_it_was_made(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        before = {number(n): b"before" for n in range(2_000)}
        store.write(dict.fromkeys(Family, before), sync=False)
        with closing(self.make_store(folder, read_only=True)) as view:
            store.write({Family.PAGES: {number(n): b"after" for n in range(0, 4_000, 2)}}, sync=True)
            store.write({Family.PAGES: {number(1): None}, Family.META: {b"new": b""}}, sync=False)
            found = view.get_many(Family.PAGES, [number(0), number(1), number(2_002)])
            assert found == [b"before", b"before", None]
            for family in Family:
                assert list(view.scan(family)) == sorted(before.items())
            some = list(view.scan(Family.PAGES, number(5), number(7)))
            assert some == [(number(5), b"before"), (number(6), b"before")]
            assert view.size_bytes() > 0
            view.verify()
        assert store.get_many(Family.PAGES, [number(0), number(1)]) == [b"after", None]
        with closing(self.make_store(folder, read_only=True)) as view:
            assert view.get_many(Family.PAGES, [number(0), number(1)]) == [b"after", None]

    def test_a_view_changes_nothing(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        rows = {number(n): b"%d" % n for n in range(1_000)}
        write(store, Family.PAGES, rows)
        store.close()
        files = _files_in(folder)
        with closing(self.make_store(folder, read_only=True)) as view:
            for sync in (False, True):
                with pytest.raises(StorageError):
                    view.write({Family.PAGES: {number(0): b"new"}}, sync=sync)
            assert list(view.scan(Family.PAGES)) == list(rows.items())
            view.verify()
        assert files.items() <= _files_in(folder).items()  # an index may be new

    def test_a_view_locks_nobody_out(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        write(store, Family.PAGES, {b"a": b"1"})
        store.close()
        with (
            closing(self.make_store(folder, read_only=True)) as view,
            closing(self.make_store(folder, read_only=True)) as other,
            closing(self.make_store(folder)) as reopened,
        ):
            write(reopened, Family.PAGES, {b"a": b"2"})
            for each, value in ((view, b"1"), (other, b"1"), (reopened, b"2")):
                assert each.get_many(Family.PAGES, [b"a"]) == [value]

    @pytest.mark.parametrize("is_there", [False, True], ids=["no folder", "empty folder"])
    def test_there_is_no_view_of_nothing(self, folder: Path, *, is_there: bool) -> None:
        self._require_persistence()
        if is_there:
            folder.mkdir()
        with pytest.raises(StorageError):
            self.make_store(folder, read_only=True)
        assert folder.exists() == is_there
        assert _files_in(folder) == {}

    def test_a_closed_view_says_so(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        write(store, Family.PAGES, {b"a": b"1"})
        view = self.make_store(folder, read_only=True)
        view.close()
        view.close()
        for call in (
            lambda: view.get_many(Family.PAGES, [b"a"]),
            lambda: view.scan(Family.PAGES),
            view.verify,
        ):
            with pytest.raises(StorageError, match="closed"):
                call()
        write(store, Family.PAGES, {b"a": b"2"})

    # Coming back

    def test_everything_is_there_after_reopening(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        rows = {number(n): b"%d" % n for n in range(5_000)}
        store.write(dict.fromkeys(Family, rows), sync=False)
        store.close()
        with closing(self.make_store(folder)) as reopened:
            for family in Family:
                assert list(reopened.scan(family)) == sorted(rows.items())
            write(reopened, Family.PAGES, {number(3): None})
        with closing(self.make_store(folder)) as reopened:
            assert reopened.get_many(Family.PAGES, [number(2), number(3)]) == [b"2", None]

    def test_a_store_with_open_scans_can_be_reopened(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        write(store, Family.QUEUE, {number(n): b"" for n in range(1_000)})
        started, unstarted = store.scan(Family.QUEUE), store.scan(Family.QUEUE)
        next(started)
        store.close()
        with closing(self.make_store(folder)) as reopened:
            assert len(list(reopened.scan(Family.QUEUE))) == 1_000
        for scan in (started, unstarted):
            with pytest.raises(StorageError, match="closed"):
                list(scan)

    def test_a_store_in_use_cannot_be_opened_twice(self, store: Store, folder: Path) -> None:
        self._require_persistence()
        with pytest.raises(StorageError, match="job"):
            self.make_store(folder)
        write(store, Family.PAGES, {b"a": b"1"})
        assert store.get_many(Family.PAGES, [b"a"]) == [b"1"]

    def test_a_killed_process_loses_no_batch_it_has_written(self, folder: Path) -> None:
        self._require_persistence()
        for n_more in (1, 25, 60):
            with self._child("write", folder) as child:
                assert child.stdout is not None
                lines = list(islice(child.stdout, n_more))
                child.kill()
            assert len(lines) == n_more, "the child has failed"
            n_written = int(lines[-1])
            with closing(self.make_store(folder)) as store:
                assert check_transfers(store) >= n_written

    def test_a_batch_that_does_not_fit_on_the_disk_is_not_stored(self, folder: Path) -> None:
        self._require_persistence()
        pytest.importorskip("resource", reason="needs a limit on the size of files")
        with self._child("fill", folder) as child:
            output, _ = child.communicate()
            assert child.returncode == 0
        with closing(self.make_store(folder)) as store:
            assert check_transfers(store) == int(output)
            write_transfers(store, n_batches=3)
            assert check_transfers(store) == int(output) + 3

    # A random walk

    def test_a_random_walk_agrees_with_the_model(self) -> None:
        # Inside the test, because plugins of pytest wrap an inherited Hypothesis test once a class.
        @settings(derandomize=True, max_examples=100, deadline=None, database=None)
        @given(st.lists(_STEPS, max_size=30))
        def walk(steps: list[Any]) -> None:
            with tempfile.TemporaryDirectory() as temporary:
                self._walk(Path(temporary) / "job", steps)

        walk()

    def _walk(self, folder: Path, steps: list[Any]) -> None:
        store, model = self.make_store(folder), MemoryStore()
        scans: list[tuple[Iterator[tuple[bytes, bytes]], Iterator[tuple[bytes, bytes]]]] = []
        try:
            for action, *arguments in steps:
                if action == "write":
                    store.write(*arguments, sync=False)
                    model.write(*arguments, sync=False)
                elif action == "read":
                    assert store.get_many(*arguments) == model.get_many(*arguments)
                elif action == "prefetch":
                    _prefetch(store, *arguments)
                elif action == "scan":
                    scans.append((store.scan(*arguments), model.scan(*arguments)))
                elif action == "advance":
                    for scan, expected in scans:
                        assert list(islice(scan, 2)) == list(islice(expected, 2))
                elif self.persistent:
                    scans.clear()
                    store.close()
                    store = self.make_store(folder)
            for scan, expected in scans:
                assert list(scan) == list(expected)
            for family in Family:
                assert list(store.scan(family)) == list(model.scan(family))
        finally:
            store.close()

    def _require_persistence(self) -> None:
        if not self.persistent:
            pytest.skip("this store ends with its process")

    def _child(self, action: str, folder: Path) -> subprocess.Popen[str]:
        """Start a process that makes the store of this class in *folder* and does *action*."""
        arguments = (action, type(self).__module__, type(self).__qualname__, str(folder))
        return subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import _child_main; _child_main(*{arguments})"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
        )


def _prefetch(store: Store, family: Family, keys: Sequence[bytes], waits: bool) -> None:
    """Begin to read, which changes nothing, if *store* can do that."""
    ahead = prefetching(store)
    if ahead is not None and keys:
        request = ahead.prefetch(family, keys)
        while waits and not ahead.has_come(request):
            time.sleep(0.0001)


def write(store: Store, family: Family, rows: Mapping[bytes, bytes | None]) -> None:
    """Write *rows* of one *family*."""
    store.write({family: rows}, sync=False)


def number(n: int) -> bytes:
    """Make 8 bytes of *n*; the order of such bytes is the order of numbers ``>= 0``."""
    return n.to_bytes(8, "big", signed=n < 0)


def write_transfers(
    store: Store, n_batches: int, *, padding: int = 100, report: Callable[[int], None] = lambda _: None
) -> None:
    """Move amounts between accounts, *n_batches* times; the sum of all accounts stays zero.

    Every batch also counts itself, in another family, and leaves a row of *padding* bytes in a third one.

    Args:
        report: Called with the number of batches ever written, after each one.
    """
    count = int.from_bytes(store.get_many(Family.META, [_COUNT])[0] or b"", "big")
    dice = _dice(count)
    for n in range(count + 1, count + n_batches + 1):
        names = [number(account) for account in dice.sample(range(_N_ACCOUNTS), 16)]
        amounts = [dice.randrange(1_000) for _ in names[1:]]
        amounts.append(-sum(amounts))
        balances = [_balance(value) for value in store.get_many(Family.PAGES, names)]
        batch: Batch = {
            Family.PAGES: {
                name: (balance + amount).to_bytes(8, "big", signed=True)
                for name, balance, amount in zip(names, balances, amounts, strict=True)
            },
            Family.REQUESTS: {number(n): dice.randbytes(padding)},
            Family.QUEUE: {number(n): b"", number(n - 1): None},
            Family.META: {_COUNT: number(n)},
        }
        store.write(batch, sync=n % 4 == 0)
        report(n)


def check_transfers(store: Store) -> int:
    """Check that every batch of :func:`write_transfers` is there as a whole or not at all.

    Returns:
        How many are there.
    """
    count = int.from_bytes(store.get_many(Family.META, [_COUNT])[0] or b"", "big")
    assert sum(_balance(value) for _, value in store.scan(Family.PAGES)) == 0, "half a batch was stored"
    assert [key for key, _ in store.scan(Family.REQUESTS)] == [number(n) for n in range(1, count + 1)]
    assert [key for key, _ in store.scan(Family.QUEUE)] == [number(n) for n in (count,) if n]
    return count


def _fill(store: Store) -> bytes:
    """Write many batches; returns a value of one in their midst."""
    dice = _dice(3)
    values = [dice.randbytes(64) for _ in range(2_000)]
    for begin in range(0, len(values), 100):
        rows = {number(n): values[n] for n in range(begin, begin + 100)}
        store.write(
            {Family.PAGES: rows, Family.REQUESTS: {key: value[::-1] for key, value in rows.items()}},
            sync=True,
        )
    return values[len(values) // 2]


def _files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _dice(seed: int) -> random.Random:
    return random.Random(seed)


def _balance(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big", signed=True)


def _child_main(action: str, module: str, qualname: str, folder: str) -> None:
    """Run in a child process: write until killed, or until a file would grow beyond 2 MB."""
    contract: Any = import_module(module)
    for name in qualname.split("."):
        contract = getattr(contract, name)
    store: Store = contract().make_store(Path(folder))
    if action == "write":
        write_transfers(store, sys.maxsize, report=lambda n: print(n, flush=True))  # noqa: T201 (to the parent)
        return
    import resource  # not on Windows, where this is not called

    limit = 2 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    reported = [0]
    with closing(store):
        with pytest.raises(StorageError, match="Cannot write"):
            write_transfers(store, limit, padding=20_000, report=reported.append)
        assert check_transfers(store) == reported[-1], "the store cannot be read any more"
    print(reported[-1])  # noqa: T201 (to the parent)


_keys = st.binary(max_size=3) | st.sampled_from([b"", b"a", b"ab", b"a\x00", b"b", b"\xff", b"\xff\xff"])
_families = st.sampled_from([Family.PAGES, Family.QUEUE])
_rows = st.dictionaries(_keys, st.none() | st.binary(max_size=5), max_size=8)
_STEPS: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("write"), st.dictionaries(_families, _rows, min_size=1)),
    st.tuples(st.just("read"), _families, st.lists(_keys, max_size=8)),
    st.tuples(st.just("prefetch"), _families, st.lists(_keys, min_size=1, max_size=8), st.booleans()),
    st.tuples(st.just("scan"), _families, _keys, st.none() | _keys),
    st.tuples(st.sampled_from(["advance", "reopen"])),
)

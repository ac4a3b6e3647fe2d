from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.store_contract import StoreContract, write

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

rocksdb = pytest.importorskip("scrapy_aopic.storage.rocksdb")


class TestRocksStore(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        return rocksdb.RocksStore(folder, memory_mb=8, read_only=read_only)


class DiskThatCannotSync:
    def __init__(self, database):
        self._database = database

    def __getattr__(self, name):
        return getattr(self._database, name)

    def flush_wal(self, *, sync):
        raise OSError("the disk is on fire")


def test_a_store_that_could_not_sync_takes_no_more_writes(tmp_path):
    store = rocksdb.RocksStore(tmp_path)
    write(store, Family.META, {b"a": b"1"})
    store._db = DiskThatCannotSync(store._db)
    with pytest.raises(StorageError, match=r"Cannot write .*: the disk is on fire"):
        store.write({Family.META: {b"a": b"2"}}, sync=True)
    with pytest.raises(StorageError, match=r"takes no more writes: .*on fire.*; open it again"):
        write(store, Family.META, {b"a": b"3"})
    assert store.get_many(Family.META, [b"a"]) == [b"2"]
    store.close()


class FamilyThatCannotClose:
    def close(self):
        raise OSError("the disk is full")


def test_a_store_that_could_not_tidy_up_says_so_once(tmp_path, caplog):
    store = rocksdb.RocksStore(tmp_path)
    store._families = dict.fromkeys(store._families, FamilyThatCannotClose())
    store.close()
    assert caplog.text.count("closed without tidying up: the disk is full") == 1
    rocksdb.RocksStore(tmp_path).close()  # whose lock is let go


class Dangerous:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self):
        return open, (self._path, "w")


def test_a_folder_that_says_its_values_are_pickled_is_read_as_bytes(tmp_path):
    from rocksdict import Options, Rdict  # an extra

    folder, trace = tmp_path / "store", tmp_path / "trace"
    store = rocksdb.RocksStore(folder)
    write(store, Family.META, {b"a": b"1"})
    store.close()
    config = folder / "rocksdict-config.json"
    assert '"raw_mode":true' in config.read_text("utf-8")
    config.write_text(config.read_text("utf-8").replace('"raw_mode":true', '"raw_mode":false'), "utf-8")
    made = Rdict(str(tmp_path / "made"), Options(raw_mode=False))
    made[b"a"] = Dangerous(trace)
    made.close()
    raw = Rdict(str(tmp_path / "made"), Options(raw_mode=True))
    ((_, pickled),) = raw.items()
    raw.close()
    for read_only in (True, False):
        store = rocksdb.RocksStore(folder, read_only=read_only)
        if not read_only:
            write(store, Family.META, {b"b": pickled})
            assert store.get_many(Family.META, [b"b"]) == [pickled]
        assert store.get_many(Family.META, [b"a"]) == [b"1"]
        store.close()
    assert not trace.exists()

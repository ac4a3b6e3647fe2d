from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.testing.contracts import StoreContract, write

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

rocksdb = pytest.importorskip("scrapy_aopic.storage.rocksdb")


class TestRocksStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return rocksdb.RocksStore(folder, memory_mb=8)


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

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_aopic.testing.contracts import StoreContract

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

rocksdb = pytest.importorskip("scrapy_aopic.storage.rocksdb")


class TestRocksStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return rocksdb.RocksStore(folder, memory_mb=8)

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.storage.sqlite import SqliteStore
from scrapy_aopic.testing.contracts import StoreContract

if TYPE_CHECKING:
    from pathlib import Path


class TestSqliteStore(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> SqliteStore:
        return SqliteStore(folder, memory_mb=8, read_only=read_only)

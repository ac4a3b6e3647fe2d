from __future__ import annotations

from typing import TYPE_CHECKING

from support.store_contract import StoreContract

from scrapy_aopic.storage.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


class TestSqliteStore(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> SqliteStore:
        return SqliteStore(folder, memory_mb=8, read_only=read_only)

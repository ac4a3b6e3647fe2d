"""The backend outside of the package that docs/library.md shows keeps the promises of a store."""

from __future__ import annotations

from pathlib import Path

from support.journal_store import JournalStore
from support.store_contract import StoreContract


class TestJournalStore(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> JournalStore:
        return JournalStore(folder, memory_mb=8, read_only=read_only)

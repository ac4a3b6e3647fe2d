"""A store of your own: all rows in memory, and a journal of every batch, which is replayed when the store is opened."""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import msgspec

from scrapy_aopic.core import Batch, Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import lock_store
from scrapy_aopic.storage.memory import MemoryStore

HEAD = struct.Struct(
    ">III"
)  # how many bytes a batch has, the checksum of that, and the checksum of the batch


class JournalStore:
    """AOPIC_STORE = "journal_store.JournalStore"."""

    def __init__(self, folder: Path, *, memory_mb: int, read_only: bool) -> None:
        self._folder = folder
        self._rows = MemoryStore()
        self._is_open = True
        self._writing = threading.Lock()  # close() waits for a write in another thread
        self._lock = None if read_only else lock_store(folder)
        self._opened = ExitStack()
        if self._lock is not None:
            self._opened.callback(self._lock.release)
        try:
            journal = (folder / "journal").open("rb" if read_only else "a+b", buffering=0)
            self._journal = self._opened.enter_context(journal)
            self._end = 0
            for data in self._batches():
                self._rows.write({Family(n): rows for n, rows in unpack(data).items()}, sync=False)
                self._end += HEAD.size + len(data)
            if not read_only:
                self._journal.truncate(self._end)  # a batch that is not whole was never committed
        except OSError as error:  # StorageError is one
            self._opened.close()
            raise StorageError(f"Cannot open the store in {folder}: {error}") from error

    def _batches(self) -> Iterator[bytes]:
        with (self._folder / "journal").open("rb") as file:
            while len(head := file.read(HEAD.size)) == HEAD.size:
                length, *checksums = HEAD.unpack(head)
                data = file.read(length)
                if crc32(head[:4]) == checksums[0] and len(data) < length:
                    return  # the process was killed while it wrote this batch
                if [crc32(head[:4]), crc32(data)] != checksums:
                    raise StorageError(
                        f"The journal in {self._folder} is damaged before byte {file.tell():,}."
                    )
                yield data

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check_open()
        return self._rows.get_many(family, keys)

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        return self._each(self._rows.scan(family, start, stop))

    def _each(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for pair in pairs:
            self._check_open()
            yield pair

    def write(self, batch: Batch, *, sync: bool) -> None:
        data = msgspec.msgpack.encode({int(family): dict(rows) for family, rows in batch.items()})
        length = len(data).to_bytes(4, "big")
        record = memoryview(HEAD.pack(len(data), crc32(length), crc32(data)) + data)
        with self._writing:
            self._check_open()
            if self._lock is None:
                raise StorageError(f"This is only a view of the store in {self._folder}; open the store.")
            self._lock.check()  # that the folder is still the same one
            try:
                while record:
                    record = record[self._journal.write(record) :]
                if sync:
                    os.fsync(self._journal.fileno())
            except OSError as error:
                self._journal.truncate(self._end)
                raise StorageError(f"Cannot write to the store in {self._folder}: {error}.") from error
            self._end += HEAD.size + len(data)
            self._rows.write(batch, sync=False)

    def size_bytes(self) -> int:
        return self._end

    def verify(self) -> None:
        self._check_open()
        try:
            deque(self._batches(), maxlen=0)
        except OSError as error:
            raise StorageError(f"Cannot read the store in {self._folder}: {error}") from error

    def close(self) -> None:
        with self._writing:
            self._is_open = False
            self._opened.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError(f"The store in {self._folder} is closed; open it again.")


def unpack(data: bytes) -> dict[int, dict[bytes, bytes | None]]:
    rows: dict[int, dict[bytes, bytes | None]] = msgspec.msgpack.decode(data)
    return rows

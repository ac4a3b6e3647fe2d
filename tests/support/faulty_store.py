"""A store that fails on demand: at the n-th operation, half-way, only after a while, or with its process.

What uses a store is tested by letting every operation fail once::

    store = FaultyStore(MyStore(folder, memory_mb=8, read_only=False), Fault("fail", at=17))
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_aopic.core.ports import Batch, Family, Store


@dataclass(frozen=True)
class Fault:
    """A fault at some operations of a store; reads, scans and writes are counted together, from 1.

    Attributes:
        kind: ``"fail"``: nothing is read or stored. ``"torn"``: it is done and then reported as failed: a batch is
            stored completely, as a store may not store a part, and a scan breaks off after its first row. ``"delay"``:
            it succeeds, but takes *seconds*. ``"kill"``: this process dies at that operation, as by SIGKILL.
        at: Number of the first operation that it concerns.
        times: Number of operations, from that one on; ``inf`` for a disk that is gone.
        seconds: For ``"delay"``.
    """

    kind: Literal["fail", "torn", "delay", "kill"]
    at: int
    times: float = 1
    seconds: float = 0.0


class FaultyStore:
    """Does what *store* does, but for the *faults*.

    Attributes:
        n_operations: Operations so far, with those that failed.
        n_faults: Operations that failed or were late.
    """

    def __init__(self, store: Store, *faults: Fault) -> None:
        self._store = store
        self._faults = faults
        self._counting = threading.Lock()  # writes come from another thread than reads
        self.n_operations = 0
        self.n_faults = 0

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        fault = self._next("read")
        values = self._store.get_many(family, keys)
        if fault is not None:
            raise fault
        return values

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        fault = self._next("read")
        pairs = self._store.scan(family, start, stop)
        return pairs if fault is None else _torn(pairs, fault)

    def write(self, batch: Batch, *, sync: bool) -> None:
        fault = self._next("write to")
        self._store.write(batch, sync=sync)
        if fault is not None:
            raise fault

    def size_bytes(self) -> int:
        return self._store.size_bytes()

    def verify(self) -> None:
        fault = self._next("read")
        self._store.verify()
        if fault is not None:
            raise fault

    def close(self) -> None:
        self._store.close()

    def _next(self, action: str) -> StorageError | None:
        """Count an operation; raise its fault, or return the one to raise when it is done."""
        with self._counting:
            self.n_operations += 1
            number = self.n_operations
            found = [fault for fault in self._faults if fault.at <= number < fault.at + fault.times]
            self.n_faults += bool(found)
        error = None
        for fault in found:
            if fault.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
            if fault.kind == "delay":
                time.sleep(fault.seconds)
                continue
            error = StorageError(f"Cannot {action} the store: fault at operation {number}.")
            if fault.kind == "fail":
                raise error
        return error


def _torn(pairs: Iterator[tuple[bytes, bytes]], fault: StorageError) -> Iterator[tuple[bytes, bytes]]:
    with suppress(StopIteration):
        yield next(pairs)
    raise fault

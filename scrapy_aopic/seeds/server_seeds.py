"""Lists of seeds that wait on a server, brought to the folder from which a crawl takes them up while it runs.

Rule: they are removed from the server when the store holds their last row, before their offsets are forgotten.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, closed_on_error, storage_errors
from scrapy_aopic.place.seed_files import ServerLists, lists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from scrapy_aopic.storage import Address

_POLL = 1.0
"""Seconds between polls of the lists that wait."""


class ServerSeeds:
    """The lists that wait at *address*, brought to *folder* now and from time to time, by a thread, until it is closed.

    Attributes:
        polls: Whether to look every second; if not, the caller names the lists that wait (:meth:`heard_of`).

    Raises:
        StorageError: If the server cannot be reached, or the folder cannot be written.
    """

    def __init__(self, address: Address, folder: Path) -> None:
        self.polls = True
        self._folder = folder
        self._server = ServerLists(address)
        self._using = threading.Lock()
        self._brought: set[str] = set()
        self._heard = False
        self._ended = threading.Event()
        with closed_on_error(self._server.close):
            self._look()
        threading.Thread(target=self._keep_looking, name="aopic-seeds", daemon=True).start()

    def _keep_looking(self) -> None:
        while not self._ended.wait(_POLL):
            if not (self.polls or self._heard):
                continue
            self._heard = False
            with suppress(StorageError):  # the crawl itself notices a server that is gone
                self._look()

    def _look(self) -> None:
        with self._using:
            if self._ended.is_set():
                return
            for name in sorted(self._server.names() - self._brought):
                with storage_errors(f"The seeds {name!r} cannot be written to {self._folder}"):
                    self._folder.mkdir(parents=True, exist_ok=True)
                    self._server.copy(name, self._folder)
                self._brought.add(name)

    def begin_anew(self) -> None:
        """Bring the lists that wait now, and forget all others, some of which another worker may have taken up.

        Raises:
            StorageError: If the server cannot be reached, or the folder cannot be written.
        """
        with self._using:
            for path in lists(self._folder):
                path.unlink(missing_ok=True)
            self._brought = set()
        self._look()

    def heard_of(self, names: Collection[bytes]) -> None:
        """The lists *names* wait on the server: they are brought soon."""
        if not self._brought.issuperset(map(bytes.decode, names)):
            self._heard = True

    def remove(self, names: Iterable[str]) -> None:
        """Remove the lists *names*, whose rows the store holds, from the server.

        Raises:
            StorageError: If it cannot be reached.
        """
        with self._using:
            self._server.remove(names)

    def close(self) -> None:
        """Stop looking. Idempotent."""
        self._ended.set()
        with self._using:
            self._server.close()

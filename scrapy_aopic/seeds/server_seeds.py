"""Seeds that wait on the server where the store of a job is, as :mod:`.folder_seeds` has them wait in a folder.

Rule 1: a list is put there in pieces, and has its key, and its name in the set of lists, when it is whole.

Rule 2: while a crawl runs, lists are brought to the folder from which it takes them up. They are removed from the server
when the store holds their last row, before their offsets are forgotten.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, plainly
from scrapy_aopic.place.paths import seeds_folder
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.replacing import put_pieces
from scrapy_aopic.storage.store_folder import replacing

from .folder_seeds import give, is_same, lists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from scrapy_aopic.storage import Address
    from scrapy_aopic.storage.redis.connection import Link

    from .folder_seeds import Given

logger = logging.getLogger(__name__)

_LOOK = 1.0
"""Seconds between looks at which lists wait."""

_PIECE_BYTES = 1 << 22
"""Of a list in a value: some milliseconds of the server."""


def give_on_server(
    address: Address,
    sources: Sequence[str],
    *,
    name: str = "",
    skip_bad: bool = False,
    progress: bool = False,
) -> Given:
    """Let all seeds that *sources* name wait at *address*; see :func:`~.folder_seeds.give`.

    Raises:
        ExchangeError: If a list cannot be read, has a bad row, or nothing is left.
        StorageError: If the server does not take them.
    """
    with TemporaryDirectory(prefix="scrapy-aopic-") as temporary, closing(connect(address)) as link:
        folder = seeds_folder(Path(temporary))
        given = give(folder, sources, name=name, skip_bad=skip_bad, progress=progress)
        for path in lists(folder):
            _put(link, Keys(address), path)
    return given


def put_on_server(address: Address, paths: Iterable[Path]) -> None:
    """Let the lists of seeds at *paths* wait at *address*, under their names.

    Raises:
        StorageError: If the server does not take them.
    """
    with closing(connect(address)) as link:
        for path in paths:
            _put(link, Keys(address), path)


def _put(link: Link, keys: Keys, path: Path) -> None:
    name = path.name.encode()

    def waits(names: set[bytes]) -> bool:
        return any(is_same(each.decode(), path.name) for each in names)

    with path.open("rb") as file:
        pieces = iter(partial(file.read, _PIECE_BYTES), b"")
        added = (b"SADD", keys.seed_lists, name)
        put_pieces(link, keys.seed_list(name), pieces, added, unless=(keys.seed_lists, waits))


class ServerSeeds:
    """The lists that wait at *address*, brought to *folder* now and from time to time, by a thread, until it is closed.

    Attributes:
        looks: Whether to look from time to time; otherwise it must be said (:meth:`heard_of`) which lists wait.

    Raises:
        StorageError: If the server cannot be reached, or the folder cannot be written.
    """

    def __init__(self, address: Address, folder: Path) -> None:
        self.looks = True
        self._folder = folder
        self._keys = Keys(address)
        self._link = connect(address)
        self._using = threading.Lock()
        self._brought: set[bytes] = set()
        self._heard = False
        self._ended = threading.Event()
        try:
            self._look()
        except BaseException:
            self._link.close()
            raise
        threading.Thread(target=self._keep_looking, name="aopic-seeds", daemon=True).start()

    def _keep_looking(self) -> None:
        while not self._ended.wait(_LOOK):
            if not (self.looks or self._heard):
                continue
            self._heard = False
            with suppress(StorageError):  # the crawl itself notices a server that is gone
                self._look()

    def _look(self) -> None:
        with self._using:
            if self._ended.is_set():
                return
            (names,) = self._link.ask((b"SMEMBERS", self._keys.seed_lists))
            for name in sorted({*names} - self._brought):
                try:
                    self._bring(name)
                except OSError as error:
                    if isinstance(error, StorageError):
                        raise
                    raise StorageError(
                        f"The seeds {name!r} cannot be written to {self._folder}: {plainly(error)}."
                    ) from error
                self._brought.add(name)

    def _bring(self, name: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._folder / Path(name.decode()).name) as file:
            n = 0
            while piece := self._link.ask((b"LINDEX", self._keys.seed_list(name), n))[0]:
                file.write(piece)
                n += 1

    def begin_anew(self) -> None:
        """Bring the lists that wait now, and forget all others: somebody else took some of them up meanwhile.

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
        if not self._brought.issuperset(names):
            self._heard = True

    def names(self) -> set[str]:
        """Lists that wait on the server now.

        Raises:
            StorageError: If it cannot be reached.
        """
        with self._using:
            return {name.decode() for name in self._link.ask((b"SMEMBERS", self._keys.seed_lists))[0]}

    def remove(self, names: Iterable[str]) -> None:
        """Remove the lists *names*, whose rows the store holds, from the server.

        Raises:
            StorageError: If it cannot be reached.
        """
        with self._using:
            for name in map(str.encode, names):
                self._link.transact(
                    (b"SREM", self._keys.seed_lists, name), (b"DEL", self._keys.seed_list(name))
                )

    def close(self) -> None:
        """Stop looking. Idempotent."""
        self._ended.set()
        with self._using:
            self._link.close()

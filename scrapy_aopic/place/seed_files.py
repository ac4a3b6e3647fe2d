"""Lists of seeds that wait beside a job, as files of a folder or lists of a server.

Rule 1: a list appears as a whole, after all of its rows have been checked: in a folder by a rename; on a server it has its
key, and its name in the set of lists, in one transaction.

Rule 2: its name is a number that grows, and a digest of its rows: a list that is given again while it waits, as after a
kill, does not wait twice. Only :data:`START` has a name of its own.
"""

from __future__ import annotations

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.storage.lock import lock_briefly, sync_names
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.replacing import put_pieces, read_pieces
from scrapy_aopic.storage.store_folder import replacing, unfinished

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.storage import Address

START = "0-start.jsonl"
"""Name of the list that a job starts from (``AOPIC_SEEDS``): before all others."""

_SUFFIX = ".jsonl"

_BEING_WRITTEN = "list"
"""Beside what a list is written to, until it is whole."""

_PIECE_BYTES = 1 << 22
"""Of a list in a value on a server: some milliseconds of it."""


def lists(folder: Path) -> list[Path]:
    """The lists that wait in *folder*, in their order."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


def put_list(folder: Path, lines: Iterable[str], name: str = "") -> None:
    """Let *lines* wait in *folder*, all at once and for good, under *name*, or under a new one: once, if the same list waits already.

    Raises:
        OSError: If they cannot be written.
    """
    digest = hashlib.blake2b(digest_size=8)
    folder.mkdir(parents=True, exist_ok=True)
    with unfinished(folder / _BEING_WRITTEN) as (file, put):
        for line in lines:
            data = line.encode("ascii")
            digest.update(data)
            file.write(data)
        if name:
            put(folder / name)
        else:
            with lock_briefly(folder.with_name(f"{folder.name}.lock"), folder):
                name = f"{time.time_ns():020}-{digest.hexdigest()}{_SUFFIX}"
                if not _waits(name, (path.name.encode() for path in lists(folder))):
                    put(folder / name)
    sync_names(folder)


def _waits(name: str, names: Iterable[bytes]) -> bool:
    """Whether the list *name* is among *names*, if only by its digest: then it was given twice, as after a kill."""
    return name != START and any(name.partition("-")[2] == each.decode().partition("-")[2] for each in names)


class ServerLists:
    """The lists that wait for the job at *address*, by a connection of its own. One thread uses it at a time.

    Every method raises a :class:`~scrapy_aopic.exceptions.StorageError` if the server cannot be reached.
    """

    def __init__(self, address: Address) -> None:
        self._keys = Keys(address)
        self._link = connect(address)

    def names(self) -> set[str]:
        """Names of those that wait."""
        return {name.decode() for name in self._link.ask((b"SMEMBERS", self._keys.seed_lists))[0]}

    def put(self, paths: Iterable[Path]) -> None:
        """Let the lists at *paths* wait under their names, but for those that wait already."""
        for path in paths:
            name = path.name.encode()
            with path.open("rb") as file:
                put_pieces(
                    self._link,
                    self._keys.seed_list(name),
                    iter(partial(file.read, _PIECE_BYTES), b""),
                    (b"SADD", self._keys.seed_lists, name),
                    unless=(self._keys.seed_lists, partial(_waits, path.name)),
                )

    def copy(self, name: str, folder: Path) -> None:
        """Copy the list *name* to *folder*, under its name.

        Raises:
            OSError: If it cannot be written there.
        """
        with replacing(folder / Path(name).name) as file:
            file.writelines(read_pieces(self._link, self._keys.seed_list(name.encode())))

    def remove(self, names: Iterable[str]) -> None:
        """Remove the lists *names*."""
        for name in map(str.encode, names):
            self._link.transact((b"SREM", self._keys.seed_lists, name), (b"DEL", self._keys.seed_list(name)))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

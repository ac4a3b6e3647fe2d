"""The stores of a job in shards that workers have in job folders: all in one of one machine, or a part of them in each of several.

Who has a shard in a folder is said by the lock of its store, and by nothing else: it is free the moment that its worker lets go of it,
or is killed, and nobody can be told something else meanwhile. A look at a lock holds it for some microseconds; a worker that
tries to open a shard just then tries again at the next look. What is elsewhere is as the workers say that live.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import InUseError, storage_errors

from .address import BOARD, Address
from .lock import keeping_out
from .redis.connect import connect
from .redis.keys import Keys
from .redis.worker_registry import ClusterState, ShardStores, States, WorkerRegistry, Workers, pairs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from .redis.connection import Command, Reply
    from .redis.sharding import Sharding

_POLL = 0.2
"""Seconds between looks at a worker that may have died."""


def registry_of(
    board: Address,
    sharding: Sharding,
    stores: Mapping[int, Path] | None = None,
    home: str = "",
    path: str = "",
) -> WorkerRegistry:
    """A way to the *board* of the workers of a job that is cut as *sharding* says.

    Args:
        stores: Those of the shards that are here, by number.
        home: Name of the folder in which they are, if it is one of several.
        path: Where that is.
    """
    if stores is not None or sharding.folders:
        own = StoresInFolder(sharding.shards, stores or {}, home, path)
        return WorkerRegistry(board, sharding.shards, own)
    return WorkerRegistry(board, sharding.shards)


def board_address(job_folder: Path) -> Address:
    """Where the board of the workers in *job_folder* is, if all shards are there."""
    return Address("job", folder=job_folder)


def has_board(job_folder: Path) -> bool:
    """Whether workers crawl the job in *job_folder*, or did last."""
    return (job_folder / "aopic-shards" / BOARD).exists()


def forget_worker(address: Address, pid: int) -> None:
    """The process *pid* of this machine, a worker with its board at *address*, is dead: others need not wait to see that it is silent.

    Raises:
        StorageError: If the board cannot be used.
    """
    workers, here = Keys(address).of_job(b"workers"), [pid, socket.gethostname()]
    with closing(connect(address)) as board:
        shown = pairs_of(board.ask((b"HGETALL", workers))[0]).items()
        dead = [token for token, data in shown if [*map(json.loads(data).get, ("pid", "host"))] == here]
        if dead:
            board.ask((b"HDEL", workers, *dead))


def clear_board(job_folder: Path) -> None:
    """Remove the board of *job_folder*, which nobody crawls.

    Raises:
        StorageError: If it cannot be removed.
    """
    for path in (job_folder / "aopic-shards").glob(f"{BOARD}*"):
        with storage_errors(f"The file {path} cannot be removed"):
            path.unlink()


def await_end(
    registry: WorkerRegistry, homes: Collection[str], lock_timeout: float, path: str = ""
) -> ClusterState:
    """Wait until no worker that lives has a folder with one of the names *homes*, unless at this *path*; returns all states then.

    Raises:
        InUseError: If one still lives after the *lock_timeout* of one that has died.
        StorageError: If the server cannot be reached.
    """
    until = time.monotonic() + lock_timeout + 2 * _POLL
    while True:
        cluster = registry.read({}, joins=False)
        found = [each for each in cluster.workers.values() if each["home"] in homes and each["path"] != path]
        if not found:
            return cluster
        if time.monotonic() > until:
            raise InUseError(
                f"The folder {found[0]['path']} is in use: process {found[0]['pid']} on {found[0]['host']} crawls the shards there"
                f"{f', of which {path} has a copy' if path else ''}. Wait for its end. Nothing was changed."
            )
        time.sleep(_POLL)


class StoresInFolder(ShardStores):
    """The *stores* of some of so many *shards*, which are here, and those that are elsewhere.

    Args:
        home: Name of the folder, if it is one of several.
        path: Where it is.
    """

    def __init__(self, shards: int, stores: Mapping[int, Path], home: str = "", path: str = "") -> None:
        self._numbers = range(shards)
        self._paths = stores
        self.home, self.path = home, path

    def questions(self) -> tuple[Command, Command]:
        """Nothing is to be asked."""
        return (b"TIME",), (b"TIME",)

    def read(self, one: Reply, other: Reply, states: States, alive: Workers) -> tuple[list[str], list[bool]]:
        """Their last states, for nobody has heard of what was stored since; and whether they are locked here, or crawled elsewhere."""
        del one, other
        heads = [states[number].head if number in states else "" for number in self._numbers]
        owners = [alive.get(states[number].worker) if number in states else None for number in self._numbers]
        is_elsewhere = [owner is not None and owner["path"] != self.path for owner in owners]
        stores = self._paths
        return heads, [away or (n in stores and is_locked(stores[n])) for n, away in enumerate(is_elsewhere)]


def is_locked(store: Path) -> bool:
    """Whether a process has the job, or the shard, whose store is in the folder *store*."""
    try:
        with keeping_out(store):
            return False
    except InUseError:
        return True

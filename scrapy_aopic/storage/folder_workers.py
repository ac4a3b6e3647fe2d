"""The stores of a job in shards that several workers of one machine share: all are in one job folder.

Who has a shard is said by the lock of its store, and by nothing else: it is free the moment that its worker lets go of it,
or is killed, and nobody can be told something else meanwhile. A look at a lock holds it for some microseconds; a worker that
tries to open a shard just then tries again at the next look.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from scrapy_aopic.exceptions import InUseError, storage_errors

from .address import BOARD, Address
from .lock import keeping_out
from .redis.connect import connect
from .redis.keys import Keys
from .redis.worker_registry import ShardStores, WorkerRegistry, pairs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from .redis.connection import Argument, Reply
    from .redis.worker_registry import ShardState


def registry_in(job_folder: Path, stores: Sequence[Path]) -> WorkerRegistry:
    """A way to the board of the workers in *job_folder*, whose shards are in *stores*."""
    address = board_address(job_folder)
    return WorkerRegistry(address, len(stores), StoresInFolder(stores))


def board_address(job_folder: Path) -> Address:
    """Where the board of the workers in *job_folder* is."""
    return Address("job", folder=job_folder)


def has_board(job_folder: Path) -> bool:
    """Whether workers crawl the job in *job_folder*, or did last."""
    return (job_folder / "aopic-shards" / BOARD).exists()


def forget_worker(job_folder: Path, pid: int) -> None:
    """The process *pid*, a worker of the job in *job_folder*, is dead: others need not wait to see that it is silent.

    Raises:
        StorageError: If the board cannot be used.
    """
    address = board_address(job_folder)
    workers = Keys(address).of_job(b"workers")
    with closing(connect(address)) as board:
        shown = pairs_of(board.ask((b"HGETALL", workers))[0]).items()
        dead = [token for token, report in shown if json.loads(report)["pid"] == pid]
        board.ask((b"HDEL", workers, *dead))


def clear_board(job_folder: Path) -> None:
    """Remove the board of *job_folder*, which nobody crawls.

    Raises:
        StorageError: If it cannot be removed.
    """
    for path in (job_folder / "aopic-shards").glob(f"{BOARD}*"):
        with storage_errors(f"The file {path} cannot be removed"):
            path.unlink()


class StoresInFolder(ShardStores):
    """The *stores* of all shards."""

    def __init__(self, stores: Sequence[Path]) -> None:
        self._paths = stores

    def questions(self) -> tuple[Sequence[Argument], Sequence[Argument]]:
        """Nothing is to be asked."""
        return (b"TIME",), (b"TIME",)

    def read(
        self, one: Reply, other: Reply, states: Mapping[int, ShardState], alive: Iterable[Mapping[str, Any]]
    ) -> tuple[list[str], list[bool]]:
        """Their last states, for nobody has heard of what was stored since; and whether they are locked."""
        del one, other, alive
        heads = [states[number].head if number in states else "" for number in range(len(self._paths))]
        return heads, [is_locked(store) for store in self._paths]


def is_locked(store: Path) -> bool:
    """Whether a process has the job, or the shard, whose store is in the folder *store*."""
    try:
        with keeping_out(store):
            return False
    except InUseError:
        return True

"""Where a job is: in a job folder, or on a server.

Code that keeps something of a job, or looks at it, takes a :class:`Place`. Only the edge tests which of the two it is: where a
command works on one of them only. A test lists those files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from scrapy_aopic.storage.address import SCHEMES, Address

from .folder_place import FolderPlace
from .server_place import ServerPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.shard import ShardId
    from scrapy_aopic.storage.opening import Damaged
    from scrapy_aopic.storage.redis.sharding import Sharding
    from scrapy_aopic.storage.registry import Kind


class ControlStore(Protocol):
    """Where the control settings of a job are kept, as bytes; see :mod:`.stored_control`.

    Attributes:
        name: What messages call it.
    """

    name: str

    def read(self) -> bytes | None:
        """The settings; ``None`` if there are none.

        Raises:
            StorageError: If it cannot be read.
        """

    def changing(self) -> AbstractContextManager[Callable[[bytes | None], None]]:
        """Lock the settings, or notice that others change them; gives a function that replaces them, or removes them if called with ``None``.

        Raises:
            StorageError: If there is no such place, it cannot be written, or others have changed it.
        """

    def close(self) -> None:
        """Let go of it."""


class Place(Protocol):
    """Where a job is, or will be. As text, what a user calls it.

    Every method raises a :class:`~scrapy_aopic.exceptions.StorageError` if the place cannot be read or written.
    """

    @property
    def folder(self) -> Path | None:
        """The job folder, for files beside the job that are for people; ``None`` if the job is on a server."""

    def check(self) -> None:
        """Do nothing if a job can be there."""

    def has_job(self) -> bool:
        """Whether there is a job."""

    def read_sharding(self) -> Sharding | None:
        """How the job is cut into shards; ``None`` if it is in one piece, or there is none."""

    def shards_here(self) -> Sequence[int]:
        """Numbers of the shards that :meth:`open_snapshots` opens: not those that are in other folders, for which it gives empty stores."""

    def read_suffixes(self) -> bytes:
        """The list of public suffixes by which it is cut; empty if there is none."""

    def open_snapshots(self) -> list[Store]:
        """Open all stores of the job as of one moment, to be read; one if it is in one piece. A crawl may be using them."""

    def each_snapshot(self) -> Generator[Store]:
        """The stores, to be read, each until the next is asked for; of one moment only if that costs no more."""

    def taken(self, task: str) -> AbstractContextManager[object]:
        """The time of a *task* during which nobody else has the job open, or begins one."""

    def moved_to(self) -> str:
        """Where the job was moved to, or is just about to be; empty if it was not."""

    def note_moved(self, to: str) -> None:
        """Note that it is, so that nobody goes on with it here."""

    def remove_job(self) -> None:
        """Remove the job, which nobody has open, but for that note."""

    def opening_damaged(self, copies: Path) -> AbstractContextManager[Iterator[tuple[ShardId, Damaged]]]:
        """Open what is left of each store that is here, in copies below the folder *copies*, each until the next one is asked for; no crawl
        begins before the block ends."""

    def store_kind(self, number: int) -> Kind | None:
        """The kind of which a copy of the store of shard *number* is made, 0 of a job in one piece; ``None`` for the best."""

    def open_control(self) -> ControlStore:
        """Open the store of the control settings; the caller closes it."""

    def adding_seeds(self) -> AbstractContextManager[Path]:
        """A folder where lists of seeds are put that wait for the job from the end of the block on."""

    def kept_folder(self) -> Path:
        """A folder of this machine for what a call that is killed leaves to the same call.

        Raises:
            OSError: If it cannot be made.
        """

    def add_seeds(self, paths: Iterable[Path]) -> None:
        """Let the lists of seeds at *paths*, whose rows have been checked, wait for the job."""

    def copy_beside(self, folder: Path) -> None:
        """Copy what lies beside the stores to the new job folder *folder*: the lists of seeds that wait, for example."""

    def seed_names(self) -> Collection[str]:
        """Names of the lists of seeds that wait."""

    def read_earlier(self) -> bytes | None:
        """The pages of an earlier crawl that lie beside the job (:mod:`scrapy_aopic.seeds.earlier_crawl`); ``None`` if none do."""

    def bodies_file(self) -> Path | None:
        """The file of bodies that an earlier crawl has archived (:mod:`scrapy_aopic.storage.known_bodies`); ``None`` on a server."""

    def write_earlier(self, pieces: Iterable[bytes]) -> None:
        """Let *pieces* lie there in their place."""


def place_of(text: str) -> Place:
    """The place that a user calls *text*: a path, or ``redis://HOST:PORT/DATABASE#KEY``."""
    url, _, key = text.partition("#")
    if "://" in url and url.partition("://")[0] in SCHEMES:
        return ServerPlace(Address(key, url))
    return FolderPlace(Path(text))

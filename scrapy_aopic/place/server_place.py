"""A job on a server, in one piece or in shards."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

from scrapy_aopic.core.shards.cut import ShardId
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import exists
from scrapy_aopic.storage.address import Address
from scrapy_aopic.storage.copying import make_store
from scrapy_aopic.storage.homes import machine_path, read_homes
from scrapy_aopic.storage.opening import Damaged
from scrapy_aopic.storage.redis.connect import connect, exists_at
from scrapy_aopic.storage.redis.frozen_view import RedisView
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.replacing import copy_remains, put_pieces, read_pieces, remove_job
from scrapy_aopic.storage.redis.server_lock import LockKeeper, ServerLock
from scrapy_aopic.storage.redis.sharding import Sharding, read_sharding, read_suffixes

from .folder_place import FolderPlace, open_all, seeds_folder
from .seed_files import ServerLists, lists

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from scrapy_aopic.core.ports import Store

_EARLIER = b"former"


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The job at *address*; see :class:`~.place.Place`."""

    address: Address

    def __str__(self) -> str:
        return str(self.address)

    @property
    def folder(self) -> None:
        """None: what is for people is beside a worker."""

    def check(self) -> None:
        """Nothing: the server says what is wrong when it is needed."""

    def has_job(self) -> bool:
        """Whether there is a store, or a job in shards has begun."""
        return exists_at(self.address)

    def read_sharding(self) -> Sharding | None:
        """As it was noted when the job began."""
        return read_sharding(self.address)

    def shards_here(self) -> Sequence[int]:
        """All of them."""
        return range(cut.shards if (cut := self.read_sharding()) is not None else 1)

    def read_suffixes(self) -> bytes:
        """As they were given when the job began."""
        return read_suffixes(self.address) or b""

    def open_snapshots(self) -> list[Store]:
        """Open views of its stores, or, in job folders of this machine, snapshots."""
        address, sharding = self.address, self.read_sharding()
        if sharding is not None and sharding.folders:
            return self._open_folders(sharding)
        return [RedisView(address)] if sharding is None else [*RedisView.of_shards(address, sharding.shards)]

    def each_snapshot(self) -> Generator[Store]:
        """A view of one shard after another, if they are there: each takes a connection."""
        address, sharding = self.address, self.read_sharding()
        for each in [address] if sharding is None else map(address.of_shard, range(sharding.shards)):
            with suppress(StorageError), closing(RedisView(each)) as view:
                yield view

    def _open_folders(self, sharding: Sharding) -> list[Store]:
        """Open the stores of a job in shards that are in several job folders, all as of one moment."""
        homes, machine = read_homes(self.address), machine_path(Path("/"))
        folders = {
            name: FolderPlace(Path("/", path.removeprefix(machine))) for name, path in homes.paths.items()
        }
        named = {
            name: part.name for name, folder in folders.items() if (part := folder.read_part()) is not None
        }
        away = [n for n in range(sharding.shards) if (home := homes.of.get(n, "")) != named.get(home)]
        if away:
            raise StorageError(
                f"Shards {', '.join(map(str, away))} of the job in {self} are {homes.where(away)}, which is not here: give this command one "
                "of the folders of the job, for the shards that are there."
            )
        with ExitStack() as waiting:
            for folder in folders.values():
                waiting.enter_context(folder.between_commits())
            stores = [folders[homes.of[number]].stores(sharding)[number] for number in range(sharding.shards)]
            return open_all(store if exists(store) else None for store in stores)

    @contextmanager
    def taken(self, task: str) -> Iterator[None]:
        """The locks of all its stores."""
        sharding = self.read_sharding()
        numbers = range(sharding.shards) if sharding is not None else [-1]
        with ExitStack() as opened:
            keeper = LockKeeper(self.address)
            opened.callback(keeper.close)
            for place in map(self.address.of_shard, numbers):
                opened.callback(ServerLock(place, Keys(place), task=task, keeper=keeper).close)
            yield

    def moved_to(self) -> str:
        """The value of a key."""
        with closing(connect(self.address)) as link:
            return (link.ask((b"GET", self._moved))[0] or b"").decode("utf-8", "replace")

    def note_moved(self, to: str) -> None:
        """Set the key, or remove it."""
        with closing(connect(self.address)) as link:
            link.ask((b"SET", self._moved, to) if to else (b"DEL", self._moved))

    def remove_job(self) -> None:
        """Remove all keys but that one."""
        remove_job(self.address, but={self._moved})

    @property
    def _moved(self) -> bytes:
        return Keys(self.address).of_job(b"moved")

    @contextmanager
    def opening_damaged(self, copies: Path) -> Iterator[Iterator[tuple[ShardId, Damaged]]]:
        """Whatever rows are as they were written; the locks of all stores are held."""
        sharding = self.read_sharding()
        if sharding is not None and sharding.folders:
            raise StorageError(
                f"The shards of the job in {self} are in the job folders of its workers: salvage the one that is damaged."
            )
        n = sharding.shards if sharding is not None else 1
        with self.taken("salvage"), closing(self._damaged(copies, n)) as stores:
            yield stores

    def _damaged(self, copies: Path, n: int) -> Generator[tuple[ShardId, Damaged]]:
        for number in range(n):
            place = self.address.of_shard(number) if n > 1 else self.address
            with closing(make_store(copies / str(number))) as store:
                gaps = copy_remains(place, lambda *rows, store=store: store.write(dict([rows]), sync=False))
                yield ShardId(number, n), Damaged(store, gaps={each: k for each, k in gaps.items() if k})
            shutil.rmtree(copies / str(number), ignore_errors=True)

    def store_kind(self, number: int) -> None:
        """None: no folder can hold a store of a server."""

    def open_control(self) -> ServerControl:
        """A key that all workers see."""
        return ServerControl(self.address)

    @contextmanager
    def adding_seeds(self) -> Iterator[Path]:
        """A temporary folder, whose lists are put on the server at the end."""
        with (
            TemporaryDirectory(prefix="scrapy-aopic-") as temporary,
            closing(ServerLists(self.address)) as server,
        ):
            folder = seeds_folder(Path(temporary))
            folder.mkdir()
            yield folder
            server.put(lists(folder))

    def kept_folder(self) -> Path:
        """A temporary one that is this user's."""
        user = getattr(os, "getuid", int)()
        folder = Path(gettempdir(), f"scrapy-aopic-{user}")
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != user:  # of a link, too
            raise StorageError(
                f"{folder} belongs to another user: remove it, or name another folder in TMPDIR."
            )
        return folder

    def add_seeds(self, paths: Iterable[Path]) -> None:
        """Let the lists wait under their names."""
        with closing(ServerLists(self.address)) as server:
            server.put(paths)

    def copy_beside(self, folder: Path) -> None:
        """Copy the lists of seeds."""
        waiting = seeds_folder(folder)
        waiting.mkdir(exist_ok=True)
        with closing(ServerLists(self.address)) as server:
            for name in sorted(server.names()):
                server.copy(name, waiting)

    def seed_names(self) -> set[str]:
        """Names of the lists."""
        with closing(ServerLists(self.address)) as server:
            return server.names()

    def read_earlier(self) -> bytes | None:
        """All pieces of a list."""
        with closing(connect(self.address)) as link:
            return b"".join(read_pieces(link, self._earlier)) or None

    def bodies_file(self) -> None:
        """None: archives are written on the machines of the workers."""

    def write_earlier(self, pieces: Iterable[bytes]) -> None:
        """Replace the list in one transaction."""
        with closing(connect(self.address)) as link:
            put_pieces(link, self._earlier, pieces)

    @property
    def _earlier(self) -> bytes:
        return Keys(self.address).of_job(_EARLIER)


class ServerControl:
    """The key with the control settings of the job at *address*; see :class:`~.place.ControlStore`."""

    def __init__(self, address: Address) -> None:
        self.name = f"The control of the job in {address}"
        self._key = Keys(address).of_job(b"control")
        self._link = connect(address)

    def read(self) -> bytes | None:
        """The value of the key; ``None`` if there is none."""
        return self._link.ask((b"GET", self._key))[0]  # type: ignore[no-any-return]

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes | None], None]]:
        """Watch the key until it is written."""
        self._link.watch(self._key)
        yield self._write

    def _write(self, data: bytes | None) -> None:
        command = (b"SET", self._key, data) if data is not None else (b"DEL", self._key)
        if self._link.transact(command) is None:
            raise StorageError(
                f"{self.name} was changed by somebody else at this moment, and not by this command: try again."
            )

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

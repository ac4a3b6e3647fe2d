"""A job in a job folder: one with a store of its own, or one in shards, for several workers; a copy of a job on a server is, too.

``aopic/`` holds the store of a job in one piece and may change without warning between format versions; seeds wait in
``aopic-seeds/`` (see :mod:`.seed_files`); beside them is what Scrapy itself keeps.

A job in shards has their stores in ``aopic-shards/``, in folders ``0``, ``1`` and so on. There ``cut.json`` says how many they are
and by which list of public suffixes hosts belong to them; ``suffixes`` is that list. ``aopic-workers/`` has what each worker
keeps for itself.

If it has a part of the shards, and other folders have the rest, ``part.json`` says at which server their workers hear of each
other, and how the folder is called among those of the job. So it may be moved to another path, or to another machine, but not
copied: two folders of one name cannot be crawled at once.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.shards.cut import WHOLE, ShardId
from scrapy_aopic.exceptions import StorageError, plainly, storage_errors
from scrapy_aopic.storage import check_in_folder, closing_all, exists, open_snapshot
from scrapy_aopic.storage.address import MAX_SHARDS
from scrapy_aopic.storage.lock import Lock, keeping_out, lock_briefly, lock_job, sync_folder, taking_turns
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.storage.named_files import read_given
from scrapy_aopic.storage.opening import Damaged, open_for_salvage
from scrapy_aopic.storage.redis.sharding import Sharding
from scrapy_aopic.storage.registry import Kind, kind_in
from scrapy_aopic.storage.store_folder import replace_file, replacing

from .calibration_file import CALIBRATION, LABELS
from .seed_files import lists, put_list

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from scrapy_aopic.core.ports import Store


STATE_FILE = "spider.state"
"""The file in which Scrapy keeps the state of the spider."""


def store_folder(job_folder: Path) -> Path:
    """Where in a job folder the store is."""
    return job_folder / "aopic"


def seeds_folder(job_folder: Path) -> Path:
    """Where in a job folder seeds wait."""
    return job_folder / "aopic-seeds"


def check_job_folder(job: Path) -> None:
    """Do nothing if *job* is a folder, or may become one.

    Raises:
        StorageError: If it is something else.
    """
    with storage_errors(f"{job} can be no job folder"):
        if job.is_dir():
            return
        if job.exists():
            raise StorageError(
                f"{job} is a file, and no job folder: give the JOBDIR of a crawl, or a new name."
            )
        if job.is_symlink():
            raise StorageError(f"{job} is a symbolic link to {job.readlink()}, which is not there.")
        for parent in job.parents:
            if parent.exists() and not parent.is_dir():
                raise StorageError(f"{job} can be no job folder, because {parent} is a file.")


@contextmanager
def named_as_given(lock: Lock, job: Path) -> Iterator[None]:
    """Make errors name the folder of the locked job as the user named it: *job*, not the path behind *lock*."""
    where = str(lock.around.where)
    try:
        yield
    except StorageError as error:
        raise type(error)(str(error).replace(where, str(job))) from error
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = error.filename.replace(where, str(job))
        raise


WORKER = "AOPIC_WORKER"
"""Variable of the environment of a process that is one of several workers of a folder: its number, from 1 on, and when its command began."""

CONTROL_FILE = "aopic-control.json"
"""The file with the control settings."""

_MOVED_FILE = "aopic-moved"
_EARLIER_FILE = "aopic-former"
_BODIES_FILE = "aopic-former-bodies"
_SHARDS = "aopic-shards"
_CUT_FILE = "cut.json"
_PART_FILE = "part.json"
_SUFFIXES_FILE = "suffixes"
_TURNS = "commits.lock"
_WORKERS = "aopic-workers"


def worker_number() -> int:
    """The number of this process among the workers of a folder; 0 if nobody has started it as one."""
    return int(os.environ.get(WORKER, "").partition(" ")[0] or 0)


def command_began() -> float:
    """When the command began that has started this process as one of several workers of a folder; infinite if none has."""
    return float(os.environ.get(WORKER, "").partition(" ")[2] or "inf")


class FolderPart(NamedTuple):
    """The file ``part.json`` of a folder that has a part of the shards of a job.

    Attributes:
        name: How the folder is called among those of the job.
        job: Address of the job as text, without user and password.
    """

    name: str
    job: str


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """The job folder *folder*; see :class:`~.place.Place`.

    Attributes:
        where: A path that leads there even if the folder is moved (:class:`scrapy_aopic.storage.lock.OpenFolder`); ``None`` for
            *folder* itself, by which messages go in any case.
    """

    folder: Path
    where: Path | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def path(self) -> Path:
        """The path to its files."""
        return self.where or self.folder

    def check(self) -> None:
        """Do nothing if it is a folder, or may become one."""
        check_job_folder(self.folder)

    def has_job(self) -> bool:
        """Whether there is a store, or the copy of a job in shards."""
        return exists(store_folder(self.path)) or self.read_sharding() is not None

    def read_sharding(self) -> Sharding | None:
        """How the job is cut of which all shards, or some, are there."""
        path = self.path / _SHARDS / _CUT_FILE
        try:
            sharding = Sharding(**json.loads(read_given(path)))
            if not 1 < int(sharding.shards) <= MAX_SHARDS:
                raise ValueError(f"{sharding.shards} shards")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise StorageError(
                f"How the job in {self} is cut cannot be read from {path}: {plainly(error)}. Use another copy of the job."
            ) from error
        return sharding if self.read_part() is not None else sharding._replace(folders=0)

    def read_suffixes(self) -> bytes:
        """The list of public suffixes in the copy of a job in shards."""
        try:
            return (self.path / _SHARDS / _SUFFIXES_FILE).read_bytes()
        except OSError:
            return b""

    def write_sharding(self, sharding: Sharding, suffixes: bytes) -> None:
        """Note how the job is cut whose stores are there, all of them whole, and by which list of public *suffixes*.

        Raises:
            OSError: If it cannot be written.
        """
        (self.path / _SHARDS).mkdir(parents=True, exist_ok=True)
        with replacing(self.path / _SHARDS / _SUFFIXES_FILE) as file:
            file.write(suffixes)
        replace_file(self.path / _SHARDS / _CUT_FILE, json.dumps(sharding.fields) + "\n")

    def read_part(self) -> FolderPart | None:
        """Of which job a part is there; ``None`` if it is all of one."""
        path = self.path / _SHARDS / _PART_FILE
        try:
            fields = json.loads(read_given(path))
            return FolderPart(str(fields["name"]), str(fields["job"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise StorageError(
                f"The file {path} cannot be read: {plainly(error)}. Nothing was changed."
            ) from error

    def write_part(self, part: FolderPart | None) -> None:
        """Note that the shards that are there, or will be, are a *part* of a job; ``None`` for all of one.

        Raises:
            OSError: If it cannot be written.
        """
        path = self.path / _SHARDS / _PART_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        if part is None:
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
        else:
            replace_file(path, json.dumps(part._asdict()) + "\n")
            sync_folder(self.path)

    def taken(self, task: str) -> Lock:
        """Its lock."""
        return lock_job(store_folder(self.path), task)

    def moved_to(self) -> str:
        """The content of a file."""
        return (
            (_read(self.path / _MOVED_FILE, self.folder / _MOVED_FILE) or b"")
            .decode("utf-8", "replace")
            .strip()
        )

    def note_moved(self, to: str) -> None:
        """Write a file."""
        with storage_errors(f"{self.folder / _MOVED_FILE} cannot be written"):
            replace_file(self.path / _MOVED_FILE, f"{to}\n")

    def remove_job(self) -> None:
        """Remove what a copy of the job has, too; what else is there, for people, stays."""
        path = self.path
        with storage_errors(f"The job in {self} cannot be removed"):
            for folder in (path / _SHARDS, store_folder(path), seeds_folder(path), path / _WORKERS):
                if folder.exists():
                    shutil.rmtree(folder)
            for name in (STATE_FILE, LABELS, CALIBRATION, CONTROL_FILE, _EARLIER_FILE, _BODIES_FILE):
                (path / name).unlink(missing_ok=True)

    def of_worker(self, number: int) -> Path:
        """What the worker with this *number* keeps for itself, as a job folder, if several crawl the job."""
        return self.path / _WORKERS / str(number)

    def stores(self, sharding: Sharding | None) -> list[Path]:
        """Where the stores of a job are, or would be, that is cut like that: the only one of a job in one piece."""
        if sharding is None:
            return [store_folder(self.path)]
        return [self.path / _SHARDS / str(number) for number in range(sharding.shards)]

    def shards_here(self) -> list[int]:
        """Numbers of the shards whose stores are there, in order; of a part not all."""
        folders = self.stores(self.read_sharding())
        is_part = self.read_part() is not None
        return [number for number, folder in enumerate(folders) if not is_part or exists(folder)]

    def open_snapshots(self) -> list[Store]:
        """Open its stores, and empty ones for shards that are in other folders. While those of a job in shards are opened, no worker commits."""
        here = self.shards_here()
        with self.between_commits():
            return open_all(
                folder if number in here else None
                for number, folder in enumerate(self.stores(self.read_sharding()))
            )

    def each_snapshot(self) -> Generator[Store]:
        """All of one moment."""
        with closing_all(self.open_snapshots()) as stores:
            yield from stores

    def between_commits(self) -> AbstractContextManager[object]:
        """A time in which no worker of a job in shards commits; it is waited for."""
        turns = self.path / _SHARDS / _TURNS
        return taking_turns(turns) if turns.exists() else nullcontext()

    def committing(self) -> AbstractContextManager[None]:
        """The time of some commits of a job in shards: others may commit meanwhile, but nobody takes a look."""
        return taking_turns(self.path / _SHARDS / _TURNS, is_shared=True)

    @contextmanager
    def opening_damaged(self, copies: Path) -> Iterator[Iterator[tuple[ShardId, Damaged]]]:
        """Those that are there. Nothing in the folder is changed."""
        with keeping_out(store_folder(self.path)), closing(self._damaged(copies)) as stores:
            yield stores

    def _damaged(self, copies: Path) -> Generator[tuple[ShardId, Damaged]]:
        folders = self.stores(self.read_sharding())
        for number in self.shards_here():
            shard, copy = ShardId(number, len(folders)), copies / str(number)
            try:
                damaged = open_for_salvage(folders[number], copy)
            except StorageError as error:
                if shard == WHOLE:
                    raise
                damaged = Damaged(MemoryStore(), reason=str(error))  # the others may be read
            with closing(damaged.store):
                yield shard, damaged
            shutil.rmtree(copy, ignore_errors=True)

    def store_kind(self, number: int) -> Kind:
        """The kind of the store itself."""
        folder = self.stores(self.read_sharding())[number]
        if (kind := kind_in(folder)) is None:
            raise StorageError(f"The files of the store in {folder} are gone.")
        return kind

    def open_control(self) -> FolderControl:
        """A file of the job folder."""
        return FolderControl(self.folder, self.path)

    @contextmanager
    def adding_seeds(self) -> Iterator[Path]:
        """The folder where they wait, so that each list appears at once."""
        self.check_whole()
        yield self.kept_folder()

    def check_whole(self) -> None:
        """Do nothing if what is asked of all shards is kept here.

        Raises:
            StorageError: If it is kept on a server.
        """
        if (part := self.read_part()) is not None:
            raise StorageError(
                f"The folder {self} has some shards of the job in {part.job}, where what is asked of all of them is kept: "
                "name that instead of the folder."
            )

    def kept_folder(self) -> Path:
        """The same."""
        folder = seeds_folder(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add_seeds(self, paths: Iterable[Path]) -> None:
        """Let copies of the lists wait, under new names."""
        folder = seeds_folder(self.path)
        with storage_errors(f"Seeds cannot be put into {folder}"):
            for path in paths:
                with path.open(encoding="ascii") as lines:
                    put_list(folder, lines)

    def copy_beside(self, folder: Path) -> None:
        """Copy the state of the spider, labels, bodies of earlier crawls, and the lists of seeds but for those taken up just now."""
        for name in (STATE_FILE, LABELS, CALIBRATION, _BODIES_FILE):
            if (self.path / name).exists():
                _copy_file(self.path / name, folder / name)
        seeds_folder(folder).mkdir(exist_ok=True)
        for path in lists(seeds_folder(self.path)):
            with suppress(FileNotFoundError):
                _copy_file(path, seeds_folder(folder) / path.name)

    def seed_names(self) -> set[str]:
        """Names of the files."""
        return {path.name for path in lists(seeds_folder(self.path))}

    def read_earlier(self) -> bytes | None:
        """The content of a file."""
        return _read(self.path / _EARLIER_FILE, self.folder / _EARLIER_FILE)

    def bodies_file(self) -> Path:
        """A file of the folder."""
        return self.path / _BODIES_FILE

    def write_earlier(self, pieces: Iterable[bytes]) -> None:
        """Replace the file."""
        with storage_errors(f"{self.folder / _EARLIER_FILE} cannot be written"):
            self.path.mkdir(parents=True, exist_ok=True)
            with replacing(self.path / _EARLIER_FILE) as file:
                file.writelines(pieces)


def open_all(folders: Iterable[Path | None]) -> list[Store]:
    """Snapshots of the stores in *folders*; for ``None`` an empty store."""
    stores: list[Store] = []
    with ExitStack() as opened:
        for folder in folders:
            stores.append(open_snapshot(folder) if folder is not None else MemoryStore())
            opened.callback(stores[-1].close)
        opened.pop_all()
    return stores


def _read(path: Path, name: Path) -> bytes | None:
    """The content of the file at *path*, which messages call *name*; ``None`` if there is none."""
    with storage_errors(f"{name} cannot be read"), suppress(FileNotFoundError):
        return read_given(path)
    return None


def _copy_file(source: Path, target: Path) -> None:
    shutil.copy2(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    sync_folder(target.parent)


class FolderControl:
    """The file with the control settings of the job in *folder*, which is at *path*; see :class:`~.place.ControlStore`."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.name = str(folder / CONTROL_FILE)
        self._folder = folder
        self._path = path / CONTROL_FILE

    def read(self) -> bytes | None:
        """The content of the file; ``None`` if there is none."""
        return _read(self._path, self._folder / CONTROL_FILE)

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes | None], None]]:
        """Lock the file for the time of the block."""
        folder = self._folder
        if not folder.is_dir():
            raise StorageError(f"There is no job folder {folder}.")
        check_in_folder(store_folder(folder))
        FolderPlace(folder).check_whole()
        with (
            storage_errors(f"{self.name} cannot be written"),
            lock_briefly(self._path.with_suffix(".lock"), self._path),
        ):
            yield self._write

    def _write(self, data: bytes | None) -> None:
        if data is None:
            self._path.unlink(missing_ok=True)
            return
        with replacing(self._path) as file:
            file.write(data)

    def close(self) -> None:
        """Nothing is open."""

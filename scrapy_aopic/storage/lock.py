"""One lock for everything that changes a job, and folders that stay the same however they are renamed.

The lock is a file beside the folder of the store, so that the store can be replaced under the lock:
``<JOBDIR>/aopic.lock`` for ``<JOBDIR>/aopic``. The operating system locks the file (``flock``; on Windows, a byte of it)
and drops the lock when the process ends in any way. So nothing depends on process ids, which containers and machines
reuse. The text in the file about its owner is only for messages. Each open store has a second lock inside,
``store.lock``, against processes that open the store without its job.

An open folder stays the same one whatever becomes of its name. On Linux its files are reached through the open
folder itself (``/proc/self/fd/N``), so that even a library that opens and removes files by path, as RocksDB does in
threads of its own, cannot touch a folder that was put in its place. Elsewhere the path is only compared before each
write.

The ``filelock`` package, which comes with Scrapy, was not chosen: where ``flock`` is not supported it may take the
existence of a file for a lock, which outlives a kill; and a forked child keeps what its parent has locked.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import final
from weakref import WeakSet

from scrapy_aopic.exceptions import InUseError, LostError, StorageError, plainly, storage_errors

_OPEN_FOLDERS = Path("/proc/self/fd")

_ATTEMPTS = 10
"""Times that a lock file may be replaced while it is being locked."""

_BRIEF_ATTEMPTS = 100
"""Times that a lock is tried that others hold for milliseconds, two seconds together."""

_PATIENCE = 0.02
"""Seconds between these attempts."""

_OWNER_BYTES = 1_000
"""Bytes of a lock file that are read for a message: several times what an owner writes."""

# What the operating system says when another process has the lock, when the file system has no locks, and when it
# cannot synchronise a folder.
_CONTENTION = {errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK, errno.EDEADLK}
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_NO_SYNC = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # far behind what other processes must be able to read

    def _lock(descriptor: int) -> None:
        _change_lock(descriptor, msvcrt.LK_NBLCK)

    def _wait_for(descriptor: int, *, is_shared: bool) -> None:
        del is_shared  # which Windows does not know
        _change_lock(descriptor, msvcrt.LK_LOCK)

    def _unlock(descriptor: int) -> None:
        _change_lock(descriptor, msvcrt.LK_UNLCK)

    def _change_lock(descriptor: int, mode: int) -> None:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, mode, 1)
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)  # else the next write begins a gigabyte further on

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _wait_for(descriptor: int, *, is_shared: bool) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_file(descriptor: int) -> bool:
    """Lock an open file until it is closed, if its file system has locks; returns whether no other process has locked it."""
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return True
        if error.errno in _CONTENTION:
            return False
        raise
    return True


class OpenFolder:
    """A folder that is kept open.

    Args:
        path: Where it is now; the working directory may change later.

    Attributes:
        path: The same, for messages.
        where: Path for its files. If :attr:`is_followed`, it leads to this folder wherever that is moved, and nowhere
            once it is deleted.
        is_followed: Whether :attr:`where` does that; else it is the path at which the folder was found.

    Raises:
        OSError: If there is no such folder, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._absolute = path.absolute()
        self._descriptor: int | None = None
        self.where = self._absolute
        if sys.platform == "win32":  # which does not move a folder whose files are open
            self._found = self._absolute.stat()
        else:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            self._found = os.fstat(self._descriptor)
            open_folder = _OPEN_FOLDERS / str(self._descriptor)
            with suppress(OSError):
                if os.path.samestat(open_folder.stat(), self._found):
                    self.where = open_folder
        self.is_followed = self.where != self._absolute

    @property
    def is_lost(self) -> bool:
        """Whether the folder was moved or deleted, or another one is in its place."""
        # Compared with the open folder, not with what was found at first: some file systems renumber a folder.
        mine = self._found if self._descriptor is None else os.fstat(self._descriptor)
        try:
            return not os.path.samestat(self._absolute.stat(), mine)
        except OSError:
            return True

    def check(self) -> None:
        """Do nothing if the folder is still in its place.

        Raises:
            LostError: If it is not.
        """
        if self.is_lost:
            raise LostError(
                f"The folder {self.path} was moved, deleted or replaced while this process used it; what it held is "
                "as of the last commit, wherever it is now."
            )

    def close(self) -> None:
        """Let go of the folder; :attr:`where` must no longer be used."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@final
class Lock:
    """The right to change what is in a folder, until it is released or the process ends.

    Only one object at a time has it, in all processes of the machine; a forked child does not.

    Args:
        path: Its file; the folder around it is made if need be.
        store: Folder of the store that it protects.
        task: What it is needed for, for the message to other processes.

    Attributes:
        around: The folder around its file.

    Raises:
        StorageError: If another has the lock, or there can be none.
    """

    def __init__(self, path: Path, store: Path, task: str = "") -> None:
        self._path = path
        self._store = store
        self._descriptor: int | None = None
        with storage_errors(f"Cannot open the store in {store}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.around = OpenFolder(path.parent)
        try:
            self._descriptor = self._take()
            self._say(task)
        except OSError as error:
            self.release()
            if isinstance(error, StorageError):
                raise
            if error.errno in _CONTENTION and error.filename is None:
                raise _in_use(self._path, self._store) from error
            if error.errno in _UNSUPPORTED:
                raise StorageError(
                    f"{path} cannot be locked: its file system takes no locks, so nothing could keep "
                    "two crawls apart. Choose a job folder on another one, or mount this one with locks."
                ) from error
            raise StorageError(f"{path} cannot be locked: {plainly(error)}.") from error
        _TAKEN.add(self)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> int:
        for _ in range(_ATTEMPTS):
            descriptor = self._open()
            try:
                _lock(descriptor)
                if self._is_mine(descriptor):  # else the file was replaced meanwhile
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise StorageError(f"{self._path} cannot be locked: another process keeps replacing it.")

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT
        # A job folder may come from a stranger: do not write to the target of a link, do not wait for a pipe.
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        path = self.around.where / self._path.name
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            error.filename = str(self._path)
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StorageError(f"{self._path} cannot be locked: it is not a regular file.")
        return descriptor

    def _is_mine(self, descriptor: int) -> bool:
        try:
            return os.path.samestat((self.around.where / self._path.name).lstat(), os.fstat(descriptor))
        except OSError:
            return False

    def _say(self, task: str) -> None:
        assert self._descriptor is not None
        since = datetime.now(timezone.utc).isoformat(" ", "seconds")
        owner = {"task": task, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        with suppress(OSError):  # the disk may be full, and this is only for messages
            os.write(self._descriptor, json.dumps(owner).encode() + b"\n")

    def check(self) -> None:
        """Do nothing if the lock still protects the store.

        Raises:
            LostError: If the folder around it, or its file, was moved, deleted or replaced.
        """
        self.around.check()
        if self._descriptor is None or not self._is_mine(self._descriptor):
            raise LostError(
                f"The file {self._path} was moved, deleted or replaced, so this process could no longer keep others out of "
                f"the store in {self._store}."
            )

    def release(self) -> None:
        """Let other processes have it. Idempotent."""
        _TAKEN.discard(self)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                _unlock(descriptor)
            os.close(descriptor)
        self.around.close()

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)  # not unlocked: the parent has it


def _in_use(path: Path, store: Path) -> InUseError:
    """The error for the lock *path* of the job whose store is in the folder *store*, which another process has."""
    try:
        owner = _owner(path)
        task = f" ({owner['task']})" if owner["task"] else ""
        who = f"process {owner['pid']} on {owner['host']} has had it open since {owner['since']}{task}"
    except (OSError, ValueError, LookupError, TypeError):  # the other process has only just begun
        who = "another process has it open"
    return InUseError(f"The store in {store} is in use: {who}; wait for its end or choose another folder.")


def _owner(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        owner = json.loads(file.read(_OWNER_BYTES))
    return owner if isinstance(owner, dict) else {}


def killed_task(store: Path) -> str | None:
    """The task of the process that had locked the job of *store*, and was killed or still runs; ``None`` if there is none."""
    try:
        return str(_owner(_lock_file(store)).get("task"))
    except (OSError, ValueError):  # one that ended by itself has emptied the file
        return None


def had_here(store: Path, task: str) -> str:
    """Which process of this machine has the job of *store* for *task*, as that says itself, and since when; empty if none has,
    or if that cannot be told without a lock. One that was killed may have left its number to another process."""
    with suppress(OSError, ValueError, LookupError, TypeError, OverflowError):
        owner = _owner(_lock_file(store))
        since, pid = datetime.fromisoformat(str(owner["since"])), int(str(owner["pid"]))
        if (owner["task"], owner["host"]) == (task, socket.gethostname()) and os.name == "posix" and pid > 0:
            os.kill(pid, 0)  # which asks whether it runs, except on Windows
            return f"process {pid} since {since}"
    return ""


def lock_store(folder: Path) -> Lock:
    """Lock the store that is, or will be, in *folder* itself."""
    return Lock(folder / "store.lock", folder)


def open_folder(folder: Path) -> OpenFolder:
    """Open the *folder* of a store that is only read."""
    with storage_errors(f"Cannot open the store in {folder}"):
        return OpenFolder(folder)


def lock_job(store: Path, task: str) -> Lock:
    """Lock the job whose store is, or will be, in the folder *store*, for a *task*."""
    return Lock(_lock_file(store), store, task)


@contextmanager
def keeping_out(store: Path) -> Iterator[None]:
    """Let no crawl begin with the job whose store is in the folder *store*, of which nothing is changed.

    Raises:
        InUseError: If another process has it open.
    """
    path = _lock_file(store)
    try:
        file = path.open("rb")
    except FileNotFoundError:  # no process has ever locked it
        yield
        return
    with file:
        if not lock_file(file.fileno()):
            raise _in_use(path, store)
        yield


@contextmanager
def taking_turns(path: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Wait for the lock of the file at *path*, which others may have at the same time if it is *is_shared* by all of them.

    Raises:
        OSError: If there can be none.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)  # who looks may not be allowed to write
    try:
        with holding(descriptor, is_shared=is_shared):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def holding(descriptor: int, *, is_shared: bool = False) -> Iterator[None]:
    """Wait for the lock of an open file; see :func:`taking_turns`."""
    _wait_for(descriptor, is_shared=is_shared)
    try:
        yield
    finally:
        _unlock(descriptor)


def lock_briefly(path: Path, store: Path) -> Lock:
    """The lock *path* of *store*, which others hold for some milliseconds: it is waited for.

    Raises:
        StorageError: If another process does not let it go, or there can be none.
    """
    for _ in range(_BRIEF_ATTEMPTS - 1):
        with suppress(StorageError):
            return Lock(path, store)
        time.sleep(_PATIENCE)
    return Lock(path, store)


def _lock_file(store: Path) -> Path:
    return store.with_name(f"{store.name}.lock")


_TAKEN: WeakSet[Lock] = WeakSet()
"""The locks of this process."""


def _after_fork() -> None:
    """In a forked child: let go of the locks, which would otherwise outlive the parent that took them."""
    for lock in list(_TAKEN):
        lock._let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def sync_names(folder: Path) -> None:
    """Make the names in *folder*, and in all folders around it, outlive a power failure.

    Any of them may have been made just now, and synchronising an unchanged one costs nothing. Folders that may not be
    read are left out.
    """
    sync_folder(folder)
    for each in folder.absolute().parents:
        with suppress(OSError):
            sync_folder(each)


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* outlive a power failure, as far as the system can synchronise folders."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder in which one may write, but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)

"""Where what an operator asks of a crawl is kept, from one run to the next: beside the store of the job.

A job in a folder has a file for it, ``aopic-control.json``, and one on a server a key, which all of its workers see. It is
not in the store: that has one writer, which is the crawl, and an operator must not wait for it.

Rule 1: who changes it reads it first, and replaces it as a whole only if nobody else has changed it meanwhile.

Rule 2: a crawl reads it when it opens, and then by a thread that looks from time to time; nothing in the event loop waits.
"""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_aopic.core.control import Control, unpack_control
from scrapy_aopic.exceptions import SettingError, StorageError, plainly
from scrapy_aopic.storage import Address, check_in_folder
from scrapy_aopic.storage.lock import lock_briefly
from scrapy_aopic.storage.named_files import read_given
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.store_folder import replacing

from .paths import store_folder
from .worker_folder import read_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILE_NAME = "aopic-control.json"
"""The file in a job folder."""

_LOOK = 0.5
"""Seconds between looks: a change is in force within a second."""


def read_control(job: Path | Address) -> Control:
    """What is asked of *job*, in a job folder or on a server.

    Raises:
        StorageError: If it cannot be read, or is damaged.
    """
    with closing(_place_of(job)) as place:
        return _unpack(place.read(), job)


def said(control: Control) -> list[str]:
    """What *control* asks, in sentences; none if it asks nothing."""
    return control.sentences(time_of)


def time_of(instant: float) -> str:
    """*instant*, in seconds since the epoch, as people write it."""
    return datetime.fromtimestamp(instant, timezone.utc).isoformat(" ", "seconds")


def change_control(job: Path | Address, change: Callable[[Control], Control]) -> Control:
    """Replace what is asked of *job* by what *change* makes of it; returns that.

    Raises:
        SettingError: If *change* refuses.
        StorageError: If there is no such place, or it cannot be read or written.
    """
    with closing(_place_of(job)) as place, place.changing() as write:
        control = change(_unpack(place.read(), job))
        write(control.packed() if control else None)
        return control


def remove_control(job: Path | Address) -> None:
    """Ask nothing of *job* any more, whatever was, even what cannot be read.

    Raises:
        StorageError: If there is no such place, or it cannot be written.
    """
    with closing(_place_of(job)) as place, place.changing() as write:
        write(None)


def copy_control(source: Path | Address, target: Path | Address) -> None:
    """Ask of the job at *target* what is asked of that at *source*.

    Raises:
        StorageError: If that cannot be read or written.
    """
    control = read_control(source)
    if control:
        change_control(target, lambda _: control)


def _unpack(data: bytes | None, job: Path | Address) -> Control:
    if data is None:
        return Control()
    try:
        return unpack_control(data)
    except SettingError as error:
        what = f"The control of the job in {job}" if isinstance(job, Address) else f"{job / FILE_NAME}"
        raise StorageError(
            f"{what} cannot be used: {error}. 'scrapy aopic control {job} reset' removes it, and all that was asked for."
        ) from None


class _Folder:
    """The file in a job folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME

    def read(self) -> bytes | None:
        """What it has; ``None`` if there is none."""
        try:
            return read_given(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {plainly(error)}.") from error

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes | None], None]]:
        """Keep others from changing it meanwhile; gives what replaces it, or removes it."""
        folder = self._folder
        if not folder.is_dir():
            raise StorageError(f"There is no job folder {folder}.")
        check_in_folder(store_folder(folder))
        if (home := read_home(folder)) is not None:
            raise StorageError(
                f"The folder {folder} has some shards of the job in {home.job}, where what is asked of all of them is kept: "
                "name that instead of the folder."
            )
        try:
            with lock_briefly(self._path.with_suffix(".lock"), self._path):
                yield self._write
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"{self._path} cannot be written: {plainly(error)}.") from error

    def _write(self, data: bytes | None) -> None:
        if data is None:
            self._path.unlink(missing_ok=True)
            return
        with replacing(self._path) as file:
            file.write(data)

    def close(self) -> None:
        """Nothing is open."""


class _Server:
    """The key of a job on a server."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._key = Keys(address).of_job(b"control")
        self._link = connect(address)

    def read(self) -> bytes | None:
        """What it has; ``None`` if there is none."""
        return self._link.ask((b"GET", self._key))[0]  # type: ignore[no-any-return]

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes | None], None]]:
        """Notice whether others change it meanwhile; gives what replaces it, or removes it."""
        self._link.watch(self._key)
        yield self._write

    def _write(self, data: bytes | None) -> None:
        command = (b"SET", self._key, data) if data is not None else (b"DEL", self._key)
        if self._link.transact(command) is None:
            raise StorageError(
                f"The control of the job in {self._address} was changed by somebody else at this moment, and not by this "
                "command: try again."
            )

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _place_of(job: Path | Address) -> _Folder | _Server:
    return _Server(job) if isinstance(job, Address) else _Folder(job)


class ControlWatch:
    """Looks from time to time at what is asked of *job*, by a thread, until it is closed.

    Args:
        where: A path that leads to the job folder even if that is moved; the job itself if it is on a server.

    Attributes:
        control: What is asked.
        problem: Why what is asked now cannot be used, so that :attr:`control` is what was asked before; ``None`` if it can.

    Raises:
        StorageError: If it cannot be read, or is damaged, at the beginning.
    """

    def __init__(self, job: Path | Address, where: Path | Address) -> None:
        self._job = job
        self._place = _place_of(where)
        try:
            self._data = self._place.read()
            self.control = _unpack(self._data, job)
        except BaseException:
            self._place.close()
            raise
        self.problem: StorageError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="aopic-control", daemon=True)
        self._thread.start()

    def _keep_looking(self) -> None:
        while not self._ended.wait(_LOOK):
            try:
                data = self._place.read()
            except StorageError:  # the crawl notices by itself if the folder or the server is gone
                continue
            if data == self._data:
                continue
            self._data = data
            try:
                self.control = _unpack(data, self._job)
                self.problem = None
            except StorageError as error:
                self.problem = error

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._ended.set()
        self._thread.join()
        self._place.close()

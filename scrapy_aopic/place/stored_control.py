"""Where what an operator asks of a crawl is kept, from one run to the next: beside the store of the job.

A job in a folder has a file for it, ``aopic-control.json``, and one on a server a key, which all of its workers see. It is
not in the store: that has one writer, which is the crawl, and an operator must not wait for it.

Rule 1: who changes it reads it first, and replaces it as a whole only if nobody else has changed it meanwhile.

Rule 2: a crawl reads it when it opens, and then by a thread that looks from time to time; nothing in the event loop waits.
"""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_aopic.core.control import Control, unpack_control
from scrapy_aopic.exceptions import SettingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .place import ControlStore, Place

_LOOK = 0.5
"""Seconds between looks: a change is in force within a second."""


def read_control(place: Place) -> Control:
    """What is asked of the job at *place*.

    Raises:
        StorageError: If it cannot be read, or is damaged.
    """
    with closing(place.open_control()) as kept:
        return _unpack(kept.read(), kept, place)


def control_sentences(control: Control) -> list[str]:
    """What *control* asks, in sentences; none if it asks nothing."""
    return control.sentences(time_of)


def time_of(instant: float) -> str:
    """*instant*, in seconds since the epoch, as people write it."""
    return datetime.fromtimestamp(instant, timezone.utc).isoformat(" ", "seconds")


def change_control(place: Place, change: Callable[[Control], Control]) -> Control:
    """Replace what is asked of the job at *place* by what *change* makes of it; returns that.

    Raises:
        SettingError: If *change* refuses.
        StorageError: If there is no such place, or it cannot be read or written.
    """
    with closing(place.open_control()) as kept, kept.changing() as write:
        control = change(_unpack(kept.read(), kept, place))
        write(control.packed() if control else None)
        return control


def remove_control(place: Place) -> None:
    """Ask nothing of the job at *place* any more, whatever was, even what cannot be read.

    Raises:
        StorageError: If there is no such place, or it cannot be written.
    """
    with closing(place.open_control()) as kept, kept.changing() as write:
        write(None)


def copy_control(source: Place, target: Place) -> None:
    """Ask of the job at *target* what is asked of that at *source*.

    Raises:
        StorageError: If that cannot be read or written.
    """
    control = read_control(source)
    if control:
        change_control(target, lambda _: control)


def _unpack(data: bytes | None, kept: ControlStore, place: Place) -> Control:
    if data is None:
        return Control()
    try:
        return unpack_control(data)
    except SettingError as error:
        raise StorageError(
            f"{kept.name} cannot be used: {error}. 'scrapy aopic control {place} reset' removes it, and all that was asked for."
        ) from None


class ControlWatch:
    """Looks from time to time at what is asked of the job at *place*, by a thread, until it is closed.

    Attributes:
        control: What is asked.
        problem: Why what is asked now cannot be used, so that :attr:`control` is what was asked before; ``None`` if it can.

    Raises:
        StorageError: If it cannot be read, or is damaged, at the beginning.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._kept = place.open_control()
        try:
            self._data = self._kept.read()
            self.control = _unpack(self._data, self._kept, place)
        except BaseException:
            self._kept.close()
            raise
        self.problem: StorageError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="aopic-control", daemon=True)
        self._thread.start()

    def _keep_looking(self) -> None:
        while not self._ended.wait(_LOOK):
            try:
                data = self._kept.read()
            except StorageError:  # the crawl notices by itself if the folder or the server is gone
                continue
            if data == self._data:
                continue
            self._data = data
            try:
                self.control = _unpack(data, self._kept, self._place)
                self.problem = None
            except StorageError as error:
                self.problem = error

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._ended.set()
        self._thread.join()
        self._kept.close()

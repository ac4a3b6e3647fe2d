"""The control settings of a job, which an operator changes while it runs: kept beside its store.

A job in a folder has a file for them, ``aopic-control.json``, and one on a server a key, which all workers see. They are not
in the store: that has one writer, the crawl, and an operator must not wait for it.

Rule 1: a change reads all settings, and replaces all of them, unless another change came first.

Rule 2: a crawl reads them when it opens, and then every half second in a thread of their own. The event loop never waits.
"""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_aopic.core.operator_control import Control, change_of, unpack_control
from scrapy_aopic.exceptions import SettingError, StorageError, closed_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .place import ControlStore, Place

_POLL = 0.5
"""Seconds between polls: a change is in force within a second."""


def read_control(place: Place) -> Control:
    """The control settings of the job at *place*.

    Raises:
        StorageError: If it cannot be read, or is damaged.
    """
    with closing(place.open_control()) as kept:
        return _unpack(kept.read(), kept, place)


def control_sentences(control: Control) -> list[str]:
    """*control* in sentences, one for each setting."""
    return control.sentences(time_of)


def time_of(instant: float) -> str:
    """*instant*, in seconds since the epoch, as people write it."""
    return datetime.fromtimestamp(instant, timezone.utc).isoformat(" ", "seconds")


def change_control(place: Place, change: Callable[[Control], Control]) -> Control:
    """Replace the control settings of the job at *place* by what *change* makes of them; returns the new ones.

    Raises:
        SettingError: If *change* refuses.
        StorageError: If there is no such place, or it cannot be read or written.
    """
    with closing(place.open_control()) as kept, kept.changing() as write:
        control = change(_unpack(kept.read(), kept, place))
        write(control.packed() if control else None)
        return control


def ask_of_crawl(place: Place, action: str, values: Sequence[str]) -> Control:
    """Do what ``scrapy aopic control`` does for an *action* with *values*, names among them as they are; returns the new settings.

    Raises:
        CallError: If there is no such action, or it takes other values.
        SettingError: If a value cannot be.
        StorageError: If there is no such place, or it cannot be read or written.
    """
    change = change_of(action, values, datetime.now(timezone.utc).timestamp())
    if action != "reset":
        return change_control(place, change)
    remove_control(place)
    return Control()


def remove_control(place: Place) -> None:
    """Remove all control settings of the job at *place*, also those that cannot be read.

    Raises:
        StorageError: If there is no such place, or it cannot be written.
    """
    with closing(place.open_control()) as kept, kept.changing() as write:
        write(None)


def copy_control(source: Place, target: Place) -> None:
    """Copy the control settings of the job at *source* to the job at *target*.

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
            f"{kept.name} cannot be used: {error}. 'scrapy aopic control {place} reset' removes it, and all that was set."
        ) from None


class ControlWatch:
    """Reads the control settings of the job at *place* every half second, in a thread, until it is closed.

    Attributes:
        control: The settings in force.
        problem: Why newer settings cannot be used; ``None`` if there are none.

    Raises:
        StorageError: If it cannot be read, or is damaged, at the beginning.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._kept = place.open_control()
        with closed_on_error(self._kept.close):
            self._data = self._kept.read()
            self.control = _unpack(self._data, self._kept, place)
        self.problem: StorageError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="aopic-control", daemon=True)
        self._thread.start()

    def _keep_looking(self) -> None:
        while not self._ended.wait(_POLL):
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

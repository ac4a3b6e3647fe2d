"""What download slots share: the hosts, domains and addresses that all crawls of a process ask one at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .slots import PoliteSlot

_REMEMBERED = 10_000
"""Clocks that are remembered."""


class Clock:
    """What slots share: one of them transfers at a time, and none before an instant.

    Attributes:
        holder: The slot that transfers.
        not_before: Instant (``time.monotonic``) before which no transfer may start.
        waiting: Slots that would have started while another one transferred.
    """

    __slots__ = ("holder", "not_before", "waiting")

    def __init__(self) -> None:
        self.holder: PoliteSlot | None = None
        self.not_before = 0.0
        self.waiting: set[PoliteSlot] = set()

    def release(self) -> None:
        """The slot that held it transfers no more: those that wait may start."""
        self.holder = None
        waiting, self.waiting = self.waiting, set()
        for slot in waiting:
            slot.kick()


class Clocks:
    """The clocks of the crawls that run at the same time in an event loop, which is one thread.

    They are forgotten with the last of these crawls: a job remembers the times of its hosts by itself.
    """

    _of_threads = threading.local()

    def __init__(self) -> None:
        self._clocks: OrderedDict[str, Clock] = OrderedDict()
        self._users: set[object] = set()

    @classmethod
    def join(cls, user: object) -> Clocks:
        """The clocks of this thread, from now on also those of *user*."""
        clocks: Clocks | None = getattr(cls._of_threads, "clocks", None)
        if clocks is None:
            clocks = cls._of_threads.clocks = cls()
        clocks._users.add(user)
        return clocks

    def leave(self, user: object, slots: set[PoliteSlot]) -> None:
        """*user* is done, and its *slots* transfer no more."""
        self._users.discard(user)
        if not self._users and getattr(self._of_threads, "clocks", None) is self:
            del self._of_threads.clocks
        for clock in list(self._clocks.values()):
            clock.waiting -= slots
            if clock.holder in slots:
                clock.release()

    def get(self, name: str) -> Clock:
        """The clock called *name*."""
        clock = self._clocks.get(name)
        if clock is None:
            clock = self._clocks[name] = Clock()
        self._clocks.move_to_end(name)
        while len(self._clocks) > _REMEMBERED and next(iter(self._clocks.values())).holder is None:
            self._clocks.popitem(last=False)
        return clock

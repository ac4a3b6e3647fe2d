"""Clocks that download slots share: one transfer at a time for a host, domain or address, for all crawls of a process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_REMEMBERED = 10_000
"""Clocks that are remembered: 4 MB. One that is forgotten is the one that was used least recently, and not in use; what
it knew of other crawls is lost with it, while each job remembers the times of its own hosts."""


class Waiting(Protocol):
    """A slot that shares a clock."""

    def kick(self) -> None:
        """Start what waits, if it may start."""


class Clock:
    """Lets one of the slots that share it transfer at a time, and none before an instant.

    Attributes:
        holder: The slot that transfers.
        not_before: Instant (``time.monotonic``) before which no transfer may start.
        waiting: Slots that would have started while another one transferred.
    """

    __slots__ = ("holder", "not_before", "waiting")

    def __init__(self) -> None:
        self.holder: Waiting | None = None
        self.not_before = 0.0
        self.waiting: set[Waiting] = set()

    def release(self) -> None:
        """Note that the holder transfers no more, and start the slots that wait."""
        self.holder = None
        waiting, self.waiting = self.waiting, set()
        for slot in waiting:
            slot.kick()


class Clocks:
    """The clocks of the crawls that run at the same time in an event loop, which is one thread.

    They are dropped with the last of these crawls: each job stores the times of its own hosts.
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

    def leave(self, user: object, slots: AbstractSet[Waiting]) -> None:
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

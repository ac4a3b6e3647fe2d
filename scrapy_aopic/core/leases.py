"""The leases that are held, by numbers that no two leases of any process share.

A lease has two ends. Its *transfer* ends when its host is released, the lease itself when the visit is settled or the
page is put back; either may come first. A call about a lease that is no longer held learns whether it was
held by this process (``DUP``) or not (``STALE``).
"""

from __future__ import annotations

from .api import Ending, Lease

_LEASES_A_MILLISECOND = 20
"""Binary digits of the leases in a millisecond, so that each process numbers its own above those of earlier ones."""

_MAX_ENDED = 10_000
"""Ended leases that are distinguished from those of other processes: several times those that can be in flight."""


class Leases:
    """The leases of one process.

    Args:
        now: When it began, seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        self._last = int(now * 1000) << _LEASES_A_MILLISECOND
        self._held: dict[bytes, Lease] = {}
        # Numbers of the leases whose transfers go on.
        self._transfers: set[int] = set()
        # Numbers of the leases that ended last, oldest first.
        self._ended: dict[int, None] = {}

    def __len__(self) -> int:
        """Leases that are held."""
        return len(self._held)

    def __contains__(self, key: bytes) -> bool:
        """Whether the page under *key* is in flight."""
        return key in self._held

    def begin(self, key: bytes, host: str, request: bytes, cash: int, visits: int) -> Lease:
        """Lease the page under *key* of the host called *host*."""
        self._last = number = self._last + 1
        lease = self._held[key] = Lease(key, host, request, cash, visits, number)
        self._transfers.add(number)
        return lease

    def standing(self, lease: Lease) -> Ending:
        """``OK`` if *lease* is held, ``DUP`` if it was ended, ``STALE`` if this process has not given it."""
        held = self._held.get(lease.key)
        if held is not None and held.number == lease.number:
            return Ending.OK
        return Ending.DUP if lease.number in self._ended else Ending.STALE

    def end(self, lease: Lease) -> None:
        """*lease*, which is held, is held no more."""
        del self._held[lease.key]
        self._ended[lease.number] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def end_transfer(self, lease: Lease) -> Ending:
        """``OK`` if the transfer of *lease* was under way, and is over now."""
        if lease.number in self._transfers:
            self._transfers.remove(lease.number)
            return Ending.OK
        return Ending.STALE if self.standing(lease) == Ending.STALE else Ending.DUP

"""Back queues: the best pages of each host in memory, best first.

A host's queued pages are rows in the store, in the order in which they are taken. Its back queue holds the first of
them, except those in flight. It is filled when the host is to be leased and nothing of it is in memory, so a host costs
one read for some tens of pages, and none if it only waits.

Invariant: a loaded back queue holds every row that can be taken up to its last one, and all of them if it *is whole*. A
row cannot be taken while it waits for a silent origin (:class:`~scrapy_aopic.core.politeness.Silence`); each such row is
passed over once for each back queue, so a host of a million of them costs no more reads than it has rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import HOST_BYTES, ROW_PAGE_BYTES, front_queue_of, queue_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.tables import RowTable

    from .host_state import HostState

BACK_QUEUE_ROWS = 32
"""Rows that a back queue is filled with: storage measurements and Mercator's paper agree on some tens."""

_MOST_ROWS = 2 * BACK_QUEUE_ROWS
"""Most rows that it holds, because better ones come while it is loaded."""

_MOST_READS = 16
"""Reads of :data:`_MOST_ROWS` rows in one step, if all of them wait for silent origins: some milliseconds."""


class BackQueues:
    """The back queues of all hosts in memory, on the *rows* of the store.

    Args:
        waits_for: Gives the name of the origin of the page under a key, and whether the page waits while that is silent;
            see :attr:`scrapy_aopic.core.policy.Policy.waits_for`.
    """

    def __init__(self, rows: RowTable, waits_for: Callable[[bytes], tuple[str, bool]]) -> None:
        self.rows = rows
        self._waits_for = waits_for

    def fill(self, key: bytes, host: HostState, now: float) -> None:
        """Load the back queue of *host* if nothing of it is in memory, or an origin that it passed over is due."""
        if host.silent:
            if host.passed_over and now >= host.heard_at:
                reload(host)
            if host.back_queue is None or not (host.back_queue or host.is_whole):
                self._pass_over(key, host, now)
        elif not host.back_queue and (host.back_queue is None or not host.is_whole):
            in_flight = host.in_flight
            rows, host.is_whole = self.rows.first(key, BACK_QUEUE_ROWS + len(in_flight))
            host.back_queue = [row[HOST_BYTES:] + page for row, page in rows if page not in in_flight]
        refresh_best(host)

    def _pass_over(self, key: bytes, host: HostState, now: float) -> None:
        """Load rows of *host* behind those that were looked at, without those that wait for silent origins."""
        if host.back_queue is None:
            host.looked_up_to, host.passed_over, host.heard_at = b"", (), inf
        queue: list[bytes] = []
        for _ in range(_MOST_READS):
            behind = key + host.looked_up_to if host.looked_up_to else b""
            rows, host.is_whole = self.rows.first(key, _MOST_ROWS, behind)
            for row, page in rows:
                if not (page in host.in_flight or self.is_held(host, key + page, now)):
                    queue.append(row[HOST_BYTES:] + page)
            if rows:
                host.looked_up_to = rows[-1][0][HOST_BYTES:]
            if host.is_whole or len(queue) >= BACK_QUEUE_ROWS:
                break
        host.back_queue = queue

    def is_held(self, host: HostState, page: bytes, now: float) -> bool:
        """Whether the page under the key *page*, of *host*, waits for a silent origin; if so, the host is told of that."""
        if not host.silent:
            return False
        origin, is_link = self._waits_for(page)
        silence = host.silent.get(origin)
        if silence is None or silence.until <= now or not (is_link or silence.is_for_all):
            return False
        if origin not in host.passed_over:
            host.passed_over += (origin,)
        host.heard_at = min(host.heard_at, silence.until)
        return True

    def unload(self, key: bytes, host: HostState) -> None:
        """*host* leaves the memory."""
        reload(host)
        host.tried.clear()
        self.rows.forget(key)


def reload(host: HostState) -> None:
    """Have the back queue of *host* loaded again when it is needed, because other rows can be taken now."""
    host.back_queue, host.is_whole = None, False


def begin(host: HostState) -> None:
    """*host* has nothing queued, so its back queue is empty and whole."""
    host.best, host.back_queue, host.is_whole = None, [], True


def change(host: HostState, old: bytes, new: bytes) -> None:
    """Take the row *old*, with its page after it, out of the back queue of *host* if it is there, and put *new* in.

    Both may be empty for none. *new* is left out if it is behind all that is loaded.
    """
    queue = host.back_queue
    if queue is None:
        return
    if old:
        position = bisect_left(queue, old)
        if position < len(queue) and queue[position] == old:
            del queue[position]
    if not new or (
        not host.is_whole
        and (not queue or new > queue[-1])
        and not (host.silent and new[:-ROW_PAGE_BYTES] <= host.looked_up_to)
    ):
        return
    insort(queue, new)
    if len(queue) > _MOST_ROWS:
        del queue[BACK_QUEUE_ROWS:]
        host.is_whole = False
        host.looked_up_to = queue[-1][:-ROW_PAGE_BYTES]


def best_row(host: HostState) -> bytes:
    """The best queue row of *host*, without its page; as good as can be while the back queue is not in memory."""
    return host.back_queue[0][:-ROW_PAGE_BYTES] if host.back_queue else queue_row(host.best or 0, 0)


def raise_best(host: HostState, front_queue: int) -> None:
    """The best page of *host* is in *front_queue* now, which is better than before."""
    host.best = front_queue


def refresh_best(host: HostState) -> None:
    """Set the front queue of the best page from the back queue, if that is known."""
    if host.back_queue:
        host.best = front_queue_of(host.back_queue[0])
    elif host.is_whole and host.back_queue is not None and not host.silent:
        host.best = None

"""Back queues: the best pages of each host in memory, best first.

A host's queued pages are rows in the store, in the order in which they are taken. Its back queue holds the first of
them, except those in flight. It is filled when the host is to be leased and nothing of it is in memory, so a host costs
one read for some tens of pages, and none if it only waits.

Invariant: a back queue that is loaded holds every row that can be taken up to its last one, and all that can be taken
if it *is whole*.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import HOST_BYTES, ROW_BYTES, front_queue_of, queue_row

if TYPE_CHECKING:
    from scrapy_aopic.core.tables import RowTable

    from .host_state import HostState

BACK_QUEUE_ROWS = 32
"""Rows that a back queue is filled with: storage measurements and Mercator's paper agree on some tens."""

_MOST_ROWS = 2 * BACK_QUEUE_ROWS
"""Rows that it holds at most, because better ones come while it is loaded."""


class BackQueues:
    """The back queues of all hosts in memory, on the *rows* of the store."""

    def __init__(self, rows: RowTable) -> None:
        self.rows = rows

    def fill(self, key: bytes, host: HostState) -> None:
        """Load the back queue of *host* if nothing of it is in memory."""
        if not host.back_queue and (host.back_queue is None or not host.is_whole):
            in_flight = host.in_flight
            rows, host.is_whole = self.rows.first(key, BACK_QUEUE_ROWS + len(in_flight))
            host.back_queue = [row[HOST_BYTES:] + page for row, page in rows if page not in in_flight]
        refresh_best(host)

    def unload(self, key: bytes, host: HostState) -> None:
        """*host* leaves the memory."""
        host.back_queue, host.is_whole = None, False
        self.rows.forget(key)


def begin(host: HostState) -> None:
    """*host* has nothing queued, so its back queue is empty and whole."""
    host.best, host.back_queue, host.is_whole = -1, [], True


def add(host: HostState, row: bytes) -> None:
    """Put *row*, with its page after it, into the back queue of *host* if that is loaded so far."""
    queue = host.back_queue
    if queue is None or (not host.is_whole and (not queue or row > queue[-1])):
        return
    insort(queue, row)
    if len(queue) > _MOST_ROWS:
        del queue[BACK_QUEUE_ROWS:]
        host.is_whole = False


def discard(host: HostState, row: bytes) -> None:
    """Take *row*, with its page after it, out of the back queue of *host* if it is there."""
    queue = host.back_queue
    if queue:
        position = bisect_left(queue, row)
        if position < len(queue) and queue[position] == row:
            del queue[position]


def best_row(host: HostState) -> bytes:
    """The best queue row of *host*, without its page; as good as can be while the back queue is not in memory."""
    return host.back_queue[0][:ROW_BYTES] if host.back_queue else queue_row(max(host.best, 0), 0)


def refresh_best(host: HostState) -> None:
    """Set the front queue of the best page from the back queue, if that is known."""
    if host.back_queue:
        host.best = front_queue_of(host.back_queue[0])
    elif host.is_whole and host.back_queue is not None:
        host.best = -1

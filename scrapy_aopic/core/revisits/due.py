"""Visited pages that are due: they wait, outside the frontier, until a visit is paid for.

Rule 1: in the store a page that is due has one row with its place; a page that is not due has none.

Rule 2: a revisit is paid for by fetches, each of which pays its share. When no other page may be fetched at all, one of
a free host is let in for nothing.

Rule 3: after nine others the next revisit that can goes to an overdue page, and after three others to a page that is likely to bring
new ones. A turn that none can take, as the hosts are not free, stays until one can.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import DUE
from scrapy_aopic.core.records import HOST_BYTES, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.core.tables import RowTable

OVERDUE = 255
"""Number of the queue of overdue pages, above those of :meth:`~scrapy_aopic.core.order.Order.revisit_queue`."""

FOREMOST = OVERDUE - 1
"""Number of the best of the other queues."""

_MAX_DUE = 100_000
"""Pages that are due or overdue, each: the better half stays when there are more, the others wait until they wake again."""

_MAX_TOKENS = 100.0
"""Revisits that can be paid for in advance, while no page is due."""

_MAX_OWED = 2.0
"""Revisits made for nothing that fetches pay for later: else those that are paid for would wait behind them, and new pages behind both."""

_OVERDUE_TURN = 10
"""Of so many revisits one goes to an overdue page."""

_FRUITFUL_TURN = 4
"""Of so many revisits one goes to a page that is likely to bring new pages, or new dates of pages."""

_Place = tuple[float, float]
"""Place of a page, the best the least: its negative queue, and the instant of its last visit."""


class DuePages:
    """Which visited pages wait to be let in, and whether a visit is paid for.

    Args:
        index: Their rows in the store.
        share: Revisits that each fetch pays for, 0 to 1.

    Attributes:
        first: Keys of pages that were let in for what they are likely to bring: they come first, as by their own cash they would
            wait for long. A run forgets them.
    """

    def __init__(self, index: RowTable, share: float) -> None:
        self._index = index
        self._share = share
        self._tokens = 0.0
        self._n_in_time, self._n_others = _OVERDUE_TURN, 0
        self.first: set[bytes] = set()
        self._due, self._overdue, self._fruitful = DueQueue(), DueQueue(), DueQueue()
        for row, value in index.first(DUE, 1 << 60)[0]:
            queue, visited_at, *brings = unpack(value)
            (self._overdue if queue == OVERDUE else self._due).add(row[1:], queue, visited_at)
            if brings:
                self._fruitful.add(row[1:], brings[0], visited_at)

    def offer(self, key: bytes, queue: int, visited_at: float, brings: int | None = None) -> None:
        """Let the visited page under *key*, last visited at *visited_at*, wait in *queue* to be let in.

        Args:
            brings: Queue in which it waits for what it is likely to bring, if it is.
        """
        own, other = (self._overdue, self._due) if queue == OVERDUE else (self._due, self._overdue)
        other.remove(key)
        is_news = own.add(key, queue, visited_at)
        if brings is not None:
            is_news = self._fruitful.add(key, brings, visited_at) or is_news
        else:
            self._fruitful.remove(key)
        if is_news:
            place = (queue, visited_at) if brings is None else (queue, visited_at, brings)
            self._index.put(DUE + key, pack(place))
        if len(own) > _MAX_DUE:
            for worse in own.trim(_MAX_DUE // 2):  # until they wake again
                self._fruitful.remove(worse)
                self._index.delete(DUE + worse)

    def remove(self, key: bytes) -> None:
        """The page under *key* is not to be let in."""
        if key in self._due or key in self._overdue:
            self._forget(key)

    def fetched(self) -> None:
        """A fetch pays for its share of a revisit."""
        self._tokens = min(self._tokens + self._share, _MAX_TOKENS)

    def freed(self, host: bytes) -> None:
        """The host under key *host* has nothing in the frontier any more."""
        self._due.freed(host)
        self._overdue.freed(host)
        self._fruitful.freed(host)

    def best(self, is_free: Callable[[bytes], bool] | None = None) -> bytes | None:
        """Key of the page to let in now, which is due no more, if a visit is paid for; ``None`` if there is none.

        Args:
            is_free: What a host must satisfy whose page is let in for nothing.
        """
        if is_free is None and self._tokens < 1:
            return None
        queues = [self._due, self._overdue]
        if self._n_others >= _FRUITFUL_TURN - 1:
            queues.insert(0, self._fruitful)
        if self._n_in_time >= _OVERDUE_TURN - 1:
            queues.insert(0, self._overdue)
        for queue in queues:
            if (key := queue.best(is_free)) is not None:
                self._forget(key)
                self._tokens = max(self._tokens - 1, -_MAX_OWED)
                self._n_in_time = 0 if queue is self._overdue else self._n_in_time + 1
                self._n_others = 0 if queue is self._fruitful else self._n_others + 1
                if queue is self._fruitful:
                    self.first.add(key)
                return key
        return None

    def _forget(self, key: bytes) -> None:
        """The page under *key* is due no more."""
        for queue in (self._due, self._overdue, self._fruitful):
            queue.remove(key)
        self._index.delete(DUE + key)


class DueQueue:
    """Visited pages that wait to be let in: the best queue first, and in it the one visited longest ago.

    A host is *free* if none of its pages waits in the frontier. The best page of all hosts, and that of the free ones,
    are each on top of a :class:`_HostHeap`.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, _Place] = {}
        self._pages: dict[bytes, list[tuple[_Place, bytes]]] = {}
        self._all, self._free = _HostHeap(), _HostHeap()
        self._n_entries = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def add(self, key: bytes, queue: int, visited_at: float) -> bool:
        """Let the page under *key* wait in queue *queue*; returns whether this is news."""
        place = (-queue, visited_at)
        if self._places.get(key) == place:
            return False
        self._places[key] = place
        self._push(key, place)
        self._n_entries += 1
        if self._n_entries > 2 * _MAX_DUE:
            self._rebuild()  # without the entries that are no longer true
        return True

    def remove(self, key: bytes) -> None:
        """The page under *key* waits no more."""
        self._places.pop(key, None)

    def freed(self, host: bytes) -> None:
        """The host under key *host* is free."""
        if (top := self._top(host)) is not None:
            self._free.push(host, top[0])

    def best(self, is_free: Callable[[bytes], bool] | None = None) -> bytes | None:
        """The best page, which waits no more; of a host that *is_free*, if that is given."""
        heap = self._all if is_free is None else self._free
        while (first := heap.first()) is not None:
            place, host = first
            top = self._top(host)
            if top is None or (is_free is not None and not is_free(host)):
                heap.pop()  # until it has a better page, or is freed
            elif top[0] != place:
                heap.pop()
                heap.push(host, top[0])
            else:
                del self._places[top[1]]
                return top[1]
        return None

    def trim(self, n: int) -> list[bytes]:
        """Keep the best *n* pages; returns the others."""
        worst = sorted(self._places, key=self._places.__getitem__)[n:]
        for key in worst:
            del self._places[key]
        self._rebuild()
        return worst

    def _push(self, key: bytes, place: _Place) -> None:
        host = key[:HOST_BYTES]
        pages = self._pages.setdefault(host, [])
        heapq.heappush(pages, (place, key))
        if pages[0][1] == key:
            self._all.push(host, place)
            self._free.push(host, place)

    def _top(self, host: bytes) -> tuple[_Place, bytes] | None:
        """The best page of *host*."""
        pages = self._pages.get(host)
        while pages:
            if self._places.get(pages[0][1]) == pages[0][0]:
                return pages[0]
            heapq.heappop(pages)
        self._pages.pop(host, None)
        return None

    def _rebuild(self) -> None:
        self._pages, self._all, self._free = {}, _HostHeap(), _HostHeap()
        self._n_entries = len(self._places)
        for key, place in self._places.items():
            self._push(key, place)


class _HostHeap:
    """Hosts by their best pages. A host that got a better page has another entry; its former ones are void."""

    def __init__(self) -> None:
        self._heap: list[tuple[_Place, bytes]] = []
        self._at: dict[bytes, _Place] = {}

    def push(self, host: bytes, place: _Place) -> None:
        """Let *host* be there at *place*, if it is not at a better one."""
        known = self._at.get(host)
        if known is None or place < known:
            self._at[host] = place
            heapq.heappush(self._heap, (place, host))

    def first(self) -> tuple[_Place, bytes] | None:
        """The host at the best place."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def pop(self) -> None:
        """Take away what :meth:`first` gave."""
        del self._at[heapq.heappop(self._heap)[1]]

"""Mercator's frontier: which host is asked next, and for which of its pages.

A page waits in one of 64 *front queues* of its host: queue *q* holds the pages whose cash in units has *q*
binary digits, first in, first out. A *host* moves through the frontier as a whole, by the class of its best
page. An active host has a *back queue* in memory: the best rows of its front queues, best first. A heap of
earliest times keeps the hosts that must be left alone, and ready hosts are served best class first.

Invariant: a host with queued pages has exactly one index row and is in exactly one place,

* active (at most about *max_active* of them): leased, ready, waiting for its time, or dry because all its
  pages are leased;
* shelved on the disk under its class, with no page leased and its time come;
* parked on the disk under its time, with no page leased.

A host is leased to at most one request, so it is never asked twice at once.

Sources: Heydon and Najork, "Mercator: A Scalable, Extensible Web Crawler", 1999; Najork and Heydon,
"High-Performance Web Crawling", 2001. The order by cash, and the class of a host, are ours
(docs/how-it-works.md).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from enum import IntEnum
from typing import NamedTuple

from .ports import Family, Store
from .records import HOST_BYTES, N_FRONT_QUEUES, Host, pack_host, queue_row, row_level, unpack_host
from .tables import RecordTable, RowTable

BACK_QUEUE_ROWS = 32
"""Rows that a back queue is filled with; Mercator and storage measurements agree on some tens."""

_N_CLASSES = 2 * N_FRONT_QUEUES
_ACTIVE, _SHELVED, _PARKED = b"A", b"F", b"P"


class Phase(IntEnum):
    """Where an active host is."""

    DRY = 0
    READY = 1
    WAITING = 2
    LEASED = 3


class Taken(NamedTuple):
    """A page taken from the frontier; its host is leased."""

    host: bytes
    row: bytes
    page: bytes


class NotBefore(NamedTuple):
    """Nothing may be asked before *instant* (seconds since the epoch)."""

    instant: float


class Empty(NamedTuple):
    """Nothing is queued that is not leased already."""


def front_queue(cash: int, shift: int = 0) -> int:
    """Front queue of a page with *cash* units, moved up by *shift* queues."""
    return min(max(cash.bit_length() + shift, 0), N_FRONT_QUEUES - 1)


def host_class(best: int, visited: int) -> int:
    """Class of a host in half front queues: its best page's cash over the root of its visited pages.

    All pages of a host share the discount, so it orders hosts and costs nothing to keep up.
    """
    return min(max(2 * best + 1 - (visited + 1).bit_length(), 0), _N_CLASSES - 1)


class Frontier:
    """Hosts and their queues.

    Args:
        store: Where rows and hosts are read; written by :meth:`take_changes`.
        max_active: Hosts kept in memory when more could be.
        host_cache: Records of other hosts kept in memory.
    """

    def __init__(self, store: Store, *, max_active: int = 10_000, host_cache: int = 50_000) -> None:
        self.hosts = RecordTable(store, Family.HOSTS, pack_host, unpack_host, host_cache)
        self.rows = RowTable(store, Family.QUEUE, lambda _: HOST_BYTES)
        self.index = RowTable(store, Family.META, lambda key: 2 if key[:1] == _SHELVED else 1)
        self.max_active = max_active
        self.active: dict[bytes, Host] = {}
        self.n_hosts = 0
        self.queued = 0
        self.pending = 0
        self.n_shelved = [0] * _N_CLASSES
        self.n_parked = 0
        self._shelved_mask = 0
        self._ready: list[OrderedDict[bytes, None]] = [OrderedDict() for _ in range(_N_CLASSES)]
        self._ready_mask = 0
        self._waiting: list[tuple[float, bytes]] = []
        self._unpark_at = float("inf")

    # -- life

    def load(
        self, n_queued: int, n_hosts: int, n_shelved: list[int], n_parked: int, now: float
    ) -> list[tuple[bytes, float]]:
        """Take up the state that the store holds; what was leased when it was left waits again.

        Returns:
            The hosts that were leased, with the instant of the lease.
        """
        self.queued = self.pending = n_queued
        self.n_hosts = n_hosts
        leased = []
        self.n_shelved = n_shelved
        self.n_parked = n_parked
        self._shelved_mask = sum(1 << number for number, n in enumerate(n_shelved) if n)
        self._unpark_at = self._first_parked()
        keys = [row[1:] for row, _ in self.index.first(_ACTIVE, 1 << 60)[0]]
        for key, host in zip(keys, self.hosts.get_many(keys), strict=True):
            assert host is not None, "an index row without its host"
            self.active[key] = host
            if host.leased_at:
                leased.append((key, host.leased_at))
                host.leased_at = 0.0
                self.hosts.put(key, host)
            self._place(key, host, now)
        return leased

    def host(self, key: bytes) -> Host | None:
        """The host under *key*, if the crawl knows it."""
        return self.active.get(key) or self.hosts.get(key)

    def preload(self, keys: list[bytes]) -> None:
        """Bring the hosts under *keys* into memory with one read."""
        wanted = [key for key in keys if key not in self.active]
        if wanted:
            self.hosts.get_many(wanted)

    def __len__(self) -> int:
        return self.pending

    # -- pages come, move up and go

    def insert(self, page: bytes, name: str, level: int, order: int, now: float) -> None:
        """Queue *page* (a page key, not queued) of the host called *name* in front queue *level*."""
        key = page[:HOST_BYTES]
        host = self.host(key)
        if host is None:
            host = Host(name)
            self.n_hosts += 1
        if not host.queued:
            host.best, host.head, host.complete = -1, [], True
        row = queue_row(level, order)
        self.rows.put(key + row, page[HOST_BYTES:])
        host.queued += 1
        self.queued += 1
        self.pending += 1
        self._add_to_head(host, row, page[HOST_BYTES:])
        self._improve(key, host, level, now)

    def move_up(self, page: bytes, old_level: int, level: int, order: int, now: float) -> None:
        """Move a queued *page* from front queue *old_level* to *level*; it keeps its place in time."""
        key, rest = page[:HOST_BYTES], page[HOST_BYTES:]
        host = self.host(key)
        assert host is not None, "a queued page without its host"
        old, new = queue_row(old_level, order), queue_row(level, order)
        self.rows.delete(key + old)
        self.rows.put(key + new, rest)
        if rest in host.held:
            host.held[rest] = level
            self.hosts.put(key, host)
            return
        if host.head is not None:
            position = bisect_left(host.head, (old, b""))
            if position < len(host.head) and host.head[position][0] == old:
                del host.head[position]
        self._add_to_head(host, new, rest)
        self._improve(key, host, level, now)

    def finish(self, page: bytes, level: int, order: int) -> Host:
        """Remove a leased *page* for good, whose row is in front queue *level*; returns its host."""
        key = page[:HOST_BYTES]
        host = self.active[key]
        del host.held[page[HOST_BYTES:]]
        host.queued -= 1
        self.queued -= 1
        self.rows.delete(key + queue_row(level, order))
        if not host.queued and host.phase == Phase.DRY:
            self._passivate(key, host)
        elif not host.queued:
            self._drop_row(key, host)  # its lease goes on, but there is nothing to come back to
        elif host.phase == Phase.WAITING:
            host.phase = Phase.DRY
            self._place(key, host, float("-inf"))  # now that no page is in work, it may leave the memory
        self.hosts.put(key, host)
        return host

    def put_back(self, page: bytes, level: int, order: int, now: float) -> None:
        """End the lease of *page* and let it wait again in front queue *level*, where its row is."""
        key, rest = page[:HOST_BYTES], page[HOST_BYTES:]
        host = self.active[key]
        del host.held[rest]
        self.pending += 1
        self._add_to_head(host, queue_row(level, order), rest)
        self._improve(key, host, level, now)

    # -- hosts are leased and released

    def take(self, now: float) -> Taken | NotBefore | Empty:
        """Lease the best due host for its best page.

        O(log hosts) in memory; a read of the store when a back queue is empty or a host comes from the disk.
        """
        self._wake(now)
        while True:
            ready, shelved = self._ready_mask.bit_length() - 1, self._shelved_mask.bit_length() - 1
            if shelved > ready:
                self._unshelve(shelved, ready, now)
                continue
            if ready < 0:
                return self.when()
            key, _ = self._ready[ready].popitem(last=False)
            if not self._ready[ready]:
                self._ready_mask ^= 1 << ready
            host = self.active[key]
            host.phase = Phase.DRY
            self._fill(key, host)
            if not host.head or host.not_before > now or host_class(host.best, host.visited) < ready:
                self._place(key, host, now)  # what put it here has changed
                continue
            row, page = host.head.pop(0)
            host.held[page] = row_level(row)
            host.phase = Phase.LEASED
            host.leased_at = now
            self.pending -= 1
            self._refresh_best(host)
            self.hosts.put(key, host)
            return Taken(key, row, key + page)

    def defer(self, key: bytes, not_before: float, transfer: float) -> None:
        """Leave the host under *key* alone until *not_before*, because a transfer of *transfer* seconds ended."""
        host = self.host(key)
        if host is None:
            return
        host.not_before = max(host.not_before, not_before)
        host.transfer = transfer
        self.hosts.put(key, host)  # a host that waits is moved on by _wake, which looks again

    def release(self, key: bytes, now: float) -> None:
        """End the lease of the host under *key*: from its time on it may be asked again."""
        host = self.active[key]
        host.phase = Phase.DRY
        host.leased_at = 0.0
        self.hosts.put(key, host)
        self._place(key, host, now)

    def when(self) -> NotBefore | Empty:
        """The earliest instant at which a host may be asked; long past if one may be now."""
        if self._ready_mask or self._shelved_mask:
            return NotBefore(0.0)
        instant = min(self._waiting[0][0] if self._waiting else float("inf"), self._unpark_at)
        return NotBefore(instant) if instant != float("inf") else Empty()

    # -- places

    def _place(self, key: bytes, host: Host, now: float) -> None:
        """Put an active host that is not leased where it belongs."""
        assert host.phase == Phase.DRY, "a host has one place"
        if host.queued == len(host.held):
            if not host.queued:
                self._passivate(key, host)
        elif host.not_before > now:
            if len(self.active) > self.max_active and not host.held:
                self._park(key, host)
            else:
                host.phase = Phase.WAITING
                if host.wakes_at != host.not_before:
                    host.wakes_at = host.not_before
                    heapq.heappush(self._waiting, (host.wakes_at, key))
        else:
            host.phase = Phase.READY
            host.ready_in = host_class(host.best, host.visited)
            self._ready[host.ready_in][key] = None
            self._ready_mask |= 1 << host.ready_in

    def _unready(self, key: bytes, host: Host) -> None:
        host.phase = Phase.DRY
        del self._ready[host.ready_in][key]
        if not self._ready[host.ready_in]:
            self._ready_mask ^= 1 << host.ready_in

    def _wake(self, now: float) -> None:
        """Make the hosts ready whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            instant, key = heapq.heappop(self._waiting)
            host = self.active.get(key)
            if host is None or host.wakes_at != instant:
                continue  # it was parked or has another entry
            host.wakes_at = 0.0
            if host.phase == Phase.WAITING:
                host.phase = Phase.DRY
                self._place(key, host, now)
        while self._unpark_at <= now:
            rows, _ = self.index.first(_PARKED, BACK_QUEUE_ROWS)
            for row, _ in rows:
                if _instant(row) > now:
                    break
                key = row[-HOST_BYTES:]
                parked = self.hosts.get(key)
                assert parked is not None, "an index row without its host"
                self._drop_row(key, parked)
                self._shelve(key, parked)
            self._unpark_at = self._first_parked()

    def _improve(self, key: bytes, host: Host, level: int, now: float) -> None:
        """A page of *host* is now in front queue *level*: move the host if that is its best."""
        better = level > host.best
        if better and host.phase == Phase.READY:
            self._unready(key, host)
        if better:
            host.best = level
        if key in self.active:
            if not host.row:
                self._set_row(key, host, _ACTIVE + key)
            if host.phase == Phase.DRY:
                self._place(key, host, now)
        elif not host.row:
            self._enter(key, host, now)
        elif better and host.row[:1] == _SHELVED:
            self._drop_row(key, host)
            self._shelve(key, host)
        self.hosts.put(key, host)

    def _enter(self, key: bytes, host: Host, now: float) -> None:
        """Give a host that had nothing queued its place."""
        if len(self.active) < self.max_active:
            self._activate(key, host)
            self._place(key, host, now)
        elif host.not_before > now:
            self._park(key, host)
        else:
            self._shelve(key, host)

    def _activate(self, key: bytes, host: Host) -> None:
        self._drop_row(key, host)
        self._set_row(key, host, _ACTIVE + key)
        self.active[key] = host
        self.hosts.put(key, host)

    def _shelve(self, key: bytes, host: Host) -> None:
        self._passivate(key, host)
        number = host_class(host.best, host.visited)
        self._set_row(key, host, _SHELVED + bytes((number,)) + key)
        self.n_shelved[number] += 1
        self._shelved_mask |= 1 << number

    def _park(self, key: bytes, host: Host) -> None:
        self._passivate(key, host)
        self._set_row(key, host, _PARKED + int(host.not_before * 1000 + 1).to_bytes(8, "big") + key)
        self.n_parked += 1
        self._unpark_at = min(self._unpark_at, host.not_before)

    def _passivate(self, key: bytes, host: Host) -> None:
        assert not host.held, "a host with a leased page must stay active"
        self._drop_row(key, host)
        self.active.pop(key, None)
        host.phase = Phase.DRY
        host.wakes_at = 0.0
        host.head, host.complete = None, False
        self.rows.forget(key)
        self.hosts.put(key, host)

    def _set_row(self, key: bytes, host: Host, row: bytes) -> None:
        self.index.put(row, b"")
        host.row = row[: -len(key)]

    def _drop_row(self, key: bytes, host: Host) -> None:
        if not host.row:
            return
        self.index.delete(host.row + key)
        if host.row[:1] == _SHELVED:
            number = host.row[1]
            self.n_shelved[number] -= 1
            if not self.n_shelved[number]:
                self._shelved_mask &= ~(1 << number)
        elif host.row[:1] == _PARKED:
            self.n_parked -= 1
        host.row = b""

    def _unshelve(self, number: int, ready: int, now: float) -> None:
        """Bring the first host of class *number* from the disk; make room if a worse one, ready, gives it."""
        rows, _ = self.index.first(_SHELVED + bytes((number,)), 1)
        key = rows[0][0][-HOST_BYTES:]
        host = self.hosts.get(key)
        assert host is not None, "an index row without its host"
        if len(self.active) >= self.max_active and ready >= 0:
            worst = (self._ready_mask & -self._ready_mask).bit_length() - 1
            out = next(iter(self._ready[worst]))
            if not self.active[out].held:
                self._unready(out, self.active[out])
                self._refresh_best(self.active[out])
                self._shelve(out, self.active[out])
        self._activate(key, host)
        self._place(key, host, now)

    def _first_parked(self) -> float:
        rows, _ = self.index.first(_PARKED, 1)
        return _instant(rows[0][0]) if rows else float("inf")

    # -- back queues

    def _fill(self, key: bytes, host: Host) -> None:
        """Load the back queue of *host* if nothing of it is in memory."""
        if not host.head and (host.head is None or not host.complete):
            rows, host.complete = self.rows.first(key, BACK_QUEUE_ROWS + len(host.held))
            host.head = [(row[HOST_BYTES:], page) for row, page in rows if page not in host.held]
        self._refresh_best(host)

    def _add_to_head(self, host: Host, row: bytes, page: bytes) -> None:
        head = host.head
        if head is None or (not host.complete and (not head or row > head[-1][0])):
            return
        insort(head, (row, page))
        if len(head) > 2 * BACK_QUEUE_ROWS:
            del head[BACK_QUEUE_ROWS:]
            host.complete = False

    @staticmethod
    def _refresh_best(host: Host) -> None:
        """Set ``best`` from the back queue, when that is known."""
        if host.head:
            host.best = row_level(host.head[0][0])
        elif host.complete and host.head is not None:
            host.best = -1

    # -- commits

    def take_changes(self) -> dict[Family, dict[bytes, bytes | None]]:
        """Move all changes in flight and return them as rows."""
        return {
            Family.HOSTS: self.hosts.take(),
            Family.QUEUE: self.rows.take(),
            Family.META: self.index.take(),
        }

    def changes_landed(self) -> None:
        """The changes in flight are in the store."""
        for table in (self.hosts, self.rows, self.index):
            table.landed()

    def changes_failed(self) -> None:
        """The changes in flight did not reach the store."""
        for table in (self.hosts, self.rows, self.index):
            table.failed()


def _instant(parked_row: bytes) -> float:
    return int.from_bytes(parked_row[1:9], "big") / 1000

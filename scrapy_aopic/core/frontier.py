"""Mercator's frontier: which host is asked next, and for which of its pages.

A page waits in one of 64 *front queues* of its host, at a place that the :class:`~scrapy_aopic.core.order.Order`
gives it. A *host* moves through the frontier as a whole, by the rank of its best page. An active host has a
*back queue* in memory: the best rows of its front queues, best first. A heap of earliest times keeps the hosts
that must be left alone, and ready hosts are served best rank first. Hosts whose registered domain has used up
its budget are *late*: they are served when the crawl has grown enough, or when nobody else can be.

Invariant: a host with queued pages has exactly one index row and is in exactly one place,

* active (at most about *max_active* of them): leased, ready, late, waiting for its time, or dry because all its
  pages are leased;
* shelved on the disk under its rank, with no page leased and its time come;
* parked on the disk under its time, with no page leased.

A host is leased to at most one request, so it is never asked twice at once.

Sources: Heydon and Najork, "Mercator: A Scalable, Extensible Web Crawler", 1999; Najork and Heydon,
"High-Performance Web Crawling", 2001; budgets: Lee, Leonard, Wang and Loguinov, "IRLbot", 2008.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from .order import Aopic, Order
from .ports import Family, Store
from .records import HOST_BYTES, Host, pack_host, queue_row, row_level, unpack_host
from .tables import RecordTable, RowTable

if TYPE_CHECKING:
    from .domains import Domains

BACK_QUEUE_ROWS = 32
"""Rows that a back queue is filled with; Mercator and storage measurements agree on some tens."""

_ACTIVE, _SHELVED, _PARKED = b"A", b"F", b"P"
_IN_TIME, _LATE = b"F\0", b"F\1"
_BUCKET = 3
_LATEST = (1 << 48) - 1


class Phase(IntEnum):
    """Where an active host is."""

    DRY = 0
    READY = 1
    WAITING = 2
    LEASED = 3
    LATE = 4


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


class Frontier:
    """Hosts and their queues.

    Args:
        store: Where rows and hosts are read; written by :meth:`take_changes`.
        order: Which host is served first.
        domains: Registered domains, if the order uses them.
        max_active: Hosts kept in memory when more could be.
        host_cache: Records of other hosts kept in memory.
    """

    def __init__(
        self,
        store: Store,
        order: Order | None = None,
        domains: Domains | None = None,
        *,
        max_active: int = 10_000,
        host_cache: int = 50_000,
    ) -> None:
        self.hosts = RecordTable(store, Family.HOSTS, pack_host, unpack_host, host_cache)
        self.rows = RowTable(store, Family.QUEUE, lambda _: HOST_BYTES)
        self.index = RowTable(store, Family.META, lambda key: _BUCKET if key[:1] == _SHELVED else 1)
        self.order = order if order is not None else Aopic()
        self.domains = domains
        self.max_active = max_active
        self.active: dict[bytes, Host] = {}
        self.n_hosts = 0
        self.queued = 0
        self.pending = 0
        self.visits = 0
        self.n_shelved: dict[bytes, int] = {}
        self.n_parked = 0
        self._first: dict[bytes, bytes] = {}
        self._ready: list[tuple[bytes, int, bytes]] = []
        self._late: dict[bytes, list[tuple[bytes, int, bytes]]] = {}
        self._late_at: list[tuple[float, bytes]] = []
        self._tickets = 0
        self._waiting: list[tuple[float, bytes]] = []
        self._unpark_at = float("inf")

    # -- life

    def load(
        self,
        now: float,
        *,
        queued: int,
        n_hosts: int,
        n_shelved: dict[bytes, int],
        n_parked: int,
        visits: int,
    ) -> list[tuple[bytes, float]]:
        """Take up the state that the store holds; what was leased when it was left waits again.

        Returns:
            The hosts that were leased, with the instant of the lease.
        """
        self.queued = self.pending = queued
        self.n_hosts = n_hosts
        leased = []
        self.n_shelved = n_shelved
        self.n_parked = n_parked
        self.visits = visits
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
            top, shelved = self._top(), self._first_shelved(_IN_TIME)
            if shelved is not None and (top is None or shelved[2:-HOST_BYTES] < top):
                self._unshelve(shelved, now)
                continue
            if top is None:
                if not self._hurry(now):
                    return self.when()
                continue
            rank, _, key = heapq.heappop(self._ready)
            host = self.active[key]
            host.phase, host.ticket = Phase.DRY, 0
            self._fill(key, host)
            if not host.head or host.not_before > now or (rank and self._is_worse(host, rank)):
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

    def _top(self) -> bytes | None:
        """Rank of the first ready host; empty for one that is let through although it is late."""
        while self._ready:
            if self._stands(self._ready[0]):
                return self._ready[0][0]
            heapq.heappop(self._ready)
        return None

    def _is_worse(self, host: Host, rank: bytes) -> bool:
        return self._rank(host) > rank or self._due(host) > self.visits

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
        if self._top() is not None or self.n_shelved or self._late:
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
            self._tickets += 1
            host.ticket = self._tickets
            host.rank = self._rank(host)
            entry = (host.rank, host.ticket, key)
            due = self._due(host)
            if due > self.visits:
                host.phase = Phase.LATE
                self._defer_domain(host.domain, due, entry)
            else:
                host.phase = Phase.READY
                heapq.heappush(self._ready, entry)

    def _unready(self, host: Host) -> None:
        """Take a host out of the ready or the late ones; its entry there is void from now on."""
        host.phase, host.ticket = Phase.DRY, 0

    def _rank(self, host: Host) -> bytes:
        """Where *host* stands among the ready hosts; as good as can be while its back queue is not in memory."""
        row = host.head[0][0] if host.head else queue_row(max(host.best, 0), 0)
        return self.order.rank(row, host, self._visited(host))

    def _visited(self, host: Host) -> int:
        return host.visited if self.domains is None else self.domains.get(self.domains.key(host)).visited

    def _due(self, host: Host, more: int = 0) -> float:
        """Visits of the crawl at which *more* pages of the host's domain are within its budget."""
        if self.domains is None:
            return 0.0
        domain = self.domains.get(self.domains.key(host))
        return self.order.due(domain.visited + more, domain.supporters)

    def count(self, host: Host) -> None:
        """A page of *host*, which is active, was visited for the first time."""
        host.visited += 1
        self.visits += 1
        if self.domains is not None:
            self.domains.count(self.domains.key(host), 1)

    # -- late hosts

    def supported(self, domain: bytes) -> None:
        """The number of supporters of *domain* rose: its late hosts may be due sooner."""
        if domain in self._late and (host := self._first_late(domain)) is not None:
            heapq.heappush(self._late_at, (self._due(host), domain))

    def _defer_domain(self, domain: bytes, due: float, entry: tuple[bytes, int, bytes]) -> None:
        """Let a host of *domain* wait until the crawl has *due* visits."""
        late = self._late.get(domain)
        if late is None:
            late = self._late[domain] = []
            heapq.heappush(self._late_at, (due, domain))
        heapq.heappush(late, entry)

    def _first_late(self, domain: bytes) -> Host | None:
        """The best late host of *domain*; a domain without any is forgotten."""
        late = self._late[domain]
        while late:
            if self._stands(late[0]):
                return self.active[late[0][2]]
            heapq.heappop(late)
        del self._late[domain]
        return None

    def _let_through(self, domain: bytes, *, anyway: bool = False) -> None:
        """Make hosts of *domain*, whose entry is off the heap, ready as far as its budget goes; one if *anyway*."""
        n = 0
        while (host := self._first_late(domain)) is not None:
            due = self._due(host, n)
            if due > self.visits and not (anyway and not n):
                heapq.heappush(self._late_at, (due, domain))
                return
            rank, ticket, key = heapq.heappop(self._late[domain])
            host.phase = Phase.READY
            heapq.heappush(self._ready, (b"" if anyway else rank, ticket, key))
            n += 1

    def _hurry(self, now: float) -> bool:
        """Nobody is ready: let the least overdrawn domain's best host through, if there is any."""
        shelved = self._first_shelved(_LATE)
        while self._late_at:
            domain = self._late_at[0][1]
            if domain in self._late and self._first_late(domain) is not None:
                break
            heapq.heappop(self._late_at)
        if shelved is not None and (not self._late_at or _late_due(shelved) <= self._late_at[0][0]):
            self._unshelve(shelved, now)
            return True
        if not self._late_at:
            return False
        _, domain = heapq.heappop(self._late_at)
        self._let_through(domain, anyway=True)
        return True

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
        while self._late_at and self._late_at[0][0] <= self.visits:
            _, domain = heapq.heappop(self._late_at)
            if domain in self._late:
                self._let_through(domain)
        shelved = self._first_shelved(_LATE)
        if shelved is not None and _late_due(shelved) <= self.visits:
            self._unshelve(shelved, now)
        while self._unpark_at <= now:
            rows, _ = self.index.first(_PARKED, BACK_QUEUE_ROWS)
            for row, _ in rows:
                if _instant(row) > now:
                    break
                key = row[-HOST_BYTES:]
                parked = self.hosts.get(key)
                assert parked is not None, "an index row without its host"
                self._drop_row(key, parked)
                self._enter(key, parked, now)
            self._unpark_at = self._first_parked()

    def _improve(self, key: bytes, host: Host, level: int, now: float) -> None:
        """A page of *host* is now in front queue *level*: move the host if that is its best."""
        better = level > host.best
        if better:
            host.best = level
        if key in self.active:
            if not host.row:
                self._set_row(key, host, _ACTIVE + key)
            if (
                host.phase in (Phase.READY, Phase.LATE)
                and (better or not self.order.ranks_by_level)
                and self._rank(host) < host.rank
            ):
                self._unready(host)
            if host.phase == Phase.DRY:
                self._place(key, host, now)
        elif not host.row:
            self._enter(key, host, now)
        elif host.row[:1] == _SHELVED and (better or not self.order.ranks_by_level):
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
        rank, due = self._rank(host), self._due(host)
        self._passivate(key, host)
        row = _IN_TIME + rank if due <= self.visits else _LATE + min(int(due) + 1, _LATEST).to_bytes(6, "big")
        self._set_row(key, host, row + key)
        bucket = row[:_BUCKET]
        self.n_shelved[bucket] = self.n_shelved.get(bucket, 0) + 1
        lane = row[:2]
        if lane in self._first:
            self._first[lane] = min(self._first[lane], row + key)

    def _first_shelved(self, lane: bytes) -> bytes | None:
        """The first index row of the hosts shelved in *lane*."""
        first = self._first.get(lane)
        if first is None:
            bucket = min((bucket for bucket in self.n_shelved if bucket[:2] == lane), default=None)
            if bucket is None:
                return None
            first = self._first[lane] = self.index.first(bucket, 1)[0][0][0]
        return first

    def _park(self, key: bytes, host: Host) -> None:
        self._passivate(key, host)
        self._set_row(key, host, _PARKED + int(host.not_before * 1000 + 1).to_bytes(8, "big") + key)
        self.n_parked += 1
        self._unpark_at = min(self._unpark_at, host.not_before)

    def _passivate(self, key: bytes, host: Host) -> None:
        assert not host.held, "a host with a leased page must stay active"
        self._drop_row(key, host)
        self.active.pop(key, None)
        host.phase, host.ticket = Phase.DRY, 0
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
            bucket, lane = host.row[:_BUCKET], host.row[:2]
            self.n_shelved[bucket] -= 1
            if not self.n_shelved[bucket]:
                del self.n_shelved[bucket]
            if self._first.get(lane) == host.row + key:
                del self._first[lane]
        elif host.row[:1] == _PARKED:
            self.n_parked -= 1
        host.row = b""

    def _unshelve(self, row: bytes, now: float) -> None:
        """Bring the host of the index row *row* from the disk, and shelve worse ones for it if there is no room."""
        key = row[-HOST_BYTES:]
        host = self.hosts.get(key)
        assert host is not None, "an index row without its host"
        if len(self.active) >= self.max_active and row[:2] == _IN_TIME:
            self._make_room(row[2:-HOST_BYTES])
        self._activate(key, host)
        self._place(key, host, now)

    def _make_room(self, rank: bytes) -> None:
        """Shelve some hosts that are late, or ready but worse than *rank*, the worst first."""
        n = max(self.max_active // 20, 1)  # some at once, because looking for them costs more than shelving
        self._ready = [entry for entry in self._ready if self._stands(entry)]
        heapq.heapify(self._ready)
        victims = [entry for late in self._late.values() for entry in late if self._stands(entry)][:n]
        for _, _, key in victims or [entry for entry in heapq.nlargest(n, self._ready) if entry[0] > rank]:
            host = self.active[key]
            if not host.held:
                self._unready(host)
                self._refresh_best(host)
                self._shelve(key, host)

    def _stands(self, entry: tuple[bytes, int, bytes]) -> bool:
        """Whether *entry*, of a ready or late host, is still its place."""
        host = self.active.get(entry[2])
        return host is not None and host.ticket == entry[1]

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


def _late_due(shelved_row: bytes) -> int:
    return int.from_bytes(shelved_row[2:8], "big")


def _instant(parked_row: bytes) -> float:
    return int.from_bytes(parked_row[1:9], "big") / 1000

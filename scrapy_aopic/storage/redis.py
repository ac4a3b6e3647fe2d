"""Keeps a crawl in Redis or Valkey: the process that crawls keeps nothing that must survive it.

1. Rows lie in leaves: see :mod:`.redis_leaves`. A read is one request, however many rows it is of.
2. A batch is one transaction, which also compares and moves on the head of the job: see :mod:`.redis_lease`. The
   server appends a transaction to its file as a whole, so after any crash of the server the job is as after one of
   its commits.
3. Commands are sent, checked and queued by the server before the lock is taken under which they are carried out, so
   that a reader waits no longer than the server itself needs.
4. Before a leaf changes, its rows are saved for whoever still has to see them: in memory for the scans of this store,
   on the server (``COPY``) for the views that other processes have open (:mod:`.redis_view`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar, cast
from weakref import WeakSet

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError

from .redis_ahead import Ahead
from .redis_checks import check_server
from .redis_connect import connect
from .redis_keys import Keys, leaf_name, seal, unseal
from .redis_lease import Lease
from .redis_leaves import Leaves
from .redis_link import ReplyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scrapy_aopic.core.ports import Batch

    from .address import Address
    from .redis_keys import Head
    from .redis_leaves import Change, Plan, Rows
    from .redis_link import Argument, Link, Reply

_T = TypeVar("_T")

AT_ONCE = 500
"""Leaves in a request that reads very many: half a megabyte of replies, and a millisecond of the server."""

_SCAN_LEAVES = 16
"""Leaves that a scan reads at once, at most; it begins with one, for most scans want a few rows."""

_ATTEMPTS = 50
"""Times that a commit is tried while views come and go."""

_VALUES_AT_ONCE = 500
"""Pairs in a command, at most, so that no command is large."""


class RedisStore:
    """The store of the job at *address*; made if there is none.

    Args:
        task: What it is opened for, for the message to others.
        is_one_of_many: Whether it is one of the stores of a job: the server was looked at, and one that another process
            has open is left to that.

    Attributes:
        read_ahead: See :class:`~scrapy_aopic.core.ports.Store`.
        most_steps: The same; some 60 rows each, for which the server needs 10 ms.
        run: Of the server, after which a store that is one of many is lost: see rule 4 of :mod:`.redis_link`. Shards know of
            each other what a server that has lost its end may know no more.

    Raises:
        StorageError: If another process has it open, it is damaged, or the server does not work.
        SettingError: If the address cannot be one.
    """

    read_ahead: ClassVar[int] = 8
    most_steps: ClassVar[int] = 100

    def __init__(self, address: Address, *, task: str = "crawl", is_one_of_many: bool = False) -> None:
        self._address = address
        self._keys = Keys(address)
        self._writing = threading.Lock()  # one batch at a time, and close() waits for it
        self._reading = threading.Lock()  # leaves and rows do not change while somebody reads
        self._scans: WeakSet[Scan] = WeakSet()
        self._views: dict[bytes, set[bytes]] = {}
        self._broken = ""
        self._is_closed = False
        self._lease = Lease(
            address, self._keys, task=task, waits=not is_one_of_many, is_pinned=is_one_of_many
        )
        self.run = self._lease.run
        self._links: list[Link] = []
        try:
            for _ in range(2):
                self._links.append(connect(address))
            self._reader, self._writer = self._links
            self._ahead = Ahead(self._reader, self._keys)
            if is_one_of_many:
                for link in self._links:
                    link.pin(self.run)
            if not is_one_of_many:
                check_server(self._reader, address)
            self._leaves = read_leaves(self._reader.ask(*ask_for_leaves(self._keys)))
            self._count_rows()
        except BaseException:
            self._release()
            raise

    def _count_rows(self) -> None:
        for family, leaves in self._leaves.items():
            counts: dict[bytes, int] = {}
            for separators in chunks(leaves.filled, AT_ONCE):
                asked = [(b"HLEN", self._keys.leaf(family, each)) for each in separators]
                counts.update(zip(separators, self._reader.ask(*asked), strict=True))
            if lost := [each for each, n in counts.items() if not n]:
                raise self._keys.damaged(f"{len(lost):,} leaves of {family.name} are gone")
            self._leaves[family] = Leaves(counts)

    # -- reading

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            self._check_open()
            return []
        with self._reading:
            self._check_open()
            found = self._ahead.take(family, keys)
            missing = [key for key in keys if key not in found] if found else keys
            if missing:
                groups = self._leaves[family].group(missing)
                leaf = self._keys.leaf
                asked = [(b"HMGET", leaf(family, each), *group) for each, group in groups.items()]
                replies = self._reader.ask(*asked)
        if missing:
            found.update(read_values(self._keys, family, groups.values(), replies))
        return [found[key] for key in keys]

    def prefetch(self, family: Family, keys: Sequence[bytes]) -> int:
        """Begin to read the values of *keys*; see :class:`scrapy_aopic.core.ports.Prefetching`."""
        if not self._reading.acquire(blocking=False):
            return 0  # a commit is being carried out: they are read when they are wanted
        try:
            return self._ahead.send(family, keys, self._leaves[family]) if not self._is_closed else 0
        finally:
            self._reading.release()

    def has_come(self, number: int) -> bool:
        """Whether the values of the request with that *number* are here, or will not come."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            return self._is_closed or self._ahead.has_come(number)
        finally:
            self._reading.release()

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        with self._reading:
            self._check_open()
            scan = Scan(self, self._keys, family, (start, stop), self._leaves[family].between(start, stop))
            self._scans.add(scan)
            return scan

    def read_leaves(self, scan: Scan, separators: Sequence[bytes]) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""
        with self._reading:
            self._check_open()
            asked = [each for each in separators if each not in scan.saved]
            found = dict(zip(asked, self._read_now(scan.family, asked), strict=True))
        return [scan.saved.pop(each) if each in scan.saved else found[each] for each in separators]

    def _read_now(self, family: Family, separators: Sequence[bytes], link: Link | None = None) -> list[Rows]:
        leaf = self._keys.leaf
        replies = (link or self._reader).ask(*((b"HGETALL", leaf(family, each)) for each in separators))
        return [read_rows(self._keys, family, reply) for reply in replies]

    # -- writing

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply *batch* atomically; see :meth:`scrapy_aopic.core.ports.Store.write`.

        With *sync* or without, it is on the server's disk when the server's settings say: see docs/many-machines.md.

        Raises:
            LostError: If another process has opened the job meanwhile, or the server has lost commits.
        """
        del sync
        with self._writing:
            self._check_open()
            if self._broken:
                raise StorageError(
                    f"The store in {self._address} takes no more writes: {self._broken}; open it again."
                )
            self._lease.check()
            plans = {family: self._plan(family, rows) for family, rows in batch.items() if rows}
            self._commit({family: plan for family, plan in plans.items() if plan.changes}, batch)

    def _plan(self, family: Family, rows: Mapping[bytes, bytes | None]) -> Plan:
        # Only this thread changes the leaves, so that it may look at them without the lock.
        leaves = self._leaves[family]
        groups = leaves.group(rows)
        known: dict[bytes, Rows] = {}
        for separators in chunks(leaves.to_read(rows, groups), AT_ONCE):
            known.update(zip(separators, self._read_now(family, separators, self._writer), strict=True))
        return leaves.plan(rows, groups, known)

    def _commit(self, plans: dict[Family, Plan], batch: Batch) -> None:
        commands, counting = self._commands(plans)
        head = self._lease.head
        after = head._replace(number=head.number + 1)
        commands.append((b"SET", self._keys.head, after.packed()))
        for _ in range(_ATTEMPTS):
            try:
                saving = self._watch(plans)
                if saving is None:
                    continue
                self._queue([*saving.commands, *commands])
                with self._reading:
                    self._save_for_scans(plans)
                    self._ahead.changed(batch)
                    replies = self._carry_out(plans, after, len(saving.commands))
                    if replies is None:
                        continue
                    self._lease.head = after
                    saving.note()
                    for family, plan in plans.items():
                        leaves = self._leaves[family]
                        leaves.apply(plan, _Counted(leaves, counting[family], replies))
            except StorageError:
                self._writer.close()  # and with it what is watched and queued
                raise
            except OSError as error:
                raise self._writer.error("write to", str(error)) from error
            else:
                return
        raise self._writer.error("write to", "too many views of it are opened and closed")

    def _carry_out(self, plans: dict[Family, Plan], after: Head, n_saving: int) -> list[int] | None:
        """Carry out what is queued; returns the replies to the commands of *plans*, ``None`` if nothing was done."""
        try:
            (done,) = self._writer.tell((b"EXEC",))
        except OSError as error:
            if self._reader.ask((b"GET", self._keys.head)) != [after.packed()]:
                raise self._writer.error("write to", str(error)) from error
            # It landed, and only the replies are lost.
            return self._count_again(plans)
        if done is None:
            return None
        if isinstance(done, ReplyError):
            raise self._writer.error("write to", str(done))
        for reply in done:
            if isinstance(reply, ReplyError):
                # Redis carries out the others: only a key of another kind in the place of ours can be the reason.
                self._broken = "a commit was stored in part"
                raise self._keys.damaged(f"the server could not carry out a part of a commit ({reply})")
        return cast("list[int]", done[n_saving:])

    def _count_again(self, plans: dict[Family, Plan]) -> list[int]:
        """Count the rows of the leaves that *plans* changed; what replies would have said of that is not needed."""
        for family, plan in plans.items():
            asked = [(b"HLEN", self._keys.leaf(family, each)) for each in plan.touched]
            counts = [n for part in chunks(asked, AT_ONCE) for n in self._reader.ask(*part)]
            for change, n in zip(plan.changes, counts, strict=True):
                change.n_rows = n
        return []

    def _commands(
        self, plans: dict[Family, Plan]
    ) -> tuple[list[Sequence[Argument]], dict[Family, dict[bytes, list[tuple[int, int]]]]]:
        """The commands of *plans*; and for each leaf, which of their replies count its rows, with a sign."""
        commands: list[Sequence[Argument]] = []
        counting: dict[Family, dict[bytes, list[tuple[int, int]]]] = {}
        for family, plan in plans.items():
            counted = counting[family] = {}
            for change in plan.changes:
                leaf = self._keys.leaf(family, change.separator)
                counted[change.separator] = places = []
                for deletes in chunks(change.deletes, _VALUES_AT_ONCE):
                    places.append((len(commands), -1))
                    commands.append((b"HDEL", leaf, *deletes))
                for keys in chunks([*change.puts], _VALUES_AT_ONCE):
                    puts: list[Argument] = [b"HSET", leaf]
                    puts += seal(family, change.puts, keys)
                    places.append((len(commands), 1))
                    commands.append(puts)
            for word, separators in ((b"SADD", plan.new), (b"SREM", plan.gone)):
                if separators:
                    commands.append((word, self._keys.separators[family], *separators))
        return commands, counting

    def _watch(self, plans: dict[Family, Plan]) -> _Saving | None:
        """Watch the head, which must be as it was, and the views.

        Returns:
            What has to be saved for these; ``None`` if some had died, so that this must be done again.
        """
        keys, writer = self._keys, self._writer
        # On a new connection, if need be. After this, a connection that breaks must not be replaced.
        _, data, views = writer.ask(
            (b"WATCH", keys.head, keys.views), (b"GET", keys.head), (b"SMEMBERS", keys.views)
        )
        if why := self._lease.why_refused(data):
            raise self._lease.lost(why)
        saving = _Saving()
        self._views = {view: saved for view, saved in self._views.items() if view in views}
        for view in views:
            is_alive, names = self._checked(
                writer.tell((b"EXISTS", keys.view(view)), (b"SMEMBERS", keys.saved(view)))
            )
            if not is_alive:
                forget_view(writer, keys, view)
                return None
            saving.add(keys, plans, view, self._views.setdefault(view, set(names)))
        return saving

    def _queue(self, commands: list[Sequence[Argument]]) -> None:
        """Let the server check and queue *commands*."""
        for reply in self._writer.tell((b"MULTI",), *commands):
            if isinstance(reply, ReplyError):
                with suppress(OSError):
                    self._writer.tell((b"DISCARD",))
                raise self._writer.error("write to", str(reply))

    def _save_for_scans(self, plans: dict[Family, Plan]) -> None:
        """Save the leaves that change, and that open scans have yet to read."""
        wanted: dict[tuple[Family, bytes], list[Scan]] = {}
        for scan in list(self._scans):
            if plan := plans.get(scan.family):
                for separator in scan.ahead(plan.touched):
                    wanted.setdefault((scan.family, separator), []).append(scan)
        for family in {family for family, _ in wanted}:
            separators = [separator for each, separator in wanted if each is family]
            for separator, rows in zip(separators, self._read_now(family, separators), strict=True):
                for scan in wanted[family, separator]:
                    scan.saved[separator] = rows

    def _checked(self, replies: list[Reply]) -> list[Reply]:
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise self._writer.error("write to", str(reply))
        return replies

    # -- the rest

    @property
    def head(self) -> bytes:
        """What the server has of the last commit, or of who has opened the job since: token, and number of the commit."""
        return self._lease.head.packed()

    def check_lease(self) -> None:
        """Do nothing if the job is still this process's, as far as that is known without asking the server.

        Raises:
            LostError: If it is not.
        """
        self._lease.check()

    @property
    def is_fading(self) -> bool:
        """Whether so little is left of the lease that nothing new should be begun."""
        return self._lease.is_fading

    def size_bytes(self) -> int:
        with self._reading:
            self._check_open()
            return measure(self._reader, self._keys, self._leaves)

    def verify(self) -> None:
        for family, leaves in self._leaves.items():
            deque(self.scan(family), maxlen=0)
            with self._reading:
                self._check_open()
                asked = [(b"HLEN", self._keys.leaf(family, each)) for each in leaves.filled]
                found = [n for part in chunks(asked, AT_ONCE) for n in self._reader.ask(*part)]
                if sum(found) != leaves.n_rows:
                    raise self._keys.damaged(
                        f"{family.name} has {sum(found):,} rows, and should have {leaves.n_rows:,}"
                    )

    def close(self) -> None:
        with self._writing, self._reading:
            if not self._is_closed:
                self._is_closed = True
                self._release()

    def _release(self) -> None:
        self._lease.close()
        for link in self._links:
            link.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError(f"The store in {self._address} is closed; open it again.")


class _Counted:
    """How many rows leaves have after a commit, by the replies to its commands."""

    def __init__(
        self, leaves: Leaves, counting: dict[bytes, list[tuple[int, int]]], replies: Sequence[int]
    ) -> None:
        self._leaves = leaves
        self._counting = counting
        self._replies = replies

    def __call__(self, change: Change) -> int:
        changed = sum(sign * self._replies[place] for place, sign in self._counting[change.separator])
        return self._leaves.count_of(change.separator) + changed


class _Saving:
    """What a commit has to save for views.

    Attributes:
        commands: Which do that.
    """

    def __init__(self) -> None:
        self.commands: list[Sequence[Argument]] = []
        self._names: list[tuple[set[bytes], list[bytes]]] = []

    def add(self, keys: Keys, plans: dict[Family, Plan], view: bytes, saved: set[bytes]) -> None:
        """Save what *plans* change for a *view*, for which the leaves *saved* have been saved."""
        names = []
        for family, plan in plans.items():
            new = {*plan.new}
            for separator in plan.touched:
                name = leaf_name(family, separator)
                if name not in saved and separator not in new:
                    names.append(name)
                    self.commands.append((b"COPY", keys.leaf(family, separator), keys.old(view, name)))
        for part in chunks(names, _VALUES_AT_ONCE):
            self.commands.append((b"SADD", keys.saved(view), *part))
        self._names.append((saved, names))

    def note(self) -> None:
        """The commit landed."""
        for saved, names in self._names:
            saved.update(names)


class Source(Protocol):
    """What a scan reads from."""

    def read_leaves(self, scan: Scan, separators: Sequence[bytes], /) -> list[Rows]:
        """The leaves *separators* as they were when *scan* began."""


class Scan(Iterator[tuple[bytes, bytes]]):
    """The rows of the leaves *separators* within *bounds*, the second of which they do not reach; leaf by leaf.

    Attributes:
        family: Whose rows they are.
        saved: Leaves that changed after the scan began, and before it came to them.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_keys",
        "_n",
        "_rows",
        "_separators",
        "_source",
        "_start",
        "_stop",
        "family",
        "saved",
    )

    def __init__(
        self,
        source: Source,
        keys: Keys,
        family: Family,
        bounds: tuple[bytes, bytes | None],
        separators: list[bytes],
    ) -> None:
        self._source = source
        self._keys = keys
        self.family = family
        self._start, self._stop = bounds
        self._separators = separators
        self._at = 0
        self._n = 1
        self._rows: Iterator[tuple[bytes, bytes]] = iter(())
        self.saved: dict[bytes, Rows] = {}

    def ahead(self, touched: Iterable[bytes]) -> list[bytes]:
        """Those of the leaves *touched* that it has yet to read, and that are not saved."""
        to_come = {*self._separators[self._at :]}
        return [each for each in touched if each in to_come and each not in self.saved]

    def __next__(self) -> tuple[bytes, bytes]:
        while True:
            for row in self._rows:
                return row
            if self._at == len(self._separators):
                raise StopIteration
            self._rows = iter(self._next_rows())

    def _next_rows(self) -> list[tuple[bytes, bytes]]:
        separators = self._separators[self._at : self._at + self._n]
        leaves = self._source.read_leaves(self, separators)
        self._at += len(separators)
        self._n = min(2 * self._n, _SCAN_LEAVES)
        rows: list[tuple[bytes, bytes]] = []
        for n, leaf in enumerate(leaves, self._at - len(leaves)):
            if not leaf:
                raise self._keys.damaged(f"a leaf of {self.family.name} is gone")
            pairs = sorted(leaf.items())
            after = self._separators[n + 1 : n + 2]
            if pairs[0][0] < self._separators[n] or (after and pairs[-1][0] >= after[0]):
                raise self._keys.damaged(f"a leaf of {self.family.name} has rows of another one")
            rows += pairs
        start, stop = self._start, self._stop
        if rows and (rows[0][0] < start or (stop is not None and rows[-1][0] >= stop)):
            rows = [row for row in rows if row[0] >= start and (stop is None or row[0] < stop)]
        return rows


def chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """*items* in their order, *size* at a time."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def ask_for_leaves(keys: Keys) -> list[Sequence[Argument]]:
    """Commands whose replies :func:`read_leaves` reads."""
    return [(b"SMEMBERS", keys.separators[family]) for family in Family]


def read_leaves(replies: Sequence[Reply]) -> dict[Family, Leaves]:
    """The leaves of all families; how many rows they have is not known yet."""
    return {family: Leaves(dict.fromkeys(reply, 1)) for family, reply in zip(Family, replies, strict=True)}


def read_values(
    keys: Keys, family: Family, groups: Iterable[Sequence[bytes]], replies: Iterable[Reply]
) -> dict[bytes, bytes | None]:
    """Values by key, of what the server replied for *groups* of keys.

    Raises:
        StorageError: If one is not as it was written.
    """
    found: dict[bytes, bytes | None] = {}
    for group, reply in zip(groups, replies, strict=True):
        for key, stored in zip(group, reply, strict=True):
            if stored is None:
                found[key] = None
            elif (value := unseal(family, key, stored)) is not None:
                found[key] = value
            else:
                raise keys.damaged(f"the row of {family.name} under {key.hex()} is not as it was written")
    return found


def read_rows(keys: Keys, family: Family, reply: Reply) -> Rows:
    """The rows of a leaf, of what the server said of it.

    Raises:
        StorageError: If one is not as it was written.
    """
    pairs = iter(reply)
    rows: Rows = {}
    for key, stored in zip(pairs, pairs, strict=True):
        value = unseal(family, key, stored)
        if value is None:
            raise keys.damaged(f"the row of {family.name} under {key.hex()} is not as it was written")
        rows[key] = value
    return rows


def measure(link: Link, keys: Keys, leaves: Mapping[Family, Leaves]) -> int:
    """Bytes of the server's memory that *leaves* take."""
    asked = [
        (b"MEMORY", b"USAGE", keys.leaf(family, each)) for family in Family for each in leaves[family].filled
    ]
    return sum(n or 0 for part in chunks(asked, AT_ONCE) for n in link.ask(*part))


def forget_view(link: Link, keys: Keys, view: bytes) -> None:
    """Remove what the server keeps for a *view*.

    Raises:
        StorageError: If the server cannot be reached.
    """
    (names,) = link.ask((b"SMEMBERS", keys.saved(view)))
    for part in chunks([*names], AT_ONCE):
        link.ask((b"UNLINK", *(keys.old(view, name) for name in part)))
    link.ask((b"UNLINK", keys.saved(view), keys.view(view)), (b"SREM", keys.views, view))

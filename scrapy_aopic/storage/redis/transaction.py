"""Commits to one or several stores on one server, as one transaction.

1. The head and the views of each store are watched (``WATCH``) and compared before the transaction, so the server carries it out
   only if they have not changed since: see :mod:`.server_lock`. A store whose head has changed takes no part, and is lost;
   the others are carried out without it.
2. A commit takes one round trip. It also watches and reads the heads for the next commit. If these are not known (the first
   commit, a broken connection), one more round trip reads them first.
3. Commands are sent before the lock is taken under which they are carried out, so that a reader waits for ``EXEC`` only. Readers
   see rows and leaves as of before a commit or after it.
4. If the reply is lost, the head says whether the commit has landed: no two commits have the same number, not even one that was
   given up and is still on its way to the server.
5. A leaf that may be emptied, or is far too large, is read before. One that is just too large, or has few rows left, is read with
   the commit, and cut or joined by the next one that changes it.

One transaction for all stores of a process was chosen over one for each: 16 shards make one request, and the server's log has
one entry to write and to flush. A script (``EVAL``) that compares and changes was tried, too: it needs no watching, but the server
takes 1.8 times the time for a page, because a script converts each key and value twice; and if only the comparison is a script,
commands behind it in the same request are carried out although it failed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from scrapy_aopic.exceptions import StorageError, UnreachableError

from .connection import Command, Connection, Reply, ReplyError
from .frozen_view import forget_view
from .keys import Keys, leaf_name
from .read_ahead import ReadAhead
from .rows import AT_ONCE, chunks, read_rows, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_aopic.core.ports import Batch, Family
    from scrapy_aopic.storage.address import Address

    from .leaves import Change, Leaves, Plan, Rows
    from .scan import Scan
    from .server_lock import ServerLock

T = TypeVar("T")

_ATTEMPTS = 50
"""Times that a commit is tried while views are opened and closed."""

_MOST_BROKEN = 2
"""Connections that may break during a commit: the first one may have been dropped by the server while it was idle."""

_RETRY = 0.2
"""Seconds after which a server that is away is tried again."""

_VALUES_AT_ONCE = 500
"""Pairs in a command, at most, so that no command is large."""

_MOST_LATE = 8
"""Leaves of a store that a commit reads for the next one, at most, so that neither waits for long."""

_MOST_TO_CUT = 100
"""Leaves that a store keeps in memory until a commit cuts or joins them: some hundred kilobytes."""


class StoreWatch:
    """The connection for commits, with the heads and views of the stores that it watches for the next commit.

    One thread at a time uses it, and the connection is used for nothing else, because each transaction ends all watches.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._stores: list[RedisStoreState] = []
        self._seen: dict[RedisStoreState, tuple[Reply, Reply]] = {}
        self._n_opened = 0

    def look(self, stores: Sequence[RedisStoreState]) -> list[tuple[Reply, Reply]]:
        """Head and views of *stores*, which are watched since.

        That needs no request if the last transaction has read them, and all heads are as they should be.

        Raises:
            StorageError: If the server cannot be reached, or refuses.
        """
        seen, self._seen = self._seen, {}
        if self._n_opened != self.connection.n_opened or any(
            each not in seen or seen[each][0] != each.lock.head.packed() for each in stores
        ):
            replies = self.connection.inquire((b"UNWATCH",), *self.questions(stores))
            self.note(self.connection.checked(replies[1:], "write to"))
            seen, self._seen = self._seen, {}
        return [seen[each] for each in stores]

    def questions(self, stores: Iterable[RedisStoreState]) -> list[Command]:
        """Commands that watch and read *stores*, and those of earlier commits that are still open."""
        self._stores = [*dict.fromkeys(chain((each for each in self._stores if each.can_commit), stores))]
        keys = [each.keys for each in self._stores]
        if not keys:
            return []
        watch = (b"WATCH", *(name for each in keys for name in (each.head, each.views)))
        reads = (question for each in keys for question in ((b"GET", each.head), (b"SMEMBERS", each.views)))
        return [watch, *reads]

    def note(self, replies: Sequence[Reply]) -> None:
        """The *replies* to :meth:`questions`, unless one is an error."""
        if not any(isinstance(each, ReplyError) for each in replies):
            self._seen = dict(zip(self._stores, zip(replies[1::2], replies[2::2], strict=True), strict=True))
            self._n_opened = self.connection.n_opened


class StoreCommit:
    """The changes of *batch* to *store*, and their outcome.

    Attributes:
        failure: Why it was not stored; ``None`` if it was, or may be.
        is_done: Whether that is known.
    """

    def __init__(self, store: RedisStoreState, batch: Batch) -> None:
        self.store = store
        self.failure: StorageError | None = None
        self.is_done = False
        self._batch = batch
        self._after = store.lock.next_head()
        self._groups: dict[Family, dict[bytes, list[bytes]]] = {}
        self._missing: list[tuple[Family, bytes]] = []
        self._late: list[tuple[Family, bytes]] = []
        self._late_replies: Sequence[Reply] = ()
        self._plans: dict[Family, Plan] = {}
        self._changing: list[Command] = []
        # The change whose rows the reply to each of these counts, with a sign.
        self._counted: list[tuple[Change, int] | None] = []
        self._saving: list[Command] = []  # for views
        with self.failing():
            store.check_writable()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Errors of this store do not concern the others."""
        try:
            yield
        except StorageError as error:
            self.fail(error)

    def fail(self, error: StorageError) -> None:
        """Note that it was not stored, because of *error*."""
        self.failure, self.is_done = error, True

    # -- before anything is sent

    def missing(self) -> list[Command]:
        """Commands that read the leaves that :meth:`plan` needs."""
        store = self.store
        for family, rows in self._batch.items():
            if rows:
                leaves = store.leaves[family]
                groups = self._groups[family] = leaves.group(rows)
                for each in leaves.to_read(rows, groups):
                    if (family, each) not in store.to_cut:
                        may_wait = leaves.may_wait(each, groups[each], rows)
                        (self._late if may_wait else self._missing).append((family, each))
        del self._late[_MOST_LATE:]
        return self._reading(self._missing)

    @property
    def late(self) -> list[Command]:
        """Commands that read, after the transaction, the leaves that the next one cuts or joins."""
        return self._reading(self._late)

    def _reading(self, leaves: Iterable[tuple[Family, bytes]]) -> list[Command]:
        return [(b"HGETALL", self.store.keys.leaf(*each)) for each in leaves]

    def plan(self, replies: Sequence[Reply]) -> None:
        """Plan what changes, by the *replies* to :meth:`missing`.

        Raises:
            StorageError: If a row was changed since it was written.
        """
        store = self.store
        known: dict[Family, dict[bytes, Rows]] = {family: {} for family in self._groups}
        for (family, separator), rows in store.to_cut.items():
            if family in known:
                known[family][separator] = rows
        for (family, separator), reply in zip(self._missing, replies, strict=True):
            known[family][separator] = read_rows(store.keys, family, reply)
        for family, groups in self._groups.items():
            plan = store.leaves[family].plan(self._batch[family], groups, known[family])
            if plan.changes:
                self._plans[family] = plan
                self._add_commands(family, plan)
        self._add((b"SET", store.keys.head, self._after.packed()))

    def _add_commands(self, family: Family, plan: Plan) -> None:
        keys = self.store.keys
        for change in plan.changes:
            leaf = keys.leaf(family, change.separator)
            for deletes in chunks(change.deletes, _VALUES_AT_ONCE):
                self._add((b"HDEL", leaf, *deletes), (change, -1))
            for put in chunks([*change.puts], _VALUES_AT_ONCE):
                self._add((b"HSET", leaf, *seal(family, change.puts, put)), (change, 1))
        for word, separators in ((b"SADD", plan.new), (b"SREM", plan.gone)):
            if separators:
                self._add((word, keys.separators[family], *separators))

    def _add(self, command: Command, counted: tuple[Change, int] | None = None) -> None:
        self._changing.append(command)
        self._counted.append(counted)

    # -- the transaction

    def is_ready(self, head: Reply, views: Sequence[bytes], connection: Connection) -> bool:
        """Compare *head* and *views* with the expected ones; returns whether the commit may be carried out if they stay so.

        If it may not, it is done (it landed before, or the store is lost), or the heads and views of all stores must be read again:
        requests that may be repeated may have opened another connection, which watches nothing.

        Raises:
            StorageError: If the head cannot be parsed, or the server cannot be reached.
            OSError: If the connection broke.
        """
        lock = self.store.lock
        if head == self._after.packed():  # the reply was lost
            self._count_again(connection)
            self._landed()
            return False
        if head != lock.head.packed() and (why := lock.why_refused(head)):
            self.fail(lock.lost(why))
            return False
        return self._save_for(views, connection)

    def _count_again(self, connection: Connection) -> None:
        """Read the number of rows of the changed leaves, because the replies to the changes are lost."""
        leaf = self.store.keys.leaf
        for family, plan in self._plans.items():
            commands = [(b"HLEN", leaf(family, each)) for each in plan.touched]
            counts = [n for part in chunks(commands, AT_ONCE) for n in connection.ask(*part)]
            for change, n in zip(plan.changes, counts, strict=True):
                change.n_rows = n

    def _save_for(self, views: Sequence[bytes], connection: Connection) -> bool:
        """Copy the leaves that change and were not copied before, for each of the *views*; false if one has died."""
        keys = self.store.keys
        leaves = {
            leaf_name(family, separator): keys.leaf(family, separator)
            for family, plan in (self._plans.items() if views else ())
            for separator in {*plan.touched}.difference(plan.new)
        }
        self._saving = []
        for view in views:
            is_alive, saved = connection.checked(
                connection.tell((b"EXISTS", keys.view(view)), (b"SMEMBERS", keys.saved(view))), "write to"
            )
            if not is_alive:
                forget_view(connection, keys, view)
                return False
            names = [*leaves.keys() - saved]
            self._saving += ((b"COPY", leaves[name], keys.old(view, name)) for name in names)
            self._saving += ((b"SADD", keys.saved(view), *part) for part in chunks(names, _VALUES_AT_ONCE))
        return True

    @property
    def commands(self) -> list[Command]:
        """The commands of its part of the transaction."""
        return self._saving + self._changing

    def stop_readers(self, locks: ExitStack, stopped: set[threading.Lock]) -> None:
        """Have reads of the store wait until *locks* are released, unless they are among those that are *stopped*."""
        if self.store.reading not in stopped:
            stopped.add(self.store.reading)
            locks.enter_context(self.store.reading)

    def save_for_scans(self) -> None:
        """Read the leaves that change, for the scans of this process that have yet to come to them.

        Raises:
            StorageError: If they cannot be read.
        """
        store = self.store
        wanted: dict[tuple[Family, bytes], list[Scan]] = {}
        for scan in list(store.scans):
            if plan := self._plans.get(scan.family):
                for separator in scan.ahead(plan.touched):
                    wanted.setdefault((scan.family, separator), []).append(scan)
        for family in {family for family, _ in wanted}:
            separators = [separator for each, separator in wanted if each is family]
            for separator, rows in zip(separators, store.rows_of(family, separators), strict=True):
                for scan in wanted[family, separator]:
                    scan.saved[separator] = rows
        store.ahead.changed(self._batch)

    def carried_out(self, replies: Sequence[Reply], late_replies: Sequence[Reply]) -> None:
        """Note that the server has carried it out, with *replies* to :attr:`commands` and *late_replies* to :attr:`late`."""
        for reply in replies:
            if isinstance(reply, ReplyError):
                # The others were carried out: only a key of another kind in the place of ours can be the reason.
                self.store.broken = "a commit was stored in part"
                damage = f"the server could not carry out a part of a commit ({reply})"
                self.fail(self.store.keys.damaged(damage))
                return
        for counted, reply in zip(self._counted, replies[len(self._saving) :], strict=True):
            if counted is not None:
                change, sign = counted
                change.n_added += sign * reply
        self._late_replies = late_replies
        self._landed()

    def _landed(self) -> None:
        store = self.store
        store.lock.head = self._after
        for family, plan in self._plans.items():
            store.leaves[family].apply(plan)
            for separator in plan.touched:
                store.to_cut.pop((family, separator), None)
        self.is_done = True

    def keep_late(self) -> None:
        """Keep the leaves of :attr:`late` for the next commit."""
        store = self.store
        for (family, separator), reply in zip(self._late, self._late_replies, strict=False):
            if len(store.to_cut) == _MOST_TO_CUT:
                return
            try:
                store.to_cut[family, separator] = read_rows(store.keys, family, reply)
            except StorageError:
                store.broken = f"a leaf of {family.name} was changed since it was written"
                return


def write_batches(
    batches: Sequence[tuple[RedisStoreState, Batch]], watch: StoreWatch
) -> list[StorageError | None]:
    """Write *batches*, each to a store of its own, as one transaction.

    Args:
        watch: Its connection is pinned to the run of the server that the stores are pinned to, if they are.

    Returns:
        Why each was not stored, ``None`` if it was.
    """
    with ExitStack() as locks:
        commits = []
        for store, batch in batches:
            locks.enter_context(store.writing)
            commits.append(StoreCommit(store, batch))
        try:
            _plan(commits, watch.connection)
            _carry_out(commits, watch)
        except StorageError as error:
            watch.connection.close()  # and with it what is watched and queued
            for each in _undone(commits):
                each.fail(error)
        for each in commits:
            each.keep_late()
        return [each.failure for each in commits]


def _undone(commits: Iterable[StoreCommit]) -> list[StoreCommit]:
    return [each for each in commits if not each.is_done]


def _plan(commits: Sequence[StoreCommit], connection: Connection) -> None:
    commits = _undone(commits)
    missing = [each.missing() for each in commits]
    replies = iter([reply for part in chunks([*chain(*missing)], AT_ONCE) for reply in connection.ask(*part)])
    for each, commands in zip(commits, missing, strict=True):
        with each.failing():
            each.plan([*islice(replies, len(commands))])


def _carry_out(commits: Sequence[StoreCommit], watch: StoreWatch) -> None:
    """Carry out *commits*; nothing was done of one that is not done afterwards.

    Raises:
        StorageError: If the server refuses, or cannot be reached.
    """
    connection = watch.connection
    broken: list[OSError] = []
    stopped: set[threading.Lock] = set()
    # The stores are not read from the first attempt until it is known whether that has landed.
    with ExitStack() as locks:
        for _ in range(_ATTEMPTS):
            if not (todo := _undone(commits)):
                return
            seen = watch.look([each.store for each in todo])
            try:
                if not _are_ready(todo, seen, connection):
                    continue
                if len(broken) == _MOST_BROKEN:
                    raise connection.unreachable("write to", broken[-1])
                _execute(todo, watch, locks, stopped)
            except StorageError:  # which is an OSError, too
                raise
            except OSError as error:
                broken.append(error)
    raise connection.error("write to", "too many views of it are opened and closed")


def _are_ready(
    commits: Sequence[StoreCommit], seen: Sequence[tuple[Reply, Reply]], connection: Connection
) -> bool:
    """Whether all *commits* may be carried out, given the heads and views that were *seen*."""
    n_ready = 0
    for each, (head, views) in zip(commits, seen, strict=True):
        with each.failing():
            n_ready += each.is_ready(head, views, connection)
    return n_ready == len(commits)


def _execute(
    commits: Sequence[StoreCommit], watch: StoreWatch, locks: ExitStack, stopped: set[threading.Lock]
) -> None:
    """Have the server carry out *commits*, unless a watched key has changed.

    Raises:
        StorageError: If the server refuses, or a leaf cannot be read; nothing was done.
        OSError: If the connection broke.
    """
    connection = watch.connection
    queued = [(b"MULTI",), *chain(*(each.commands for each in commits))]
    late = [each.late for each in commits]
    lane: deque[Reply] = deque()
    connection.send_ahead(lane, *queued)
    for each in commits:
        each.stop_readers(locks, stopped)
        each.save_for_scans()
    questions = watch.questions(each.store for each in commits)
    done, *replies = connection.tell((b"EXEC",), *chain(*late), *questions)
    refused = [each for each in connection.came(len(queued), lane) or () if isinstance(each, ReplyError)]
    if isinstance(done, ReplyError):
        raise connection.error("write to", str((*refused, done)[0]))
    rest = iter(replies)
    late_replies = [[*islice(rest, len(reads))] for reads in late]
    watch.note([*rest])
    if done is not None:  # else a head has changed, or a view was opened
        carried_out = iter(done)
        for each, of_late in zip(commits, late_replies, strict=True):
            each.carried_out([*islice(carried_out, len(each.commands))], of_late)


class RedisStoreState:
    """The state of the store at *address*, which is open.

    Attributes:
        lock: The right to change it.
        reader: Connection that is used with *reading* held.
        leaves: Leaves of each family; they change with *writing* and *reading* held.
        ahead: Rows that are read before they are wanted; used with *reading* held.
        writing: One commit at a time.
        reading: Leaves and rows do not change while this is held, which stores share that share the connection.
        scans: Scans that may not have ended.
        to_cut: Leaves that have too many rows, or few, with these, as of the last commit.
        broken: Why it takes no more writes; empty if it takes them.
    """

    def __init__(
        self,
        address: Address,
        keys: Keys,
        lock: ServerLock,
        leaves: dict[Family, Leaves],
        *,
        reader: Connection,
        reading: threading.Lock,
    ) -> None:
        self.address = address
        self.keys = keys
        self.lock = lock
        self.reader = reader
        self.leaves = leaves
        self.ahead = ReadAhead(reader, keys)
        self.writing = threading.Lock()
        self.reading = reading
        self.scans: WeakSet[Scan] = WeakSet()
        self.to_cut: dict[tuple[Family, bytes], Rows] = {}
        self.broken = ""
        self.is_closed = False

    def check_open(self) -> None:
        """Check that it is open.

        Raises:
            StorageError: If it is not.
        """
        if self.is_closed:
            raise StorageError(f"The store in {self.address} is closed; open it again.")

    @property
    def can_commit(self) -> bool:
        """Whether there may be another commit, as far as that is known."""
        return not (self.is_closed or self.broken or self.lock.is_lost)

    def check_writable(self) -> None:
        """Check that it is open and takes writes, as far as that is known without asking the server.

        Raises:
            LostError: If the job is another process's.
            StorageError: If it takes no writes for another reason.
        """
        self.check_open()
        if self.broken:
            raise StorageError(
                f"The store in {self.address} takes no more writes: {self.broken}; open it again."
            )
        self.lock.check()

    def patiently(self, task: Callable[[], T]) -> T:
        """The result of *task*, which is tried again while the server is away and the lock holds.

        A store that is one of many is opened again instead, in a thread.
        """
        while True:
            try:
                return task()
            except UnreachableError:
                if self.lock.run or self.is_closed or self.lock.is_lost or self.lock.is_over:
                    raise
            time.sleep(_RETRY)

    def read(self, *commands: Command) -> list[Reply]:
        """The replies to *commands* that read; used with *reading* held."""
        return self.patiently(lambda: self.reader.ask(*commands))

    def rows_of(self, family: Family, separators: Sequence[bytes]) -> list[Rows]:
        """The rows of leaves, as they are on the server; used with *reading* held."""
        leaf = self.keys.leaf
        replies = self.read(*((b"HGETALL", leaf(family, each)) for each in separators))
        return [read_rows(self.keys, family, reply) for reply in replies]

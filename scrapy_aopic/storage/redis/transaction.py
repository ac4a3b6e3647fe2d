"""Commits of stores on one server: batches of several of them in one transaction, or of one.

1. A transaction also compares and moves on the head of each job that it changes: see :mod:`.writer_lease`. A store whose head is
   not as it was takes no part, and is lost; the others are carried out without it.
2. A commit takes one round trip if nobody else has touched its stores since the last one: that one has also watched the heads
   for it, and read them. Otherwise it takes two: in the first, the server watches and reads the heads, and checks and
   queues all commands; in the second, it carries them out. Another one comes before these if a leaf has to be read that
   cannot wait: one that may be gone afterwards, or is far too large. One that is just too large, or has few rows left, is
   read with the last one, and cut or joined by the next commit that changes it.
3. Commands are sent before the lock is taken under which they are carried out. Rows and leaves that a reader of a store sees
   are those before a commit or those after it.
4. Whether a commit landed whose reply is lost is seen by the heads, for no two have the same number: one that was given up
   may still be on its way to the server, and land instead of the next one.

One transaction for all that a process commits at a time was chosen over one for each store: it makes a request of what would
be one for each of 16 shards, and the server's log has one entry to write and to flush.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from scrapy_aopic.exceptions import StorageError, plainly

from .connect import connect
from .connection import ReplyError
from .keys import leaf_name, seal
from .read_ahead import Ahead
from .replies import AT_ONCE, chunks, forget_view, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_aopic.core.ports import Batch, Family
    from scrapy_aopic.storage.address import Address

    from .connection import Argument, Link, Reply
    from .keys import Head, Keys
    from .leaves import Change, Leaves, Plan, Rows
    from .writer_lease import Lease

_ATTEMPTS = 50
"""Times that a commit is tried while views come and go."""

_VALUES_AT_ONCE = 500
"""Pairs in a command, at most, so that no command is large."""

_MOST_LATE = 8
"""Leaves of a store that a commit reads for the next one, at most, so that neither waits for long."""

_TO_CUT = 100
"""Leaves that a store keeps in memory until a commit cuts or joins them: some hundred kilobytes."""


class Reading(Protocol):
    """Somebody who is reading the leaves of a family, one after another, as they were when that began.

    Attributes:
        saved: Leaves that changed since, and that are yet to be read.
    """

    family: Family
    saved: dict[bytes, Rows]

    def ahead(self, touched: Iterable[bytes]) -> list[bytes]:
        """Those of the leaves *touched* that are yet to be read, and not saved."""
        ...


class Opened:
    """The store at *address*, which is open.

    Args:
        links: Two connections, for *reader* and *writer*.

    Attributes:
        reader: Connection that is used with *reading* held.
        writer: What its commits are sent by unless they are sent with others; used with *writing* held.
        writing: One commit at a time.
        reading: Leaves and rows do not change while this is held.
        readings: Who is reading leaves one after another.
        views: Of other processes: leaves that were saved for each.
        to_cut: Leaves that have too many rows, or few, with these, as of the last commit.
        broken: Why it takes no more writes; empty if it does.
    """

    def __init__(
        self,
        address: Address,
        keys: Keys,
        lease: Lease,
        links: tuple[Link, Link],
        leaves: dict[Family, Leaves],
    ) -> None:
        self.address = address
        self.keys = keys
        self.lease = lease
        self.reader, writer = links
        self.writer = Writer(writer)
        self.leaves = leaves
        self.ahead = Ahead(self.reader, keys)
        self.writing = threading.Lock()
        self.reading = threading.Lock()
        self.readings: WeakSet[Reading] = WeakSet()
        self.views: dict[bytes, set[bytes]] = {}
        self.to_cut: dict[tuple[Family, bytes], Rows] = {}
        self.broken = ""
        self.is_closed = False

    def check(self) -> None:
        """Do nothing if it is open.

        Raises:
            StorageError: If it is not.
        """
        if self.is_closed:
            raise StorageError(f"The store in {self.address} is closed; open it again.")

    @property
    def can_commit(self) -> bool:
        """Whether there may be another commit, as far as that is known."""
        return not (self.is_closed or self.broken or self.lease.is_lost)

    def check_writable(self) -> None:
        """Do nothing if it is open and takes writes, as far as that is known without asking the server.

        Raises:
            LostError: If the job is another process's.
            StorageError: If it takes none for another reason.
        """
        self.check()
        if self.broken:
            raise StorageError(
                f"The store in {self.address} takes no more writes: {self.broken}; open it again."
            )
        self.lease.check()

    def read_leaves(self, family: Family, separators: Sequence[bytes]) -> list[Rows]:
        """The rows of leaves, as they are on the server."""
        leaf = self.keys.leaf
        replies = self.reader.ask(*((b"HGETALL", leaf(family, each)) for each in separators))
        return [read_rows(self.keys, family, reply) for reply in replies]

    def close(self) -> None:
        """Let others have it, once nobody reads or writes. Idempotent."""
        with self.writing, self.reading:
            if not self.is_closed:
                self.is_closed = True
                self.lease.close()
                self.reader.close()
                self.writer.link.close()


class Writer:
    """What commits are sent by: *link*, and what is watched on it for the next one.

    It is used by one thread at a time, and its connection by nothing else, for each transaction ends all that is watched.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._stores: list[Opened] = []
        self._found: dict[Opened, list[Reply]] = {}
        self._connection = 0

    def watching(self, commits: Iterable[Commit]) -> list[Sequence[Argument]]:
        """What watches and looks at the stores of *commits*, and those before that are still open, for the next commit."""
        stores = dict.fromkeys([*self._stores, *(each.opened for each in commits)])
        self._stores = [each for each in stores if each.can_commit]
        return watching(self._stores)

    def note(self, replies: Sequence[Reply]) -> None:
        """What :meth:`watching` named is watched since *replies*."""
        if self._stores and not any(isinstance(each, ReplyError) for each in replies):
            self._found = dict(zip(self._stores, looks_of(replies), strict=True))
            self._connection = self.link.n_opened

    def found(self, commits: Iterable[Commit]) -> list[list[Reply]] | None:
        """What was found in the stores of *commits*, all of which are watched since; ``None`` if one is not.

        It is found once, because whatever comes next ends that.
        """
        found, self._found = self._found, {}
        if self._connection != self.link.n_opened:
            return None
        known = [found.get(each.opened) for each in commits]
        return [each for each in known if each is not None] if None not in known else None


def watching(stores: Sequence[Opened]) -> list[Sequence[Argument]]:
    """What watches and looks at *stores*; nothing if there are none."""
    keys = [each.keys for each in stores]
    if not keys:
        return []
    looks: list[Sequence[Argument]] = [
        (b"WATCH", *(name for each in keys for name in (each.head, each.views)))
    ]
    for each in keys:
        looks += ((b"GET", each.head), (b"SMEMBERS", each.views))
    return looks


def looks_of(replies: Sequence[Reply]) -> list[list[Reply]]:
    """Head and views of each store in the *replies* to what :func:`watching` returned."""
    return [[*pair] for pair in zip(replies[1::2], replies[2::2], strict=True)]


class Commit:
    """What *batch* changes in a store that is *opened*, and what has become of that.

    Attributes:
        failure: Why it was not stored; ``None`` if it was, or may be.
        is_done: Whether that is known.
    """

    def __init__(self, opened: Opened, batch: Batch) -> None:
        self.opened = opened
        self.failure: StorageError | None = None
        self.is_done = False
        self._batch = batch
        self._plans: dict[Family, Plan] = {}
        self._groups: dict[Family, dict[bytes, list[bytes]]] = {}
        self._missing: list[tuple[Family, bytes]] = []
        self._late: list[tuple[Family, bytes]] = []
        self._commands: list[Sequence[Argument]] = []
        self._saving: _Saving | None = None
        self._counting: dict[Family, dict[bytes, list[tuple[int, int]]]] = {}
        self._after: Head = opened.lease.next_head()
        with _failing(self):
            opened.check_writable()

    def fail(self, error: StorageError) -> None:
        """It was not stored, because of *error*."""
        self.failure, self.is_done = error, True

    # -- before anything is sent

    def missing(self) -> list[Sequence[Argument]]:
        """What reads the leaves that :meth:`plan` needs."""
        opened = self.opened
        for family, rows in self._batch.items():
            if rows:
                leaves = opened.leaves[family]
                groups = self._groups[family] = leaves.group(rows)
                for each in leaves.to_read(rows, groups):
                    if (family, each) not in opened.to_cut:
                        may_wait = leaves.may_wait(each, groups[each], rows)
                        (self._late if may_wait else self._missing).append((family, each))
        del self._late[_MOST_LATE:]
        return self._reading(self._missing)

    @property
    def late(self) -> list[Sequence[Argument]]:
        """What reads, after the transaction, the leaves that the next one cuts or joins."""
        return self._reading(self._late)

    def _reading(self, leaves: Iterable[tuple[Family, bytes]]) -> list[Sequence[Argument]]:
        return [(b"HGETALL", self.opened.keys.leaf(*each)) for each in leaves]

    def plan(self, replies: Sequence[Reply]) -> None:
        """Make a plan, with the *replies* to what :meth:`missing` returned.

        Raises:
            StorageError: If one is not as it was written.
        """
        opened = self.opened
        known: dict[Family, dict[bytes, Rows]] = {family: {} for family in self._groups}
        for (family, separator), rows in opened.to_cut.items():
            if family in known:
                known[family][separator] = rows
        for (family, separator), reply in zip(self._missing, replies, strict=True):
            known[family][separator] = read_rows(opened.keys, family, reply)
        for family, groups in self._groups.items():
            plan = opened.leaves[family].plan(self._batch[family], groups, known[family])
            if plan.changes:
                self._plans[family] = plan
        self._make_commands()

    def _make_commands(self) -> None:
        """Make the commands; and note for each leaf, which of their replies count its rows, with a sign."""
        keys, commands = self.opened.keys, self._commands
        for family, plan in self._plans.items():
            counted = self._counting[family] = {}
            for change in plan.changes:
                leaf = keys.leaf(family, change.separator)
                counted[change.separator] = places = []
                for deletes in chunks(change.deletes, _VALUES_AT_ONCE):
                    places.append((len(commands), -1))
                    commands.append((b"HDEL", leaf, *deletes))
                for put in chunks([*change.puts], _VALUES_AT_ONCE):
                    puts: list[Argument] = [b"HSET", leaf]
                    puts += seal(family, change.puts, put)
                    places.append((len(commands), 1))
                    commands.append(puts)
            for word, separators in ((b"SADD", plan.new), (b"SREM", plan.gone)):
                if separators:
                    commands.append((word, keys.separators[family], *separators))
        commands.append((b"SET", keys.head, self._after.packed()))

    # -- the transaction

    def expects(self, head: Reply, views: Reply) -> bool:
        """Whether nobody has the store open for whom something would have to be saved, and the *head* is that of its last commit."""
        self._saving = None
        return not views and head == self.opened.lease.head.packed()

    def compare(self, head: Reply, views: Reply) -> list[bytes]:
        """Compare the *head*, as it is now, with what it should be; returns the *views* that are open.

        The store is lost if it has another head.

        Raises:
            StorageError: If the head is none.
        """
        self._saving = None
        if why := self.opened.lease.why_refused(head):
            self.fail(self.opened.lease.lost(why))
            return []
        return [*views]

    def save_for(self, views: Iterable[bytes], link: Link) -> bool:
        """Prepare to save, for open *views*, what changes; whether all these are alive, else they have to be read again."""
        opened, keys = self.opened, self.opened.keys
        self._saving = saving = _Saving()
        opened.views = {view: saved for view, saved in opened.views.items() if view in views}
        for view in views:
            is_alive, names = link.checked(
                link.tell((b"EXISTS", keys.view(view)), (b"SMEMBERS", keys.saved(view))), "write to"
            )
            if not is_alive:
                forget_view(link, keys, view)
                return False
            saving.add(keys, self._plans, view, opened.views.setdefault(view, set(names)))
        return True

    @property
    def commands(self) -> list[Sequence[Argument]]:
        """All that its part of the transaction does."""
        return [*self._saving.commands, *self._commands] if self._saving is not None else self._commands

    def save_for_readings(self) -> None:
        """Save the leaves that change, and that are yet to be read by those who began before.

        Raises:
            StorageError: If they cannot be read.
        """
        opened = self.opened
        wanted: dict[tuple[Family, bytes], list[Reading]] = {}
        for reading in list(opened.readings):
            if plan := self._plans.get(reading.family):
                for separator in reading.ahead(plan.touched):
                    wanted.setdefault((reading.family, separator), []).append(reading)
        for family in {family for family, _ in wanted}:
            separators = [separator for each, separator in wanted if each is family]
            for separator, rows in zip(separators, opened.read_leaves(family, separators), strict=True):
                for reading in wanted[family, separator]:
                    reading.saved[separator] = rows
        opened.ahead.changed(self._batch)

    def carried_out(self, replies: Sequence[Reply]) -> None:
        """The server has carried it out, with *replies* to :attr:`commands`."""
        opened = self.opened
        for reply in replies:
            if isinstance(reply, ReplyError):
                # The others were carried out: only a key of another kind in the place of ours can be the reason.
                opened.broken = "a commit was stored in part"
                said = f"the server could not carry out a part of a commit ({reply})"
                self.fail(opened.keys.damaged(said))
                return
        n_saving = len(self._saving.commands) if self._saving is not None else 0
        self._apply(replies[n_saving:])

    def find_out(self, head: bytes | None, link: Link) -> None:
        """The reply is lost, and the server has *head* now; it is done if that is its own.

        Raises:
            StorageError: If the server cannot be reached.
        """
        if head != self._after.packed():
            return
        # It landed. The rows of leaves are counted again; what replies would have said of the rest is not needed.
        for family, plan in self._plans.items():
            asked = [(b"HLEN", self.opened.keys.leaf(family, each)) for each in plan.touched]
            counts = [n for part in chunks(asked, AT_ONCE) for n in link.ask(*part)]
            for change, n in zip(plan.changes, counts, strict=True):
                change.n_rows = n
        self._apply([])

    def _apply(self, replies: Sequence[int]) -> None:
        """It landed."""
        opened = self.opened
        opened.lease.head = self._after
        if self._saving is not None:
            self._saving.note()
        for family, plan in self._plans.items():
            leaves = opened.leaves[family]
            leaves.apply(plan, _Counted(leaves, self._counting[family], replies))
            for change in plan.changes:
                opened.to_cut.pop((family, change.separator), None)
        self.is_done = True

    def note_to_cut(self, replies: Sequence[Reply]) -> None:
        """Keep what :attr:`late` has read for the next commit, if this one has landed."""
        opened = self.opened
        if self.failure is not None or not self.is_done:
            return
        for (family, separator), reply in zip(self._late, replies, strict=True):
            if len(opened.to_cut) == _TO_CUT:
                return
            try:
                opened.to_cut[family, separator] = read_rows(opened.keys, family, reply)
            except StorageError:
                opened.broken = f"a leaf of {family.name} is not as it was written"
                return


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


def commit(commits: Sequence[Commit], writer: Writer) -> None:
    """Carry out *commits* by *writer* as one transaction; what has become of each is in its attributes.

    Args:
        commits: Of stores on one server, whose ``writing`` is held.
        writer: Its link is pinned to the run of the server that the stores are pinned to, if they are.
    """
    link = writer.link
    try:
        _plan(commits, link)
        is_bold = True
        for _ in range(_ATTEMPTS):
            if not (todo := [each for each in commits if not each.is_done]):
                return
            if (found := writer.found(todo)) is not None:
                _try_at_once(todo, found, writer)
            else:
                is_bold = _try(todo, writer, is_bold=is_bold)
        raise link.error("write to", "too many views of it are opened and closed")
    except StorageError as error:
        failure = error
    except OSError as error:
        failure = link.error("write to", plainly(error))
    link.close()  # and with it what is watched and queued
    for each in commits:
        if not each.is_done:
            each.fail(failure)


def _plan(commits: Sequence[Commit], link: Link) -> None:
    missing = [each.missing() for each in commits]
    replies = iter([reply for part in chunks([*chain(*missing)], AT_ONCE) for reply in link.ask(*part)])
    for each, commands in zip(commits, missing, strict=True):
        with _failing(each):
            each.plan([*islice(replies, len(commands))])


def _try_at_once(commits: Sequence[Commit], found: Sequence[Sequence[Reply]], writer: Writer) -> None:
    """Try to carry out *commits*, whose stores are watched since that was *found* in them; if one is not done then, look at
    them first.

    Raises:
        StorageError: If the server refuses, or something cannot be read; nothing was done.
    """
    if not all(each.expects(*looks) for each, looks in zip(commits, found, strict=True)):
        return
    queued = _queued(commits)
    try:
        writer.link.send_ahead(*queued)
    except OSError:  # while it was not used
        return
    _carry_out(commits, writer, len(queued))


def _try(commits: Sequence[Commit], writer: Writer, *, is_bold: bool) -> bool:
    """Look at the stores of *commits*, and try to carry them out; those that are not done then have to be tried once more.

    Args:
        is_bold: Whether to let the server queue everything before it is known whether views are open, for which something would
            have to be saved: there are seldom any.

    Returns:
        Whether to be bold the next time.

    Raises:
        StorageError: If the server refuses, or something cannot be read; nothing was done.
        OSError: If the connection broke before anything was done.
    """
    link = writer.link
    looks = watching([each.opened for each in commits])
    # On a new connection, if need be. After this, a connection that breaks must not be replaced.
    replies = _accepted(link, link.inquire((b"UNWATCH",), *looks, *(_queued(commits) if is_bold else ())))
    views: list[list[bytes]] = []
    for each, found in zip(commits, looks_of(replies[1 : 1 + len(looks)]), strict=True):
        with _failing(each):
            views.append(each.compare(*found))
    has_views = any(views)
    if any(each.is_done for each in commits) or (is_bold and has_views):
        _forget(link)
        return is_bold and not has_views
    if not is_bold:
        for each, open_ in zip(commits, views, strict=True):
            if not each.save_for(open_, link):
                link.ask((b"UNWATCH",))
                return False
        _accepted(link, link.tell(*_queued(commits)))
    if error := _carry_out(commits, writer):
        for each in commits:
            if not each.is_done:
                each.fail(link.error("write to", plainly(error)))
    return is_bold


def _queued(commits: Iterable[Commit]) -> list[Sequence[Argument]]:
    """What lets the server queue *commits*."""
    return [(b"MULTI",), *chain(*(each.commands for each in commits))]


def _carry_out(commits: Sequence[Commit], writer: Writer, n_ahead: int = 0) -> OSError | None:
    """Carry out what is queued; nothing was done if none is done afterwards.

    Args:
        n_ahead: Commands that were sent ahead.

    Returns:
        Why the connection broke, if it did.

    Raises:
        StorageError: If the server refuses, or cannot be reached.
    """
    link = writer.link
    late = [each.late for each in commits]
    with ExitStack() as held:
        for each in commits:
            held.enter_context(each.opened.reading)
        for each in commits:
            each.save_for_readings()
        try:
            done, *replies = link.tell((b"EXEC",), *chain(*late), *writer.watching(commits))
        except OSError as error:
            heads = link.ask(*((b"GET", each.opened.keys.head) for each in commits))
            for each, head in zip(commits, heads, strict=True):
                each.find_out(head, link)
            return error
        refused = [each for each in link.came(n_ahead) or () if isinstance(each, ReplyError)]
        if isinstance(done, ReplyError):
            raise link.error("write to", str((*refused, done)[0]))
        if done is not None:  # else a head has changed, or a view was opened
            carried_out = iter(done)
            for each in commits:
                each.carried_out([*islice(carried_out, len(each.commands))])
    rest = iter(replies)
    for each, asked in zip(commits, late, strict=True):
        each.note_to_cut([*islice(rest, len(asked))])
    writer.note([*rest])
    return None


def _accepted(link: Link, replies: list[Reply]) -> list[Reply]:
    """The *replies*, if none is an error; else nothing stays queued.

    Raises:
        StorageError: If one is.
    """
    for reply in replies:
        if isinstance(reply, ReplyError):
            _forget(link)
            raise link.error("write to", str(reply))
    return replies


def _forget(link: Link) -> None:
    """Let nothing be queued any more, if anything is; a connection that has broken meanwhile has forgotten it."""
    with suppress(OSError):
        link.tell((b"DISCARD",))


@contextmanager
def _failing(commit: Commit) -> Iterator[None]:
    """What is wrong with one store is no matter of the others."""
    try:
        yield
    except StorageError as error:
        commit.fail(error)


def write_together(batches: Sequence[tuple[Opened, Batch]], writer: Writer) -> list[StorageError | None]:
    """Write *batches*, each to a store of its own, as one transaction by *writer*; see :func:`commit`.

    Returns:
        Why each was not stored, ``None`` if it was.
    """
    with ExitStack() as held:
        commits = []
        for opened, batch in batches:
            held.enter_context(opened.writing)
            commits.append(Commit(opened, batch))
        commit([each for each in commits if not each.is_done], writer)
        return [each.failure for each in commits]


class Together:
    """Writes to several stores of the job at *address*, which are pinned to a run of the server; one thread uses it at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._writer: Writer | None = None

    def write(self, batches: Sequence[tuple[Opened, Batch]]) -> list[StorageError | None]:
        """Write *batches*, each to a store of its own; returns why each was not stored, ``None`` if it was."""
        failures: list[StorageError | None] = [None] * len(batches)
        runs: dict[bytes, list[int]] = {}
        for place, (opened, _) in enumerate(batches):
            runs.setdefault(opened.lease.run, []).append(place)
        for run, places in runs.items():
            try:
                writer = self._connected(run)
            except StorageError as error:
                found: list[StorageError | None] = [error] * len(places)
            else:
                found = write_together([batches[place] for place in places], writer)
            for place, failure in zip(places, found, strict=True):
                failures[place] = failure
        return failures

    def _connected(self, run: bytes) -> Writer:
        """What commits are sent by, to that *run* of the server.

        Raises:
            LostError: If another run is there.
            StorageError: If the server cannot be reached.
        """
        if self._writer is None:
            self._writer = Writer(connect(self._address))
        if self._writer.link.run != run:
            self._writer.link.pin(run)
        return self._writer

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._writer is not None:
            self._writer.link.close()

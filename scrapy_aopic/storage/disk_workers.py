"""State on the server that workers with shards on their own disks share: which folder has which shard, and the letters.

1. Each shard has one *home*, a job folder, which the server names. Free shards are given to the folders that come first;
   after that a home changes only by a command (``scrapy aopic move``), while no worker has the folders in use.
2. A worker has a *lock* of its folder (:mod:`scrapy_aopic.storage.redis.server_lock`), one for all shards in it. It keeps a copy of the folder on
   another machine from being crawled at the same time.
3. The *fence* is around the mail, because commits are made on a disk that no server can fence: a worker shows states and
   sends letters in a transaction that is refused once its lock has another token. What it has committed after that is
   on its disk alone, and as if it had never been done; what it committed before stands, for the folder is still the home.
4. With a state goes the *book* of the shard, in the same transaction: the units that it sent to each other shard and
   received. From the books and the letters that are on the server a shard whose disk is lost can be begun anew, so that
   the cash of the whole job is the same, to the unit.
5. Letters between shards of one worker do not go by the server. So of a letter that a lost shard has sent in this way only
   the receiver knows whether it was applied, and its shown state may be older than its disk: the lost shard begins anew
   only after the receiver was open once more.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.shards.rebuilt_mail import LostShard
from scrapy_aopic.exceptions import StorageError

from .disk_shard import number_of
from .redis.connect import connect
from .redis.keys import Keys
from .redis.mailboxes import read_bundle
from .redis.worker_registry import ShardState, ShardStores, WorkerRegistry, by_number, pairs_of

if TYPE_CHECKING:
    from .address import Address
    from .redis.connection import Argument, Connection, Reply
    from .redis.server_lock import ServerLock
    from .redis.sharding import Sharding

_ATTEMPTS = 20
"""Times that something is tried while others change what it depends on."""


def new_name() -> str:
    """A name for a job folder that no other has."""
    return secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class Homes:
    """Where the shards of a job are.

    Attributes:
        of: Name of the folder that has each shard, by number; shards that none has yet are left out.
        folders: Where each folder is, as ``HOST:PATH``, by its name.
        anew: Shards that were begun anew because their disk is lost, and the number of the last commit that was known of
            them.
    """

    of: Mapping[int, str]
    folders: Mapping[str, str]
    anew: Mapping[int, int]

    def place(self, number: int) -> str:
        """Where the folder that has a shard is, for people."""
        name = self.of.get(number)
        return f"{self.folders.get(name, 'a folder')} ({name})" if name is not None else "no folder yet"


def read_homes(address: Address) -> Homes:
    """Where the shards of the job at *address* are.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    with closing(connect(address)) as connection:
        return _homes(Keys(address), connection)


def _homes(keys: Keys, connection: Connection) -> Homes:
    of, folders, anew = connection.ask(
        *((b"HGETALL", keys.of_job(name)) for name in (b"homes", b"folders", b"anew"))
    )
    return Homes(
        {number: name.decode() for number, name in _numbered(keys, of).items()},
        {name.decode(): place.decode("utf-8", "replace") for name, place in pairs_of(folders).items()},
        {number: int(last) for number, last in _numbered(keys, anew).items()},
    )


def claim(address: Address, sharding: Sharding, name: str, place: str, on_disk: Iterable[int]) -> Homes:
    """Let the folder called *name* have the shards that are its own, or its part of those that are free.

    Args:
        place: Where the folder is.
        on_disk: Shards that are in it. If the server knows no home of one, because it has lost everything, it is this.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        for _ in range(_ATTEMPTS):
            connection.watch(keys.of_job(b"homes"))
            homes = _homes(keys, connection)
            mine = {number for number, each in homes.of.items() if each == name}
            free = [number for number in range(sharding.shards) if number not in homes.of]
            new = [number for number in on_disk if number in free]
            n_others = len({*homes.of.values()} - {name})
            if not mine and not new and free and n_others < sharding.disks:
                new = free[: -(-len(free) // (sharding.disks - n_others))]
            given = [part for number in new for part in (number, name)]
            commands: list[Sequence[Argument]] = [(b"HSET", keys.of_job(b"homes"), *given)] if given else []
            commands.append((b"HSET", keys.of_job(b"folders"), name, place))
            if connection.transact(*commands) is not None:
                return _homes(keys, connection)
    raise StorageError(f"The job in {address} is being changed by too many processes at once; try again.")


def read_heads(address: Address) -> dict[int, str]:
    """The identifier of the last commit that was shown of each shard of the job at *address*.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        states = _numbered(keys, connection.ask((b"HGETALL", keys.of_job(b"states")))[0])
    return {number: ShardState.unpack(data, keys).head for number, data in states.items()}


def assign(address: Address, numbers: Iterable[int], name: str, place: str, *, anew: bool = False) -> None:
    """Let the folder called *name* be the home of the shards *numbers*; the caller has the locks of all that are concerned.

    Args:
        anew: Whether the shards are lost, and are to be begun anew there.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys = Keys(address)
    heads = read_heads(address) if anew else {}
    commands: list[Sequence[Argument]] = [(b"HSET", keys.of_job(b"folders"), name, place)]
    shown = json.dumps(heads, separators=(",", ":"))
    for number in numbers:
        commands.append((b"HSET", keys.of_job(b"homes"), number, name))
        if anew:
            commands.append((b"HSET", keys.of_job(b"anew"), number, number_of(heads.get(number, ""))))
            commands.append((b"HSET", keys.of_job(b"shown"), number, shown))
    with closing(connect(address)) as connection:
        connection.transact(*commands)


def read_books(address: Address, sharding: Sharding) -> dict[int, ShardState]:
    """The states, as of their last commits, of all shards of the job at *address* that were ever open, with their counts.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        replies = connection.transact(
            (b"HGETALL", keys.of_job(b"states")), (b"HGETALL", keys.of_job(b"books"))
        )
    assert replies is not None, "nothing is watched"
    states = _with_books(keys, *replies)
    return {number: state for number, state in states.items() if number < sharding.shards}


def _with_books(keys: Keys, shown: Reply, books: Reply) -> dict[int, ShardState]:
    """The states of all shards, with their counts."""
    found = {number: ShardState.unpack(data, keys) for number, data in _numbered(keys, shown).items()}
    counts = {number: _read(keys, data) for number, data in _numbered(keys, books).items()}
    try:
        return {
            number: state._replace(
                sent_units=by_number(counts[number]["sent"]), got_units=by_number(counts[number]["got"])
            )
            for number, state in found.items()
        }
    except (LookupError, TypeError, ValueError, AttributeError):
        raise keys.damaged("the book of a shard is not whole") from None


@dataclass(frozen=True, slots=True)
class LostShardRecord(LostShard):
    """The server's knowledge of a shard whose disk is lost.

    Attributes:
        state: Its state as of the last commit that was shown; ``None`` if none was.
        unsure: Shards that may have applied more of its letters than was shown when it was declared lost, and have shown
            nothing since; and the workers that had them open then.
    """

    state: ShardState | None = None
    unsure: Mapping[int, str] = field(default_factory=dict)


def read_lost_shard(address: Address, sharding: Sharding, number: int) -> LostShardRecord:
    """The server's knowledge of the shard *number* of the job at *address*, as of one moment.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        # Also of homes that a shard has left. None is added that its letters could be for: nobody has it open.
        names = sorted(_homes(keys, connection).folders)
        replies = connection.transact(
            (b"HGETALL", keys.of_job(b"states")),
            (b"HGETALL", keys.of_job(b"books")),
            (b"HGETALL", keys.of_job(b"anew")),
            (b"HGET", keys.of_job(b"shown"), number),
            *((b"XRANGE", keys.mail(name), b"-", b"+") for name in names),
        )
    assert replies is not None, "nothing is watched"
    shown, books, anew, before, *boxes = replies
    posted = _letters_of(keys, number, boxes)
    states = _with_books(keys, shown, books)
    sent: dict[int, tuple[int, int]] = {}
    letters: dict[int, list[bytes]] = {}
    known: dict[int, int] = {}
    for other in range(sharding.shards):
        last = states[other].got.get(number, 0) if other in states else 0
        if last:
            sent[other] = last, states[other].got_units[number]
        while (data := posted.get((other, last + 1))) is not None:
            letters.setdefault(other, []).append(data)
            last += 1
        known[other] = last
    own = states.get(number)
    if own is None:
        return LostShardRecord({}, sent, letters)
    lost = {other: int(commit) for other, commit in _numbered(keys, anew).items()}
    heads = _read(keys, before) if before is not None else {}
    unsure = {
        other: states[other].worker
        for other, last in own.sent.items()
        if last > known.get(other, 0)
        and other in states
        and (head := states[other].head) == heads.get(str(other))
        # Of those that are lost, too, nobody will ever know more.
        and lost.get(other) != number_of(head)
    }
    got = {other: (last, own.got_units[other]) for other, last in own.got.items()}
    return LostShardRecord(got, sent, letters, own, unsure)


def _letters_of(keys: Keys, number: int, boxes: Iterable[Reply]) -> dict[tuple[int, int], bytes]:
    """The letters of the shard *number* in *boxes*, by receiver and number."""
    try:
        return {
            (letter.to, letter.number): letter.data
            for box in boxes
            for _, fields in box
            for letter in read_bundle(fields)
            if letter.sender == number
        }
    except ValueError:
        raise keys.damaged("a bundle of letters cannot be read") from None


class InHomes(ShardStores):
    """The stores of *shards* shards are in their homes.

    Args:
        lock: Of the worker's folder; ``None`` for somebody who only looks.
        name: Of that folder.
    """

    has_homes = True

    def __init__(self, address: Address, shards: int, lock: ServerLock | None = None, name: str = "") -> None:
        self.home = name
        self._keys = Keys(address)
        self._numbers = range(shards)
        self._lock = lock
        self._head = Keys(address.of_home(name)).head if lock is not None else b""
        self._watched = 0
        self._homes: Mapping[int, str] = {}

    def questions(self) -> tuple[Sequence[Argument], Sequence[Argument]]:
        """Where they are, and whether the server still has the job."""
        return (b"HGETALL", self._keys.of_job(b"homes")), (b"EXISTS", self._keys.of_job(b"cut"))

    def read(
        self, one: Reply, other: Reply, states: Mapping[int, ShardState], alive: Iterable[Mapping[str, Any]]
    ) -> tuple[list[str], list[bool]]:
        """Its last state: no other process can have heard of what a shard has stored since."""
        del other
        homes = {number: name.decode() for number, name in _numbered(self._keys, one).items()}
        self._homes = homes
        awake = {worker.get("home") for worker in alive}
        heads = [states[number].head if number in states else "" for number in self._numbers]
        return heads, [homes.get(number) in awake for number in self._numbers]

    def boxes(self, states: Mapping[int, ShardState]) -> Mapping[int, str]:
        """Of their homes."""
        del states
        return self._homes

    def books(self, states: Mapping[int, ShardState]) -> list[Sequence[Argument]]:
        """The units that they sent and received."""
        shown = (part for number, state in states.items() for part in (number, _book(state)))
        return [(b"HSET", self._keys.of_job(b"books"), *shown)]

    def turn(
        self,
        connection: Connection,
        writes: Sequence[Sequence[Argument]],
        reads: Sequence[Sequence[Argument]],
    ) -> list[Reply]:
        """Write all of it at once, or nothing if the lock is lost; then read.

        That is one request: the head of the lock is watched from the end of one turn to the next.

        Raises:
            LostError: If the lock is lost.
        """
        if (lock := self._lock) is None:
            if writes:
                raise StorageError("Only a worker with a lock may show what its shards are like.")
            return super().turn(connection, (), reads)
        watch = (b"WATCH", self._head), (b"GET", self._head)
        if self._watched != connection.n_opened:
            self._check(lock, connection.ask(*watch)[1])
        self._watched = 0
        parts = [commands for commands in (writes, reads) if commands]
        sent = [each for commands in parts for each in ((b"MULTI",), *commands, (b"EXEC",))]
        replies = connection.write(*sent, *watch)
        ends = [position for position, command in enumerate(sent) if command == (b"EXEC",)]
        done = [replies[end] for end in ends]
        if None in done:
            self._check(lock, replies[-1])
            raise lock.lost("another process has just opened it")
        *_, found = [connection.checked(each) for each in done]
        self._check(lock, replies[-1])
        self._watched = connection.n_opened
        return found if reads else []

    def _check(self, lock: ServerLock, head: bytes | None) -> None:
        if why := lock.why_refused(head):
            raise lock.lost(why)


def _book(state: ShardState) -> str:
    return json.dumps({"sent": state.sent_units, "got": state.got_units}, separators=(",", ":"))


def machine_path(folder: object) -> str:
    """Where *folder* is, for people on other machines."""
    return f"{socket.gethostname()}:{os.path.abspath(str(folder))}"  # noqa: PTH100 (of a path that may be on no disk)


def registry_of(address: Address, sharding: Sharding) -> WorkerRegistry:
    """A way to look at the job at *address*, which is cut as *sharding* says."""
    return WorkerRegistry(
        address, sharding.shards, InHomes(address, sharding.shards) if sharding.disks else None
    )


def _numbered(keys: Keys, reply: Reply) -> dict[int, bytes]:
    try:
        return {int(number): value for number, value in pairs_of(reply).items()}
    except ValueError:
        raise keys.damaged("a shard has no number") from None


def _read(keys: Keys, data: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError):
        raise keys.damaged(f"the book of a shard is {data[:50]!r}") from None

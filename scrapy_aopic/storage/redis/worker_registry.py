"""The workers that crawl a job on a server, and the states of its shards, which they show each other.

1. Each shard has a store of its own, which one process at a time may change (:mod:`.server_lock`). Nothing in here can
   damage one: letters and states are copies of what a commit holds, posted after that commit has landed, and the server
   logs them after it. So whatever the server loses, a letter never outlives the commit that wrote it.
2. A process that crawls, a *worker*, is alive if it has reported within the lock timeout, by the server's clock.
3. The *state* of a shard has the figures of its last commit, and names that commit. One exchange returns the states and heads of
   all shards as of one moment.
4. A worker reads all states once, and then those that were shown since, from a *log* of the last ones. One that finds fewer
   entries there than were added reads all again.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scrapy_aopic.core.shards.spread import DomainCounts
from scrapy_aopic.exceptions import LostError

from .connect import connect
from .keys import Keys
from .mailboxes import Letters, Mailboxes, PostedLetter, ReadLetters
from .server_lock import job_gone

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

    from .connection import Argument, Command, Reply

_REPORT = 0.2
"""Part of the lock timeout after which a worker reports again."""

_LOGGED = 4
"""Entries of the log that are kept for each worker: those of some seconds, so it is a few times as large as all states."""

_MOST_AT_ONCE = 1_000
"""Entries that are read at once: all that there are."""

_FORGET = 30
"""Lock timeouts after which a worker that has died is forgotten."""


class ShardState(NamedTuple):
    """A shard as of a commit.

    Attributes:
        head: Head of its store after that commit, which no other commit has.
        worker: Token of the worker that made it.
        is_idle: Whether the shard had nothing to do, and nothing in flight.
        sums: Its part of the sums of the job.
        sent: Number of the last letter to each other shard.
        got: Number of the last letter of each other shard that was applied.
        counts: Pages queued, visited and failed, and hosts.
        sent_units: Units in all letters to each other shard; only with several folders, and under a key of their own.
        got_units: Units in all letters of each other shard that were applied; likewise.
        waiting: Hosts that could be requested.
        spread: Its part of the counts of the domains that are spread over all shards, by name.
        ranks: How many of the hosts that could be requested have each rank; see :attr:`~scrapy_aopic.core.crawl.Crawl.waiting_ranks`.
    """

    head: str
    worker: str
    is_idle: bool
    sums: Sequence[int]
    sent: Mapping[int, int]
    got: Mapping[int, int]
    counts: Sequence[int]
    sent_units: Mapping[int, int] = {}
    got_units: Mapping[int, int] = {}
    waiting: int = 0
    spread: Mapping[str, DomainCounts] = {}
    ranks: Mapping[int, int] = {}

    @classmethod
    def unpack(cls, data: bytes, keys: Keys) -> ShardState:
        """A state as the server of a job with *keys* has it.

        Raises:
            StorageError: If it is damaged.
        """
        try:
            fields = json.loads(data)
            lasts = {name: by_number(fields[name]) for name in ("sent", "got")}
            lasts["ranks"] = by_number(fields.get("ranks", {}))
            spread = {name: DomainCounts(*row) for name, row in fields.get("spread", {}).items()}
            return cls(**{**fields, **lasts, "spread": spread})
        except (ValueError, TypeError, LookupError, AttributeError):
            raise keys.damaged(f"the state of a shard is {data[:50]!r}") from None

    def packed(self) -> bytes:
        """As the server has it."""
        fields = {name: value for name, value in self._asdict().items() if name not in _OF_FOLDERS}
        if not self.spread:
            del fields["spread"]
        return json.dumps(fields, separators=(",", ":")).encode()


States: TypeAlias = "Mapping[int, ShardState]"
Workers: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""What workers report of themselves, by their names."""

_OF_FOLDERS = {"sent_units", "got_units"}
"""Fields of a state that no exchange reads."""


@dataclass(slots=True)
class ClusterState:
    """All shards of a job at one moment.

    Attributes:
        now: The server's time, in seconds since the epoch.
        sent_at: When the request was sent (``time.monotonic``).
        received_at: When the reply arrived (``time.monotonic``).
        run: Name of the run of the server.
        boxes: Where letters to each shard go; those to shards of this worker, or of none that is alive, are left out.
        seed_lists: Names of the lists of seeds that wait on the server.
        workers: The workers that are alive, by token, in the order in which they came.
        states: States of the shards that have one, by number.
        heads: Heads of the stores of all shards; ``""`` for one that was never opened.
        is_owned: For each shard, whether a process has it open.
        letters: New letters to the shards of the worker.
    """

    now: float
    workers: dict[str, Mapping[str, Any]]
    states: dict[int, ShardState]
    heads: list[str]
    is_owned: list[bool]
    letters: dict[int, list[PostedLetter]] = field(default_factory=dict)
    sent_at: float = 0.0
    received_at: float = 0.0
    run: bytes = b""
    boxes: Mapping[int, str] = field(default_factory=dict)
    seed_lists: Sequence[bytes] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether no shard had anything to do at its last commit, and every letter had arrived.

        Then none will have, unless it gets seeds or a host becomes due.
        """
        states = self.states
        if len(states) < len(self.heads):
            return False
        if any(not state.is_idle or state.head != self.heads[n] for n, state in states.items()):
            return False
        return all(
            states[receiver].got.get(sender, 0) == last
            for sender, state in states.items()
            for receiver, last in state.sent.items()
        )


class ShardStores:
    """How a registry learns of the stores of *shards* shards, wherever they are: these are at *address*, too.

    Attributes:
        home: Name of the worker's folder among several of the job, which tell the server again whatever it loses; empty if there are none.
        path: Where that folder is.
    """

    home = ""
    path = ""

    def __init__(self, address: Address, shards: int) -> None:
        self._stores = [Keys(address.of_shard(number)) for number in range(shards)]

    def questions(self) -> tuple[Command, Command]:
        """Two questions of which the replies show the heads of all shards, and which of them are open."""
        heads, owners = (store.head for store in self._stores), (store.owner for store in self._stores)
        return (b"MGET", *heads), (b"MGET", *owners)

    def read(self, one: Reply, other: Reply, states: States, alive: Workers) -> tuple[list[str], list[bool]]:
        """Heads of the stores of all shards, and which of them are open.

        Args:
            one: Reply to the first question.
            other: Reply to the second one.
            states: States of the shards at that moment.
            alive: Reports of the workers that are alive, by token.
        """
        del states, alive
        heads = [head.decode("ascii", "replace") if head is not None else "" for head in one]
        return heads, [owner is not None for owner in other]


class WorkerRegistry:
    """One worker's way to the server; one thread uses it at a time.

    Args:
        stores: Where the stores are, by default at the same *address*.

    Attributes:
        token: Token of this worker.
        home: Name of its folder, if it has one of several of the job.
        run: Run of the server. States and letters of other runs do not count: see rule 4 of :mod:`.connection`.
        is_over: Whether this worker, with a folder of its own, was silent for so long that another process may have it.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(self, address: Address, shards: int, stores: ShardStores | None = None) -> None:
        self.token = secrets.token_hex(8)
        self._address = address
        self._keys = Keys(address)
        self._lock_timeout = address.lock_timeout
        self._stores = stores or ShardStores(address, shards)
        self.home = self._stores.home
        self._mail = Mailboxes(self._keys, self.token)
        self._sharding: bytes | None = None
        self._dead: list[bytes] = []
        self.is_over = False
        self._reported = -inf
        self._instant = 0.0, 0.0
        self._states: dict[int, ShardState] = {}
        self._place = b""  # in the log; empty if all states are to be read
        self._n_logged = 0
        self._n_workers = 1
        self._connection = connect(address)
        self.run = self._connection.pin()
        self._process = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": self.now()[0],
            "home": self._stores.home,
            "path": self._stores.path,
        }

    def begin_anew(self) -> None:
        """Go on with the run of the server that is there now, after another one has ended.

        Raises:
            StorageError: If it cannot be reached.
        """
        self._place = b""
        self._mail.forget()
        self.run = self._connection.pin()

    def now(self) -> tuple[float, float, float]:
        """The server's time, in seconds since the epoch, and the instants (``time.monotonic``) between which it was that."""
        sent_at = time.monotonic()
        instant = _seconds(self._connection.ask((b"TIME",))[0])
        received_at = time.monotonic()
        self._instant = instant, received_at
        return instant, sent_at, received_at

    def read(self, own: Mapping[int, int], *, joins: bool = True) -> ClusterState:
        """All shards, with the letters to those in *own* that were not brought before; see :meth:`exchange`."""
        return self.exchange({}, (), (), own, joins=joins)

    def exchange(
        self,
        states: States,
        letters: Letters,
        read: ReadLetters,
        own: Mapping[int, int],
        *,
        joins: bool = True,
    ) -> ClusterState:
        """Post, then read the states of all shards, and the letters to those in *own* that were not read before.

        Args:
            states: States to show.
            letters: Letters to send, each with its receiver.
            read: Letters that commits of shards here hold, which are removed.
            own: Shards of this worker, each with the number of its opening: a new opening reads all letters again.
            joins: Whether to report that this worker is alive.

        Raises:
            LostError: If :attr:`is_over`; a ``GoneError`` if the job is another one, or gone.
            StorageError: If the server cannot be reached, or something is damaged; what was posted may be posted once more.
        """
        keys, stores = self._keys, self._stores
        if joins and stores.home and self._now() - self._lock_timeout > self._reported > 0:
            self.is_over = True
            raise LostError(
                f"The shards in {stores.path} are no longer this process's: the server was not reached for {self._lock_timeout:g} s, so "
                "another process may have them; what was not committed is done again by whoever goes on."
            )
        writes = self._posted(states, letters, read)
        if joins and not 0 <= self._now() - self._reported < self._lock_timeout * _REPORT:
            reported = self._now()
            report = json.dumps({**self._process, "seen": reported}).encode()
            writes.append((b"HSET", keys.of_job(b"workers"), self.token, report))
        else:
            reported = self._reported
        if joins and self._dead:
            writes.append((b"HDEL", keys.of_job(b"workers"), *self._dead))
        sent_at = time.monotonic()
        place = b"(" + (self._place or b"0-0")
        replies = self._connection.ask_at_once(
            *writes,
            (b"GET", keys.of_job(b"cut")),
            (b"TIME",),
            (b"HGETALL", keys.of_job(b"workers")),
            (b"XRANGE", keys.of_job(b"log"), place, b"+", b"COUNT", _MOST_AT_ONCE),
            (b"HMGET", keys.of_job(b"logged"), b"n"),
            (b"TIME",) if self._place else (b"HGETALL", keys.of_job(b"states")),
            (b"SMEMBERS", keys.seed_lists),
            *stores.questions(),
            *self._mail.questions(own),
        )[len(writes) :]
        received_at = time.monotonic()
        self._mail.landed()
        sharding, time_, workers, log, (logged,), shown, seed_lists, one, other, *boxes = replies
        self._check_same(sharding)
        now = _seconds(time_)
        self._instant = now, received_at
        self._reported = reported
        alive = self._alive(pairs_of(workers), now)
        if joins:
            if self.token not in alive:
                self._reported = -inf  # the server has lost it
            alive.setdefault(self.token, self._process)
        self._n_workers = len(alive)
        if not self._read_states(log, int(logged or 0), shown):
            return self.read(own, joins=joins)
        seen = dict(self._states)
        heads, is_owned = stores.read(one, other, seen, alive)
        self._mail.boxes = {number: state.worker for number, state in seen.items()}
        awake = {*alive} - {self.token}
        return ClusterState(
            now,
            dict(sorted(alive.items(), key=lambda pair: (pair[1]["since"], pair[0]))),
            seen,
            heads,
            is_owned,
            self._mail.bring(boxes, own),
            sent_at,
            received_at,
            self.run,
            {number: box for number, box in self._mail.boxes.items() if box in awake},
            seed_lists,
        )

    def _check_same(self, sharding: bytes | None) -> None:
        """Check that the job that is cut as *sharding* says is the one that this worker began with.

        Raises:
            GoneError: If it is not.
        """
        if self._sharding is None:
            self._sharding = sharding
        elif sharding != self._sharding:
            raise job_gone(self._address, in_folders=bool(self._stores.home))

    def _now(self) -> float:
        """The server's time, about."""
        instant, received_at = self._instant
        return instant + time.monotonic() - received_at

    def _alive(self, workers: Mapping[bytes, bytes], now: float) -> dict[str, Mapping[str, Any]]:
        alive: dict[str, Mapping[str, Any]] = {}
        self._dead = []
        for token, data in workers.items():
            try:
                worker = json.loads(data)
                age = now - worker["seen"]
            except (ValueError, LookupError, TypeError):
                raise self._keys.damaged(f"a worker is said to be {data[:50]!r}") from None
            if age < self._lock_timeout:
                alive[token.decode("ascii", "replace")] = worker
            elif age > _FORGET * self._lock_timeout:
                self._dead.append(token)
        return alive

    def _read_states(self, log: Reply, logged: int, shown: Reply) -> bool:
        """Read what was *shown* of all shards, or the new entries of the *log*; returns whether these are all.

        Args:
            logged: Entries that were ever added to the log.
        """
        n_new, self._n_logged = logged - self._n_logged, logged
        if not self._place:
            rows = pairs_of(shown)
            self._states = {}
        elif n_new != len(log):
            self._place = b""
            return False
        else:
            rows = dict(line.split(b" ", 1) for _, (_, data) in log for line in data.split(b"\n"))
        self._place = log[-1][0] if log else self._place
        try:
            self._states.update({int(n): ShardState.unpack(data, self._keys) for n, data in rows.items()})
        except ValueError:
            raise self._keys.damaged("a shard has no number") from None
        return True

    def _posted(self, states: States, letters: Letters, read: ReadLetters) -> list[Command]:
        """Commands that post it."""
        commands = self._mail.written(letters, read)
        if states:
            shown = {b"%d" % number: state.packed() for number, state in states.items()}
            commands.append((b"HSET", self._keys.of_job(b"states"), *chain(*shown.items())))
            log, kept = b"\n".join(map(b" ".join, shown.items())), _LOGGED * (self._n_workers + 1)
            commands.append((b"XADD", self._keys.of_job(b"log"), b"MAXLEN", kept, b"*", b"s", log))
            commands.append((b"HINCRBY", self._keys.of_job(b"logged"), b"n", 1))
            if self._stores.home:
                books: list[Argument] = [b"HSET", self._keys.of_job(b"books")]
                for number, state in states.items():
                    books += number, json.dumps({"sent": state.sent_units, "got": state.got_units})
                commands.append(books)
        return commands

    def post(self, states: States, letters: Letters, read: ReadLetters) -> None:
        """Show *states*, send *letters* to shards, and remove letters that shards have *read* for good.

        Raises:
            StorageError: If the server cannot be reached; it may be done once more then.
        """
        if commands := self._posted(states, letters, read):
            self._connection.ask_at_once(*commands)
            self._mail.landed()

    def begin_round(
        self, now: float, last: Callable[[], tuple[int, float, float]], since: float = inf
    ) -> tuple[int, float]:
        """Number and beginning of the round of revisits of the whole job that is not over; if none is, one begins *now*.

        Args:
            last: Gives number, beginning and end of the last one that the stores know, if no worker has shown any; the end is 0 if it
                is not over.
            since: When the command of this worker began: a round that has begun since then is that of this worker, also if it is over.

        Raises:
            StorageError: If the server cannot be reached.
        """
        key = self._keys.of_job(b"rounds")
        rounds = {
            int(n): json.loads(row) for n, row in pairs_of(self._connection.ask((b"HGETALL", key))[0]).items()
        }
        if not rounds:
            number, began, ended = last()
            rounds[number] = [began, ended]
        number = max(rounds)
        if number and (rounds[number][0] >= since or not rounds[number][1]):
            return number, rounds[number][0]
        mine = json.dumps([now, 0.0])  # which another worker may come before
        _, first = self._connection.ask((b"HSETNX", key, number + 1, mine), (b"HGET", key, number + 1))
        return number + 1, json.loads(first)[0]

    def end_round(self, number: int, began: float, now: float) -> None:
        """Round *number*, which *began* then, is over *now* in all shards.

        Raises:
            StorageError: If the server cannot be reached.
        """
        self._connection.ask((b"HSET", self._keys.of_job(b"rounds"), number, json.dumps([began, now])))

    def leave(self) -> None:
        """Stop being a worker.

        Raises:
            StorageError: If the server cannot be reached: it will notice by itself.
        """
        self._connection.ask((b"HDEL", self._keys.of_job(b"workers"), self.token))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()


def by_number(counts: Mapping[str, int]) -> dict[int, int]:
    """*counts* by shards, as JSON has them."""
    return {int(number): n for number, n in counts.items()}


def pairs_of(reply: Reply) -> dict[bytes, bytes]:
    """The names and values in *reply*, which has them one after the other."""
    parts = iter(reply)
    return dict(zip(parts, parts, strict=True))


def _seconds(reply: Reply) -> float:
    seconds, microseconds = reply
    return int(seconds) + int(microseconds) / 1e6

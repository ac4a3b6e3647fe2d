"""What the shards of a job on a server have in common: how many they are, who crawls, and the letters between them.

1. Each shard has a store of its own, which one process at a time may change (:mod:`.redis_lease`). Nothing in here can
   damage one: letters and states are copies of what a commit holds, posted after that commit has landed, and the server
   logs them after it. So whatever the server loses, a letter never outlives the commit that wrote it.
2. A process that crawls, a *worker*, is alive if it has said so within the time of a lease, by the server's clock.
3. The *state* of a shard says what its last commit was like, and names that commit. One look shows all states and the
   heads of all shards at one moment.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from scrapy_aopic.exceptions import StorageError

from .redis_checks import check_server
from .redis_connect import connect
from .redis_keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .address import Address
    from .redis_link import Argument, Link, Reply

_BEGIN = 60.0
"""Seconds that a process may take to make a job, with the seeds that it starts from; then another one may try."""

_LOOK = 0.1
"""Seconds between looks at whether another process has made the job."""

_LETTERS = 64
"""Letters to a shard that are read at once: some 50 kB each at most."""

_SAY = 0.2
"""Part of a lease after which a worker says again that it is alive."""

_FORGET = 30
"""Leases after which a worker that has died is forgotten."""


class JobCut(NamedTuple):
    """How a job on a server is cut.

    Attributes:
        shards: How many.
        suffixes: Which list of public suffixes says what a registered domain is.
        disks: Among how many job folders the shards are divided (:mod:`.redis_homes`); 0 if they are on the server.
    """

    shards: int
    suffixes: str
    disks: int = 0


class Letter(NamedTuple):
    """A letter: from which shard, the number that it has there, and what it says."""

    sender: int
    number: int
    data: bytes


class State(NamedTuple):
    """What a shard was like at a commit.

    Attributes:
        head: Head of its store after that commit, which no other commit has.
        worker: Token of the worker that made it.
        is_idle: Whether it had nothing to do, and nothing in flight.
        sums: What it adds to the sums of the job.
        sent: Number of the last letter to each other shard.
        got: Number of the last letter of each other shard that was applied.
        counts: Pages queued, visited and failed, and hosts.
        sent_units: Units in all letters to each other shard; kept elsewhere, if at all.
        got_units: Units in all letters of each other shard that were applied; the same.
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

    def packed(self) -> bytes:
        """As the server has it."""
        said = dict(zip(self._fields[:_SAID], self[:_SAID], strict=True))
        return json.dumps(said, separators=(",", ":")).encode()


_SAID = 7
"""Fields of a state that every look reads."""


@dataclass(slots=True)
class Look:
    """All shards of a job at one moment.

    Attributes:
        now: The server's time, in seconds since the epoch.
        asked: When the server was asked (``time.monotonic``).
        heard: When its reply was there (``time.monotonic``).
        run: Of the server.
        workers: The workers that are alive, by token, in the order in which they came.
        states: Of the shards that have one.
        heads: Of the stores of all shards; ``""`` for one that was never opened.
        is_owned: Whether a process has it open, for all shards.
        letters: New letters to the shards that were asked for.
    """

    now: float
    workers: dict[str, Mapping[str, Any]]
    states: dict[int, State]
    heads: list[str]
    is_owned: list[bool]
    letters: dict[int, list[Letter]] = field(default_factory=dict)
    asked: float = 0.0
    heard: float = 0.0
    run: bytes = b""

    @property
    def is_quiet(self) -> bool:
        """Whether no shard had anything to do at its last commit, and every letter had arrived.

        Then none will have, unless somebody gives it seeds, or a time comes.
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


def read_cut(address: Address) -> JobCut | None:
    """How the job at *address* is cut; ``None`` if there is none, or in one piece.

    Raises:
        StorageError: If the server cannot be reached, or says something else.
    """
    keys = Keys(address)
    with closing(connect(address)) as link:
        return _read_cut(keys, link.ask((b"GET", keys.of_job(b"cut")))[0])


def _read_cut(keys: Keys, data: bytes | None) -> JobCut | None:
    if data is None:
        return None
    try:
        cut = JobCut(**json.loads(data))
        shards = int(cut.shards)
    except (ValueError, TypeError):
        raise keys.damaged(f"how it is cut is said by {data[:50]!r}") from None
    return cut._replace(shards=shards)


def begin(address: Address, cut: JobCut, prepare: Callable[[], object]) -> bool:
    """Make the job at *address* if there is none, once *prepare* has done what belongs to it; returns whether it did.

    Raises:
        StorageError: If there is a job in one piece, or the server does not work.
    """
    keys, token = Keys(address), secrets.token_hex(8).encode()
    cut_key, beginning = keys.of_job(b"cut"), keys.of_job(b"beginning")
    with closing(connect(address)) as link:
        check_server(link, address)
        while True:
            found, head = link.ask((b"GET", cut_key), (b"EXISTS", keys.head))
            if _read_cut(keys, found) is not None:
                return False
            if head:
                raise StorageError(
                    f"The job in {address} is in one piece, and AOPIC_SHARDS is now {cut.shards}: set AOPIC_SHARDS back to 1, "
                    "or begin another job with another AOPIC_REDIS_KEY. Nothing was changed."
                )
            link.ask((b"SET", beginning, token, b"NX", b"PX", round(_BEGIN * 1000)))
            owner, found = link.ask((b"GET", beginning), (b"GET", cut_key))
            if owner == token:
                if found is None:
                    break
                link.ask((b"DEL", beginning))  # another process has made it since it was looked for
                return False
            time.sleep(_LOOK)
        try:
            prepare()
            link.transact((b"SET", cut_key, json.dumps(cut._asdict()).encode(), b"NX"))
        finally:
            link.ask((b"DEL", beginning))
    return True


class Places(Protocol):
    """How a registry learns of the stores of shards, wherever they are.

    Attributes:
        about: What else is said of the worker.
    """

    about: Mapping[str, Any]

    def questions(self) -> tuple[Sequence[Argument], Sequence[Argument]]:
        """Two questions of which the replies show the heads of all shards, and which of them are open."""
        ...

    def read(
        self, one: Reply, other: Reply, states: Mapping[int, State], alive: Iterable[Mapping[str, Any]]
    ) -> tuple[list[str], list[bool]]:
        """Heads of the stores of all shards, and which of them are open.

        Args:
            one: Reply to the first question.
            other: Reply to the second one.
            states: Of the shards at that moment.
            alive: What is said of the workers that are.
        """
        ...

    def post(self, link: Link, commands: Sequence[Sequence[Argument]], states: Mapping[int, State]) -> None:
        """Let the server do *commands*, which show *states* among other things; they may be done twice.

        Raises:
            StorageError: If it cannot be reached, or must not.
        """
        ...


class OnServer:
    """The stores of *shards* shards are at *address*, too."""

    about: Mapping[str, Any] = {}

    def __init__(self, address: Address, shards: int) -> None:
        self._stores = [Keys(address.of_shard(number)) for number in range(shards)]

    def questions(self) -> tuple[Sequence[Argument], Sequence[Argument]]:
        """The heads and the owners of all."""
        heads, owners = (store.head for store in self._stores), (store.owner for store in self._stores)
        return (b"MGET", *heads), (b"MGET", *owners)

    def read(
        self, one: Reply, other: Reply, states: Mapping[int, State], alive: Iterable[Mapping[str, Any]]
    ) -> tuple[list[str], list[bool]]:
        """As they are."""
        del states, alive
        heads = [head.decode("ascii", "replace") if head is not None else "" for head in one]
        return heads, [owner is not None for owner in other]

    def post(self, link: Link, commands: Sequence[Sequence[Argument]], states: Mapping[int, State]) -> None:
        """At once: the server has what they speak of."""
        del states
        link.ask(*commands)


class Registry:
    """One worker's way to the server; one thread uses it at a time.

    Args:
        places: Where the stores are, by default at the same *address*.

    Attributes:
        token: Of this worker.
        run: Of the server: what other runs of it have said does not count: see rule 4 of :mod:`.redis_link`.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(self, address: Address, shards: int, places: Places | None = None) -> None:
        self.token = secrets.token_hex(8)
        self._address = address
        self._keys = Keys(address)
        self._lease = address.lease
        self._places = places or OnServer(address, shards)
        self._brought: dict[tuple[int, int], set[bytes]] = {}
        self._states: dict[bytes, tuple[bytes, State]] = {}
        self._link = connect(address)
        self.run = self._link.pin()
        self._process = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": self.now()[0],
            **self._places.about,
        }

    def begin_anew(self) -> None:
        """Go on with the run of the server that is there now, after another one has ended.

        Raises:
            StorageError: If it cannot be reached.
        """
        self._brought, self._states = {}, {}
        self.run = self._link.pin()

    def now(self) -> tuple[float, float, float]:
        """The server's time, in seconds since the epoch, and the instants (``time.monotonic``) between which it was that."""
        asked = time.monotonic()
        instant = _seconds(self._link.ask((b"TIME",))[0])
        return instant, asked, time.monotonic()

    def look(self, own: Mapping[int, int], *, joins: bool = True) -> Look:
        """All shards, with the letters to those in *own* that were not brought before.

        Args:
            own: Shards of this worker, and which time it has opened each: for that, nothing was brought before.
            joins: Whether to say that this worker lives.

        Raises:
            StorageError: If the server cannot be reached, or something is damaged.
        """
        keys = self._keys
        now, asked, heard = self.now()  # which connects again, if need be
        replies = self._link.transact(
            (b"HGETALL", keys.of_job(b"workers")),
            (b"HGETALL", keys.of_job(b"states")),
            *self._places.questions(),
            *((b"HKEYS", keys.mail(number)) for number in own),
        )
        assert replies is not None, "nothing is watched"
        workers, shown, one, other, *boxes = replies
        alive = self._alive(_pairs(workers), now)
        if joins:
            me = alive.get(self.token)
            if me is None or not 0 <= now - me["seen"] < self._lease * _SAY:
                said = json.dumps({**self._process, "seen": now}).encode()
                self._link.ask((b"HSET", keys.of_job(b"workers"), self.token, said))
            alive.setdefault(self.token, self._process)
        states = self._read_states(_pairs(shown))
        heads, is_owned = self._places.read(one, other, states, alive.values())
        self._brought = {opened: self._brought.get(opened, set()) for opened in own.items()}
        return Look(
            now,
            dict(sorted(alive.items(), key=lambda pair: (pair[1]["since"], pair[0]))),
            states,
            heads,
            is_owned,
            dict(zip(own, self._bring(boxes), strict=True)) if any(boxes) else {},
            asked,
            heard,
            self.run,
        )

    def _alive(self, workers: Mapping[bytes, bytes], now: float) -> dict[str, Mapping[str, Any]]:
        alive, dead = {}, []
        for token, data in workers.items():
            try:
                worker = json.loads(data)
                age = now - worker["seen"]
            except (ValueError, LookupError, TypeError):
                raise self._keys.damaged(f"a worker is said to be {data[:50]!r}") from None
            if age < self._lease:
                alive[token.decode("ascii", "replace")] = worker
            elif age > _FORGET * self._lease:
                dead.append(token)
        if dead:
            self._link.ask((b"HDEL", self._keys.of_job(b"workers"), *dead))
        return alive

    def _read_states(self, states: Mapping[bytes, bytes]) -> dict[int, State]:
        """The states of all shards; most are as they were at the last look."""
        known = self._states
        self._states = {
            number: known[number]
            if number in known and known[number][0] == data
            else (data, self._state(data))
            for number, data in states.items()
        }
        return {int(number): state for number, (_, state) in self._states.items()}

    def _state(self, data: bytes) -> State:
        try:
            state = State(**json.loads(data))
            sent, got = ({int(n): last for n, last in each.items()} for each in (state.sent, state.got))
        except (ValueError, TypeError, AttributeError):
            raise self._keys.damaged(f"the state of a shard is {data[:50]!r}") from None
        return state._replace(sent=sent, got=got)

    def _bring(self, boxes: Sequence[Sequence[bytes]]) -> list[list[Letter]]:
        """The letters with the names *boxes* to this worker's shards, the first ones of each sender first."""
        wanted: list[list[tuple[int, int]]] = []
        for brought, names in zip(self._brought.values(), boxes, strict=True):
            brought &= {*names}
            wanted.append(sorted(map(self._name, {*names} - brought), key=lambda name: name[::-1])[:_LETTERS])
        asked = [
            (b"HMGET", self._keys.mail(number), *(_field(*name) for name in names))
            for (number, _), names in zip(self._brought, wanted, strict=True)
            if names
        ]
        replies = iter(self._link.ask(*asked))
        for brought, some in zip(self._brought.values(), wanted, strict=True):
            brought |= {_field(*name) for name in some}
        return [
            [
                Letter(*name, data)
                for name, data in (zip(names, next(replies), strict=True) if names else ())
                if data is not None
            ]
            for names in wanted
        ]

    def _name(self, field: bytes) -> tuple[int, int]:
        try:
            sender, number = map(int, field.split(b":"))
        except ValueError:
            raise self._keys.damaged(f"a letter has the name {field[:50]!r}") from None
        return sender, number

    def post(
        self,
        states: Mapping[int, State],
        letters: Iterable[tuple[int, Letter]],
        read: Iterable[tuple[int, Sequence[tuple[int, int]]]],
    ) -> None:
        """Show *states*, send *letters* to shards, and remove letters that shards have *read* for good.

        Raises:
            StorageError: If the server cannot be reached; it may be done once more then.
        """
        keys = self._keys
        commands: list[Sequence[Argument]] = [
            (b"HSET", keys.mail(to), _field(letter.sender, letter.number), letter.data)
            for to, letter in letters
        ]
        commands += [
            (b"HDEL", keys.mail(shard), *(_field(*name) for name in names)) for shard, names in read if names
        ]
        if states:
            shown = (part for number, state in states.items() for part in (number, state.packed()))
            commands.append((b"HSET", keys.of_job(b"states"), *shown))
        if commands:
            self._places.post(self._link, commands, states)

    def leave(self) -> None:
        """This worker is none any more.

        Raises:
            StorageError: If the server cannot be reached: it will notice by itself.
        """
        self._link.ask((b"HDEL", self._keys.of_job(b"workers"), self.token))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._link.close()


def _field(sender: int, number: int) -> bytes:
    """What a letter is called in the mail of a shard."""
    return b"%d:%d" % (sender, number)


def _pairs(reply: Reply) -> dict[bytes, bytes]:
    parts = iter(reply)
    return dict(zip(parts, parts, strict=True))


def _seconds(reply: Reply) -> float:
    seconds, microseconds = reply
    return int(seconds) + int(microseconds) / 1e6

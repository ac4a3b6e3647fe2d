"""State on the server of a job whose shards are in several job folders: which folder has which, and the books of their mail.

1. Each shard has one *home*, a job folder, which the server names. Free shards are given to the folders that come first;
   after that a home changes only by a command (``scrapy aopic move``), while no worker has the folders in use.
2. A worker says whose folder it has. While it lives, a copy of the folder at another place is refused; among the workers at one
   place, the locks of the stores decide (:mod:`.folder_workers`).
3. With a state goes the *book* of the shard: the units that it sent to each other shard and received. From the books and the
   letters that are on the server a shard whose disk is lost can be begun anew, so that the cash of the whole job is the same, to
   the unit.
4. A worker may have applied more than it has shown, until it was open once more, or by letters that did not go by the server. So a
   lost shard begins anew only while each other shard is lost as well, or has a worker that lives.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_aopic.core.shards.rebuilt_mail import LostShard

from .disk_shard import number_of
from .redis.connect import connect
from .redis.keys import Keys
from .redis.mailboxes import read_bundle
from .redis.worker_registry import ShardState, by_number, pairs_of

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.shards.cut import ShardId

    from .address import Address
    from .redis.connection import Command, Connection, Reply
    from .redis.sharding import Sharding


def new_name() -> str:
    """A name for a job folder that no other has."""
    return secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class Homes:
    """Where the shards of a job are.

    Attributes:
        of: Name of the folder that has each shard, by number; shards that none has yet are left out.
        paths: Where each folder was when it was used last, as ``HOST:PATH``, by its name.
        anew: Shards that were begun anew because their disk is lost, and the number of the last commit that was known of
            them.
    """

    of: Mapping[int, str]
    paths: Mapping[str, str]
    anew: Mapping[int, int]

    def where(self, numbers: Iterable[int]) -> str:
        """Where the shards *numbers* are, as the end of a sentence."""
        names = {self.of.get(number, "") for number in numbers}
        places = (f"{self.paths[name]} ({name})" if name else "no folder yet" for name in names)
        return f"at home in {', '.join(sorted(places))}"


def read_homes(address: Address) -> Homes:
    """Where the shards of the job at *address* are.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    with closing(connect(address)) as connection:
        return _homes(Keys(address), connection)


def _homes(keys: Keys, connection: Connection) -> Homes:
    of, anew = connection.ask(*((b"HGETALL", keys.of_job(name)) for name in (b"homes", b"anew")))
    named = {
        number: each.decode("utf-8", "replace").partition(" ") for number, each in _numbered(keys, of).items()
    }
    return Homes(
        {number: name for number, (name, _, _) in named.items()},
        {name: path for name, _, path in named.values()},
        {number: int(last) for number, last in _numbered(keys, anew).items()},
    )


def claim(address: Address, sharding: Sharding, name: str, path: str, on_disk: Iterable[int]) -> Homes:
    """Let the folder called *name* have the shards that are its own, or its part of those that are free.

    Args:
        path: Where the folder is.
        on_disk: Shards that are in it. If the server knows no home of one, because it has lost everything, it is this.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        while True:
            connection.watch(keys.of_job(b"homes"))
            homes = _homes(keys, connection)
            free = [number for number in range(sharding.shards) if number not in homes.of]
            own = [number for number, each in homes.of.items() if each == name]
            own += [number for number in on_disk if number in free]
            if not own:
                own = free[: sharding.shards // sharding.folders]
            if not own or connection.transact(_named(keys, own, name, path)) is not None:
                return _homes(keys, connection)


def assign(address: Address, numbers: Sequence[int], name: str, path: str, *, anew: bool = False) -> None:
    """Let the folder called *name*, at *path*, be the home of the shards *numbers*, which no worker has open.

    Args:
        anew: Whether the shards, which were open before, are lost, and are to be begun anew there.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys = Keys(address)
    commands = [_named(keys, numbers, name, path)]
    with closing(connect(address)) as connection:
        if anew:
            states = _states(keys, connection.ask((b"HGETALL", keys.of_job(b"states")))[0])
            lasts = [part for number in numbers for part in (number, number_of(states[number].head))]
            commands.append((b"HSET", keys.of_job(b"anew"), *lasts))
        connection.transact(*commands)


def _named(keys: Keys, numbers: Iterable[int], name: str, path: str) -> Command:
    """The command that lets a folder be the home of the shards *numbers*."""
    return (
        b"HSET",
        keys.of_job(b"homes"),
        *(part for number in numbers for part in (number, f"{name} {path}")),
    )


def read_books(address: Address) -> dict[int, ShardState]:
    """The states, as of their last commits, of all shards of the job at *address* that were ever open, with their counts.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    keys = Keys(address)
    with closing(connect(address)) as connection:
        replies = connection.ask_at_once(
            (b"HGETALL", keys.of_job(b"states")), (b"HGETALL", keys.of_job(b"books"))
        )
    return _with_books(keys, *replies)


def _states(keys: Keys, shown: Reply) -> dict[int, ShardState]:
    return {number: ShardState.unpack(data, keys) for number, data in _numbered(keys, shown).items()}


def _with_books(keys: Keys, shown: Reply, books: Reply) -> dict[int, ShardState]:
    """The states of all shards, with their counts."""
    try:
        counts = {number: json.loads(data) for number, data in _numbered(keys, books).items()}
        return {
            number: state._replace(
                sent_units=by_number(counts[number]["sent"]), got_units=by_number(counts[number]["got"])
            )
            for number, state in _states(keys, shown).items()
        }
    except (LookupError, TypeError, ValueError, AttributeError):
        raise keys.damaged("the book of a shard is not whole") from None


def read_lost_shard(
    address: Address, shard: ShardId, alive: Iterable[str]
) -> tuple[LostShard, ShardState | None, list[int]]:
    """The server's knowledge of *shard* of the job at *address*, whose disk is lost, as of one moment.

    Args:
        alive: Tokens of the workers that live.

    Returns:
        What the others know of it, its state as of the last commit that was shown, and shards that may know more of it: those
        that are neither lost nor open.

    Raises:
        StorageError: If the server cannot be reached, or something is damaged.
    """
    keys, number, alive = Keys(address), shard.number, sorted(alive)
    with closing(connect(address)) as connection:
        shown, books, anew, *boxes = connection.ask_at_once(
            *((b"HGETALL", keys.of_job(name)) for name in (b"states", b"books", b"anew")),
            *((b"XRANGE", keys.mail(worker), b"-", b"+") for worker in alive),
        )
    posted = _letters_of(keys, number, boxes)
    states = _with_books(keys, shown, books)
    lost = _numbered(keys, anew)
    awaited = [n for n, state in states.items() if n not in lost and state.worker not in alive]
    sent: dict[int, tuple[int, int]] = {}
    letters: dict[int, list[bytes]] = {}
    for other in range(shard.of):
        last = states[other].got.get(number, 0) if other in states else 0
        if last:
            sent[other] = last, states[other].got_units[number]
        while (data := posted.get((other, last + 1))) is not None:
            letters.setdefault(other, []).append(data)
            last += 1
    own = states.get(number)
    got = {other: (last, own.got_units[other]) for other, last in own.got.items()} if own is not None else {}
    return LostShard(got, sent, letters), own, awaited


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


def machine_path(folder: Path) -> str:
    """Where *folder* is, for people on other machines."""
    return f"{socket.gethostname()}:{folder.absolute()}"


def _numbered(keys: Keys, reply: Reply) -> dict[int, bytes]:
    try:
        return {int(number): value for number, value in pairs_of(reply).items()}
    except ValueError:
        raise keys.damaged("a shard has no number") from None

"""Replaces stores and lists on a server by others, all of them in one transaction, so that half of it is never seen.

A store is first made under the number of a shard that no job has, and then its keys are renamed. All keys of a job have one
hash tag, so a node of a cluster does that, too. Of a damaged store, every row is copied that is as it was written, wherever it
lies.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.address import MAX_SHARDS, Address

from .connect import connect
from .keys import Keys
from .rows import unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from .connection import Command, Connection, Reply

_LEFT = 3_600
"""Seconds after which the server forgets a part of a list, unless another part comes."""

_AT_ONCE = 1_000
"""Keys that are looked through at once."""


def beside(place: Address) -> Address:
    """Where a store is made that is put at *place* later."""
    return place.of_shard(MAX_SHARDS + 1 + max(place.shard, 0))


def put_in_place(made: Address, place: Address) -> None:
    """Put the store that was *made* there at *place*, where there is none, in one transaction; the caller alone may change it.

    Raises:
        StorageError: If the server cannot be reached, or the store is changed meanwhile. Nothing was moved then.
    """
    source, target = Keys(made), Keys(place)
    begin, to_begin = _beginning(source), _beginning(target)
    with closing(connect(place)) as connection:
        connection.watch(source.head, target.head)
        renames = [
            (b"RENAME", key, to_begin + key.removeprefix(begin))
            for key in sorted(_keys_of(connection, source))
        ]
        if connection.transact(*renames, (b"DEL", source.owner, source.views)) is None:
            raise StorageError(f"The store in {place} was changed meanwhile. Nothing was moved; try again.")


def put_pieces(
    connection: Connection,
    key: bytes,
    pieces: Iterable[bytes],
    *more: Command,
    unless: tuple[bytes, Callable[[set[bytes]], bool]] | None = None,
) -> None:
    """Store the list *pieces* under *key* and carry out the commands *more*, all at once.

    The remains of a process that was killed expire on the server.

    Args:
        unless: The key of a set, and a function that says, by its members, whether nothing is to be done.

    Raises:
        StorageError: If the server does not take them.
    """
    made, n = key + b"-new-" + secrets.token_hex(4).encode(), 0
    for n, piece in enumerate(pieces, 1):
        done = connection.transact((b"RPUSH", made, piece), (b"EXPIRE", made, _LEFT))
        if done is None or done[0] != n:
            raise StorageError(
                f"The server has lost a part of what was put there (key {key.decode(errors='replace')}). Nothing was changed; try again."
            )
    put = [(b"RENAME", made, key), (b"PERSIST", key)] if n else [(b"DEL", key)]
    while True:
        if unless is not None:
            connection.watch(unless[0])
            if unless[1](set(connection.ask((b"SMEMBERS", unless[0]))[0])):
                connection.ask((b"DEL", made), (b"UNWATCH",))
                return
        if connection.transact(*put, *more) is not None:
            return


def read_pieces(connection: Connection, key: bytes) -> Iterator[bytes]:
    """The list that :func:`put_pieces` has stored under *key*."""
    for number in count():
        if not (piece := connection.ask((b"LINDEX", key, number))[0]):
            return
        yield piece


def remove_store(place: Address) -> None:
    """Remove all rows, and the head, of a store that no process has open.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys = Keys(place)
    with closing(connect(place)) as connection:
        found = [*_keys_of(connection, keys), keys.owner, keys.views]
        for begin in range(0, len(found), _AT_ONCE):
            connection.ask((b"UNLINK", *found[begin : begin + _AT_ONCE]))


def remove_job(place: Address, but: Collection[bytes]) -> None:
    """Remove all keys of a job that no process has open, *but* some.

    Raises:
        StorageError: If the server cannot be reached.
    """
    with closing(connect(place)) as connection:
        found = sorted({*_keys_like(connection, Keys(place).of_job(b""))} - {*but})
        for begin in range(0, len(found), _AT_ONCE):
            connection.ask((b"UNLINK", *found[begin : begin + _AT_ONCE]))


def leaves_of(connection: Connection, keys: Keys) -> dict[Family, set[bytes]]:
    """The keys of all leaves of a store that are there, by family."""
    found = _keys_of(connection, keys)
    return {family: {key for key in found if key.startswith(keys.leaf(family, b""))} for family in Family}


def _beginning(keys: Keys) -> bytes:
    """The prefix of all keys of a store."""
    return keys.head.removesuffix(b"head")


def _keys_of(connection: Connection, keys: Keys) -> set[bytes]:
    """The head of a store, its leaves, and what says which these are, as far as they are there."""
    begins = tuple(keys.leaf(family, b"") for family in Family)
    single = {keys.head, *keys.separators.values()}
    return {
        key for key in _keys_like(connection, _beginning(keys)) if key in single or key.startswith(begins)
    }


def _keys_like(connection: Connection, start: bytes) -> Iterator[bytes]:
    """All keys that begin with *start*."""
    pattern = b"".join(b"\\" + bytes((each,)) if each in b"*?[]\\^-" else bytes((each,)) for each in start)
    for names in connection.walk((b"SCAN",), (b"MATCH", pattern + b"*", b"COUNT", _AT_ONCE)):
        yield from names


_LEAVES_AT_ONCE = 100
"""Leaves that are read at once: a megabyte at most, mostly."""


def copy_remains(place: Address, write: Callable[[Family, dict[bytes, bytes]], object]) -> dict[Family, int]:
    """Call *write* with each family of the store at *place* and some of its rows, until it had all that can be read.

    Returns:
        Rows and leaves of each family that are missing or cannot be read.

    Raises:
        StorageError: If the server cannot be reached.
    """
    keys, gaps = Keys(place), dict[Family, int]()
    with closing(connect(place)) as connection:
        found = leaves_of(connection, keys)
        for family in Family:
            (reply,) = connection.inquire((b"SMEMBERS", keys.separators[family]))
            expected = {keys.leaf(family, each) for each in reply} if isinstance(reply, list) else set()
            leaves = sorted(found[family])
            gaps[family] = len(expected ^ {*leaves})
            for begin in range(0, len(leaves), _LEAVES_AT_ONCE):
                replies = connection.inquire(
                    *((b"HGETALL", leaf) for leaf in leaves[begin : begin + _LEAVES_AT_ONCE])
                )
                for reply in replies:
                    rows, bad = _rows(family, reply)
                    gaps[family] += bad
                    if rows:
                        write(family, rows)
    return gaps


def _rows(family: Family, reply: Reply) -> tuple[dict[bytes, bytes], int]:
    """The rows in the reply for a leaf that are as they were written, and how many are not."""
    if not isinstance(reply, list):
        return {}, 1
    pairs = iter(reply)
    rows = {key: unseal(family, key, stored) for key, stored in zip(pairs, pairs, strict=True)}
    good = {key: value for key, value in rows.items() if value is not None}
    return good, len(rows) - len(good)

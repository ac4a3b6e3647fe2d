"""Letters between shards that wait on a server, in a box for each shard, or for each home of shards.

Rule: a letter stays until its receiver has shown that it has applied it, so each letter that was posted
is in its box, or in what the receiver has shown.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .connection import Argument, Connection, Reply
    from .keys import Keys

_LETTERS = 64
"""Letters to a shard that are read at once: some 50 kB each at most."""

_BUNDLES = 64
"""Bundles that are read at once."""

_BUNDLE_BYTES = 1 << 20
"""Bytes of letters from which on a bundle gets no more: few enough for one command, many times what a worker posts at once."""


class PostedLetter(NamedTuple):
    """A letter: from which shard, the number that it has there, and what it says."""

    sender: int
    number: int
    data: bytes


class Mailboxes(Protocol):
    """Where letters wait, as one process sees it."""

    def written(
        self,
        letters: Iterable[tuple[int, PostedLetter]],
        read: Iterable[tuple[int, Sequence[tuple[int, int]]]],
    ) -> list[Sequence[Argument]]:
        """Commands that send *letters* to shards, and remove letters that shards have *read* for good, by sender and number.

        The same letters may be given again if the outcome is not known.
        """

    def landed(self) -> None:
        """The last commands of :meth:`written` were carried out."""

    def questions(self, own: Mapping[int, int]) -> list[Sequence[Argument]]:
        """Commands that read the letters to the shards *own*, each of which was opened so many times."""

    def bring(
        self, connection: Connection, replies: Sequence[Reply], own: Mapping[int, int]
    ) -> dict[int, list[PostedLetter]]:
        """The letters to the shards *own* that were not brought before, by the *replies* to the questions."""

    def forget(self) -> None:
        """Nothing was brought: the server is another one."""


class ShardMail:
    """A box for each shard, which any process may come to hold: letters by sender and number."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._brought: dict[tuple[int, int], set[bytes]] = {}

    def written(
        self,
        letters: Iterable[tuple[int, PostedLetter]],
        read: Iterable[tuple[int, Sequence[tuple[int, int]]]],
    ) -> list[Sequence[Argument]]:
        """A command for each receiver."""
        boxes: dict[int, list[Argument]] = {}
        for to, letter in letters:
            boxes.setdefault(to, []).extend((_field(letter.sender, letter.number), letter.data))
        commands: list[Sequence[Argument]] = [
            (b"HSET", self._keys.mail(to), *fields) for to, fields in boxes.items()
        ]
        return commands + [
            (b"HDEL", self._keys.mail(shard), *(_field(*name) for name in names))
            for shard, names in read
            if names
        ]

    def landed(self) -> None:
        """Nothing is to be noted."""

    def questions(self, own: Mapping[int, int]) -> list[Sequence[Argument]]:
        """The names of all letters to each."""
        return [(b"HKEYS", self._keys.mail(number)) for number in own]

    def bring(
        self, connection: Connection, replies: Sequence[Reply], own: Mapping[int, int]
    ) -> dict[int, list[PostedLetter]]:
        """Some of those with new names, the first ones of each sender first."""
        self._brought = {opened: self._brought.get(opened, set()) for opened in own.items()}
        if not any(replies):
            return {}
        wanted: list[list[tuple[int, int]]] = []
        for brought, names in zip(self._brought.values(), replies, strict=True):
            brought &= {*names}
            wanted.append(sorted(map(self._name, {*names} - brought), key=lambda name: name[::-1])[:_LETTERS])
        commands = [
            (b"HMGET", self._keys.mail(number), *(_field(*name) for name in names))
            for number, names in zip(own, wanted, strict=True)
            if names
        ]
        found = iter(connection.ask(*commands))
        for brought, some in zip(self._brought.values(), wanted, strict=True):
            brought |= {_field(*name) for name in some}
        return {
            number: [
                PostedLetter(*name, data)
                for name, data in (zip(names, next(found), strict=True) if names else ())
                if data is not None
            ]
            for number, names in zip(own, wanted, strict=True)
        }

    def forget(self) -> None:
        """Nothing was brought."""
        self._brought = {}

    def _name(self, field: bytes) -> tuple[int, int]:
        try:
            sender, number = map(int, field.split(b":"))
        except ValueError:
            raise self._keys.damaged(f"a letter has the name {field[:50]!r}") from None
        return sender, number


class Addressed(NamedTuple):
    """A letter in a bundle, with the shard that it is for."""

    to: int
    sender: int
    number: int
    data: bytes


_HEAD = Struct(">HHQI")
"""The header of a letter in a bundle: receiving shard, sender, number there, and bytes of the letter."""


def write_bundle(letters: Iterable[Addressed]) -> bytes:
    """The bytes of a bundle."""
    return b"".join(
        part
        for to, sender, number, data in letters
        for part in (_HEAD.pack(to, sender, number, len(data)), data)
    )


def read_bundle(fields: Sequence[bytes]) -> list[Addressed]:
    """The letters in an entry of the box of a home.

    Raises:
        ValueError: If the bundle cannot be parsed.
    """
    _, data = fields
    letters, end = [], 0
    while end < len(data):
        begin = end + _HEAD.size
        if begin > len(data):
            raise ValueError("it is cut short")
        to, sender, number, n_bytes = _HEAD.unpack_from(data, end)
        end = begin + n_bytes
        if end > len(data):
            raise ValueError("it is cut short")
        letters.append(Addressed(to, sender, number, data[begin:end]))
    return letters


class HomeMail:
    """A box for each home of shards: a stream of *bundles*, each with all that a process has posted for the home at once.

    So posting, reading and removing take a command for each home, not for each pair of shards, and a bundle that was read is not
    read again. A bundle is removed when all letters in it were read.

    Ids of entries are only used to go on from the last one that was seen. If a server that has lost its data gives smaller ones,
    letters are missed until their senders send them again.

    Args:
        own: Name of the home whose box is read; ``""`` for none.

    Attributes:
        homes: Name of the home of each shard that has one.
    """

    def __init__(self, keys: Keys, own: str) -> None:
        self.homes: Mapping[int, str] = {}
        self._keys = keys
        self._home = own
        self._box = keys.mail_home(own)
        self.forget()

    def forget(self) -> None:
        """Nothing was brought."""
        self._last = b""
        self._bundles: dict[bytes, set[tuple[int, int, int]]] = {}
        self._read: list[bytes] = []
        self._waiting: dict[int, list[PostedLetter]] = {}
        self._own: Mapping[int, int] = {}

    def written(
        self,
        letters: Iterable[tuple[int, PostedLetter]],
        read: Iterable[tuple[int, Sequence[tuple[int, int]]]],
    ) -> list[Sequence[Argument]]:
        """A command for each home, and one for what was read."""
        by_home: dict[str, list[Addressed]] = {}
        for to, letter in letters:
            if to not in self.homes:
                raise StorageError(f"There is a letter to shard {to}, which is at home nowhere.")
            by_home.setdefault(self.homes[to], []).append(Addressed(to, *letter))
        commands: list[Sequence[Argument]] = [
            (b"XADD", self._keys.mail_home(home), b"*", b"letters", write_bundle(some))
            for home, each in by_home.items()
            for some in _bundles(each)
        ]
        done = {(to, *name) for to, names in read for name in names}
        if done:
            for unread in self._bundles.values():
                unread.difference_update(done)
        self._read = [bundle for bundle, unread in self._bundles.items() if not unread]
        if self._read:
            commands.append((b"XDEL", self._box, *self._read))
        return commands

    def landed(self) -> None:
        """The bundles that were read are gone."""
        for bundle in self._read:
            self._bundles.pop(bundle, None)
        self._read = []

    def questions(self, own: Mapping[int, int]) -> list[Sequence[Argument]]:
        """The bundles that come next."""
        if any(own.get(number, opened) != opened for number, opened in self._own.items()):
            self.forget()  # one was opened again, and may have forgotten its letters
        self._own = {**self._own, **own}
        return (
            [(b"XRANGE", self._box, b"(" + self._last if self._last else b"-", b"+", b"COUNT", _BUNDLES)]
            if own
            else []
        )

    def bring(
        self, connection: Connection, replies: Sequence[Reply], own: Mapping[int, int]
    ) -> dict[int, list[PostedLetter]]:
        """The letters in them; those to a shard that is not open yet are kept until it is."""
        del connection
        for entry, fields in replies[0] if replies else ():
            # Others are sent again, to where their receivers are now.
            here = [each for each in self._letters(fields) if self.homes.get(each.to) == self._home]
            self._bundles[entry] = {each[:3] for each in here}
            for to, sender, number, data in here:
                self._waiting.setdefault(to, []).append(PostedLetter(sender, number, data))
            self._last = entry
        return {number: self._waiting.pop(number) for number in own if number in self._waiting}

    def _letters(self, fields: Sequence[bytes]) -> list[Addressed]:
        try:
            return read_bundle(fields)
        except ValueError:
            raise self._keys.damaged(f"a bundle of letters is {fields!r:.50}") from None


def _bundles(letters: Iterable[Addressed]) -> Iterator[list[Addressed]]:
    """All *letters*, some at a time."""
    some: list[Addressed] = []
    n_bytes = 0
    for letter in letters:
        if some and n_bytes + len(letter.data) > _BUNDLE_BYTES:
            yield some
            some, n_bytes = [], 0
        some.append(letter)
        n_bytes += len(letter.data)
    if some:
        yield some


def _field(sender: int, number: int) -> bytes:
    """The name of a letter in the box of a shard."""
    return b"%d:%d" % (sender, number)

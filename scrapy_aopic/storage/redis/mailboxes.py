"""Letters between shards that wait on a server, in a box for each worker.

Rule: a letter stays in the box until its receiver has stored that it has applied it, so each letter that was posted to a worker
that lives is in its box, or in what the receiver has shown. The box ends with the worker: senders send again what it did not show.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .connection import Command, Reply
    from .keys import Keys

_BUNDLES = 64
"""Bundles that are read at once."""

_UNREAD = 600_000
"""Milliseconds after which the box of a worker that has died is removed: thousands of times what a live one takes to read it."""

_BUNDLE_BYTES = 1 << 20
"""Bytes of letters from which on a bundle gets no more: few enough for one command, many times what a worker posts at once."""


class PostedLetter(NamedTuple):
    """A letter: from which shard, the number that it has there, and what it says."""

    sender: int
    number: int
    data: bytes


Letters: TypeAlias = "Iterable[tuple[int, PostedLetter]]"
"""Letters to shards, each with its receiver."""

ReadLetters: TypeAlias = "Iterable[tuple[int, Sequence[tuple[int, int]]]]"
"""Letters that shards have read for good, by sender and number."""


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
    """The letters in an entry of a box.

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


class Mailboxes:
    """Boxes of workers: each is a stream of *bundles*, each with all that a process has posted for the worker at once.

    So posting, reading and removing take a command for each worker, not for each pair of shards, and a bundle that was read is not
    read again. A bundle is removed when all letters in it were read, or are for shards that others have by now.

    Ids of entries are only used to go on from the last one that was seen. If a server that has lost its data gives smaller ones,
    letters are missed until their senders send them again.

    Args:
        own: Name of the box that is read.

    Attributes:
        boxes: Name of the box for the letters to each shard, as far as it is known.
    """

    def __init__(self, keys: Keys, own: str) -> None:
        self.boxes: Mapping[int, str] = {}
        self._keys = keys
        self._own_name = own
        self._box = keys.mail(own)
        self.forget()

    def forget(self) -> None:
        """Nothing was brought."""
        self._last = b""
        self._bundles: dict[bytes, set[tuple[int, int, int]]] = {}
        self._read: list[bytes] = []
        self._waiting: dict[int, list[PostedLetter]] = {}
        self._own: Mapping[int, int] = {}

    def written(self, letters: Letters, read: ReadLetters) -> list[Command]:
        """Commands that send *letters* to shards, and remove letters that shards have *read* for good, by sender and number.

        The same letters may be given again if the outcome is not known.
        """
        by_box: dict[str, list[Addressed]] = {}
        for to, letter in letters:
            if to not in self.boxes:
                raise StorageError(f"There is a letter to shard {to}, which nobody has had.")
            by_box.setdefault(self.boxes[to], []).append(Addressed(to, *letter))
        commands: list[Command] = [
            (b"XADD", self._keys.mail(box), b"*", b"letters", write_bundle(some))
            for box, each in by_box.items()
            for some in _bundles(each)
        ]
        commands += [(b"PEXPIRE", self._keys.mail(box), _UNREAD) for box in by_box]
        done = {(to, *name) for to, names in read for name in names}
        for bundle, unread in self._bundles.items():
            self._bundles[bundle] = {each for each in unread - done if self._is_here(each[0])}
        self._read = [bundle for bundle, unread in self._bundles.items() if not unread]
        if self._read:
            commands.append((b"XDEL", self._box, *self._read))
        return commands

    def landed(self) -> None:
        """The last commands of :meth:`written` were carried out."""
        for bundle in self._read:
            self._bundles.pop(bundle, None)
        self._read = []

    def questions(self, own: Mapping[int, int]) -> list[Command]:
        """Commands that read what comes next for the shards *own*, each of which was opened so many times."""
        if any(own.get(number, opened) != opened for number, opened in self._own.items()):
            self.forget()  # one was opened again, and may have forgotten its letters
        self._own = {**self._own, **own}
        return (
            [(b"XRANGE", self._box, b"(" + self._last if self._last else b"-", b"+", b"COUNT", _BUNDLES)]
            if own
            else []
        )

    def bring(self, replies: Sequence[Reply], own: Mapping[int, int]) -> dict[int, list[PostedLetter]]:
        """The letters to the shards *own* by the *replies* to the questions; those to one that is not open yet are kept until it is."""
        for entry, fields in replies[0] if replies else ():
            letters = self._letters(fields)
            self._bundles[entry] = {each[:3] for each in letters}
            for to, sender, number, data in letters:
                self._waiting.setdefault(to, []).append(PostedLetter(sender, number, data))
            self._last = entry
        # Others are sent again, to where their receivers are now.
        self._waiting = {to: some for to, some in self._waiting.items() if to in own or self._is_here(to)}
        return {number: self._waiting.pop(number) for number in own if number in self._waiting}

    def _is_here(self, number: int) -> bool:
        return self.boxes.get(number, self._own_name) == self._own_name

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

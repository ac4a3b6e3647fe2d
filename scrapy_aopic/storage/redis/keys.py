"""The names of a job's keys in Redis. No I/O.

All keys begin with the job's key in braces, a hash tag, so that a cluster keeps them on one node. After that:

==================  ====================================================================================
``head``            format of the rows, token of the owner, number of the last commit
``owner``           who has the job open, as JSON; expires with the lock
``leaves:N``        separators of the leaves of family N that have rows (:mod:`.leaves`)
``N:separator``     a leaf: a hash of rows
``views``           ids of the open views
``view:ID``         there as long as that view lives
``saved:ID``        leaves that changed since the view ID was opened, as ``N:separator``
``seeds``           names of the lists of seeds that wait
``seeds:NAME``      such a list, in pieces
``old:ID:N:sep..``  the rows of such a leaf then; absent if it had none
``cut``             of a job in shards: how many, by which list of public suffixes, and what is spread (:mod:`.sharding`)
``beginning``       there while such a job is made
``moved``           where the job was moved to, or is being moved
``workers``         processes that crawl such a job, by their tokens
``states``          the state of each shard at its last commit
``log``             the last of them that were shown, in their order
``logged``          how many entries the log ever had
``mail:hTOKEN``     letters to the shards of such a process, in bundles (:mod:`.mailboxes`)
``sS:...``          all of the above but the last eight, of shard S of a job that has several
``lessons``         lessons of the workers of such a job for each other, about a topic (:mod:`.shared_lessons`)
``learned``         the knowledge of one of them, for those that start later
``grades``          how many pages were graded for a topic, and were relevant
``homes``           of a job whose shards are in several job folders: which has each (:mod:`scrapy_aopic.storage.homes`)
``books``           units that each shard has sent to others and received
``anew``            shards whose disk is lost, and up to which commit
==================  ====================================================================================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.layout import FORMAT, Family
from scrapy_aopic.exceptions import SALVAGE, SettingError, StorageError

if TYPE_CHECKING:
    from scrapy_aopic.storage.address import Address

_KEY_CHARACTERS = 200
"""Characters of a job's key, at most: each of its keys begins with them."""


class Head(NamedTuple):
    """The value of ``head``.

    Attributes:
        format: Format of the rows.
        token: Token of the process that may commit.
        number: Number of the last commit.
    """

    format: int
    token: str
    number: int

    def packed(self) -> bytes:
        """As it is stored."""
        return f"{self.format} {self.token} {self.number}".encode()


class Keys:
    """The keys of the job at *address*.

    Raises:
        SettingError: If the job's key cannot be one.
    """

    def __init__(self, address: Address) -> None:
        key = address.key
        if not 0 < len(key) <= _KEY_CHARACTERS or not re.fullmatch(r"[^\s{}]+", key):
            raise SettingError(
                f"The key of a job in Redis ({key!r}) must have 1 to {_KEY_CHARACTERS} characters, without spaces and "
                "braces."
            )
        self._address = address
        self._job = b"{%s}:" % key.encode()
        part = b"s%d:" % address.shard if address.shard >= 0 else b""
        self._start = start = self._job + part
        self.head = start + b"head"
        self.owner = start + b"owner"
        self.views = start + b"views"
        self.seed_lists = start + b"seeds"
        self.separators = {family: start + b"leaves:%d" % family for family in Family}
        self._leaves = {family: start + b"%d:" % family for family in Family}

    def leaf(self, family: Family, separator: bytes) -> bytes:
        """A leaf."""
        return self._leaves[family] + separator

    def seed_list(self, name: bytes) -> bytes:
        """The pieces of a list of seeds."""
        return self.seed_lists + b":" + name

    def of_job(self, name: bytes) -> bytes:
        """The key *name* that all shards of the job share."""
        return self._job + name

    def mail(self, box: str) -> bytes:
        """The letters in the box of a worker with that token."""
        return self._job + b"mail:h%s" % box.encode()

    def view(self, view: bytes) -> bytes:
        """The key that exists while a view lives."""
        return self._start + b"view:" + view

    def saved(self, view: bytes) -> bytes:
        """The names of the leaves that changed since a view was opened."""
        return self._start + b"saved:" + view

    def old(self, view: bytes, name: bytes) -> bytes:
        """The leaf called *name* (:func:`leaf_name`) as of when a view was opened."""
        return self._start + b"old:" + view + b":" + name

    def read_head(self, data: bytes | None) -> Head | None:
        """Parse the value of ``head``; ``None`` if there is no job.

        Raises:
            StorageError: If it cannot be parsed, or the rows have another format.
        """
        if data is None:
            return None
        if not (found := re.fullmatch(rb"(\d{1,9}) (\w+) (\d{1,19})", data)):
            raise self.damaged(f"its head is {data[:50]!r}")
        head = Head(int(found[1]), found[2].decode(), int(found[3]))
        if head.format != FORMAT:
            raise StorageError(
                f"The job in {self._address} was written in format {head.format}, and this scrapy-aopic reads format "
                f"{FORMAT}: use the version that wrote it, or another key. Nothing was changed."
            )
        return head

    def damaged(self, what: str) -> StorageError:
        """The error for a store in which *what*, a clause, shows damage."""
        return StorageError(f"The store in {self._address} is damaged: {what}. {SALVAGE}")


def leaf_name(family: Family, separator: bytes) -> bytes:
    """The name of a leaf among those of all families."""
    return b"%d:%s" % (family, separator)

"""A view of a store in Redis as it was when the view was opened, while another process goes on writing.

1. A view puts its id into the set ``views``, in the transaction in which it reads which leaves there are. The writer
   watches that set: from its next commit on it copies each leaf that it changes, before its first change, and notes it
   in the view's set ``saved``. So a crawl without views pays nothing for them, and one with views little.
2. A view reads a leaf first and then asks whether it was saved: what was not saved by then had not changed before.
3. A view that has died is forgotten by the writer; it lives as long as it renews its key ``view:ID``.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, closed_on_error

from .connect import connect
from .keys import Keys, leaf_name
from .rows import AT_ONCE, ask_for_leaves, chunks, measure, read_leaves, read_rows, read_values
from .scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_aopic.core.ports import Batch, Family
    from scrapy_aopic.storage.address import Address

    from .connection import Command, Connection, Reply
    from .leaves import Leaves, Rows

_LIFE = 60.0
"""Seconds after which the writer forgets a view that has died."""


class RedisView:
    """A view of the store of the job at *address*.

    Args:
        begins: Whether it begins at once; :meth:`of_shards` begins several together.

    Raises:
        StorageError: If there is no job, or the server does not work.
        SettingError: If the address cannot be one.
    """

    def __init__(self, address: Address, *, begins: bool = True) -> None:
        self._address = address
        self._keys = keys = Keys(address)
        self._id = secrets.token_hex(8).encode()
        self._reading = threading.Lock()
        self._is_closed = False
        self._ended = threading.Event()
        self._leaves: dict[Family, Leaves] = {}
        self._connection = connect(address)
        with closed_on_error(self._connection.close):
            head, cut = self._connection.ask((b"GET", keys.head), (b"EXISTS", keys.of_job(b"cut")))
            if keys.read_head(head) is None:
                if cut and address.shard < 0:
                    raise StorageError(
                        f"The job in {address} is cut into shards, each with a store of its own: of these, this command "
                        "takes none yet (scrapy aopic docs many-machines#the-job)."
                    )
                raise StorageError(f"There is no store in {address}; start a crawl with it first.")
            if begins:
                _begin([self])

    @classmethod
    def of_shards(cls, address: Address, shards: int) -> list[RedisView]:
        """Views of all stores of the job at *address*, as they were at one moment.

        Raises:
            StorageError: If one is not there yet, or the server does not work.
        """
        views: list[RedisView] = []
        try:
            views.extend(cls(address.of_shard(number), begins=False) for number in range(shards))
            _begin(views)
        except BaseException:
            for view in views:
                view.close()
            raise
        return views

    def _keep(self) -> None:
        """Renew the view until it is closed."""
        connection: Connection | None = None
        while not self._ended.wait(_LIFE / 4):
            with suppress(StorageError):  # a read notices if that takes too long
                connection = connection or connect(self._address)
                connection.ask((b"PEXPIRE", self._keys.view(self._id), round(_LIFE * 1000)))
        if connection is not None:
            connection.close()

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        groups = self._leaves[family].group(keys)
        replies = self._read(family, [*groups], b"HMGET", [*groups.values()])
        found = read_values(self._keys, family, groups.values(), replies)
        return [found[key] for key in keys]

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        return Scan(self, self._keys, family, (start, stop), self._leaves[family].between(start, stop))

    def read_leaves(self, scan: Scan, separators: Sequence[bytes]) -> list[Rows]:
        """The leaves *separators* as they were when the view was opened."""
        replies = self._read(scan.family, separators, b"HGETALL", [()] * len(separators))
        return [read_rows(self._keys, scan.family, reply) for reply in replies]

    def _read(
        self, family: Family, separators: Sequence[bytes], word: bytes, fields: Sequence[Sequence[bytes]]
    ) -> list[Reply]:
        """The replies to the command *word* with *fields* for each leaf."""
        with self._reading:
            self._check_open()
            if not separators:
                return []
            keys = self._keys
            names = [leaf_name(family, each) for each in separators]
            now: list[Command] = [
                (word, keys.leaf(family, each), *group)
                for each, group in zip(separators, fields, strict=True)
            ]
            *replies, are_saved, is_alive = self._connection.ask(
                *now, (b"SMISMEMBER", keys.saved(self._id), *names), (b"EXISTS", keys.view(self._id))
            )
            saved = [n for n, is_saved in enumerate(are_saved) if is_saved]
            if saved and is_alive:
                *old, is_alive = self._connection.ask(
                    *((word, keys.old(self._id, names[n]), *fields[n]) for n in saved),
                    (b"EXISTS", keys.view(self._id)),
                )
                for n, reply in zip(saved, old, strict=True):
                    replies[n] = reply
        if not is_alive:
            raise StorageError(
                f"The view of the store in {self._address} has ended, because the server was not reached for {_LIFE:g} s "
                "or has lost it; open another one."
            )
        return replies

    def write(self, batch: Batch, *, sync: bool) -> None:
        del batch, sync
        self._check_open()
        raise StorageError(f"The view of the store in {self._address} cannot be written; open the store.")

    def size_bytes(self) -> int:
        with self._reading:
            self._check_open()
            return measure(self._connection, self._keys, self._leaves)

    def verify(self) -> None:
        for family in self._leaves:
            deque(self.scan(family), maxlen=0)

    def close(self) -> None:
        with self._reading:
            if self._is_closed:
                return
            self._is_closed = True
            self._ended.set()
            with suppress(StorageError):  # then the writer forgets it
                forget_view(self._connection, self._keys, self._id)
            self._connection.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError(f"The view of the store in {self._address} is closed; open another one.")


def _begin(views: Sequence[RedisView]) -> None:
    """Begin all *views* at one moment."""
    commands: list[list[Command]] = []
    for view in views:
        keys = view._keys
        is_alive = (b"SET", keys.view(view._id), b"", b"PX", round(_LIFE * 1000))
        commands.append([(b"SADD", keys.views, view._id), is_alive, *ask_for_leaves(keys)])
    replies = iter(views[0]._connection.transact(*chain(*commands)) or ())
    for view, own in zip(views, commands, strict=True):
        _, _, *separators = islice(replies, len(own))
        view._leaves = read_leaves(separators)
        threading.Thread(target=view._keep, name="aopic-view", daemon=True).start()


def forget_view(connection: Connection, keys: Keys, view: bytes) -> None:
    """Remove the keys of a *view* from the server.

    Raises:
        StorageError: If the server cannot be reached.
    """
    (names,) = connection.ask((b"SMEMBERS", keys.saved(view)))
    for part in chunks([*names], AT_ONCE):
        connection.ask((b"UNLINK", *(keys.old(view, name) for name in part)))
    connection.ask((b"UNLINK", keys.saved(view), keys.view(view)), (b"SREM", keys.views, view))

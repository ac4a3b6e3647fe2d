"""Reads rows of a :class:`~.store.RedisStore` before they are wanted, so that a crawl does not wait for the server.

1. Requests for rows go out on the connection that reads, and their replies are taken as they arrive. A read of a row that has
   not arrived waits for the rest of the time only.
2. A row here is as in the store: a batch that is to change it removes it here, even if the batch then fails.
3. Rows under way while a batch is carried out do not count: the server may read such a row before the batch or after it, and a
   leaf that the batch cuts does not have it any more.
4. Each row is handed out once. When there are :data:`MOST`, all are forgotten, because those that wait so long are not wanted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.ports import Batch, Family

from .connection import Connection, Reply, ReplyError
from .rows import unseal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .keys import Keys
    from .leaves import Leaves

MOST = 20_000
"""Rows that are kept, at most: some megabytes."""


class _Sent(NamedTuple):
    """A request that is under way.

    Attributes:
        groups: Keys by leaf, in the order of its commands.
    """

    family: Family
    groups: list[list[bytes]]


class ReadAhead:
    """Rows that were read ahead on *connection*, which others may use, too; for one thread at a time."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._sent: deque[_Sent] = deque()
        self._lane: deque[Reply] = deque()
        self._n_sent = 0
        self._n_void = 0  # of those under way, the first ones, which do not count
        self._opened = connection.n_opened
        self._found: dict[Family, dict[bytes, bytes | None]] = {family: {} for family in Family}
        self._n_found = 0
        self._wanted: dict[Family, set[bytes]] = {family: set() for family in Family}

    def has_come(self, number: int) -> bool:
        """Whether nothing is under way any more that counts and was sent up to the request with that *number*."""
        self.look()
        return self._n_sent - len(self._sent) + self._n_void >= number

    def send(self, family: Family, keys: Iterable[bytes], leaves: Leaves) -> int:
        """Ask for the rows under those of *keys* that are neither here nor under way.

        Returns:
            Number of the request that brings the last of them.
        """
        self.look()
        found, wanted = self._found[family], self._wanted[family]
        missing = [key for key in keys if key not in found and key not in wanted]
        if not missing:
            return self._n_sent
        groups = leaves.group(missing)
        leaf = self._keys.leaf
        try:
            self._connection.send_ahead(
                self._lane, *((b"HMGET", leaf(family, each), *group) for each, group in groups.items())
            )
        except OSError:  # the next read says so, or makes another connection
            self._forget_sent()
            return self._n_sent
        self._sent.append(_Sent(family, list(groups.values())))
        self._n_sent += 1
        wanted.update(missing)
        return self._n_sent

    def take(self, family: Family, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """The rows under those of *keys* that were read ahead; they are handed out once."""
        wanted = self._wanted[family]
        if wanted and not wanted.isdisjoint(keys):
            self.look(waits=True)
        found = self._found[family]
        if not found:
            return {}
        taken = {key: found.pop(key) for key in keys if key in found}
        self._n_found -= len(taken)
        return taken

    def changed(self, batch: Batch) -> None:
        """*batch* is going to be carried out, unless that fails."""
        self._n_void = len(self._sent)
        for wanted in self._wanted.values():
            wanted.clear()
        for family, rows in batch.items():
            found = self._found[family]
            for key in found.keys() & rows.keys():
                del found[key]

    def look(self, *, waits: bool = False) -> None:
        """Take what has come; all that is under way if one *waits* for it."""
        if self._opened != self._connection.n_opened:
            self._forget_sent()
        while self._sent:
            sent = self._sent[0]
            try:
                replies = self._connection.came(len(sent.groups), self._lane, waits=waits)
            except OSError:
                self._forget_sent()
                return
            if replies is None:
                return
            self._sent.popleft()
            if self._n_void:
                self._n_void -= 1
            else:
                self._keep(sent, replies)

    def _keep(self, sent: _Sent, replies: list[Reply]) -> None:
        family, found = sent.family, self._found[sent.family]
        if self._n_found > MOST:
            for each in self._found.values():
                each.clear()
            self._n_found = 0
        for group, reply in zip(sent.groups, replies, strict=True):
            self._wanted[family].difference_update(group)
            if isinstance(reply, ReplyError):  # a read of them will show why
                continue
            for key, stored in zip(group, reply, strict=True):
                value = None if stored is None else unseal(family, key, stored)
                if stored is None or value is not None:  # else it is damaged
                    found[key] = value
        self._n_found = sum(map(len, self._found.values()))

    def _forget_sent(self) -> None:
        self._sent.clear()
        self._lane.clear()
        self._n_void = 0
        self._opened = self._connection.n_opened
        for wanted in self._wanted.values():
            wanted.clear()

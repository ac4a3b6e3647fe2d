"""Hosts of which the crawl has no page: they still get requests, and these are polite.

Such a host has a robots.txt after a redirect, an image, or a page that a callback downloads. Its pace is kept like that of
any other host, in a record in the index, so that it survives a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import OUTSIDERS
from scrapy_aopic.core.records import NO_RECORD
from scrapy_aopic.exceptions import StorageError

from .host_state import HostState, pack_state, unpack_state

if TYPE_CHECKING:
    from scrapy_aopic.core.tables import RowTable

_MOST = 10_000
"""Most outsiders that are kept, some 2 MB; the least recently used one is dropped first."""


class Outsiders:
    """The hosts without any page, on the *index* of the store."""

    def __init__(self, index: RowTable) -> None:
        self._index = index
        self._hosts: OrderedDict[bytes, HostState] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._hosts

    def load(self) -> None:
        """Take up those that the store holds.

        Raises:
            StorageError: If a record is not valid.
        """
        rows, _ = self._index.first(OUTSIDERS, 1 << 60)
        try:
            self._hosts.update((row[1:], unpack_state(value)) for row, value in rows)
        except NO_RECORD as error:
            raise StorageError(
                "What is known of a host without pages cannot be understood: 'scrapy aopic repair' mends the job."
            ) from error

    def find(self, key: bytes) -> HostState | None:
        """The outsider under *key*, if there is one."""
        return self._hosts.get(key)

    def get(self, key: bytes, name: str) -> HostState:
        """The outsider under *key* called *name*, to be changed and given to :meth:`put`."""
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = HostState(name)
        self._hosts.move_to_end(key)
        if len(self._hosts) > _MOST:
            self._index.delete(OUTSIDERS + self._hosts.popitem(last=False)[0])
        return host

    def put(self, key: bytes, host: HostState) -> None:
        """Write what changed of the outsider under *key*."""
        self._index.put(OUTSIDERS + key, pack_state(host))

    def pop(self, key: bytes) -> HostState | None:
        """The host under *key*, which is no outsider any more if it was one."""
        host = self._hosts.pop(key, None)
        if host is not None:
            self._index.delete(OUTSIDERS + key)
        return host

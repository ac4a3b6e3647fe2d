"""The spider of :mod:`.follow_spider` in a process that trusts a server which was restarted: a control, which must fail."""

from __future__ import annotations

from scrapy_aopic.storage.redis.connection import Connection
from support.follow_spider import Follow as _Follow


class Follow(_Follow):
    """As it is."""


Connection.pin = lambda self, run=b"": b"any"  # type: ignore[method-assign]

"""The spider of :mod:`.follow_spider` in a process whose commits are never refused: a control, which must fail."""

from __future__ import annotations

from scrapy_aopic.storage.redis.server_lock import ServerLock
from support.follow_spider import Follow as _Follow


class Follow(_Follow):
    """As it is."""


ServerLock.why_refused = lambda self, data: ""  # type: ignore[method-assign]
ServerLock.check = lambda self: None  # type: ignore[method-assign]
ServerLock.is_fading = False  # type: ignore[assignment,method-assign]

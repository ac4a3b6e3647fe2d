"""The robots.txt of each origin, or another file of which each has one: its text, how long that holds, when to fetch it again.

1. A text, or the fact that there is none (404 and the like), holds for :attr:`Refetching.expiry` seconds.
2. If a fetch fails after that (a time-out, 5xx, 429), the old text holds until the next try, but for no longer than
   :data:`_MAX_AGE` in all (RFC 9309, 2.3.1.4). Without an old text nothing is allowed.
3. The pause between tries doubles, up to the expiry; when it would be longer than :attr:`Refetching.patience`, it is the expiry.
4. A text that has not been used yet holds however old it is: the request for which it was fetched had to wait.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from scrapy_aopic.core.records import NO_RECORD, pack, unpack

_MAX_AGE = 30 * 86_400
"""Seconds for which old rules are obeyed while robots.txt is unreachable. The RFC suggests 24 hours unless it stays
unreachable; after 30 days Google, too, takes it that nothing is known."""

_BYTES_PER_ENTRY = 4096
"""A robots.txt counts as one more entry of the memory for each of these, so that large files cannot fill it."""

_MAX_DOUBLINGS = 60
"""Doublings of the pause between tries that are computed: more would only leave the range of a float."""


class Refetching(NamedTuple):
    """When a robots.txt is fetched again.

    Attributes:
        expiry: Seconds for which what was found holds.
        retry: Seconds until the second try, if the first has failed.
        patience: Longest pause for which pages wait (``AOPIC_MAX_WAIT``).
    """

    expiry: float
    retry: float
    patience: float

    def pause(self, failures: int) -> float:
        """Seconds until the next try, after that many *failures* in a row."""
        return self.expiry if self.gives_up(failures) else min(self._doubled(failures), self.expiry)

    def gives_up(self, failures: int) -> bool:
        """Whether pages need not wait any more, after that many *failures* in a row."""
        return failures > 0 and self._doubled(failures) > self.patience

    def _doubled(self, failures: int) -> float:
        return self.retry * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)


class RobotsTxt:
    """The robots.txt of one origin, as far as it is known. Instants are in seconds since the epoch.

    Attributes:
        text: The last text, empty if there was no such file; ``None`` if no fetch has succeeded yet.
        fetched_at: When it was fetched.
        failures: Failed fetches since then.
        retry_at: When the next try is due after these.
        is_unused: Whether the text has not been used since it was fetched (rule 4). In memory only.
        was_slow: Whether the text before this one may have had a crawl delay. In memory only.
        paced: Download slot whose pacing knows of the crawl delay. In memory only.
        parser: The parsed text; ``None`` if it was not parsed. In memory only.
        error: The error that ended the last fetch, if it had no response. In memory only.
    """

    __slots__ = (
        "error",
        "failures",
        "fetched_at",
        "is_unused",
        "paced",
        "parser",
        "retry_at",
        "text",
        "was_slow",
    )

    def __init__(
        self, text: bytes | None, fetched_at: float = 0.0, failures: int = 0, retry_at: float = 0.0
    ) -> None:
        self.text = text
        self.fetched_at = fetched_at
        self.failures = failures
        self.retry_at = retry_at
        self.is_unused = False
        self.was_slow = False
        self.paced: str | None = None
        self.parser: object = None
        self.error: object = None

    @property
    def size(self) -> int:
        """Entries of the memory that it takes."""
        return 1 + len(self.text or b"") // _BYTES_PER_ENTRY

    @property
    def is_slow(self) -> bool:
        """Whether the text may have a crawl delay."""
        return b"delay" in (self.text or b"").lower()

    def has_rules(self, now: float, expiry: float) -> bool:
        """Whether there are rules to go by (rules 1, 2 and 4)."""
        if self.text is None:
            return False
        age = now - self.fetched_at
        is_new = self.is_unused or 0 <= age <= expiry
        return is_new or (self.failures > 0 and now < self.retry_at and age <= _MAX_AGE)

    def is_due(self, now: float, expiry: float) -> bool:
        """Whether it is time to fetch it again."""
        return now >= self.retry_at and not self.has_rules(now, expiry)

    def to_bytes(self) -> bytes:
        """The fields that outlive the process."""
        text = None if self.text is None else zlib.compress(self.text)
        return pack((text, self.fetched_at, self.failures, self.retry_at))

    @classmethod
    def from_bytes(cls, data: bytes) -> RobotsTxt:
        """Read what :meth:`to_bytes` wrote."""
        text, *rest = unpack(data)
        return cls(None if text is None else zlib.decompress(text), *rest)


class KnownRobots:
    """The robots.txt of all origins: those used last in memory, the others where the caller keeps them.

    Args:
        capacity: Entries in memory; see :attr:`RobotsTxt.size`.
        load: Gives the bytes that were kept for an origin, or ``None``.
        keep: Keeps the bytes of an origin.
    """

    def __init__(
        self,
        refetching: Refetching,
        capacity: int,
        load: Callable[[str], bytes | None],
        keep: Callable[[str, bytes], None],
    ) -> None:
        self._refetching = refetching
        self._capacity = capacity
        self._load = load
        self._keep = keep
        self._in_memory: OrderedDict[str, RobotsTxt] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Origins in memory."""
        return len(self._in_memory)

    def get(self, origin: str) -> RobotsTxt | None:
        """The robots.txt of *origin*; ``None`` if nothing is known."""
        robots = self._in_memory.get(origin)
        if robots is not None:
            self._in_memory.move_to_end(origin)
            return robots
        data = self._load(origin)
        if data is None:
            return None
        try:
            robots = RobotsTxt.from_bytes(data)
        except (*NO_RECORD, zlib.error):  # it is fetched again
            return None
        self._remember(origin, robots)
        return robots

    def get_current(self, origin: str, now: float) -> RobotsTxt | None:
        """The robots.txt of *origin*; ``None`` if nothing is known, or it is time to fetch it again."""
        robots = self.get(origin)
        return None if robots is None or robots.is_due(now, self._refetching.expiry) else robots

    def has_rules(self, robots: RobotsTxt, now: float) -> bool:
        """Whether *robots* has rules to go by."""
        return robots.has_rules(now, self._refetching.expiry)

    def is_given_up(self, robots: RobotsTxt) -> bool:
        """Whether *robots* was unreachable so often that its pages need not wait for it."""
        return self._refetching.gives_up(robots.failures)

    def learn(self, origin: str, text: bytes | None, now: float) -> RobotsTxt:
        """Take note of what a fetch for *origin* has found: its *text*, ``None`` if it failed."""
        old = self.get(origin)
        if text is not None:
            robots = RobotsTxt(text, now)
            robots.is_unused = True
            robots.was_slow = old is not None and old.is_slow
        else:
            robots = old or RobotsTxt(None)
            robots.failures += 1
            robots.retry_at = now + self._refetching.pause(robots.failures)
        self._remember(origin, robots)
        self._keep(origin, robots.to_bytes())
        return robots

    def _remember(self, origin: str, robots: RobotsTxt) -> None:
        """Have *robots* in memory, and drop from it what was used least recently."""
        old = self._in_memory.pop(origin, None)
        self._in_memory[origin] = robots
        self._size += robots.size - (old.size if old is not None else 0)
        while self._size > self._capacity and len(self._in_memory) > 1:
            self._size -= self._in_memory.popitem(last=False)[1].size

"""Hands snapshots of a crawl from its event loop to the threads that serve clients.

Rule 1: the owner calls :meth:`Feed.beat` a few times a second. A beat costs a comparison unless a client waits.

Rule 2: a snapshot is never changed after it was taken, so threads read it without a lock.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from scrapy_aopic.view.history import Point, point_of
from scrapy_aopic.view.snapshot import Snapshot

EVERY = 2.0
"""Seconds between snapshots while a client waits for them: twice as many cost a browser twice the processor, which the crawl needs."""

_POINT_EVERY = 10.0
"""Seconds between points of the history, which are taken whether a client waits or not."""

_N_POINTS = 2160
"""Points that are kept: six hours, some 400 kB."""

_NEARLY = 0.95
"""Part of :data:`EVERY` after which a snapshot may be taken: beats are not exact."""


class FeedItem(NamedTuple):
    """The figures and stats of a crawl at one moment.

    Attributes:
        now: Its figures.
        stats: Stats of Scrapy, and those that follow from the figures.
    """

    now: Snapshot
    stats: Mapping[str, Any]


class Frame(NamedTuple):
    """A snapshot on its way to clients.

    Attributes:
        number: From 1.
        instant: When it was seen, on the monotonic clock.
        json: Its figures.
    """

    number: int
    instant: float
    seen: FeedItem
    json: bytes


_encode = msgspec.json.Encoder().encode


def to_json(value: object) -> bytes:
    """*value* as JSON, with question marks for what is no text: the name of a folder may be any bytes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False)
        return text.encode("utf-8", "replace")


class Feed:
    """Passes snapshots from one thread to many.

    Args:
        take: Takes a snapshot; called by :meth:`beat` only. Returns ``None`` if that cannot be done now.
        every: Seconds between two snapshots while a client waits.

    Attributes:
        reason: Why there will be no more; empty as long as there will.
    """

    def __init__(self, take: Callable[[], FeedItem | None], *, every: float = EVERY) -> None:
        self._take = take
        self._every = every
        self._changed = Condition()
        self._n_waiting = 0
        self._frame: Frame | None = None
        self._points: deque[Point] = deque(maxlen=_N_POINTS)
        self._point_at = -_POINT_EVERY
        self._looked_at = -every
        self._beat_at = monotonic()
        self.reason = ""

    # -- the side of the crawl

    def beat(self) -> None:
        """Take a snapshot, if a client waits or a point of the history is due."""
        now = monotonic()
        is_wanted = self._n_waiting and now - self._looked_at >= _NEARLY * self._every
        if is_wanted or now - self._point_at >= _POINT_EVERY:
            self._look(now)
        self._beat_at = monotonic()

    def _look(self, now: float) -> None:
        self._looked_at = now
        seen = self._take()
        if seen is None:
            return
        number = self._frame.number + 1 if self._frame is not None else 1
        frame = Frame(number, now, seen, to_json(seen.now))
        with self._changed:
            if now - self._point_at >= _POINT_EVERY:
                self._point_at = now
                self._points.append(point_of(seen.now))
            self._frame = frame
            self._changed.notify_all()

    def close(self, reason: str) -> None:
        """There will be no more, for a *reason*."""
        with self._changed:
            self.reason = reason or "closed"
            self._changed.notify_all()

    # -- the side of the clients

    def after(self, number: int, timeout: float) -> Frame | None:
        """A frame later than *number*; ``None`` if there is none within *timeout* seconds, or will be none."""

        def is_there() -> bool:
            return bool(self.reason) or (self._frame is not None and self._frame.number > number)

        with self._changed:
            self._n_waiting += 1
            try:
                self._changed.wait_for(is_there, timeout)
            finally:
                self._n_waiting -= 1
            frame = self._frame
        return frame if frame is not None and frame.number > number else None

    def fresh(self, timeout: float) -> Frame | None:
        """A frame that is younger than two looks are apart; ``None`` if there is none within *timeout* seconds.

        Of a crawl that is over, the last there was.
        """
        frame = self._frame
        if frame is None:
            return self.after(0, timeout)
        if self.reason or monotonic() - frame.instant < self._every:
            return frame
        found = self.after(frame.number, timeout)
        return found or (self._frame if self.reason else None)

    def recent(self, patience: float) -> Frame | None:
        """The last frame, without a wait; ``None`` if the owner has not called for *patience* seconds, or sees nothing.

        So that strangers may ask: it takes nothing of the owner. Until there is a first frame it waits as :meth:`fresh` does.
        """
        frame = self._frame
        if frame is None:
            return self.after(0, patience)
        return frame if monotonic() - min(self._beat_at, frame.instant + _POINT_EVERY) < patience else None

    def points(self) -> list[Point]:
        """Points of the history, oldest first."""
        with self._changed:
            return list(self._points)

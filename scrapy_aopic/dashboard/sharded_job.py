"""A job in shards as a whole: its pages, workers, shards and mail, by what every commit of a shard leaves on the server.

A worker's own figures are of the shards that it holds; these are of all, and whoever can reach the server sees the same.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.view.snapshot import Pages, Part, Rate, Snapshot, StoreState, forecast
from scrapy_aopic.view.verdict import Verdict
from scrapy_aopic.view.whole_job import shards_status

from .feed import Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.storage import Address

_EVERY = 2.0
"""Seconds for which a look is remembered: one takes a few milliseconds of the server."""

_STORES_EVERY = 10.0
"""Seconds for which a look into the stores is remembered: it reads all hosts that the workers have in memory, and while it
is open they copy what they change."""

_MINUTE = 60.0
"""Seconds that speeds are of at most."""


class WholeJob:
    """Looks at the job in shards at *address*, for any number of threads.

    Args:
        look: As :func:`scrapy_aopic.view.whole_job.shards_status`, for tests.
    """

    def __init__(
        self,
        address: Address,
        *,
        look: Callable[[Address], dict[str, Any]] = shards_status,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = address
        self._look_at = look
        self._clock = clock
        self._lock = Lock()
        self._earlier: deque[tuple[float, list[int], int]] = deque()
        self._at = float("-inf")
        self._last: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """What :func:`~scrapy_aopic.view.whole_job.shards_status` says, with ``at`` (seconds since the epoch) and speeds.

        ``pages_per_second`` is there for the job and for each worker, ``None`` before there were two looks; that of a
        worker is of the shards that it holds now. ``growth`` is by how many pages the queue grew for each page settled, and
        ``seconds`` the time that these are of.

        Raises:
            StorageError: If the server cannot be reached.
        """
        with self._lock:
            now = self._clock()
            if not 0 <= now - self._at < _EVERY:
                self._last, self._at = self._with_speeds(self._look_at(self._address), now), now
            return self._last

    def _with_speeds(self, state: dict[str, Any], now: float) -> dict[str, Any]:
        done = [shard["visited"] + shard["failed"] for shard in state["shards"]]
        if self._earlier and not 0 <= now - self._earlier[-1][0] <= _MINUTE:
            self._earlier.clear()  # nobody looked, or the clock was set
        queued: int = state["pages"]["queued"]
        self._earlier.append((now, done, queued))
        while len(self._earlier) > 2 and now - self._earlier[0][0] > _MINUTE:
            self._earlier.popleft()
        then, before, were_queued = self._earlier[0]
        seconds = now - then
        new = [max(one - other, 0) for one, other in zip(done, before, strict=True)]

        def speed(shards: list[int]) -> float | None:
            return sum(shards) / seconds if seconds > 0 else None

        by_worker: dict[str, list[int]] = {}
        for shard, n in zip(state["shards"], new, strict=True):
            by_worker.setdefault(shard["worker"], []).append(n)
        workers = [
            {**worker, "pages_per_second": speed(by_worker.get(worker["worker"], []))}
            for worker in state["workers"]
        ]
        return {
            **state,
            "at": now,
            "seconds": seconds,
            "pages_per_second": speed(new),
            "growth": (queued - were_queued) / sum(new) if sum(new) else None,
            "workers": workers,
        }


class WholeDashboard:
    """What a dashboard shows of a job in shards that belongs to no worker.

    Args:
        snapshot: Looks at all stores; may raise StorageError, as one that was never opened has no figures.
        name: What messages call the job.
        asked: Says what an operator asks of the crawl, as fields of a snapshot.
    """

    def __init__(
        self,
        whole: WholeJob,
        snapshot: Callable[[], Snapshot],
        name: str,
        *,
        asked: Callable[[], dict[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._whole = whole
        self._snapshot = snapshot
        self._name = name
        self._asked = asked
        self._clock = clock
        self._base: Snapshot | None = None
        self._base_at = float("-inf")

    def look(self) -> Seen:
        """The figures of the last commits of all shards.

        Raises:
            StorageError: If the server cannot be reached.
        """
        state = self._whole.look()
        now, found = figures_of_whole(state, self._stored(), self._name)
        figures = {**msgspec.to_builtins(now, str_keys=True), "verdict": found._asdict(), **self._asked()}
        if figures["rate"] is not None:  # what no state says
            figures["rate"].update(transfers=None, bytes=None)
        figures["hosts"]["ceiling"] = None
        stats = {f"aopic/job/{each}": n for each, n in state["pages"].items()}
        stats |= {"aopic/job/hosts": state["hosts"], "aopic/cash/virtual": state["cash"]["virtual_pages"]}
        stats["aopic/shards/workers"] = len(state["workers"])
        stats["aopic/shards/held"] = sum(bool(shard["worker"]) for shard in state["shards"])
        stats["aopic/shards/letters"] = state["letters"]["on_their_way"]
        speed = state["pages_per_second"]
        point = {"at": state["at"], "pages": speed, "ceiling": None, "in_use": None, **state["pages"]}
        return Seen(figures, point, stats)

    def _stored(self) -> Snapshot | None:
        """What the stores say, as of at most :data:`_STORES_EVERY` ago; ``None`` if they cannot be read now."""
        now = self._clock()
        if now - self._base_at >= _STORES_EVERY:
            self._base_at = now
            try:
                self._base = self._snapshot()
            except StorageError:
                self._base = None
        return self._base


def figures_of_whole(state: dict[str, Any], stored: Snapshot | None, name: str) -> tuple[Snapshot, Verdict]:
    """What :meth:`WholeJob.look` saw as a snapshot, and how the job is in a sentence.

    Args:
        stored: What the stores say, some seconds older.
    """
    pages, speed = state["pages"], state["pages_per_second"]
    counts = Pages(known=sum(pages.values()), dead=stored.pages.dead if stored is not None else 0, **pages)
    rate = Rate(seconds=state["seconds"], pages=speed, growth=state["growth"]) if speed is not None else None
    held, of = sum(bool(shard["worker"]) for shard in state["shards"]), len(state["shards"])
    workers = len(state["workers"])
    base = stored or Snapshot(at=state["at"], store=StoreState(name=name))
    now = replace(
        base,
        at=state["at"],
        pages=counts,
        rate=rate,
        forecast=forecast(counts, rate),
        hosts=replace(base.hosts, known=state["hosts"]),
        part=Part(shards=of, held=held, workers=workers),
    )
    letters = state["letters"]["on_their_way"]
    if state["is_finished"]:
        return now, Verdict("done", "Done: no shard has anything to do, and no letter is on its way.")
    if not workers:
        return now, Verdict("stopped", "No worker crawls this job now; any number of them can go on with it.")
    return now, Verdict(
        "stopped",
        f"{workers:,} worker{'s' * (workers != 1)} crawl{'s' * (workers == 1)} {held:,} of {of:,} shards; what limits each of "
        f"them its own dashboard shows. {letters:,} letter{'s' * (letters != 1)} between shards "
        f"{'is' if letters == 1 else 'are'} on the way.",
    )

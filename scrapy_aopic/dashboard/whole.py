"""A job in shards as a whole: its pages, workers, shards and mail, by what every commit of a shard leaves on the server.

A worker's own figures are of the shards that it holds; these are of all, and whoever can reach the server sees the same.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from scrapy_aopic.job.whole import shards_status
from scrapy_aopic.watch.snapshot import Hosts, Ledger, Pages, Part, Rate, Snapshot, StoreState, forecast
from scrapy_aopic.watch.verdict import Verdict

from .feed import Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_aopic.storage import Address

_EVERY = 2.0
"""Seconds for which a look is remembered: one takes a few milliseconds of the server."""

_MINUTE = 60.0
"""Seconds that speeds are of at most."""


class WholeJob:
    """Looks at the job in shards at *address*, for any number of threads.

    Args:
        look: As :func:`scrapy_aopic.job.whole.shards_status`, for tests.
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
        """What :func:`~scrapy_aopic.job.whole.shards_status` says, with ``at`` (seconds since the epoch) and speeds.

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


def figures_of_whole(state: dict[str, Any], name: str) -> tuple[Snapshot, Verdict]:
    """What :meth:`WholeJob.look` saw as a snapshot, and how the job is in a sentence."""
    pages, cash, speed = state["pages"], state["cash"], state["pages_per_second"]
    counts = Pages(known=sum(pages.values()), **pages)
    rate = Rate(seconds=state["seconds"], pages=speed, growth=state["growth"]) if speed is not None else None
    held, of, workers = (
        sum(bool(shard["worker"]) for shard in state["shards"]),
        len(state["shards"]),
        len(state["workers"]),
    )
    now = Snapshot(
        at=state["at"],
        pages=counts,
        rate=rate,
        forecast=forecast(counts, rate),
        hosts=Hosts(known=state["hosts"]),
        ledger=Ledger(total=cash["total"], pages=cash["pages"], virtual=cash["virtual_pages"]),
        store=StoreState(name=name),
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


def seen_of_whole(whole: WholeJob, name: str) -> Seen:
    """A job in shards, as a dashboard shows it that belongs to no worker.

    Raises:
        StorageError: If the server cannot be reached.
    """
    state = whole.look()
    now, found = figures_of_whole(state, name)
    figures = {**msgspec.to_builtins(now, str_keys=True), "verdict": found._asdict()}
    if figures["rate"] is not None:  # what no state says
        figures["rate"].update(transfers=None, bytes=None)
    figures["hosts"]["ceiling"] = None
    stats = {f"aopic/job/{each}": n for each, n in state["pages"].items()}
    stats |= {"aopic/job/hosts": state["hosts"], "aopic/cash/virtual": state["cash"]["virtual_pages"]}
    stats |= {
        "aopic/shards/workers": len(state["workers"]),
        "aopic/shards/held": now.part.held if now.part else 0,
    }
    stats["aopic/shards/letters"] = state["letters"]["on_their_way"]
    point = {
        "at": state["at"],
        "pages": state["pages_per_second"],
        "ceiling": None,
        "in_use": None,
        **state["pages"],
    }
    return Seen(figures, point, stats)

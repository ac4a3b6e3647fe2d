"""Takes snapshots of a crawl that runs in this process.

A :class:`Watch` belongs to a session. Each second it notes the sums that rates are made of, which takes some microseconds,
and looks at some of the hosts in memory; of up to :data:`_AT_ONCE` hosts a snapshot looks at all of them when it is taken.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace
from scrapy.utils.asyncio import create_looping_call

from scrapy_aopic._engine.process_memory import resident
from scrapy_aopic.core.counters import FAILED, GONE
from scrapy_aopic.exceptions import StorageError

from .history import History, row_of
from .host_walk import HostWalk
from .snapshot import (
    WINDOW,
    Connections,
    ControlFigures,
    Forecast,
    HostCounts,
    Machine,
    PageCounts,
    Rate,
    ShardFigures,
    Snapshot,
    StoreState,
    forecast,
    mean_rate,
    visits_of,
)
from .snapshot_stats import stats_of
from .stored import snapshot_of_sums
from .verdict import Judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy.crawler import Crawler

    from scrapy_aopic.job.job import Job
    from scrapy_aopic.session.lateness import Lateness
    from scrapy_aopic.session.latest_failures import LatestFailures
    from scrapy_aopic.session.stats import Stats
    from scrapy_aopic.session.visit import Visits
    from scrapy_aopic.session.waits_and_ends import Standstill

    from .dropped import Dropped

logger = logging.getLogger(__name__)

_BEAT = 1.0
"""Seconds between notes."""

_NOTES = int(WINDOW) + 1
"""Notes that are kept: one a second."""

_PUBLISH_EVERY = 10
"""Notes between two updates of the stats."""

_AT_ONCE = 1000
"""Hosts that are looked at in one go: measured at 1.0 ms."""

_DROPPED_EVERY = 60
"""Notes between two times at which dropped links are written: up to a megabyte."""

ROW_EVERY = 10.0
"""Seconds between rows of the history in the job folder."""

_SIZE_EVERY = 10.0
"""Seconds for which the size of the store is remembered: to find it out is a call to the system for each of its files."""


_GAPS = {"gap", "crawl delay"}
"""Why hosts wait, if nothing is wrong with them: how long they take for their pages is known."""

_REGRETS = 1000
"""Pages in flight that the regret of the order is averaged over."""


class _Note(NamedTuple):
    """Sums at an instant, and from ``in_use`` on what was so then."""

    instant: float
    done: int
    failed: int
    gone: int
    queued: int
    transfers: int
    down: int
    bytes: int
    cpu: float
    starved: float
    late: float
    n_late: int
    in_use: int
    callbacks: int
    is_behind: bool
    unused: float
    standstill: float


class Watch:
    """Sees a crawl while it runs.

    Args:
        visits: The visits under way.
        stats: Sets the stats of the whole job.
        history: Where what a crawl was like is kept, if the job lasts.
        dropped: Links that do not reach the queue.
        latest: Has the visits that ended and that failed last.
        lateness: Gives what samples the event loop, ``None`` if nothing does.
        standstill: For how long no request goes out.
        labels: Labels by which the crawl's grades are read; 0 if they are unchecked.
        control: Gives what an operator asks of the crawl.
    """

    def __init__(
        self,
        crawler: Crawler,
        job: Job,
        visits: Visits,
        *,
        stats: Stats,
        lateness: Callable[[], Lateness | None],
        standstill: Standstill,
        control: Callable[[], ControlFigures],
        latest: LatestFailures,
        memory_limit: int,
        labels: int = 0,
        history: History | None = None,
        dropped: Dropped | None = None,
    ) -> None:
        self._dropped = dropped
        self._latest = latest
        self._history = history
        self._labels = labels
        self._stats = stats
        self._crawler = crawler
        self._job = job
        self._visits = visits
        self._lateness = lateness
        self._standstill = standstill
        self._control = control
        self._memory_limit = memory_limit
        self._limit = crawler.settings.getint("CONCURRENT_REQUESTS")
        self._most_pages = crawler.settings.getint("CLOSESPIDER_PAGECOUNT")
        self._most_seconds = crawler.settings.getfloat("CLOSESPIDER_TIMEOUT")
        self._name = str(getattr(crawler.spider, "name", ""))
        self._notes: deque[_Note] = deque(maxlen=_NOTES)
        self._walk: HostWalk | None = None
        self._last_walk: HostWalk | None = None
        self._judge = Judge()
        self._regrets: deque[tuple[int, int]] = deque()
        self._n_beats = 0
        self._has_failed = False
        self._reason = ""
        self._size: tuple[float, int | None] = (-_SIZE_EVERY, None)
        self._began = monotonic()
        self._row_due = self._began + ROW_EVERY
        self.started_at = job.clock()
        self._beats = create_looping_call(self._beat)

    def start(self) -> None:
        """Begin; the engine has started."""
        self._notes.append(self._note())
        self._beats.start(_BEAT, now=False)

    def stop(self, reason: str = "") -> None:
        """End, for a *reason*."""
        if self._beats.running:
            self._beats.stop()
            self._reason = reason
            self._try(lambda: self._keep_row(self._publish()))
            self._try(self._keep_dropped)

    # -- notes

    def _note(self) -> _Note:
        counts, counters = self._job.crawl.counts, self._job.crawl.counters
        lateness = self._lateness()
        late, n_late = (lateness.total, lateness.n) if lateness is not None else (0.0, 0)
        downloading = sum(visit.is_downloading and not visit.has_arrived for visit in self._visits)
        return _Note(
            monotonic(),
            counters.visits,
            counters.n_of(FAILED),
            counters.n_of(GONE),
            counts.queued,
            counters.transfers,
            counters.down,
            counters.received,
            process_time(),
            _starved(),
            late,
            n_late,
            downloading,
            len(self._visits) - downloading,
            self._job.waits_for_disk,
            self._last_walk.unused if self._last_walk is not None else 0.0,
            self._standstill.lately,
        )

    def _beat(self) -> None:
        self._try(self._go_on)

    def _go_on(self) -> None:
        self._step()
        self._notes.append(self._note())
        self._standstill.lately = 0.0
        self._n_beats += 1
        seen = None
        if self._n_beats % _PUBLISH_EVERY == 0:
            seen = self._publish()
        if self._n_beats % _DROPPED_EVERY == 0:
            self._keep_dropped()
        if self._history is not None and monotonic() >= self._row_due:
            self._row_due = max(self._row_due + ROW_EVERY, monotonic())
            self._keep_row(seen)

    def _keep_row(self, seen: Snapshot | None = None) -> None:
        """Have the thread that writes commits add a row to the history, of what was *seen* or of now."""
        if self._history is not None and self._job.failure is None:
            self._job.run(partial(self._history.append, row_of(seen or self.snapshot())))

    def _keep_dropped(self) -> None:
        """Have that thread write which links were dropped, if there are more."""
        if self._dropped is None or self._job.failure is not None:
            return
        data = self._dropped.packed()
        if data is not None:
            self._job.run(partial(self._dropped.write, data))

    def _publish(self) -> Snapshot:
        """Set the stats; returns what they are made of."""
        now = self.snapshot()
        self._note_regret()
        self._stats.describe(self._job)
        if self._crawler.stats is not None:
            for name, value in stats_of(now).items():
                self._crawler.stats.set_value(name, value)
        return now

    def _note_regret(self) -> None:
        """Note how far the pages in flight were from the order of importance when the hosts were looked at last."""
        noted = self._last_walk.regret if self._last_walk is not None else (0, 0)
        if noted[1]:
            self._regrets.append(noted)
        while self._regrets and sum([n for _, n in self._regrets]) - self._regrets[0][1] >= _REGRETS:
            self._regrets.popleft()

    def _regret(self) -> float | None:
        n = sum([n for _, n in self._regrets])
        return sum([queues for queues, _ in self._regrets]) / n if n else None

    def _try(self, method: Callable[[], None]) -> None:
        """Call *method*, whose errors must not end the crawl: it only reads it."""
        try:
            method()
        except StorageError:
            pass  # the crawl notices by itself, and ends with one sentence
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                logger.exception(
                    "The figures of the crawl cannot be updated; the crawl goes on. Further errors are not logged",
                    extra={"spider": self._crawler.spider},
                )

    def _begin_walk(self) -> HostWalk:
        crawl = self._job.crawl
        return HostWalk(list(chain.from_iterable(crawl.active_hosts)), crawl.politeness)

    def _step(self) -> None:
        """Look at the hosts, of many at some more."""
        walk = self._walk = self._walk or self._begin_walk()
        if walk.step(_AT_ONCE, self._job.clock()):
            self._last_walk, self._walk = walk, None

    def _walked(self) -> HostWalk:
        """A walk over the hosts in memory: a new one, or of many hosts the last that was completed."""
        if sum(map(len, self._job.crawl.active_hosts)) <= _AT_ONCE:
            walk = self._begin_walk()
            walk.step(_AT_ONCE + 1, self._job.clock())
            self._last_walk, self._walk = walk, None
            return walk
        if self._last_walk is None:
            self._step()
        return self._last_walk or self._walk or self._begin_walk()

    # -- snapshots

    def snapshot(self) -> Snapshot:
        """The figures of this moment, and what limits the crawl now."""
        now = self._figures()
        return replace(now, verdict=self._judge(now))

    def _figures(self) -> Snapshot:
        job, crawl = self._job, self._job.crawl
        now, note, counters, counts = job.clock(), self._note(), crawl.counters, crawl.counts
        notes = [*self._notes, note]
        rate = _rate(notes)
        walk, control = self._walked(), self._control()
        tail = walk.tail
        if rate is None or (rate.growth is None and (control.paused_since or walk.waits.keys() - _GAPS)):
            tail = []
        pages = PageCounts(
            known=counts.queued + counts.visited + counts.failed,
            queued=counts.queued,
            visited=counts.visited,
            failed=counts.failed,
            dead=crawl.dead[1],
            blocked=crawl.blocked[1],
            in_flight=len(self._visits),
            merged=crawl.n_merged,
        )
        sums = snapshot_of_sums(counters, [crawl.totals], [crawl.harvest], self._labels)
        return replace(
            sums,
            at=now,
            is_live=True,
            spider=self._name,
            created_at=crawl.created_at,
            started_at=self.started_at,
            not_before=crawl.paused_until,
            order=crawl.order_name,
            control=control,
            pages=pages,
            visits=visits_of(pages, counters.outcomes),
            mean_rate=mean_rate(pages, counters.visits, now - crawl.created_at),
            rate=rate,
            reason=self._reason,
            forecast=self._forecast(pages, rate, tail),
            hosts=self._hosts(walk, notes, rate, tail),
            connections=Connections(limit=self._limit, in_use=note.in_use, callbacks=note.callbacks),
            transfers=replace(sums.transfers, quiet=self._quiet(note)),
            dropped=self._dropped.counts if self._dropped is not None else {},
            regret=self._regret(),
            store=self._store_state(),
            machine=self._machine(notes),
            shards=self._shards(),
            round=crawl.round,
            revisit_at=0.0 if counts.queued else getattr(crawl.when(), "instant", 0.0),
            **walk.rows(),
            failures=self._latest.rows,
            fetched=self._latest.fetched,
            media=dict(self._latest.media),
            found=dict(self._latest.found),
        )

    def _quiet(self, note: _Note) -> float:
        """Seconds for which no transfer has ended, as of *note*."""
        since = note.instant
        for earlier in reversed(self._notes):
            if earlier.transfers != note.transfers:
                break
            since = earlier.instant
        return note.instant - since

    def _forecast(self, pages: PageCounts, rate: Rate | None, tail: list[float]) -> Forecast:
        left = None
        if self._most_pages and self._crawler.stats is not None:
            left = self._most_pages - (self._crawler.stats.get_value("response_received_count") or 0)
        time_left = self._most_seconds - (monotonic() - self._began) if self._most_seconds else None
        return forecast(pages, rate, tail=tail, left=left, time_left=time_left)

    def _hosts(self, walk: HostWalk, notes: list[_Note], rate: Rate | None, tail: list[float]) -> HostCounts:
        states, places = walk.states, self._job.crawl.hosts_by_place
        due = min(walk.overdue, places.waiting)
        return replace(
            walk.hosts(),
            **places._replace(ready=places.ready + due, waiting=places.waiting - due)._asdict(),
            in_flight=states.get("in flight", 0),
            gated=max(states.get("gated", 0) - max(places.ready - states.get("ready", 0), 0), 0),
            locating=states.get("locating", 0),
            late=states.get("late", 0),
            dry=states.get("dry", 0),
            ceiling=rate.pages + _mean(notes, "unused") if rate is not None else None,
            tail=tail,
        )

    def _store_state(self) -> StoreState:
        job = self._job
        hits, misses = job.crawl.cache_hits
        return StoreState(
            name=job.name,
            size_bytes=self._size_bytes(),
            commit_age=job.commit_age,
            commits=job.commits,
            last_commit=job.last_commit,
            slowest_commit=job.slowest_commit,
            is_behind=job.waits_for_disk,
            cache_hits=hits,
            cache_misses=misses,
        )

    def _size_bytes(self) -> int | None:
        at, size = self._size
        if monotonic() - at >= _SIZE_EVERY:
            size = None
            with suppress(StorageError):  # the crawl notices by itself
                size = self._job.size_bytes()
            self._size = (monotonic(), size)
        return size

    def _shards(self) -> ShardFigures:
        """The part of the job that is open in this process."""
        part = self._job.part
        if part is None:
            return ShardFigures(held=1, alive=1)
        return ShardFigures(n=part.shards, held=part.held, alive=part.workers)

    def _machine(self, notes: Sequence[_Note]) -> Machine:
        before, note = notes[0], notes[-1]
        seconds = note.instant - before.instant
        n = note.n_late - before.n_late
        lateness = self._lateness()
        return Machine(
            loop_lag=(note.late - before.late) / n if n else None,
            loop_lag_max=lateness.longest if lateness is not None else None,
            standstill=max(each.standstill for each in notes),
            standstill_max=self._standstill.longest,
            cpu=(note.cpu - before.cpu) / seconds if seconds > 0 else 0.0,
            starved=(note.starved - before.starved) / seconds if seconds > 0 else 0.0,
            memory=resident(),
            memory_limit=self._memory_limit,
            pid=os.getpid(),
        )


class Watched(Protocol):
    """A :class:`~scrapy_aopic.session.session.Session`, as far as it is read here."""

    @property
    def watch(self) -> Watch:
        """The watch that takes its snapshots."""


def snapshot(session: Watched) -> Snapshot:
    """The figures of the crawl of *session* at this moment."""
    return session.watch.snapshot()


def _rate(notes: list[_Note]) -> Rate | None:
    """What happened between the first and the last of *notes*; ``None`` if they are too close."""
    before, note = notes[0], notes[-1]
    seconds = note.instant - before.instant
    if seconds < _BEAT / 2:
        return None
    done = note.done - before.done
    return Rate(
        seconds=seconds,
        pages=done / seconds,
        failed=(note.failed - before.failed) / seconds,
        gone=(note.gone - before.gone) / seconds,
        transfers=(note.transfers - before.transfers) / seconds,
        down=(note.down - before.down) / seconds,
        bytes=(note.bytes - before.bytes) / seconds,
        growth=(note.queued - before.queued) / done if done else None,
        in_use=_mean(notes, "in_use"),
        callbacks=_mean(notes, "callbacks"),
        behind=_mean(notes, "is_behind"),
    )


def _mean(notes: list[_Note], name: str) -> float:
    return float(sum([getattr(note, name) for note in notes])) / len(notes)


def _starved() -> float:
    """Seconds for which the main thread was ready to run and others had the processor; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0

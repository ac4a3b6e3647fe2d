"""Takes a snapshot of a stored job: its figures as of its last commit, in one shard or several, whether or not a crawl runs.

:class:`StoredWatch` takes them repeatedly, with the speeds that its commits show; any process may crawl it.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import nullcontext
from itertools import chain
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scrapy_aopic.core.counters import UNREADABLE, Counters, read_counters
from scrapy_aopic.core.focus.harvest import Harvest, read_harvest
from scrapy_aopic.core.layout import ACTIVE, Family
from scrapy_aopic.core.ledger import Totals
from scrapy_aopic.core.records import (
    HOST_BYTES,
    IN_PRIORITY,
    HostRecord,
    front_queue_of,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.revisits.wake_times import first_wake
from scrapy_aopic.core.shards.mail import read_counts
from scrapy_aopic.exceptions import AopicError, StorageError
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.place.stored_control import control_sentences, read_control
from scrapy_aopic.storage.lock import had_here

from .dropped import dropped_in
from .history import FILE_NAME as HISTORY
from .history import read_history, with_last_row
from .host_walk import HostWalk, opens_at, why_it_waits
from .job_view import View, open_view
from .queries import HostLists, hosts_in, rounds_in, urls_of
from .shard_states import (
    ShardStates,
    letters_on_the_way,
    read_states,
    shard_figures,
    short_order,
    unread_snapshot,
    with_states,
    with_workers,
)
from .snapshot import (
    N_LISTED,
    ControlFigures,
    Counted,
    LedgerFigures,
    PageCounts,
    Rate,
    SetAside,
    ShardFigures,
    ShardRow,
    Snapshot,
    StoreState,
    TopicFigures,
    TransferFigures,
    forecast,
    mean_rate,
    statuses_of,
    visits_of,
)
from .verdict import of_running, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic.core.crawl_totals import CrawlTotals
    from scrapy_aopic.core.operator_control import Control
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.place.place import Place


_OF_TIME: dict[str, Callable[[list[Any]], Any]] = {"since": max, "saved_at": max, "is_whole": min}
"""How fields of :class:`~scrapy_aopic.core.counters.Counters` are added up that are no counts."""


def read_snapshot(
    job: Place,
    *,
    counts: bool = False,
    view: View | None = None,
    history: Sequence[dict[str, str]] | None = None,
) -> Snapshot:
    """The figures of *job* as of its last commit, with all that is known without the process that crawls it.

    Args:
        counts: Whether to add :class:`~.snapshot.Counted`, which takes a look at all pages and hosts.
        view: The view of the job, if one is open already.
        history: Rows of :func:`.history.read_history`, if they are read already.

    Raises:
        StorageError: If there is no job, or it cannot be read.
    """
    states = read_states(job)
    now = read_stores(job, states, counts=counts, view=view)
    if states is not None:
        now = with_states(now, states) if now.unread else with_workers(now, states)
    return with_surroundings(now, job, history)


def read_stores(
    job: Place, states: ShardStates | None, *, counts: bool = False, view: View | None = None
) -> Snapshot:
    """The figures of *job* as far as its stores know them.

    Args:
        states: States of its shards on the server. If there are any, its stores need not be readable.
        counts, view: See :func:`read_snapshot`.

    Raises:
        StorageError: If there is no job, or it cannot be read.
    """
    try:
        with open_view(job) if view is None else nullcontext(view) as opened:
            found = snapshot_of(opened, name=str(job), counts=counts)
        if found is None:
            raise StorageError(f"There is no job in {job} yet; start a crawl with it first.")
    except StorageError as error:
        if states is None:
            raise
        return unread_snapshot(states, str(error))
    return found


def snapshot_of(view: View, *, name: str = "", counts: bool = False) -> Snapshot | None:
    """The figures of the job in *view*, as far as its stores know them; ``None`` if there is no job.

    Reads the hosts that were in memory, no more than :attr:`~scrapy_aopic.core.policy.Policy.max_active` of them in each shard, and no page: it takes the
    same moment however many pages there are.

    Args:
        name: Name of the job in messages.
        counts: Whether to add :class:`~.snapshot.Counted`, which takes a look at all pages and hosts.

    Raises:
        StorageError: If a store cannot be read, or was written in another format.
    """
    each = [saved for saved in view.saved if saved is not None]
    if not each:
        return None
    at = view.at
    walk = HostWalk(chain.from_iterable(map(active_hosts, view.stores)), None)
    walk.step(1 << 60, at)
    counters = [
        read_counters(store, saved.saved_at) or Counters(since=saved.saved_at)
        for store, saved in zip(view.stores, view.saved, strict=True)
        if saved is not None
    ]
    pages = PageCounts(
        known=sum(saved.pages for saved in each),
        queued=sum(saved.queued for saved in each),
        visited=sum(saved.visited for saved in each),
        failed=sum(saved.failed for saved in each),
        dead=sum(saved.dead_pages for saved in each),
    )
    created_at, sums = min(saved.created_at for saved in each), _sum_of(counters)
    return replace(
        snapshot_of_sums(
            sums,
            [saved.ledger if saved is not None else Totals() for saved in view.saved],
            [read_harvest(store) for store in view.stores],
            view.calibration.labels,
        ),
        at=at,
        is_closed=all(saved.is_clean for saved in each),
        created_at=created_at,
        not_before=min(saved.not_before for saved in each),
        order=short_order(each[0].order_name),
        pages=pages,
        visits=visits_of(pages, sums.outcomes),
        mean_rate=mean_rate(pages, sums.visits, at - created_at),
        forecast=forecast(pages, None),
        hosts=replace(
            walk.hosts(),
            known=sum(saved.hosts for saved in each),
            ready=walk.states.get("ready", 0),
            waiting=walk.states.get("waiting", 0),
            shelved=sum(sum(saved.shelved.values()) for saved in each),
            parked=sum(saved.parked for saved in each),
            dead=sum(saved.dead for saved in each),
        ),
        store=StoreState(name=name, size_bytes=sum(store.size_bytes() for store in view.stores)),
        shards=_shards(view, pages),
        counted=count(view) if counts else None,
        round=next(reversed(rounds_in(view)), None),
        revisit_at=0.0 if pages.queued else first_wake(view.stores),
        **walk.rows(),
    )


def active_hosts(store: Store) -> list[HostRecord]:
    """The hosts that were in memory as of the last commit."""
    keys = [row[1:] for row, _ in store.scan(Family.META, ACTIVE, bytes((ACTIVE[0] + 1,)))]
    return [unpack_host(data) for data in store.get_many(Family.HOSTS, keys) if data is not None]


def _shards(view: View, pages: PageCounts) -> ShardFigures:
    """The shards in *view*, which has so many *pages*."""
    mail = [read_counts(store) for store in view.stores] if len(view.stores) > 1 else []
    sent = {n: {to: each.last for to, each in posted.items()} for n, (posted, _) in enumerate(mail)}
    got = {n: {sender: each.last for sender, each in came.items()} for n, (_, came) in enumerate(mail)}
    waiting = letters_on_the_way(sent, got)
    return shard_figures(
        [_shard_row(number, saved, waiting.get(number, 0)) for number, saved in enumerate(view.saved)],
        sent=sum(last for letters in sent.values() for last in letters.values()),
        is_quiet=not pages.queued and not any(waiting.values()),
    )


def _shard_row(number: int, saved: CrawlTotals | None, letters: int) -> ShardRow:
    if saved is None:  # what it has read of its letters is known where it is
        return ShardRow(shard=number)
    return ShardRow(
        shard=number,
        queued=saved.queued,
        visited=saved.visited,
        failed=saved.failed,
        hosts=saved.hosts,
        letters=letters,
    )


# -- figures of a crawl that runs as well


def snapshot_of_sums(
    counters: Counters, ledgers: Sequence[Totals], harvests: Sequence[Harvest], labels: int = 0
) -> Snapshot:
    """A snapshot of the sums that each commit writes, in memory or stored.

    Args:
        counters: Counters of all shards, added up.
        ledgers: The ledger of each shard, with the sums of the others.
        harvests: The harvest of each shard.
        labels: Labels by which their grades are read; 0 if they are unchecked.
    """
    return Snapshot(
        at=0.0,
        counted_since=counters.since,
        outcomes=dict(counters.outcomes),
        statuses=statuses_of(counters.outcomes),
        transfers=TransferFigures(
            n=counters.transfers,
            seconds=counters.transfer_seconds,
            bytes=counters.received,
            durations=list(counters.durations),
            errors=counters.errors,
            down=counters.down,
        ),
        put_back=counters.put_back,
        deferred=dict(counters.deferred),
        refused=dict(counters.refused),
        queue_seconds=counters.queue_seconds,
        topic=_topic(harvests, labels),
        ledger=_ledger(ledgers),
    )


def _ledger(ledgers: Sequence[Totals]) -> LedgerFigures:
    turns = max(each.turn for each in ledgers)
    return LedgerFigures(
        total=sum(each.whole for each in ledgers),
        pages=sum(each.held for each in ledgers),
        virtual=sum(each.virtual for each in ledgers),
        history=sum(each.history for each in ledgers),
        distributed=sum(each.distributed for each in ledgers),
        virtual_distributed=sum(each.virtual_distributed for each in ledgers),
        turns=turns,
        convergence=1 / turns if turns else None,
    )


def _topic(harvests: Sequence[Harvest], labels: int) -> TopicFigures | None:
    pages, lately = (sum(getattr(each, name) for each in harvests) for name in ("pages", "n_lately"))
    if not pages:
        return None
    relevant = sum(each.relevant for each in harvests)
    return TopicFigures(
        pages=pages,
        relevant=relevant,
        harvest=relevant / pages,
        lately=sum(each.rate_lately * each.n_lately for each in harvests) / lately,
        labels=labels,
    )


def _sum_of(counters: Sequence[Counters]) -> Counters:
    """The *counters* of all shards together."""
    whole: dict[str, Any] = {}
    for name in Counters.__struct_fields__:
        values = [getattr(each, name) for each in counters]
        if isinstance(values[0], dict):
            whole[name] = dict(sum(map(Counter, values), Counter[str]()))
        elif isinstance(values[0], list):
            whole[name] = [sum(column) for column in zip(*values, strict=True)]
        else:
            whole[name] = _OF_TIME.get(name, sum)(values)
    return Counters(**whole)


# -- figures that commits do not have


def count(view: View) -> Counted:
    """Count pages and hosts one by one."""
    front: dict[int, int] = {}
    outcomes: dict[str, int] = {}
    set_aside: dict[str, tuple[int, str]] = {}
    for store in view.stores:
        for key, _ in store.scan(Family.QUEUE):
            level = front_queue_of(key[HOST_BYTES:]) & IN_PRIORITY
            front[level] = front.get(level, 0) + 1
        for key, data in store.scan(Family.PAGES):
            outcome, _, reason = unpack_page(data).outcome.partition(": ")
            if outcome:
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if outcome == UNREADABLE:
                n, example = set_aside.get(reason, (0, ""))
                set_aside[reason] = (n + 1, example if n else urls_of(store, [key])[key])
    waits: dict[str, int] = {}
    lists = HostLists(("slow", "failing", "waiting"), N_LISTED, view.at)
    for host in hosts_in(view):
        lists.offer(host)
        if host.row and opens_at(host) > view.at:
            why = why_it_waits(host)
            waits[why] = waits.get(why, 0) + 1
    return Counted(
        outcomes=dict(sorted(outcomes.items(), key=lambda pair: -pair[1])),
        set_aside=[SetAside(reason=reason, pages=n, example=url) for reason, (n, url) in set_aside.items()],
        front_queues=dict(sorted(front.items(), reverse=True)),
        waits=waits,
        slow=lists.rows("slow"),
        failing=lists.rows("failing"),
        waiting=lists.rows("waiting"),
    )


# -- beside the stores


def with_surroundings(now: Snapshot, job: Place, history: Sequence[dict[str, str]] | None = None) -> Snapshot:
    """*now* with what lies beside the stores of *job* (control settings; in a folder, history and dropped links), and its verdict.

    Args:
        history: See :func:`read_snapshot`.
    """
    now = replace(now, control=_read_control_figures(job))
    if job.folder is not None:
        samples = dropped_in(job.folder) or {}
        now = replace(now, dropped={reason: sample.n for reason, sample in samples.items()})
        now = with_last_row(now, read_history(job.folder / HISTORY) if history is None else history)
        process = "" if now.is_closed else had_here(store_folder(job.folder), "crawl")
        if process and now.shards.n == 1:
            return replace(now, verdict=of_running(now, process))
    return replace(now, verdict=verdict(now))


def _read_control_figures(job: Place) -> ControlFigures:
    """The control settings of *job*; an error instead of sentences if they cannot be read."""
    try:
        return control_figures(read_control(job))
    except AopicError as error:
        return ControlFigures(sentences=[str(error)])


def control_figures(control: Control) -> ControlFigures:
    """*control* as figures of a snapshot."""
    return ControlFigures(
        paused_since=control.paused_since,
        sentences=control_sentences(control),
        connections=control.connections,
        rate=control.rate,
        undoing=control.undoing(),
        asked=control.asked,
    )


EVERY = 2.0
"""Seconds for which a snapshot is remembered: to open a store takes some 20 ms, and to ask a server a few."""

_COMPARED = 60.0
"""Seconds over which the commits of a job are compared, at most."""

_STORES_EVERY = 10.0
"""Seconds for which the stores of shards are not read again, whose states say most: it reads all hosts that the workers have
in memory, and while they are open these copy what they change."""


class Speeds:
    """How fast a stored job is crawled, as its snapshots of the last minute show."""

    def __init__(self) -> None:
        self._earlier: deque[Snapshot] = deque()

    def added_to(self, now: Snapshot) -> Snapshot:
        """*now* with the speeds of the job and of each of its workers, if there are earlier snapshots to compare it with.

        The speed of a worker is that of the shards that it holds now.
        """
        earlier = self._earlier
        if earlier and not 0 <= now.at - earlier[-1].at <= _COMPARED:
            earlier.clear()  # no earlier snapshot, no commit since, or the clock was set
        if not earlier or earlier[-1].at != now.at:
            earlier.append(now)
        while len(earlier) > 2 and now.at - earlier[0].at > _COMPARED:
            earlier.popleft()
        then = earlier[0]
        seconds = now.at - then.at
        if seconds <= 0 or (now.is_closed and not now.shards.alive):
            return now
        before = {row.shard: row.visited + row.failed for row in then.shards.each}
        done = {
            row.shard: max(row.visited + row.failed - before.get(row.shard, 0), 0) for row in now.shards.each
        }
        by_worker: dict[str | None, int] = {}
        for row in now.shards.each:
            by_worker[row.worker] = by_worker.get(row.worker, 0) + done[row.shard]
        workers = [
            replace(worker, rate=by_worker.get(worker.worker, 0) / seconds) for worker in now.shards.workers
        ]
        n = sum(done.values())
        rate = Rate(
            seconds=seconds,
            pages=n / seconds,
            growth=(now.pages.queued - then.pages.queued) / n if n else None,
        )
        return replace(
            now, rate=rate, forecast=forecast(now.pages, rate), shards=replace(now.shards, workers=workers)
        )


class StoredWatch:
    """Looks at the stored *job*, for any number of threads.

    Args:
        states: :func:`.shard_states.read_states`, or a function like it.
        stores: :func:`.stored.read_stores`, or a function like it.
    """

    def __init__(
        self,
        job: Place,
        *,
        states: Callable[[Place], ShardStates | None] = read_states,
        stores: Callable[[Place, ShardStates | None], Snapshot] = read_stores,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._job = job
        self._states = states
        self._stores = stores
        self._clock = clock
        self._lock = Lock()
        self._speeds = Speeds()
        self._last: Snapshot | None = None
        self._last_at = 0.0
        self._read: Snapshot | None = None
        self._read_at = 0.0

    def snapshot(self) -> Snapshot:
        """The figures of the last commit; if it cannot be read, those of the snapshot before, with the error.

        Raises:
            StorageError: At the first look, if there is no job, or it cannot be read.
        """
        with self._lock:
            now = self._clock()
            if self._last is None or not 0 <= now - self._last_at < EVERY:
                try:
                    self._last = self._look(now)
                except AopicError as error:
                    if self._last is None:
                        raise
                    self._last = replace(self._last, problem=str(error))
                self._last_at = now
            return self._last

    def _look(self, now: float) -> Snapshot:
        states = self._states(self._job)
        if states is None or self._read is None or now - self._read_at >= _STORES_EVERY:
            self._read, self._read_at = self._stores(self._job, states), now
        found = with_states(self._read, states) if states is not None else self._read
        return with_surroundings(self._speeds.added_to(found), self._job)

"""The figures of a crawl at one moment.

::

    session = Session.of(crawler)           # in the process of the crawl
    now = session.watch.snapshot()          # a Snapshot
    json = msgspec.json.encode(now)

    then = read_snapshot(place)             # of a job, running or not: scrapy_aopic.view.stored

All outputs show figures of a snapshot, under its names: ``status``, the dashboard, the report, the history, stats and
monitoring systems. A figure in a part of it is named by its *path*, ``hosts.ready`` for example. Fields may be added, but
are not renamed. Counts that only grow are of the whole job, over all its runs, unless described as of this run; a figure
that only the process of the crawl knows is ``None`` in a snapshot of a store. Instants are seconds since the epoch by the
clock of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from scrapy_aopic.core.counters import FAILED, GONE, MARKS
from scrapy_aopic.core.operator_control import Asked
from scrapy_aopic.core.revisits.rounds import Round

N_LISTED = 10
"""Hosts in each list of a snapshot."""


class PageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Pages by state.

    Attributes:
        known: All pages: queued, visited and failed.
        queued: Pages that wait, including those in flight.
        visited: Visited pages, including redirects.
        dead: Queued on dead hosts, as far as these are on the disk.
        blocked: Queued on hosts that are blocked or have had all of their pages, as far as these had their turn; 0 of a stored job.
        in_flight: Handed out to the engine and not settled; ``None`` of a stored job.
        merged: Merged with another page in this run.
    """

    known: int = 0
    queued: int = 0
    visited: int = 0
    failed: int = 0
    dead: int = 0
    blocked: int = 0
    in_flight: int | None = None
    merged: int | None = None


class VisitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Visits of a job, more than its pages if these are visited again.

    Attributes:
        all: All of them.
        failed: Those that failed for a cause that may be mended (:data:`scrapy_aopic.core.counters.FAILED`).
        gone: Those of pages that are gone, or that robots.txt forbids.
    """

    all: int = 0
    failed: int = 0
    gone: int = 0


WINDOW = 10.0
"""Seconds that speeds and averages of a running crawl are of, at most; what limits it is judged by the same ones."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the last :data:`WINDOW`, or since the crawl began if that is less; of a job that others crawl, in about a
    minute of its commits.

    What only the process of the crawl knows is ``None``.

    Attributes:
        seconds: Length of the time that the figures are of.
        pages: Visits settled a second.
        failed: Of these, those that failed for a cause that may be mended (:data:`scrapy_aopic.core.counters.FAILED`).
        gone: Of these, those of pages that are gone, or that robots.txt forbids.
        transfers: Transfers a second.
        down: Of these, those without a response, or with one that asks to come later.
        bytes: Bytes of response bodies a second.
        growth: Pages by which the queue grew for each visit; ``None`` if there was none.
        in_use: Requests under way, on average.
        callbacks: Pages in callbacks, on average.
        behind: Part of the time for which no page was leased, as the disk had not taken a commit.
    """

    seconds: float = 0.0
    pages: float = 0.0
    failed: float | None = None
    gone: float | None = None
    transfers: float | None = None
    down: float | None = None
    bytes: float | None = None
    growth: float | None = None
    in_use: float | None = None
    callbacks: float | None = None
    behind: float | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When the crawl ends.

    Attributes:
        seconds: Time until then, ``None`` if it cannot be estimated.
        because: The reason for which it ends, or why there is no estimate, as a sentence without a full stop.
    """

    seconds: float | None = None
    because: str = ""


class HostCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts by state. A host with queued pages is in one of the states from ``ready`` to ``dead``.

    Attributes:
        known: All hosts, including those without queued pages.
        ready: May be requested now.
        waiting: Must be left alone until an instant: the gap after a transfer, a crawl delay, errors.
        in_flight: Requested right now.
        gated: Wait because they share a domain, an address or connections for slow hosts with others.
        locating: Wait until their address is known.
        late: Their domains are over their budgets.
        dry: All of their queued pages are in flight.
        shelved: On the disk, as there are better hosts for the memory.
        parked: On the disk under the time until which they must be left alone.
        dead: On the disk under such a time, after so many failures that the crawl does not wait for them.
        backing_off: In memory and waiting after errors.
        crawl_delayed: In memory with a crawl delay in their robots.txt.
        waits: Waiting hosts in memory by reason: ``gap``, ``crawl delay``, ``errors``, ``down``.
        due_in: Waiting hosts in memory by the seconds until they are ready, up to :data:`DUE_BOUNDS`, and longer.
        front_queues: Hosts in memory by the front queue of their best page, which is about the binary logarithm of its
            cash.
        ready_queues: Ready hosts by the front queue of their best page.
        flight_queues: Pages in flight by the front queue that they were in.
        seen: Hosts in memory that the figures from ``gated`` to ``dry``, and from ``backing_off`` on, are of. Of many
            hosts these figures are some seconds old.
        ceiling: Visits a second that politeness allowed, over the same time as :class:`Rate`: those that were settled, and
            those that hosts could have had while they were ready. ``None`` of a stored job, which does not have the
            settings, and as long as there is no rate.
        tail: Seconds that the hosts in memory take at least for their queued pages, one after the other with the gaps
            between, once they may be requested, of the :data:`N_LISTED` that take longest, the longest first; empty if that is
            not known.
    """

    known: int = 0
    ready: int = 0
    waiting: int = 0
    in_flight: int = 0
    gated: int = 0
    locating: int = 0
    late: int = 0
    dry: int = 0
    shelved: int = 0
    parked: int = 0
    dead: int = 0
    backing_off: int = 0
    crawl_delayed: int = 0
    waits: dict[str, int] = {}
    due_in: list[int] = []
    front_queues: dict[int, int] = {}
    ready_queues: dict[int, int] = {}
    flight_queues: dict[int, int] = {}
    seen: int = 0
    ceiling: float | None = None
    tail: list[float] = []


DUE_BOUNDS = (1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)
"""Upper bounds in seconds of the classes of :attr:`HostCounts.due_in`; one more class is beyond them."""


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and pages that the engine works on.

    Attributes:
        limit: Requests that the downloader takes at once (``CONCURRENT_REQUESTS``).
        in_use: Requests of pages that the downloader has, those included that wait for a robots.txt, but not those whose
            response is here.
        callbacks: Pages whose transfer is over, and whose callback, items or links are not.
    """

    limit: int = 0
    in_use: int = 0
    callbacks: int = 0


class TransferFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Transfers, robots.txt included.

    Attributes:
        n: Transfers that ended.
        seconds: Their durations added up.
        bytes: Bytes of response bodies, as transferred.
        durations: How many took up to each of :data:`scrapy_aopic.core.counters.BOUNDS`, and longer.
        errors: With a status of 500 or more.
        down: Without a response, or with one that asks to come later.
        quiet: Seconds, :data:`WINDOW` at most, for which none has ended; 0 of a stored job.
    """

    n: int = 0
    seconds: float = 0.0
    bytes: int = 0
    durations: list[int] = []
    errors: int = 0
    down: int = 0
    quiet: float = 0.0


class LedgerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger of cash, in units.

    Attributes:
        total: All cash there is.
        pages: Cash that pages hold.
        virtual: Cash of the virtual page, its reserve.
        history: Sum of the pages' histories.
        distributed: All cash that pages ever spent.
        virtual_distributed: All cash that the virtual page ever spent.
        turns: Virtual time: how often all cash of the pages was distributed.
        convergence: 1/turns, a bound of the error of each page's importance; ``None`` before the first distribution.
    """

    total: int = 0
    pages: int = 0
    virtual: int = 0
    history: int = 0
    distributed: int = 0
    virtual_distributed: int = 0
    turns: float = 0.0
    convergence: float | None = None


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """The store.

    Attributes:
        name: Name of the job in messages.
        size_bytes: Its size on the disk, or in memory; ``None`` if that takes time to find out.
        commit_age: Seconds since the moment of the last commit that landed.
        commits: Commits that landed in this run.
        last_commit: Seconds that the last of them took.
        slowest_commit: Seconds that the slowest of them took.
        is_behind: Whether no page is leased until the disk has taken a commit that is under way.
        cache_hits: Page records found in memory.
        cache_misses: Page records looked up in the store.
    """

    name: str = ""
    size_bytes: int | None = None
    commit_age: float | None = None
    commits: int | None = None
    last_commit: float | None = None
    slowest_commit: float | None = None
    is_behind: bool = False
    cache_hits: int | None = None
    cache_misses: int | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The process of the crawl; the averages are over the same time as those of :class:`Rate`.

    Attributes:
        loop_lag: Seconds that an event waits on average because the event loop is busy; ``None`` without the
            package's politeness middleware.
        loop_lag_max: The longest in this run.
        standstill: Most seconds without a request though a host was due.
        standstill_max: The most in this run.
        cpu: CPU seconds a second, of all threads.
        starved: Part of the time for which the main thread, that of the event loop, was ready to run and others had the
            processor; 0 where the system does not say.
        memory: Bytes in memory.
        memory_limit: Bytes that it should not exceed (``AOPIC_MEMORY_MB``).
        pid: Process id.
    """

    loop_lag: float | None = None
    loop_lag_max: float | None = None
    standstill: float | None = None
    standstill_max: float | None = None
    cpu: float = 0.0
    starved: float = 0.0
    memory: int = 0
    memory_limit: int = 0
    pid: int = 0


class ShardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of a job.

    Attributes:
        shard: Its number.
        worker: Its worker; empty if it has none, ``None`` if that is not known.
        is_idle: Whether it had nothing to do at its last commit; ``False`` if that is not known.
        queued, visited, failed: Its pages.
        hosts: Its hosts.
        letters: Letters to it that it has not applied.
    """

    shard: int
    worker: str | None = None
    is_idle: bool = False
    queued: int = 0
    visited: int = 0
    failed: int = 0
    hosts: int = 0
    letters: int = 0


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One worker that is alive.

    Attributes:
        worker: Its host and process.
        shards: Number of shards that it crawls.
        seconds: Time since it joined.
        rate: Pages a second, in the last minute; ``None`` after a single look.
    """

    worker: str
    shards: int = 0
    seconds: float = 0.0
    rate: float | None = None


class ShardFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of a job and their workers.

    Attributes:
        n: Number of shards; 1 for a job in one piece.
        held: Number of shards that this process holds; of a stored job, that any worker holds, ``None`` if that is not known.
        alive: Workers that were alive when the shards were last looked at; ``None`` if that is not known.
        sent: Letters that were sent between shards; ``None`` in the process of a worker, which does not know.
        on_the_way: Of these, letters that were not applied yet; ``None`` in the same case.
        is_quiet: Whether no shard has anything to do, and no letter is on the way; ``False`` in the process of a worker.
        each: All shards; empty in the process of a worker.
        workers: Workers that are alive; empty in the process of a worker.
    """

    n: int = 1
    held: int | None = None
    alive: int | None = None
    sent: int | None = None
    on_the_way: int | None = None
    is_quiet: bool = False
    each: list[ShardRow] = []
    workers: list[WorkerRow] = []


class ControlFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The control settings of an operator (``scrapy aopic control``).

    Attributes:
        paused_since: When it was paused; 0 if it is not.
        sentences: All of them, a sentence each.
        connections: Transfers that may be under way at once; 0 for as many as the settings allow.
        rate: Pages a second that may be requested; 0 for any number.
        undoing: Actions that take them back.
        asked: The latest changes, oldest first.
    """

    paused_since: float = 0.0
    sentences: list[str] = []
    connections: int = 0
    rate: float = 0.0
    undoing: list[str] = []
    asked: list[Asked] = []


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """One host in a list.

    Attributes:
        name: Key of its download slot, mostly its name in URLs.
        state: Its state, a name of :class:`HostCounts`.
        queued: Pages queued.
        visited: Pages that were visited or failed.
        transfer: Seconds that its last transfer took, 0 if there was none.
        wait: Seconds until it may be requested, 0 if now.
        why: Why it waits (:attr:`HostCounts.waits`); empty if it does not.
        errors: Transfers in a row after which it did not respond as it should.
        down: Transfers in a row that showed it to be down.
        crawl_delay: Seconds between requests that its robots.txt asks for.
        relevance: Mean relevance of its graded pages to the topic, 0 to 1; ``None`` if that was not looked for.
    """

    name: str
    state: str = ""
    queued: int = 0
    visited: int = 0
    transfer: float = 0.0
    wait: float = 0.0
    why: str = ""
    errors: int = 0
    down: int = 0
    crawl_delay: float = 0.0
    relevance: float | None = None


class FailureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A visit that failed.

    Attributes:
        at: When it ended.
        url: Its URL.
        cause: Its outcome, such as ``http 404``.
        is_over: Whether the page will not be requested again.
    """

    at: float
    url: str
    cause: str
    is_over: bool = True


class FetchedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was fetched.

    Attributes:
        at: When its visit ended.
        url: Its URL.
        status: Its HTTP status.
        size: Bytes of its body, 0 if it was not read to its end.
    """

    at: float
    url: str
    status: int
    size: int


class TopicFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a crawl for a topic (docs/focused.md).

    Attributes:
        pages: Pages that were read and graded.
        relevant: Relevant pages among them.
        harvest: Part of the graded pages that are relevant.
        lately: Part of the last :data:`scrapy_aopic.core.focus.harvest.LATELY` graded pages; ``None`` if no store was read.
        labels: Labels that people gave, by which pages count; 0 if nobody has checked it.
    """

    pages: int = 0
    relevant: int = 0
    harvest: float = 0.0
    lately: float | None = None
    labels: int = 0


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that have failed because their requests cannot be made any more.

    Attributes:
        reason: Why.
        pages: How many.
        example: URL of one of them.
    """

    reason: str
    pages: int
    example: str


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that commits do not have: counting them takes a look at all pages and all hosts.

    Attributes:
        outcomes: Visited and failed pages that are not ordinary pages, by outcome, most frequent first.
        set_aside: The pages of the outcome ``unreadable``, by reason.
        front_queues: Pages queued, by front queue, best first.
        waits: Hosts with queued pages that must be left alone, by reason, in memory or not.
        slow: All hosts with the longest last transfers, slowest first.
        failing: All hosts with the most errors in a row, worst first.
        waiting: All hosts that wait longest.
    """

    outcomes: dict[str, int] = {}
    set_aside: list[SetAside] = []
    front_queues: dict[int, int] = {}
    waits: dict[str, int] = {}
    slow: list[HostRow] = []
    failing: list[HostRow] = []
    waiting: list[HostRow] = []


Limit = Literal[
    "elsewhere",
    "stopped",
    "done",
    "paused",
    "pause",
    "control",
    "network",
    "disk",
    "machine",
    "spider",
    "connections",
    "politeness",
    "none",
]
"""The limit of a crawl, in a word (:mod:`.verdict`); ``none`` if none was found, as in the first moments."""


class Verdict(msgspec.Struct, frozen=True):
    """The limit of a crawl.

    Attributes:
        limit: In a word.
        sentence: In a sentence for people, with its figures.
        headline: In at most twelve words, with a word on whether the queue lasts.
    """

    limit: Limit = "none"
    sentence: str = ""
    headline: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl at one moment.

    Attributes:
        at: The moment.
        verdict: The limit of the crawl.
        is_live: Whether it is of a crawl that runs in the process; else it is of the last commit of a store.
        is_closed: Whether the job was closed with that commit; ``False`` of a crawl that runs, or died.
        spider: Name of the spider, empty of a stored job.
        created_at: When the job began.
        started_at: When this run began; ``None`` of a stored job.
        not_before: Before this instant no request is made, because of a crash.
        order: Name of the crawl's order.
        problem: Why the figures are older than they should be; empty if they are not.
        unread: Why no store was read, so that only what the server of the job knows is there; empty if one was.
        control: The control settings of an operator.
        counted_since: Instant from which outcomes, transfers, deferrals, refusals and times in the queue are counted;
            that at which the job began unless a repair found no counts. ``None`` if no store was read.
        mean_rate: Visits settled a second since the job began, pauses included; ``None`` at its beginning.
        rate: ``None`` before the first second of a run, and of a stored job unless its commits or its history show one.
        limit: The limit of the crawl, in a word (:data:`Limit`), as its history has it for the minute before a commit;
            empty for a crawl that runs, or if the history has none.
        reason: Finish reason of the last run, in Scrapy's word for it, as its history has it; empty for a crawl that runs or
            died, or if the history has none.
        outcomes: Visits by class (:data:`scrapy_aopic.core.counters.OUTCOMES`).
        statuses: The same by class of status (:data:`STATUSES`).
        put_back: Pages that went back to the queue without a visit.
        deferred: Of these, by reason: ``host down``, ``server error``, ``robots.txt``.
        refused: URLs that were not queued, by reason (docs/urls.md).
        dropped: Links that did not reach the queue, by reason (:data:`.dropped.REASONS`); empty of a store, which does not
            know them.
        queue_seconds: Average time that pages waited in the queue; ``None`` if none has.
        regret: By how many front queues pages in flight were below the best page that waited in memory, on average over
            about the last thousand of them: what politeness costs the order. ``None`` of a stored job, and at first.
        topic: ``None`` if no page was graded for a topic.
        round: The last round of revisits; ``None`` if there was none.
        revisit_at: When nothing is queued, the instant from which a visited page may be due; 0 if none is to be revisited.
        connections: ``None`` of a stored job.
        machine: ``None`` of a stored job, unless its history says something of the minute before the commit.
        shards: In the process of a worker, all other figures are of the shards that it holds.
        counted: Figures that take a look at all pages and hosts; ``None`` unless they were wanted.
        slow: Hosts in memory with the longest last transfers, slowest first.
        failing: Hosts in memory with the most errors in a row, worst first.
        waiting: Hosts in memory that wait longest.
        failures: Visits of this run that failed, the latest first, and at most three of a cause; none of a stored job.
        fetched: Pages that this run fetched last, the latest first; none of a stored job.
        media: Bytes of bodies that this run has read, by media type (``html``, else the part before the slash).
        found: Revisits of this run, by what they have found (:class:`~scrapy_aopic.core.revisits.found.Found`).
    """

    at: float
    verdict: Verdict = Verdict()
    is_live: bool = False
    is_closed: bool = False
    spider: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    not_before: float = 0.0
    order: str = ""
    problem: str = ""
    unread: str = ""
    control: ControlFigures = ControlFigures()
    counted_since: float | None = 0.0
    pages: PageCounts = PageCounts()
    visits: VisitCounts = VisitCounts()
    mean_rate: float | None = None
    rate: Rate | None = None
    limit: str = ""
    reason: str = ""
    forecast: Forecast = Forecast()
    hosts: HostCounts = HostCounts()
    connections: Connections | None = None
    outcomes: dict[str, int] = {}
    statuses: dict[str, int] = {}
    transfers: TransferFigures = TransferFigures()
    put_back: int = 0
    deferred: dict[str, int] = {}
    refused: dict[str, int] = {}
    dropped: dict[str, int] = {}
    queue_seconds: float | None = None
    regret: float | None = None
    topic: TopicFigures | None = None
    round: Round | None = None
    revisit_at: float = 0.0
    ledger: LedgerFigures = LedgerFigures()
    store: StoreState = StoreState()
    machine: Machine | None = None
    shards: ShardFigures = ShardFigures()
    counted: Counted | None = None
    slow: list[HostRow] = []
    failing: list[HostRow] = []
    waiting: list[HostRow] = []
    failures: list[FailureRow] = []
    fetched: list[FetchedRow] = []
    media: dict[str, int] = {}
    found: dict[str, int] = {}


Figure: TypeAlias = float | str | None
"""A number or a word of a snapshot."""


def figure(now: Snapshot, path: str) -> Figure:
    """The figure at *path*, such as ``pages.queued`` or ``outcomes.page``; of counts by reason, such as ``refused``, their sum.

    ``None`` if it, or a part on the way to it, is ``None``.
    """
    found: object = now
    for name in path.split("."):
        if isinstance(found, dict):
            found = found.get(name, 0)
        elif found is not None:
            found = getattr(found, name)
    if isinstance(found, dict):
        return float(sum(found.values()))
    assert found is None or isinstance(found, (float, int, str)), path
    return found


STATUSES = {
    "2xx": ("page", *MARKS, "duplicate", "content type", "content usage", "language"),
    "3xx": ("redirect",),
    "4xx": ("not found", "other 4xx", "too many requests"),
    "5xx": ("5xx",),
    "none": ("no answer",),
}
"""Outcomes of visits by the class of the status that they stand for; ``none`` for no response."""


def statuses_of(outcomes: dict[str, int]) -> dict[str, int]:
    """The visits with these *outcomes* by class of status (:data:`STATUSES`)."""
    return {name: sum([outcomes.get(each, 0) for each in classes]) for name, classes in STATUSES.items()}


def visits_of(pages: PageCounts, outcomes: dict[str, int]) -> VisitCounts:
    """The visits with these *outcomes*; if none is known, each page was visited once, and what failed may be mended."""
    if not outcomes:
        return VisitCounts(all=pages.visited + pages.failed, failed=pages.failed)
    failed, gone = (sum([outcomes.get(name, 0) for name in names]) for names in (FAILED, GONE))
    return VisitCounts(all=sum(outcomes.values()), failed=failed, gone=gone)


def mean_rate(pages: PageCounts, visits: int, seconds: float) -> float | None:
    """Visits a second, of which *visits* are known, in the *seconds* since a job began; ``None`` if these are none."""
    return max(pages.visited + pages.failed, visits) / seconds if seconds > 0 else None


STEADY = 0.1
"""Pages by which the queue changes for each visit up to which nothing says when it ends: in ten seconds that may be chance."""


def queue_lasts(pages: PageCounts, rate: Rate | None, tail: Sequence[float]) -> float | None:
    """Seconds until the queue is empty: as it shrinks now, and not before each host has had its pages.

    ``None`` if it does not shrink.

    Args:
        tail: See :attr:`HostCounts.tail`.
    """
    if not pages.queued or rate is None or _is_silent(rate):
        return None
    if rate.growth is None:  # nothing was fetched: only hosts with long gaps are left
        return max(tail, default=None) if pages.visited else None
    return max(pages.queued / (rate.pages * -rate.growth), *tail[:1], 0.0) if rate.growth < -STEADY else None


def _is_silent(rate: Rate) -> bool:
    """Whether no transfer of the last seconds got an answer, so that nobody knows how long the queue lasts."""
    return bool(rate.down) and rate.down == rate.transfers


def in_tail(seconds: float | None, tail: Sequence[float]) -> int:
    """How many hosts have most of what is left if the queue lasts for so many *seconds* because of them; else 0."""
    return sum(each > seconds / 2 for each in tail) if seconds and tail[:1] == [seconds] else 0


def forecast(
    pages: PageCounts,
    rate: Rate | None,
    *,
    tail: Sequence[float] = (),
    left: int | None = None,
    time_left: float | None = None,
) -> Forecast:
    """When the crawl ends.

    Args:
        rate: ``None`` if nothing is known of it.
        tail: See :attr:`HostCounts.tail`.
        left: Pages until the crawl is closed by their number (``CLOSESPIDER_PAGECOUNT``), if it is.
        time_left: Seconds until it is closed by its time (``CLOSESPIDER_TIMEOUT``), if it is.
    """
    ends: list[tuple[float, str]] = []
    if time_left is not None:
        ends.append((max(time_left, 0.0), "CLOSESPIDER_TIMEOUT ends the crawl"))
    if pages.queued == 0 and pages.known:
        ends.append((0.0, "nothing is queued"))
    elif pages.queued and pages.queued <= pages.dead + pages.blocked:
        ends.append((0.0, "only dead hosts have pages left"))
    elif rate is not None:
        if left is not None and rate.pages > 0:
            ends.append((max(left, 0) / rate.pages, "CLOSESPIDER_PAGECOUNT ends the crawl"))
        if (seconds := queue_lasts(pages, rate, tail)) is not None:
            n = in_tail(seconds, tail)
            because = (
                f"a tail of {n} host{'s' * (n > 1)}{' and more' * (n == N_LISTED)} has most of what is left, a page after each gap; "
                "to block some, or shorter gaps if they are yours, would shorten it"
            )
            ends.append((seconds, because if n else "the queue is empty then if it shrinks on"))
    if ends:
        seconds, because = min(ends)
        return Forecast(seconds=seconds, because=because)
    if not pages.known:
        return Forecast(because="no page is queued yet")
    if rate is None:
        return Forecast(because="the speed is not known, as no crawl is running or one has just begun")
    if rate.growth is None or _is_silent(rate):
        return Forecast(because="no page was fetched in the last seconds")
    if abs(rate.growth) <= STEADY:
        return Forecast(because="the queue stays about as long as it is, so nothing says when it ends")
    return Forecast(
        because=f"the queue grows by {rate.growth:.1f} pages for each visit, so no end is in sight"
    )

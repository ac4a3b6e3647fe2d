"""What limits a crawl, in one sentence.

A crawl can wait for politeness, for connections, for the spider's callbacks, for the disk, for this machine, or for the
network: its limit is that whose removal would raise the rate now. :func:`verdict` says which, of two snapshots some ten
seconds apart; of several that hold, the first of this table:

============  ========================================================================================
limit         when
============  ========================================================================================
elsewhere     the snapshot is of the stores of a job in shards, which workers crawl
stopped       the snapshot is of another store
done          nothing is queued, or only dead or blocked hosts have pages
paused        an operator has paused the crawl
pause         a crash has left a time before which no request is made
network       most transfers since the first snapshot failed, or none of many that were due has ended, or all
              waiting hosts are down
control       hosts are ready, and an operator allows no more transfers or pages a second
disk          there is work for this process (*), and no page is leased until a commit has landed, or the last commit took
              long
machine       there is work for this process (*), and it uses a whole core, or would if others did not; or the event loop is late and the
              processor is busy, or others have it; or it is busy and callbacks hold many pages; or, when nothing
              below holds, hosts stay ready while the processor is busy, or more of them than half of the free
              connections
spider        the event loop is late though the processor is not busy; or callbacks hold as many pages as
              half of the connections; or nothing but callbacks is at work
connections   the downloader has as many requests as it takes
politeness    hosts have pages, and all must be left alone or are requested already
============  ========================================================================================

(*) A host is ready, a callback holds a page, or half of the connections are busy. If not, a faster machine or disk would
wait for the same hosts.

:class:`Judge` names another limit once that has held for ten seconds, or at once if the figures rule out the one before.
The word on the queue is that of the last ten seconds, as all others on it are (:attr:`.snapshot.Rate.growth`).

The thresholds for "long" and "late" are below; each is far from the values of a crawl with another limit.
No sentence has a speed: a snapshot has one, over the last minute, and the few seconds of a verdict would show another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .snapshot import HostCounts, Limit, Snapshot, Verdict, queue_lasts
from .text import LIMITED_BY, n_of, roughly

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS: tuple[Limit, ...] = ("politeness", "connections", "spider", "disk", "machine", "network")
"""Those that a user can do something about."""

_SLOW_COMMIT = 1.0
"""Seconds from which a commit is long: twice the default of ``AOPIC_DURABILITY``."""

_TURNS = 5
"""Turns of a late event loop that a commit may seem to take longer than it does: the loop begins it, and notes its end."""

_LATE = 0.1
"""Seconds by which an event waits on average for the loop from which that is late; as in ``session/lateness.py``."""

_WHOLE_CORE = 0.9
"""CPU seconds a second from which the one core that Python uses is busy."""

_BUSY = 0.5
"""CPU seconds a second below which a late event loop does not compute, but is blocked."""

_MOSTLY = 0.7
"""CPU seconds a second from which pages that wait for callbacks rather wait for the processor."""

_NEARLY = 0.8
"""Part of the pages that an operator allows from which on it is that which limits: transfers begin and end unevenly."""

_STARVED = 0.1
"""Part of the time that the process waits for the processor from which on it is worth saying."""

_HUNGRY = 0.25
"""Part of the time that it waits for the processor from which on that makes the event loop late, and no callback does."""

_ALMOST = 0.9
"""Part of the connections that is as good as all, and so are all but one: some are always between two requests."""

_RARE = 4
"""Known hosts for each that has pages from which on it is worth saying that few have."""

_MOST = 0.5
"""Part of the transfers from which on failures are the rule."""

_FEW = 3
"""Transfers that may be chance, failed or under way."""

_HELD = 10.0
"""Seconds for which another limit must hold before it is named: as long as the window by which it is judged."""

_QUIET = 2.0
"""Seconds without the end of a transfer that are no chance if many were due; a page shows the verdict within 3 s."""

_DUE = 20
"""Transfers that should have ended by now, judging by those before, from which on it is no chance that none has."""


def verdict(before: Snapshot, now: Snapshot) -> Verdict:
    """The limit of the crawl now.

    Args:
        before: A snapshot of the same run, some seconds earlier; *now* itself if there is none.
    """
    for check in (
        _ended,
        _paused,
        _pause,
        _network,
        _control,
        _disk,
        _machine,
        _spider,
        _connections,
        _politeness,
    ):
        found = check(before, now)
        if found is not None:
            return _with_headline(found, now)
    return _with_headline(_stuck(before, now) or _nothing(now), now)


class Judge:
    """Says what limits a crawl, by one snapshot after the other, without going to and fro."""

    def __init__(self) -> None:
        self._named: Limit | None = None
        self._other: tuple[Limit, float] | None = None

    def __call__(self, before: Snapshot, now: Snapshot) -> Verdict:
        """As :func:`verdict`; *now* is not earlier than that of the call before."""
        found = verdict(before, now)
        if self._named is None or found.limit == self._named:
            self._named, self._other = found.limit, None
            return found
        if self._other is None or self._other[0] != found.limit:
            self._other = found.limit, now.at
        if now.at - self._other[1] < _HELD and (found.limit in _STILL or found.limit == "none"):
            still = _STILL[self._named](before, now) if self._named in _STILL else None
            if still is not None:
                return _with_headline(still, now)
        self._named, self._other = found.limit, None
        return found


def _nothing(now: Snapshot) -> Verdict:
    work, n = now.connections, now.hosts.ready
    ready = f"{n_of(n, 'host')} {'is' if n == 1 else 'are'} ready"
    free = f", and {work.limit - work.in_use:,} of {work.limit:,} connections are free" if work else ""
    return Verdict("none", f"Nothing limits the crawl: {ready}{free}.")


_HEADLINES: dict[Limit, str] = {
    "politeness": "Politeness limits this crawl",
    "connections": "Too few connections limit this crawl",
    "spider": "The spider limits this crawl",
    "disk": "The disk limits this crawl",
    "machine": "This machine limits the crawl",
    "network": "The network limits this crawl",
    "control": "An operator limits this crawl",
    "none": "Nothing limits this crawl",
}
"""What stands in large letters, with a word on the queue after it."""


def _with_headline(found: Verdict, now: Snapshot) -> Verdict:
    """*found* with its headline, if it has none of its own."""
    return found if found.headline else replace(found, headline=f"{_HEADLINES[found.limit]}{_queue(now)}.")


def _queue(now: Snapshot) -> str:
    """Whether the queue lasts, if the last ten seconds say so."""
    growth = now.rate.growth if now.rate is not None else None
    if not growth:
        return ""
    if growth > 0:
        return ", and its queue grows"
    seconds = queue_lasts(now.pages, now.rate, now.hosts.tail)
    return f", and its queue lasts {roughly(seconds)}" if seconds is not None else ", and its queue shrinks"


def _stuck(before: Snapshot, now: Snapshot) -> Verdict | None:
    """Why hosts stay ready although connections are free."""
    _, cpu = _load(before, now)
    ready, work = min(before.hosts.ready, now.hosts.ready), now.connections
    if not ready or now.at <= before.at:
        return None
    if cpu + _starved(before, now) < _BUSY:
        free = work.limit - work.in_use if work is not None else 0
        if work is None or 2 * ready <= free:
            return None
        return Verdict(
            "machine",
            f"This machine is the bottleneck: {n_of(now.hosts.ready, 'host')} could be requested and "
            f"{n_of(free, 'connection')} {'is' if free == 1 else 'are'} free, but the process, which uses {cpu:.2f} of a core, does not get "
            "to them. Do others take the processor, or is the engine paused?",
        )
    return Verdict(
        "machine",
        f"This machine is the bottleneck: {_uses(before, now)}, and does not get to "
        f"{n_of(now.hosts.ready, 'host')} that could be requested.",
    )


def _ended(_: Snapshot, now: Snapshot) -> Verdict | None:
    pages = now.pages
    if now.shards.n > 1 and not now.is_live:
        return _ended_in_shards(now)
    if not pages.queued:
        return Verdict("done", "Done: nothing is queued.", "Done: nothing is queued.")
    if not now.is_live:
        return _stopped(now)
    if pages.queued <= pages.dead:
        hosts = f"{n_of(now.hosts.dead, 'dead host')} {'has' if now.hosts.dead == 1 else 'have'}"
        return Verdict("done", f"Only {hosts} pages left: {pages.dead:,}.", f"Done: only {hosts} pages left.")
    if pages.blocked and pages.queued <= pages.dead + pages.blocked:
        return Verdict(
            "done",
            f"Only hosts that are blocked or have had all of their pages ({pages.blocked:,} pages), or are dead ({pages.dead:,}), "
            "have pages left.",
            "Done: only blocked, full or dead hosts have pages left.",
        )
    return None


def _stopped(now: Snapshot) -> Verdict:
    """Why the last run ended, what waits, and how to go on."""
    wait = f"{n_of(now.pages.queued, 'page')} wait{'s' * (now.pages.queued == 1)}"
    if not now.is_closed:
        return Verdict(
            "stopped",
            "As of the last commit; the crawl runs elsewhere, or its process died. If it died, the command that started it goes "
            f"on where it was: {wait}.",
            f"Not closed: it runs elsewhere, or died. {_sentence(wait)}",
        )
    why = why_ended(now.reason)
    limit = f", when {LIMITED_BY[now.limit]} limited it" if now.limit in LIMITED_BY else ""
    return Verdict(
        "stopped",
        f"As of the last commit; the crawl was closed{f' ({now.reason})' if now.reason else ''}{limit}. The command "
        f"that started it, with the same job folder, goes on where it was: {wait}.",
        f"Ended{f': {why}' if why else ''}. {_sentence(wait)}",
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def why_ended(reason: str) -> str:
    """The *reason* that a spider was closed with, in words; *reason* itself if it is of somebody else's making."""
    return _ENDED.get(reason, reason)


_ENDED = {
    "finished": "the spider had nothing to do",
    "shutdown": "a signal stopped it",
    "closespider_timeout": "its time was up",
    "closespider_pagecount": "enough pages were fetched",
    "closespider_itemcount": "there were enough items",
    "closespider_errorcount": "there were too many errors",
    "aopic_convergence": "the estimates have settled",
    "aopic_gone": "its job was taken away",
    "aopic_harvest": "hardly anything relevant was found",
    "aopic_storage": "its store failed",
    "aopic_stranded": "nothing leads to the rest",
    "aopic_unreachable": "hosts do not answer",
    "aopic_unreadable": "some requests cannot be read",
    "aopic_waiting": "hosts must be left alone",
}
"""Why a run ended, by the reason that it gives, in five words at most; the sentence beside it has that word."""


def _ended_in_shards(now: Snapshot) -> Verdict:
    """How a job in shards is, of which this process has none."""
    shards = now.shards
    if shards.is_quiet:
        return Verdict(
            "done",
            "Done: no shard has anything to do, and no letter is on its way.",
            "Done: no shard has anything to do.",
        )
    if shards.alive is None:
        return _stopped(now)
    if not shards.alive:
        return Verdict(
            "stopped",
            "No worker crawls this job now; any number of them can go on with it.",
            "No worker crawls this job now.",
        )
    letters = shards.on_the_way or 0
    return Verdict(
        "elsewhere",
        f"{n_of(shards.alive, 'worker')} crawl{'s' * (shards.alive == 1)} {shards.held:,} of {shards.n:,} shards; what limits each "
        f"of them its own dashboard shows. {n_of(letters, 'letter')} between shards {'is' if letters == 1 else 'are'} on the way.",
        f"{n_of(shards.alive, 'worker')} crawl{'s' * (shards.alive == 1)} {shards.held:,} of {shards.n:,} shards.",
    )


def _paused(_: Snapshot, now: Snapshot) -> Verdict | None:
    since = now.control.paused_since
    if not since:
        return None
    return Verdict(
        "paused",
        f"Paused by an operator {max(now.at - since, 0.0):,.0f} s ago: 'scrapy aopic control JOBDIR resume' lets it go on.",
        "An operator has paused this crawl.",
    )


def _pause(_: Snapshot, now: Snapshot) -> Verdict | None:
    seconds = now.not_before - now.at
    text = f"Waiting {seconds:.0f} s after a crash."
    return Verdict("pause", text, text) if seconds > 0 else None


def _network(before: Snapshot, now: Snapshot) -> Verdict | None:
    n, down = now.transfers.n - before.transfers.n, now.transfers.down - before.transfers.down
    if down >= _FEW and down > _MOST * n:
        return Verdict(
            "network",
            f"The network is the bottleneck: {down:,} of the last {n:,} transfers got no response, or a refusal. "
            "Is there a network, and is the proxy in order?",
        )
    work, past = now.connections, now.transfers
    if work is not None and work.in_use >= _FEW and past.quiet >= _QUIET and past.seconds:
        # As many would have ended if they took as long as those so far. (Some began later: it is an upper bound.)
        due = work.in_use * past.quiet * past.n / past.seconds
        if due >= _DUE:
            return Verdict(
                "network",
                f"The network is the bottleneck: none of {work.in_use:,} transfers under way has ended for {past.quiet:.0f} s. "
                "Is there a network, and is the proxy in order?",
            )
    hosts = now.hosts
    n_down, is_idle = hosts.waits.get("down", 0), now.connections is None or not now.connections.in_use
    if n_down and n_down == hosts.waiting and not hosts.ready and not hosts.shelved and is_idle:
        wait = min((row.wait for row in now.waiting), default=0.0)
        return Verdict(
            "network",
            f"Nothing answers: {n_of(n_down, 'host')} with pages did not respond. Next try in {wait:.0f} s.",
            f"Nothing answers: {n_of(n_down, 'host')} did not respond.",
        )
    return None


def _control(before: Snapshot, now: Snapshot) -> Verdict | None:
    work, connections = now.connections, now.control.connections
    if not now.hosts.ready:
        return None
    could = f"{n_of(now.hosts.ready, 'host')} could be requested. 'scrapy aopic control JOBDIR' changes that."
    if work is not None and 0 < connections < work.limit and work.in_use >= max(1, connections - 1):
        return Verdict(
            "control",
            f"An operator's limit holds: at most {n_of(connections, 'transfer')} at once, and {could}",
        )
    rate = _settled(before, now)
    if now.control.rate and rate >= _NEARLY * now.control.rate:
        return Verdict(
            "control",
            f"An operator's limit holds: at most {now.control.rate:g} pages a second, and {could}",
        )
    return None


def _settled(before: Snapshot, now: Snapshot) -> float:
    """Pages settled a second between the snapshots; over the last minute if they are the same."""
    done = now.pages.visited + now.pages.failed - before.pages.visited - before.pages.failed
    if now.at > before.at:
        return done / (now.at - before.at)
    return now.rate.pages if now.rate is not None else 0.0


def _has_work(now: Snapshot) -> bool:
    """Whether a faster machine or disk could do anything sooner."""
    work = now.connections
    return bool(now.hosts.ready) or (
        work is not None and (work.callbacks > 0 or work.in_use >= max(_FEW, work.limit / 2))
    )


def _disk(before: Snapshot, now: Snapshot) -> Verdict | None:
    if not _has_work(now):
        return None
    store = now.store
    late, _ = _load(before, now)
    if store.is_behind and (store.commit_age or 0.0) > _TURNS * late:
        return Verdict(
            "disk",
            f"The disk is the bottleneck: the last commit that landed is {store.commit_age or 0:.1f} s old, and no page is "
            "requested until the next one has landed.",
        )
    is_new = (store.commits or 0) > (before.store.commits or 0)
    return _slow_commit(now) if is_new and (store.last_commit or 0.0) > _TURNS * late else None


def _slow_commit(now: Snapshot) -> Verdict | None:
    seconds = now.store.last_commit or 0.0
    if seconds <= _SLOW_COMMIT:
        return None
    return Verdict("disk", f"The disk is the bottleneck: the last commit took {seconds:.1f} s.")


def _load(before: Snapshot, now: Snapshot) -> tuple[float, float]:
    """How late the event loop was on average between the snapshots, and the CPU seconds a second."""
    then, machine = before.machine, now.machine
    if then is None or machine is None:
        return 0.0, 0.0
    n, seconds = machine.late_samples - then.late_samples, now.at - before.at
    late = (machine.late_seconds - then.late_seconds) / n if n > 0 else 0.0
    return late, (machine.cpu_seconds - then.cpu_seconds) / seconds if seconds > 0 else 0.0


def _machine(before: Snapshot, now: Snapshot) -> Verdict | None:
    late, cpu = _load(before, now)
    starved = _starved(before, now)
    wanted = cpu + starved
    if wanted < _WHOLE_CORE and (late < _LATE or (wanted < _BUSY and starved < _HUNGRY)):
        return None
    return _busy(before, now)


def _busy(before: Snapshot, now: Snapshot) -> Verdict | None:
    late, starved = _load(before, now)[0], _starved(before, now)
    if not _has_work(now):
        return None
    behind = f", and the event loop is {late:.2f} s late" if late >= _LATE else ""
    help_ = "A less busy machine" if starved >= _STARVED else "Less work in callbacks"
    return Verdict(
        "machine", f"This machine is the bottleneck: {_uses(before, now)}{behind}. {help_} would help."
    )


def _starved(before: Snapshot, now: Snapshot) -> float:
    """Part of the time between the snapshots for which the process was ready to run and others had the processor."""
    then, machine, seconds = before.machine, now.machine, now.at - before.at
    if then is None or machine is None or seconds <= 0:
        return 0.0
    return (machine.starved_seconds - then.starved_seconds) / seconds


def _uses(before: Snapshot, now: Snapshot) -> str:
    """The load of the process on the processor, in words."""
    starved, (_, cpu) = _starved(before, now), _load(before, now)
    waits = (
        f" and waits for one {100 * starved:.0f} % of the time, as others use it"
        if starved >= _STARVED
        else ""
    )
    return f"the process uses {cpu:.2f} of a core{waits}"


def _spider(before: Snapshot, now: Snapshot) -> Verdict | None:
    then, work = before.connections, now.connections
    late, cpu = _load(before, now)
    if late >= _LATE:
        return Verdict(
            "spider",
            f"The spider is the bottleneck: callbacks or pipelines block the event loop, which is {late:.2f} s late while "
            f"the process uses {cpu:.2f} of a core. Do they wait for something without 'await', as time.sleep() does?",
        )
    if then is None or work is None:
        return None
    callbacks, hosts = min(then.callbacks, work.callbacks), now.hosts
    is_alone = not (work.in_use or hosts.ready or hosts.waiting or hosts.gated)
    if now.at > before.at and callbacks > work.limit / 2 and cpu + _starved(before, now) >= _MOSTLY:
        return Verdict(
            "machine",
            f"This machine is the bottleneck: {_uses(before, now)}, and {n_of(work.callbacks, 'page')} wait "
            "for their callbacks, items or links.",
        )
    if now.at > before.at and (callbacks > work.limit / 2 or (callbacks and is_alone)):
        return _callbacks(now)
    return None


def _callbacks(now: Snapshot) -> Verdict | None:
    n = now.connections.callbacks if now.connections is not None else 0
    if not n:
        return None
    return Verdict(
        "spider", f"The spider is the bottleneck: {n_of(n, 'page')} wait for callbacks, items or links."
    )


def _connections(_: Snapshot, now: Snapshot) -> Verdict | None:
    work, hosts = now.connections, now.hosts
    if work is None or work.in_use < max(1, min(_ALMOST * work.limit, work.limit - 1)):
        return None
    if work.in_use < work.limit and not hosts.ready:
        return None
    return _in_use(now)


def _in_use(now: Snapshot) -> Verdict | None:
    work, hosts = now.connections, now.hosts
    if work is None or 2 * work.in_use < work.limit:
        return None
    is_all = work.in_use >= work.limit
    busy = f"all {work.limit:,}" if is_all else f"{work.in_use:,} of {work.limit:,}"
    n = hosts.ready + hosts.gated
    could = f", and {n_of(n, 'more host')} wait{'s' * (n == 1)} for one" if n else ""
    return Verdict(
        "connections",
        f"Connections are the bottleneck: {busy} are busy{could}. Raise CONCURRENT_REQUESTS.",
    )


def _politeness(_: Snapshot, now: Snapshot) -> Verdict | None:
    hosts = now.hosts
    busy = hosts.in_flight + hosts.dry
    left_alone = hosts.waiting + hosts.gated + hosts.parked
    if hosts.ready or not (left_alone or busy):
        return None
    return _left_alone(now)


def _left_alone(now: Snapshot) -> Verdict | None:
    hosts = now.hosts
    busy = hosts.in_flight + hosts.dry
    left_alone = hosts.waiting + hosts.gated + hosts.parked
    if _RARE * hosts.ready >= left_alone + busy:
        return None
    have = left_alone + busy + hosts.shelved + hosts.late + hosts.locating + hosts.dead
    few = f" Only {have:,} of {hosts.known:,} known hosts have pages." if _RARE * have <= hosts.known else ""
    return Verdict(
        "politeness",
        f"Politeness is the limit: {_who_waits(hosts, left_alone)}.{few} "
        f"More hosts would help{'; shorter gaps only if the hosts are yours' if hosts.waits.get('gap') else ''}.",
    )


def _who_waits(hosts: HostCounts, left_alone: int) -> str:
    """How many hosts must be left alone and why, and how many are requested."""
    requested = f"{hosts.in_flight:,} {'is' if hosts.in_flight == 1 else 'are'} requested"
    if not left_alone:
        return f"every host that has pages is at work, and {requested}"
    reasons = sorted((n, why) for why, n in hosts.waits.items() if n)
    alone = f"{n_of(left_alone, 'host')} must be left alone"
    if len(reasons) > 1:
        return f"{alone}, {', '.join(f'{n:,} {_WHY[why]}' for n, why in reversed(reasons))}; {requested}"
    return f"{alone}{' ' + _WHY[reasons[0][1]] if reasons else ''}, and {requested}"


_WHY = {
    "gap": "for the gap after each transfer (AOPIC_POLITENESS_FACTOR, DOWNLOAD_DELAY)",
    "crawl delay": "for the crawl delay of their robots.txt",
    "errors": "after errors (AOPIC_BACKOFF)",
    "down": "after transfers without a response (AOPIC_BACKOFF)",
}
"""Why hosts wait, by :func:`.host_walk.why_it_waits`."""

_STILL: dict[Limit, Callable[[Snapshot, Snapshot], Verdict | None]] = {
    "disk": lambda _, now: _slow_commit(now) if _has_work(now) else None,
    "machine": _busy,
    "spider": lambda _, now: _callbacks(now),
    "connections": lambda _, now: _in_use(now),
    "politeness": lambda _, now: _left_alone(now),
}
"""What is said of a limit while another one has not held for long; ``None`` where the figures rule it out."""

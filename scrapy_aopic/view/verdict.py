"""What limits a crawl, in one sentence.

A crawl can wait for politeness, for connections, for the spider's callbacks, for the disk, for this machine, for the
network, or for an operator. Its limit is that whose removal would raise the rate now, judged by the last ten seconds
(:data:`~.snapshot.WINDOW`), which all speeds on a dashboard are of, too.

Is anything of ours the limit? Hosts that are ready could have had more pages: :attr:`~.snapshot.HostCounts.ceiling` counts
them. If that is hardly more than the crawl fetched, politeness is the limit, whatever else is busy: a faster machine would
wait for the same hosts. Else it is that which was nearest to all that it can do:

============  ========================================================================================
limit         how near it is
============  ========================================================================================
control       transfers under way, or pages a second, of those that an operator allows
machine       CPU seconds a second of the one core that Python uses, with those that others had instead; all if the event
              loop is late though a callback does not block it; half if hosts stay ready beside free connections
disk          part of the time for which no page was leased, as the disk had not taken a commit
spider        pages in callbacks, of half of the connections; all if the event loop is late and the processor idle
connections   requests under way, of those that the downloader takes
============  ========================================================================================

What needs no comparison comes first: the crawl has ended, or is paused, or nothing answers. The spider is also the limit if
nothing but callbacks is at work.

:class:`Judge` names another limit once that has held for ten seconds, or at once if the figures of the moment rule out the
one before (:func:`_fits`): no host ready, nothing in callbacks and few transfers is never the machine or the disk.

No sentence has a speed: a snapshot has one.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from scrapy_aopic.place.stored_control import time_of

from .snapshot import STEADY, WINDOW, HostCounts, Limit, Rate, Snapshot, Verdict, in_tail, queue_lasts
from .text import LIMITED_BY, n_of, roughly

LIMITS: tuple[Limit, ...] = ("politeness", "connections", "spider", "disk", "machine", "network")
"""Those that a user can do something about."""

_LATE = 0.1
"""Seconds by which an event waits on average for the loop from which that is late; as in ``session/lateness.py``."""

_BUSY = 0.5
"""CPU seconds a second below which a late event loop does not compute, but is blocked."""

_MOSTLY = 0.7
"""CPU seconds a second from which pages that wait for callbacks rather wait for the processor."""

_STARVED = 0.1
"""Part of the time that the process waits for the processor from which on it is worth saying."""

_HUNGRY = 0.25
"""Part of the time that it waits for the processor from which on that makes the event loop late, and no callback does."""

_FROM: dict[Limit, float] = {"control": 0.8, "machine": 0.5, "disk": 0.2, "spider": 1.0, "connections": 0.9}
"""How near each is to all that it can do from which on it may be the limit; transfers begin and end unevenly."""

_MORE = 1.25
"""Pages that hosts could have had for each that was fetched up to which a crawl is as fast as politeness allows."""

_STANDSTILL = 1.0
"""Seconds without a request though a host was due from which on they are worth saying."""

_RARE = 4
"""Known hosts for each that has pages from which on it is worth saying that few have."""

_MOST = 0.5
"""Part of the transfers from which on failures are the rule."""

_FEW = 3
"""Transfers that may be chance, failed or under way."""

_MANY = 10
"""Failed transfers that are no chance although most hosts wait for other reasons: the end of a crawl has dead hosts, too."""

_QUIET = 2.0
"""Seconds without the end of a transfer that are no chance if many were due; a page shows the verdict within 3 s."""

_DUE = 20
"""Transfers that should have ended by now, judging by those before, from which on it is no chance that none has."""


def verdict(now: Snapshot) -> Verdict:
    """The limit of the crawl now."""
    for check in (_ended, _paused, _pause, _network):
        found = check(now)
        if found is not None:
            return _with_headline(found, now)
    return _of(_limit(now), now)


def of_running(now: Snapshot, process: str) -> Verdict:
    """How a stored job is that *process* crawls, as far as its last commit and its history say."""
    limit = f", and {LIMITED_BY[now.limit]} limited it lately" if now.limit in LIMITED_BY else ""
    return _paused(now) or Verdict(
        "elsewhere",
        f"Crawled by {process}{limit}; {_waiting(now)} as of the last commit.",
        f"It runs{limit}. {_sentence(_waiting(now))}",
    )


class Judge:
    """Says what limits a crawl, by one snapshot after the other, without going to and fro."""

    def __init__(self) -> None:
        self._named: Limit | None = None
        self._other: tuple[Limit, float] | None = None

    def __call__(self, now: Snapshot) -> Verdict:
        """As :func:`verdict`; *now* is not earlier than that of the call before."""
        found = verdict(now)
        if self._named is None or found.limit == self._named:
            self._named, self._other = found.limit, None
            return found
        if self._other is None or self._other[0] != found.limit:
            self._other = found.limit, now.at
        if now.at - self._other[1] < WINDOW and found.limit in _SENTENCES and _fits(self._named, now):
            return _of(self._named, now)
        self._named, self._other = found.limit, None
        return found


def _of(limit: Limit, now: Snapshot) -> Verdict:
    seconds = now.machine.standstill or 0.0 if now.machine is not None else 0.0
    stood = f" No request was made for {seconds:.1f} s though a host was due." * (seconds >= _STANDSTILL)
    return _with_headline(Verdict(limit, _SENTENCES[limit](now) + stood), now)


# -- what it is


def _limit(now: Snapshot) -> Limit:
    """What was nearest to all that it can do, if hosts could have had more pages; else politeness."""
    rate, hosts = now.rate, now.hosts
    near = {limit: part for limit, part in _near(now).items() if part >= _FROM[limit] and _fits(limit, now)}
    could = rate is None or hosts.ceiling is None or hosts.ceiling > _MORE * rate.pages
    if not (could and hosts.ready):
        near = {limit: part for limit, part in near.items() if limit == "spider" or _waits_for_callbacks(now)}
    if near:
        return max(near, key=lambda limit: near[limit])
    return "politeness" if _fits("politeness", now) and not (could and hosts.ready) else "none"


def _near(now: Snapshot) -> dict[Limit, float]:
    """How near each is to all that it can do: 1 is all."""
    work, rate, asked = now.connections, now.rate, now.control
    if work is None or rate is None or rate.in_use is None:
        return {}
    late, cpu, starved = _load(now)
    callbacks, free = rate.callbacks or 0.0, work.limit - work.in_use
    is_blocked = late >= _LATE and cpu + starved < _BUSY and starved < _HUNGRY
    holds = 1.0 if is_blocked or _is_alone(now) else min(2 * callbacks / max(work.limit, 1), 1.0)
    is_computed = holds == 1.0 and not is_blocked and cpu + starved >= _MOSTLY
    at_once = asked.connections if asked.connections < work.limit else 0
    return {
        "control": max(
            rate.in_use / max(at_once - 1, 1) if at_once else 0.0,
            _asked_for(rate) / asked.rate if asked.rate else 0.0,
        ),
        "machine": 1.0
        if is_computed or (late >= _LATE and not is_blocked)
        else max(cpu + starved, _BUSY * (2 * now.hosts.ready > free)),
        "disk": rate.behind or 0.0,
        "spider": 0.0 if is_computed else holds,
        "connections": rate.in_use / max(min(work.limit, max(work.limit - 1, 1) / _FROM["connections"]), 1),
    }


def _asked_for(rate: Rate) -> float:
    """Requests a second, as an operator limits them: a robots.txt is one, too."""
    return max(rate.pages, rate.transfers or 0.0)


def _fits(limit: Limit, now: Snapshot) -> bool:
    """Whether no figure of this moment rules out that this is the *limit*."""
    work, hosts = now.connections, now.hosts
    in_use, most, callbacks = (work.in_use, work.limit, work.callbacks) if work is not None else (0, 0, 0)
    match limit:
        case "machine" | "disk":
            return bool(hosts.ready or callbacks or in_use >= max(_FEW, most / 2))
        case "spider":
            return callbacks > 0 or _load(now)[0] >= _LATE
        case "connections":
            return 2 * in_use >= most > 0 and hosts.ready + hosts.gated > 0
        case "control":
            return hosts.ready > 0
        case "politeness":
            left_alone = sum(_left_alone(hosts))  # of few hosts, some are ready by chance
            return _RARE * hosts.ready < left_alone or hosts.ready <= min(_FEW, left_alone)
    return limit == "none" and hosts.ready > 0


def _waits_for_callbacks(now: Snapshot) -> bool:
    """Whether callbacks hold as many pages as half of the connections, or nothing else is at work."""
    work, held = now.connections, now.rate.callbacks or 0.0 if now.rate is not None else 0.0
    return _is_alone(now) or (work is not None and 2 * held > work.limit)


def _is_alone(now: Snapshot) -> bool:
    """Whether nothing but callbacks is at work."""
    work, rate, hosts = now.connections, now.rate, now.hosts
    if work is None or not work.callbacks or rate is None or (rate.callbacks or 0.0) < (rate.in_use or 0.0):
        return False
    return not (work.in_use or hosts.ready or hosts.waiting or hosts.gated)


def _load(now: Snapshot) -> tuple[float, float, float]:
    """How late the event loop was on average, the CPU seconds a second, and the part of the time that others had instead."""
    machine = now.machine
    return (machine.loop_lag or 0.0, machine.cpu, machine.starved) if machine is not None else (0.0, 0.0, 0.0)


def _left_alone(hosts: HostCounts) -> tuple[int, int]:
    """How many hosts with pages must be left alone, and how many are at work."""
    return hosts.waiting + hosts.gated + hosts.parked, hosts.in_flight + hosts.dry


# -- what is said of it


def _nothing(now: Snapshot) -> str:
    work, n = now.connections, now.hosts.ready
    ready = f"{n_of(n, 'host')} {'is' if n == 1 else 'are'} ready"
    free = f", and {work.limit - work.in_use:,} of {work.limit:,} connections are free" if work else ""
    return f"Nothing limits the crawl: {ready}{free}."


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
    hosts, growth = now.hosts, now.rate.growth if now.rate is not None else None
    seconds = queue_lasts(now.pages, now.rate, hosts.tail)
    if n := in_tail(seconds, hosts.tail):
        return f": {n_of(n, 'host')} last{'s' * (n == 1)} {roughly(seconds or 0.0)}"
    if seconds is not None:
        return f", and its queue lasts {roughly(seconds)}"
    return ", and its queue grows" if now.pages.queued and growth and growth > STEADY else ""


def _ended(now: Snapshot) -> Verdict | None:
    pages = now.pages
    if now.shards.n > 1 and not now.is_live:
        return _ended_in_shards(now)
    if not pages.queued:
        return _none_queued(now)
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


def _none_queued(now: Snapshot) -> Verdict:
    if now.is_live and now.store.is_behind:  # until the commit has landed nobody knows
        return Verdict("disk", _disk(now))
    if now.is_live and not now.pages.known:
        return Verdict("none", "No page is queued yet.", "Starting: no page is queued yet.")
    if now.revisit_at:
        text = f"Nothing is queued: while the crawl runs, pages may be due from {time_of(now.revisit_at)} on (AOPIC_RECRAWL)."
        return Verdict("pause", text, "Nothing is queued until a page is due.")
    return Verdict("done", f"Done: nothing is queued. {AGAIN}", "Done: nothing is queued.")


def _stopped(now: Snapshot) -> Verdict:
    """Why the last run ended, what waits, and how to go on."""
    wait = _waiting(now)
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


def _waiting(now: Snapshot) -> str:
    return f"{n_of(now.pages.queued, 'page')} wait{'s' * (now.pages.queued == 1)}"


AGAIN = "To visit its pages again: the same command with --again."
"""What can be done with a job in which nothing is queued."""


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
    "aopic_stopped": "an operator stopped it",
    "aopic_storage": "its store failed",
    "aopic_stranded": "nothing leads to the rest",
    "aopic_unreachable": "hosts do not answer",
    "aopic_unreadable": "some requests cannot be read",
    "aopic_waiting": "hosts must be left alone",
    "aopic_workers": "a worker failed",
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


def _paused(now: Snapshot) -> Verdict | None:
    since = now.control.paused_since
    if not since:
        return None
    return Verdict(
        "paused",
        f"Paused by an operator {max(now.at - since, 0.0):,.0f} s ago: 'scrapy aopic control JOBDIR resume' lets it go on.",
        "An operator has paused this crawl.",
    )


def _pause(now: Snapshot) -> Verdict | None:
    seconds = now.not_before - now.at
    text = f"Waiting {seconds:.0f} s after a crash."
    return Verdict("pause", text, text) if seconds > 0 else None


def _network(now: Snapshot) -> Verdict | None:
    rate, hosts = now.rate, now.hosts
    n_down = hosts.waits.get("down", 0)
    n, down = 0, 0
    if rate is not None and rate.transfers is not None and rate.down is not None:
        n, down = round(rate.transfers * rate.seconds), round(rate.down * rate.seconds)
    if down >= (_FEW if 2 * n_down >= hosts.waiting else _MANY) and down > _MOST * n:
        return Verdict(
            "network",
            f"The network is the bottleneck: {down:,} of the last {n:,} transfers got no response, or a refusal. "
            "Is there a network, and is the proxy in order?",
        )
    work, past = now.connections, now.transfers
    # The end of a transfer waits for the event loop, several times over.
    if work is not None and work.in_use >= _FEW and past.quiet >= _QUIET + 5 * _load(now)[0] and past.seconds:
        # As many would have ended if they took as long as those so far. (Some began later: it is an upper bound.)
        due = work.in_use * past.quiet * past.n / past.seconds
        if due >= _DUE:
            return Verdict(
                "network",
                f"The network is the bottleneck: none of {work.in_use:,} transfers under way has ended for {past.quiet:.0f} s. "
                "Is there a network, and is the proxy in order?",
            )
    is_idle = now.connections is None or not now.connections.in_use
    if n_down and n_down == hosts.waiting and not hosts.ready and not hosts.shelved and is_idle:
        wait = min((row.wait for row in now.waiting), default=0.0)
        return Verdict(
            "network",
            f"Nothing answers: {n_of(n_down, 'host')} with pages did not respond. Next try in {wait:.0f} s.",
            f"Nothing answers: {n_of(n_down, 'host')} did not respond.",
        )
    return None


def _control(now: Snapshot) -> str:
    work, asked, rate = now.connections, now.control, now.rate
    is_slow = asked.rate and rate is not None and _asked_for(rate) >= _FROM["control"] * asked.rate
    is_few = work is not None and 0 < asked.connections < work.limit and not is_slow
    most = n_of(asked.connections, "transfer") + " at once" if is_few else f"{asked.rate:g} pages a second"
    return (
        f"An operator's limit holds: at most {most}, and {n_of(now.hosts.ready, 'host')} could be requested. "
        "'scrapy aopic control JOBDIR' changes that."
    )


def _disk(now: Snapshot) -> str:
    store, behind = now.store, now.rate.behind or 0.0 if now.rate is not None else 0.0
    waits = (
        f"the last commit that landed is {store.commit_age or 0:.1f} s old, and no page is requested until the next one has landed"
        if store.is_behind
        else f"{100 * behind:.0f} % of the last seconds no page was requested, as a commit had not landed"
    )
    return f"The disk is the bottleneck: {waits}."


def _machine(now: Snapshot) -> str:
    late, cpu, starved = _load(now)
    work, ready = now.connections, now.hosts.ready
    others = starved >= _STARVED
    uses = f"the process uses {cpu:.2f} of a core"
    uses += f" and waits for one {100 * starved:.0f} % of the time, as others use it" * others
    behind = f", and the event loop is {late:.2f} s late" * (late >= _LATE)
    if work is not None and work.callbacks > work.limit / 2:
        behind = f", and {n_of(work.callbacks, 'page')} wait for their callbacks, items or links"
    help_ = f"{'A less busy machine' if others else 'Less work in callbacks'} would help."
    if ready and cpu + starved < _BUSY and not behind:
        help_ = f"It does not get to {n_of(ready, 'host')} that could be requested: is the engine paused?"
    return f"This machine is the bottleneck: {uses}{behind}. {help_}"


def _spider(now: Snapshot) -> str:
    late, cpu, _ = _load(now)
    n = now.connections.callbacks if now.connections is not None else 0
    if late >= _LATE:
        return (
            f"The spider is the bottleneck: callbacks or pipelines block the event loop, which is {late:.2f} s late while "
            f"the process uses {cpu:.2f} of a core. Do they wait for something without 'await', as time.sleep() does?"
        )
    return (
        f"The spider is the bottleneck: {n_of(n, 'page')} wait{'s' * (n == 1)} for callbacks, items or links."
    )


def _connections(now: Snapshot) -> str:
    work, n = now.connections, now.hosts.ready + now.hosts.gated
    in_use, limit = (work.in_use, work.limit) if work is not None else (0, 0)
    busy = f"all {limit:,}" if in_use >= limit else f"{in_use:,} of {limit:,}"
    return (
        f"Connections are the bottleneck: {busy} are busy, and {n_of(n, 'more host')} wait{'s' * (n == 1)} for one. "
        "Raise CONCURRENT_REQUESTS."
    )


def _politeness(now: Snapshot) -> str:
    hosts = now.hosts
    left_alone, busy = _left_alone(hosts)
    have = left_alone + busy + hosts.shelved + hosts.late + hosts.locating + hosts.dead
    few = f" Only {have:,} of {hosts.known:,} known hosts have pages." if _RARE * have <= hosts.known else ""
    return (
        f"Politeness is the limit: {_who_waits(hosts, left_alone)}.{few} "
        f"More hosts would help{'; shorter gaps only if the hosts are yours' if hosts.waits.get('gap') else ''}."
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

_SENTENCES: dict[Limit, Callable[[Snapshot], str]] = {
    "control": _control,
    "machine": _machine,
    "disk": _disk,
    "spider": _spider,
    "connections": _connections,
    "politeness": _politeness,
    "none": _nothing,
}
"""What is said of each limit that is found by comparing."""

"""The progress line, and numbers, durations and sizes as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scrapy_aopic.core.focus.calibration import wilson

if TYPE_CHECKING:
    from scrapy_aopic.core.revisits.rounds import Round

    from .snapshot import Snapshot


def summary(now: Snapshot) -> str:
    """The progress line: how far the crawl is, and what limits it."""
    pages, hosts, rate = now.pages, now.hosts, now.rate
    parts = [fetched(now)]
    if rate is not None:
        parts[0] += f" ({rate.pages * rate.seconds:+,.0f} in {rate.seconds:.0f} s, {rate.pages:,.1f}/s)"
    visits = now.visits
    if visits.failed:
        parts.append(f"{100 * visits.failed / visits.all:.0f} % failed")
    if visits.gone:
        parts.append(f"{100 * visits.gone / visits.all:.0f} % forbidden or gone")
    parts.append(
        f"{pages.queued:,} queued, {n_of(hosts.known, 'host')}: {hosts.ready:,} ready, {hosts.waiting:,} waiting"
    )
    if hosts.dead:
        parts[-1] += f", {hosts.dead:,} dead"
    if now.topic is not None:
        parts.append(
            f"{100 * (now.topic.lately or 0.0):.0f} % relevant lately, {100 * now.topic.harvest:.0f} % of all, {checked(now.topic.labels)}"
        )
    parts.append(now.verdict.sentence)
    if now.forecast.seconds:
        parts.append(f"ends in {duration(now.forecast.seconds)}: {now.forecast.because}")
    return " · ".join(parts)


def checked(labels: int, job: str = "") -> str:
    """By how many *labels* relevance is known, or that it is unchecked, and how to check it for *job*, as a shell has it."""
    if labels:
        return f"by {n_of(labels, 'label')}"
    return f"unchecked: scrapy aopic topic label {job}" if job else "unchecked"


def relevant_of(part: float, n: int) -> str:
    """*part* of the last *n* pages, with the interval that this is of all that are like them."""
    low, high = wilson(round(part * n), n)
    return f"{100 * part:.1f} % of the last {n_of(n, 'page')} (95 %: {100 * low:.1f} to {100 * high:.1f} %)"


def round_sentence(done: Round) -> str:
    """What a round of revisits has found; number 0 is for visits in no round."""
    found = Counter(done.found)
    back = f"{found['back']:,} back, " if found["back"] else ""
    return (
        f"{f'Round {done.number}' if done.number else 'Visits'}: {found['changed']:,} of {n_of(done.known, 'known page')} "
        f"changed, {found['gone']:,} gone, {back}{found['moved']:,} moved, {found['failed']:,} failed; {found['new']:,} new"
        f"{'' if done.ended or not done.number else ' (not over)'}."
    )


def short_summary(now: Snapshot, width: int) -> str:
    """The same in as few words as a line of a terminal has room for, of a crawl that runs or of the store of one.

    Args:
        width: Characters of a line; what matters least is left out first.
    """
    pages, hosts, rate = now.pages, now.hosts, now.rate
    visits = now.visits
    limit = now.verdict.limit if now.is_live else now.limit
    growth = rate.growth if rate is not None else None
    queued = f"{pages.queued:,} queued"
    parts = [
        fetched(now),
        f"{rate.pages:,.1f}/s" if rate is not None else "",
        f"limited by {LIMITED_BY[limit]}" if limit in LIMITED_BY else "",
        f"{queued}, {'growing' if growth > 0 else 'shrinking'}" if growth else queued,
        f"{100 * visits.failed / visits.all:.1f} % failed" if visits.failed else "",
        f"{hosts.ready:,} of {n_of(hosts.known, 'host')} ready",
        duration(now.at - now.started_at) if now.started_at is not None else "",
    ]
    parts = [part for part in parts if part]
    while len(line := " · ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return line


def fetched(now: Snapshot) -> str:
    """How many pages were fetched, and in how many visits if these are more."""
    done, visits = now.pages.visited + now.pages.failed, now.visits.all
    return n_of(done, "page") + (f" in {visits:,} visits" if visits > done else "")


LIMITED_BY = {
    "politeness": "politeness",
    "connections": "connections",
    "spider": "the spider",
    "disk": "the disk",
    "machine": "the machine",
    "network": "the network",
    "control": "an operator",
}
"""What limits a crawl, in a sentence, by the word for it."""


def n_of(number: int, name: str) -> str:
    """*number* with its noun."""
    return f"{number:,} {name}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """*seconds* in words: the two largest units."""
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    left = round(seconds)
    words: list[str] = []
    for size, unit in units:
        n, left = divmod(left, size)
        if n or words:
            words.append(f"{n} {unit}")
        if len(words) == 2:
            break
    return " ".join(word for word in words if not word.startswith("0 ")) or "0 s"


def roughly(seconds: float) -> str:
    """*seconds* in words: one unit, in the ranges that the dashboard has for each, so that the two never disagree."""
    for size_, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_:
            return f"{seconds / size_:,.0f} {unit}"
    return f"{seconds:.0f} s"


def size(n: float) -> str:
    """*n* bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:,.0f} {unit}" if unit == "B" or n >= 10 else f"{n:,.1f} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"

"""The log of a :class:`~demo_web.server.Server`, and the judgement of how politely it was crawled."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["Audit", "Entry", "audit", "read_log"]

N_VIOLATIONS_SHOWN = 10
"""Violations that an audit puts into words; it counts them all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request in the log, by rule 1 of the server; ``status`` is 0 if no whole answer was sent.

    ``start`` and ``end`` are seconds: monotonic in memory, since 1970 in the file. ``in_flight`` counts
    the requests to the same host under way when this one started, itself included.
    """

    start: float
    end: float
    host: str
    target: str
    status: int
    in_flight: int


def read_log(path: Path) -> list[Entry]:
    """Read the file of a :class:`~demo_web.server.Server`; a last line that was torn by a kill is left out.

    Raises:
        ValueError: If a line is not one of a log.
    """
    entries: list[Entry] = []
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                break
            try:
                start, end, host, target, status, in_flight = line[:-1].split("\t")
                entries.append(Entry(float(start), float(end), host, target, int(status), int(in_flight)))
            except ValueError as error:
                raise ValueError(f"{path}, line {number} is not a line of a server log: {line!r}") from error
    return entries


@dataclass(frozen=True, slots=True)
class Audit:
    """How politely the hosts in a log were asked; every host, or what *key* says, is judged for itself."""

    n_requests: int
    n_hosts: int
    n_overlaps: int  # pairs of requests to one host under way at the same time
    n_short_gaps: int
    smallest_ratio: float  # of gap to duration of the request before it; infinite if there was no gap
    smallest_share: float  # of gap to what was due; infinite if nothing was
    violations: tuple[str, ...]  # the first ones, by their start

    @property
    def is_polite(self) -> bool:
        """Whether there is no overlap and no gap that is too short."""
        return not self.n_overlaps and not self.n_short_gaps


def audit(
    entries: Iterable[Entry],
    factor: float,
    floor: float = 0.0,
    cap: float = math.inf,
    *,
    tolerance: float = 0.0,
    key: Callable[[Entry], str] = attrgetter("host"),
    rest: Callable[[Entry], float] = lambda _: 0.0,
) -> Audit:
    """Judge a log by the rule "after a request that took d seconds, wait factor x d, at least and at most ...".

    A gap lies between the start of a request and the latest end of those before it. A request that starts
    before that end is an overlap and has no gap.

    Args:
        entries: The log, in any order, from memory or from :func:`read_log`.
        factor: How many times the duration of the request before a gap must last.
        floor: Shortest gap, whatever the duration (seconds).
        cap: Longest gap that is ever due (seconds).
        tolerance: What a gap may lack, for the coarseness of timers and clocks (seconds).
        key: What counts as one host.
        rest: Seconds due after a request whatever its duration, because its answer asked for them.
    """
    by_host: dict[str, list[Entry]] = {}
    for entry in entries:
        by_host.setdefault(key(entry), []).append(entry)
    n_overlaps = n_short_gaps = 0
    smallest_ratio = smallest_share = math.inf
    violations: list[tuple[float, str]] = []
    for host, log in by_host.items():
        log.sort(key=lambda entry: (entry.start, entry.end))
        last = log[0]  # of those before, the one that ended last
        under_way = [last.end]  # heap of the ends that lie ahead
        for entry in islice(log, 1, None):
            while under_way and under_way[0] <= entry.start:
                heapq.heappop(under_way)
            gap = entry.start - last.end
            duration = last.end - last.start
            if under_way:
                n_overlaps += len(under_way)
                text = f"{host}: {entry.target} starts {-gap:.3f} s before the end of {last.target}"
                violations.append((entry.start, text))
            else:
                if duration > 0:
                    smallest_ratio = min(smallest_ratio, gap / duration)
                due = max(min(max(factor * duration, floor), cap), rest(last))
                if due > 0:
                    smallest_share = min(smallest_share, gap / due)
                if gap < due - tolerance:
                    n_short_gaps += 1
                    text = (
                        f"{host}: {entry.target} starts {gap:.3f} s after the end of {last.target}, "
                        f"which took {duration:.3f} s; {due:.3f} s were due"
                    )
                    violations.append((entry.start, text))
            heapq.heappush(under_way, entry.end)
            if entry.end >= last.end:
                last = entry
    violations.sort()
    return Audit(
        n_requests=sum(map(len, by_host.values())),
        n_hosts=len(by_host),
        n_overlaps=n_overlaps,
        n_short_gaps=n_short_gaps,
        smallest_ratio=smallest_ratio,
        smallest_share=smallest_share,
        violations=tuple(text for _, text in violations[:N_VIOLATIONS_SHOWN]),
    )

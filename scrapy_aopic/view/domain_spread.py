"""How the fetches of a job are spread over registered domains, and hosts that may be traps."""

from __future__ import annotations

import heapq
from itertools import chain
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.layout import BEHIND, LATE
from scrapy_aopic.place.file_formats import CHUNK
from scrapy_aopic.web.suffixes import registered_domain

from .queries import each_host, each_site

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.core.records import HostRecord

    from .job_view import View

_TRAPS = 10
"""Hosts that are listed as possible traps."""

_FETCHED = 20
"""Pages that must have been fetched of a host before the number that wait for each of them says anything."""

_MANY = 5.0
"""Queued pages for each fetched one from which a host is listed: several times what a site has when half of it is fetched."""


def top_domains(view: View, n: int, *, has_importance: bool = False) -> dict[str, Any]:
    """How fetches are spread over domains.

    Looks at all hosts, and with *has_importance* at all pages.

    Returns:
        ``domains``: the *n* registered domains of which most pages were fetched, most fetched first, and one row, without a
        name, for all others: ``domain``, ``hosts``, ``visited`` (or failed), ``queued`` and ``importance``, that of their
        pages together, which is ``None`` unless *has_importance*. ``traps``: hosts with the most queued pages for each
        fetched one: ``host``, ``visited``, ``queued`` and ``is_late``, whether their domain is over its budget.
    """
    found: dict[str, list[int]] = {}
    crowded: list[tuple[float, str, HostRecord]] = []
    for host in each_host(view):
        sums = found.setdefault(registered_domain(host.name), [0, 0, 0])
        sums[0] += 1
        sums[1] += host.visited
        sums[2] += host.queued
        if host.visited >= _FETCHED and host.queued >= _MANY * host.visited:
            heapq.heappush(crowded, (host.queued / host.visited, host.name, host))
            if len(crowded) > _TRAPS:
                heapq.heappop(crowded)
    importance = _importance(view) if has_importance else None
    sorted_ = sorted(found.items(), key=lambda pair: (-pair[1][1], -pair[1][2], pair[0]))
    rows = [
        _row(name, sums, importance.get(name, 0.0) if importance is not None else None)
        for name, sums in sorted_[:n]
    ]
    if len(sorted_) > n:
        rest = dict(sorted_[n:])
        left = sum(importance.get(name, 0.0) for name in rest) if importance is not None else None
        rows.append(_row("", [sum(column) for column in zip(*rest.values(), strict=True)], left))
    return {"domains": rows, "traps": [_trap(host) for _, _, host in sorted(crowded, reverse=True)]}


def _importance(view: View) -> dict[str, float]:
    """The importance of all pages of each registered domain added up, as a part of that of all pages."""
    found: dict[str, float] = {}
    for row in chain.from_iterable(each_site(view, CHUNK)):
        domain = registered_domain(row.host)
        found[domain] = found.get(domain, 0.0) + row.importance
    return found


def _row(name: str, sums: Iterable[int], importance: float | None) -> dict[str, Any]:
    hosts, visited, queued = sums
    return {"domain": name, "hosts": hosts, "visited": visited, "queued": queued, "importance": importance}


def _trap(host: HostRecord) -> dict[str, Any]:
    is_late = host.row[:2] in (LATE, BEHIND)
    return {"host": host.name, "visited": host.visited, "queued": host.queued, "is_late": is_late}

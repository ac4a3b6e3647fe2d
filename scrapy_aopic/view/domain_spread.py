"""How the fetches of a job are spread over registered domains."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from scrapy_aopic.place.file_formats import CHUNK
from scrapy_aopic.web.suffixes import registered_domain

from .queries import each_site, hosts_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .job_view import View


def top_domains(view: View, n: int, *, has_importance: bool = False) -> dict[str, Any]:
    """How fetches are spread over domains.

    Looks at all hosts, and with *has_importance* at all pages.

    Returns:
        ``domains``: the *n* registered domains of which most pages were fetched, most fetched first, and one row, without a
        name, for all others: ``domain``, ``hosts``, ``visited`` (or failed), ``queued`` and ``importance``, that of their
        pages together, which is ``None`` unless *has_importance*.
    """
    found: dict[str, list[int]] = {}
    for host in hosts_in(view):
        sums = found.setdefault(registered_domain(host.name), [0, 0, 0])
        sums[0] += 1
        sums[1] += host.visited
        sums[2] += host.queued
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
    return {"domains": rows}


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

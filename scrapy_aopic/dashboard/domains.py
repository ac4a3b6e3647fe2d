"""How the fetches of a job are spread over registered domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.layout import Family
from scrapy_aopic.core.records import unpack_host
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.core.ports import Store


def top_domains(stores: Iterable[Store], n: int) -> list[dict[str, Any]]:
    """The *n* registered domains of which most pages were fetched, and one row, without a name, for all others.

    Looks at all hosts of *stores*, which are those of one job.

    Returns:
        Rows of ``domain``, ``hosts``, ``visited`` (or failed) and ``queued``, most fetched first.
    """
    found: dict[str, list[int]] = {}
    for store in stores:
        for _, data in store.scan(Family.HOSTS):
            host = unpack_host(data)
            sums = found.setdefault(registered_domain(host.name), [0, 0, 0])
            sums[0] += 1
            sums[1] += host.visited
            sums[2] += host.queued
    sorted_ = sorted(found.items(), key=lambda pair: (-pair[1][1], -pair[1][2], pair[0]))
    rows = [_row(name, sums) for name, sums in sorted_[:n]]
    if len(sorted_) > n:
        rest = [sums for _, sums in sorted_[n:]]
        rows.append(_row("", [sum(column) for column in zip(*rest, strict=True)]))
    return rows


def _row(name: str, sums: list[int]) -> dict[str, Any]:
    return {"domain": name, "hosts": sums[0], "visited": sums[1], "queued": sums[2]}

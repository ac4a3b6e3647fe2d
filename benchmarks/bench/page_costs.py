"""Page: what a page and its links cost, each as a slope, and in whose code the time of a page goes.

A page more is the difference of two crawls of which one has four times as many pages, so that starting costs nothing; a link
more is the difference of pages that have twenty more of them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from measure import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from measure import Runner


class Pages(NamedTuple):
    """Pages that are crawled: links of each, and how many of them are new."""

    links: int
    new: int
    has_queries: bool = False


FEW, MORE_KNOWN, MORE_NEW = Pages(24, 4), Pages(44, 4), Pages(44, 24)
FEW_QUERIES, MORE_QUERIES = Pages(24, 4, True), Pages(44, 24, True)

_HOSTS = 100
_TIMES = 4
"""Times as many pages the longer one of two crawls has."""

LINKS = {
    "a link to a known page": (FEW, MORE_KNOWN),
    "a link to a new page": (FEW, MORE_NEW),
    "a link to a new page, with a query": (FEW_QUERIES, MORE_QUERIES),
}
"""What twenty more links are, with pages that have them not and pages that have."""

CRAWLS = {"addon": ("addon-links-alike", "addon-download"), "stock": ("stock", "stock-download")}
"""Kinds of :data:`crawls.KINDS`: following links, and with a fixed list of URLs."""

LAYERS = {
    "web: texts, links, URLs": {"scrapy_aopic/web"},
    "session: what becomes of a page and its links": {"scrapy_aopic/session"},
    "core: cash, queues, hosts": {"scrapy_aopic/core"},
    "job, storage: commits, reads": {"scrapy_aopic/job", "scrapy_aopic/storage"},
    "_engine: downloads, Scrapy's private names": {"scrapy_aopic/_engine"},
    "middlewares and the rest of this package": {
        "scrapy_aopic",
        "scrapy_aopic/downloadermiddlewares",
        "scrapy_aopic/view",
    },
    "Scrapy": {"scrapy"},
    "Twisted, asyncio": {"twisted", "asyncio"},
    "the spider": {"bench"},
}
"""By package; what is none of these is of other libraries."""


def slopes(runs: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> list[float]:
    """Milliseconds that a page more costs in each pair of a shorter and a longer crawl."""
    return [
        (many["ms"] * many["pages"] - few["ms"] * few["pages"]) / max(many["pages"] - few["pages"], 1)
        for few, many in runs
    ]


def part(run: Runner) -> None:
    """Pages without links and with them, beside Scrapy; and layers."""
    costs = {name: _costs(run, *kinds) for name, kinds in CRAWLS.items()}
    ours, peers = costs["addon"], costs["stock"]
    rows = {
        "a page without links, from a list of URLs": None,
        f"a page with {FEW.links} links, {FEW.new} of them new": FEW,
        f"a page with {MORE_KNOWN.links} links, {MORE_KNOWN.new} of them new": MORE_KNOWN,
        f"a page with {MORE_QUERIES.links} links with queries, {MORE_QUERIES.new} of them new": MORE_QUERIES,
    }
    for name, pages in rows.items():
        run.add_paired("page", name, "ms CPU", ours[pages], peers[pages])
    for name, (few, more) in LINKS.items():
        each = [
            [(b - a) / (more.links - few.links) * 1000 for a, b in zip(cost[few], cost[more], strict=True)]
            for cost in (ours, peers)
        ]
        run.add_paired("page", name, "us CPU", *each)
    table = [
        "| ms CPU/page | in Python | in C | in all | Scrapy in memory: in Python | in C | in all |",
        f"|---|{'---:|' * 6}",
    ]
    columns = [_layers(run, kind) for kind, _ in CRAWLS.values()]
    for layer in columns[0]:
        cells = [number(value) if value else "" for column in columns for value in column[layer]]
        table.append(f"| {layer} | {' | '.join(cells)} |")
    run.note("\n" + "\n".join(table))


def _costs(run: Runner, kind: str, listed: str) -> dict[Pages | None, list[float]]:
    """Milliseconds of a page in each round, by its links; ``None`` for none."""
    webs: list[Pages | None] = [None, *dict.fromkeys(each for pair in LINKS.values() for each in pair)]
    tasks: list[tuple[str, dict[str, Any]]] = []
    for web in webs:
        what: dict[str, Any] = (
            {"links": 0, "kind": listed} if web is None else {**web._asdict(), "kind": kind}
        )
        tasks += (
            ("crawls:crawl", {**what, "hosts": _HOSTS, "pages": pages})
            for pages in (run.options.pages // _TIMES, run.options.pages)
        )
    found = run.rounds(*tasks)
    return {
        web: slopes(zip(few, many, strict=True))
        for web, few, many in zip(webs, found[::2], found[1::2], strict=True)
    }


def _layers(run: Runner, kind: str) -> dict[str, tuple[float, float, float]]:
    """Milliseconds of a page by layer, in Python, in C that it calls, and in all; the last row is measured, not added up."""
    what = {"hosts": _HOSTS, "pages": run.options.pages, "kind": kind, **MORE_KNOWN._asdict()}
    found = run.once("crawls:crawl", **what, profiles=True)
    of: Counter[tuple[str, bool]] = Counter()
    for package, is_in_c, n in found["samples"]:
        layer = next((name for name, packages in LAYERS.items() if package in packages), "other libraries")
        of[layer, is_in_c] += n
    each = found["own_ms"] / of.total()
    rows = {}
    for layer in (*LAYERS, "other libraries"):
        python, c = of[layer, False] * each, of[layer, True] * each
        rows[layer] = python, c, python + c
    rows["other threads: commits, RocksDB"] = 0.0, 0.0, found["ms"] - found["own_ms"]
    rows["all"] = 0.0, 0.0, found["ms"]
    run.note(
        f"{kind}: {of.total():,} samples, one in {each * found['pages'] / 1000:.2g} s of the main thread's CPU time."
    )
    return rows

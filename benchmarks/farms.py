"""What farms of domains take of a crawl beside honest sites.

    python benchmarks farms [--sizes 400] [--kinds chain tree mesh] [--on domains sites] [--entries 1 3] [--fetches 1000]

A farm of so many domains is crawled beside twenty honest sites with forty pages each, at first without politeness and then with
it, on a virtual clock: the sites are the seeds, or all of them and the farm are linked from one page of a directory, which is the
seed or is linked from it. scrapy_aopic/lab/planted.py describes the kinds of farms. The table has the part of the fetches that the
farm took, of all and of those made while an honest site might be asked.

Each of these crawls ends with an audit of the whole store, and an account of every page. What endless traps take of a link graph is
measured by ``scrapy aopic simulate --trap``.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import options
from options import Among
from tqdm import tqdm

from scrapy_aopic.lab.comparison import policy_of
from scrapy_aopic.lab.graphs import Graph
from scrapy_aopic.lab.planted import CHILDREN, Planted, PlantedTrap
from scrapy_aopic.lab.simulation import Simulation

SITES, SITE_PAGES = 20, 40
FETCHES = 1000
"""Fetches of a crawl, unless another number is given."""

STARTS = ("seeds", "directory", "behind a link")
"""The sites are seeds; or a directory that links to them is; or one that is linked from the seed."""


def honest_web(start: str) -> tuple[Graph, list[int], int]:
    """Sites that link to each other now and then; returns also the seeds, and the page that links to a farm."""
    links: list[list[int]] = []
    hosts: list[str] = []
    for page in range(SITES * SITE_PAGES):
        site, number = divmod(page, SITE_PAGES)
        home = site * SITE_PAGES
        own = [home + each for each in (2 * number + 1, 2 * number + 2) if each < SITE_PAGES]
        other = (site * 7 + number + 1) % SITES * SITE_PAGES
        links.append([home, *own, *([other] if number % 10 == 5 else [])])
        hosts.append(f"www.honest{site}.org")
    homes = list(range(0, SITES * SITE_PAGES, SITE_PAGES))
    if start == "seeds":
        seeds, entry = homes, SITE_PAGES
    else:
        seeds, entry = [len(links)], len(links)
        links.append(homes)
        hosts.append("www.directory.net")
        if start == "behind a link":
            seeds = [len(links)]
            links.append([entry])
            hosts.append("www.portal.net")
    indptr = np.cumsum([0, *map(len, links)])
    return (
        Graph(start, indptr, np.concatenate([np.asarray(each, np.int64) for each in links]), hosts),
        seeds,
        entry,
    )


class Beside(NamedTuple):
    """A crawl of a farm beside honest sites.

    Attributes:
        start: One of :data:`STARTS`.
        kind: One of :data:`CHILDREN`.
        hosts: ``"domains"`` or ``"sites"``.
        entries: Pages that link to the farm.
        size: Domains of the farm.
        is_polite: Whether hosts are left alone for ten times the transfer of 20 ms, with 16 connections.
    """

    start: str
    kind: str
    hosts: str
    entries: int
    size: int
    is_polite: bool

    def __str__(self) -> str:
        gaps = "gaps" if self.is_polite else "none"
        return f"{self.start} | {self.kind} | {self.hosts} | {self.entries} | {self.size:,} | {gaps}"


def crawl_beside(case: Beside, fetches: int) -> tuple[float, float, list[str]]:
    """Crawl; returns the part of all fetches, that of those made while an honest site might be asked, and faults."""
    graph, seeds, entry = honest_web(case.start)
    n = len(graph)
    entries = [(entry + step * SITE_PAGES) % n for step in range(case.entries)]
    planted = Planted(graph, PlantedTrap(case.kind, case.hosts, case.entries), entries, case.size)
    policy = policy_of({}, "aopic")
    transfer, connections = ((lambda page: 0.02), 16) if case.is_polite else (None, 1)
    simulation = Simulation(
        planted.out_links, planted.host_of, seeds, fetches, policy, transfer=transfer, connections=connections
    )
    visits = list(simulation.run())
    found = [
        [0.0] if page in seeds else [] for page in range(n)
    ]  # instants at which each honest page was found
    begins = [visit.begin if case.is_polite else float(number) for number, visit in enumerate(visits)]
    for number, visit in enumerate(visits):
        for page in planted.out_links(visit.page) if visit.page < n else ():
            if page < n and not found[page]:
                found[page].append(visit.end if case.is_polite else number + 1.0)
    known: dict[str, list[float]] = {}
    for page, instants in enumerate(found):
        known.setdefault(graph.hosts[page], []).extend(instants)
    fetches_of = [
        Fetch(begins[number], visit.end, graph.hosts[visit.page] if visit.page < n else "")
        for number, visit in enumerate(visits)
    ]
    gap = policy.politeness.gap if case.is_polite else None
    return *shares(fetches_of, known, gap), simulation.violations()


class Fetch(NamedTuple):
    """A fetch: when, and of which honest site; ``""`` for one of the farm."""

    begin: float
    end: float
    site: str


def shares(
    fetches: list[Fetch], known: dict[str, list[float]], gap: Callable[[float], float] | None
) -> tuple[float, float]:
    """The part of *fetches* that the farm took, of all and of those made while an honest site might be asked.

    Args:
        known: Instants at which the pages of each honest site were found.
        gap: Seconds for which a site is left alone after a fetch that took so long; ``None`` if a fetch takes no time.
    """
    for instants in known.values():
        instants.sort()
    begun, free_at = dict.fromkeys(known, 0), dict.fromkeys(known, 0.0)
    taken = contested = taken_contested = 0
    # Of those that begin at one instant, the sites come first: what they had ready was asked for.
    for begin, end, site in sorted(fetches, key=lambda fetch: (fetch.begin, not fetch.site)):
        is_farm = not site
        may_ask = not is_farm or any(
            free_at[host] <= begin and bisect_right(known[host], begin) > begun[host] for host in known
        )
        if not is_farm:
            begun[site] += 1
            if gap is not None:
                free_at[site] = end + gap(end - begin)
        taken += is_farm
        contested += may_ask
        taken_contested += is_farm and may_ask
    return taken / len(fetches), taken_contested / max(contested, 1)


def main() -> int:
    """Crawl farms beside honest sites, and print a table; 1 if something did not hold."""
    args = options.read(
        __doc__, sizes=[400], kinds=Among(["chain", "tree", "mesh"], CHILDREN), entries=[1, 3], fetches=FETCHES,
        on=Among(["domains", "sites"], ("domains", "sites")),
    )  # fmt: skip
    cases = [
        Beside(*case)
        for case in product(STARTS, args.kinds, args.on, args.entries, args.sizes, (False, True))
    ]
    violations: list[str] = []
    print("| start | farm | of | entries | domains | gaps | fetches | while honest sites might be asked |")
    print("|---|---|---|---|---|---|---|---|")
    for case in tqdm(cases, unit="crawls", disable=None):
        taken, contested, found = crawl_beside(case, args.fetches)
        print(f"| {case} | {taken:.3f} | {contested:.3f} |")
        violations += found
    print(*violations, sep="\n", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

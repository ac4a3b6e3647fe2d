"""What endless traps and farms of domains take of a crawl, and what that costs.

    python benchmarks traps GRAPH.npz [--hosts FILE.npy | --urls FILE] [--seeds 20] [--sets 10] [--rng 1]
        [--entries 1 3] [--orders aopic opic ...] [--kinds chain tree ...] [--on ...] [--directories one nested ...]
        [--json FILE]
    python benchmarks traps --beside [--sizes 400 100000] [--fetches 1000] [--orders aopic ...]

Traps have no end; scrapy_aopic/lab/planted.py describes their kinds, and where their pages are.
They are entered from one or from several random pages that the seeds lead to, a farm by another domain from each.

The production ledger and frontier crawl the link graph with and without a trap, for as many fetches as there are real
pages that the seeds lead to. The table has the part of the fetches that the trap took, in the mean over the seed sets
and at most, and what it changed in the mean over the crawl of the PageRank(0.85) of real pages that was gathered, with
95 % intervals over the seed sets (paired). ``no-budget`` is the order aopic with AOPIC_DOMAIN_BUDGET = 0.

With ``--beside``, farms of some sizes are crawled beside twenty honest sites with forty pages each, at first without
politeness and then with it, on a virtual clock: the sites are the seeds, or all of them and the farm are linked from
one page of a directory, which is the seed or is linked from it. The table has the part of the fetches that the farm
took, of all and of those made while an honest site might be asked.

Each of these crawls ends with an audit of the whole store, and an account of every page.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import options
from options import Among
from tqdm import tqdm

from scrapy_aopic.lab.comparison import draw_seed_sets, gather, policy_of
from scrapy_aopic.lab.graphs import Graph, load_graph, pagerank
from scrapy_aopic.lab.planted import CHILDREN, DIRECTORIES, PAGES, Planted, PlantedTrap, plant
from scrapy_aopic.lab.results import half_width
from scrapy_aopic.lab.simulation import Simulation
from scrapy_aopic.lab.url_order import UrlOrder

NO_BUDGET = "no-budget"


class Experiment:
    """Crawls of one graph in several orders, from several sets of seeds, with and without traps.

    Attributes:
        violations: What did not hold at the end of a crawl.
    """

    def __init__(self, graph: Graph, seed_sets: list[list[int]], rng: int) -> None:
        self.graph = graph
        self.seed_sets = seed_sets
        self.violations: list[str] = []
        self._rank = np.append(pagerank(graph.indptr, graph.indices), 0.0)
        self._rng = rng

    def crawl(self, order: str, number: int, trap: PlantedTrap | None) -> tuple[float, float]:
        """Crawl from a set of seeds; returns the part of fetches that the trap took, and the mean of what was gathered."""
        graph, seeds = self.graph, self.seed_sets[number]
        reachable = np.flatnonzero(graph.reachable(seeds))
        out_links: Callable[[int], list[int]] = graph.out_links
        host_of, url_of = graph.host_of, graph.url_of
        if trap is not None:
            planted = plant(graph, trap, seeds, np.random.default_rng([self._rng, number, trap.entries]))
            out_links, host_of, url_of = planted.out_links, planted.host_of, planted.url_of
        settings = {"AOPIC_DOMAIN_BUDGET": 0} if order == NO_BUDGET else {}
        urls = url_of if graph.urls else None
        policy = policy_of(settings, "aopic" if order == NO_BUDGET else order, urls)
        n = len(reachable)
        simulation = Simulation(out_links, host_of, seeds, n, policy)
        if isinstance(policy.order, UrlOrder):
            policy.order.begin(url_of, simulation.pages)
        fetched = np.fromiter((visit.page for visit in simulation.run()), np.int64)
        self.violations += simulation.violations()
        gathered = gather(np.minimum(fetched, len(graph)), self._rank / self._rank[reachable].sum(), n)
        return float((fetched >= len(graph)).sum() / n), float(gathered.mean())

    def run(self, orders: list[str], traps: list[PlantedTrap]) -> Iterator[dict[str, Any]]:
        """All crawls; yields a row of the table for each order without a trap, and then for each trap."""
        sets = range(len(self.seed_sets))
        with tqdm(total=len(orders) * (1 + len(traps)) * len(sets), unit="crawls", disable=None) as bar:

            def crawl(order: str, number: int, trap: PlantedTrap | None) -> tuple[float, float]:
                result = self.crawl(order, number, trap)
                bar.update()
                return result

            for order in orders:
                clean = [crawl(order, number, None)[1] for number in sets]
                yield {"order": order, "trap": None, "taken": [0.0] * len(sets), "mean": clean}
                for trap in traps:
                    runs = [crawl(order, number, trap) for number in sets]
                    taken, mean = map(list, zip(*runs, strict=True))
                    yield {"order": order, "trap": trap._asdict(), "taken": taken, "mean": mean}


# -- beside honest sites


SITES, SITE_PAGES = 20, 40
FETCHES = 1000
"""Fetches of a crawl beside honest sites, unless another number is given."""

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


def crawl_beside(case: Beside, order: str, fetches: int) -> tuple[float, float, list[str]]:
    """Crawl; returns the part of all fetches, that of those made while an honest site might be asked, and faults."""
    graph, seeds, entry = honest_web(case.start)
    n = len(graph)
    entries = [(entry + step * SITE_PAGES) % n for step in range(case.entries)]
    planted = Planted(graph, PlantedTrap(case.kind, case.hosts, case.entries), entries, case.size)
    policy = policy_of(
        {"AOPIC_DOMAIN_BUDGET": 0} if order == NO_BUDGET else {}, "aopic" if order == NO_BUDGET else order
    )
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


def beside(args: Any) -> list[str]:
    """Crawl farms beside honest sites, print a table, and return what did not hold."""
    cases = [
        Beside(*case)
        for case in product(
            STARTS,
            args.kinds,
            [each for each in ("domains", "sites") if each in args.on],
            args.entries,
            args.sizes,
            (False, True),
        )
    ]
    violations: list[str] = []
    print(
        "| order | start | farm | of | entries | domains | gaps | fetches | while honest sites might be asked |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for order, case in tqdm(list(product(args.orders, cases)), unit="crawls", disable=None):
        taken, contested, found = crawl_beside(case, order, args.fetches)
        print(f"| {order} | {case} | {taken:.3f} | {contested:.3f} |")
        violations += found
    return violations


def spread(values: list[float]) -> str:
    """Half of the 95 % interval of the mean."""
    return f" ± {half_width(values):.4f}" if len(values) > 1 else ""


def print_tables(graph: Graph, rows: list[dict[str, Any]], seed_sets: list[list[int]]) -> None:
    print(f"\n{graph.name}: {len(graph):,} pages; {len(seed_sets)} sets of {len(seed_sets[0])} seeds\n")
    print(
        "| order | trap | hosts | entries | part of the fetches | at most | mean gathered, with less without |"
    )
    print("|---|---|---|---|---|---|---|")
    clean: list[float] = []
    for row in rows:
        if row["trap"] is None:
            clean = row["mean"]
            print(f"| {row['order']} | none | | | | | ({np.mean(clean):.4f}{spread(clean)} gathered) |")
            continue
        change = [with_it - without for with_it, without in zip(row["mean"], clean, strict=True)]
        taken = row["taken"]
        print(
            f"| {row['order']} | {PlantedTrap(**row['trap'])} | {np.mean(taken):.4f}{spread(taken)} | {max(taken):.4f} "
            f"| {np.mean(change):+.4f}{spread(change)} |"
        )


def main() -> int:
    args = options.read(
        __doc__, "graph?", Path, hosts=Path, urls=Path, seeds=20, sets=10, rng=1, entries=[1, 3],
        orders=["aopic", "opic", NO_BUDGET], kinds=Among(["chain", "tree", "mesh"], CHILDREN),
        on=Among(list(PAGES), PAGES), directories=Among(["one"], DIRECTORIES), links_back=False, beside=False,
        sizes=[400, 100_000], fetches=FETCHES, json=Path,
    )  # fmt: skip
    if args.beside:
        violations = beside(args)
        print(*violations, sep="\n", file=sys.stderr)
        return 1 if violations else 0
    if args.graph is None:
        raise SystemExit("a graph or --beside is needed")
    graph = load_graph(args.graph, hosts=args.hosts, urls=args.urls)
    seed_sets = list(draw_seed_sets(graph, args.seeds, args.sets, args.rng).values())
    cases = product(args.kinds, args.on, args.entries, args.directories, [args.links_back])
    traps = [PlantedTrap(*each) for each in cases]
    experiment = Experiment(graph, seed_sets, args.rng)
    rows = list(experiment.run(args.orders, traps))
    print_tables(graph, rows, seed_sets)
    if args.json is not None:
        args.json.write_text(json.dumps({"graph": graph.name, "seed_sets": seed_sets, "rows": rows}) + "\n")
    for violation in experiment.violations:
        print(violation, file=sys.stderr)
    return 1 if experiment.violations else 0


if __name__ == "__main__":
    sys.exit(main())

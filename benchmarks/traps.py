"""What endless traps take of a crawl, and what that costs.

    python benchmarks/traps.py GRAPH.npz [--hosts FILE.npy | --urls FILE] [--seeds 20] [--sets 10] [--rng 1]
        [--entries 1 3] [--orders aopic opic ...] [--json FILE]

Traps have no end: each page of a ``chain`` links to one new page, each page of a ``tree`` to ten. All pages of a trap
are on one host, or each is on a sub-host of its own of one registered domain. The first is linked from one or from
several random pages that the seeds lead to.

The production ledger and frontier crawl the link graph with and without a trap, for as many fetches as there are real
pages that the seeds lead to. The table has the part of the fetches that the trap took, in the mean over the seed sets
and at most, and what it changed in the mean over the crawl of the PageRank(0.85) of real pages that was gathered, with
95 % intervals over the seed sets (paired). ``no-budget`` is the order aopic with AOPIC_DOMAIN_BUDGET = 0.

Each crawl ends with an audit of the whole store, and an account of every page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from scrapy_aopic.comparison import draw_seed_sets, gather, half_width, policy_of
from scrapy_aopic.simulation import Graph, Simulation, load_graph, pagerank

CHILDREN = {"chain": 1, "tree": 10}
HOSTS = ("one host", "sub-hosts")
DOMAIN = "endless-trap.com"
NO_BUDGET = "no-budget"


class Trap(NamedTuple):
    """A trap to plant.

    Attributes:
        kind: One of :data:`CHILDREN`.
        hosts: One of :data:`HOSTS`.
        entries: Real pages that link to it.
    """

    kind: str
    hosts: str
    entries: int

    def __str__(self) -> str:
        return f"{self.kind} | {self.hosts} | {self.entries}"


class Planted:
    """*graph* with *trap*, whose first page, the number of real pages, is linked from the pages *entries*."""

    def __init__(self, graph: Graph, trap: Trap, entries: frozenset[int]) -> None:
        self._graph = graph
        self._trap = trap
        self._entries = entries
        self._next = len(graph) + 1

    def out_links(self, page: int) -> list[int]:
        """Links of *page*; of a page of the trap, pages that come into being now, for it is asked once."""
        n = len(self._graph)
        if page < n:
            return self._graph.out_links(page) + [n] * (page in self._entries)
        begin, self._next = self._next, self._next + CHILDREN[self._trap.kind]
        return list(range(begin, self._next))

    def host_of(self, page: int) -> str:
        """Host of *page*."""
        if page < len(self._graph):
            return self._graph.hosts[page]
        return DOMAIN if self._trap.hosts == HOSTS[0] else f"h{page}.{DOMAIN}"


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

    def crawl(self, order: str, number: int, trap: Trap | None) -> tuple[float, float]:
        """Crawl from a set of seeds; returns the part of fetches that the trap took, and the mean of what was gathered."""
        graph, seeds = self.graph, self.seed_sets[number]
        reachable = np.flatnonzero(graph.reachable(seeds))
        out_links, host_of = graph.out_links, graph.hosts.__getitem__
        if trap is not None:
            rng = np.random.default_rng([self._rng, number, trap.entries])
            planted = Planted(
                graph, trap, frozenset(rng.choice(reachable, trap.entries, replace=False).tolist())
            )
            out_links, host_of = planted.out_links, planted.host_of
        settings = {"AOPIC_DOMAIN_BUDGET": 0} if order == NO_BUDGET else {}
        policy = policy_of(settings, "aopic" if order == NO_BUDGET else order)
        n = len(reachable)
        simulation = Simulation(out_links, host_of, seeds, n, policy)
        fetched = np.fromiter((visit.page for visit in simulation.run()), np.int64)
        self.violations += simulation.violations()
        gathered = gather(np.minimum(fetched, len(graph)), self._rank / self._rank[reachable].sum(), n)
        return float((fetched >= len(graph)).sum() / n), float(gathered.mean())

    def run(self, orders: list[str], traps: list[Trap]) -> Iterator[dict[str, Any]]:
        """All crawls; yields a row of the table for each order without a trap, and then for each trap."""
        sets = range(len(self.seed_sets))
        with tqdm(total=len(orders) * (1 + len(traps)) * len(sets), unit="crawls", disable=None) as bar:

            def crawl(order: str, number: int, trap: Trap | None) -> tuple[float, float]:
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
            f"| {row['order']} | {Trap(**row['trap'])} | {np.mean(taken):.4f}{spread(taken)} | {max(taken):.4f} "
            f"| {np.mean(change):+.4f}{spread(change)} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", type=Path, help="an .npz file as for scrapy aopic simulate")
    parser.add_argument("--hosts", type=Path, help="an .npy file with the number of the host of each page")
    parser.add_argument(
        "--urls", type=Path, help="a text file, which may be gzipped, with the URL of each page"
    )
    parser.add_argument("--seeds", type=int, default=20, help="seeds in a set (20)")
    parser.add_argument("--sets", type=int, default=10, help="sets of seeds (10)")
    parser.add_argument("--rng", type=int, default=1, help="seed of the dice for seeds and entries (1)")
    parser.add_argument(
        "--entries", type=int, nargs="+", default=[1, 3], help="real pages that link to a trap (1 3)"
    )
    parser.add_argument(
        "--orders",
        nargs="+",
        default=["aopic", "opic", NO_BUDGET],
        help="as in AOPIC_ORDER (aopic opic no-budget)",
    )
    parser.add_argument("--json", type=Path, help="write everything that was measured to this file, too")
    args = parser.parse_args()
    graph = load_graph(args.graph, hosts=args.hosts, urls=args.urls)
    seed_sets = draw_seed_sets(len(graph), args.seeds, args.sets, args.rng)
    experiment = Experiment(graph, seed_sets, args.rng)
    rows = list(experiment.run(args.orders, [Trap(*each) for each in product(CHILDREN, HOSTS, args.entries)]))
    print_tables(graph, rows, seed_sets)
    if args.json is not None:
        args.json.write_text(json.dumps({"graph": graph.name, "seed_sets": seed_sets, "rows": rows}) + "\n")
    for violation in experiment.violations:
        print(violation, file=sys.stderr)
    return 1 if experiment.violations else 0


if __name__ == "__main__":
    sys.exit(main())

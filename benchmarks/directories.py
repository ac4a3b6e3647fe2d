"""What the directory of a page says about its importance: an order that values it, beside the default.

    python benchmarks/directories.py GRAPH.npz --urls FILE [--full 3] [--down 1] [--half 1] [--seeds 20] [--sets 10]
        [--rng 1] [--fetches N]

A page waits *down* front queues lower once *full* pages of its directory, which is its URL up to the last slash, have been
fetched. It is valued when it is found and whenever it is paid, and not moved between; so it costs no further row.
The crawls are those of scrapy aopic simulate, on the production ledger and frontier, without their audit: what such an
order gives is no function of the page alone, as the audit expects.

--half takes only the registered domains of one half, as their names fall by a digest: 0 is the one on which rule and
constants were chosen, 1 the one for reports. The table has the mean of the share of PageRank(0.85) over the first 10, 20
and 30 % of the fetches and over all of them: that of the default, and what the other gains, paired over the seed sets,
with 95 % intervals. With --fetches, a crawl ends early, and the parts are those of what it fetches.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tldextract import TLDExtract
from tqdm import tqdm

from scrapy_aopic.core.order import Aopic
from scrapy_aopic.lab.comparison import Setup, draw_seed_sets, gather, policy_of
from scrapy_aopic.lab.graphs import Graph, load_graph
from scrapy_aopic.lab.results import paired
from scrapy_aopic.lab.simulation import Simulation
from scrapy_aopic.lab.url_order import UrlOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.order import PageView

PARTS = (0.1, 0.2, 0.3, 1.0)


class ByDirectory(UrlOrder, Aopic):
    """The default, with pages of directories of which enough was fetched *down* front queues lower."""

    def __init__(self, full: int, down: int) -> None:
        self._full, self._down = full, down
        self._fetched = Counter[str]()

    def front_queue(self, page: PageView, cash: int) -> int:
        is_full = self._fetched[self.directory(page)] >= self._full
        return max(super().front_queue(page, cash) - is_full * self._down, 0)

    def clock_after(self, page: PageView, clock: int) -> int:
        self._fetched[self.directory(page)] += 1
        return clock


def half_of(graph: Graph, half: int) -> Graph:
    """The registered domains of *graph* in one *half*, 0 or 1, and the links among them."""
    split = TLDExtract(cache_dir=None, suffix_list_urls=())
    digests = {
        host: md5(
            (split(host).top_domain_under_public_suffix or host).encode(), usedforsecurity=False
        ).digest()
        for host in set(graph.hosts)
    }
    kept = np.fromiter((digests[host][0] % 2 == half for host in graph.hosts), bool, len(graph))
    number = np.cumsum(kept) - 1
    source = np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
    inside = kept[source] & kept[graph.indices]
    counts = np.bincount(number[source[inside]], minlength=int(kept.sum()))
    pages = np.flatnonzero(kept).tolist()
    return Graph(
        f"{graph.name}, half {half}",
        np.concatenate([[0], np.cumsum(counts)]),
        number[graph.indices[inside]],
        [graph.hosts[page] for page in pages],
        [graph.urls[page] for page in pages],
    )


def means(setup: Setup, seeds: Sequence[int], order: ByDirectory | None) -> list[float]:
    """Means of the gathered share over :data:`PARTS` of the fetches of a crawl; *order* ``None`` for the default."""
    graph = setup.graph
    rank = np.where(graph.reachable(seeds), setup.rank, 0.0)
    n = setup.n_fetches(seeds)
    policy = policy_of({}, "aopic")
    if order is not None:
        policy = replace(policy, order=order)
    simulation = Simulation(graph.out_links, graph.host_of, seeds, n, policy)
    if order is not None:
        order.begin(graph.url_of, simulation.pages)
    fetched = np.fromiter((visit.page for visit in simulation.run()), np.int64)
    gathered = gather(fetched, rank / rank.sum(), n)
    return [float(gathered[: max(int(part * n), 1)].mean()) for part in PARTS]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", type=Path, help="an .npz file as for scrapy aopic simulate")
    parser.add_argument("--urls", type=Path, required=True, help="a text file with the URL of each page")
    parser.add_argument("--full", type=int, default=3, help="fetched pages by which a directory is full (3)")
    parser.add_argument("--down", type=int, default=1, help="front queues by which its pages wait lower (1)")
    parser.add_argument("--half", type=int, choices=(0, 1), help="of the registered domains (both)")
    parser.add_argument("--seeds", type=int, default=20, help="seeds in a set (20)")
    parser.add_argument("--sets", type=int, default=10, help="sets of seeds (10)")
    parser.add_argument("--rng", type=int, default=1, help="seed of the dice for seeds (1)")
    parser.add_argument("--fetches", type=int, help="most fetches of a crawl (all that can be reached)")
    args = parser.parse_args()
    graph = load_graph(args.graph, urls=args.urls)
    if args.half is not None:
        graph = half_of(graph, args.half)
    setup, default, gains = Setup(graph, fetches=args.fetches), [], []
    for seeds in tqdm(draw_seed_sets(graph, args.seeds, args.sets, args.rng).values(), disable=None):
        default.append(means(setup, seeds, None))
        other = means(setup, seeds, ByDirectory(args.full, args.down))
        gains.append(np.subtract(other, default[-1]))
    heads = " | ".join(f"first {part:.0%}" if part < 1 else "mean" for part in PARTS)
    print(f"{graph.name}: {len(graph):,} pages\n\n| order | {heads} |\n|---|{'---|' * len(PARTS)}")
    print(f"| aopic | {' | '.join(f'{mean:.4f}' for mean in np.mean(default, axis=0))} |")
    print(f"| by directory, less | {' | '.join(paired(column.tolist()) for column in np.transpose(gains))} |")


if __name__ == "__main__":
    main()

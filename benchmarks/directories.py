"""What the rule on directories gains: the default order with it and without it.

    python benchmarks/directories.py GRAPH.npz --urls FILE [--pages 3] [--half 1] [--seeds 20] [--sets 10] [--rng 1]
        [--fetches N]

A page waits one front queue lower if *pages* pages of its directory, which is its URL up to the last slash, have been
fetched when its turn comes (AOPIC_DIRECTORY_PAGES; 0 without the rule). The crawls are those of scrapy aopic simulate, on the
production ledger and frontier; each ends with an audit of the whole store.

--half takes only the registered domains of one half, as their names fall by a digest: 0 is the one on which rule and
constants were chosen, 1 the one for reports. The table has the mean of the share of PageRank(0.85) over the first 10, 20
and 30 % of the fetches and over all of them: that without the rule, and what the rule gains, paired over the seed sets,
with 95 % intervals. With --fetches, a crawl ends early, and the parts are those of what it fetches.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
from tldextract import TLDExtract
from tqdm import tqdm

from scrapy_aopic.lab.comparison import MEANS, Setup, Task, draw_seed_sets, run
from scrapy_aopic.lab.graphs import Graph, load_graph
from scrapy_aopic.lab.results import paired


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


def means(setup: Setup, seeds: list[int], pages: int) -> list[float]:
    """Means of the gathered share over the first parts of a crawl, with *pages* as AOPIC_DIRECTORY_PAGES."""
    setup = replace(setup, settings={"AOPIC_DIRECTORY_PAGES": pages})
    result = run(setup, Task("aopic", "", seeds, None))
    if result.violations:
        raise SystemExit(f"The crawl breaks an invariant: {result.violations[0]}")
    return list(result.mean.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", type=Path, help="an .npz file as for scrapy aopic simulate")
    parser.add_argument("--urls", type=Path, required=True, help="a text file with the URL of each page")
    parser.add_argument("--pages", type=int, default=3, help="fetched pages at which a directory is full (3)")
    parser.add_argument("--half", type=int, choices=(0, 1), help="of the registered domains (both)")
    parser.add_argument("--seeds", type=int, default=20, help="seeds in a set (20)")
    parser.add_argument("--sets", type=int, default=10, help="sets of seeds (10)")
    parser.add_argument("--rng", type=int, default=1, help="seed of the dice for seeds (1)")
    parser.add_argument("--fetches", type=int, help="most fetches of a crawl (all that can be reached)")
    args = parser.parse_args()
    graph = load_graph(args.graph, urls=args.urls)
    if args.half is not None:
        graph = half_of(graph, args.half)
    setup, without, gains = Setup(graph, fetches=args.fetches), [], []
    for seeds in tqdm(draw_seed_sets(graph, args.seeds, args.sets, args.rng).values(), disable=None):
        without.append(means(setup, seeds, 0))
        gains.append(np.subtract(means(setup, seeds, args.pages), without[-1]))
    heads = " | ".join(f"first {part:.0%}" if part < 1 else "mean" for part in MEANS)
    print(
        f"{graph.name}: {len(graph):,} pages\n\n| AOPIC_DIRECTORY_PAGES | {heads} |\n|---|{'---|' * len(MEANS)}"
    )
    print(f"| 0 | {' | '.join(f'{mean:.4f}' for mean in np.mean(without, axis=0))} |")
    print(
        f"| {args.pages}, less without | {' | '.join(paired(column.tolist()) for column in np.transpose(gains))} |"
    )


if __name__ == "__main__":
    main()

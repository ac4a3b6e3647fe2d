"""How much of a web asks robots for something, or not to be used for something, and what obeying it changes of the order.

    python benchmarks/marked_pages.py GRAPH [--urls FILE --pages FOLDER] [--sets 10] [--part 0.05]

GRAPH is a link graph as ``scrapy aopic simulate`` reads it. FILE has the URL of each of its pages, and FOLDER the saved
pages: ``http://NAME.test/PATH`` is the file ``FOLDER/NAME/PATH``; with them the first table counts pages with marks, and links
with a ``rel``, and what they have of the PageRank. The second one crawls the graph from random seeds: with all links; if there
are pages, without those of pages that ask for that, and without those with a ``rel``; and, since a web may ask for more than
this one, without those of a part of the pages, or without a part of all links, drawn at random. Given is the mean over the crawl of the PageRank that was gathered, of all that
could be with all links, with a 95 % interval of the differences by seed sets.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import numpy as np
from scrapy.http import HtmlResponse

from scrapy_aopic.lab.comparison import draw_seed_sets, gather, policy_of
from scrapy_aopic.lab.graphs import Graph, load_graph, pagerank
from scrapy_aopic.lab.simulation import simulate
from scrapy_aopic.storage.named_files import read_lines
from scrapy_aopic.web.content_usage import RESERVATION, read_usage
from scrapy_aopic.web.link_extraction import rels_of
from scrapy_aopic.web.robots_marks import metas_of, read_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

RELS = {"nofollow", "ugc", "sponsored"}


def pages_of(urls: list[str], folder: Path) -> Iterator[tuple[int, HtmlResponse]]:
    """The pages that are in *folder*, by their numbers."""
    for number, url in enumerate(urls):
        parts = urlsplit(url)
        path = folder / (parts.hostname or "").removesuffix(".test") / unquote(parts.path).lstrip("/")
        if path.is_file():
            yield number, HtmlResponse(url, body=path.read_bytes())


def judge(graph: Graph, urls: list[str], folder: Path) -> tuple[dict[int, set[str]], dict[int, set[int]]]:
    """Rules by page, and the pages that links with a ``rel`` lead to; prints how many there are."""
    rank = pagerank(graph.indptr, graph.indices)
    rank /= rank.sum()
    numbers = {url: number for number, url in enumerate(urls)}
    rules: dict[int, set[str]] = {}
    rels: dict[int, set[int]] = {}
    n = n_rels = 0
    for number, response in pages_of(urls, folder):
        n += 1
        metas = metas_of(response, ("robots", RESERVATION))
        usage = read_usage(response.headers, metas).usage
        marks = set(read_marks(response.headers, metas, "", time.time())) | {
            f"{use}={value}" for use, value in usage.items()
        }
        if marks:
            rules[number] = marks
        if b"rel=" in response.body:
            marked = [url for url, words in rels_of(response).items() if words & RELS]
            n_rels += len(marked)
            if marked:
                rels[number] = {numbers[url] for url in marked if url in numbers}
    print(f"{n:,} of {len(urls):,} pages were found\n")
    print("| of all pages | pages | part | PageRank |\n|---|--:|--:|--:|")
    counts = Counter(rule for each in rules.values() for rule in each)
    for rule in dict.fromkeys(("nofollow", "noindex", "noai", f"{RESERVATION}=1", *sorted(counts))):
        have = [number for number, each in rules.items() if rule in each]
        print(f"| `{rule}` | {len(have):,} | {len(have) / max(n, 1):.3%} | {rank[have].sum():.3%} |")
    print(
        f"| links with a `rel` | {len(rels):,} | {len(rels) / max(n, 1):.3%} | {rank[list(rels)].sum():.3%} |"
    )
    to = set().union(*rels.values())
    print(
        f"\n{n_rels:,} links have a `rel`; {sum(map(len, rels.values())):,} lead to {len(to):,} pages of the graph\n"
    )
    return rules, rels


def without(graph: Graph, pages: Collection[int]) -> Callable[[int], list[int]]:
    """The links of *graph* without those of *pages*."""
    return lambda page: [] if page in pages else graph.out_links(page)


def compare(graph: Graph, ways: dict[str, Callable[[int], list[int]]], sets: int, seeds: int) -> None:
    """Print how much PageRank crawls of *graph* gather that follow the links of each of *ways*."""
    rank = pagerank(graph.indptr, graph.indices)
    means: dict[str, list[float]] = {way: [] for way in ways}
    for chosen in draw_seed_sets(graph, seeds, sets).values():
        reachable = graph.reachable(chosen)
        true = np.where(reachable, rank, 0.0)
        true /= true.sum()
        n = int(reachable.sum())
        for way, out_links in ways.items():
            order = list(simulate(out_links, graph.hosts.__getitem__, chosen, n, policy_of({}, "aopic")))
            means[way].append(float(gather(order, true, n).mean()))
    print("| followed | gathered | difference |\n|---|--:|--:|")
    first = np.array(next(iter(means.values())))
    for way, values in means.items():
        differences = np.array(values) - first
        spread = 1.96 * differences.std(ddof=1) / math.sqrt(sets) if sets > 1 else 0.0
        print(f"| {way} | {np.mean(values):.4f} | {differences.mean():+.4f} ± {spread:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", type=Path)
    parser.add_argument("--urls", type=Path)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--part", type=float, default=0.05)
    args = parser.parse_args()
    graph = load_graph(args.graph, urls=args.urls)
    ways: dict[str, Callable[[int], list[int]]] = {"all links": graph.out_links}
    if args.pages and args.urls:
        rules, rels = judge(graph, [line.strip() for line in read_lines(args.urls)], args.pages)
        ways["not those of pages that say `nofollow`"] = without(
            graph, {page for page, each in rules.items() if "nofollow" in each}
        )
        ways["not those with a `rel`"] = lambda page: [
            target for target in graph.out_links(page) if target not in rels.get(page, ())
        ]
    dice = np.random.default_rng(1)
    pages = set(np.flatnonzero(dice.random(len(graph)) < args.part).tolist())
    ways[f"not those of {args.part:.0%} of the pages"] = without(graph, pages)
    keep = dice.random(len(graph.indices)) >= args.part
    ways[f"not {args.part:.0%} of the links"] = lambda page: graph.indices[
        graph.indptr[page] : graph.indptr[page + 1]
    ][keep[graph.indptr[page] : graph.indptr[page + 1]]].tolist()
    compare(graph, ways, args.sets, args.seeds)


if __name__ == "__main__":
    main()

"""Large honest parts of sites that look like traps: how early they are fetched, beside other orders.

    python benchmarks honest GRAPH.npz --urls FILE [--host NAME] [--kinds forum shop ...] [--orders aopic breadth-first]
        [--seeds 3] [--sets 3] [--rng 77]
    python benchmarks honest GRAPH.npz --urls FILE --host NAME --write SITE

With ``--host``, only the pages of one host are taken of the graph. A part is on a real host: three of the tenth of the pages that
is nearest to the seeds link to it, and its pages to its first one and to the nearest of the three. Each crawl fetches all. The table has the part of its pages and of the PageRank(0.85) of all pages that is among
the first tenth, quarter and half of the fetches, and the mean of the latter. The last columns are what the first order has more
than another one after half of the fetches, paired over the seed sets, with 95 % intervals. With ``--write``, the pages of the
host are only written, to SITE.npz and SITE.urls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import options
from options import Among
from tqdm import tqdm

from scrapy_aopic.lab.comparison import draw_seed_sets, gather, policy_of
from scrapy_aopic.lab.graphs import Graph, load_graph, pagerank
from scrapy_aopic.lab.results import half_width
from scrapy_aopic.lab.simulation import Simulation
from scrapy_aopic.lab.url_order import UrlOrder

PARTS = (0.1, 0.25, 0.5)
"""Parts of the fetches after which a crawl is judged; it fetches all."""

ENTRIES = 3
"""Real pages that link to an honest part."""

Pages = dict[str, list[str]]
"""What each page links to, by paths; the first is where the part is entered."""


def _around(number: int, n: int) -> list[int]:
    """The numbers before and after *number* of *n*."""
    return [each for each in (number - 1, number + 1) if 0 <= each < n]


def _word(number: int) -> str:
    """A word without digits, another one for each number."""
    return "".join(chr(97 + number // 26**place % 26) for place in (2, 0, 1))


def forum() -> Pages:
    """8 boards, each with a chain of 10 lists, each with 12 threads, each with a chain of one to five pages, and some of thirty."""

    def board(number: int, page: int) -> str:
        return f"/forum/viewforum.php?f={number}&start={12 * page}"

    def thread(number: int, page: int) -> str:
        return f"/forum/viewtopic.php?t={number}&start={20 * page}"

    pages: Pages = {"/forum/": [board(each, 0) for each in range(8)]}
    for number, page in product(range(8), range(10)):
        threads = range(120 * number + 12 * page, 120 * number + 12 * page + 12)
        near = [board(number, each) for each in _around(page, 10)]
        pages[board(number, page)] = [*near, *(thread(each, 0) for each in threads)]
        for each in threads:
            length = 1 + each * 7 % 5 if each % 50 else 30
            for part in range(length):
                pages[thread(each, part)] = [
                    board(number, 0),
                    *(thread(each, to) for to in _around(part, length)),
                ]
    return pages


def database() -> Pages:
    """3,000 records behind a chain of 30 lists."""
    pages: Pages = {
        f"/records?page={page}": [f"/records?page={each}" for each in _around(page, 30)] for page in range(30)
    }
    for page, record in product(range(30), range(100)):
        pages[f"/records?page={page}"].append(f"/record/{100 * page + record}")
        pages[f"/record/{100 * page + record}"] = []
    return pages


def shop() -> Pages:
    """1,000 products, eight behind each choice of three filters with five values, which are the only way to them."""
    pages: Pages = {}
    for number, chosen in enumerate(product(range(5), repeat=3)):
        others = [
            (*chosen[:at], value, *chosen[at + 1 :])
            for at in range(3)
            for value in range(5)
            if value != chosen[at]
        ]
        products = [f"/product/{8 * number + each}" for each in range(8)]
        pages[_facet(chosen)] = [*map(_facet, others), *products]
        pages |= {each: [] for each in products}
    return pages


def _facet(chosen: Sequence[int]) -> str:
    return "/catalogue?" + "&".join(
        f"{name}={value}" for name, value in zip(("brand", "colour", "size"), chosen, strict=True)
    )


def wiki() -> Pages:
    """1,500 articles, each with links to eight others, mostly to those with small numbers."""
    rng = np.random.default_rng(1)
    targets = (1500 * rng.random((1500, 8)) ** 2).astype(int).tolist()
    return {
        f"/wiki/{_word(number)}": [f"/wiki/{_word(each)}" for each in [*row, (number + 1) % 1500]]
        for number, row in enumerate(targets)
    }


def blog() -> Pages:
    """600 posts of 60 months, in archives by month, by tag and in a chain of 60 pages; posts have the next and the last."""

    def post(number: int) -> str:
        return f"/{2020 + number // 120}/{1 + number // 10 % 12:02}/{_word(number)}/"

    months = [f"/{2020 + month // 12}/{1 + month % 12:02}/" for month in range(60)]
    pages: Pages = {"/blog/": ["/page/1/", *months, *(f"/tag/{_word(each)}/" for each in range(30))]}
    for number in range(60):
        posts = [post(10 * number + each) for each in range(10)]
        pages[months[number]] = posts
        pages[f"/page/{60 - number}/"] = [*posts, *(f"/page/{60 - each}/" for each in _around(number, 60))]
    for tag in range(30):
        pages[f"/tag/{_word(tag)}/"] = [post(each) for each in range(tag, 600, 30)]
    for number in range(600):
        pages[post(number)] = [
            *map(post, _around(number, 600)),
            months[number // 10],
            f"/tag/{_word(number % 30)}/",
        ]
    return pages


def documentation() -> Pages:
    """150 pages in ten versions: each has its neighbours, its version's contents and itself in all others."""

    def at(version: int, page: int) -> str:
        return f"/docs/3.{version}/{_word(page) if page else 'index'}.html"

    pages: Pages = {"/docs/": [at(version, 0) for version in range(10)]}
    for version, page in product(range(10), range(150)):
        others = range(1, 150) if not page else (0, *_around(page, 150), page * 7 % 150)
        versions = [at(each, page) for each in range(10) if each != version]
        pages[at(version, page)] = [*(at(version, each) for each in others), *versions]
    return pages


KINDS: Mapping[str, Callable[[], Pages]] = {
    each.__name__: each for each in (forum, database, shop, wiki, blog, documentation)
}


def with_part(graph: Graph, pages: Pages, seeds: list[int], rng: np.random.Generator) -> Graph:
    """*graph* with *pages* behind its own, linked from three pages near the *seeds*."""
    near = graph.by_distance(seeds)
    entries = rng.choice(near[: max(len(near) // 10, ENTRIES)], ENTRIES, replace=False).tolist()
    host = graph.hosts[entries[0]]
    n, numbers = len(graph), {path: number for number, path in enumerate(pages)}
    rows = [[*graph.out_links(page), *([n] if page in entries else [])] for page in range(n)]
    rows += [[n, min(entries), *(n + numbers[each] for each in links)] for links in pages.values()]
    return Graph(
        graph.name, np.cumsum([0, *map(len, rows)]), np.concatenate([np.asarray(row, np.int64) for row in rows]),
        [*graph.hosts, *[host] * len(pages)], [*graph.urls, *(f"http://{host}{path}" for path in pages)],
    )  # fmt: skip


def crawl(
    graph: Graph, order: str, seeds: list[int], n_real: int
) -> tuple[list[float], list[float], list[str]]:
    """Crawl all; returns for each of :data:`PARTS` the part of the pages from *n_real* on, and of the PageRank with its mean, and faults."""
    reachable = np.flatnonzero(graph.reachable(seeds))
    rank, n = pagerank(graph.indptr, graph.indices), len(reachable)
    policy = policy_of({}, order, graph.url_of)
    simulation = Simulation(graph.out_links, graph.host_of, seeds, n, policy)
    if isinstance(policy.order, UrlOrder):
        policy.order.begin(graph.url_of, simulation.pages)
    fetched = np.fromiter((visit.page for visit in simulation.run()), np.int64)
    faults = simulation.violations() + (
        [] if len(fetched) == n else [f"{order}: {len(fetched)} of {n} pages fetched"]
    )
    gathered, of_part = gather(fetched, rank / rank[reachable].sum(), n), np.cumsum(fetched >= n_real)
    at = [int(part * n) - 1 for part in PARTS]
    return (
        (of_part[at] / max(of_part[-1], 1)).tolist(),
        [*gathered[at].tolist(), float(gathered.mean())],
        faults,
    )


def only(graph: Graph, host: str) -> Graph:
    """The pages of *host* in *graph*, and the links among them."""
    pages = [page for page, name in enumerate(graph.hosts) if name == host]
    numbers = {page: number for number, page in enumerate(pages)}
    rows = [[numbers[each] for each in graph.out_links(page) if each in numbers] for page in pages]
    links = np.concatenate([np.asarray(row, np.int64) for row in rows])
    urls = [graph.urls[page] for page in pages]
    return Graph(host, np.cumsum([0, *map(len, rows)]), links, [host] * len(pages), urls)


def main() -> int:
    args = options.read(
        __doc__, "graph", Path, urls=Path, host=str, kinds=Among([*KINDS], KINDS), orders=["aopic", "breadth-first"],
        seeds=3, sets=3, rng=77, write=Path,
    )  # fmt: skip
    real = load_graph(args.graph, urls=args.urls)
    real = only(real, args.host) if args.host else real
    if args.write:
        np.savez(args.write.with_suffix(".npz"), indptr=real.indptr, indices=real.indices)
        args.write.with_suffix(".urls").write_text("\n".join(real.urls) + "\n")
        return 0
    seed_sets = list(draw_seed_sets(real, args.seeds, args.sets, args.rng).values())
    faults: list[str] = []
    print(f"{real.name}: {len(real):,} pages; {args.sets} sets of {args.seeds} seeds\n")
    print(
        "| part | order | of it at 10 % | 25 % | 50 % | PageRank at 10 % | 25 % | 50 % | mean | behind, of it | PageRank |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for kind in tqdm(args.kinds, disable=None):
        webs = [with_part(real, KINDS[kind](), each, np.random.default_rng(each)) for each in seed_sets]
        first = None
        for order in args.orders:
            runs = [crawl(web, order, seeds, len(real)) for web, seeds in zip(webs, seed_sets, strict=True)]
            faults += [each for run in runs for each in run[2]]
            row = np.asarray([[*of_part, *rank] for of_part, rank, _ in runs])
            first = row if first is None else first
            less = [(first - row)[:, at].tolist() for at in (len(PARTS) - 1, 2 * len(PARTS) - 1)]
            told = [
                f"{np.mean(each):+.3f} ± {half_width(each):.3f}" if len(runs) > 1 else "" for each in less
            ]
            figures = [*(f"{each:.3f}" for each in row.mean(0)), *(told if row is not first else ("", ""))]
            print(f"| {kind} | {order} | {' | '.join(figures)} |")
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

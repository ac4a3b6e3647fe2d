"""What the rule on directories gains, and what it costs: the default order with it and without it.

    python benchmarks/directories.py GRAPH.npz --urls FILE [--pages 3] [--half 1] [--seeds 20] [--sets 10] [--rng 1]
        [--fetches N]
    python benchmarks/directories.py GRAPH.npz --urls FILE --costs [--stores rocksdb sqlite redis] [--repeats 5] [--pages 3]
        [--half 1] [--seeds 20] [--rng 1] [--fetches N]

A page waits one front queue lower if *pages* pages of its directory, which is its URL up to the last slash, have been
fetched when its turn comes (AOPIC_DIRECTORY_PAGES; 0 without the rule). The crawls are those of scrapy aopic simulate, on the
production ledger and frontier; each ends with an audit of the whole store.

--half takes only the registered domains of one half, as their names fall by a digest: 0 is the one on which rule and
constants were chosen, 1 the one for reports. The table has the mean of the share of PageRank(0.85) over the first 10, 20
and 30 % of the fetches and over all of them: that without the rule, and what the rule gains, paired over the seed sets,
with 95 % intervals. With --fetches, a crawl ends early, and the parts are those of what it fetches.

With --costs, the core crawls from one set of seeds on each store, without Scrapy, with a commit after each hundred pages. The
table has the rows that commits put or delete and their bytes, for each fetched page; the bytes of the store at the end,
for each known page; and the CPU time of the process, and of a Redis or Valkey server, beside that without the rule: the
median of pairs, which take turns, with the least and the largest. Each crawl is in a process of its own. With it another page
may be next, so the two fetch the same pages only if they fetch all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from hashlib import md5
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from tldextract import TLDExtract
from tqdm import tqdm

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.ports import Store
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.lab.comparison import MEANS, Setup, Task, draw_seed_sets, run
from scrapy_aopic.lab.graphs import Graph, load_graph
from scrapy_aopic.lab.results import paired
from scrapy_aopic.settings import read_policy
from scrapy_aopic.storage import Address, open_store
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.connection import Connection

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.redis_server import WHY_NOT, Server, find_server


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


COMMIT = 100
"""Visits between two commits."""

STORES = ("rocksdb", "sqlite", "redis")


class Cost(NamedTuple):
    """What a crawl took.

    Attributes:
        rows: Rows that commits put or deleted, for each fetched page.
        written: Bytes of these rows, keys and values.
        stored: Bytes of the store at the end, for each known page.
        cpu: Seconds of CPU time of the process.
        server: The same of the server; 0 if there is none.
    """

    rows: float
    written: float
    stored: float
    cpu: float
    server: float


def server_cpu(server: Connection) -> float:
    """Seconds of CPU that *server* has used."""
    (said,) = server.ask((b"INFO",))
    fields = dict(line.partition(":")[::2] for line in said.decode().splitlines())
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])


def cost(graph: Graph, seeds: list[int], fetches: int, kind: str, pages: int) -> Cost:
    """Crawl *graph* on a new store of a *kind*, with *pages* as AOPIC_DIRECTORY_PAGES."""
    policy = read_policy({"AOPIC_DIRECTORY_PAGES": pages, "AOPIC_POLITENESS_FACTOR": 0, "AOPIC_MIN_GAP": 0})
    links: dict[int, Link] = {}
    page_of: dict[bytes, int] = {}

    def link(page: int) -> Link:
        if page not in links:
            request = graph.urls[page].encode()
            links[page] = Link(page_key(host_key(graph.hosts[page]), request), graph.hosts[page], request)
            page_of[request] = page
        return links[page]

    rows = written = 0
    now = 1e9
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        used: Callable[[], float] = lambda: 0.0
        if kind == "redis":
            address = Address("job", stack.enter_context(Server(folder)).url)
            server = stack.enter_context(closing(connect(address)))
            used = partial(server_cpu, server)
            store: Store = open_store_at(address)
        else:
            store = open_store(folder / "store", kind)
        stack.enter_context(closing(store))
        before, began = used(), time.process_time()
        crawl = Crawl(store, policy, now)
        for seed in seeds:
            crawl.seed(link(seed), now)
        for fetched in range(1, fetches + 1):
            lease = crawl.lease(now)
            if not isinstance(lease, Lease):
                raise SystemExit(f"Page {fetched} of {fetches} is {lease}.")
            crawl.release(lease, now)
            crawl.settle(lease, [link(each) for each in graph.out_links(page_of[lease.request])], now)
            if fetched % COMMIT == 0 or fetched == fetches:
                batch = crawl.take_changes(now)
                store.write(batch, sync=False)
                crawl.changes_landed()
                for changed in batch.values():
                    rows += len(changed)
                    written += sum(len(key) + len(value or b"") for key, value in changed.items())
        cpu, by_server = time.process_time() - began, used() - before
        return Cost(rows / fetches, written / fetches, store.size_bytes() / len(links), cpu, by_server)


def costs(graph: Graph, seeds: list[int], fetches: int, args: argparse.Namespace) -> None:
    """Crawl by turns on each store, and print a table."""
    print(f"{graph.name}: {len(graph):,} pages, of which {fetches:,} are fetched\n")
    print("| store | `AOPIC_DIRECTORY_PAGES` | rows a page | bytes of rows | stored, bytes a known page | CPU, beside 0 | CPU of the server |")  # fmt: skip
    print("|---|---|---|---|---|---|---|", flush=True)
    for kind in args.stores:
        found: dict[int, list[Cost]] = {0: [], args.pages: []}
        for turn in tqdm(range(args.repeats), unit="pairs", disable=None):
            for pages in list(found)[:: -1 if turn % 2 else 1]:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    found[pages].append(pool.submit(cost, graph, seeds, fetches, kind, pages).result())
        for pages, each in found.items():
            one = each[0]
            cpu = " | ".join(
                ratios([getattr(cost, of) for cost in each], [getattr(cost, of) for cost in found[0]])
                if pages
                else ""
                for of in ("cpu", "server")
            )
            print(f"| {kind} | {pages} | {one.rows:.2f} | {one.written:,.0f} | {one.stored:,.0f} | {cpu} |")


def ratios(ours: list[float], peers: list[float]) -> str:
    """The median of the ratios of pairs, with the least and the largest; empty if nothing was measured."""
    if not all(peers):
        return ""
    found = [one / other for one, other in zip(ours, peers, strict=True)]
    return f"{median(found):.3f} ({min(found):.3f} to {max(found):.3f})"


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
    parser.add_argument("--costs", action="store_true", help="measure rows, bytes and CPU time instead")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES, help="of the crawls (all)")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of crawls on each store (5)")
    args = parser.parse_args()
    graph = load_graph(args.graph, urls=args.urls)
    if args.half is not None:
        graph = half_of(graph, args.half)
    setup, without, gains = Setup(graph, fetches=args.fetches), [], []
    if args.costs:
        if "redis" in args.stores and find_server() is None:
            parser.error(WHY_NOT)
        (seeds,) = draw_seed_sets(graph, args.seeds, 1, args.rng).values()
        costs(graph, seeds, setup.n_fetches(seeds), args)
        return
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

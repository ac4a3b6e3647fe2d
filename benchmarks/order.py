"""How early important pages are fetched: ours beside Scrapy's LIFO and FIFO, with the same seeds.

    python benchmarks/order.py demo [--pages 5000]
    python benchmarks/order.py graph GRAPH.npz [--seed-sets 10] [--seeds 20] [--rng 1]

``demo`` runs three real crawls of the demo web of example_project and reads the order from its log; politeness is off, so
that only the order differs. ``graph`` visits a link graph (CSR arrays ``indptr``, ``indices`` and, if known, ``host``) with
the production ledger and frontier. Both print the share of the reachable pages' PageRank(0.85) that was gathered after a
part of the fetches, and its mean over the crawl.

The bound takes the best pages first whether they are known or not; nothing can be better.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from scrapy_aopic.core.crawl import Policy
from scrapy_aopic.simulation import simulate
from scrapy_aopic.testing.server import read_log

PROJECT = Path(__file__).parents[1] / "example_project"
PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
STOCK = {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}
FIFO = {
    "DEPTH_PRIORITY": "1",
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
}
CRAWLS = {
    "scrapy-aopic": {},
    "Scrapy FIFO (breadth first)": {**STOCK, **FIFO},
    "Scrapy LIFO (its default)": STOCK,
}


def pagerank(indptr: np.ndarray, indices: np.ndarray, damping: float = 0.85) -> np.ndarray:
    """PageRank with uniform teleport, dangling mass spread evenly, self links ignored."""
    n = len(indptr) - 1
    source = np.repeat(np.arange(n), np.diff(indptr))
    source, target = source[source != indices], indices[source != indices]
    degree = np.bincount(source, minlength=n)
    rank = np.full(n, 1 / n)
    for _ in range(200):
        flow = np.bincount(target, weights=(rank / np.maximum(degree, 1))[source], minlength=n)
        new = damping * (flow + rank[degree == 0].sum() / n) + (1 - damping) / n
        if np.abs(new - rank).sum() < 1e-12:
            break
        rank = new
    return new


def first_come(
    out_links: Callable[[int], Sequence[int]], seeds: Sequence[int], *, last_first: bool
) -> list[int]:
    """Order of a queue or a stack of pages, each entered once, as a Scrapy scheduler with its duplicate filter."""
    known, waiting, order = set(seeds), deque(seeds), []
    while waiting:
        page = waiting.pop() if last_first else waiting.popleft()
        order.append(page)
        for target in out_links(page):
            if target not in known:
                known.add(target)
                waiting.append(target)
    return order


def shares(order: Sequence[int], rank: np.ndarray, n: int) -> list[float]:
    """Part of *rank* gathered after PARTS of *n* fetches, and the mean over the crawl."""
    gathered = np.cumsum(rank[np.asarray(order)])
    gathered = np.concatenate([gathered, np.full(max(n - len(gathered), 0), gathered[-1])])[:n]
    return [gathered[max(int(part * n) - 1, 0)] for part in PARTS] + [gathered.mean()]


def show(rows: dict[str, list[list[float]]]) -> None:
    print("| order | " + " | ".join(f"{part:.0%}" for part in PARTS) + " | mean |")
    print("|---|" + "---|" * (len(PARTS) + 1))
    for name, values in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in np.mean(values, axis=0)) + " |")


def graph(args: argparse.Namespace) -> None:
    data = np.load(args.graph)
    indptr, indices = data["indptr"], data["indices"]
    n = len(indptr) - 1
    hosts = data["host"] if "host" in data else np.zeros(n, int)
    names = [f"h{host}" for host in hosts]
    rank = pagerank(indptr, indices)
    rows: dict[str, list[list[float]]] = {}
    for number in tqdm(range(args.seed_sets)):
        seeds = np.random.default_rng([args.rng, number]).choice(n, args.seeds, replace=False).tolist()

        def links(page: int) -> list[int]:
            found: list[int] = indices[indptr[page] : indptr[page + 1]].tolist()
            return found

        breadth = first_come(links, seeds, last_first=False)
        true = np.zeros(n)
        true[breadth] = rank[breadth] / rank[breadth].sum()
        orders = {
            "scrapy-aopic": list(simulate(links, names.__getitem__, seeds, n, Policy())),
            "Scrapy FIFO (breadth first)": breadth,
            "Scrapy LIFO (its default)": first_come(links, seeds, last_first=True),
            "bound": np.argsort(-true)[: len(breadth)].tolist(),
        }
        for name, order in orders.items():
            rows.setdefault(name, []).append(shares(order, true, len(breadth)))
    print(f"\n{args.graph.stem}: {args.seed_sets} seed sets of {args.seeds} pages, rng {args.rng}\n")
    show(rows)
    ours = np.array(rows["scrapy-aopic"])[:, -1]
    for name in list(rows)[1:3]:
        gain = ours - np.array(rows[name])[:, -1]
        error = 1.96 * gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else float("nan")
        print(f"\nmean over the crawl, ours - {name}: {gain.mean():+.3f} +- {error:.3f} (95 %, paired)")


def demo(args: argparse.Namespace) -> None:
    sys.path.insert(0, str(PROJECT))
    from broad import demo_web

    web = demo_web.DemoWeb()
    urls, links = web.graph()
    number_of = {url: number for number, url in enumerate(urls)}
    indptr = np.concatenate([[0], np.cumsum([len(targets) for targets in links])])
    rank = pagerank(indptr, np.array([target for targets in links for target in targets]))
    rank /= rank.sum()
    rows: dict[str, list[list[float]]] = {}
    outside = {}
    for name, settings in CRAWLS.items():
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log.tsv")
            options = {
                "JOBDIR": f"{folder}/job",
                "CLOSESPIDER_PAGECOUNT": args.pages,
                "LOG_LEVEL": "CRITICAL",
            }
            options |= {
                "AOPIC_POLITENESS_FACTOR": 0,
                "AOPIC_REPORT": False,
                "CONCURRENT_REQUESTS": 16,
                **settings,
            }
            command = [sys.executable, "-m", "scrapy", "crawl", "broad", "-a", f"seeds={','.join(web.seeds)}"]
            for pair in options.items():
                command += ["-s", "{}={}".format(*pair)]
            with demo_web.served(log=log) as proxy:
                subprocess.run(command, cwd=PROJECT, env={**os.environ, "http_proxy": proxy}, check=True)
            entries = [entry for entry in read_log(log) if entry.target != "/robots.txt"]
        entries.sort(key=lambda entry: entry.start)
        fetched = [number_of.get(f"http://{entry.host}{entry.target}") for entry in entries]
        outside[name] = sum(page is None for page in fetched)
        # A fetch of what is no page of the graph (an error, the trap) gathers nothing.
        order = [len(urls) if page is None else page for page in fetched]
        seen: set[int] = set()
        order = [page if page not in seen and not seen.add(page) else len(urls) for page in order]  # type: ignore[func-returns-value]
        rows[name] = [shares(order, np.append(rank, 0.0), args.pages)]
    rows["bound"] = [shares(np.argsort(-rank).tolist(), rank, args.pages)]
    print(f"\ndemo web: {len(urls)} pages, {len(web.seeds)} seeds, {args.pages} fetches\n")
    show(rows)
    print()
    for name, n in outside.items():
        print(f"{name}: {n} requests were for errors, forbidden or endless pages")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(required=True)
    kind = kinds.add_parser("demo")
    kind.add_argument("--pages", type=int, default=5000)
    kind.set_defaults(run=demo)
    kind = kinds.add_parser("graph")
    kind.add_argument("graph", type=Path)
    kind.add_argument("--seed-sets", type=int, default=10)
    kind.add_argument("--seeds", type=int, default=20)
    kind.add_argument("--rng", type=int, default=1)
    kind.set_defaults(run=graph)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()

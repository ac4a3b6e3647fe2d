"""How early important pages are fetched: ours beside Scrapy's LIFO and FIFO, in real crawls.

    python benchmarks/order.py demo [--pages 5000]

``demo`` runs three crawls of the demo web of example_project from the same seeds and reads the order from its log;
politeness is off, so that only the order differs. It prints the share of the pages' PageRank(0.85) that was gathered
after a part of the fetches, and its mean over the first of them and over all.

The bound takes the best pages first whether they are known or not; nothing can be better. Orders on a link graph are
compared by ``scrapy aopic simulate``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from scrapy_aopic.lab.comparison import gather, means, shares
from scrapy_aopic.lab.graphs import pagerank
from scrapy_aopic.lab.results import format_shares

PROJECT = Path(__file__).parents[1] / "example_project"
sys.path.insert(0, str(PROJECT))

from demo_web import DemoWeb, served
from demo_web.server_log import read_log

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


def demo(args: argparse.Namespace) -> None:
    web = DemoWeb()
    urls, links = web.graph()
    number_of = {url: number for number, url in enumerate(urls)}
    indptr = np.concatenate([[0], np.cumsum([len(targets) for targets in links])])
    rank = pagerank(indptr, np.array([target for targets in links for target in targets]))
    rank /= rank.sum()
    gathered: dict[str, np.ndarray] = {}
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
            with served(log=log) as proxy:
                subprocess.run(command, cwd=PROJECT, env={**os.environ, "http_proxy": proxy}, check=True)
            entries = [entry for entry in read_log(log) if entry.target != "/robots.txt"]
        entries.sort(key=lambda entry: entry.start)
        fetched = [number_of.get(f"http://{entry.host}{entry.target}") for entry in entries]
        outside[name] = sum(page is None for page in fetched)
        # A fetch of what is no page of the graph (an error, the trap) gathers nothing.
        order = [len(urls) if page is None else page for page in fetched]
        seen: set[int] = set()
        order = [page if page not in seen and not seen.add(page) else len(urls) for page in order]  # type: ignore[func-returns-value]
        gathered[name] = gather(order, np.append(rank, 0.0), args.pages)
    gathered["bound"] = gather(np.argsort(-rank), rank, args.pages)
    print(f"\ndemo web: {len(urls)} pages, {len(web.seeds)} seeds, {args.pages} fetches\n")
    print(format_shares({name: [(shares(each), means(each))] for name, each in gathered.items()}))
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
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()

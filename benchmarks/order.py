"""How early important pages are fetched: ours beside Scrapy's LIFO and FIFO, in real crawls.

    python benchmarks order demo [--pages 5000]
    python benchmarks order graphs FOLDER [--only cnr-2000 ...] [--results FOLDER] [--jobs 2]

``demo`` runs three crawls of the demo web of example_project from the same seeds and reads the order from its log;
politeness is off, so that only the order differs. It prints the share of the pages' PageRank(0.85) that was gathered
after a part of the fetches, and its mean over the first of them and over all.

The bound takes the best pages first whether they are known or not; nothing can be better. ``true-pagerank`` takes the best
of the pages that are known.

``graphs`` runs every ``scrapy aopic simulate`` of docs/order-evidence.md on the graphs in a folder, and puts its tables and pictures
there. It is for a change of the order ``aopic``: with ``--results``, what was measured is kept in a folder, and of what is
there already, only that order is crawled anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import record

from scrapy_aopic.lab.comparison import best_known_first, gather, means, shares
from scrapy_aopic.lab.graphs import Graph, pagerank
from scrapy_aopic.lab.results import format_shares
from scrapy_aopic.web.origins import host_name

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
    indices = np.array([target for targets in links for target in targets])
    graph = Graph("demo web", indptr, indices, [host_name(url) for url in urls], urls)
    seeds = [number_of[url] for url in web.seeds]
    rank = pagerank(indptr, indices)
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
    gathered["true-pagerank"] = gather([*best_known_first(graph, rank, seeds)], rank, args.pages)
    print(f"\ndemo web: {len(urls)} pages, {len(web.seeds)} seeds, {args.pages} fetches\n")
    print(format_shares({name: [(shares(each), means(each))] for name, each in gathered.items()}))
    print()
    for name, n in outside.items():
        print(f"{name}: {n} requests were for errors, forbidden or endless pages")


DOCS = PROJECT.parent / "docs"


def graphs(args: argparse.Namespace) -> None:
    text = (DOCS / "order-evidence.md").read_text(encoding="utf-8")
    for command in dict.fromkeys(command for _, command in record.commands(text)):
        words = shlex.split(command)
        graph = Path(next((word for word in words if word.endswith(".npz")), "")).stem
        if words[:3] != ["scrapy", "aopic", "simulate"] or graph not in (args.only or [graph]):
            continue
        if not (args.folder / f"{graph}.npz").exists():
            continue
        print(f"\n$ {command}", flush=True)
        words[0] = str(Path(sys.executable).with_name("scrapy"))
        for number, word in enumerate(words):
            if words[number - 1] == "--plot":
                words[number] = str(DOCS / "order" / word)
            elif (args.folder / word).is_file():
                words[number] = str(args.folder / word)
        with tempfile.TemporaryDirectory() as folder:
            if args.results is not None:
                name = re.sub(r"[^\w.]+", "-", command.removeprefix("scrapy aopic simulate "))
                words = with_results(words, args.results / f"{name}.jsonl", Path(folder, "others.jsonl"))
            record.run([*words, "--jobs", str(args.jobs)], command)


def with_results(words: list[str], kept: Path, others: Path) -> list[str]:
    """The command *words*, which is to write *kept*, or if that is there, to crawl only ``aopic`` and take *others* from it."""
    if not kept.exists():
        return [*words, "--json", str(kept)]
    lines = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    others.write_text(
        "".join(line for line in lines if json.loads(line)["order"] != "aopic"), encoding="utf-8"
    )
    anew = [
        word for word, before in zip(words, ["", *words], strict=False) if "--order" not in (word, before)
    ]
    return [*anew, "--order", "aopic", "--beside", str(others)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(required=True)
    kind = kinds.add_parser("demo")
    kind.add_argument("--pages", type=int, default=5000)
    kind.set_defaults(run=demo)
    kind = kinds.add_parser("graphs")
    kind.add_argument("folder", type=Path)
    kind.add_argument("--only", nargs="+", help="names of graphs")
    kind.add_argument("--results", type=Path)
    kind.add_argument("--jobs", type=int, default=1, help="processes (1)")
    kind.set_defaults(run=graphs)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()

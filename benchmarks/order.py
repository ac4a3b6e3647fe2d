"""How early important pages are fetched: ours beside Scrapy's LIFO and FIFO, in real crawls.

    python benchmarks order demo [--pages 5000]
    python benchmarks order graphs FOLDER [--only cnr-2000 ...] [--results FOLDER] [--jobs 2]
    python benchmarks order without FOLDER [--only cnr-2000 doc-sites:krb5-doc.test ...] [--rules ...] [--seeds 20]
        [--site-seeds 3] [--sets 10] [--rng 1] [--traps SETS] [--farms]

``demo`` runs three crawls of the demo web of example_project from the same seeds and reads the order from its log;
politeness is off, so that only the order differs. It prints the share of the pages' PageRank(0.85) that was gathered
after a part of the fetches, and its mean over the first of them and over all.

The bound takes the best pages first whether they are known or not; nothing can be better. ``true-pagerank`` takes the best
of the pages that are known.

``graphs`` runs every ``scrapy aopic simulate`` of docs/order-evidence.md on the graphs in a folder, and puts its tables and pictures
there. It is for a change of the order ``aopic``: with ``--results``, what was measured is kept in a folder, and of what is
there already, only that order is crawled anew.

``without`` switches off each rule and constant of ``aopic`` alone. Its table has what each is worth: the mean over the crawl and
over its first 20 %, less without it, paired over the seed sets, with 95 % intervals; of a site (GRAPH:HOST), with what each trap
takes more without it, entered early and late, with its URLs and without; and what farms of domains take more. A trap is shown if
that is a point or more. What needs texts (mirrors, endowments of copies) is no part of it.
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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import record
from farms import FETCHES, STARTS, Beside, crawl_beside
from honest import only

from scrapy_aopic.core.domain_links import DomainLinks
from scrapy_aopic.core.frontier.budgets import Budgets
from scrapy_aopic.core.frontier.host_state import HostState
from scrapy_aopic.core.order import Aopic, PageView, clicks_lower, front_queue
from scrapy_aopic.lab.comparison import (
    Setup,
    Task,
    best_known_first,
    draw_seed_sets,
    gather,
    means,
    run,
    shares,
)
from scrapy_aopic.lab.graphs import Graph, load_graph, pagerank
from scrapy_aopic.lab.planted import CHILDREN, KINDS, PlantedTrap
from scrapy_aopic.lab.results import format_shares, half_width
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


# -- without


def _by_cash(_: Aopic, page: PageView, cash: int) -> int:
    """The front queue of *page* if links did not count."""
    return front_queue(cash, page.shift - page.lowered - clicks_lower(page.clicks))


def _due_by(power: float, seeded_counts: float) -> Callable[..., float]:
    """When a domain is due if support counted by another *power*, and its part of the seeds so much."""

    def due(self: Aopic, visited: int, supporters: float, seeded: float) -> float:
        support = max(supporters, 1.0) ** power
        return (
            visited / (self.budget * support + seeded_counts * seeded)
            if visited >= self.allowance * support
            else 0.0
        )

    return due


def _by_overdraft(self: Budgets, shelf: bytes, _: int) -> list[float]:
    """Where a late site stands if the value of its pages did not count."""
    own, behind = self._overdraft(shelf)
    return [max(own, *behind, 0.0)]


def _visited(self: DomainLinks, host: HostState) -> int:
    """Visited pages by which the endowments of *host* fall if what lies behind the same link did not count."""
    return self._domains.get(self._domains.key(host)).visited


CORE = "scrapy_aopic.core."
RULES: dict[str, dict[str, Any]] = {
    "default": {},
    "root of links": {f"{CORE}order.Aopic.front_queue": _by_cash},
    "endowments": {f"{CORE}order.Aopic.uses_endowments": False},
    "less by pages of a domain": {f"{CORE}ledger._ENDOWMENT_HALF_LIFE": 1e18},
    "less by clicks": {f"{CORE}ledger.ENDOWMENT_CLICKS": 1e18},
    "a lone link is 4 clicks": {f"{CORE}pages.LONE_CLICK": 1},
    "less behind a late link": {f"{CORE}domain_links.DomainLinks.n_visited": _visited},
    "discount of hosts": {f"{CORE}order.host_class": lambda best, _: best},
    "36 clicks": {f"{CORE}order.NEAR_CLICKS": 1 << 30},
    "directories": {f"{CORE}order.Aopic.directory_pages": 0},
    "branches": {f"{CORE}order.Aopic.branch_pages": 0},
    "groups": {"scrapy_aopic.lab.comparison.group_of": lambda _: b""},
    "branches: support": {f"{CORE}branches._SUPPORT": 0.0},
    "branches: from 64 pages": {f"{CORE}order.Aopic.branch_pages": 1},
    "branches: a hundredth": {f"{CORE}branches._PART": 0.0},
    "branches: 16 queues": {f"{CORE}branches.QUEUES": 4},
    "branches: 2 queues for each doubling": {f"{CORE}branches._DOUBLED": 0},
    "8 are lowered before one is taken": {f"{CORE}frontier.frontier._MOST_LOWERED": 2},
    "budgets of domains": {f"{CORE}order.Aopic.due": lambda *_: 0.0},
    "budgets of links": {f"{CORE}domains.FAMILY": 0},
    "support to the power of 1.5": {f"{CORE}order.Aopic.due": _due_by(1.0, 1.0)},
    "20 pages are free": {f"{CORE}order.Aopic.allowance": 1.0},
    "seeds are support": {f"{CORE}order.Aopic.due": _due_by(1.5, 0.0)},
    "links: 5 budgets": {
        f"{CORE}{each}.FAMILY": 1 for each in ("domains", "domain_links", "frontier.budgets")
    },
    "8 sponsors": {f"{CORE}sponsors.MAX_SPONSORS": 1},
    "6 levels, 8 hops": {f"{CORE}sponsors.MAX_LEVEL": 1, f"{CORE}sponsors._MAX_HOPS": 2},
    "4 walks": {f"{CORE}sponsors._MAX_WALKS": 1},
    "a 64th is small": {f"{CORE}{each}.SMALL": 1 << 60 for each in ("sponsors", "frontier.budgets")},
    "late sites by value": {f"{CORE}frontier.budgets.Budgets.excess": _by_overdraft},
}
"""What is exchanged to switch off each rule of the default."""

BESIDE = [
    Beside(*each, 3, 400, False) for each in product(STARTS[1:], ("chain", "mesh"), ("domains", "sites"))
]

AMONG_DOMAINS = (
    "less behind a late link",
    "discount of hosts",
    *[*RULES][[*RULES].index("budgets of domains") :],
)
"""Rules that decide nothing on a graph with one host."""


def without(args: argparse.Namespace) -> None:
    rules = ["default", *(each for each in args.rules or RULES if each != "default")]
    table: dict[str, list[str]] = {rule: [] for rule in rules}
    heads: list[str] = []

    def column(head: str, tried: list[str], crawls: Mapping[str, Crawled], sets: int, show: Show) -> None:
        """Add a column: what *show* makes of the results of *crawls*, functions of the number of a seed set, by traps."""
        heads.append(head)
        found: dict[str, Found] = {}
        for rule in tried:
            with ExitStack() as stack:
                for target, value in RULES[rule].items():
                    stack.enter_context(patch(target, value))
                found[rule] = {
                    trap: [each(number) for number in range(sets)] for trap, each in crawls.items()
                }
        for rule, row in table.items():
            row.append(show(found[rule], found["default"], rule == "default") if rule in found else "")

    def crawls(name: str, setup: Setup, trap: PlantedTrap | None = None) -> Crawled:
        n_seeds = args.site_seeds if ":" in name else args.seeds
        seed_sets = draw_seed_sets(setup.graph, n_seeds, args.sets, args.rng)
        return lambda number: _crawled(setup, seed_sets[str(number)], trap)

    for name in args.only or [each.stem for each in sorted(args.folder.glob("*.npz"))]:
        graph = _graph(args.folder, name)
        tried = [each for each in rules if each not in AMONG_DOMAINS or len(set(graph.hosts)) > 1]
        column(f"{name}: mean; first 20 %", tried, {"": crawls(name, Setup(graph))}, args.sets, _worth)
        for called, site, kinds in (
            (name, Setup(graph), KINDS),
            (f"{name} without URLs", Setup(replace(graph, urls=[])), CHILDREN),
        ):
            if args.traps and ":" in name:
                traps = [PlantedTrap(kind, entered=when) for when in ("early", "late") for kind in kinds]
                by_trap = {f"{each.kind} {each.entered}": crawls(name, site, each) for each in traps}
                column(f"{called}: traps", tried, by_trap, args.traps, _taken)
    if args.farms:
        farms = {str(case): partial(_beside, case) for case in BESIDE}
        column("farms beside sites", rules, farms, 1, _taken)
    print(f"| without | {' | '.join(heads)} |\n|{'---|' * (1 + len(heads))}")
    for rule, row in table.items():
        print(f"| {rule} | {' | '.join(row)} |")


def _graph(folder: Path, name: str) -> Graph:
    """The graph called *name* in *folder*, or the site of it that is named behind a colon."""
    stem, _, host = name.partition(":")
    urls, hosts = folder / f"{stem}.urls.gz", folder / f"{stem}.pseudo_host.npy"
    graph = load_graph(
        folder / f"{stem}.npz", urls=urls if urls.exists() else None, hosts=hosts if hosts.exists() else None
    )
    return only(graph, host) if host else graph


def _crawled(setup: Setup, seeds: list[int], trap: PlantedTrap | None) -> list[float]:
    """The means over the crawl and its first 20 %; of a *trap* what it took, and what was missed for it."""
    done = run(setup, Task("aopic", "", seeds, trap))
    if done.violations:
        raise SystemExit("\n".join(done.violations))
    return [done.mean[1.0], done.mean[0.2]] if trap is None else [done.trapped, done.missed]


def _beside(case: Beside, _: int) -> list[float]:
    """What a farm takes beside honest sites, while one of these might be asked."""
    return [crawl_beside(case, FETCHES)[1]]


Crawled = Callable[[int], list[float]]
Found = Mapping[str, list[list[float]]]
Show = Callable[[Found, Found, bool], str]


def _worth(found: Found, default: Found, is_default: bool) -> str:
    """What the default has, or what a rule is worth."""
    if is_default:
        return "; ".join(f"{mean:.4f}" for mean in np.mean(found[""], 0))
    less = (np.asarray(default[""]) - np.asarray(found[""])).T.tolist()
    return "; ".join(
        f"{np.mean(each):+.4f} ± {half_width(each):.4f}" if len(each) > 1 else f"{each[0]:+.4f}"
        for each in less
    )


def _taken(found: Found, default: Found, is_default: bool) -> str:
    """What traps take, and how much more that is than of the default: those that take a point more or less."""
    told = []
    for trap, each in found.items():
        (now, *missed), before = np.mean(each, 0), np.mean(default[trap], 0)
        if is_default or abs(now - before[0]) >= 0.01:
            change = "" if is_default else f" ({now - before[0]:+.3f})"
            told.append(
                f"{trap} {now:.3f}{change}{f', missed {missed[0]:.3f}' if missed and missed[0] >= 0.01 else ''}"
            )
    return "; ".join(told)


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
    kind = kinds.add_parser("without")
    kind.add_argument("folder", type=Path)
    kind.add_argument("--only", nargs="+", help="names of graphs, and GRAPH:HOST of single sites")
    kind.add_argument("--rules", nargs="+", choices=RULES, help="which are switched off (all)")
    for option, default in {"seeds": 20, "site-seeds": 3, "sets": 10, "rng": 1, "traps": 0}.items():
        kind.add_argument(f"--{option}", type=int, default=default, help="(%(default)s)")
    kind.add_argument("--farms", action="store_true", help="with farms beside honest sites, too")
    kind.set_defaults(run=without)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()

"""How close the estimates come to true PageRank, and what windows are worth once the graph has changed.

    python benchmarks/estimates.py GRAPH.npz ... [--rng 1 2 3] [--visits 1 2 5] [--json FILE] [--plot FILE.svg]
    python benchmarks/estimates.py --sums

The production ledger on a link graph (CSR arrays ``indptr``, ``indices``) whose pages are all known from the start and
are visited again and again, as in the paper: equal cash at first, a share of 0.15 for the virtual page, no endowment,
and a virtual page that hands the same to every page. For that, each page enters the ledger's class of visited pages by
a visit that spends nothing. With these the estimates tend to PageRank(0.85).

Orders:

* ``greedy``: the best front queue of cash as of now, first in, first out; the virtual page whenever it holds more than
  the best page;
* ``cycle``: all pages in turn, then the virtual page;
* ``random``: any page, or the virtual page, at random.

The first table has the distance (L1) of the estimates to PageRank, their mean relative error on the top 1 % of the
pages, the residual (L1) of the importance vector, and its bound 2/|H|. For the second, 10 % of the pages get other
links, at random, after --before visits a page; it has the distance to the PageRank of the new graph for each window:
by what it made of each page at its last visit, as production reads it; as it would be if the page were visited now; and
from history + cash.

--sums needs no graph: it recrawls a web of 24 pages on a virtual clock, with each kind of window, and adds up the
importances of all pages as ``scrapy aopic top`` has them; also after a page died, after two were made one, and in three
shards.

Each run ends with a count of every unit: the cash there is, and what each page got and spent.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.ledger import TOTAL, Ledger, Totals
from scrapy_aopic.core.order import Opic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.records import Link, Page, PageState, host_key, page_key
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.core.shard import Shard, ShardId
from scrapy_aopic.core.window import Window
from scrapy_aopic.lab.graphs import load_graph, pagerank
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import top_pages

SHARE = 0.15
CHANGED = 0.1
FOREVER = Window(1e18)
WINDOWS = {
    "none": FOREVER,
    **{
        f"{kind} {size}": Window(size, kind)
        for kind in ("interpolation", "fixed", "variable", "ewma")
        for size in (2, 4, 8, 16)
    },
}
READINGS = ("last visit", "as of now", "history + cash")

Links = list[list[int]]


class Flow:
    """The production ledger on a graph, and a record of its own of what each page got and spent.

    Attributes:
        log: The visits: page, units spent, virtual time.
    """

    def __init__(self, links: Links) -> None:
        self.links = links
        self.n = n = len(links)
        self.ledger = Ledger(Totals(), FOREVER, share=SHARE, spending="visited")
        self.initial = TOTAL // n
        self.pages = [Page(PageState.VISITED, number) for number in range(n)]
        for page in self.pages:
            self.ledger.admit(page, self.initial)
            self.ledger.totals.virtual -= self.initial
        for page in self.pages:
            self.ledger.visit(page, 0, (), 0, 0.0)
        self.received = [0] * n
        self.spent = [0] * n
        self.handed = 0
        self.log: list[tuple[int, int, float]] = []

    def visit(self, number: int) -> list[int]:
        """Visit a page; returns the pages that it paid."""
        page, targets = self.pages[number], self.links[number]
        self.ledger.catch_up(page)
        spent = page.cash
        units = self.ledger.visit(page, spent, [1] * len(targets), len(targets), 0.0)
        self.spent[number] += spent
        self.log.append((number, spent, self.ledger.totals.turn))
        for target, each in zip(targets, units, strict=True):
            paid = self.pages[target]
            self.ledger.catch_up(paid)
            paid.cash += each
            self.received[target] += each
        return targets

    def visit_virtual(self, rival: int = -1) -> None:
        """Visit the virtual page if it holds more than *rival* units."""
        before = self.ledger.totals.virtual
        if self.ledger.spend_virtual(rival):
            each, rest = divmod(before - self.ledger.totals.virtual, self.n)
            assert not rest, "the virtual page hands the same to each page"
            self.handed += each

    def cash(self) -> list[int]:
        return [self.ledger.cash(page) for page in self.pages]

    def audit(self) -> None:
        """Conservation, and for each page: what it had and got is what it spent and has; to the unit."""
        cash = self.cash()
        assert sum(cash) + self.ledger.totals.virtual == TOTAL, "cash was made or lost"
        for received, spent, left in zip(self.received, self.spent, cash, strict=True):
            assert self.initial + received + self.handed == spent + left, "a page's account does not add up"
        assert sum(self.spent) == self.ledger.totals.distributed
        assert self.handed * self.n == self.ledger.totals.virtual_distributed

    def estimate(self) -> np.ndarray:
        """(H + C) / (|H| + total), of the pages alone."""
        return normalised([self.ledger.importance(page) for page in self.pages])

    def residual(self) -> tuple[float, float]:
        """L1 norm of Z - L'Z for Z = (H + C) / (|H| + total) with the virtual page, and its bound 2/|H|."""
        totals = self.ledger.totals
        virtual = (totals.virtual_distributed + totals.virtual) / TOTAL
        held = np.array([spent + left for spent, left in zip(self.spent, self.cash(), strict=True)]) / TOTAL
        flow = np.full(self.n, virtual / self.n)
        to_virtual = 0.0
        for page, targets in enumerate(self.links):
            to_virtual += held[page] * (SHARE if targets else 1.0)
            flow[targets] += held[page] * (1 - SHARE) / max(len(targets), 1)
        turns = (totals.distributed + totals.virtual_distributed) / TOTAL
        residual = (np.abs(held - flow).sum() + abs(virtual - to_virtual)) / (turns + 1)
        assert residual <= 2 / turns, "the residual is beyond its bound"
        return float(residual), 2 / turns


# -- orders: each yields the pages to visit, and visits the virtual page by itself


def greedy(flow: Flow, rng: np.random.Generator) -> Iterator[int]:
    queues: list[deque[tuple[int, int]]] = [deque() for _ in range(TOTAL.bit_length() + 1)]
    place = [-1] * flow.n
    entry = [0] * flow.n  # number of a page's latest entry; what is left of earlier ones is passed over

    def look(number: int) -> None:
        level = flow.ledger.cash(flow.pages[number]).bit_length()
        if level != place[number]:
            place[number] = level
            entry[number] += 1
            queues[level].append((number, entry[number]))

    everyone = rng.permutation(flow.n).tolist()
    for number in everyone:
        look(number)
    looked_at = 0
    while True:
        if (
            flow.handed - looked_at
        ) * 8 > flow.initial:  # what was handed out moves pages that nobody touched
            looked_at = flow.handed
            for number in everyone:
                look(number)
        for queue in reversed(queues):
            while queue and entry[queue[0][0]] != queue[0][1]:
                queue.popleft()
            if queue:
                break
        number, _ = queue.popleft()
        flow.visit_virtual(flow.ledger.cash(flow.pages[number]))
        targets = flow.links[number]
        yield number
        place[number] = -1
        look(number)
        for target in targets:
            look(target)


def cycle(flow: Flow, rng: np.random.Generator) -> Iterator[int]:
    everyone = rng.permutation(flow.n).tolist()
    while True:
        yield from everyone
        flow.visit_virtual()


def at_random(flow: Flow, rng: np.random.Generator) -> Iterator[int]:
    while True:
        for number in rng.integers(flow.n + 1, size=flow.n).tolist():
            if number == flow.n:
                flow.visit_virtual()
            else:
                yield number


ORDERS: dict[str, Callable[[Flow, np.random.Generator], Iterator[int]]] = {
    "greedy": greedy,
    "cycle": cycle,
    "random": at_random,
}


# -- what is measured


def normalised(weights: list[Any]) -> np.ndarray:
    result = np.array(weights, float)
    result /= result.sum()
    return result


def distance(estimate: np.ndarray, rank: np.ndarray) -> float:
    return float(np.abs(estimate - rank).sum())


def true_rank(links: Links) -> np.ndarray:
    indptr = np.concatenate([[0], np.cumsum([len(targets) for targets in links])])
    return pagerank(indptr, np.array([target for targets in links for target in targets], int))


def estimates(
    links: Links, rank: np.ndarray, order: str, rng: int, visits: list[float]
) -> list[dict[str, float]]:
    """How good the estimates are after each number of *visits* a page."""
    flow = Flow(links)
    turn = ORDERS[order](flow, np.random.default_rng(rng))
    top = np.argsort(-rank)[: max(flow.n // 100, 1)]
    rows = []
    done = 0
    for each in sorted(visits):
        while done < each * flow.n:
            flow.visit(next(turn))
            done += 1
        flow.log.clear()
        estimate = flow.estimate()
        residual, bound = flow.residual()
        rows.append(
            {
                "rng": rng,
                "visits": each,
                "turns": flow.ledger.totals.turn,
                "distance": distance(estimate, rank),
                "top_error": float((np.abs(estimate - rank)[top] / rank[top]).mean()),
                "residual": residual,
                "bound": bound,
            }
        )
    flow.audit()
    return rows


def rewired(links: Links, rng: np.random.Generator) -> Links:
    """*links*, where a tenth of the pages have as many links to other pages."""
    n, changed = len(links), list(links)
    for page in rng.choice(n, int(n * CHANGED), replace=False).tolist():
        others = rng.choice(n - 1, len(links[page]), replace=False)
        changed[page] = (others + (others >= page)).tolist()
    return changed


def windows(
    links: Links, rank: np.ndarray, order: str, rng: int, *, before: int, after: int
) -> dict[str, dict[str, list[float]]]:
    """Distances to the true PageRank by window and reading: at the change, and after each visit a page since.

    What a window counts has no effect on where cash goes, so one run serves all: its visits are told to each.
    """
    random = np.random.default_rng(rng)
    flow = Flow(links)
    turn = ORDERS[order](flow, random)
    shadows = {name: [Page(PageState.VISITED, 0) for _ in links] for name in WINDOWS}
    result: dict[str, dict[str, list[float]]] = {
        name: {reading: [] for reading in READINGS} for name in WINDOWS
    }
    for name, window in WINDOWS.items():
        for page in shadows[name]:
            window.visit(page, 0, 0.0, 0.0)  # as in the ledger
    for number in range(after + 1):
        for _ in range(flow.n * (1 if number else before)):
            flow.visit(next(turn))
        cash, now = flow.cash(), flow.ledger.totals.turn
        for name, window in WINDOWS.items():
            pages = shadows[name]
            for visited, spent, instant in flow.log:
                window.visit(pages[visited], spent, instant, 0.0)
            held = list(zip(pages, cash, strict=True))
            for reading, weights in zip(
                READINGS,
                (
                    [page.history + (units if name == "none" else 0) for page, units in held],
                    [window.history(page, units, now, 0.0) for page, units in held],
                    [page.history + units for page, units in held],
                ),
                strict=True,
            ):
                result[name][reading].append(distance(normalised(weights), rank))
        flow.log.clear()
        if not number:
            flow.links = rewired(links, random)
            rank = true_rank(flow.links)
    assert [page.history for page in shadows["none"]] == [page.history for page in flow.pages]
    flow.audit()
    return result


# -- tables and a plot


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def show_estimates(found: dict[str, list[dict[str, float]]]) -> str:
    rows = []
    for order, runs in found.items():
        for visits in sorted({run["visits"] for run in runs}):
            alike = [run for run in runs if run["visits"] == visits]
            mean = {name: np.mean([run[name] for run in alike]) for name in alike[0]}
            rows.append(
                [order, f"{visits:g}N", f"{mean['turns']:.1f}"]
                + [f"{mean[name]:.3f}" for name in ("distance", "top_error", "residual", "bound")]
            )
    return table(
        ["order", "visits", "turns", "distance (L1)", "error, top 1 %", "residual", "bound 2/\\|H\\|"], rows
    )


def show_windows(found: dict[str, list[dict[str, dict[str, list[float]]]]], before: int) -> str:
    parts = []
    for order, runs in found.items():
        rows = []
        for name in WINDOWS:
            read, *others = (np.mean([run[name][reading] for run in runs], axis=0) for reading in READINGS)
            rows.append([name, *(f"{value:.3f}" for value in read), *(f"{each[-1]:.3f}" for each in others)])
        after = len(read) - 1
        head = [f"{order}: window", f"before ({before}N)", *(f"+{number}N" for number in range(1, after + 1))]
        parts.append(table([*head, *(f"+{after}N, {reading}" for reading in READINGS[1:])], rows))
    return "\n\n".join(parts)


# -- sums


SMALL = 24
SMALL_WINDOWS = {
    "8 turns": Window(),
    "20 s": Window(20.0, clock="seconds"),
    "fixed, 4 turns": Window(4.0, "fixed"),
    "variable, 8 visits": Window(8, "variable"),
    "ewma, 8 turns": Window(8.0, "ewma"),
}


class Recrawled:
    """A crawl that visits a small web again and again, one page a second, on stores in memory."""

    def __init__(self, window: Window, shards: int, *, comes_back: bool = True) -> None:
        policy = Policy(
            order=Opic(),
            politeness=Politeness(0.0, 0.0, 0.0),
            recrawl=Recrawl(1.0, 1e6) if comes_back else None,
            window=window,
            spending="visited",
            endowment=0.0,
        )
        self.now = 1e9
        self.stores = [MemoryStore() for _ in range(shards)]
        self.shards = [
            Shard(store, policy, self.now, ShardId(number, shards))
            for number, store in enumerate(self.stores)
        ]
        drawn = np.random.default_rng(1)
        hosts = [f"h{page}" for page in range(SMALL)]
        self.links = [Link(page_key(host_key(host), b""), host, host.encode()) for host in hosts]
        chances = 1 / np.arange(1, SMALL + 1)
        self.targets = [
            drawn.choice(SMALL, 4, replace=False, p=chances / chances.sum()).tolist() for _ in hosts
        ]
        self.numbers = {link.key: number for number, link in enumerate(self.links)}
        for link in self.links:
            self.shards[0].seed(link, self.now)

    def run(self, seconds: int, *, dead: int = -1, same: int = -1) -> None:
        """Visit pages for so long; the page *dead* is gone by now, and the page *same* is page 0."""
        for second in range(seconds):
            self.now += 1
            for shard in self.shards[second % len(self.shards) :] + self.shards:
                lease = shard.lease(self.now)
                if isinstance(lease, Lease):
                    self._visit(shard, lease, dead, same)
                    break
            for number, shard in enumerate(self.shards):
                self.stores[number].write(shard.take_changes(self.now), sync=True)
                shard.changes_landed()
                for to in shard.mail_waiting():
                    self.shards[to].receive(shard.letters(to, n=1000), self.now)
                for sender, last in shard.mail_received().items():
                    self.shards[sender].acknowledged(number, last)

    def _visit(self, shard: Shard, lease: Lease, dead: int, same: int) -> None:
        page = self.numbers[lease.key]
        shard.release(lease, self.now)
        found = Findings(version=Version(b"%d" % self.now))
        links = [self.links[target] for target in self.targets[page] if target != page]
        if page == dead:
            found, links = Findings(outcome="http 404", is_failure=True), []
        elif page == same:
            found, links = Findings(outcome="redirect", same_as=self.links[0].key), [self.links[0]]
        shard.settle(lease, links, self.now, found)

    def sum(self) -> float:
        """What the importances of all pages add up to."""
        for store in self.stores:
            violations = audit(store).violations
            assert not violations, violations
        return math.fsum(row.importance for row in top_pages(View(self.stores), SMALL, everything=True))


def show_sums() -> str:
    rows = []
    for name, window in SMALL_WINDOWS.items():
        sums = []
        for shards in (1, 3):
            crawl = Recrawled(window, shards)
            crawl.run(300)
            sums.append(crawl.sum())
            crawl.run(100, dead=5)
            sums.append(crawl.sum())
            crawl.run(100, dead=5, same=7)
            sums.append(crawl.sum())
        rows.append([name, *(f"{each:.3f}" for each in sums)])
    once = Recrawled(Window(), 1, comes_back=False)
    once.run(300)
    rows.append(["each page once", f"{once.sum():.3f}", *[""] * 5])
    cases = ("all live", "one died", "two made one")
    return table(["window", *cases, *(f"{case}, 3 shards" for case in cases)], rows)


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(4.5 * len(found), 3.6), layout="constrained")
    for axes, (graph, results) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        for order, runs in results["estimates"].items():
            visits = sorted({run["visits"] for run in runs})
            values = [np.mean([run["distance"] for run in runs if run["visits"] == each]) for each in visits]
            axes.plot(visits, values, label=order, marker="o")
        axes.set(title=graph, xlabel="visits a page", ylabel="distance to PageRank (L1)", yscale="log")
        axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", type=Path)
    parser.add_argument("--sums", action="store_true", help="what the importances of all pages add up to")
    parser.add_argument("--rng", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--visits", nargs="+", type=float, default=[1, 2, 5], help="visits a page")
    parser.add_argument("--before", type=int, default=3, help="visits a page before the graph changes")
    parser.add_argument("--after", type=int, default=3, help="visits a page after it; 0 for no windows")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    if args.sums:
        print(show_sums())
    found: dict[str, dict[str, Any]] = {}
    for path in args.graphs:
        graph = load_graph(path)
        links = [[target for target in graph.out_links(page) if target != page] for page in range(len(graph))]
        rank = true_rank(links)
        results: dict[str, Any] = {"pages": len(links), "estimates": {}, "windows": {}}
        for order in tqdm(args.orders, desc=path.stem, leave=False, disable=None):
            for rng in args.rng:
                results["estimates"].setdefault(order, []).extend(
                    estimates(links, rank, order, rng, args.visits)
                )
                if args.after and order != "random":
                    results["windows"].setdefault(order, []).append(
                        windows(links, rank, order, rng, before=args.before, after=args.after)
                    )
        found[path.stem] = results
        print(f"\n{path.stem}: N = {len(links):,} pages, rng {', '.join(map(str, args.rng))}\n")
        print(show_estimates(results["estimates"]))
        if results["windows"]:
            print(f"\n{path.stem}, {CHANGED:.0%} of the pages with other links after {args.before}N visits\n")
            print(show_windows(results["windows"], args.before))
    if args.json:
        args.json.write_text(json.dumps({"rng": args.rng, "graphs": found}, indent=1), encoding="utf-8")
    if args.plot:
        plot(found, args.plot)


if __name__ == "__main__":
    main()

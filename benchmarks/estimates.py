"""How close the estimates come to true PageRank, and what windows are worth once the graph has changed.

    python benchmarks/estimates.py GRAPH.npz ... [--rng 1 2 3] [--visits 1 2 5] [--json FILE] [--plot FILE.svg]

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
links, at random, after --before visits a page; it has the distance to the PageRank of the new graph for each window,
from the history as it would be if the page were visited now, and from history + cash.

Each run ends with a count of every unit: the cash there is, and what each page got and spent.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from scrapy_aopic.core.ledger import TOTAL, Ledger, Totals
from scrapy_aopic.core.records import Page, State
from scrapy_aopic.core.window import Window
from scrapy_aopic.lab.graphs import load_graph, pagerank

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
READINGS = ("as of now", "history + cash")

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
        self.pages = [Page(State.VISITED, number) for number in range(n)]
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
    shadows = {name: [Page(State.VISITED, 0) for _ in links] for name in WINDOWS}
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
            now, plain = (np.mean([run[name][reading] for run in runs], axis=0) for reading in READINGS)
            rows.append([name, *(f"{value:.3f}" for value in now), f"{plain[0]:.3f}", f"{plain[-1]:.3f}"])
        after = len(now) - 1
        head = [f"{order}: window", f"before ({before}N)", *(f"+{number}N" for number in range(1, after + 1))]
        parts.append(table([*head, "before, history + cash", f"+{after}N, history + cash"], rows))
    return "\n\n".join(parts)


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
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--rng", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--visits", nargs="+", type=float, default=[1, 2, 5], help="visits a page")
    parser.add_argument("--before", type=int, default=3, help="visits a page before the graph changes")
    parser.add_argument("--after", type=int, default=3, help="visits a page after it; 0 for no windows")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
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

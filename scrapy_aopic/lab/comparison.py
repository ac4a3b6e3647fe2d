"""Compares crawl orders on a link graph: how much of the pages' PageRank they gather how early.

Every order starts from the same seed sets. Its *share* after some fetches is the part of the true PageRank(0.85)
of all pages that can be reached from the seeds which the fetched pages have; *mean* is the mean of that share
over the crawl. Beside the orders of a crawl stand two references, which know the true PageRank: ``bound`` takes
the best pages first whether they are known or not, and nothing can be better; ``true-pagerank`` takes the best
of the pages that are known, which is no bound.
"""

from __future__ import annotations

import heapq
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scrapy_aopic.core.order import ORDERS
from scrapy_aopic.settings import read_policy

from .simulation import Graph, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from scrapy_aopic.core.policy import Policy

PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Parts of the fetches after which the share is told."""

REFERENCES = ("bound", "true-pagerank")
ALL = (*ORDERS, *REFERENCES)

_CURVE = np.linspace(0, 1, 201)
_DASHES: tuple[Literal["-", "-.", ":"], ...] = ("-", "-.", ":")
_SIGMA = 0.5
"""Standard deviation of the logarithm of the transfer times."""


@dataclass(frozen=True)
class Pacing:
    """Polite crawling on the virtual clock.

    Attributes:
        connections: Transfers that may be under way at once.
        transfers: Seconds that the transfer of each page takes.
    """

    connections: int
    transfers: NDArray[np.float64]


@dataclass(frozen=True)
class Setup:
    """What all runs of a comparison share.

    Attributes:
        rank: True PageRank of each page.
        settings: Settings of the crawls, but for ``AOPIC_ORDER``.
        fetches: Fetches at most; ``None`` for all pages that can be reached.
        pacing: ``None`` for hosts that may always be asked.
    """

    graph: Graph
    rank: NDArray[np.float64]
    settings: dict[str, Any]
    fetches: int | None = None
    pacing: Pacing | None = None

    def n_fetches(self, seeds: Sequence[int]) -> int:
        """Fetches of a crawl from *seeds*."""
        reachable = int(self.graph.reachable(seeds).sum())
        return min(self.fetches or reachable, reachable)


@dataclass(frozen=True)
class Run:
    """What came of one order from one seed set.

    Attributes:
        share: Share after each of :data:`PARTS`.
        mean: Mean of the share over the crawl.
        curve: Share after evenly spaced parts of the fetches, from none to all.
        seconds: Processor time.
        fetches: Fetches that there could be.
        virtual_seconds: When the last transfer ended, if hosts were paced.
        idle_though_due: Part of the connections' time that a due host was left waiting for nothing.
        violations: What did not hold at the end of the crawl.
    """

    share: list[float]
    mean: float
    curve: NDArray[np.float64]
    seconds: float
    fetches: int
    virtual_seconds: float = 0.0
    idle_though_due: float = 0.0
    violations: list[str] = field(default_factory=list)


def draw_seed_sets(pages: int, seeds: int, sets: int, rng: int) -> list[list[int]]:
    """*sets* times *seeds* different pages, at random; one set does not depend on how many there are."""
    return [
        np.random.default_rng([rng, number]).choice(pages, seeds, replace=False).tolist()
        for number in range(sets)
    ]


def draw_transfers(pages: int, median: float, rng: int) -> NDArray[np.float64]:
    """Seconds that the transfer of each page takes: lognormal with *median*."""
    return median * np.exp(_SIGMA * np.random.default_rng(rng).standard_normal(pages))


def policy_of(settings: dict[str, Any], order: str) -> Policy:
    """The policy of a crawl in *order*, anew for each crawl, since an order may remember things.

    Raises:
        SettingError: If *order* is none, or a setting cannot be used.
    """
    policy = read_policy({**settings, "AOPIC_ORDER": order})
    return replace(policy, connections=0)  # orders are compared without room kept for fast hosts


def gather(
    order: Sequence[int] | NDArray[np.integer[Any]], rank: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    """Share of *rank* that was gathered after 1, 2 ... *n* fetches; a crawl that ended before gathers no more."""
    gathered = np.cumsum(rank[np.asarray(order, np.int64)])[:n]
    last = gathered[-1] if len(gathered) else 0.0
    return np.concatenate([gathered, np.full(n - len(gathered), last)])


def shares(gathered: NDArray[np.float64]) -> list[float]:
    """What was gathered after :data:`PARTS` of the fetches."""
    n = len(gathered)
    return [float(gathered[max(int(part * n) - 1, 0)]) for part in PARTS]


# -- running


def compare(
    setup: Setup,
    orders: Sequence[str],
    seed_sets: Sequence[Sequence[int]],
    *,
    jobs: int = 1,
    progress: Callable[[int], object] = lambda _: None,
) -> dict[str, list[Run]]:
    """Run each of *orders* from each of *seed_sets*.

    Args:
        jobs: Processes; with more than one, *progress* hears of whole runs only.
        progress: Called with numbers of fetches that were made since the last call.

    Returns:
        For each order its runs, one a seed set.
    """
    runs: dict[str, list[Run]] = {order: [] for order in orders}
    tasks = [(order, seeds) for seeds in seed_sets for order in orders]
    if jobs == 1:
        for order, seeds in tasks:
            runs[order].append(run(setup, order, seeds, progress))
        return runs
    # Forked processes would inherit the thread of the progress bar.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _enter, (setup,)) as pool:
        for (order, _), done in zip(tasks, pool.map(_run, tasks), strict=True):
            runs[order].append(done)
            progress(done.fetches)
    return runs


_setup: Setup
"""What a process of :func:`compare` was given once for all its runs."""


def _enter(setup: Setup) -> None:
    global _setup  # noqa: PLW0603
    _setup = setup


def _run(task: tuple[str, Sequence[int]]) -> Run:
    return run(_setup, *task)


def run(
    setup: Setup, order: str, seeds: Sequence[int], progress: Callable[[int], object] = lambda _: None
) -> Run:
    """Visit the graph from *seeds* in *order*: that of a crawl, or one of :data:`REFERENCES`."""
    begin = time.process_time()
    graph, pacing = setup.graph, setup.pacing
    reachable = graph.reachable(seeds)
    true = np.where(reachable, setup.rank, 0.0)
    true /= true.sum()
    n = setup.n_fetches(seeds)
    simulation = None
    if order == "bound":
        fetched = np.argsort(-true, kind="stable")[:n]
        progress(n)
    else:
        if order == "true-pagerank":
            pages = _best_known_first(graph, true, seeds)
        else:
            transfer = pacing.transfers.tolist().__getitem__ if pacing is not None else None
            simulation = Simulation(
                graph.out_links,
                graph.hosts.__getitem__,
                seeds,
                n,
                policy_of(setup.settings, order),
                transfer=transfer,
                connections=pacing.connections if pacing is not None else 1,
            )
            pages = (visit.page for visit in simulation.run())
        fetched = np.fromiter(_counted(pages, n, progress), np.int64)
    seconds = time.process_time() - begin
    gathered = gather(fetched, true, n)
    return Run(
        share=shares(gathered),
        mean=float(gathered.mean()),
        curve=np.interp(_CURVE * n, np.arange(n + 1), np.concatenate([[0.0], gathered])),
        seconds=seconds,
        fetches=n,
        virtual_seconds=simulation.now if simulation is not None else 0.0,
        idle_though_due=simulation.idle_though_due if simulation is not None else 0.0,
        violations=simulation.violations() if simulation is not None else [],
    )


def _counted(pages: Iterator[int], n: int, progress: Callable[[int], object]) -> Iterator[int]:
    """The first *n* of *pages*, telling *progress* of every thousand."""
    told = number = 0
    for number, page in zip(range(1, n + 1), pages, strict=False):
        yield page
        if number - told == 1000:
            progress(1000)
            told = number
    progress(number - told)


def _best_known_first(graph: Graph, rank: NDArray[np.float64], seeds: Sequence[int]) -> Iterator[int]:
    """Of the pages that are known, the one with the highest *rank* next."""
    cost = (-rank).tolist()
    known = np.zeros(len(graph), bool)
    known[list(seeds)] = True
    waiting = [(cost[page], page) for page in dict.fromkeys(seeds)]
    heapq.heapify(waiting)
    while waiting:
        _, page = heapq.heappop(waiting)
        yield page
        links = graph.indices[graph.indptr[page] : graph.indptr[page + 1]]
        for target in np.unique(links[~known[links]]).tolist():
            heapq.heappush(waiting, (cost[target], target))
        known[links] = True


# -- showing


def report(setup: Setup, seed_sets: Sequence[Sequence[int]], runs: dict[str, list[Run]]) -> dict[str, Any]:
    """Everything that was measured, as plain values for JSON."""
    result: dict[str, Any] = {
        "graph": setup.graph.name,
        "pages": len(setup.graph),
        "links": len(setup.graph.indices),
        "fetches": [done.fetches for done in next(iter(runs.values()))],
        "seed_sets": [list(seeds) for seeds in seed_sets],
        "policies": {
            name: {
                "share": {
                    str(part): [done.share[number] for done in each] for number, part in enumerate(PARTS)
                },
                "mean": [done.mean for done in each],
                "seconds": [done.seconds for done in each],
            }
            for name, each in runs.items()
        },
    }
    if setup.pacing is not None:
        result["politeness"] = {
            name: {
                "virtual_seconds": [done.virtual_seconds for done in each],
                "idle_though_due": [done.idle_though_due for done in each],
            }
            for name, each in runs.items()
            if name not in REFERENCES
        }
    return result


def format_shares(rows: dict[str, list[list[float]]]) -> str:
    """A table of rows of shares after :data:`PARTS` with their mean over the crawl, each averaged over its runs."""
    lines = [
        "| order | " + " | ".join(f"{part:.0%}" for part in PARTS) + " | mean |",
        "|---|" + "---|" * (len(PARTS) + 1),
    ]
    lines += [
        f"| {name} | " + " | ".join(f"{value:.3f}" for value in np.mean(values, axis=0)) + " |"
        for name, values in rows.items()
    ]
    return "\n".join(lines)


def format_comparison(setup: Setup, seed_sets: Sequence[Sequence[int]], runs: dict[str, list[Run]]) -> str:
    """All tables: shares, the first order against every other, and what politeness made of it."""
    fetches = sorted({done.fetches for each in runs.values() for done in each})
    head = (
        f"{setup.graph.name}: {len(setup.graph):,} pages, {len(setup.graph.indices):,} links; "
        f"seed sets: {len(seed_sets)} of {len(seed_sets[0])} pages; fetches: {fetches[0]:,}"
        + (f" to {fetches[-1]:,}" if len(fetches) > 1 else "")
    )
    parts = [head, format_shares({name: [[*r.share, r.mean] for r in each] for name, each in runs.items()})]
    first, *others = runs
    if others:
        lines = [f"| {first}, less | mean over the crawl | 95 %, paired |", "|---|---|---|"]
        for name in others:
            gain = [one.mean - other.mean for one, other in zip(runs[first], runs[name], strict=True)]
            interval = f"± {half_width(gain):.4f}" if len(gain) > 1 else "one seed set"
            lines.append(f"| {name} | {np.mean(gain):+.4f} | {interval} |")
        parts.append("\n".join(lines))
    crawls = {name: each for name, each in runs.items() if name not in REFERENCES}
    if setup.pacing is not None and crawls:
        lines = ["| order | virtual seconds | idle though due | CPU seconds |", "|---|---|---|---|"]
        for name, each in crawls.items():
            virtual, idle, seconds = np.mean(
                [(r.virtual_seconds, r.idle_though_due, r.seconds) for r in each], axis=0
            )
            lines.append(f"| {name} | {virtual:,.1f} | {idle:.3g} | {seconds:.1f} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean of *values*, at least two, by Student's t."""
    n = len(values)
    return student_t(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)


def student_t(freedom: int) -> float:
    """The number within which (either sign) Student's t with *freedom* degrees lies with probability 0.95.

    By bisection of the series 26.7.3 and 26.7.4 in Abramowitz and Stegun, "Handbook of Mathematical Functions".
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        is_odd = freedom % 2
        term = math.cos(angle) if is_odd else 1.0
        total = 0.0
        for k in range(is_odd, freedom - 1, 2):
            total += term
            term *= (k + 1) / (k + 2) * math.cos(angle) ** 2
        inside = math.sin(angle) * total
        if is_odd:
            inside = (angle + inside) * 2 / math.pi
        low, high = (angle, high) if inside < 0.95 else (low, angle)
    return math.tan(low) * math.sqrt(freedom)


def plot(path: Path, runs: dict[str, list[Run]]) -> None:
    """Draw the share over the fetches, averaged over the seed sets; the kind of picture is that of the file name."""
    from matplotlib import rc_context  # noqa: PLC0415  # only who draws needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context({"svg.hashsalt": "scrapy-aopic", "font.size": 9}):
        figure = Figure(figsize=(7.5, 4.5), layout="constrained")
        axes = figure.add_subplot(
            xlabel="part of the fetches", ylabel="share of the reachable PageRank", xlim=(0, 1), ylim=(0, 1)
        )
        best_first = sorted(runs.items(), key=lambda item: -_mean(item[1]))
        for number, (name, each) in enumerate(best_first):
            (line,) = axes.plot(_CURVE, np.mean([done.curve for done in each], axis=0), linewidth=1.4)
            line.set_label(f"{name}  {_mean(each):.3f}")
            line.set_linestyle(_DASHES[number // 10 % len(_DASHES)])  # there are ten colours
            if name == "bound":
                line.set(color="black", linestyle="--")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", title="order, mean", frameon=False)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)


def _mean(each: list[Run]) -> float:
    return float(np.mean([done.mean for done in each]))

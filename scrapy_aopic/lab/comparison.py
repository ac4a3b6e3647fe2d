"""Compares crawl orders on a link graph: how much of the pages' PageRank they gather how early.

Every order starts from the same seed sets. Its *share* after some fetches is the part of the true PageRank(0.85)
of all pages that can be reached from the seeds which the fetched pages have; *mean* is the mean of that share
over the crawl. Beside the orders of a crawl stand two references, which know the true PageRank: ``bound`` takes
the best pages first whether they are known or not, and nothing can be better; ``true-pagerank`` takes the best
of the pages that are known, which is no bound.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scrapy_aopic.core.order import ORDERS
from scrapy_aopic.settings import read_policy

from .graphs import Graph
from .simulation import Simulation
from .workers import SharedSimulation, Sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_aopic.core.policy import Policy


PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Parts of the fetches after which the share is reported."""

REFERENCES = ("bound", "true-pagerank")
ALL = (*(name for name, order in ORDERS.items() if not order.values_links), *REFERENCES)

CURVE = np.linspace(0, 1, 201)
"""Parts of the fetches at which a curve is known."""

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
    """The inputs that all runs of a comparison share.

    Attributes:
        rank: True PageRank of each page.
        settings: Settings of the crawls, but for ``AOPIC_ORDER``.
        fetches: Most fetches; ``None`` for all pages that can be reached.
        pacing: Gaps and connections; ``None`` if hosts may always be requested.
        sharing: Crawls that several workers share, by the names that they have among the orders.
    """

    graph: Graph
    rank: NDArray[np.float64]
    settings: dict[str, Any]
    fetches: int | None = None
    pacing: Pacing | None = None
    sharing: Mapping[str, Sharing] = field(default_factory=dict)

    def n_fetches(self, seeds: Sequence[int]) -> int:
        """Fetches of a crawl from *seeds*."""
        reachable = int(self.graph.reachable(seeds).sum())
        return min(self.fetches or reachable, reachable)


@dataclass(frozen=True)
class Run:
    """The result of one order from one seed set.

    Attributes:
        share: Share after each of :data:`PARTS`.
        mean: Mean of the share over the crawl.
        curve: Share after evenly spaced parts of the fetches, from none to all.
        seconds: Processor time.
        fetches: Fetches that there could be.
        virtual_seconds: When the last transfer ended, if hosts were paced.
        idle_though_due: Part of the connections' time that a due host was left waiting for nothing.
        violations: Invariants that did not hold at the end of the crawl.
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
    """The policy of a crawl in *order*, a new one for each crawl, since an order may have state.

    Raises:
        SettingError: If *order* is not an order, or a setting cannot be used.
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
    """The shares gathered after :data:`PARTS` of the fetches."""
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
"""The inputs that a process of :func:`compare` gets once for all its runs."""


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
    simulation: Simulation | None = None
    shared: SharedSimulation | None = None
    if order == "bound":
        fetched = np.argsort(-true, kind="stable")[:n]
        progress(n)
    else:
        if order == "true-pagerank":
            pages = _best_known_first(graph, true, seeds)
        elif (sharing := setup.sharing.get(order)) is not None:
            policy = partial(policy_of, setup.settings, sharing.order)
            shared = SharedSimulation(
                graph.out_links, graph.hosts.__getitem__, seeds, n, policy=policy, sharing=sharing
            )
            pages = shared.run()
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
        curve=np.interp(CURVE * n, np.arange(n + 1), np.concatenate([[0.0], gathered])),
        seconds=seconds,
        fetches=n,
        virtual_seconds=simulation.now if simulation is not None else 0.0,
        idle_though_due=simulation.idle_though_due if simulation is not None else 0.0,
        violations=crawl.violations() if (crawl := simulation or shared) is not None else [],
    )


def _counted(pages: Iterator[int], n: int, progress: Callable[[int], object]) -> Iterator[int]:
    """The first *n* of *pages*, calling *progress* for every thousand."""
    reported = number = 0
    for number, page in zip(range(1, n + 1), pages, strict=False):
        yield page
        if number - reported == 1000:
            progress(1000)
            reported = number
    progress(number - reported)


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

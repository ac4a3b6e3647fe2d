"""Compares crawl orders on a link graph: how much of the pages' PageRank they gather how early.

Every order starts from the same seed sets. Its *share* after some fetches is the part of the true PageRank(0.85)
of all pages that can be reached from the seeds which the fetched pages have; *mean* is the mean of that share
over the crawl, or over the first fetches of it: nobody finishes a broad crawl. Beside the orders of a crawl stand two
references, which know the true PageRank: ``bound`` takes the best pages first whether they are known or not, and nothing
can be better; ``true-pagerank`` takes the best of the pages that are known, which is no bound.

    setup = Setup(load_graph("webkb-1997.npz", urls="webkb-1997.urls.gz"))
    for run in compare(setup, ["aopic", "opic"], draw_seed_sets(setup.graph)):
        print(run.order, run.seed_set, run.share[0.1], run.mean[0.1], run.mean[1.0])
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrapy_aopic.core.order import ORDERS
from scrapy_aopic.settings import read_policy
from scrapy_aopic.version import __version__
from scrapy_aopic.web.request_rows import directory_of, group_of

from .graphs import Graph, pagerank
from .planted import PlantedTrap, plant
from .simulation import Simulation, page_of
from .url_order import UrlOrder
from .workers import SharedSimulation, Sharing

if TYPE_CHECKING:
    from scrapy_aopic.core.policy import Policy


PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Parts of the fetches after which the share is reported."""

MEANS = (0.1, 0.2, 0.3, 1.0)
"""Parts of the fetches, from the first on, over which the mean of the share is reported."""

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

    def transfer(self, page: int) -> float:
        """Seconds that the transfer of *page* takes; a page of a trap takes what some other takes."""
        return float(self.transfers[page % len(self.transfers)])


@dataclass(frozen=True)
class Setup:
    """The inputs that all runs of a comparison share.

    Attributes:
        settings: Settings of the crawls, but for ``AOPIC_ORDER``.
        fetches: Most fetches; ``None`` for all pages that can be reached.
        pacing: Gaps and connections; ``None`` if hosts may always be requested.
        sharing: Crawls that several workers share, by the names that they have among the orders.
        rank: True PageRank of each page.
    """

    graph: Graph
    settings: Mapping[str, Any] = field(default_factory=dict)
    fetches: int | None = None
    pacing: Pacing | None = None
    sharing: Mapping[str, Sharing] = field(default_factory=dict)
    rank: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", pagerank(self.graph.indptr, self.graph.indices))

    def n_fetches(self, seeds: Sequence[int]) -> int:
        """Fetches of a crawl from *seeds*."""
        reachable = int(self.graph.reachable(seeds).sum())
        return min(self.fetches or reachable, reachable)


class Task(NamedTuple):
    """What to run.

    Attributes:
        order: Order of a crawl, or one of :data:`REFERENCES`.
        seed_set: Name of the seed set.
        seeds: Numbers of pages.
        trap: What is planted; ``None`` for nothing.
    """

    order: str
    seed_set: str
    seeds: Sequence[int]
    trap: PlantedTrap | None


@dataclass(frozen=True)
class Run:
    """The result of one order from one seed set: a line of the file that ``--json`` names.

    Attributes:
        order: Its name.
        seed_set: Name of the seed set.
        trap: The endless trap that was planted; ``""`` for none.
        trapped: Part of the fetches that it took.
        missed: With a trap, the part of the real pages that were not fetched after twice as many fetches.
        share: Share after each of :data:`PARTS`.
        mean: Mean of the share over each of :data:`MEANS`.
        curve: Share after evenly spaced parts of the fetches, from none to all (:data:`CURVE`).
        seconds: Processor time.
        fetches: Fetches that there could be.
        virtual_seconds: When the last transfer ended, if hosts were paced.
        idle_though_due: Part of the connections' time that a due host was left waiting for nothing.
        violations: Invariants that did not hold at the end of the crawl, a sentence each.
        graph: Name of the graph.
        pages: Its pages.
        links: Its links.
        skipped: Its pages whose URLs have no host, which are in no crawl.
        seeds: Numbers of the pages that the crawl started from.
        settings: Settings of the crawl.
        version: Version of this package.
    """

    order: str
    seed_set: str
    trap: str
    trapped: float
    missed: float
    share: dict[float, float]
    mean: dict[float, float]
    curve: list[float]
    seconds: float
    fetches: int
    virtual_seconds: float
    idle_though_due: float
    violations: list[str]
    graph: str
    pages: int
    links: int
    skipped: int
    seeds: list[int]
    settings: dict[str, str]
    version: str = __version__


def draw_seed_sets(graph: Graph, seeds: int = 20, sets: int = 10, rng: int = 1) -> dict[str, list[int]]:
    """*sets* times *seeds* different pages of *graph*, at random, by name; one set does not depend on how many there are."""
    return {
        str(number): np.random.default_rng([rng, number]).choice(graph.known, seeds, replace=False).tolist()
        for number in range(sets)
    }


def draw_transfers(pages: int, median: float, rng: int) -> NDArray[np.float64]:
    """Seconds that the transfer of each page takes: lognormal with *median*."""
    return median * np.exp(_SIGMA * np.random.default_rng(rng).standard_normal(pages))


def policy_of(settings: Mapping[str, Any], order: str, url_of: Callable[[int], str] | None = None) -> Policy:
    """The policy of a crawl in *order*, a new one for each crawl, since an order may have state.

    Args:
        url_of: URL of a page by its number, by which pages are in directories; ``None`` to count no directories.

    Raises:
        SettingError: If *order* is not an order, or a setting cannot be used.
    """
    policy = read_policy({**settings, "AOPIC_ORDER": order})

    def by_url(function: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        return lambda request: function(url_of(page_of(request)).encode()) if url_of is not None else b""

    return replace(
        policy,
        connections=0,  # orders are compared without room kept for fast hosts
        directory_of=by_url(directory_of) if url_of is not None else None,
        group_of=by_url(group_of),
    )


def gather(
    order: Sequence[int] | NDArray[np.integer[Any]], rank: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    """Share of *rank* that was gathered after 1, 2 ... *n* fetches; a crawl that ended before gathers no more."""
    gathered = np.cumsum(rank[np.asarray(order, np.int64)])[:n]
    last = gathered[-1] if len(gathered) else 0.0
    return np.concatenate([gathered, np.full(n - len(gathered), last)])


def shares(gathered: NDArray[np.float64]) -> dict[float, float]:
    """The shares gathered after each of :data:`PARTS` of the fetches."""
    return {part: float(gathered[_fetches(gathered, part) - 1]) for part in PARTS}


def means(gathered: NDArray[np.float64]) -> dict[float, float]:
    """The means of the shares gathered in the first of the fetches, up to each of :data:`MEANS`."""
    return {part: float(gathered[: _fetches(gathered, part)].mean()) for part in MEANS}


def _fetches(gathered: NDArray[np.float64], part: float) -> int:
    return max(int(part * len(gathered)), 1)


# -- running


def compare(
    setup: Setup,
    orders: Sequence[str],
    seed_sets: Mapping[str, Sequence[int]],
    *,
    traps: Sequence[PlantedTrap] = (),
    jobs: int = 1,
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[Run]:
    """Run each of *orders* from each of *seed_sets*.

    Args:
        seed_sets: Numbers of pages, by name.
        traps: Each crawl is made again with each of these traps, a reference is not.
        jobs: Processes; with more than one, *progress* hears of whole runs only.
        progress: Called with numbers of fetches that were made since the last call.

    Yields:
        Each run when it is over: all orders from the first seed set, then from the next.
    """
    tasks = [
        Task(order, name, seeds, trap)
        for name, seeds in seed_sets.items()
        for order in orders
        for trap in (None, *(traps if order not in REFERENCES else ()))
    ]
    if jobs == 1:
        for task in tasks:
            yield run(setup, task, progress)
        return
    # Forked processes would inherit the thread of the progress bar.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _enter, (setup,)) as pool:
        for done in pool.map(_run, tasks):
            progress(done.fetches)
            yield done


_setup: Setup
"""The inputs that a process of :func:`compare` gets once for all its runs."""


def _enter(setup: Setup) -> None:
    global _setup  # noqa: PLW0603
    _setup = setup


def _run(task: Task) -> Run:
    return run(_setup, task)


def run(setup: Setup, task: Task, progress: Callable[[int], object] = lambda _: None) -> Run:
    """Visit the graph as *task* says."""
    begin = time.process_time()
    order, seed_set, seeds, trap = task
    graph, pacing = setup.graph, setup.pacing
    web = plant(graph, trap, seeds, np.random.default_rng(list(seeds))) if trap is not None else graph
    url_of = web.url_of if graph.urls else None
    reachable = graph.reachable(seeds)
    true = np.where(reachable, setup.rank, 0.0)
    true /= true.sum()
    n = setup.n_fetches(seeds)
    most = n if trap is None else 2 * n
    simulation: Simulation | None = None
    shared: SharedSimulation | None = None
    if order == "bound":
        fetched = np.argsort(-true, kind="stable")[:n]
        progress(n)
    else:
        if order == "true-pagerank":
            pages = best_known_first(graph, true, seeds)
        elif (sharing := setup.sharing.get(order)) is not None:
            policy = partial(policy_of, setup.settings, sharing.order, url_of)
            shared = SharedSimulation(web.out_links, web.host_of, seeds, most, policy=policy, sharing=sharing)
            pages = shared.run()
        else:
            transfer = pacing.transfer if pacing is not None else None
            simulation = Simulation(
                web.out_links,
                web.host_of,
                seeds,
                most,
                policy_of(setup.settings, order, url_of),
                transfer=transfer,
                connections=pacing.connections if pacing is not None else 1,
            )
            if isinstance(simulation.policy.order, UrlOrder):
                simulation.policy.order.begin(web.url_of, simulation.pages)
            pages = (visit.page for visit in simulation.run())
        fetched = np.fromiter(_counted(pages, most, progress), np.int64)
    seconds = time.process_time() - begin
    gathered = gather(np.minimum(fetched, len(graph)), np.append(true, 0.0), n)  # a trap has nothing
    curve = np.interp(CURVE * n, np.arange(n + 1), np.concatenate([[0.0], gathered]))
    return Run(
        order=order,
        seed_set=seed_set,
        trap=str(trap or ""),
        trapped=float((fetched[:n] >= len(graph)).sum()) / n,
        missed=max(n - int((fetched < len(graph)).sum()), 0) / n if trap is not None else 0.0,
        share=shares(gathered),
        mean=means(gathered),
        curve=curve.round(6).tolist(),
        seconds=seconds,
        fetches=n,
        virtual_seconds=simulation.now if simulation is not None else 0.0,
        idle_though_due=simulation.idle_though_due if simulation is not None else 0.0,
        violations=crawl.violations() if (crawl := simulation or shared) is not None else [],
        graph=graph.name,
        pages=len(graph),
        links=len(graph.indices),
        skipped=len(graph) - len(graph.known),
        seeds=list(seeds),
        settings={name: str(value) for name, value in setup.settings.items()},
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


def best_known_first(graph: Graph, rank: NDArray[np.float64], seeds: Sequence[int]) -> Iterator[int]:
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

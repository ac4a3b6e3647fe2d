"""How often a cache of URLs hits, by policy, size and crawl order: Broder, Najork and Wiener (WWW 2003) on link graphs.

    python benchmarks/caches.py GRAPH.npz [...] [--plot FILE.svg] [--plot-min FILE.svg] [--json FILE]

The production ledger and frontier crawl each graph (CSR arrays ``indptr``, ``indices``) from 20 random seeds, all pages
that these lead to. The stream of a crawl has, for each page in the order of the fetches, the pages that it links to in
the order in which they are stored; links of a page to itself are left out. A cache of 2^0, 2^1, ... keys is asked for
each of them, until it is large enough for all.

* CLOCK is that of ``scrapy_aopic.core.tables``, LRU, RANDOM and STATIC those of ``cache_policies.py``. CLOCK, RANDOM and STATIC are run at each
  size; LRU is computed for all sizes in one pass, and so is MIN (tests/components/test_cache_misses.py compares both with
  runs at one size).
* MIN is the bound of Belady: of the keys in the cache and the one that was asked for, it drops that which is asked for
  the furthest in the future.
* INFINITE drops nothing: each key misses once.

Orders: ``breadth-first``, ``depth-first``, ``random`` (any known page) and ``aopic``, which ask any host at any time; and,
where hosts are known, ``aopic, polite``: 100 connections, one request to a host at a time, and a gap of ten times the
transfer, on a virtual clock. ``N hosts at once``: N hosts take turns, each breadth first; one that has no page left
gives its turn to the host that was found first of those that wait. Hosts come from the array ``host`` of the graph, or
from GRAPH.pseudo_host.npy beside it.

The tables have the median number of different hosts in 1,000 fetches in a row, and the share of all links that missed. *Bend* is the size at which the curve over log2 of the size is
the furthest below the straight line between its ends, *95 %* the smallest at which a cache has 95 % of INFINITE's hits.
A second table has the misses of each policy of the package as a multiple of MIN's. The plots are of the first graph
(--plot: the share that missed, --plot-min: that multiple), and so is a table of the processor time of a link with each policy of the package:
looking it up and using it, or a key in and a key out and, unless INFINITE misses it too, a read of the store (--read).
At the end come the times of single calls, the best of several runs, and what a record takes in memory.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappush, heappushpop
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from cache_policies import CACHES, Cache
from tqdm import tqdm

from scrapy_aopic.core.records import Page, PageState, pack_page, unpack_page
from scrapy_aopic.lab.comparison import draw_seed_sets, draw_transfers, policy_of
from scrapy_aopic.lab.graphs import Graph, load_graph
from scrapy_aopic.lab.simulation import Simulation

ORDERS = {
    "breadth-first": "breadth-first",
    "depth-first": "depth-first",
    "random": "opic-random",
    "aopic": "aopic",
}
POLITE = "aopic, polite"
CONNECTIONS = 100
AT_ONCE = (1, 4, 16, 64, 256)
POLICIES = ("lru", "clock", "random", "static", "min")
SHOWN = (0, 4, 6, 8, 10, 12, 14, 16, 18)
TIMED = (8, 10, 12, 14, 16, 18)
NOWHERE = 255


# -- crawls


def crawl(graph: Graph, seeds: Sequence[int], name: str, rng: int) -> Iterator[int]:
    """Pages in the order in which they are fetched."""
    is_polite = name == POLITE
    transfers = draw_transfers(len(graph), 0.2, rng)
    simulation = Simulation(
        graph.out_links,
        graph.hosts.__getitem__,
        seeds,
        len(graph),
        policy_of({}, ORDERS.get(name, "aopic")),
        transfer=transfers.tolist().__getitem__ if is_polite else None,
        connections=CONNECTIONS if is_polite else 1,
    )
    return (visit.page for visit in simulation.run())


def take_turns(graph: Graph, seeds: Sequence[int], at_once: int) -> Iterator[int]:
    """Pages in the order in which they are fetched, if *at_once* hosts take turns."""
    queues: dict[str, deque[int]] = {}
    turns: deque[str] = deque()
    waiting: deque[str] = deque()
    known = set(seeds)

    def queue(page: int) -> None:
        host = graph.hosts[page]
        if host not in queues:
            queues[host] = deque()
            waiting.append(host)
        queues[host].append(page)

    for page in seeds:
        queue(page)
    while turns or waiting:
        while waiting and len(turns) < at_once:
            turns.append(waiting.popleft())
        host = turns.popleft()
        page = queues[host].popleft()
        yield page
        for target in graph.out_links(page):
            if target not in known:
                known.add(target)
                queue(target)
        if queues[host]:
            turns.append(host)
        else:
            del queues[host]


def hosts_in_a_row(graph: Graph, fetched: Sequence[int]) -> int:
    """Median number of different hosts in 1,000 fetches in a row."""
    begins = range(0, max(len(fetched) - 1000, 1), 1000)
    return int(np.median([len({graph.hosts[page] for page in fetched[at : at + 1000]}) for at in begins]))


def stream_of(graph: Graph, fetched: Sequence[int]) -> list[int]:
    """Targets of the links of all fetched pages, but for links of a page to itself."""
    targets = [graph.indices[graph.indptr[page] : graph.indptr[page + 1]] for page in fetched]
    sources = np.repeat(np.asarray(fetched), [len(each) for each in targets])
    stream = np.concatenate(targets)
    found: list[int] = stream[stream != sources].tolist()
    return found


# -- caches


def largest(n_distinct: int) -> int:
    """Logarithm of the smallest size that holds *n_distinct* keys."""
    return (n_distinct - 1).bit_length()


def run(cache: Cache, stream: Sequence[bytes], size: int) -> int:
    """Misses of *cache*, kept to *size* keys: a new key comes in before one goes, as in the table of page records."""
    held: set[bytes] = set()
    add, use, victim = cache.add, cache.use, cache.victim
    misses = 0
    for key in stream:
        if key in held:
            use(key)
        else:
            misses += 1
            held.add(key)
            add((key,))
            if len(held) > size:
                held.remove(victim())
    return misses


def lru_misses(stream: Sequence[int]) -> list[int]:
    """Misses of LRU by the logarithm of the size, in one pass (Mattson and others, 1970).

    A larger cache holds what a smaller one does, so each key is on the *level* of the smallest cache that holds it.
    A key that is used comes to level 0; the oldest key of each level moves on to the next, up to where the used
    key left a place, or there is room. Keys are named by the moment of their last use.
    """
    rooms = _rooms(stream)
    queues: list[deque[int]] = [deque() for _ in rooms]
    level = bytearray(len(stream))
    last: dict[int, int] = {}
    hits = [0] * len(rooms)
    for moment, key in enumerate(stream):
        before = last.get(key)
        last[key] = moment
        found = NOWHERE
        if before is not None:
            found = level[before]
            hits[found] += 1
            level[before] = NOWHERE
        moved = moment
        for j, queue in enumerate(queues):
            queue.append(moved)
            level[moved] = j
            if j == found:
                break
            if rooms[j]:
                rooms[j] -= 1
                break
            while level[moved := queue.popleft()] == NOWHERE:
                pass
    return _misses(len(stream), hits)


def min_misses(stream: Sequence[int]) -> list[int]:
    """Misses of MIN by the logarithm of the size, in one pass as above.

    Of each level the key that is used the furthest in the future moves on. Keys are named by the moment of their
    next use, so what is left on a heap of a key that was used is too small to come to its top.
    """
    n = len(stream)
    following = [0] * n
    upcoming: dict[int, int] = {}
    for moment in range(n - 1, -1, -1):
        key = stream[moment]
        following[moment] = upcoming.get(
            key, 2 * n - moment
        )  # never: later than all others, and no two the same
        upcoming[key] = moment
    rooms = _rooms(stream)
    heaps: list[list[int]] = [[] for _ in rooms]
    level = bytearray([NOWHERE]) * (2 * n + 1)
    hits = [0] * len(rooms)
    for moment in range(n):
        moved = following[moment]
        found = level[moment]
        if found != NOWHERE:
            hits[found] += 1
        for j, heap in enumerate(heaps):
            if j == found or rooms[j]:
                heappush(heap, -moved)
                level[moved] = j
                if j != found:
                    rooms[j] -= 1
                break
            out = -heappushpop(heap, -moved)
            if out != moved:
                level[moved] = j
                moved = out
    return _misses(n, hits)


def _rooms(stream: Sequence[int]) -> list[int]:
    """How many keys the cache of each size has more than that of the size before."""
    return [1, *(1 << log for log in range(largest(len(set(stream)))))]


def _misses(n: int, hits: Sequence[int]) -> list[int]:
    return [n - int(hit) for hit in np.cumsum(hits)]


ONE_PASS = {"lru": lru_misses, "min": min_misses}


# -- measuring


def measure(
    stream: list[int], policies: Sequence[str], rng: int, progress: Callable[[str], object]
) -> dict[str, Any]:
    """Miss rates of *policies* by the logarithm of the size."""
    n, n_distinct = len(stream), len(set(stream))
    names = [page.to_bytes(4, "big") for page in range(max(stream) + 1)]
    keys = [names[page] for page in stream]
    sizes = [1 << log for log in range(largest(n_distinct))]
    rates: dict[str, list[float]] = {}
    seconds: dict[str, dict[int, float]] = {}
    for policy in policies:
        progress(policy)
        misses = ONE_PASS[policy](stream) if policy in ONE_PASS else [0] * len(sizes) + [n_distinct]
        for log, size in enumerate(sizes):
            if policy in CACHES and len(policies) > 1 and (policy not in ONE_PASS or log in TIMED):
                begin = process_time()
                found = run(CACHES[policy](random.Random(rng).random), keys, size)
                seconds.setdefault(policy, {})[log] = process_time() - begin
                assert policy not in ONE_PASS or found == misses[log]
                misses[log] = found
        rates[policy] = [each / n for each in misses]
    return {
        "links": n,
        "distinct": n_distinct,
        "infinite": n_distinct / n,
        "rates": rates,
        "seconds": seconds,
    }


def bend(rates: Sequence[float]) -> str:
    """The size at which the curve is the furthest below the line between its ends; none if it never is."""
    log = int(np.argmax(np.linspace(rates[0], rates[-1], len(rates)) - np.asarray(rates)))
    return f"{1 << log:,}" if log else "none"


def enough(rates: Sequence[float], infinite: float) -> int:
    """Logarithm of the smallest size with 95 % of the hits of INFINITE."""
    return next(log for log, rate in enumerate(rates) if 1 - rate >= 0.95 * (1 - infinite))


def costs() -> dict[str, dict[str, float]]:
    """By policy, microseconds of what is done to a cache of 100,000 keys, and bytes that it takes for each."""
    dice = random.Random(1)
    keys = [dice.randbytes(16) for _ in range(300_000)]
    inside, away, new = keys[:100_000], keys[100_000:200_000], keys[200_000:]
    # Some keys are asked for much more often than others.
    picks = [int(dice.random() ** 4 * len(inside)) for _ in range(300_000)]
    asked, asked_away = [inside[pick] for pick in picks], [away[pick] for pick in picks]
    found: dict[str, dict[str, float]] = {}
    for name, make in CACHES.items():
        row = dict.fromkeys(("in and out", "use", "use, may not go"), math.inf)
        for _ in range(5):
            cache = make(random.Random(1).random)
            tracemalloc.start()
            cache.add(inside)
            row["bytes a key"] = tracemalloc.get_traced_memory()[0] / len(inside)
            tracemalloc.stop()
            for what, sequence, step in (
                ("use", asked, cache.use),
                ("use, may not go", asked_away, cache.use),
                ("in and out", new, _replacing(make(random.Random(1).random), inside)),
            ):
                row[what] = min(
                    row[what], (_seconds(sequence, step) - _seconds(sequence)) / len(sequence) * 1e6
                )
        found[name] = row
    return found


def record_bytes() -> float:
    """Bytes that the record of a page that waits takes, with its key and its place in a dictionary."""
    dice = random.Random(1)
    packed = [
        pack_page(Page(PageState.QUEUED, dice.getrandbits(40), dice.getrandbits(40))) for _ in range(100_000)
    ]
    tracemalloc.start()
    records = {dice.randbytes(16): unpack_page(data) for data in packed}
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / len(records)


def _replacing(cache: Cache, keys: Sequence[bytes]) -> Callable[[bytes], object]:
    """Put *keys* into *cache*; returns what lets a new key in and one out."""
    add, victim = cache.add, cache.victim
    add(keys)

    def replace(key: bytes) -> None:
        add((key,))
        victim()

    return replace


def _seconds(keys: Sequence[bytes], step: Callable[[bytes], object] | None = None) -> float:
    begin = process_time()
    if step is None:
        for _ in keys:
            pass
    else:
        for key in keys:
            step(key)
    return process_time() - begin


# -- showing


def report(graph: str, results: dict[str, dict[str, Any]]) -> str:
    """A table of all miss rates at some of the sizes."""
    logs = [log for log in SHOWN if log < max(len(each["rates"]["lru"]) for each in results.values())]
    lines = [
        f"{graph}",
        "",
        "| order | hosts | policy | "
        + " | ".join(f"{1 << log:,}" for log in logs)
        + " | INFINITE | bend | 95 % |",
        "|---|---:|---|" + "---:|" * (len(logs) + 3),
    ]
    for order, result in results.items():
        for policy, rates in result["rates"].items():
            cells = [f"{rates[min(log, len(rates) - 1)]:.3f}" for log in logs]
            cells += [f"{result['infinite']:.3f}", bend(rates)]
            cells += [f"{1 << enough(rates, result['infinite']):,}"]
            lines.append(f"| {order} | {result['hosts']} | {policy.upper()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beside_min(rates: dict[str, list[float]]) -> dict[str, list[float]]:
    """Misses of each policy but MIN, at each size, as a multiple of those of MIN."""
    return {
        policy: [each / least for each, least in zip(missed, rates["min"], strict=True)]
        for policy, missed in rates.items()
        if policy != "min"
    }


def report_beside_min(graph: str, results: dict[str, dict[str, Any]]) -> str:
    """A table of :func:`beside_min` at some of the sizes, and the size at which each policy is the furthest from MIN."""
    results = {order: result for order, result in results.items() if "min" in result["rates"]}
    logs = [log for log in SHOWN if log < max(len(each["rates"]["min"]) for each in results.values())]
    lines = [
        f"{graph}: misses as a multiple of MIN's",
        "",
        "| order | policy | " + " | ".join(f"{1 << log:,}" for log in logs) + " | most | at |",
        "|---|---|" + "---:|" * (len(logs) + 2),
    ]
    for order, result in results.items():
        for policy, times in beside_min(result["rates"]).items():
            cells = [f"{times[min(log, len(times) - 1)]:.2f}" for log in logs]
            worst = int(np.argmax(times))
            cells += [f"{times[worst]:.2f}", f"{1 << worst:,}"]
            lines.append(f"| {order} | {policy.upper()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report_costs(found: dict[str, dict[str, float]]) -> str:
    """A table of :func:`costs`."""
    lines = ["| policy | " + " | ".join(found["lru"]) + " |", "|---|" + "---:|" * len(found["lru"])]
    for policy, row in found.items():
        cells = [f"{value:.0f}" if what == "bytes a key" else f"{value:.3f}" for what, value in row.items()]
        lines.append(f"| {policy.upper()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report_links(graph: str, results: dict[str, dict[str, Any]], read: float) -> str:
    """A table of the microseconds of a link."""
    lines = [f"{graph}: microseconds a link, with {read:g} for a read", ""]
    logs: list[int] = []
    for order, result in results.items():
        if not logs:
            logs = [log for log in TIMED if log in result["seconds"].get("lru", ())]
            lines.append("| order | policy | " + " | ".join(f"{1 << log:,}" for log in logs) + " |")
            lines.append("|---|---|" + "---:|" * len(logs))
        for policy, seconds in result["seconds"].items():
            rates = result["rates"][policy]
            reads = [(rates[log] - result["infinite"]) * read for log in logs]
            cells = [
                f"{seconds[log] / result['links'] * 1e6 + each:.2f}"
                for log, each in zip(logs, reads, strict=True)
            ]
            lines.append(f"| {order} | {policy.upper()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(path: Path, results: dict[str, dict[str, Any]], *, is_beside_min: bool = False) -> None:
    """Draw a panel for each order with its policies, and one of LRU by the number of hosts.

    Args:
        is_beside_min: Whether to draw misses as a multiple of MIN's, which are not known by the number of hosts.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    orders = {name: result for name, result in results.items() if len(result["rates"]) > 1}
    by_hosts = {name: result for name, result in results.items() if len(result["rates"]) == 1}
    if is_beside_min:
        by_hosts = {}
    rows = math.ceil((len(orders) + bool(by_hosts)) / 3)
    # LRU and CLOCK are nearly the same.
    styles: dict[str, dict[str, Any]] = {
        "lru": {"linewidth": 3, "alpha": 0.5},
        "min": {"color": "black", "linestyle": "--"},
    }
    with rc_context({"svg.hashsalt": "scrapy-aopic", "font.size": 9}):
        figure = Figure(figsize=(9, 2.8 * rows), layout="constrained")
        places = iter(figure.subplots(rows, 3, sharex=True, sharey=True, squeeze=False).flat)
        for (name, result), axes in zip(orders.items(), places, strict=False):
            axes.set_title(name, fontsize=9, loc="left")
            curves = beside_min(result["rates"]) if is_beside_min else result["rates"]
            for policy, points in curves.items():
                axes.plot(points, label=policy.upper(), **{"linewidth": 1.2, **styles.get(policy, {})})
            if is_beside_min:
                axes.axhline(1, label="MIN", linewidth=1.2, **styles["min"])
            else:
                axes.axhline(result["infinite"], color="black", linestyle=":", linewidth=1, label="INFINITE")
        if by_hosts:
            axes = next(places)
            axes.set_title("LRU, hosts at once", fontsize=9, loc="left")
            shades = np.linspace(0.25, 1, len(by_hosts))
            for shade, (name, result) in zip(shades, by_hosts.items(), strict=True):
                label = name.partition(" ")[0]
                axes.plot(result["rates"]["lru"], linewidth=1.2, color=(0, 0.3, 0.6, shade), label=label)
            axes.legend(fontsize=7, frameon=False)
        ticks = range(0, max(len(result["rates"]["lru"]) for result in results.values()) + 1, 3)
        for axes in figure.axes:
            # STATIC is several times worse than the others, which a linear scale would press into one line.
            axes.set(xticks=ticks, xticklabels=[f"$2^{{{log}}}$" for log in ticks])
            axes.set(**({"yscale": "log"} if is_beside_min else {"ylim": (0, 1)}))
            if is_beside_min:
                axes.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"], minor=False)
                axes.minorticks_off()
            axes.grid(alpha=0.3)
        for axes in places:
            axes.set_axis_off()
        figure.supxlabel("keys in the cache", fontsize=9)
        share = "misses as a multiple of MIN's" if is_beside_min else "share of the links that miss"
        figure.supylabel(share, fontsize=9)
        lines = figure.axes[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside upper center", ncols=6, frameon=False)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def crawls(graph: Graph, n_seeds: int, rng: int) -> Iterator[tuple[str, tuple[str, ...], list[int]]]:
    """The name of each crawl of *graph*, policies to measure, and pages in the order in which they are fetched."""
    (seeds,) = draw_seed_sets(graph, n_seeds, 1, rng).values()
    n = int(graph.reachable(seeds).sum())
    n_hosts = len(set(graph.hosts))
    for name in (*ORDERS, *((POLITE,) if n_hosts > 1 else ())):
        pages = crawl(graph, seeds, name, rng)
        yield name, POLICIES, list(tqdm(pages, f"crawl {name}", n, leave=False, disable=None))
    for at_once in AT_ONCE if n_hosts > 1 else ():
        yield f"{at_once} hosts at once", ("lru",), list(take_turns(graph, seeds, at_once))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="+", type=Path, help=".npz files as for scrapy aopic simulate")
    parser.add_argument("--seeds", type=int, default=20, help="random pages that a crawl begins with (20)")
    parser.add_argument(
        "--rng", type=int, default=1, help="seed of the dice for seeds, transfers and RANDOM (1)"
    )
    parser.add_argument("--read", type=float, default=7.0, help="microseconds of a read of the store (7)")
    parser.add_argument("--plot", type=Path, help="draw the first graph")
    parser.add_argument("--plot-min", type=Path, help="the same beside MIN")
    parser.add_argument("--json", type=Path, help="write everything that was measured to this file, too")
    args = parser.parse_args()
    everything: dict[str, dict[str, dict[str, Any]]] = {}
    for path in args.graphs:
        hosts = path.with_suffix(".pseudo_host.npy")
        graph = load_graph(path, hosts=hosts if hosts.exists() else None)
        results = everything[graph.name] = {}
        with tqdm(unit="caches", desc=graph.name, disable=None) as bar:
            for order, policies, fetched in crawls(graph, args.seeds, args.rng):

                def progress(policy: str, order: str = order) -> None:
                    bar.set_postfix_str(f"{order}, {policy}")
                    bar.update()

                found = measure(stream_of(graph, fetched), policies, args.rng, progress)
                results[order] = {"hosts": hosts_in_a_row(graph, fetched), **found}
        links = max(result["links"] for result in results.values())
        print(f"\n{report(f'{graph.name}: {len(graph):,} pages, {links:,} links followed', results)}\n")
        print(f"\n{report_beside_min(graph.name, results)}\n")
    first = next(iter(everything))
    print(f"\n{report_links(first, everything[first], args.read)}\n")
    times = costs()
    print(f"{report_costs(times)}\n\nA record with its key: {record_bytes():.0f} bytes.")
    if args.plot is not None:
        plot(args.plot, everything[first])
    if args.plot_min is not None:
        plot(args.plot_min, everything[first], is_beside_min=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"graphs": everything, "costs": times}) + "\n")


if __name__ == "__main__":
    main()

"""``scrapy aopic simulate``: orders compared on a link graph."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import check_counts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.lab.comparison import Run, Setup
    from scrapy_aopic.lab.graphs import Graph
    from scrapy_aopic.lab.planted import PlantedTrap
    from scrapy_aopic.lab.workers import Sharing

MEANING = (
    "Crawl a link graph in several orders and compare them. With the ledger and the frontier of real crawls on a virtual "
    "clock; shows how quickly each order collects the pages' PageRank."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph",
        metavar="GRAPH",
        type=Path,
        help="list of links (.txt, .tsv), or .npz file with indptr, indices and maybe host",
    )
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--hosts", metavar="FILE", type=Path, help=".npy file with the number of each page's host"
    )
    known.add_argument(
        "--urls", metavar="FILE", type=Path, help="text file, maybe .gz, with each page's URL, one a line"
    )
    parser.add_argument(
        "--order",
        metavar="NAME",
        action="append",
        help="order of the crawl as for AOPIC_ORDER, or the reference bound or true-pagerank; may be repeated, and "
        "the first is compared with the others (default: all)",
    )
    parser.add_argument(
        "--fetches", metavar="N", type=int, help="fetches of a crawl (default: all reachable pages)"
    )
    parser.add_argument("--seeds", metavar="N", type=int, default=20, help="seeds of a set (default: 20)")
    parser.add_argument(
        "--seed-sets", metavar="N", type=int, default=10, help="seed sets, drawn at random (default: 10)"
    )
    parser.add_argument(
        "--seed-pages",
        metavar="NAME=LIST",
        action="append",
        help="a seed set, instead of random ones: numbers of pages, such as 3,14,15, or URLs with --urls; may be repeated, "
        "each with a name",
    )
    parser.add_argument(
        "--rng", metavar="K", type=int, default=1, help="seed of the random numbers (default: 1)"
    )
    parser.add_argument(
        "--trap",
        metavar="KIND",
        action="append",
        help="make each crawl again with an endless trap, such as chain or facets; may be repeated",
    )
    parser.add_argument(
        "--trap-on",
        metavar="WHERE",
        default="real-host",
        help="with --trap: what its pages are on (default: real-host)",
    )
    parser.add_argument(
        "--trap-directories",
        metavar="WHERE",
        default="one",
        help="with --trap: which directories its pages are in (default: one)",
    )
    parser.add_argument(
        "--trap-links-back",
        action="store_true",
        help="with --trap: its pages link to the page before them, and to the first entry",
    )
    parser.add_argument(
        "--trap-entered",
        metavar="WHEN",
        default="anywhere",
        help="with --trap on a real host: from pages near the seeds or far from them: early, late or anywhere (default: anywhere)",
    )
    parser.add_argument(
        "--entries",
        metavar="N",
        type=int,
        default=3,
        help="with --trap: real pages that link to it (default: 3)",
    )
    parser.add_argument(
        "--politeness", action="store_true", help="pace hosts, as AOPIC_POLITENESS_FACTOR etc. say"
    )
    parser.add_argument(
        "--connections",
        metavar="N",
        type=int,
        default=100,
        help="with --politeness: transfers at once (default: 100)",
    )
    parser.add_argument(
        "--transfer",
        metavar="SECONDS",
        type=float,
        default=0.2,
        help="with --politeness: median of the transfer times (default: 0.2)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        action="append",
        help="also crawl in the first order with a job in shards that N workers share; may be repeated",
    )
    parser.add_argument(
        "--shards", metavar="N", type=int, default=64, help="with --workers: shards of the job (default: 64)"
    )
    parser.add_argument(
        "--late",
        metavar="N",
        type=int,
        default=500,
        help="with --workers: fetches of all workers between two commits, by which mail is late (default: 500)",
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="processes (default: 1)")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write what was measured: a line of JSON as each crawl ends"
    )
    parser.add_argument(
        "--beside", metavar="FILE", type=Path, help="results of an earlier run (--json) to compare with, too"
    )
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="draw the shares over the fetches: .svg or .png"
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from tqdm import tqdm

    _check_options(opts)
    _check_extras(opts)
    from scrapy_aopic.lab import comparison, results
    from scrapy_aopic.storage.store_folder import writing

    given = {
        str(name): settings[name]
        for name in settings
        if str(name).startswith("AOPIC_") or name == "DOWNLOAD_DELAY"
    }
    orders = list(dict.fromkeys(opts.order or comparison.ALL))
    for order in orders:
        if order not in comparison.REFERENCES:
            _check_order(order, comparison.policy_of(given, order))  # reported before the long work
    sharing = _sharing(opts, orders, given)
    traps = _traps(opts)
    setup = _setup(opts, given, sharing)
    orders += sharing
    seed_sets = _seed_sets(opts, setup.graph)
    earlier = results.read_runs(opts.beside, setup, orders, seed_sets) if opts.beside else []
    n_crawls = len(orders) + len(traps) * sum(order not in comparison.REFERENCES for order in orders)
    total = sum(setup.n_fetches(seeds) for seeds in seed_sets.values()) * n_crawls
    done = []
    with tqdm(total=total, unit=" pages", unit_scale=True, disable=None) as line:
        made = comparison.compare(setup, orders, seed_sets, traps=traps, jobs=opts.jobs, progress=line.update)
        for each in _written(made, opts.json):
            line.set_postfix_str(f"{each.order}, seed set {each.seed_set}: mean {each.mean[1.0]:.3f}")
            done.append(each)
    runs = results.by_order([*done, *earlier])
    write(results.format_comparison(runs))
    if traps:
        write(f"\n{results.format_traps([*done, *earlier])}")
    if opts.plot:
        bound = runs.get("bound") or list(comparison.compare(setup, ["bound"], seed_sets))
        kind = opts.plot.suffix.removeprefix(".")
        with _telling(opts.plot), writing(opts.plot) as picture:
            results.plot(picture, kind, {**runs, "bound": bound})
    return _say_violations(done)


def _written(runs: Iterator[Run], path: Path | None) -> Iterator[Run]:
    """The *runs*, each of which is written to *path*, if any, as it comes."""
    from scrapy_aopic.lab.results import as_json
    from scrapy_aopic.storage.named_files import open_given

    if path is None:
        yield from runs
        return
    with _telling(path):
        file = open_given(path, "wb")
    with file:
        for run in runs:
            with _telling(path):
                file.write(as_json(run))
                file.flush()
            yield run


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """What is done with *path* may fail, as a sentence."""
    from scrapy_aopic.exceptions import AopicError, plainly

    try:
        yield
    except OSError as error:
        raise AopicError(f"{path} cannot be written: {plainly(error)}.") from error


def _check_extras(opts: argparse.Namespace) -> None:
    from importlib.util import find_spec

    for module in ("numpy", *(("matplotlib",) if opts.plot else ())):
        if find_spec(module) is None:
            raise UsageError(f"simulate needs {module}: pip install {module}")


def _check_order(name: str, policy: Policy) -> None:
    from scrapy_aopic.lab.url_order import UrlOrder

    if isinstance(policy.order, UrlOrder) and policy.recrawl is not None:
        raise UsageError(f"{name} sees URLs only at first visits: it cannot be combined with AOPIC_RECRAWL")


def _sharing(opts: argparse.Namespace, orders: list[str], given: dict[str, Any]) -> dict[str, Sharing]:
    """The crawls that workers share, by their names in the tables."""
    from scrapy_aopic.core.order import BatchOrder
    from scrapy_aopic.lab import comparison
    from scrapy_aopic.lab.url_order import UrlOrder
    from scrapy_aopic.lab.workers import Sharing

    if not opts.workers:
        return {}
    first = orders[0]
    whole = (BatchOrder, UrlOrder)
    if first in comparison.REFERENCES or isinstance(comparison.policy_of(given, first).order, whole):
        raise UsageError(
            f"--workers: {first} looks at the whole graph, of which a shard has a part; let --order name another order first"
        )
    if opts.politeness:
        raise UsageError(
            "--workers cannot be combined with --politeness: workers are compared by their fetches"
        )
    if max(opts.workers) > opts.shards:
        raise UsageError(f"--workers ({max(opts.workers)}) must be at most --shards ({opts.shards})")
    counts = dict.fromkeys(opts.workers)
    return {
        f"{first}, {n} worker{'s' if n > 1 else ''}": Sharing(first, n, opts.shards, opts.late)
        for n in counts
    }


def _traps(opts: argparse.Namespace) -> list[PlantedTrap]:
    from scrapy_aopic.lab.planted import CHILDREN, DIRECTORIES, ENTERED, KINDS, PAGES, REAL, PlantedTrap

    for option, value, known in (
        *(("--trap", kind, KINDS) for kind in opts.trap or ()),
        ("--trap-on", opts.trap_on, PAGES),
        ("--trap-directories", opts.trap_directories, DIRECTORIES),
        ("--trap-entered", opts.trap_entered, ENTERED),
    ):
        if value not in known:
            raise UsageError(f"{option} ({value}) must be one of {', '.join(known)}")
    for kind in opts.trap or ():
        if kind in KINDS and kind not in CHILDREN and opts.trap_on != REAL:
            raise UsageError(f"--trap {kind} is a part of a real site: it cannot be on {opts.trap_on}")
    how = (opts.trap_on, opts.entries, opts.trap_directories, opts.trap_links_back, opts.trap_entered)
    return [PlantedTrap(kind, *how) for kind in dict.fromkeys(opts.trap or ())]


def _setup(opts: argparse.Namespace, given: dict[str, Any], sharing: dict[str, Sharing]) -> Setup:
    from scrapy_aopic.lab import comparison
    from scrapy_aopic.lab.graphs import load_graph

    graph = load_graph(opts.graph, hosts=opts.hosts, urls=opts.urls)
    pacing = None
    if opts.politeness:
        transfers = comparison.draw_transfers(len(graph), opts.transfer, opts.rng)
        pacing = comparison.Pacing(opts.connections, transfers)
    return comparison.Setup(graph, given, opts.fetches, pacing, sharing)


def _say_violations(runs: list[Run]) -> int:
    """Write what did not hold to standard error; returns the exit code."""
    wrong = [
        f"{done.order}, seed set {done.seed_set}{f', trap {done.trap}' if done.trap else ''}: {sentence}"
        for done in runs
        for sentence in done.violations
    ]
    for sentence in wrong[:20]:
        sys.stderr.write(f"{sentence}\n")
    return 1 if wrong else 0


def _check_options(opts: argparse.Namespace) -> None:
    counts = ("fetches", "seeds", "seed_sets", "entries", "connections", "shards", "late", "workers", "jobs")
    check_counts(opts, *counts)
    if opts.rng < 0:
        raise UsageError(f"--rng ({opts.rng}) must be at least 0")
    if not 0 < opts.transfer < 86400:
        raise UsageError(f"--transfer ({opts.transfer}) must be a number of seconds above 0")
    if opts.plot and opts.plot.suffix not in (".svg", ".png"):
        raise UsageError(f"--plot ({opts.plot}) must end in .svg or .png")
    for path in (opts.json, opts.plot):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def _seed_sets(opts: argparse.Namespace, graph: Graph) -> dict[str, list[int]]:
    """Numbers of pages by the name of their seed set."""
    from scrapy_aopic.lab.comparison import draw_seed_sets

    if opts.seed_pages is None:
        if opts.seeds > len(graph.known):
            raise UsageError(
                f"--seeds ({opts.seeds}) must be at most the pages of the graph in {opts.graph}, {len(graph.known)}"
            )
        return draw_seed_sets(graph, opts.seeds, opts.seed_sets, opts.rng)
    sets: dict[str, list[int]] = {}
    for number, given in enumerate(opts.seed_pages):
        name, is_named, pages = given.partition("=") if _NAMED.match(given) else ("", "", given)
        name = name if is_named else str(number)
        if name in sets:
            raise UsageError(
                f"--seed-pages: there are two seed sets called {name}; give each a name of its own"
            )
        sets[name] = _pages(pages, graph)
    return sets


_NAMED = re.compile(r"[^=/,]+=")
"""How the name of a seed set begins; a URL has slashes before the first ``=``."""


def _pages(given: str, graph: Graph) -> list[int]:
    """The numbers of the pages that *given* lists, by numbers or URLs."""
    from scrapy_aopic.settings.parse import listed, reason, shown

    by_url = {url: number for number, url in enumerate(graph.urls)}
    try:
        entries = listed(given)
    except ValueError as error:
        raise UsageError(f"--seed-pages ({given}) cannot be used{reason(error)}") from error
    pages = []
    for _, text in entries:
        if text not in by_url and not (text.isdecimal() and len(text) < 20 and int(text) < len(graph)):
            raise UsageError(
                f"--seed-pages ({given}): {shown(text)} is neither a number of a page, 0 to {len(graph) - 1}, nor the URL of one"
            )
        page = by_url[text] if text in by_url else int(text)
        if not graph.hosts[page]:
            raise UsageError(f"--seed-pages: the URL of page {page} has no host, so it is in no crawl")
        pages.append(page)
    return list(dict.fromkeys(pages))

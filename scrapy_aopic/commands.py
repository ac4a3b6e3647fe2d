"""``scrapy aopic SUBCOMMAND``: ask a job folder, also while its crawl runs."""

from __future__ import annotations

import errno
import json
import logging
import sys
from argparse import ArgumentError
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from difflib import get_close_matches
from functools import partial
from os import strerror
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from scrapy.commands import ScrapyCommand, ScrapyHelpFormatter
from scrapy.exceptions import UsageError

from .job.output import OutputError, drop, flush, write

# Scrapy loads this file at every call of any of its commands, so the rest is imported when it is needed.

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from scrapy.settings import BaseSettings

    from .core.ports import Store


class Subcommand(NamedTuple):
    """A word after ``scrapy aopic``.

    Attributes:
        meaning: What it does; its first sentence also stands in the list of subcommands.
        add_options: Adds its arguments to its parser.
        run: Does it, with the options and Scrapy's settings; returns the exit code.
    """

    meaning: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, BaseSettings], int]


class AopicCommand(ScrapyCommand):
    """Everything that is done with AOPIC crawls from the command line, but crawling."""

    requires_project = False
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        """Arguments, as shown in the usage."""
        return "|".join(SUBCOMMANDS) + " [options]"

    def short_desc(self) -> str:
        """One line for ``scrapy -h``."""
        return "Ask the job folder of an AOPIC crawl"

    def long_desc(self) -> str:
        """What ``scrapy aopic -h`` says before the list of subcommands."""
        return f"{self.short_desc()}. 'scrapy aopic SUBCOMMAND -h' shows the options of a subcommand."

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add a parser for each subcommand; Scrapy's own options come after the subcommand, too."""
        self._parsers: dict[str, argparse.ArgumentParser] = {}
        parsers = parser.add_subparsers(
            dest="subcommand", required=True, metavar="SUBCOMMAND", prog="scrapy aopic"
        )
        parsers.choices = cast("Any", _Names(SUBCOMMANDS))
        for name, subcommand in SUBCOMMANDS.items():
            own = parsers.add_parser(
                name,
                help=subcommand.meaning.partition(". ")[0],
                description=subcommand.meaning,
                formatter_class=ScrapyHelpFormatter,
                conflict_handler="resolve",
            )
            subcommand.add_options(own)
            super().add_options(own)
            self._parsers[name] = own

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run the subcommand; *args* is what no parser knew."""
        parser = self._parsers[opts.subcommand]
        if args:
            parser.error(f"there is no {' '.join(args)} here")
        assert self.settings is not None
        run = partial(SUBCOMMANDS[opts.subcommand].run, opts, self.settings)
        try:
            self.exitcode = _run(run)
        except UsageError as error:
            parser.error(str(error))  # shows the usage of this subcommand


class _Names(dict[str, Subcommand]):
    """The subcommands; knows what may have been meant by a word that is none of them."""

    def __contains__(self, word: object) -> bool:
        if super().__contains__(word):
            return True
        similar = get_close_matches(str(word), self, n=1)
        hint = f'; did you mean "{similar[0]}"?' if similar else f": they are {', '.join(self)}"
        raise ArgumentError(None, f'there is no subcommand "{word}"{hint}')


def _run(run: Callable[[], int]) -> int:
    """Exit code of *run*; every error is one sentence."""
    from .exceptions import AopicError  # noqa: PLC0415

    logging.getLogger("scrapy_aopic").addHandler(logging.NullHandler())  # else warnings go to standard error
    try:
        code = run()
        flush()
    except OutputError as error:
        drop()
        if not isinstance(error.__cause__, BrokenPipeError):  # else whoever reads has seen enough
            _say(f"The output cannot be written: {error}.")
        return 1
    except AopicError as error:
        _say(str(error))
        return 1 if _is_full(error) else 2
    except OSError as error:
        _say(f"This cannot be done: {error}.")
        return 1 if _is_full(error) else 2
    except KeyboardInterrupt:
        return 130  # as a shell says of a process that SIGINT ended
    return code


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _is_full(error: BaseException | None) -> bool:
    """Whether a disk that takes no more is behind *error*; some libraries only say so in words."""
    words = (*map(strerror, _FULL), "disk is full")  # the last are SQLite's
    while error is not None:
        if getattr(error, "errno", None) in _FULL or any(each in str(error) for each in words):
            return True
        error = error.__cause__
    return False


def _say(sentence: str) -> None:
    with suppress(OSError):  # there is nowhere to say it
        sys.stderr.write(f"{sentence}\n")


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobdir", metavar="JOBDIR", type=Path, help="job folder, the JOBDIR of the crawl")
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


@contextmanager
def _snapshot(jobdir: Path) -> Iterator[Store]:
    from .job.job import store_folder  # noqa: PLC0415
    from .storage import open_snapshot  # noqa: PLC0415

    store = open_snapshot(store_folder(jobdir))
    try:
        yield store
    finally:
        store.close()


# -- top


def _add_top_options(parser: argparse.ArgumentParser) -> None:
    _add_job_options(parser)
    parser.add_argument("-n", "--number", type=int, default=20, help="rows (default: 20)")
    parser.add_argument("--hosts", action="store_true", help="hosts instead of pages")
    parser.add_argument("--all", action="store_true", help="also redirects and pages that failed")


def _top(opts: argparse.Namespace, _: BaseSettings) -> int:
    from .job.queries import format_hosts, format_pages, top_hosts, top_pages  # noqa: PLC0415

    if opts.number < 1:
        raise UsageError(f"--number ({opts.number}) must be at least 1")
    with _snapshot(opts.jobdir) as store:
        if opts.hosts:
            rows = top_hosts(store, opts.number)
        else:
            rows = top_pages(store, opts.number, everything=opts.all)
    if opts.json:
        write(json.dumps(rows, indent=1))
    else:
        write((format_hosts if opts.hosts else format_pages)(rows))
    return 0


# -- status


def _status(opts: argparse.Namespace, _: BaseSettings) -> int:
    from .job.queries import status  # noqa: PLC0415

    with _snapshot(opts.jobdir) as store:
        state = status(store)
    if opts.json:
        write(json.dumps(state, indent=1))
    else:
        for name in ("created_at", "saved_at"):
            state[name] = datetime.fromtimestamp(state[name], timezone.utc).isoformat(" ", "seconds")
        write(_lines(state))
    return 0


def _lines(state: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in state.items():
        label = f"{indent}{str(name).replace('_', ' ')}"
        if isinstance(value, dict):
            lines.append(f"{label}:")
            lines.append(_lines(value, indent + "  ") if value else f"{indent}  none")
        elif isinstance(value, list):
            lines.append(f"{label}:")
            lines += [f"{indent}  {_row(row)}" for row in value] or [f"{indent}  none"]
        else:
            lines.append(
                f"{label}: {value:,}"
                if isinstance(value, (int, float)) and not isinstance(value, bool)
                else f"{label}: {value}"
            )
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    if "example" in row:
        return f"{row['pages']:,}, for example {row['example']}: {row['reason']}"
    until = datetime.fromtimestamp(row["until"], timezone.utc).isoformat(" ", "seconds")
    times = f", {row['in_a_row']:,} in a row" if row["in_a_row"] else ""
    return f"{row['host']} until {until}: {row['why']}{times}"


# -- check


def _check(opts: argparse.Namespace, _: BaseSettings) -> int:
    from dataclasses import asdict  # noqa: PLC0415

    from tqdm import tqdm  # noqa: PLC0415

    from .core.audit import Audit, audit  # noqa: PLC0415
    from .exceptions import StorageError  # noqa: PLC0415
    from .job.queries import count_pages  # noqa: PLC0415

    with _snapshot(opts.jobdir) as store:
        try:
            store.verify()
            with tqdm(total=count_pages(store), unit=" pages", unit_scale=True, disable=None) as line:
                result = audit(store, progress=line.update)
        except StorageError as error:
            result = Audit()
            result.expect(False, "{} 'scrapy aopic repair' mends what can be mended.", error)
    if opts.json:
        write(json.dumps({**asdict(result), "holds": result.holds}, indent=1))
    else:
        for sentence in result.violations:
            write(sentence)
        write(
            f"{result.pages:,} pages ({result.queued:,} queued, {result.visited:,} visited, {result.failed:,} failed) "
            f"on {result.hosts:,} hosts; cash of pages {result.cash:,} + virtual page {result.virtual:,} = "
            f"{result.cash + result.virtual:,} units: "
            + (
                "every invariant holds"
                if result.holds
                else f"{result.n_violations:,} violation{'s' * (result.n_violations != 1)}"
            )
        )
    return 0 if result.holds else 1


# -- backup


def _add_backup_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobdir", metavar="JOBDIR", type=Path, help="job folder, the JOBDIR of the crawl")
    parser.add_argument("dest", metavar="DEST", type=Path, help="folder to make, a job folder of its own")


def _backup(opts: argparse.Namespace, _: BaseSettings) -> int:
    from .job.upkeep import backup  # noqa: PLC0415

    write(f"{backup(opts.jobdir, opts.dest, progress=True):,} rows copied to {opts.dest}.")
    return 0


# -- repair


def _add_repair_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobdir", metavar="JOBDIR", type=Path, help="job folder, the JOBDIR of the crawl")


def _repair(opts: argparse.Namespace, _: BaseSettings) -> int:
    from .job.upkeep import repair  # noqa: PLC0415

    mended, kept = repair(opts.jobdir, progress=True)
    if mended is None:
        write("Every invariant holds: there is nothing to mend.")
        return 0
    if mended.reason:
        write(mended.reason)
    for family, n in mended.gaps.items():
        write(f"Rows of {family} could not be read in {n:,} places.")
    if not mended.has_totals:
        write("The totals are lost: the job begins with a new ledger, in the default order.")
    write(
        f"{mended.pages:,} pages on {mended.hosts:,} hosts are kept, {mended.forgotten:,} are forgotten, "
        f"{mended.again:,} wait to be visited again because only their requests are left, "
        f"{mended.parted:,} stand for themselves again; the virtual page took up {mended.cash:,} units. "
        f"The damaged store is in {kept}; remove it when you do not need it any more."
    )
    return 0


# -- seed


def _add_seed_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobdir", metavar="JOBDIR", type=Path, help="job folder, the JOBDIR of the crawl")
    parser.add_argument(
        "sources",
        metavar="FILE_OR_URL",
        nargs="+",
        help="list of seeds (one URL a line, or a table .csv or .parquet with a column url), or a URL",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out bad rows instead of refusing all")


def _seed(opts: argparse.Namespace, _: BaseSettings) -> int:
    from .job.job import store_folder  # noqa: PLC0415
    from .job.seeds import give, seeds_folder  # noqa: PLC0415
    from .storage import exists  # noqa: PLC0415

    given = give(seeds_folder(opts.jobdir), opts.sources, skip_bad=opts.skip_bad, progress=True)
    if given.bad:
        sys.stderr.write(f"Left out: {given.bad:,} bad rows. The first: {given.first_bad}\n")
    begun = "" if exists(store_folder(opts.jobdir)) else ", which has not begun"
    write(f"{given.rows:,} seeds wait for the crawl of {opts.jobdir}{begun}.")
    return 0


# -- export


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobdir", metavar="JOBDIR", type=Path, help="job folder, the JOBDIR of the crawl")
    parser.add_argument(
        "--pages", metavar="FILE", type=Path, help="write the pages: .csv, .csv.gz or .parquet"
    )
    parser.add_argument(
        "--links", metavar="FILE", type=Path, help="write the links: .csv, .csv.gz or .parquet"
    )


def _export(opts: argparse.Namespace, _: BaseSettings) -> int:
    from .job.exchange import check_export, export_links, export_pages  # noqa: PLC0415

    if not (opts.pages or opts.links):
        raise UsageError("give --pages FILE, --links FILE or both")
    for path in filter(None, (opts.links, opts.pages)):
        check_export(path)
    with _snapshot(opts.jobdir) as store:
        if opts.links:  # first, for a job may have none
            write(f"{export_links(store, opts.links, progress=True):,} links in {opts.links}")
        if opts.pages:
            write(f"{export_pages(store, opts.pages, progress=True):,} pages in {opts.pages}")
    return 0


# -- simulate


def _add_simulate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph", metavar="GRAPH", type=Path, help=".npz file with indptr, indices and maybe host"
    )
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--hosts", metavar="FILE", type=Path, help=".npy file with the number of each page's host"
    )
    known.add_argument(
        "--urls", metavar="FILE", type=Path, help="text file, maybe .gz, with each page's URL, one a line"
    )
    parser.add_argument(
        "--policy",
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
        "--seed-pages", metavar="LIST", help="numbers of pages, such as 3,14,15: the only seed set"
    )
    parser.add_argument(
        "--rng", metavar="K", type=int, default=1, help="seed of the random numbers (default: 1)"
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
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything that was measured")
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="draw the shares over the fetches: .svg or .png"
    )


def _simulate(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from importlib.util import find_spec  # noqa: PLC0415

    _check_simulate_options(opts)
    for module in ("numpy", *(("matplotlib",) if opts.plot else ())):
        if find_spec(module) is None:
            raise UsageError(f"simulate needs {module}: pip install 'scrapy-aopic[simulate]'")
    from tqdm import tqdm  # noqa: PLC0415

    from .lab import comparison  # noqa: PLC0415
    from .lab.simulation import load_graph, pagerank  # noqa: PLC0415

    given = {
        str(name): settings[name]
        for name in settings
        if str(name).startswith("AOPIC_") or name == "DOWNLOAD_DELAY"
    }
    orders = list(dict.fromkeys(opts.policy or comparison.ALL))
    for order in orders:
        if order not in comparison.REFERENCES:
            comparison.policy_of(given, order)  # a wrong name or setting is told before the long work
    graph = load_graph(opts.graph, hosts=opts.hosts, urls=opts.urls)
    seed_sets = _seed_sets(opts, len(graph))
    pacing = None
    if opts.politeness:
        pacing = comparison.Pacing(
            opts.connections, comparison.draw_transfers(len(graph), opts.transfer, opts.rng)
        )
    setup = comparison.Setup(graph, pagerank(graph.indptr, graph.indices), given, opts.fetches, pacing)
    total = sum(setup.n_fetches(seeds) for seeds in seed_sets) * len(orders)
    with tqdm(total=total, unit=" pages", unit_scale=True, disable=None) as line:
        runs = comparison.compare(setup, orders, seed_sets, jobs=opts.jobs, progress=line.update)
    write(comparison.format_comparison(setup, seed_sets, runs))
    if opts.json:
        _save(opts.json, lambda path: path.write_text(json.dumps(comparison.report(setup, seed_sets, runs))))
    if opts.plot:
        bound = runs.get("bound") or comparison.compare(setup, ["bound"], seed_sets)["bound"]
        _save(opts.plot, lambda path: comparison.plot(path, {**runs, "bound": bound}))
    wrong = [
        f"{name}, seed set {number}: {sentence}"
        for name, each in runs.items()
        for number, done in enumerate(each)
        for sentence in done.violations
    ]
    for sentence in wrong[:20]:
        sys.stderr.write(f"{sentence}\n")
    return 1 if wrong else 0


def _check_simulate_options(opts: argparse.Namespace) -> None:
    for name in ("fetches", "seeds", "seed_sets", "connections", "jobs"):
        value = getattr(opts, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} ({value}) must be at least 1")
    if opts.rng < 0:
        raise UsageError(f"--rng ({opts.rng}) must be at least 0")
    if not 0 < opts.transfer < 86400:
        raise UsageError(f"--transfer ({opts.transfer}) must be a number of seconds above 0")
    if opts.plot and opts.plot.suffix not in (".svg", ".png"):
        raise UsageError(f"--plot ({opts.plot}) must end in .svg or .png")
    for path in (opts.json, opts.plot):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def _seed_sets(opts: argparse.Namespace, pages: int) -> list[list[int]]:
    from .lab.comparison import draw_seed_sets  # noqa: PLC0415

    if opts.seed_pages is None:
        if opts.seeds > pages:
            raise UsageError(f"--seeds ({opts.seeds}) must be at most the pages of the graph, {pages}")
        return draw_seed_sets(pages, opts.seeds, opts.seed_sets, opts.rng)
    try:
        seeds = list(dict.fromkeys(int(number) for number in opts.seed_pages.split(",")))
    except ValueError as error:
        raise UsageError(f"--seed-pages ({opts.seed_pages}) must be page numbers such as 3,14,15") from error
    for page in seeds:
        if not 0 <= page < pages:
            raise UsageError(
                f"--seed-pages: there is no page {page}; pages are numbered from 0 to {pages - 1}"
            )
    return [seeds]


def _save(path: Path, write: Callable[[Path], object]) -> None:
    from .exceptions import AopicError  # noqa: PLC0415

    try:
        write(path)
    except OSError as error:
        raise AopicError(f"{path} cannot be written: {error}.") from error


# -- the table

SUBCOMMANDS = {
    "top": Subcommand(
        "The most important pages (or hosts) of a job. With importance, cash and history; also while the crawl "
        "runs, as of its last commit.",
        _add_top_options,
        _top,
    ),
    "status": Subcommand(
        "Counts, front and back queues and the ledger of a job. Also while the crawl runs, as of its last commit.",
        _add_job_options,
        _status,
    ),
    "check": Subcommand(
        "Audit every invariant of a job. The exit code is 0 only if all hold. Also while the crawl runs, on the "
        "state of its last commit.",
        _add_job_options,
        _check,
    ),
    "backup": Subcommand(
        "Copy a job to another folder. A crawl can go on from the copy; also while the crawl runs, as of its last commit.",
        _add_backup_options,
        _backup,
    ),
    "repair": Subcommand(
        "Mend a damaged job that no crawl uses. Says what was lost; the damaged store is kept beside the new one.",
        _add_repair_options,
        _repair,
    ),
    "seed": Subcommand(
        "Add seeds to a job. With or without scores; a crawl that runs takes them up within about a second, another "
        "one when it starts.",
        _add_seed_options,
        _seed,
    ),
    "export": Subcommand(
        "Write the pages and the links of a job to files. Pages with their importance; links if AOPIC_KEEP_LINKS "
        "was on. Also while the crawl runs, as of its last commit.",
        _add_export_options,
        _export,
    ),
    "simulate": Subcommand(
        "Crawl a link graph in several orders and compare them. With the ledger and the frontier of real crawls on a "
        "virtual clock: how much of the pages' PageRank each order gathers how early.",
        _add_simulate_options,
        _simulate,
    ),
}

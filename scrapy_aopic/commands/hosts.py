"""``scrapy aopic hosts``: slow, failing, waiting hosts, those over their budgets, and those with most pages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .common import add_jobdir, add_json, add_watch, as_json, check_counts, write_or_watch

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "The slow, failing or waiting hosts of a job, those over a budget, or those with most pages. As of the last commit, also while the crawl runs."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    add_watch(parser)
    parser.add_argument("-n", "--number", type=int, default=20, help="rows (default: 20)")
    parser.add_argument(
        "--find", dest="part", metavar="PART", default="", help="only those with PART in their names"
    )
    kinds = parser.add_mutually_exclusive_group()
    for name, meaning in (
        ("slow", "those with the longest last transfers"),
        ("failing", "those with the most errors in a row"),
        ("waiting", "those that must be left alone for longest"),
        ("budget", "those on the disk whose domains are over their budgets, most queued pages first"),
        ("queued", "those with the most queued pages"),
        ("fetched", "those with the most fetched pages"),
    ):
        kinds.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=meaning)


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    check_counts(opts, "number")
    write_or_watch(opts, partial(_look, opts))
    return 0


def _look(opts: argparse.Namespace) -> str:
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.output import n_columns
    from scrapy_aopic.view.queries import hosts_by
    from scrapy_aopic.view.text_report import format_host_rows

    with open_view(opts.jobdir) as view:
        kinds = (opts.kind,) if opts.kind else ("queued", "fetched")
        rows = next(filter(None, (hosts_by(view, kind, opts.number, opts.part) for kind in kinds)), [])
    if opts.json:
        return as_json(rows)
    return format_host_rows(rows, width=n_columns())

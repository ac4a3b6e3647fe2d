"""``scrapy aopic hosts``: slow, failing, waiting hosts, those over their budgets, and those with most pages."""

from __future__ import annotations

from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from .common import add_jobdir, add_json, add_watch, as_json, check_counts, crawl_settings, write_or_watch

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
    kinds.add_argument(
        "--revisits",
        action="store_true",
        help="whether AOPIC_RECRAWL and revisit of AOPIC_HOST_RULES can be held, and the hosts that are too slow for them",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    check_counts(opts, "number")
    write_or_watch(opts, partial(_plan, opts, settings) if opts.revisits else partial(_look, opts))
    return 0


def _plan(opts: argparse.Namespace, settings: BaseSettings) -> str:
    from scrapy_aopic.core.revisits import Recrawl
    from scrapy_aopic.settings import read_politeness, read_values
    from scrapy_aopic.view.deadlines import deadlines, format_deadlines
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.stored import read_snapshot

    given = crawl_settings(settings)
    recrawl = read_values(given).recrawl or Recrawl()
    with open_view(opts.jobdir) as view:
        rate = read_snapshot(opts.jobdir, view=view).mean_rate or 0.0
        found = deadlines(view, recrawl, read_values(given).host_rules, read_politeness(given), rate)
    if opts.json:
        return as_json([each._asdict() for each in found])
    return format_deadlines(found, recrawl.share, opts.number)


def _look(opts: argparse.Namespace) -> str:
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.output import n_columns
    from scrapy_aopic.view.queries import hosts_by
    from scrapy_aopic.view.text import checked
    from scrapy_aopic.view.text_report import format_host_rows

    with open_view(opts.jobdir) as view:
        kinds = (opts.kind,) if opts.kind else ("queued", "fetched")
        rows = next(filter(None, (hosts_by(view, kind, opts.number, opts.part) for kind in kinds)), [])
    if opts.json:
        return as_json(rows)
    text = format_host_rows(rows, width=n_columns())
    if any(row.relevance is not None for row in rows):
        text += f"\n\nRelevance is {checked(view.calibration.labels, quote(str(opts.jobdir)))}"
    return text

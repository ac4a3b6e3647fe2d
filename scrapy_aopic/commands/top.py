"""``scrapy aopic top``: the most important pages or hosts."""

from __future__ import annotations

from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from .common import add_by, add_jobdir, add_json, add_watch, as_json, check_counts, write_or_watch

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.view.queries import PageRow, SiteRow
    from scrapy_aopic.view.stored import Speeds

MEANING = (
    "The most important pages (or hosts) of a job. With importance, cash and history; also while the crawl runs, as of "
    "its last commit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument("-n", "--number", type=int, default=20, help="rows (default: 20)")
    add_by(parser)
    parser.add_argument("--hosts", action="store_true", help="hosts instead of pages")
    add_watch(parser)
    parser.add_argument("--all", action="store_true", help="also redirects and pages that failed")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.view.stored import Speeds

    check_counts(opts, "number")
    write_or_watch(opts, partial(_look, opts, Speeds()))
    return 0


def _look(opts: argparse.Namespace, speeds: Speeds) -> str:
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.output import n_columns
    from scrapy_aopic.view.queries import top_hosts, top_pages
    from scrapy_aopic.view.stored import read_snapshot
    from scrapy_aopic.view.text import checked
    from scrapy_aopic.view.text_report import format_hosts, format_pages, headline

    rows: list[SiteRow] | list[PageRow]
    with open_view(opts.jobdir) as view:
        if opts.hosts:
            rows = sites = top_hosts(view, opts.number)
            text = format_hosts(sites, width=n_columns())
        else:
            rows = pages = top_pages(view, opts.number, everything=opts.all, by=opts.by)
            text = format_pages(pages, total=view.total, width=n_columns())
            if any(page.relevance is not None for page in pages):
                text += f"\n\nRelevance is {checked(view.calibration.labels, quote(str(opts.jobdir)))}"
            elif opts.by == "relevance":
                text += (
                    "\n\nNo page was graded for a topic (AOPIC_TOPIC), so these are the most important ones."
                )
        if opts.json:
            return as_json([row._asdict() for row in rows])
        if opts.watch is None:
            return text
        return f"{headline(speeds.added_to(read_snapshot(opts.jobdir, view=view)), n_columns() or 1000)}\n\n{text}"

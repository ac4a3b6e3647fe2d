"""``scrapy aopic top``: the most important pages or hosts."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import flush, write

from .common import add_jobdir, add_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.view.queries import PageRow, SiteRow

MEANING = (
    "The most important pages (or hosts) of a job. With importance, cash and history; also while the crawl runs, as of "
    "its last commit."
)


_LONGEST = 86_400.0
"""Seconds between two lists: a day, as a wrong unit is more likely than a longer wait."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument("-n", "--number", type=int, default=20, help="rows (default: 20)")
    parser.add_argument("--hosts", action="store_true", help="hosts instead of pages")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=float,
        help="again and again, this many seconds apart, until Ctrl-C",
    )
    parser.add_argument("--all", action="store_true", help="also redirects and pages that failed")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    if opts.number < 1:
        raise UsageError(f"--number ({opts.number}) must be at least 1")
    if opts.watch is not None and not 0 < opts.watch < _LONGEST:
        raise UsageError(f"--watch ({opts.watch:g}) must be a number of seconds above 0, and at most a day")
    _show(opts)
    while opts.watch is not None:
        time.sleep(opts.watch)
        if sys.stdout is not None and sys.stdout.isatty():
            write("", erases=True)
        _show(opts)
    return 0


def _show(opts: argparse.Namespace) -> None:
    import msgspec

    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.queries import top_hosts, top_pages
    from scrapy_aopic.view.text_report import format_hosts, format_pages

    rows: list[SiteRow] | list[PageRow]
    with open_view(opts.jobdir) as view:
        if opts.hosts:
            rows = sites = top_hosts(view, opts.number)
            text = format_hosts(sites)
        else:
            rows = pages = top_pages(view, opts.number, everything=opts.all)
            text = format_pages(pages, total=view.total)
    if opts.json:
        text = json.dumps(msgspec.to_builtins([row._asdict() for row in rows]), indent=1)
    write(text)
    flush()

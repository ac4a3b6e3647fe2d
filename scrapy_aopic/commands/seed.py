"""``scrapy aopic seed``: more pages to begin with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, crawl_settings

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Add seeds to a job. With or without scores; a crawl that runs takes them up within about a second, another one when "
    "it starts."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "sources",
        metavar="FILE_OR_URL",
        nargs="+",
        help="list of seeds (one URL a line, a table .csv or .parquet with a column url, a public list, .warc), or a URL",
    )
    parser.add_argument(
        "--fetched",
        action="store_true",
        help="the pages are no seeds: an earlier crawl has fetched them, so this one does not",
    )
    parser.add_argument(
        "--score",
        metavar="COLUMN",
        default="",
        help="column of the scores (default: score, importance, or in host ranks pr_val)",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out bad rows instead of refusing all")


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.seeds.adding import add_seeds, said
    from scrapy_aopic.settings import read_values
    from scrapy_aopic.view.text import n_of

    added = add_seeds(
        opts.jobdir,
        opts.sources,
        skip_bad=opts.skip_bad,
        progress=True,
        score=opts.score,
        fetched=opts.fetched,
        allowed=read_values(crawl_settings(settings)).allow_networks,
    )
    if added.left_out:
        first = f" The first bad one: {added.first_bad}" if added.bad else ""
        sys.stderr.write(f"Left out: {said(added.left_out)}.{first}\n")
    begun = "" if opts.jobdir.has_job() else ", which has not begun"
    if not opts.fetched:
        write(f"{n_of(added.rows, 'seed')} added to the crawl of {opts.jobdir}{begun}.")
        return 0
    bodies = (
        "Bodies are not kept for a job on a server."
        if added.bodies is None
        else f"Bodies of earlier crawls that it will archive as revisits: {added.bodies:,}."
    )
    write(
        f"{n_of(added.rows, 'page')} that an earlier crawl has fetched will not be fetched by the crawl of {opts.jobdir}{begun}: "
        f"from its next start on. {bodies}"
    )
    return 0

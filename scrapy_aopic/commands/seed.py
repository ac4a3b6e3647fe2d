"""``scrapy aopic seed``: more pages to begin with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir

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
        help="list of seeds (one URL a line, or a table .csv or .parquet with a column url), or a URL",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out bad rows instead of refusing all")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.seeds.adding import add_seeds
    from scrapy_aopic.view.text import n_of

    added = add_seeds(opts.jobdir, opts.sources, skip_bad=opts.skip_bad, progress=True)
    if added.bad:
        sys.stderr.write(f"Left out: {n_of(added.bad, 'bad row')}. The first: {added.first_bad}\n")
    begun = "" if opts.jobdir.has_job() else ", which has not begun"
    write(f"{n_of(added.rows, 'seed')} added to the crawl of {opts.jobdir}{begun}.")
    return 0

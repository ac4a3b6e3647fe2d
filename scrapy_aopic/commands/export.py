"""``scrapy aopic export``: pages and links as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.job.output import write

from .common import add_jobdir

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Write the pages and the links of a job to files. Pages with their importance; links if AOPIC_KEEP_LINKS was on. Also "
    "while the crawl runs, as of its last commit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "--pages", metavar="FILE", type=Path, help="write the pages: .csv, .csv.gz or .parquet"
    )
    parser.add_argument(
        "--links", metavar="FILE", type=Path, help="write the links: .csv, .csv.gz or .parquet"
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.job.export import check_export, export_links, export_pages
    from scrapy_aopic.job.views import opened_views

    if not (opts.pages or opts.links):
        raise UsageError("give --pages FILE, --links FILE or both")
    for path in filter(None, (opts.links, opts.pages)):
        check_export(path)
    with opened_views(opts.jobdir) as stores:
        if opts.links:  # first, for a job may have none
            write(f"{export_links(stores, opts.links, progress=True):,} links in {opts.links}")
        if opts.pages:
            write(f"{export_pages(stores, opts.pages, progress=True):,} pages in {opts.pages}")
    return 0

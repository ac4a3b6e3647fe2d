"""``scrapy aopic report``: the dashboard of a job as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, complete, job_place

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Write the dashboard of a job, as of its last commit, into one HTML file that needs nothing else: to keep it or send it; also while the crawl runs."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "--compare",
        metavar="OTHER",
        type=job_place,
        help="job to lay beside it, a folder or an address as JOBDIR",
    )
    parser.add_argument("page", metavar="FILE", type=Path, help="file to write, report.html for example")


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.dashboard.report_page import report_page
    from scrapy_aopic.exceptions import ExchangeError, plainly
    from scrapy_aopic.storage.store_folder import writing

    page = report_page(opts.jobdir, opts.compare and complete(opts.compare, settings))
    try:
        with writing(opts.page) as file:
            file.write(page)
    except OSError as error:
        raise ExchangeError(f"{opts.page} cannot be written: {plainly(error)}.") from error
    write(f"{opts.page} is written.")
    return 0

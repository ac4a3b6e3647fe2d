"""``scrapy aopic report``: a page of what a job was like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Write a page about a job: figures, charts over time, hosts, the most important pages. One HTML file that needs nothing else; also while the crawl runs."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument("page", metavar="FILE", type=Path, help="file to write, report.html for example")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.exceptions import ExchangeError, plainly
    from scrapy_aopic.storage.store_folder import writing
    from scrapy_aopic.view.history import FILE_NAME, read_history
    from scrapy_aopic.view.html_report import report_page
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.queries import top_hosts, top_pages
    from scrapy_aopic.view.stored import read_snapshot

    history = read_history(opts.jobdir.folder / FILE_NAME) if opts.jobdir.folder is not None else []
    with open_view(opts.jobdir) as view:
        now = read_snapshot(opts.jobdir, view=view, history=history)
        text = report_page(now, history=history, pages=top_pages(view, 20), hosts=top_hosts(view, 20))
    try:
        with writing(opts.page) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ExchangeError(f"{opts.page} cannot be written: {plainly(error)}.") from error
    write(f"{opts.page} is written.")
    return 0

"""``scrapy aopic backup``: a copy of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, complete, job_place

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Copy a job to another folder, also while it is crawled, as of its last commit; or a copy back onto a server. A crawl can go on "
    "from the copy."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "dest",
        metavar="DEST",
        type=job_place,
        help="folder to make, a job folder of its own; or, of a job in a folder, redis://HOST:PORT/DATABASE#KEY where no job is",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.copies.moving import copy_job
    from scrapy_aopic.view.text import n_of

    to = complete(opts.dest, settings)
    write(f"{n_of(copy_job(opts.jobdir, to, progress=True), 'row')} of {opts.jobdir} copied to {to}.")
    return 0

"""``scrapy aopic backup``: a copy of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Copy a job to another folder. A crawl can go on from the copy; also while the crawl runs, as of its last commit."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument("dest", metavar="DEST", type=Path, help="folder to make, a job folder of its own")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.copies.backing_up import backup
    from scrapy_aopic.view.text import n_of

    write(f"{n_of(backup(opts.jobdir, opts.dest, progress=True), 'row')} copied to {opts.dest}.")
    return 0

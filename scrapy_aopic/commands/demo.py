"""``scrapy aopic demo``: a crawl of a made-up web, without internet."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING

from . import crawl_command
from .common import job_place

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Crawl a made-up web of 400 hosts that this command serves itself. No request leaves the machine; the job folder is "
    "one like any other, to look at with the other commands."
)

# one host never has its robots.txt: no need to wait for it
_SETTINGS = {"AOPIC_MAX_WAIT": 30}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", metavar="N", type=int, default=60, help="stop after N seconds (default: %(default)s)"
    )
    parser.add_argument(
        "--job",
        metavar="FOLDER",
        type=job_place,
        default="crawls/demo",
        help="job folder (default: %(default)s)",
    )
    crawl_command.add_output(parser)


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    _find_demo_web()
    import demo_web

    for name, value in _SETTINGS.items():
        settings.set(name, value, "command")
    parser = ArgumentParser()
    crawl_command.add_options(parser)
    of_crawl = parser.parse_args([*demo_web.DemoWeb().seeds, "--contact", "https://example.org/crawler"])
    of_crawl.job, of_crawl.seconds, of_crawl.output = opts.job, opts.seconds, opts.output
    with demo_web.served() as proxy:
        os.environ["http_proxy"] = proxy
        return crawl_command.run(of_crawl, settings)


def _find_demo_web() -> None:
    """Let ``demo_web`` be imported: a wheel has it in the package, a checkout in the example project."""
    package = Path(__file__).parents[1]
    folders = package / "example", package.parent / "example_project"
    sys.path.append(str(next(folder for folder in folders if (folder / "demo_web").is_dir())))

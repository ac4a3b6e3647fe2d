"""``scrapy aopic status``: how far a job has come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings


MEANING = (
    "Counts, front and back queues and the ledger of a job. Also while the crawl runs, as of its last commit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument(
        "--totals",
        action="store_true",
        help="only what each commit counts: at once, however many pages there are",
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    import msgspec

    from scrapy_aopic.view.stored import read_snapshot
    from scrapy_aopic.view.text_report import format_snapshot

    now = read_snapshot(opts.jobdir, counts=not opts.totals)
    write(
        json.dumps(msgspec.to_builtins(now, str_keys=True), indent=1) if opts.json else format_snapshot(now)
    )
    return 0

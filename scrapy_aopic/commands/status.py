"""``scrapy aopic status``: how far a job has come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .common import add_jobdir, add_json, add_watch, as_json, write_or_watch

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.view.stored import Speeds

MEANING = "How far a job is, what limits it and when it ends, on one screen. Also while the crawl runs, as of its last commit."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    add_watch(parser)
    parser.add_argument(
        "--totals",
        action="store_true",
        help="only what each commit counts: at once, however many pages there are",
    )
    parser.add_argument(
        "--all", action="store_true", help="every figure that is known and not 0, a line each"
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.view.stored import Speeds

    write_or_watch(opts, partial(_look, opts, Speeds()))
    return 0


def _look(opts: argparse.Namespace, speeds: Speeds) -> str:
    from scrapy_aopic.view.stored import read_snapshot
    from scrapy_aopic.view.text_report import format_screen, format_snapshot

    now = speeds.added_to(read_snapshot(opts.jobdir, counts=not opts.totals))
    if opts.json:
        return as_json(now)
    return format_snapshot(now) if opts.all else format_screen(now, str(opts.jobdir))

"""``scrapy aopic export``: pages and links as files for other programs."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import add_by, add_jobdir

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from scrapy.settings import BaseSettings

    from scrapy_aopic.exceptions import ExchangeError

MEANING = (
    "Write the pages and the links of a job to files. Pages with their importance; links if AOPIC_KEEP_LINKS was on. Also "
    "while the crawl runs, as of its last commit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "--pages",
        metavar="FILE",
        help="write the pages: .csv or .jsonl, maybe with .gz, or .parquet; a path, or a URL for fsspec",
    )
    parser.add_argument(
        "--links",
        metavar="FILE",
        help="write the links: .csv or .jsonl, maybe with .gz, or .parquet; a path, or a URL for fsspec",
    )
    parser.add_argument(
        "--top", metavar="N", type=int, help="of the pages only the N most important ones, best first"
    )
    add_by(parser)
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_since,
        help='of the pages only those that are new, changed, moved or gone since then: "1 day" (ago), 2026-11-27T03:00, or the number of '
        "a round, from its beginning on, 0 for the last one",
    )
    parser.add_argument(
        "--cdxj",
        metavar="FILE",
        type=Path,
        help="with --top: also where each page is in WARC files, by this index of them",
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.exceptions import ExchangeError
    from scrapy_aopic.view.exporting import check_export, export_links, export_pages
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.text import n_of

    if not (opts.pages or opts.links):
        raise UsageError("give --pages FILE, --links FILE or both")
    if opts.pages == opts.links:
        raise UsageError(f"--pages and --links need a file each, and not both {opts.pages}")
    if opts.top is not None and (opts.top < 1 or not opts.pages):
        raise UsageError(f"--top ({opts.top}) must be at least 1, and needs --pages FILE")
    if (opts.cdxj or opts.by != "importance") and opts.top is None:
        raise UsageError("--cdxj and --by need --top N")
    if opts.since is not None and (opts.top is not None or not opts.pages):
        raise UsageError("--since needs --pages FILE, without --top")
    outputs: dict[str, tuple[str | None, Callable[..., int]]] = {
        "link": (opts.links, export_links),
        "page": (
            opts.pages,
            partial(export_pages, top=opts.top or 0, by=opts.by, since=opts.since, index=opts.cdxj),
        ),
    }
    failed: list[ExchangeError] = []
    for what, (path, _export) in list(outputs.items()):
        with _collecting(failed):
            if path is not None:
                check_export(path)
                continue
        del outputs[what]
    if outputs:
        with open_view(opts.jobdir) as view:
            for what, (path, export) in outputs.items():  # what is possible is written all the same
                with _collecting(failed):
                    write(f"{n_of(export(view, path, progress=True), what)} in {path}")
    if failed:
        raise ExchangeError(" ".join(map(str, failed))) from failed[0]
    return 0


def _since(text: str) -> datetime | int:
    """What a user calls *text*: so long ago, or a date with or without a time, in UTC if it names no zone; or the number of a round."""
    from scrapy_aopic.settings.parse import intervals

    if text.isdecimal():
        return int(text)
    with suppress(ValueError, TypeError):
        return datetime.fromtimestamp(time.time() - intervals(text)[0], timezone.utc)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f'{text!r} must be a time such as "1 day", which is so long ago, 2026-11-27T03:00, or the number of a round'
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


@contextmanager
def _collecting(failed: list[ExchangeError]) -> Iterator[None]:
    from scrapy_aopic.exceptions import ExchangeError

    try:
        yield
    except ExchangeError as error:
        failed.append(error)

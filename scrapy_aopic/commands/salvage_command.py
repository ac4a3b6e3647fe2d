"""``scrapy aopic salvage``: a new job with what can be read of a damaged one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import add_jobdir

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Begin a new job with all that can be read of a damaged one that no crawl uses. Says what could not be read; the damaged job is left "
    "as it is."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument("new", metavar="NEW", type=Path, help="folder to make, the JOBDIR of the new job")
    parser.add_argument(
        "--shards",
        metavar="N",
        type=int,
        help="let the new job have so many shards, whether the old one is in one piece or in any number, so that as many workers can go on with it",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.copies.salvaging import salvage_job
    from scrapy_aopic.place.folder_place import FolderPlace
    from scrapy_aopic.settings import read_policy
    from scrapy_aopic.storage.address import MAX_SHARDS
    from scrapy_aopic.view.text_report import format_salvage

    if opts.shards is not None and not 1 <= opts.shards <= MAX_SHARDS:
        raise UsageError(f"--shards ({opts.shards}) must be 1 to {MAX_SHARDS}")
    found = salvage_job(opts.jobdir, opts.new, read_policy(settings), shards=opts.shards or 0, progress=True)
    for number, each in found.items():
        write(format_salvage(each, f"Shard {number}: " if len(found) > 1 else ""))
    if (part := FolderPlace(opts.new).read_part()) is not None:
        names = shlex.join([part.job, str(opts.new), "--shards", ",".join(map(str, found))])
        write(f"To go on: scrapy aopic move --lost {names}; then start its worker there.")
    elif len(found) > 1:
        write(f"To go on: scrapy aopic move {opts.new} redis://HOST:PORT/DATABASE#KEY, with a new KEY.")
    else:
        workers = ", and AOPIC_WORKERS or --workers" if (opts.shards or 1) > 1 else ""
        write(f"To go on: the same crawl with JOBDIR={opts.new}{workers}.")
    return 0

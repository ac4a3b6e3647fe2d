"""``scrapy aopic restore``: a copy of a job back onto a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import complete_address, job_place

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Put a copy of a job, as 'backup' makes one, onto a server. A crawl there goes on with it; the copy stays as it is."


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FOLDER", type=Path, help="job folder that no crawl uses: a copy")
    parser.add_argument(
        "target", metavar="URL", type=job_place, help="where to put it: redis://HOST:PORT/DATABASE#KEY"
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.copies.restoring import restore
    from scrapy_aopic.place.server_place import ServerPlace
    from scrapy_aopic.view.text import n_of

    if not isinstance(opts.target, ServerPlace):  # a folder can only be copied to another one
        raise UsageError(
            f"the target must be redis://HOST:PORT/DATABASE#KEY, not {opts.target}: a copy in a folder is a job already"
        )
    address = opts.target.address
    if not address.key:
        raise UsageError("the target needs the key of the job: redis://HOST:PORT/DATABASE#KEY")
    target = complete_address(address, settings)
    write(f"{n_of(restore(opts.source, target, progress=True), 'row')} of {opts.source} copied to {target}.")
    return 0

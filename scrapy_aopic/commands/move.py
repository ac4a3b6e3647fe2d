"""``scrapy aopic move``: a job, or shards of it, to another place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import complete, complete_address, job_place

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from scrapy_aopic.place.folder_place import FolderPart
    from scrapy_aopic.storage import Address

MEANING = (
    "Move a job that no crawl uses to another folder, or between a folder and a server. Or move shards from one folder of a job in "
    "shards to another one. With --lost, begin shards anew whose disk is lost."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FROM",
        type=job_place,
        help="JOBDIR of the job or the shards, or redis://HOST:PORT/DATABASE#KEY",
    )
    parser.add_argument(
        "target",
        metavar="TO",
        type=job_place,
        help="new folder, or redis://HOST:PORT/DATABASE#KEY where no job is; for shards, another JOBDIR of the job or a new one",
    )
    parser.add_argument(
        "--shards",
        metavar="NUMBERS",
        type=shard_numbers,
        default=(),
        help="which, such as 3,5-7; without this, all that are in FROM",
    )
    parser.add_argument(
        "--server",
        metavar="URL",
        type=job_place,
        help="redis://HOST:PORT/DATABASE#KEY, by which workers of both folders hear of each other, if FROM has all shards so far",
    )
    parser.add_argument(
        "--lost",
        action="store_true",
        help="the shards' disk is lost for good: let them begin anew in TO, without their pages, so that the cash of the job "
        "stays whole",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.copies.moving import begin_anew, move, move_job, share
    from scrapy_aopic.place.folder_place import FolderPlace

    numbers: tuple[int, ...] = opts.shards
    source: Path | None = opts.source.folder
    target: Path | None = opts.target.folder
    for place in (opts.source, opts.target):
        place.check()
    is_asked = opts.lost or opts.server is not None
    if is_asked and (target is None or not numbers or (source is None) != opts.lost):
        raise UsageError(
            "--lost needs redis://HOST:PORT/DATABASE#KEY as FROM, --server a folder; both a folder as TO, and --shards"
        )
    if opts.lost:
        address = complete_address(opts.source.address, settings)
        homes = begin_anew(opts.target.folder, address, numbers)
        write(
            f"{_named(numbers)} of {address}: lost, {homes.where(numbers)}, to begin anew in {target} when its worker is started. "
            "Give their seeds again with 'scrapy aopic seed'."
        )
        return 0
    if opts.server is not None:
        share(opts.source.folder, address := complete_address(opts.server.address, settings))
    part = FolderPlace(source).read_part() if source is not None else None
    if part is not None and source is not None and target is not None:
        if opts.server is None:
            address = _server_of(part, settings)
        moved = move(source, target, address, numbers)
        write(f"{_named(moved)} of {address}: now in {target}." if moved else f"{source} has no shards.")
        return 0
    if numbers or part is not None:
        raise UsageError(
            "shards go from one folder of a job to another; if FROM has all shards so far, name a --server"
        )
    old, new = complete(opts.source, settings), complete(opts.target, settings)
    move_job(old, new, progress=True)
    write(f"The job in {old} is now in {new}.")
    return 0


def _server_of(part: FolderPart, settings: BaseSettings) -> Address:
    """The server of the job of which a folder has a *part*; the one that the settings name, if they do, for it may have moved."""
    from scrapy_aopic.settings import read_address
    from scrapy_aopic.storage import Address

    named, (url, _, key) = read_address(settings), part.job.partition("#")
    if named.url or "host" in named.parameters:
        return replace(named, key=key)
    return complete_address(Address(key, url), settings)


def shard_numbers(text: str) -> tuple[int, ...]:
    """The numbers that *text* lists, such as ``3,5-7``.

    Raises:
        ValueError: If it is no such list.
    """
    from scrapy_aopic.storage.address import MAX_SHARDS

    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        some = range(int(first), int(last or first) + 1)
        if not some or some[-1] >= MAX_SHARDS:
            raise ValueError(f"{part} names no shards")
        numbers.update(some)
    return tuple(sorted(numbers))


def _named(numbers: tuple[int, ...] | list[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"Shard {listed}" if len(numbers) == 1 else f"Shards {listed}"

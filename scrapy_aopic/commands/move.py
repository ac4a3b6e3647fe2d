"""``scrapy aopic move``: shards of a job to another job folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import complete_address, job_place

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.storage import Address

MEANING = (
    "Move shards of a job that has several folders (AOPIC_SHARDS) from one of them to another, while both are not crawled. With --lost, "
    "begin shards anew whose disk is lost."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FROM",
        type=job_place,
        help="JOBDIR that has the shards; with --lost, redis://HOST:PORT/DATABASE#KEY",
    )
    parser.add_argument("target", metavar="TO", type=Path, help="another JOBDIR of the job, or a new folder")
    parser.add_argument(
        "--shards",
        metavar="NUMBERS",
        type=shard_numbers,
        default=(),
        help="which, such as 3,5-7; without this, all that are in FROM",
    )
    parser.add_argument(
        "--lost",
        action="store_true",
        help="the shards' disk is lost for good: let them begin anew in TO, without their pages, so that the cash of the job "
        "stays whole",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.copies.moving import begin_anew, move
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.place.folder_place import FolderPlace
    from scrapy_aopic.place.paths import check_job_folder

    numbers: tuple[int, ...] = opts.shards
    opts.source.check()
    check_job_folder(opts.target)
    if opts.lost:
        if opts.source.folder is not None or not numbers:
            raise UsageError("--lost needs redis://HOST:PORT/DATABASE#KEY as FROM, and --shards")
        address = _on_server(opts.source, settings)
        homes = begin_anew(opts.target, address, numbers)
        write(
            f"{_named(numbers)} of {address}: lost, {homes.where(numbers)}, to begin anew in {opts.target} when its worker is started. "
            "Give their seeds again with 'scrapy aopic seed'."
        )
        return 0
    source: Path | None = opts.source.folder
    if source is None:
        raise UsageError("FROM must be a job folder, or use --lost if that is lost")
    part = FolderPlace(source).read_part()
    if part is None:
        raise StorageError(f"The folder {source} holds no part of a job in shards.")
    address = _on_server(job_place(part.job), settings)
    moved = move(source, opts.target, address, numbers)
    write(f"{_named(moved)} of {address}: now in {opts.target}." if moved else f"{source} has no shards.")
    return 0


def _on_server(place: Place, settings: BaseSettings) -> Address:
    """The server at *place*; the one that the settings name, if they do, for it may have moved."""
    from scrapy_aopic.place.server_place import ServerPlace
    from scrapy_aopic.settings import read_address
    from scrapy_aopic.storage import Address

    if not isinstance(place, ServerPlace):  # a worker's URL may be one that no command takes
        raise UsageError(f"REDIS_URL must name the server of the job, which {place} does not")
    named = read_address(settings)
    if named.url or "host" in named.parameters:
        return Address(place.address.key, named.url, named.parameters, lock_timeout=named.lock_timeout)
    return complete_address(place.address, settings)


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

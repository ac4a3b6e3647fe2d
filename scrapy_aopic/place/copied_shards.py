"""A job in shards as it lies in a folder, as ``scrapy aopic backup`` makes one: a store for each shard, and how it was cut.

The folder ``aopic-shards`` holds the stores in folders ``0``, ``1`` and so on. ``cut.json``, written last, says how many they are and by
which list of public suffixes hosts belong to them; ``suffixes`` is that list.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import StorageError, plainly
from scrapy_aopic.storage.address import MAX_SHARDS
from scrapy_aopic.storage.named_files import read_given
from scrapy_aopic.storage.redis.membership import JobCut
from scrapy_aopic.storage.store_folder import replace_file, replacing

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "aopic-shards"
_CUT = "cut.json"
_SUFFIXES = "suffixes"


def parts_folder(job_folder: Path) -> Path:
    """Where in a job folder the stores of shards are."""
    return job_folder / _FOLDER


def part_folder(job_folder: Path, number: int) -> Path:
    """Where in a job folder the store of the shard *number* is."""
    return parts_folder(job_folder) / str(number)


def read_parts(job_folder: Path) -> JobCut | None:
    """How the job in *job_folder* is cut; ``None`` if that holds none in shards.

    Raises:
        StorageError: If that cannot be read.
    """
    path = parts_folder(job_folder) / _CUT
    try:
        cut = JobCut(**json.loads(read_given(path)))
        if not 1 < int(cut.shards) <= MAX_SHARDS:
            raise ValueError(f"{cut.shards} shards")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(
            f"How the job in {job_folder} is cut cannot be read from {path}: {plainly(error)}. Use another copy of the job."
        ) from error
    return cut


def check_no_parts(job_folder: Path | None) -> None:
    """Do nothing if a crawl may have *job_folder* as its own.

    Raises:
        StorageError: If it holds the copy of a job in shards.
    """
    cut = read_parts(job_folder) if job_folder is not None else None
    if cut is not None:
        raise StorageError(
            f"The folder {job_folder} holds a copy of a job in {cut.shards} shards, which are crawled on a server: put it there with "
            "'scrapy aopic restore', or choose another JOBDIR."
        )


def read_part_suffixes(job_folder: Path) -> bytes | None:
    """The list of public suffixes by which the job in *job_folder* is cut; ``None`` if it is not there."""
    try:
        return (parts_folder(job_folder) / _SUFFIXES).read_bytes()
    except OSError:
        return None


def write_parts(job_folder: Path, cut: JobCut, suffixes: bytes) -> None:
    """Note how the job in *job_folder* is cut, whose stores are whole, and by which list of public *suffixes*.

    Raises:
        OSError: If it cannot be written.
    """
    with replacing(parts_folder(job_folder) / _SUFFIXES) as file:
        file.write(suffixes)
    replace_file(parts_folder(job_folder) / _CUT, json.dumps(cut._asdict()) + "\n")

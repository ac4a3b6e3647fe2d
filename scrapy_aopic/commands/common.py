"""What the subcommands share: their form, the options of most, and reading a job folder."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    from scrapy_aopic.core.ports import Store


class Subcommand(Protocol):
    """A word after ``scrapy aopic``; each is a module.

    Attributes:
        MEANING: What it does; its first sentence also stands in the list of subcommands.
    """

    MEANING: str

    def add_options(self, parser: argparse.ArgumentParser, /) -> None:
        """Add its arguments to its parser."""

    def run(self, opts: argparse.Namespace, settings: BaseSettings, /) -> int:
        """Do it, with its options and Scrapy's settings; returns the exit code.

        Raises:
            UsageError: If the options contradict one another or cannot be used.
            AopicError, OSError: If it cannot be done.
        """


def add_jobdir(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the job."""
    parser.add_argument("jobdir", metavar="JOBDIR", type=Path, help="job folder, the JOBDIR of the crawl")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option of a subcommand that can also write JSON."""
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


@contextmanager
def snapshot(jobdir: Path) -> Iterator[Store]:
    """The store of the job in *jobdir* as of its last commit, to be read; a crawl may be using it.

    Raises:
        StorageError: If there is no job, or it cannot be read.
    """
    from scrapy_aopic.job.folder import store_folder
    from scrapy_aopic.storage import open_snapshot

    store = open_snapshot(store_folder(jobdir))
    try:
        yield store
    finally:
        store.close()

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
    from scrapy_aopic.storage import Address


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
    parser.add_argument(
        "jobdir",
        metavar="JOBDIR",
        type=job_place,
        help="job folder, the JOBDIR of the crawl; or redis://HOST:PORT/DATABASE#KEY for a job on a server",
    )


def job_place(text: str) -> Path | Address:
    """Where the job is that the user calls *text*."""
    from scrapy_aopic.storage.address import SCHEMES, Address

    url, _, key = text.partition("#")
    return Address(key, url) if url.partition("://")[0] in SCHEMES and "://" in url else Path(text)


def complete(job: Path | Address, settings: BaseSettings) -> Path | Address:
    """*job* with what *settings* say of its server, if it is on one: passwords, for example.

    ``redis://`` without a host is the server that the settings name.

    Raises:
        SettingError: If a setting cannot be used.
        StorageError: If it is a file, or no key is given and there is not exactly one job on the server.
    """
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.place.paths import check_job_folder
    from scrapy_aopic.settings import read_address
    from scrapy_aopic.storage.address import Address

    if isinstance(job, Path):
        check_job_folder(job)
        return job
    named = read_address(settings)
    if job.url in {"redis:", "redis://"}:
        job = Address(job.key, named.url, named.parameters)
    else:
        places = ("host", "port", "db")
        given = {name: value for name, value in named.parameters.items() if name not in places}
        job = Address(job.key, job.url, given)
    if not job.key:
        from scrapy_aopic.storage.redis.keys import find_jobs

        found = find_jobs(job)
        if len(found) != 1:
            there = f"the jobs {', '.join(found)}" if found else "no job"
            raise StorageError(
                f"On the server {str(job).rstrip('#')} is {there}; name one, as {str(job).rstrip('#')}#KEY."
            )
        job = Address(found[0], job.url, job.parameters)
    return job


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option of a subcommand that can also write JSON."""
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


@contextmanager
def snapshot(job: Path | Address) -> Iterator[Store]:
    """The store of *job*, which is in one piece, as of its last commit, to be read; a crawl may be using it.

    Raises:
        StorageError: If there is no job, or it cannot be read.
    """
    from scrapy_aopic.place.paths import store_place
    from scrapy_aopic.storage import open_snapshot

    store = open_snapshot(store_place(job))
    try:
        yield store
    finally:
        store.close()


def crawl_settings(settings: BaseSettings) -> BaseSettings:
    """*settings* as a crawl has them: with what the add-on sets if the project uses it, or if there is no project."""
    from scrapy.utils.misc import load_object
    from scrapy.utils.project import inside_project

    from scrapy_aopic.addon import Addon

    addons = [load_object(each) for each in settings.getdict("ADDONS")]
    if Addon in addons or not inside_project():
        settings = settings.copy()
        Addon().update_settings(settings)
    return settings

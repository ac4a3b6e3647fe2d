"""The base class of the subcommands, options that many have, and reading a job folder."""

from __future__ import annotations

import json
from argparse import ArgumentError, ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from time import sleep
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.storage import Address


T = TypeVar("T")


class Subcommand(Protocol):
    """A word after ``scrapy aopic``; each is a module.

    Attributes:
        MEANING: What it does; its first sentence also stands in the list of subcommands.
    """

    __name__: str
    MEANING: str

    def add_options(self, parser: argparse.ArgumentParser, /) -> None:
        """Add its arguments to its parser."""

    def run(self, opts: argparse.Namespace, settings: BaseSettings, /) -> int:
        """Do it, with its options and Scrapy's settings; returns the exit code.

        Raises:
            UsageError: If the options contradict one another or cannot be used.
            AopicError, OSError: If it cannot be done.
        """


class Group(Protocol):
    """A subcommand that has actions of its own after it."""

    __name__: str
    MEANING: str
    ACTIONS: dict[str, Action]


class Action(NamedTuple):
    """A word after a :class:`Group`, as :class:`Subcommand` says."""

    MEANING: str
    add_options: Callable[["argparse.ArgumentParser"], None]
    run: Callable[["argparse.Namespace", "BaseSettings"], int]


class Names(dict[str, T]):
    """Subcommands, or actions of one; knows what may have been meant by another word.

    Args:
        kind: What they are called.
        end: End of the sentence about an unknown word.
    """

    def __init__(self, words: Mapping[str, T], kind: str, end: str = "") -> None:
        super().__init__(words)
        self._kind, self._end = kind, end

    def __contains__(self, word: object) -> bool:
        if super().__contains__(word):
            return True
        near = get_close_matches(str(word), self, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f": they are {', '.join(filter(None, self))}."
        raise ArgumentError(None, f'there is no {self._kind} "{word}"{hint}{self._end}')


def add_jobdir(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument that names the job; it may be left out if *nargs* is ``"?"``."""
    parser.add_argument(
        "jobdir",
        metavar="JOBDIR",
        nargs=nargs,
        type=job_place,
        help="job folder, the JOBDIR of the crawl; or redis://HOST:PORT/DATABASE#KEY for a job on a server",
    )


def add_by(parser: argparse.ArgumentParser) -> None:
    """Add the option for the order of pages."""
    parser.add_argument(
        "--by", choices=("importance", "relevance"), default="importance",
        help="pages by their importance (default), or by how likely they are relevant to AOPIC_TOPIC",
    )  # fmt: skip


def job_place(text: str) -> Place:
    """Where the job is that the user calls *text*."""
    from scrapy_aopic.place.place import place_of

    return place_of(text)


def complete(place: Place, settings: BaseSettings) -> Place:
    """*place* with what *settings* say of its server, if it is on one: passwords, for example.

    Raises:
        SettingError: If a setting cannot be used.
        StorageError: If it is a file, or no key is given and there is not exactly one job on the server.
    """
    from scrapy_aopic.place.server_place import ServerPlace

    if isinstance(place, ServerPlace):  # only a server has settings
        return ServerPlace(complete_address(place.address, settings))
    place.check()
    return place


def complete_address(given: Address, settings: BaseSettings) -> Address:
    """*given* with what *settings* say of the server; without a host, it is the server that they name.

    Raises:
        SettingError: If a setting cannot be used.
        StorageError: If no key is given, and there is not exactly one job on the server.
    """
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.settings import read_address
    from scrapy_aopic.storage.address import Address
    from scrapy_aopic.storage.redis.connect import find_jobs

    named = read_address(settings)
    if given.url in {"redis:", "redis://"}:
        address = Address(given.key, named.url, named.parameters, named.lock_timeout)
    else:
        places = ("host", "port", "db")
        parameters = {name: value for name, value in named.parameters.items() if name not in places}
        address = Address(given.key, given.url, parameters, named.lock_timeout)
    if not address.key:
        found = find_jobs(address)
        if len(found) != 1:
            there = f"the jobs {', '.join(found)}" if found else "no job"
            server = str(address).rstrip("#")
            raise StorageError(f"On the server {server} is {there}; name one, as {server}#KEY.")
        address = replace(address, key=found[0])
    return address


def server_beside(place: Place, settings: BaseSettings) -> str:
    """URL of the server that *settings* name; of that of the job at *place* if they name none; ``redis://`` by default.

    Raises:
        SettingError: If a setting cannot be used.
    """
    from scrapy_aopic.place.server_place import ServerPlace
    from scrapy_aopic.settings import read_address

    named = read_address(settings)
    if isinstance(place, ServerPlace) and not (named.url or named.parameters.get("host")):
        return place.address.url
    return "redis://"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option of a subcommand that can also write JSON."""
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


def as_json(value: object, *, is_ascii: bool = True) -> str:
    """*value* as ``--json`` writes it: built of records, lists and dictionaries."""
    import msgspec

    return json.dumps(msgspec.to_builtins(value, str_keys=True), indent=1, ensure_ascii=is_ascii)


def check_counts(opts: argparse.Namespace, *names: str) -> None:
    """Check options that are numbers from 1 on, or are left out.

    Raises:
        UsageError: If one is smaller.
    """
    for name in names:
        value = getattr(opts, name)
        least = min(value, default=None) if isinstance(value, list) else value
        if least is not None and least < 1:
            raise UsageError(f"--{name.replace('_', '-')} ({least}) must be at least 1")


_LONGEST = 86_400.0
"""Seconds between two looks: a day, as a wrong unit is more likely than a longer wait."""


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add the option of a subcommand that can look at the job again and again."""
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=_seconds,
        const=2.0,
        help="again and again, this many seconds apart (2 without a number), until Ctrl-C",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no number of seconds; JOBDIR comes before --watch") from error
    if not 0 < seconds <= _LONGEST:
        raise ArgumentTypeError(f"{text} must be a number of seconds above 0, and at most a day")
    return seconds


def write_or_watch(opts: argparse.Namespace, look: Callable[[], str]) -> None:
    """Write what *look* gives; with ``--watch`` again and again, on a terminal each time in the place of the last one."""
    from scrapy_aopic.view.output import flush, is_terminal, write

    erases = opts.watch is not None and is_terminal()
    while True:
        write(look(), erases=erases)
        flush()
        if opts.watch is None:
            return
        sleep(opts.watch)


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

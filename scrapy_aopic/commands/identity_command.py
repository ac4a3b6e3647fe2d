"""``scrapy aopic identity``: makes the key by which requests are signed, and what servers need to know it."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.web.identity import Identity

from .common import Action

MEANING = "Make an identity by which AOPIC_IDENTITY signs requests, publish its key, and check that servers find it."

_DAY = 86_400

_TIMEOUT = 20
"""Seconds for the answer of the site that has the directory."""

_SKEW = 60
"""Seconds by which clocks may differ: beyond that signatures are early, or late, for many servers."""


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the identity, with its private key")


def _add_new(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument(
        "agent",
        metavar="SITE",
        help="address of the site that will have the key, such as https://crawler.example.org",
    )


def _new(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.exceptions import ExchangeError
    from scrapy_aopic.web.identity import DIRECTORY, create

    try:
        made = create(opts.file, opts.agent)
    except ExchangeError as error:
        raise UsageError(f"No identity was made: {error}") from error
    write(
        f"{opts.file} has the identity {made.keyid}. Keep it secret: whoever has it can sign as you.\n"
        f"Next: scrapy aopic identity directory {opts.file}, for {made.agent}{DIRECTORY}"
    )
    return 0


def _read(path: Path) -> Identity:
    from scrapy_aopic.exceptions import ExchangeError
    from scrapy_aopic.web.identity import Identity

    try:
        return Identity.read(path)
    except ExchangeError as error:
        raise UsageError(str(error)) from error


def _add_directory(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument(
        "--headers",
        metavar="DAYS",
        type=int,
        default=0,
        help="print the headers to send with it, signed for DAYS days",
    )


def _directory(opts: argparse.Namespace, settings: BaseSettings) -> int:
    identity = _read(opts.file)
    if opts.headers > 0:
        signed = identity.sign_directory(time.time(), opts.headers * _DAY)
        write("\n".join(f"{name}: {value}" for name, value in signed.items()))
    else:
        write(identity.directory())
    return 0


def _check(opts: argparse.Namespace, settings: BaseSettings) -> int:
    import urllib.request

    from scrapy_aopic.web.identity import DIRECTORY

    identity = _read(opts.file)
    url = identity.agent + DIRECTORY
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:  # noqa: S310  # of http or https
            found: Any = json.loads(answer.read(1_000_000))
            headers = answer.headers
        keys = [key.get("x") for key in found["keys"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{url} has no directory of keys: {type(error).__name__}") from error
    faults = []
    if json.loads(identity.directory())["keys"][0]["x"] not in keys:
        faults.append(f"the key of {opts.file} is not among its {len(keys)}")
    if "Signature" not in headers:
        faults.append("it is not signed, which some networks want: see --headers of directory")
    if headers["Date"]:
        skew = time.time() - parsedate_to_datetime(headers["Date"]).timestamp()
        if abs(skew) > _SKEW:
            faults.append(
                f"the clock here is {skew:.0f} seconds ahead of its server's, so signatures may be refused"
            )
    write(f"{url}: " + ("; ".join(faults) if faults else f"has the key {identity.keyid}, and is signed"))
    return 1 if faults else 0


ACTIONS = {
    "new": Action("Write a new identity to a file that nobody else may read.", _add_new, _new),
    "directory": Action(
        "Print the directory of keys that your site is to have, as JSON.", _add_directory, _directory
    ),
    "check": Action(
        "Ask your site for the directory, and say whether servers will know you by it.", _add_file, _check
    ),
}
"""The words after ``identity``."""

"""``scrapy aopic control``: what an operator asks of a crawl, while it runs or before it starts again."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import Names, add_jobdir, add_json, as_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from scrapy_aopic.core.operator_control import Control

MEANING = (
    "Pause a crawl, leave hosts or domains alone, slow them down, or limit the whole crawl. In force within a second or two, "
    "and kept with the job; nothing is lost. Without an ACTION: show what is in force."
)

_NAMED = 10
"""Names that a sentence has at most."""

_ACTIONS = {
    "pause": "request no more pages",
    "resume": "go on",
    "block": "NAME...: leave these hosts and domains alone; their pages stay queued",
    "unblock": "NAME...: request them again",
    "slow": "SECONDS NAME...: at least so many seconds between requests to each host; 0 for the usual gaps",
    "connections": "N: at most N transfers at once; 0 for as many as the settings allow",
    "rate": "N: at most N pages a second, such as 0.5; 0 for any number",
    "reset": "ask nothing of the crawl any more",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=Names({"": "", **_ACTIONS}, "action"),
        default="",
        help="; ".join(
            f"{name} {what}" if ":" in what else f"{name}: {what}" for name, what in _ACTIONS.items()
        ),
    )
    parser.add_argument("values", metavar="VALUE", nargs="*", help="what the action is about")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.core.operator_control import Control
    from scrapy_aopic.place.stored_control import (
        change_control,
        control_sentences,
        read_control,
        remove_control,
    )

    if opts.action:
        _check_values(opts)
    names = _names(opts)
    if not opts.action:
        control = read_control(opts.jobdir)
    elif opts.action == "reset":
        remove_control(opts.jobdir)
        control = Control()
    else:
        control = change_control(opts.jobdir, _change(opts, names))
    if opts.json:
        write(as_json(json.loads(control.packed())))
        return 0
    sentences = control_sentences(control)
    write("\n".join(sentences) if sentences else f"Nothing is set for the crawl of {opts.jobdir}.")
    if unknown := _unmet(opts, names):
        more = f" or {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else ""
        write(
            f"No page of {' or '.join(unknown[:_NAMED])}{more} is known to the job: this holds if the crawl meets one. Is the name right?"
        )
    return 0


def _names(opts: argparse.Namespace) -> list[str]:
    """Names that the action is about; a file with names, one a line, stands for these."""
    from scrapy_aopic.core.operator_control import checked_name
    from scrapy_aopic.exceptions import SettingError
    from scrapy_aopic.settings.parse import Reason, each_listed

    given = {"block": opts.values, "unblock": opts.values, "slow": opts.values[1:]}.get(opts.action, [])
    for name in given:
        if not name.strip():  # which is no entry of a list
            checked_name(name)
    try:
        return each_listed(given, checked_name)
    except Reason as error:
        raise SettingError(f"{error}.") from error


def _unmet(opts: argparse.Namespace, names: list[str]) -> list[str]:
    """Names that the action is about, and of which the job knows no host; none if it cannot be looked at."""
    from scrapy_aopic.exceptions import AopicError
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.queries import unmet

    if not names or opts.action == "unblock":
        return []
    try:
        with open_view(opts.jobdir) as view:
            return unmet(view, names)
    except AopicError:  # there may be no store yet; whether there is one is not what was asked
        return []


def _change(opts: argparse.Namespace, names: list[str]) -> Callable[[Control], Control]:
    """The change that the action makes to the control settings."""
    from scrapy_aopic.core.operator_control import Control

    now = datetime.now(timezone.utc).timestamp()
    match opts.action:
        case "pause":
            change: Callable[[Control], Control] = partial(Control.paused, now=now)
        case "resume":
            change = Control.resumed
        case "block":
            change = partial(Control.blocking, names=names, now=now)
        case "unblock":
            change = partial(Control.unblocking, names=names)
        case "slow":
            change = partial(Control.slowing, names=names, gap=_number(opts, float), now=now)
        case "connections":
            change = partial(Control.limited, connections=int(_number(opts, int)))
        case _:
            change = partial(Control.limited, rate=_number(opts, float))
    return change


def _check_values(opts: argparse.Namespace) -> None:
    """Refuse values that the action does not take."""
    from scrapy.exceptions import UsageError

    wanted = _ACTIONS[opts.action].partition(":")[0] if ":" in _ACTIONS[opts.action] else ""
    least = len(wanted.split())
    n = len(opts.values)
    if n < least or (n > least and not wanted.endswith("...")):
        given = f"{' '.join(opts.values)!r} was" if opts.values else "nothing was"
        raise UsageError(f"'{opts.action}' takes {wanted or 'nothing'} after it, and {given} given")


def _number(opts: argparse.Namespace, kind: type[int | float]) -> float:
    from scrapy.exceptions import UsageError

    try:
        return kind(opts.values[0])
    except ValueError:
        raise UsageError(
            f"{opts.values[0]!r} after '{opts.action}' is no {'whole ' if kind is int else ''}number"
        ) from None

"""``scrapy aopic control``: what an operator asks of a crawl, while it runs or before it starts again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import Names, add_jobdir, add_json, as_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Pause a crawl, leave hosts or domains alone, slow them down, or limit the whole crawl. In force within a second or two, "
    "and kept with the job; nothing is lost. Without an ACTION: show what is in force."
)

_NAMED = 10
"""Names that a sentence has at most."""


def add_options(parser: argparse.ArgumentParser) -> None:
    from scrapy_aopic.core.operator_control import ACTIONS

    add_jobdir(parser)
    add_json(parser)
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=Names({"": "", **ACTIONS}, "action"),
        default="",
        help="; ".join(
            f"{name} {what}" if ":" in what else f"{name}: {what}" for name, what in ACTIONS.items()
        ),
    )
    parser.add_argument("values", metavar="VALUE", nargs="*", help="what the action is about")


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.place.stored_control import ask_of_crawl, control_sentences, read_control

    names = _names(opts)
    if opts.action:
        others = opts.values[: opts.action == "slow"] if names else opts.values
        control = ask_of_crawl(opts.jobdir, opts.action, [*others, *names])
    else:
        control = read_control(opts.jobdir)
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

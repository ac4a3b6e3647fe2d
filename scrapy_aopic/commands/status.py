"""``scrapy aopic status``: how far a job has come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json, snapshot

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

    from scrapy_aopic.place.place import Place

MEANING = (
    "Counts, front and back queues and the ledger of a job. Also while the crawl runs, as of its last commit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument(
        "--totals",
        action="store_true",
        help="only what each commit counts: at once, however many pages there are",
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.place.server_place import ServerPlace
    from scrapy_aopic.view.history import FILE_NAME, read_history, recent
    from scrapy_aopic.view.queries import status, totals
    from scrapy_aopic.view.text_report import format_status
    from scrapy_aopic.view.whole_job import format_shards, shards_status, stored_status

    place: Place = opts.jobdir
    if place.read_cut() is not None:
        whole = shards_status(place.address) if isinstance(place, ServerPlace) else stored_status(place)
        _show(whole, format_shards, opts)
        return 0
    with snapshot(place) as store:
        state = totals(store) if opts.totals else status(store)
    if state and place.folder is not None:
        for name, values in recent(read_history(place.folder / FILE_NAME), state["saved_at"]).items():
            state[name] = {**state.get(name, {}), **values}
    _show(state, format_status, opts)
    return 0


def _show(state: dict[str, Any], as_text: Callable[[dict[str, Any]], str], opts: argparse.Namespace) -> None:
    """Write *state*, and what an operator asks of the crawl."""
    from scrapy_aopic.place.stored_control import control_sentences, read_control

    asked = control_sentences(read_control(opts.jobdir))
    if opts.json:
        write(json.dumps({**state, "control": asked} if asked else state, indent=1))
        return
    if asked:
        write("\n".join(["asked of the crawl by 'scrapy aopic control':", *(f"  {each}" for each in asked)]))
    write(as_text(state))

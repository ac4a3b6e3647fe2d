"""Uvloop: what a page costs on the event loop of uvloop, beside that of asyncio."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from measure import Absent

if TYPE_CHECKING:
    from measure import Runner

UVLOOP = {"ASYNCIO_EVENT_LOOP": "uvloop.Loop"}


def part(run: Runner) -> None:
    """Whole crawls by turns, with all links and without."""
    if find_spec("uvloop") is None:
        raise Absent("uvloop is not installed: pip install 'scrapy-aopic[uvloop]'.")
    for kind, words in (
        ("addon-links", "Links"),
        ("addon", "Requests"),
        ("ours-download", "no links followed"),
        ("stock", "Scrapy in memory"),
    ):
        what = {"hosts": 500, "links": 40, "pages": run.options.pages, "kind": kind}
        asyncio_, uvloop_ = run.rounds(("crawls:crawl", what), ("crawls:crawl", {**what, "settings": UVLOOP}))
        run.add_paired(
            "uvloop",
            f"{words}, with uvloop to asyncio's event loop",
            "ms CPU/page",
            [found["ms"] for found in uvloop_],
            [found["ms"] for found in asyncio_],
        )

"""Loop: how long one call from Scrapy's event loop into the scheduler keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measure import Runner


def part(run: Runner) -> None:
    """Calls into the scheduler in a whole crawl, by the clock."""
    arguments = {"hosts": 1000, "links": 50, "pages": run.options.pages, "kind": "ours", "watches": True}
    found = run.by_turns(("crawls:crawl", arguments))[0]
    run.add("loop", "a call into the scheduler, 99.9th percentile", "ms", found["p999"], wanted=20)
    run.add("loop", "the longest call", "ms", found["longest"])

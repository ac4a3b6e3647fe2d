"""Owners: what it costs a crawl to look for what owners of pages ask, where pages ask nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import crawls

from scrapy_aopic.session.page_robots import PageRobots

if TYPE_CHECKING:
    from measure import Runner
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_aopic.session.visit import Visit

WEBS = {
    "40 links": {"hosts": 200, "links": 40},
    "100 links, 100 kB": {"hosts": 200, "links": 100, "kilobytes": 100},
}


def crawl(*, reads: bool, is_timed: bool = False, **what: Any) -> dict[str, Any]:
    """CPU milliseconds a page of a crawl that *reads* what pages ask, or does not; and of the reading, if that is timed."""
    read, took = PageRobots.read, [0.0]

    def timed(robots: PageRobots, response: Response, request: Request, visit: Visit | None) -> None:
        began = time.thread_time()
        read(robots, response, request, visit)
        took[0] += time.thread_time() - began

    how = (timed if is_timed else read) if reads else lambda *_: None
    with patch.object(PageRobots, "read", how):
        found = crawls.crawl(kind="addon-links", **what)
    return {**found, "reading": took[0] * 1000 / found["pages"]}


def part(run: Runner) -> None:
    """Whole crawls that read what pages ask beside those that do not, and the CPU time of the reading in one crawl."""
    for name, web in WEBS.items():
        what = {**web, "pages": run.options.pages}
        with_, without, timed = run.rounds(
            ("owners:crawl", {**what, "reads": True}),
            ("owners:crawl", {**what, "reads": False}),
            ("owners:crawl", {**what, "reads": True, "is_timed": True}),
        )
        run.add_paired(
            "owners",
            f"{name}, what pages ask is read, to not at all",
            "ms CPU/page",
            [each["ms"] for each in with_],
            [each["ms"] for each in without],
            wanted=1.01,
        )
        run.add_paired(
            "owners",
            f"{name}, of that the reading, to the whole page",
            "ms CPU/page",
            [each["reading"] for each in timed],
            [each["ms"] for each in timed],
            wanted=0.01,
        )

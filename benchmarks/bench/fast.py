"""Fast: what a page costs with fast downloads, beside Scrapy's own download handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measure import Runner

CRAWLS = (
    ("addon-links", 4, False, "Links, 4 of 40 links new"),
    ("addon-links", 38, True, "Links, 38 of 40 links new, queries"),
    ("addon", 4, False, "the spider unchanged, 4 of 40 links new"),
    ("addon-download", None, False, "no links followed"),
)
"""Kind of the crawl, new links of a page, whether URLs have queries, and words for it."""


def part(run: Runner) -> None:
    """Whole crawls by turns, with the add-on."""
    for kind, new, has_queries, words in CRAWLS:
        web = {"hosts": 100, "links": 40, "new": new, "has_queries": has_queries}
        what = {**web, "pages": run.options.pages, "kind": kind}
        fast, slow = run.rounds(
            ("crawls:crawl", what), ("crawls:crawl", {**what, "settings": {"AOPIC_FAST_DOWNLOADS": False}})
        )
        run.add_paired(
            "fast",
            f"{words}, fast downloads to Scrapy's",
            "ms CPU/page",
            [found["ms"] for found in fast],
            [found["ms"] for found in slow],
        )

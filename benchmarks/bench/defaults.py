"""Defaults: what each setting of the add-on costs a page, by leaving it out.

A crawl with the add-on as it is, and crawls in which one of its settings has Scrapy's value, or is off. Only what takes CPU
time is here: bounds that no page of the web reaches cost one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measure import Runner

WITHOUT: dict[str, dict[str, Any]] = {
    "AOPIC_DIRECTORY_PAGES = 0": {"AOPIC_DIRECTORY_PAGES": 0},
    "AOPIC_CONTENT_SEEN = off": {"AOPIC_CONTENT_SEEN": "off"},
    "AOPIC_CONTENT_SEEN = near": {"AOPIC_CONTENT_SEEN": "near"},
    "AOPIC_CANONICAL = off": {"AOPIC_CANONICAL": "off"},
    "AOPIC_URL_RULES: none": {"AOPIC_URL_RULES": []},
    "bounds of URLs: none": {
        "AOPIC_URL_LIMITS": "length=0, depth=0, repeats=0, parameters=0",
        "AOPIC_SKIP_EXTENSIONS": [],
    },
    "AOPIC_LINK_FLOOD = 0": {"AOPIC_LINK_FLOOD": 0},
    "AOPIC_CONTENT_TYPES: all": {"AOPIC_CONTENT_TYPES": "*/*"},
    "AOPIC_DURABILITY = close": {"AOPIC_DURABILITY": "close"},
    "ROBOTSTXT_OBEY = False": {"ROBOTSTXT_OBEY": False},
    "CONCURRENT_ITEMS = 100": {"CONCURRENT_ITEMS": 100},
    "CONCURRENT_ITEMS = 1": {"CONCURRENT_ITEMS": 1},
    "CONCURRENT_REQUESTS = 16": {"CONCURRENT_REQUESTS": 16},
    "DOWNLOAD_DELAY = 0": {"DOWNLOAD_DELAY": 0},
    "COOKIES_ENABLED = True": {"COOKIES_ENABLED": True},
    "DOWNLOAD_TIMEOUT = 180": {"DOWNLOAD_TIMEOUT": 180},
    "REFERER_ENABLED = False": {"REFERER_ENABLED": False},
    "RETRY_ENABLED = False": {"RETRY_ENABLED": False},
    "HTTPCOMPRESSION_ENABLED = False": {"HTTPCOMPRESSION_ENABLED": False},
}
"""By what is different from the add-on's setting."""

_KIND = "addon-links"


def part(run: Runner) -> None:
    """A crawl with the add-on to the same with one setting changed, by turns."""
    what = {"hosts": 500, "links": 40, "pages": run.options.pages, "kind": _KIND}
    with_all, *others = run.rounds(
        ("crawls:crawl", what), *(("crawls:crawl", {**what, "settings": each}) for each in WITHOUT.values())
    )
    for name, found in zip(WITHOUT, others, strict=True):
        run.add_paired(
            "defaults",
            f"the add-on, to the same with {name}",
            "ms CPU/page",
            [each["ms"] for each in with_all],
            [each["ms"] for each in found],
        )

"""What a pattern is, and the list of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from scrapy import Spider
from scrapy.http import Response

SHOP = "http://shop.test"
FIRST = [f"{SHOP}/page/1"]
"""Where most spiders begin: a list of three pages, each with an item."""


def title(response: Response) -> dict[str, str | None]:
    """What most spiders scrape."""
    return {"title": response.css("title::text").get()}


def titles(*of: str) -> list[dict[str, str]]:
    """Items with these titles."""
    return [{"title": each} for each in of]


class Plain(Spider):
    """Begins with the first page, and scrapes the title of each; patterns say what they do otherwise."""

    start_urls = FIRST

    def parse(self, response):
        yield title(response)

    def parse_item(self, response):
        yield title(response)

    def failed(self, failure):
        yield {"failed": failure.type.__name__}


class OfCrawler:
    """A component that keeps the crawler it is made for."""

    def __init__(self, crawler):
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)


_ADDON = {"ADDONS": {"scrapy_aopic.Addon": 500}, "AOPIC_ALLOW_NETWORKS": ["127.0.0.0/8", ":1"]}
"""With a port of this machine on which nothing listens, as some patterns want."""

WAYS: dict[str, dict[str, Any]] = {
    "stock": {},
    "stock, job": {},
    "alone": {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": "memory"},
    "alone, job": {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": "sqlite"},
    "add-on": {**_ADDON, "AOPIC_STORE": "memory"},
    "add-on, job": _ADDON,
}
"""Ways to run a pattern, with their settings; the first says what the others are to come to.

Jobs on the disk are in SQLite and in RocksDB, the default, by turns.
"""

ALONE = ("alone", "alone, job")
ADDON = ("add-on", "add-on, job")
JOB = ("alone, job", "add-on, job")
ALL = (*ALONE, *ADDON)
WORDS = {ALL: "", ALONE: "with the scheduler alone", ADDON: "with the add-on", JOB: "with a job folder"}
"""Ways that differences are stated for, in words."""


@dataclass(frozen=True)
class Differs:
    """A difference from stock Scrapy that is meant.

    Attributes:
        ways: Those in which there is one.
        note: What it is, and why, for the docs.
        instead: What is otherwise, by its name in the result (`ways`); ``None`` if it is as in stock Scrapy with a job folder.
    """

    ways: tuple[str, ...]
    note: str
    instead: Mapping[str, Any] | None


def result(difference: Differs) -> str:
    """What the docs say of a *difference* in a word."""
    if difference.instead is None:
        return "same as Scrapy with a job folder"
    return f"differs {WORDS[difference.ways]}".rstrip()


@dataclass(frozen=True)
class Pattern:
    """A spider and what it gives.

    Attributes:
        text: What it does, in words for the docs.
        gives: Items, in any order.
        settings: Those of its project.
        noted: Stats below ``noted/`` that the spider or what is beside it sets.
        reason: Why it ends; ``None`` if versions of Scrapy differ.
        ways: Those that are compared with stock Scrapy.
        command: Of Scrapy's command line, which then runs the spider in a process; its items are the lines it prints.
        runs: How often it is run, one time after the other.
    """

    name: str
    group: str
    text: str
    spider: type[Spider]
    gives: list[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    noted: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = "finished"
    differs: Sequence[Differs] = ()
    ways: Sequence[str] = ALL
    command: Sequence[str] = ()
    runs: int = 1

    def difference(self, way: str) -> Differs | None:
        """The difference that is stated for a *way*."""
        return next((each for each in self.differs if way in each.ways), None)


FILES = (
    "callbacks", "waiting", "failures", "hooks", "sessions", "requesting", "spiders_of_scrapy", "events",
    "services", "projects", "commands",
)  # fmt: skip
"""Files with patterns, in the order of the docs."""

PATTERNS: dict[str, Pattern] = {}


def pattern(group: str, text: str, gives: list[Any], **more: Any) -> Callable[[type[Spider]], type[Spider]]:
    """Enter a spider into the list; the rest is that of :class:`Pattern`."""

    def enter(spider: type[Spider]) -> type[Spider]:
        spider.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", spider.__name__).lower()
        assert spider.name not in PATTERNS, f"two patterns are called {spider.name}"
        PATTERNS[spider.name] = Pattern(spider.name, group, text, spider, gives, **more)
        return spider

    return enter


def pattern_with(
    spider: type[Spider],
    setting: Callable[[type], dict[str, Any]],
    group: Callable[..., Callable[[type], type]],
    text: str,
    gives: list[Any],
    **more: Any,
) -> Callable[[type], type]:
    """Enter a component into the list by what enters its *group*, for a *spider* in a project with the *setting* that it makes."""

    def enter(component: type) -> type:
        settings = {**setting(component), **more.pop("settings", {})}
        made = type(component.__name__, (spider,), {"__module__": spider.__module__})
        group(text, gives, settings=settings, **more)(made)
        return component

    return enter


def load() -> dict[str, Pattern]:
    """All patterns by name, in the order of the docs."""
    for name in FILES:
        import_module(f"{__package__}.{name}")
    return PATTERNS

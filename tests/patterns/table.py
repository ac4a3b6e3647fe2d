"""What a pattern is, and the list of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scrapy import Spider

WAYS: dict[str, dict[str, Any]] = {
    "stock": {},
    "stock, job": {},
    "alone": {"SCHEDULER": "scrapy_aopic.Scheduler"},
    "alone, job": {"SCHEDULER": "scrapy_aopic.Scheduler"},
    "add-on": {"ADDONS": {"scrapy_aopic.Addon": 500}},
    "add-on, job": {"ADDONS": {"scrapy_aopic.Addon": 500}},
}
"""Ways to run a pattern, with their settings; the first says what the others are to come to."""

ALONE = ("alone", "alone, job")
ADDON = ("add-on", "add-on, job")
JOB = ("alone, job", "add-on, job")
ALL = (*ALONE, *ADDON)
"""Ways that differences are stated for."""


@dataclass(frozen=True)
class Differs:
    """A difference from stock Scrapy that is meant.

    Attributes:
        ways: Those in which there is one.
        note: What it is, and why, for the docs.
        instead: What is otherwise, by its name in the result (`run`); ``None`` if it is as in stock Scrapy with a job folder.
    """

    ways: tuple[str, ...]
    note: str
    instead: Mapping[str, Any] | None


@dataclass(frozen=True)
class Pattern:
    """A spider and what it gives.

    Attributes:
        text: What it does, in words for the docs.
        gives: Items, in any order.
        settings: Those of its project.
        noted: Stats below ``noted/`` that the spider or what is beside it sets.
        reason: Why it ends.
        note: What the docs say of it beside ``text``.
    """

    name: str
    group: str
    text: str
    spider: type[Spider]
    gives: list[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    noted: Mapping[str, Any] = field(default_factory=dict)
    reason: str = "finished"
    differs: tuple[Differs, ...] = ()
    note: str = ""

    def difference(self, way: str) -> Differs | None:
        """The difference that is stated for a *way*."""
        return next((each for each in self.differs if way in each.ways), None)


PATTERNS: dict[str, Pattern] = {}
"""All patterns by name, in the order of the docs."""


def pattern(group: str, text: str, gives: list[Any], **more: Any) -> Callable[[type[Spider]], type[Spider]]:
    """Enter a spider into the list; the rest is that of :class:`Pattern`."""

    def enter(spider: type[Spider]) -> type[Spider]:
        spider.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", spider.__name__).lower()
        assert spider.name not in PATTERNS, f"two patterns are called {spider.name}"
        PATTERNS[spider.name] = Pattern(spider.name, group, text, spider, gives, **more)
        return spider

    return enter

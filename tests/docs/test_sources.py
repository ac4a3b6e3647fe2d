"""docs/sources.md: each item of the works behind the package is in a place that exists, or is refused with a reason.

Whether its links lead somewhere is tested with those of all documents.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from scrapy.settings import default_settings

from scrapy_aopic.commands import SUBCOMMANDS
from scrapy_aopic.settings import SETTINGS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
FOLDERS = ("scrapy_aopic", "benchmarks", "tests", "example_project")
PLACE = re.compile(r"`([^`]+)`|\[[^\]]+\]\(([^)\s]+)\)")


class Item(NamedTuple):
    """A row of a table."""

    item: str
    where: str
    why: str


def items_of(text: str) -> list[Item]:
    """The rows of all tables; a cell may have escaped bars."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows if row[0].strip(" -") not in ("", "item")]
    return [Item(*row) for row in cells]


def exists(place: str) -> bool:
    """Whether *place* is a file, a setting of the package or of Scrapy, or a command."""
    first, _, rest = place.partition("/")
    if rest:
        return first in FOLDERS and (ROOT / place).is_file()
    if place.startswith("scrapy aopic "):
        name, _, action = place.removeprefix("scrapy aopic ").partition(" ")
        return name in SUBCOMMANDS and (not action or action in getattr(SUBCOMMANDS[name], "ACTIONS", {}))
    return place in SETTINGS or hasattr(default_settings, place)


def faults(item: Item) -> list[str]:
    """What is wrong with *item*."""
    if item.where == "refused":
        is_sentence = len(item.why.split()) > 5 and item.why.endswith(".")
        return [] if is_sentence else ["refused without a reason"]
    found = PLACE.findall(item.where)
    wrong = [code for code, _ in found if code and not exists(code)]
    rest = PLACE.sub("", item.where).strip(" ,")
    return [*wrong, *([] if found else ["it has no place"]), *([rest] if rest else [])]


def test_each_item_is_somewhere_or_refused_with_a_reason():
    items = items_of(TEXT)
    assert {item.item: found for item in items if (found := faults(item))} == {}


def test_no_item_stands_twice_in_a_table():
    for table in TEXT.split("\n#"):
        assert [item for item, n in Counter(each.item for each in items_of(table)).items() if n > 1] == []


def test_each_source_is_taken_apart():
    counts = {
        title: len(items_of(rest)) for title, _, rest in (part.partition("\n") for part in TEXT.split("\n#"))
    }
    assert counts.pop("# The packages that were named") == 5
    assert {title.strip("# "): n > 20 for title, n in counts.items() if n} == dict.fromkeys(
        (
            "AOPIC",
            "Crawling in an introduction to information retrieval",
            "OPIC in Nutch",
            "Focused crawling by joint link similarity (JLSE)",
            "A spider of one site, and a survey of strategies",
            "URL caching",
        ),
        True,
    )


def test_a_place_that_does_not_exist_is_noticed():
    why = "It would cost a host a second request."
    places = (
        "`AOPIC_WINDOW`, `scrapy_aopic/core/ledger.py`, `scrapy aopic top`, [The gap](politeness.md#the-gap)"
    )
    for good in [(places, ""), ("`DEPTH_LIMIT`, [OPIC made visible](opic/index.html)", ""), ("refused", why)]:
        assert faults(Item("an item", *good)) == []
    bad = [
        ("", ""),
        ("refused", ""),
        ("refused", "No."),
        ("refused, `AOPIC_WINDOW`", why),
        ("`AOPIC_WINDOWS`", ""),
    ]
    for each in [*bad, ("`scrapy_aopic/core/ledgers.py`", ""), ("`scrapy aopic tops`", "")]:
        assert len(faults(Item("an item", *each))) == 1, each

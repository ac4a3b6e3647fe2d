"""A snapshot as stats, and stats as measures for monitoring systems: by the table of :mod:`scrapy_aopic.metrics`.

Rule 1: a measure is a stat of the table, under the kind, unit and meaning that it has there. Others are left out: names of
stats of other packages may be without bound.

Rule 2: labels are bounded: at most :data:`_MOST` values for a family, none of them a URL or the name of a host.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.metrics import OWN, Stat, find
from scrapy_aopic.version import __version__

from .snapshot import figure
from .verdict import LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .snapshot import Figure, Snapshot

_STATES = ("ready", "waiting", "in_flight", "gated", "late", "shelved", "parked", "dead")
"""Hosts that are counted by state."""

_MOST = 64
"""Values of a label: more than any family has reasons. What is beyond them is counted together, as ``other``."""

_LONGEST = 64
"""Characters of the value of a label."""


class Measure(NamedTuple):
    """A stat, or a family of stats, with its values.

    Attributes:
        values: By the value of the label; of a single stat the one under the empty text.
    """

    stat: Stat
    values: dict[str, float]


def stats_of(now: Snapshot) -> dict[str, Figure]:
    """Values of the stats that are figures of a snapshot, by name; those under ``aopic/live`` of a crawl that runs only."""
    values: dict[str, Figure] = {}
    for stat in OWN:
        kind = stat.name.split("/")[1]
        if stat.figure and (now.is_live or kind != "live") and (now.shards.n > 1 or kind != "shards"):
            if not stat.label:
                values[stat.name] = figure(now, stat.figure)
            for state in _STATES if stat.label else ():
                values[stat.name.replace("<state>", state)] = figure(now, f"{stat.figure}.{state}")
    if now.is_live:
        values["aopic/live/paused"] = int(bool(now.control.paused_since))
        for limit in LIMITS:
            values[f"aopic/live/limits/{limit}"] = int(now.verdict.limit == limit)
    return values


def measures(stats: Mapping[str, Any]) -> dict[str, Measure]:
    """What *stats* show, by the name of the metric."""
    found: dict[str, Measure] = {}
    for name in sorted(stats):
        value = stats[name]
        stat = find(name)
        if stat is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        _, values = found.setdefault(stat.metric, Measure(stat, {}))
        label = _label(name.removeprefix(stat.name.partition("<")[0])) if stat.label else ""
        if label not in values and len(values) >= _MOST:
            label = "other"
        values[label] = values.get(label, 0) + value
    return found


def _label(text: str) -> str:
    return text if len(text) <= _LONGEST and "://" not in text else "other"


# -- for Prometheus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""That of its format."""


def exposition(stats: Mapping[str, Any], spider: str = "") -> str:
    """The metrics of *stats* as the text that Prometheus reads (version 0.0.4 of its format), sorted by name."""
    lines = [
        "# HELP aopic_info The version of scrapy-aopic, and the spider.",
        "# TYPE aopic_info gauge",
        f'aopic_info{{version="{_escaped(__version__)}",spider="{_escaped(spider)}"}} 1',
    ]
    for metric, (stat, values) in sorted(measures(stats).items()):
        lines.append(f"# HELP {metric} {plain(stat.meaning)}")
        lines.append(f"# TYPE {metric} {stat.kind}")
        for label, value in values.items():
            braces = f'{{{stat.label}="{_escaped(label)}"}}' if stat.label else ""
            lines.append(f"{metric}{braces} {_number(value)}")
    return "\n".join([*lines, ""])


def plain(markdown: str) -> str:
    """The words of a *markdown* text, in one line."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(text.replace("`", "").split()).replace("\\", r"\\")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value)

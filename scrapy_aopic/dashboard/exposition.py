"""Stats as the text that Prometheus reads (version 0.0.4 of its format).

Rule 1: a metric is a stat of :mod:`scrapy_aopic.metrics`, under the name, kind and meaning that it has there. Others are
left out: names of stats of other packages may be without bound.

Rule 2: labels are bounded: at most :data:`_MOST` values for a family, none of them a URL or the name of a host.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from scrapy_aopic.metrics import find
from scrapy_aopic.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_aopic.metrics import Stat

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MOST = 64
"""Values of a label: more than any family has reasons. What is beyond them is counted together, as ``other``."""

_LONGEST = 64
"""Characters of the value of a label."""


def exposition(stats: Mapping[str, Any], spider: str = "") -> str:
    """The metrics of *stats*, sorted by name."""
    families: dict[str, tuple[Stat, dict[str, float]]] = {}
    for name in sorted(stats):
        value = stats[name]
        stat = find(name)
        if stat is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        _, values = families.setdefault(stat.metric, (stat, {}))
        label = _label(name.removeprefix(stat.name.partition("<")[0])) if stat.label else ""
        if label not in values and len(values) >= _MOST:
            label = "other"
        values[label] = values.get(label, 0) + value
    lines = [
        "# HELP aopic_info The version of scrapy-aopic, and the spider.",
        "# TYPE aopic_info gauge",
        f'aopic_info{{version="{_escaped(__version__)}",spider="{_escaped(spider)}"}} 1',
    ]
    for metric, (stat, values) in sorted(families.items()):
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


def _label(text: str) -> str:
    return text if len(text) <= _LONGEST and "://" not in text else "other"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value)

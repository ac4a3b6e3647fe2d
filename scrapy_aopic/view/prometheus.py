"""Stats as metrics for Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from scrapy_aopic.stats_table import metrics_of
from scrapy_aopic.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the text format."""


def exposition(stats: Mapping[str, Any], spider: str = "") -> str:
    """The metrics of *stats* as the text that Prometheus reads (version 0.0.4 of its format), sorted by name."""
    lines = [
        "# HELP aopic_info The version of scrapy-aopic, and the spider.",
        "# TYPE aopic_info gauge",
        f'aopic_info{{version="{_escaped(__version__)}",spider="{_escaped(spider)}"}} 1',
    ]
    for metric, (stat, values) in sorted(metrics_of(stats).items()):
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

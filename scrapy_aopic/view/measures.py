"""Stats as measures: by the table of :mod:`scrapy_aopic.metrics`, with bounded labels, for any monitoring system.

Rule 1: a measure is a stat of the table, under the kind, unit and meaning that it has there. Others are left out: names of
stats of other packages may be without bound.

Rule 2: labels are bounded: at most :data:`_MOST` values for a family, none of them a URL or the name of a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.metrics import Stat, find

if TYPE_CHECKING:
    from collections.abc import Mapping


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

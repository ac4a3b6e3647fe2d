"""The stats that are figures of a snapshot, by the table of :mod:`scrapy_aopic.stats_table`."""

from __future__ import annotations

from scrapy_aopic.stats_table import OWN

from .snapshot import Figure, Snapshot, figure
from .verdict import LIMITS

_STATES = ("ready", "waiting", "in_flight", "gated", "late", "shelved", "parked", "dead")
"""Hosts that are counted by state."""


def stats_of(now: Snapshot) -> dict[str, Figure]:
    """Values of the stats that are figures of a snapshot, by name; those under ``aopic/live`` of a crawl that runs only."""
    values: dict[str, Figure] = {}
    for stat in OWN:
        kind = stat.name.split("/")[1]
        if stat.figure and (now.is_live or kind != "live") and (now.shards.n > 1 or kind != "shards"):
            if not stat.label and ((value := figure(now, stat.figure)) is not None or kind == "live"):
                values[stat.name] = value
            for state in _STATES if stat.label else ():
                values[stat.name.replace("<state>", state)] = figure(now, f"{stat.figure}.{state}")
    if now.is_live:
        values["aopic/live/paused"] = int(bool(now.control.paused_since))
        for limit in LIMITS:
            values[f"aopic/live/limits/{limit}"] = int(now.verdict.limit == limit)
    return values

"""Stats that are true while the crawl runs: for monitors, exporters and checks that read Scrapy's stats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .verdict import LIMITS

if TYPE_CHECKING:
    from .snapshot import Snapshot
    from .verdict import Verdict

_STATES = ("ready", "waiting", "in_flight", "gated", "late", "shelved", "parked", "dead")


def live_stats(now: Snapshot, verdict: Verdict) -> dict[str, float | None]:
    """Values of the stats under ``aopic/live``, by name."""
    rate, work, machine = now.rate, now.connections, now.machine
    values: dict[str, float | None] = {
        "aopic/live/pages_per_second": round(rate.pages, 3) if rate is not None else None,
        "aopic/live/bytes_per_second": round(rate.bytes) if rate is not None else None,
        "aopic/live/ceiling_pages_per_second": round(now.hosts.ceiling, 3),
        "aopic/live/forecast_seconds": now.forecast.seconds,
        "aopic/live/connections": work.in_use if work is not None else None,
        "aopic/live/callbacks": work.callbacks if work is not None else None,
        "aopic/live/queue_seconds": now.queue_seconds,
        "aopic/live/order_regret": round(now.regret, 3) if now.regret is not None else None,
        "aopic/live/paused": int(bool(now.paused_since)),
        "aopic/live/blocked_pages": now.pages.blocked,
        "aopic/live/commit_age_seconds": now.store.commit_age,
        "aopic/live/store_bytes": now.store.size_bytes,
        "aopic/live/loop_late_seconds": machine.loop_lag if machine is not None else None,
        "aopic/live/cpu": round(machine.cpu, 3) if machine is not None else None,
        "aopic/live/memory_bytes": machine.memory if machine is not None else None,
    }
    if now.part is not None:
        values["aopic/shards/held"] = now.part.held
        values["aopic/shards/workers"] = now.part.workers
    for state in _STATES:
        values[f"aopic/live/hosts/{state}"] = getattr(now.hosts, state)
    for limit in LIMITS:
        values[f"aopic/live/limits/{limit}"] = int(verdict.limit == limit)
    return values

"""The metrics of a crawl through OpenTelemetry, if its API is installed (``pip install scrapy-aopic[otel]``).

Rule 1: they are those of :func:`~scrapy_aopic.stats_table.metrics_of`, under names with dots: ``aopic/pages/visited`` is
``aopic.pages.visited``. All are observed: an SDK that the user has set up calls back in a thread of its own when it reads
them. Between two readings, or without an SDK, they cost nothing.

Rule 2: the instruments are those of the process, however many crawls it has, one after another or at once. The attribute
``spider`` distinguishes these. A counter never falls: what the earlier crawls of a spider have counted is added.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
from scrapy import Spider, signals

from scrapy_aopic.stats_table import STATS, Stat, find, metrics_of
from scrapy_aopic.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy.crawler import Crawler


_SAME_READING = 0.2
"""Seconds for which what was seen is remembered: a reading calls back once for each of some 90 instruments."""

_UNITS = {"seconds": "s", "bytes": "By", "bytes/s": "By/s", "1": "1", "CPU s/s": "1"}
"""Units as UCUM writes them; others are counts of things, in braces and in the singular."""

_LIVE = "aopic/live/"


class Series(NamedTuple):
    """Values of one metric: by the name of the crawl, and by that of the label."""

    stat: Stat
    values: dict[tuple[str, str], float]


class Telemetry:
    """Observes crawls.

    Args:
        meter: Makes the instruments.
    """

    def __init__(self, meter: Meter) -> None:
        self._lock = Lock()
        self._running: dict[str, Callable[[], Mapping[str, Any]]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, Series] = {}
        self._seen_at = float("-inf")
        for stat in {stat.metric: stat for stat in STATS.values()}.values():
            make: Callable[..., object] = (
                meter.create_observable_counter if stat.kind == "counter" else meter.create_observable_gauge
            )
            make(
                dotted(stat),
                callbacks=[partial(self._observe, stat.metric)],
                unit=unit_of(stat),
                description=stat.meaning,
            )

    def add(self, spider: str, stats: Callable[[], Mapping[str, Any]]) -> str:
        """Observe a crawl from now on; returns its name, which is that of its spider unless that is running already.

        Args:
            stats: Gives those of Scrapy, which the crawl changes; called in any thread.
        """
        with self._lock:
            name, n = spider, 1
            while name in self._running:
                n += 1
                name = f"{spider} {n}"
            self._running[name] = stats
        return name

    def remove(self, name: str) -> None:
        """Note that the crawl called *name* is over. Its counts remain, and the gauges of its job."""
        with self._lock:
            self._ended[name] = {
                each: value
                for each, value in self._with_earlier(name, dict(self._running.pop(name)())).items()
                if not each.startswith(_LIVE)
            }
            self._seen_at = float("-inf")

    def _with_earlier(self, name: str, stats: dict[str, Any]) -> dict[str, Any]:
        """*stats* of the crawl called *name*, with what earlier ones of that name have counted."""
        for each, value in self._ended.get(name, {}).items():
            metric = find(each)
            if metric is None:
                continue
            if metric.kind == "gauge":
                stats.setdefault(each, value)
            elif isinstance(value, (int, float)):
                stats[each] = stats.get(each, 0) + value
        return stats

    def _observe(self, metric: str, _: CallbackOptions) -> list[Observation]:
        """The values of *metric*."""
        with self._lock:
            if monotonic() - self._seen_at > _SAME_READING:
                self._seen, self._seen_at = self._look(), monotonic()
            found = self._seen.get(metric)
        if found is None:
            return []
        label = found.stat.label
        return [
            Observation(value, {"spider": name} | ({label: each} if label else {}))
            for (name, each), value in found.values.items()
        ]

    def _look(self) -> dict[str, Series]:
        found: dict[str, Series] = {}
        for name in self._ended.keys() | self._running.keys():
            # Copying a dictionary is atomic, so the thread of the crawl cannot change it meanwhile.
            stats = self._with_earlier(name, dict(self._running.get(name, dict)()))
            for metric, (stat, values) in metrics_of(stats).items():
                series = found.setdefault(metric, Series(stat, {}))
                series.values.update({(name, label): value for label, value in values.items()})
        return found


@lru_cache(maxsize=1)
def telemetry() -> Telemetry:
    """The observer of this process."""
    return Telemetry(get_meter("scrapy_aopic", __version__))


def observe(crawler: Crawler) -> None:
    """Observe *crawler* until its spider is closed."""
    stats = crawler.stats
    if stats is None:
        return
    seen = telemetry()
    name = seen.add(str(getattr(crawler.spider, "name", "")), stats.get_stats)

    def end(spider: Spider) -> None:
        seen.remove(name)

    crawler.signals.connect(end, signal=signals.spider_closed, weak=False)


def dotted(stat: Stat) -> str:
    """The name of *stat* in OpenTelemetry."""
    words = stat.name.removesuffix(f"/<{stat.label}>").replace("/", ".")
    return words if words.startswith("aopic.") else f"scrapy.{words}"


def unit_of(stat: Stat) -> str:
    """The unit of *stat* in OpenTelemetry."""
    known = _UNITS.get(stat.unit)
    if known is not None:
        return known
    things, slash, rest = stat.unit.partition("/")
    if things == "1":
        return f"1/{{{_one(rest)}}}"
    return f"{{{_one(things)}}}{slash}{rest}"


def _one(things: str) -> str:
    """The singular of *things*."""
    return re.sub(r"ies$", "y", things) if things.endswith("ies") else things.removesuffix("s")

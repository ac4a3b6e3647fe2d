"""What monitors show of a crawl, and when they call somebody: written to ``docs/monitoring/`` by ``python docs/generate.py``.

Every metric is looked up by the name of its stat, so that none can be here that is not in ``scrapy_aopic.stats_table``.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from scrapy_aopic.stats_table import STATS


def of(expression: str) -> str:
    """*expression* with the name of the metric for each ``{stat}``."""
    return re.sub(r"\{(aopic/[\w/]+(?:/<\w+>)?)\}", lambda match: STATS[match[1]].metric, expression)


class Alert(NamedTuple):
    """An alert.

    Attributes:
        after: How long it must hold.
        severity: ``critical`` if the crawl does not do its work, else ``warning``.
        summary: What is the matter.
        entry: What to do, for the run book.
    """

    name: str
    expression: str
    after: str
    severity: str
    summary: str
    entry: str


ALERTS = (
    Alert(
        "AopicNoPages",
        of(
            "changes({aopic/job/visited}[10m]) + changes({aopic/job/failed}[10m]) == 0 "
            "and {aopic/job/queued} > {aopic/job/dead_pages} + {aopic/live/blocked_pages} "
            "unless {aopic/live/paused} == 1"
        ),
        "5m",
        "critical",
        "No page was fetched for 10 minutes, though some are queued and the crawl is not paused.",
        "The sentence on top of the dashboard says what the crawl waits for. "
        "If that is politeness, the hosts that are left have long crawl delays or do not answer: `scrapy aopic status` lists "
        "them. "
        "If nothing answers at all, look at the network and the proxy. "
        "If `/healthz` fails, too, a callback blocks the event loop: stop the process with SIGINT, or with SIGKILL if that "
        "does nothing; it continues where it was.",
    ),
    Alert(
        "AopicCommitOld",
        of("{aopic/live/commit_age_seconds} > 60"),
        "1m",
        "critical",
        "Nothing was committed for a minute.",
        "The disk is full, very slow, or gone; the log has the error of the store. "
        "No page is requested meanwhile, and none is lost: what was done since the last commit is done again after a restart.",
    ),
    Alert(
        "AopicErrors",
        of("increase({aopic/errors}[5m]) > 0"),
        "0m",
        "warning",
        "An error inside the scheduler.",
        "The log has the first of each kind, with its traceback. "
        "The crawl goes on, but a request that caused such an error may be lost: report it.",
    ),
    Alert(
        "AopicUnreadable",
        of("increase({aopic/pages/unreadable}[5m]) > 0"),
        "0m",
        "warning",
        "Queued requests could not be restored.",
        "`scrapy aopic status` says why, and shows an example under *set aside*. "
        "Mostly a callback of the spider was renamed; with the old name back, those that are still queued can be made.",
    ),
    Alert(
        "AopicServersFail",
        of("rate({aopic/politeness/errors}[15m]) / rate({aopic/politeness/transfers}[15m]) > 0.02"),
        "15m",
        "warning",
        "More than 2 % of the transfers end with a status of 500 or more.",
        "If it is one host, it has trouble, and gets longer gaps by itself. "
        "If it is many, they may reject this crawler: look at the user agent, and raise `AOPIC_POLITENESS_FACTOR`.",
    ),
    Alert(
        "AopicNetwork",
        of("rate({aopic/politeness/down}[10m]) / rate({aopic/politeness/transfers}[10m]) > 0.5"),
        "10m",
        "critical",
        "Most transfers get no response.",
        "Look at the network of this machine, its name server and its proxy. "
        "Pages of hosts that do not respond wait and are not lost.",
    ),
    Alert(
        "AopicLoopLate",
        of("{aopic/live/loop_late_seconds} > 0.5"),
        "5m",
        "warning",
        "The event loop is half a second late.",
        "If the process uses a whole core, this machine is the bottleneck: give it less to do at once "
        "(`CONCURRENT_REQUESTS`), or spread the crawl. "
        "If not, a callback or a pipeline blocks: it waits for a disk or a database without giving way.",
    ),
    Alert(
        "AopicWarcErrors",
        of("increase({aopic/warc/errors}[5m]) > 0"),
        "0m",
        "critical",
        "What is fetched is not written.",
        "The disk of `AOPIC_WARC_FILE` is full, or the file cannot be opened; the log says which.",
    ),
)


class Panel(NamedTuple):
    """A picture in the dashboard of Grafana.

    Attributes:
        series: What is drawn: an expression, and what it is called.
        unit: As Grafana names it.
        kind: ``timeseries`` or ``stat``.
        width: Of 24 columns.
    """

    title: str
    series: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


_OUTCOMES = "sum by (outcome) (rate({aopic/outcomes/<outcome>}[5m]))"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Now",
        (
            Panel("Pages a second", (("{aopic/live/pages_per_second}", ""),), kind="stat", width=4),
            Panel("Visited", (("{aopic/job/visited}", ""),), kind="stat", width=4),
            Panel("Failed", (("{aopic/job/failed}", ""),), kind="stat", width=4),
            Panel("Queued", (("{aopic/job/queued}", ""),), kind="stat", width=4),
            Panel("Hosts", (("{aopic/job/hosts}", ""),), kind="stat", width=4),
            Panel("Left", (("{aopic/live/forecast_seconds}", ""),), unit="s", kind="stat", width=4),
        ),
    ),
    (
        "Speed",
        (
            Panel(
                "Pages a second",
                (
                    ("{aopic/live/pages_per_second}", "now"),
                    ("{aopic/live/ceiling_pages_per_second}", "allowed"),
                ),
            ),
            Panel("Traffic", (("{aopic/live/bytes_per_second}", "received"),), unit="Bps"),
            Panel("What limits", (("{aopic/live/limits/<limit>}", "{{limit}}"),)),
        ),
    ),
    (
        "Politeness",
        (
            Panel("Hosts by state", (("{aopic/live/hosts/<state>}", "{{state}}"),)),
            Panel(
                "Transfers",
                (
                    ("rate({aopic/politeness/transfers}[5m])", "all"),
                    ("rate({aopic/politeness/errors}[5m])", "status of 500 or more"),
                    ("rate({aopic/politeness/down}[5m])", "no response"),
                ),
                unit="reqps",
            ),
            Panel(
                "In work",
                (("{aopic/live/connections}", "downloads"), ("{aopic/live/callbacks}", "callbacks")),
            ),
        ),
    ),
    (
        "Frontier",
        (
            Panel(
                "Queued",
                (
                    ("{aopic/job/queued}", "all"),
                    ("{aopic/job/dead_pages}", "on dead hosts"),
                    ("{aopic/live/blocked_pages}", "on blocked hosts"),
                ),
            ),
            Panel("Time in the queue", (("{aopic/live/queue_seconds}", "average"),), unit="s"),
            Panel("Turns", (("{aopic/cash/turns}", "|H|"),)),
        ),
    ),
    (
        "Order",
        (
            Panel(
                "What politeness costs the order",
                (("{aopic/live/order_regret}", "front queues below the best"),),
                width=12,
            ),
            Panel(
                "Harvest of a crawl for a topic",
                (("{aopic/topic/harvest_lately}", "last 500 pages"), ("{aopic/topic/harvest}", "all pages")),
                unit="percentunit",
                width=12,
            ),
        ),
    ),
    (
        "Outcomes",
        (
            Panel(
                "Pages that are not ordinary, by outcome",
                ((_OUTCOMES, "{{outcome}}"),),
                unit="reqps",
                width=12,
            ),
            Panel(
                "Refused URLs, by reason",
                (("sum by (reason) (rate({aopic/urls/refused/<reason>}[5m]))", "{{reason}}"),),
                width=12,
            ),
        ),
    ),
    (
        "Store and machine",
        (
            Panel("Age of the last commit", (("{aopic/live/commit_age_seconds}", "age"),), unit="s", width=6),
            Panel("Size of the store", (("{aopic/live/store_bytes}", "size"),), unit="bytes", width=6),
            Panel("Memory", (("{aopic/live/memory_bytes}", "process"),), unit="bytes", width=6),
            Panel(
                "Processor and event loop",
                (("{aopic/live/cpu}", "cores"), ("{aopic/live/loop_late_seconds}", "seconds late")),
                width=6,
            ),
        ),
    ),
)

_CHOSEN = '{job=~"$job",instance=~"$instance"}'


def chosen(expression: str) -> str:
    """*expression* with names of metrics, of the crawls that are chosen in Grafana."""
    return re.sub(
        r"\{(aopic/[\w/]+(?:/<\w+>)?)\}", lambda match: STATS[match[1]].metric + _CHOSEN, expression
    )


def grafana() -> str:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}
        )
        x, height = 0, 4 if row[0].kind == "stat" else 8
        for panel in row:
            panels.append(
                {
                    "type": panel.kind,
                    "title": panel.title,
                    "datasource": {"type": "prometheus", "uid": "${source}"},
                    "gridPos": {"x": x, "y": y + 1, "w": panel.width, "h": height},
                    "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                    "targets": [
                        {"refId": chr(65 + i), "expr": chosen(expression), "legendFormat": legend}
                        for i, (expression, legend) in enumerate(panel.series)
                    ],
                }
            )
            x += panel.width
        y += 1 + height
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    variables: list[dict[str, Any]] = [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    ]
    variables += [
        {
            "name": name,
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "query": f"label_values(aopic_info, {name})",
            "multi": True,
            "includeAll": True,
            "refresh": 2,
        }
        for name in ("job", "instance")
    ]
    made = {
        "title": "Crawl (scrapy-aopic)",
        "uid": "scrapy-aopic",
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "tags": ["scrapy"],
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(made, indent=1) + "\n"


def rules() -> str:
    """The alerts, as a file of rules of Prometheus."""
    lines = ["groups:", "  - name: scrapy-aopic", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.after}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook: {json.dumps(f'scrapy aopic docs dashboard#{alert.name.lower()}')}",
        ]
    return "\n".join([*lines, ""])


def run_book() -> str:
    """What to do at each alert."""
    parts = [
        f"### {alert.name}\n{alert.summary} ({alert.severity})\n{_lines(alert.entry)}\n\n" for alert in ALERTS
    ]
    return "".join(parts)


def _lines(text: str) -> str:
    """*text* with a sentence a line."""
    return re.sub(r"(?<=[.]) (?=[A-Z`])", "\n", text)


FILES = {"monitoring/grafana.json": grafana, "monitoring/alerts.yml": rules}
"""Files beside this one, and what is in them."""

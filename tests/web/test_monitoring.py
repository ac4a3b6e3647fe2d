"""The dashboard of Grafana and the alerts: made of metrics that there are, and up to date."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import generate  # noqa: F401  # finds the package
import monitoring
import pytest
from support.dashboard import TOKEN, Served
from support.prometheus import PROMETHEUS, Prometheus
from support.waiting import wait_until

from scrapy_aopic.dashboard.feed import FeedItem
from scrapy_aopic.dashboard.site import Shown, make_site
from scrapy_aopic.stats_table import STATS
from scrapy_aopic.view.snapshot import Snapshot

DOCS = Path(__file__).parents[2] / "docs"
METRICS = {stat.metric for stat in STATS.values()} | {"aopic_info"}


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:aopic|scrapy)_\w+", text))


@pytest.mark.parametrize("name", monitoring.FILES)
def test_the_files_are_up_to_date(name):
    assert (DOCS / name).read_text(encoding="utf-8") == monitoring.FILES[name](), (
        "run python docs/generate.py"
    )


def test_every_panel_and_every_alert_is_made_of_metrics_that_there_are():
    panels = [panel for panel in json.loads(monitoring.grafana())["panels"] if panel["type"] != "row"]
    for panel in panels:
        for target in panel["targets"]:
            assert metrics_in(target["expr"])
            assert metrics_in(target["expr"]) <= METRICS
            labels = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            assert all(f"<{label}>" in "".join(STATS) for label in labels)
    for alert in monitoring.ALERTS:
        assert metrics_in(alert.expression)
        assert metrics_in(alert.expression) <= METRICS
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_a_name_that_is_no_stat_is_refused():
    with pytest.raises(KeyError):
        monitoring.of("rate({aopic/no/such}[5m])")


def test_every_alert_has_an_entry_in_the_run_book():
    text = (DOCS / "dashboard.md").read_text(encoding="utf-8")
    book = text.partition("\n## Run book\n")[2]
    assert re.findall(r"^### (\w+)$", book, re.MULTILINE) == [alert.name for alert in monitoring.ALERTS]
    said = re.findall(r'runbook: "scrapy aopic docs dashboard#(\w+)"', monitoring.rules())
    assert said == [alert.name.lower() for alert in monitoring.ALERTS]


@needs_promtool
def test_prometheus_takes_the_rules():
    done = subprocess.run(
        ["promtool", "check", "rules", str(DOCS / "monitoring" / "alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


_NO_PAGES = """
rule_files: ["{rules}"]
evaluation_interval: 1m
tests:
{tests}
"""

_NO_PAGES_OF = """
  - interval: 1m
    input_series:
      - {{series: aopic_job_visited, values: "{visited}"}}
      - {{series: aopic_job_failed, values: "7x40"}}
      - {{series: aopic_job_queued, values: "100x40"}}
      - {{series: aopic_job_dead_pages, values: "10x40"}}
      - {{series: aopic_live_blocked_pages, values: "{blocked}x40"}}
      - {{series: aopic_live_paused, values: "{paused}x40"}}
    alert_rule_test:
      - eval_time: 30m
        alertname: AopicNoPages
        exp_alerts: {alerts}
"""


@needs_promtool
def test_a_crawl_without_pages_calls_somebody_unless_it_is_meant_to_have_none(tmp_path):
    (alert,) = (each for each in monitoring.ALERTS if each.name == "AopicNoPages")
    annotations = {"summary": alert.summary, "runbook": "scrapy aopic docs dashboard#aopicnopages"}
    fires = json.dumps([{"exp_labels": {"severity": "critical"}, "exp_annotations": annotations}])
    cases = [
        _NO_PAGES_OF.format(visited="50x40", blocked=0, paused=0, alerts=fires),
        _NO_PAGES_OF.format(visited="50+1x40", blocked=0, paused=0, alerts="[]"),
        _NO_PAGES_OF.format(visited="50x40", blocked=0, paused=1, alerts="[]"),
        _NO_PAGES_OF.format(visited="50x40", blocked=90, paused=0, alerts="[]"),
    ]
    file = tmp_path / "test.yml"
    file.write_text(_NO_PAGES.format(rules=DOCS / "monitoring" / "alerts.yml", tests="".join(cases)))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed")
def test_prometheus_scrapes_it_and_evaluates_the_rules(tmp_path):
    stats = {"aopic/job/visited": 12, "aopic/errors": 0, "aopic/outcomes/redirect": 5}

    class Crawled(Served):
        def take(self) -> FeedItem:
            self.taken += 1
            return FeedItem(Snapshot(at=0.0), dict(stats))

    served = Crawled()
    served.server.site = make_site(Shown(served.feed, oldest_commit=30))
    prometheus = Prometheus(tmp_path, served.port, TOKEN)

    def wait_for(expression: str, value: float) -> None:
        said = lambda: (expression, prometheus.value(expression), prometheus.target)
        wait_until(lambda: prometheus.value(expression) == value, every=0.1, said=said)

    try:
        wait_for("aopic_job_visited", 12)
        wait_for('aopic_outcomes_total{outcome="redirect"}', 5)
        assert prometheus.target["health"] == "up", prometheus.target
        stats["aopic/errors"] = 1
        wait_for('ALERTS{alertname="AopicErrors", alertstate="firing"}', 1)
        assert {rule["name"] for rule in prometheus.rules} == {alert.name for alert in monitoring.ALERTS}
        assert {(rule["health"], rule.get("lastError", "")) for rule in prometheus.rules} == {("ok", "")}
        firing = [rule["name"] for rule in prometheus.rules if rule["state"] == "firing"]
        assert firing == ["AopicErrors"]
    finally:
        prometheus.close()
        served.close()

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

from scrapy_aopic.metrics import STATS

DOCS = Path(__file__).parents[2] / "docs"
METRICS = {stat.metric for stat in STATS.values()} | {"aopic_info"}


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:aopic|scrapy)_\w+", text))


@pytest.mark.parametrize("name", monitoring.FILES)
def test_the_files_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == monitoring.FILES[name](), (
        "run python docs/generate.py"
    )


def test_every_panel_and_every_alert_is_made_of_metrics_that_there_are() -> None:
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


def test_panels_do_not_lie_over_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(monitoring.grafana())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        taken |= cells


def test_a_name_that_is_no_stat_is_refused() -> None:
    with pytest.raises(KeyError):
        monitoring.of("rate({aopic/no/such}[5m])")


def test_every_alert_has_an_entry_in_the_run_book() -> None:
    text = (DOCS / "dashboard.md").read_text(encoding="utf-8")
    book = text.partition("\n## Run book\n")[2]
    assert re.findall(r"^### (\w+)$", book, re.MULTILINE) == [alert.name for alert in monitoring.ALERTS]
    said = re.findall(r'runbook: "docs/dashboard\.md#(\w+)"', monitoring.rules())
    assert said == [alert.name.lower() for alert in monitoring.ALERTS]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(DOCS / "monitoring" / "alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""The text that Prometheus reads, by its own parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.stats_table import STATS
from scrapy_aopic.view.prometheus import exposition, plain

parser = pytest.importorskip("prometheus_client.parser")


def parsed(stats: dict[str, Any], spider: str = "") -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    families = parser.text_string_to_metric_families(exposition(stats, spider))
    return {
        sample.name: {}
        | {tuple(each.labels.items()): each.value for each in family.samples if each.name == sample.name}
        for family in families
        for sample in family.samples
    }


def test_every_stat_of_the_table_becomes_a_metric_of_its_kind():
    stats = {name.replace("<", "some ").replace(">", ""): 7 for name in STATS}
    families = list(parser.text_string_to_metric_families(exposition(stats)))
    kinds = {family.name: family.type for family in families}
    found = parsed(stats)
    for stat in STATS.values():
        assert kinds[stat.metric.removesuffix("_total")] == stat.kind
        assert found[stat.metric] == {((stat.label, f"some {stat.label}"),) if stat.label else (): 7}
    documented = {family.name: family.documentation for family in families}
    assert documented["aopic_pages_visited"] == "settled as visited, redirects included"


def test_stats_of_others_and_what_is_no_number_are_left_out():
    stats = {
        "downloader/request_count": 3,
        "aopic/cash/convergence": None,
        "aopic/errors": True,
        "aopic/commits": "many",
        "aopic/job/queued": 12,
    }
    assert set(parsed(stats)) == {"aopic_info", "aopic_job_queued"}


def test_labels_are_bounded():
    stats: dict[str, Any] = {f"aopic/outcomes/reason {n}": 1 for n in range(1000)}
    found = parsed(stats)["aopic_outcomes_total"]
    assert len(found) == 65
    assert found[(("outcome", "other"),)] == 936
    urls = parsed({"aopic/outcomes/http://a.test/": 1, f"aopic/outcomes/{'x' * 100}": 2})
    assert urls["aopic_outcomes_total"] == {(("outcome", "other"),): 3}


@given(st.text(max_size=64), st.text(), st.floats() | st.integers(-(2**60), 2**60))
def test_whatever_a_name_has_in_it_the_text_can_be_parsed(reason, spider, value):
    stats = {f"aopic/outcomes/{reason}": value}
    found = parsed(stats, spider)
    assert set(found) <= {"aopic_info", "aopic_outcomes_total"}
    if reason and "://" not in reason and "\r" not in reason:
        ((labels, shown),) = found["aopic_outcomes_total"].items()
        assert labels == (("outcome", reason),)
        assert shown == pytest.approx(value, nan_ok=True)


def test_markdown_becomes_plain():
    assert plain("URLs by [reason](urls.md#why), `x`") == "URLs by reason, x"

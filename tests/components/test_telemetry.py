"""The metrics of a crawl through OpenTelemetry, by its own SDK."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scrapy.http import Response
from scrapy.utils.defer import deferred_f_from_coro_f
from support.small_web import Follow, Web, crawl

from scrapy_aopic.stats_table import STATS

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from scrapy_aopic.view import opentelemetry as module
from scrapy_aopic.view.opentelemetry import Telemetry, dotted, unit_of

Serve = Callable[[dict[str, Any]], Web]
PAGES: dict[str, Any] = {"http://a.test/": ["http://b.test/", "http://b.test/gone"], "http://b.test/": []}
SCHEDULER = {"SCHEDULER": "scrapy_aopic.Scheduler"}


class Reading:
    """What is read from a meter of a test's own."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(self.provider.get_meter("scrapy_aopic"))

    def __call__(self) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
        """Values by attributes, by metric."""
        self.telemetry._seen_at = float("-inf")
        data = self.reader.get_metrics_data()
        return {
            metric.name: {
                tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points
            }
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    made = Reading()
    monkeypatch.setattr(module, "telemetry", lambda: made.telemetry)
    yield made
    made.provider.shutdown()


def of(spider: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"spider": spider, **labels}.items()))


@deferred_f_from_coro_f
async def test_a_crawl_is_observed_while_it_runs_and_counted_when_it_is_over(
    serve: Serve, reading: Reading
) -> None:
    seen = {}

    class Looking(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if response.url == "http://b.test/":
                seen.update(reading())
            yield from super().parse(response)

    serve(PAGES)
    crawler = await crawl(Looking, SCHEDULER)
    # This page and the one before; Scrapy 2.16 has had the third one's response, too, when it calls back.
    assert seen["aopic.politeness.transfers"] in ({of("follow"): 2}, {of("follow"): 3})
    stats = crawler.stats.get_stats()
    after = reading()
    assert after["aopic.pages.visited"] == {of("follow"): 2} == {of("follow"): stats["aopic/pages/visited"]}
    assert after["aopic.outcomes"] == {of("follow", outcome="http 404"): 1}
    assert after["aopic.job.visited"] == {of("follow"): 2}
    assert after["scrapy.scheduler.enqueued"] == {of("follow"): stats["scheduler/enqueued"]}
    assert not any(name.startswith("aopic.live") for name in after)  # nothing runs


@deferred_f_from_coro_f
async def test_a_counter_goes_on_with_the_next_crawl_of_the_process(serve: Serve, reading: Reading) -> None:
    serve(PAGES)
    for _ in range(2):
        await crawl(Follow, SCHEDULER)
    found = reading()
    assert found["aopic.pages.visited"] == {of("follow"): 4}
    assert found["aopic.job.visited"] == {of("follow"): 2}  # a gauge is that of the last crawl


def test_two_crawls_of_one_spider_at_once_have_names_of_their_own(reading: Reading) -> None:
    stats: dict[str, Any] = {"aopic/pages/visited": 3, "aopic/live/callbacks": 1}
    one = reading.telemetry.add("broad", lambda: stats)
    two = reading.telemetry.add("broad", lambda: {"aopic/pages/visited": 5})
    assert reading()["aopic.pages.visited"] == {of(one): 3, of(two): 5}
    assert reading()["aopic.live.callbacks"] == {of("broad"): 1}
    stats["aopic/pages/visited"] = 4
    reading.telemetry.remove(one)
    assert reading()["aopic.pages.visited"] == {of(one): 4, of(two): 5}
    assert "aopic.live.callbacks" not in reading()


def test_every_stat_of_the_table_is_an_instrument_of_its_kind_and_unit(reading: Reading) -> None:
    stats = {name.replace("<", "some ").replace(">", ""): 7 for name in STATS}
    reading.telemetry.add("broad", lambda: stats)
    data = reading.reader.get_metrics_data()
    found = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    assert len(found) == len({stat.metric for stat in STATS.values()})
    for stat in STATS.values():
        metric = found[dotted(stat)]
        assert metric.unit == unit_of(stat)
        assert metric.description == stat.meaning
        assert getattr(metric.data, "is_monotonic", False) == (stat.kind == "counter")
        (point,) = metric.data.data_points
        assert dict(point.attributes) == {"spider": "broad"} | (
            {stat.label: f"some {stat.label}"} if stat.label else {}
        )
    units = {unit_of(stat) for stat in STATS.values()}
    assert {"s", "By", "By/s", "{page}", "{page}/s", "{try}", "1/{turn}"} <= units


def test_no_attribute_is_a_url_and_their_number_is_bounded(reading: Reading) -> None:
    stats: dict[str, Any] = {f"aopic/outcomes/reason {n}": 1 for n in range(1000)}
    stats |= {"aopic/urls/refused/http://a.test/": 1, "downloader/request_count": 3}
    reading.telemetry.add("broad", lambda: stats)
    found = reading()
    assert len(found["aopic.outcomes"]) == 65
    assert found["aopic.urls.refused"] == {of("broad", reason="other"): 1}
    assert set(found) == {"aopic.outcomes", "aopic.urls.refused"}


@deferred_f_from_coro_f
async def test_a_crawl_without_the_api_is_as_any_other(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "scrapy_aopic.view.opentelemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    web = serve(PAGES)
    await crawl(Follow, SCHEDULER)
    assert web.asked[0] == "http://a.test/"
    assert [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}] == []

"""Settings: every wrong value stops the start, per-spider values work, and the add-on overrides nobody."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scrapy import Spider
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler

from scrapy_aopic import Addon, LinkMiddleware, PolitenessMiddleware, Progress, Scheduler
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.window import Window
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.settings import SETTINGS, read, read_policy, read_politeness, store_memory

WRONG: dict[str, list[Any]] = {
    "AOPIC_WINDOW": [0, -1, "often", "3 moons", True, "1 2", float("inf"), [8]],
    "AOPIC_WINDOW_KIND": ["sliding", None.__class__, 1],
    "AOPIC_ORDER": ["best", "", 7, None.__class__, "scrapy.Request", "scrapy_aopic.core.order.none"],
    "AOPIC_DOMAIN_BUDGET": [-0.1, 1.1, "some", float("nan")],
    "AOPIC_VIRTUAL_SHARE": [-0.1, 1.1, "some", True, float("nan")],
    "AOPIC_VIRTUAL_SPENDING": ["all", 1],
    "AOPIC_VIRTUAL_DOMAINS": ["https://example.com/", ["a b"], 7, True],
    "AOPIC_ENDOWMENT": [-1, "much", float("inf")],
    "AOPIC_POLITENESS_FACTOR": [-1, "ten", float("nan")],
    "AOPIC_MIN_GAP": [-1, 1e9],
    "AOPIC_MAX_GAP": [-1, "minute"],
    "AOPIC_POLITENESS_KEY": ["site", 7],
    "AOPIC_HOST_RULES": [7, "often", {"*": {"speed": 1}}, {"*": {"factor": -1}}, {"*": 3}],
    "AOPIC_BACKOFF": [-1, "slow", 1e9],
    "AOPIC_MAX_BACKOFF": [-1, "slow", float("inf")],
    "AOPIC_MAX_RETRY_AFTER": [-1, "day", 1e9],
    "AOPIC_DEAD_AFTER": [1, 2.5, "never"],
    "AOPIC_DURABILITY": [0, -5, "never", 1e9],
    "AOPIC_STORE": ["redis", ""],
    "AOPIC_MEMORY_MB": [0, 15, 16.5, "lots"],
    "AOPIC_CACHE_POLICY": ["fifo", ""],
    "AOPIC_PAGE_CACHE": [0, 99],
    "AOPIC_ACTIVE_HOSTS": [0, -1],
    "AOPIC_MAX_LINKS": [0, 0.5],
    "AOPIC_LINK_WEIGHTS": [
        "best",
        "internal",
        "internal=-1",
        {"outside": 1},
        {"nofollow": "no"},
        "os.name",
        7,
    ],
    "AOPIC_RECRAWL": ["maybe", 2],
    "AOPIC_RECRAWL_MIN_INTERVAL": [0, "1 day", float("inf")],
    "AOPIC_RECRAWL_MAX_INTERVAL": [0.5, "month"],
    "AOPIC_RECRAWL_SHARE": [-0.1, 1.1, True],
    "AOPIC_KEEP_LINKS": ["maybe", 2],
    "AOPIC_URL_RULES": [7, ["often"], "+sort, calendar", "-nonsense"],
    "AOPIC_URL_REWRITE": [[("(", "")], [("a", r"\1")], [("a",)], "no.such.function", 7],
    "AOPIC_MAX_URL_LENGTH": [-1, "long"],
    "AOPIC_MAX_PATH_DEPTH": [-1, 0.5],
    "AOPIC_MAX_REPEATS": [-1, True],
    "AOPIC_MAX_PARAMETERS": [-1, None.__class__],
    "AOPIC_SKIP_EXTENSIONS": [["a/b"], "p df", 7],
    "AOPIC_CONTENT_TYPES": ["html", ["text/html; charset=utf-8"], 7],
    "AOPIC_LINK_FLOOD": [-1, 0.5, "many"],
    "AOPIC_CONTENT_SEEN": ["fuzzy", True],
    "AOPIC_FOLLOW_DUPLICATES": ["maybe", 2],
    "AOPIC_CANONICAL": ["all", True],
    "AOPIC_DUPEFILTER": ["fuzzy", 1],
    "AOPIC_BLOOM_ERROR_RATE": [0, 1],
    "AOPIC_BLOOM_CAPACITY": [0],
    "AOPIC_ITEM_FIELDS": [["rank"], "importance,rank", 7],
    "AOPIC_ITEM_URL_FIELD": [7],
    "AOPIC_WARC_FILE": [7],
    "AOPIC_SEEDS": [7],
    "AOPIC_ROBOTS_EXPIRY": [0, -1, "day", 1e9],
    "AOPIC_ROBOTS_RETRY": [-1, "soon", 1e9],
    "AOPIC_ROBOTS_TRIES": [0, 1.5, "many"],
    "AOPIC_ROBOTS_CACHE": [0, "large"],
    "AOPIC_SITEMAPS": ["maybe", 2],
    "AOPIC_PROGRESS": ["maybe"],
    "AOPIC_REPORT": ["maybe", 2],
}


def test_there_are_wrong_values_for_every_setting() -> None:
    assert WRONG.keys() == SETTINGS.keys()


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_value_is_refused_with_name_value_and_way_out(name: str, value: Any) -> None:
    with pytest.raises(SettingError) as caught:
        read(Settings({name: value}), name)
    text = str(caught.value)
    assert text.startswith(f"{name} ({value!r}) must be ")
    assert text.endswith(".")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_passes_its_own_check(name: str) -> None:
    read(Settings(), name)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingError, match="AOPIC_WINDOWS is no setting"):
        read_policy(Settings({"AOPIC_WINDOWS": 8}))


@pytest.mark.parametrize(
    ("value", "window"),
    [
        (8, Window(8, clock="turns")),
        ("2.5", Window(2.5, clock="turns")),
        ("3 |H|", Window(3, clock="turns")),
        ("1 turn", Window(1, clock="turns")),
        ("36 hours", Window(36 * 3600, clock="seconds")),
        ("1 day", Window(86400, clock="seconds")),
        ("2 weeks", Window(14 * 86400, clock="seconds")),
    ],
)
def test_a_window_is_given_in_plain_units(value: Any, window: Window) -> None:
    assert read_policy(Settings({"AOPIC_WINDOW": value})).window == window


@pytest.mark.parametrize("kind", ["interpolation", "fixed", "variable", "ewma"])
def test_every_kind_of_window_can_be_chosen(kind: str) -> None:
    assert read_policy(Settings({"AOPIC_WINDOW_KIND": kind})).window == Window(8, kind, "turns")


@pytest.mark.parametrize("value", ["36 hours", "8 turns", 2.5, "2.5"])
def test_a_variable_window_is_a_number_of_visits(value: Any) -> None:
    settings = Settings({"AOPIC_WINDOW": value, "AOPIC_WINDOW_KIND": "variable"})
    with pytest.raises(SettingError) as caught:
        read_policy(settings)
    assert str(caught.value) == (
        f"AOPIC_WINDOW ({value!r}) must be a whole number of visits such as 8, because AOPIC_WINDOW_KIND is "
        "'variable'."
    )
    settings["AOPIC_WINDOW"] = "12"
    assert read_policy(settings).window == Window(12, "variable")


def test_the_intervals_of_a_continuous_crawl_are_in_order() -> None:
    settings = Settings({"AOPIC_RECRAWL_MIN_INTERVAL": 3600, "AOPIC_RECRAWL_MAX_INTERVAL": 60})
    with pytest.raises(SettingError) as caught:
        read_policy(settings)
    assert str(caught.value) == (
        "AOPIC_RECRAWL_MAX_INTERVAL (60) must be at least AOPIC_RECRAWL_MIN_INTERVAL (3600)."
    )


def test_pages_come_back_only_if_asked_to() -> None:
    intervals = {"AOPIC_RECRAWL_MIN_INTERVAL": 60, "AOPIC_RECRAWL_SHARE": 0.25}
    assert read_policy(Settings(intervals)).recrawl is None
    recrawl = read_policy(Settings({**intervals, "AOPIC_RECRAWL": "True"})).recrawl
    assert recrawl is not None
    assert (recrawl.min_interval, recrawl.max_interval, recrawl.share) == (60, 7_776_000, 0.25)


@pytest.mark.parametrize("given", ["Example.com, www.example.org,", ["example.com", "www.example.org"]])
def test_domains_are_a_list_or_a_text_with_commas(given: Any) -> None:
    assert read(Settings({"AOPIC_VIRTUAL_DOMAINS": given}), "AOPIC_VIRTUAL_DOMAINS") == {
        "example.com",
        "www.example.org",
    }


def test_the_budget_is_that_of_the_default_order() -> None:
    order = read_policy(Settings({"AOPIC_DOMAIN_BUDGET": 0.5})).order
    assert isinstance(order, Aopic)
    assert order.budget == 0.5
    assert not isinstance(read_policy(Settings({"AOPIC_ORDER": "opic"})).order, Aopic)


def test_a_spider_has_its_own_window() -> None:
    class Weekly(Spider):
        name = "weekly"
        custom_settings = {"AOPIC_WINDOW": "7 days", "AOPIC_WINDOW_KIND": "fixed"}

    crawler = get_crawler(Weekly)
    crawler._apply_settings()
    assert read_policy(crawler.settings).window == Window(7 * 86400, "fixed", "seconds")


def test_one_budget_of_memory_sizes_all_that_is_kept() -> None:
    small, large = Settings({"AOPIC_MEMORY_MB": 64}), Settings({"AOPIC_MEMORY_MB": 1024})
    for name in ("page_cache", "max_active"):
        assert 16 * getattr(read_policy(small), name) == getattr(read_policy(large), name)
    assert 16 * store_memory(small) == store_memory(large) == 256
    own = Settings({"AOPIC_MEMORY_MB": 64, "AOPIC_PAGE_CACHE": 123, "AOPIC_ACTIVE_HOSTS": "7"})
    assert (read_policy(own).page_cache, read_policy(own).max_active, store_memory(own)) == (123, 7, 16)


@pytest.mark.parametrize("name", ["lru", "clock", "random", "static"])
def test_the_policy_of_the_page_cache_can_be_chosen(name: str) -> None:
    cache = read_policy(Settings({"AOPIC_CACHE_POLICY": name})).cache()
    assert type(cache).__name__.lower() == f"{name}cache"
    cache.add([b"a", b"b"])
    assert {cache.victim(), cache.victim()} == {b"a", b"b"}


def test_durability_is_a_time_or_a_word() -> None:
    assert [
        read(Settings({"AOPIC_DURABILITY": value}), "AOPIC_DURABILITY") for value in ("page", 250, "close")
    ] == [
        0,
        0.25,
        math.inf,
    ]


def test_the_download_delay_is_a_floor_of_the_gap() -> None:
    politeness = read_politeness(Settings({"DOWNLOAD_DELAY": 2, "AOPIC_MIN_GAP": 1}))
    assert politeness.gap(0.001) == 2


def test_the_addon_sets_every_component_and_overrides_nobody() -> None:
    settings = Settings()
    settings.set("DOWNLOAD_DELAY", 1, "project")
    settings.set("CONCURRENT_REQUESTS", 5, "spider")
    Addon().update_settings(settings)
    assert settings["SCHEDULER"] is Scheduler
    assert settings["SPIDER_MIDDLEWARES"][LinkMiddleware] == 2000
    assert settings["DOWNLOADER_MIDDLEWARES"][PolitenessMiddleware] == 990
    assert settings["EXTENSIONS"][Progress] == 0
    assert settings.getfloat("DOWNLOAD_DELAY") == 1
    assert settings.getint("CONCURRENT_REQUESTS") == 5
    assert settings.getint("CONCURRENT_ITEMS") == 8


def test_the_addon_leaves_components_where_the_user_put_them() -> None:
    settings = Settings()
    settings.set("SCHEDULER", "scrapy.core.scheduler.Scheduler", "project")
    settings.set("DOWNLOADER_MIDDLEWARES", {"scrapy_aopic.PolitenessMiddleware": 700}, "project")
    Addon().update_settings(settings)
    assert settings["SCHEDULER"] == "scrapy.core.scheduler.Scheduler"
    assert dict(settings["DOWNLOADER_MIDDLEWARES"]) == {"scrapy_aopic.PolitenessMiddleware": 700}

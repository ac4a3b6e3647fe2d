"""In which order tests are run, how Hypothesis draws, and a Redis or Valkey server.

Hypothesis draws the same examples in every run; ``HYPOTHESIS_PROFILE=random`` looks for new ones.

With ``HYPOTHESIS_PROFILE=first`` it does not make the first one that fails smaller, which may take minutes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from inspect import iscoroutinefunction
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from scrapy.utils.defer import deferred_f_from_coro_f
from support.redis_server import Server
from support.short_forms import mark_crossed
from support.slow_tests import SlowTests

from scrapy_aopic._engine.process_memory import resident
from scrapy_aopic.session import costs, footprint

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.register_profile("first", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

CRASH = f"{Path(__file__).parent / 'crash'}{os.sep}"

A_CRAWL = 120_000_000
"""Bytes of a process that does nothing but crawl, about."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-slow", action="store_true", help="write what took too long into tests/slow.txt")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SlowTests())
    # However busy the machine is, no page is cut, or read by the next run, for what it takes: test_costs.py has clocks of its own.
    costs.thread_time = lambda: 0.0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage while tests are collected: there is hardly any, and it takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run tests that are coroutines in the reactor."""
    if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
        item.obj = deferred_f_from_coro_f(item.obj)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    mark_crossed(items)
    for item in items:
        if _waits(item) or item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.slow)
    yield  # those that are not wanted are taken out
    items[:] = spread(items)


def _waits(item: pytest.Item) -> bool:
    return str(item.path).startswith(CRASH)


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spread the tests that wait for processes evenly among the files of the others, which need a core all the time.

    The processes that run tests side by side begin with equal parts of them. If all that wait were in one part, the other
    processes would take them over at the end, when there is nothing else to do while they wait.
    """
    waiting = [item for item in items if _waits(item)]
    others = [item for item in items if not _waits(item)]
    place = {item: (number + 0.5) / len(waiting) for number, item in enumerate(waiting)}
    for _, of_file in groupby(enumerate(others), key=lambda numbered: str(numbered[1].path)):
        numbered = list(of_file)
        place.update((item, numbered[0][0] / len(others)) for _, item in numbered)
    return sorted(items, key=place.__getitem__)


def pytest_collection_finish() -> None:
    """Keep what has been imported and collected, with the little garbage in it, out of every later search: a tenth of the time."""
    gc.freeze()
    _weigh_crawls_alone()


def _weigh_crawls_alone() -> None:
    """Let crawls not count what the tests have imported and collected, or thousands of them would warn of it at the end."""
    tests = max(footprint.resident() - A_CRAWL, 0)
    footprint.resident = lambda: resident() - tests


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the module's own; one that needs it skips itself where there is none (``redis_server.WHY_NOT``)."""
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    """A client of it, which is emptied first."""
    import redis

    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield client

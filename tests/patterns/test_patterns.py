"""Every pattern gives what it gives with stock Scrapy, or what is stated instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.naming import case

from .listing import ALL, WAYS, Pattern, load
from .shop import Site
from .ways import run, serve

Stock = Callable[[str, str], Awaitable[dict[str, Any]]]
PATTERNS = load()
PATIENCE = 60
"""Seconds that no crawl takes."""


def rows() -> Iterator[Any]:
    """Patterns with some of their ways: ``make check`` has some, and ``make test`` two of each; all take two minutes."""
    for name, pattern in PATTERNS.items():
        ways: dict[str, list[str]] = {}
        for way in pattern.ways:
            mark = "" if (pattern.group, way) == ("Callbacks", "add-on") else "slow"
            if pattern.ways == ALL and pattern.group != "Callbacks" and way in ("alone, job", "add-on"):
                mark = "long"
            ways.setdefault(mark, []).append(way)
        for mark, some in ways.items():
            yield pytest.param(
                name, some, id=f"{name}: {', '.join(some)}", marks=getattr(pytest.mark, mark) if mark else ()
            )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serve() as site:
        yield site


@pytest.fixture(scope="module")
def stock(site: Site) -> Stock:
    """What patterns give with stock Scrapy, each of which is run once."""
    known: dict[tuple[str, str], dict[str, Any]] = {}

    async def find(name: str, way: str) -> dict[str, Any]:
        if (name, way) not in known:
            with TemporaryDirectory() as folder:
                known[name, way] = await run(PATTERNS[name], way, site, Path(folder), PATIENCE)
        return known[name, way]

    return find


pytestmark = pytest.mark.filterwarnings("ignore:.*:scrapy.exceptions.ScrapyDeprecationWarning")


@pytest.mark.parametrize(("name", "ways"), list(rows()))
async def test_a_pattern_gives_what_it_says_and_the_same_in_each_way(name, ways, site, stock):
    pattern = PATTERNS[name]
    wanted = await stock(name, "stock")
    assert (wanted["items"], wanted["noted"], wanted["reason"]) == (
        sorted(pattern.gives, key=repr),
        dict(pattern.noted),
        wanted["reason"] if pattern.reason is None else pattern.reason,
    )
    for way in ways:
        with case(way):
            await check(pattern, name, way, site, stock)


async def check(pattern: Pattern, name: str, way: str, site: Site, stock: Stock) -> None:
    """The *pattern* gives in a *way* what it gives with stock Scrapy, or what is stated instead."""
    wanted = await stock(name, "stock")
    difference = pattern.difference(way)
    if difference and difference.instead is None:
        wanted = await stock(name, "stock, job")
    elif difference and difference.instead:
        wanted = {**wanted, **difference.instead}
    with TemporaryDirectory() as folder:
        found = await run(pattern, way, site, Path(folder), PATIENCE)
    if difference and difference.instead and "callbacks" not in difference.instead:
        for each in (found, wanted):  # they follow from what is stated
            each.pop("callbacks", None)  # a command has none
    assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, pattern in PATTERNS.items() if pattern.differs])
async def test_a_stated_difference_is_one(name, stock):
    first = await stock(name, "stock")
    for difference in PATTERNS[name].differs:
        instead = await stock(name, "stock, job") if difference.instead is None else difference.instead
        assert {**first, **instead} != first


@pytest.mark.slow
async def test_spiders_with_different_schedulers_run_in_one_process(site, tmp_path):
    results = await asyncio.gather(
        *(run(PATTERNS["follows-all"], way, site, tmp_path / way, PATIENCE) for way in WAYS)
    )
    assert results == [results[0]] * len(WAYS)
    assert len(results[0]["items"]) == 6

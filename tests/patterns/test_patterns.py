"""Every pattern gives what it gives with stock Scrapy, or what is stated instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from scrapy.utils.defer import deferred_f_from_coro_f

from .listing import WAYS, load
from .shop import Site
from .ways import run, serve

Stock = Callable[[str, str], Awaitable[dict[str, Any]]]
PATTERNS = load()
PATIENCE = 20
"""Seconds that no crawl takes."""


def rows() -> Iterator[Any]:
    for name, pattern in PATTERNS.items():
        for way in pattern.ways:
            # `make check` has some of them: all take a minute.
            marks = [] if (pattern.group, way) == ("Callbacks", "add-on") else [pytest.mark.slow]
            yield pytest.param(name, way, id=f"{name}, {way}", marks=marks)


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


@pytest.mark.filterwarnings("ignore:.*:scrapy.exceptions.ScrapyDeprecationWarning")
@pytest.mark.parametrize(("name", "way"), list(rows()))
@deferred_f_from_coro_f
async def test_a_pattern_gives_the_same(name: str, way: str, site: Site, stock: Stock) -> None:
    pattern = PATTERNS[name]
    first = await stock(name, "stock")
    said = {"items": sorted(pattern.gives, key=repr), "noted": dict(pattern.noted), "reason": pattern.reason}
    assert {part: first[part] for part in said} == said
    difference = pattern.difference(way)
    wanted = first
    if difference is not None:
        wanted = (
            await stock(name, "stock, job") if difference.instead is None else {**first, **difference.instead}
        )
        assert wanted != first, "this difference is none"
    with TemporaryDirectory() as folder:
        assert await run(pattern, way, site, Path(folder), PATIENCE) == wanted


@pytest.mark.slow
@deferred_f_from_coro_f
async def test_spiders_with_different_schedulers_run_in_one_process(site: Site, tmp_path: Path) -> None:
    results = await asyncio.gather(
        *(run(PATTERNS["follows-all"], way, site, tmp_path / way, PATIENCE) for way in WAYS)
    )
    assert results == [results[0]] * len(WAYS)
    assert len(results[0]["items"]) == 6

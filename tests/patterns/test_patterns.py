"""Every pattern gives what it gives with stock Scrapy, or what is stated instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.defer import deferred_f_from_coro_f

from . import callbacks  # noqa: F401 - enters its patterns
from .run import run, serve
from .site import Site
from .table import ALL, PATTERNS

PATIENCE = 60
FAULTS: dict[str, str] = {}


def rows() -> Iterator[Any]:
    for name in PATTERNS:
        for way in ALL:
            fault = FAULTS.get(name)
            yield pytest.param(
                name, way, id=f"{name}, {way}", marks=[pytest.mark.xfail(reason=fault)] if fault else []
            )


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Site, str]]:
    with serve() as served:
        yield served


@pytest.fixture(scope="module")
def stock() -> dict[tuple[str, str], Any]:
    """What patterns gave with stock Scrapy."""
    return {}


@pytest.mark.parametrize(("name", "way"), list(rows()))
@deferred_f_from_coro_f
async def test_a_pattern_gives_the_same(
    name: str,
    way: str,
    served: tuple[Site, str],
    stock: dict[tuple[str, str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern = PATTERNS[name]
    site, proxy = served
    monkeypatch.setenv("http_proxy", proxy)
    difference = pattern.difference(way)
    like = "stock, job" if difference is not None and difference.instead is None else "stock"
    for each in {"stock", like}:
        if (name, each) not in stock:
            stock[name, each] = await run(pattern, each, site, tmp_path / each, PATIENCE)
    first = stock[name, "stock"]
    said = {"items": pattern.gives, "noted": dict(pattern.noted), "reason": pattern.reason}
    assert said == {part: first[part] for part in said}
    wanted = {**stock[name, like], **(difference.instead or {} if difference else {})}
    if difference is not None:
        assert wanted != first, "this difference is none"
    assert await run(pattern, way, site, tmp_path, 1 if name in FAULTS else PATIENCE) == wanted

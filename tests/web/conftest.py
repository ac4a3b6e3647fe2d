"""Servers of the dashboard, closed at the end of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.dashboard import Served


@pytest.fixture
def serve_dashboard() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**options: Any) -> Served:
        made.append(Served(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()

"""What every run takes of many tests of a kind; the others are ``long``.

Of a test that is marked ``crossed``, every run takes only so many combinations of its parameters that each value of each of
them is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from unittest import TestCase

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

SHORT = 5
"""The part of a walk that every run takes is one in this many."""


def some_of(values: Iterable[Any], n: int = 1) -> list[Any]:
    """Parameters of a test, of which the first *n* are for every run.

    Args:
        values: One for each test, or a tuple of several; the keys of a mapping are the names of the tests.
    """
    named = values.items() if isinstance(values, Mapping) else ((None, value) for value in values)
    params = []
    for number, (name, value) in enumerate(named):
        marks = () if number < n else pytest.mark.long
        params.append(pytest.param(*(value if isinstance(value, tuple) else (value,)), id=name, marks=marks))
    return params


def mark_crossed(items: Iterable[pytest.Item]) -> None:
    """Mark as ``long`` what a short run leaves out of the tests that are marked ``crossed``."""
    of_test: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("crossed") is not None:
            of_test[item.nodeid.partition("[")[0]].append(item)
    for several in of_test.values():
        ids = [tuple(item.callspec._idlist) for item in several]  # type: ignore[attr-defined]
        values = [[*dict.fromkeys(each)] for each in zip(*ids, strict=True)]  # of each parameter, in order
        taken = {tuple(each[n % len(each)] for each in values) for n in range(max(map(len, values)))}
        for item, own in zip(several, ids, strict=True):
            if own not in taken:
                item.add_marker(pytest.mark.long)


def walks(
    machine: type[RuleBasedStateMachine], *, examples: int, steps: int
) -> tuple[type[TestCase], type[TestCase]]:
    """Tests that let *machine* take so many walks of so many steps: some of them, and all."""

    def walk(n: int) -> type[TestCase]:
        length = settings(max_examples=max(n, 1), stateful_step_count=steps, deadline=None)
        return pytest.mark.slow(type(machine.__name__, (machine.TestCase,), {"settings": length}))

    return walk(examples // SHORT), pytest.mark.long(walk(examples))

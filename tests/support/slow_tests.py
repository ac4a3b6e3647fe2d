"""Which tests are too dear for ``make check``: ``slow.txt`` lists those that took more than :data:`BOUND`.

``make slow`` measures all tests and writes the list. A run without slow tests names those that belong into it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

BOUND = 0.15
"""Seconds of CPU that a fast test takes at most, with all its parameters together."""

LIST = Path(__file__).parents[1] / "slow.txt"
MEASURED = pytest.mark.slow(measured=True)


def name_of(nodeid: str) -> str:
    """The name of a test without its parameters."""
    return nodeid.partition("[")[0]


def spent() -> float:
    """Seconds of CPU of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


class SlowTests:
    """A plug-in that marks those that are listed, and measures all that have no marker of their own."""

    def __init__(self) -> None:
        self._listed = set(LIST.read_text(encoding="utf-8").split())
        self._before = 0.0
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._skipped: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if name_of(item.nodeid) in self._listed and item.get_closest_marker("slow") is None:
                item.add_marker(MEASURED)

    def pytest_collection_finish(self) -> None:
        self._before = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        now = spent()
        if all(marker.kwargs for marker in item.iter_markers("slow")):
            report.cpu = (
                now - self._before
            )  # which a process that runs tests side by side tells the first one
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = name_of(report.nodeid)
        self._cpu[name] += getattr(report, "cpu", 0.0)
        if report.skipped:
            self._skipped.add(name)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter, config: pytest.Config) -> None:
        dear = {name for name, seconds in self._cpu.items() if seconds > BOUND}
        if config.option.write_slow:
            stay = {name for name in self._listed if name in self._skipped or self._cpu[name] > BOUND / 2}
            LIST.write_text("\n".join(sorted(dear | stay)) + "\n", encoding="utf-8")
        elif "not slow" in config.option.markexpr and dear:
            terminalreporter.write_sep("=", f"more than {BOUND} s of CPU, for tests/{LIST.name}")
            for name in sorted(dear, key=self._cpu.__getitem__, reverse=True):
                terminalreporter.write_line(f"{self._cpu[name]:.2f}s {name}")

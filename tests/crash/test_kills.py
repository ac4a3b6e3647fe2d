"""A few of the kills that ``benchmarks/kills.py`` makes by the hundred."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.short_forms import some_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.mark.parametrize("kills", some_of([4, 8]))
def test_kills_at_random_moments_lose_nothing_and_repeat_nothing_that_was_committed(kills):
    pytest.importorskip("rocksdict")
    command = [sys.executable, str(SCRIPT), "--kills", str(kills), "--kills-per-job", "4", "--pages", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    assert "0 wrong" in done.stdout.splitlines()[-1]

"""A short crawl of hosts that misbehave at random; ``benchmarks/hostile_web`` does it for as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile_web"


@pytest.mark.parametrize("seed", [1])
def test_no_misbehaviour_raises_stalls_or_breaks_a_promise(seed):
    # What takes long is the benchmark's to judge, on a machine that does nothing else; here only what would never end.
    options = [
        "--seconds",
        "8",
        "--hosts",
        "150",
        "--timeout",
        "2",
        "--most-stall",
        "5",
        "--least-pages",
        "20",
        "--heavy",
        "0.1",
        "--heavy-mb",
        "0.3",
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--seed", str(seed), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith("all of it holds\n")

"""A few of the races that ``benchmarks/races.py`` runs by the hundred."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.short_forms import some_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "races.py"


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("rounds", some_of([6, 22]))
def test_whatever_runs_at_once_and_however_the_folder_is_taken_away_no_job_is_destroyed(rounds):
    pytest.importorskip("rocksdict")
    command = [sys.executable, str(SCRIPT), "--rounds", str(rounds), "--seed", "7", "--pages", "5000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    assert "0 wrong" in done.stdout.splitlines()[-1]

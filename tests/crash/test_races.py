"""A few of the races that ``benchmarks/races.py`` runs by the hundred."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "races.py"


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_whatever_runs_at_once_and_however_the_folder_is_taken_away_no_job_is_destroyed() -> None:
    pytest.importorskip("rocksdict")
    command = [sys.executable, str(SCRIPT), "--rounds", "11", "--seed", "7", "--pages", "5000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "0 wrong" in done.stdout.splitlines()[-1]

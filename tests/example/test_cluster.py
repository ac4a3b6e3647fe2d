"""``make cluster``, shorter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import redis_server

redis_server.needed()

pytestmark = pytest.mark.long  # workers that are killed are in tests/crash; this is the script

SCRIPT = Path(__file__).parents[2] / "example_project" / "cluster.py"


def test_two_of_three_workers_go_on_politely_and_everything_holds():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", "6"],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was killed" in done.stdout
    assert "every invariant holds" in done.stdout
    assert "requests to a host that overlapped: 0, that were early: 0" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr

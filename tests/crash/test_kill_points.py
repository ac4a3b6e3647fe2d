"""A process that is killed at any operation on its store leaves a whole state, and the crawl goes on to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.short_forms import some_of

SCRIPT = Path(__file__).with_name("kill_points.py")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
@pytest.mark.parametrize("each", some_of([11, 1]))
def test_a_kill_at_any_operation_loses_nothing(store, each, tmp_path):
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    command = [sys.executable, str(SCRIPT), store, str(tmp_path), str(each)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    n_points = int(done.stdout.split()[0])
    assert n_points > 50 - each

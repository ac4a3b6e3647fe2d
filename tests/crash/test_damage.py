"""Damaged files of a store are refused, named or harmless; never a wrong ledger that is accepted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.short_forms import some_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "damage.py"


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
@pytest.mark.parametrize("sample", some_of([5, 20]))
def test_no_damage_makes_a_wrong_ledger_that_is_accepted(store, sample):
    """A sample of what the benchmark does to each part of each file."""
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    command = [sys.executable, str(SCRIPT), "--stores", store, "--sample", str(sample), "--pages", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "WRONG" not in done.stdout
    for state in ("closed", "killed", "resumed"):
        assert f"{store}, {state}: " in done.stdout

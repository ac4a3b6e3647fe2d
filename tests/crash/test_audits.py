"""A little of what the audits among the benchmarks do by the hundred: kills, failures of the power, damage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.short_forms import some_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

AUDITS = {
    "kills.py": ([f"--kills {n} --kills-per-job 4 --pages 300" for n in (4, 8)], "0 wrong\n"),
    "power.py": ([f"--states {n} --stores {kind}" for n in (8, 25) for kind in ("rocksdb", "sqlite")], "0 wrong\n"),
    "damage.py": ([f"--sample {n} --stores {kind} --pages 300" for n in (5, 20) for kind in ("rocksdb", "sqlite")], "\n"),
}  # fmt: skip
"""Options by program, of which some are in every run, and how its report ends if nothing is wrong."""


@pytest.mark.parametrize(
    ("program", "options"),
    [
        pytest.param(program, *case.values, marks=case.marks, id=f"{program} {case.values[0]}")
        for program, (cases, _) in AUDITS.items()
        for case in some_of(cases, 2 if program == "damage.py" else 1)
    ],
)
def test_an_audit_finds_nothing_wrong(program: str, options: str) -> None:
    if "sqlite" not in options:
        pytest.importorskip("rocksdict")
    if program == "power.py" and shutil.which("strace") is None:
        pytest.skip("needs strace")
    command = [sys.executable, str(BENCHMARKS / program), *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert done.stdout.endswith(AUDITS[program][1]), said
    if program == "damage.py":  # which says on stderr what could not be salvaged
        states = {line.split(", ")[1].partition(":")[0] for line in done.stdout.splitlines()}
        assert states == {"closed", "killed", "resumed"}, said
    else:
        assert done.stderr == "", said

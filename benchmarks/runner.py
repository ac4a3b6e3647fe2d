"""Runs benchmarks: the one way to all of them.

python benchmarks                          # which there are
python benchmarks NAME [options]           # one of them; --help has its options
python benchmarks short [NAME ...]         # their short forms, with made-up graphs and sites; all of them without a name
python benchmarks record NAME [options]    # run it, and exchange day, commit and tables of that command in the docs
"""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import made_up
import record
from table import HERE, NEEDS, TABLE, WITH_SECONDS_OF_THEIR_OWN, script_of

ROOT = HERE.parent


def main() -> int:
    words = sys.argv[1:]
    match words:
        case [] | ["-h" | "--help"]:
            print(__doc__)
            for name, each in TABLE.items():
                print(f"    {name:<14} {each.shows} ({each.page})")
            return 0
        case ["short", *names]:
            return short(names or list(TABLE))
        case ["record", *rest] if rest:
            line = rest if rest[0] == "scrapy" else [sys.executable, str(HERE), *rest]
            record.run(
                line,
                record.plain(shlex.join(rest if rest[0] == "scrapy" else ["python", "benchmarks", *rest])),
            )
            return 0
        case [name, *options] if name in TABLE:
            be(name, options)
            return 0
    print(f"{words[0]} is none of {', '.join(TABLE)}", file=sys.stderr)
    return 2


def be(name: str, options: list[str]) -> None:
    """Do as the benchmark called *name* with *options*."""
    program = script_of(name)
    sys.argv[:] = [str(program), *filter(None, [TABLE[name].words]), *options]
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "example_project"), str(HERE)]
    runpy.run_path(str(program), run_name="__main__")


def short(names: list[str]) -> int:
    """Run the short forms of *names* in a folder of their own; 1 if one of them fails."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        made_up.make_all(Path(folder))
        for name in names:
            each = TABLE[name]
            if not NEEDS[each.needs]():
                print(f"{name}: left out, it needs {each.needs}", flush=True)
                continue
            began = time.monotonic()
            codes = {0, 1} if name in WITH_SECONDS_OF_THEIR_OWN else {0}
            for options in each.short.split(";"):
                line = [sys.executable, str(HERE), name, *shlex.split(options)]
                environment = {**os.environ, "MPLBACKEND": "agg"}
                done = subprocess.run(
                    line, cwd=folder, env=environment, capture_output=True, text=True, check=False
                )
                if done.returncode not in codes or "Traceback" in done.stderr:
                    failed.append(name)
                    print(
                        f"{shlex.join(line[2:])} ended with {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
                    )
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0

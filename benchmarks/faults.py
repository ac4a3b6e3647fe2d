"""Crawl with three workers through each fault that may happen to them, again and again, and judge what they did.

    python benchmarks faults [--times 10] [--seed 1] [--lock-timeout 2] [--keep FOLDER] [FAULT ...]
    python benchmarks faults --commands [--each 1]

Other faults are in ``kills.py`` (kills of a crawl, and its items), ``races.py`` (processes that run into each other at one
folder), ``damage.py`` (damaged files, and rows as a bug of ours would write them), ``power.py`` (power failures), ``log_cuts.py``
(a server that loses the end of its log) and ``tests/support/hostile_web.py`` (lying servers).

With ``--commands`` there is no crawl: each command that changes or copies a job is killed at every touch of a disk or a server,
given twice at once, or cut off in the middle of a reply (``tests/support/command_faults.py`` says what must be true then).

Without it, each crawl fetches a web of 300 pages on 20 hosts, with a Redis or Valkey server of its own (the one that
``AOPIC_REDIS_SERVER`` names, if set) that writes its log once a second, and each worker behind a proxy of its own.
In the middle the fault happens (``tests/support/faults.py`` says what each is), and the workers that are left, or new ones
after those that have stopped, crawl the rest. Wrong is

    - what an audit of all shards and of the letters between them finds: above all, cash that is not whole,
    - a page that was never fetched or not visited, or one that was fetched twice without a fault in between,
    - two requests to a host at once, or a gap that is too short, over all workers.

Beside that: how many pages were fetched again, the most after one fault, and how long before the fault the oldest of these
had been fetched. The last lines are controls, in which workers lack a safeguard: some of them must be wrong.
``--keep`` keeps what there is to see of a wrong crawl: the logs of the workers and of the server, what the server has
stored, and the log of the web.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("tests", "example_project")]

from support.command_faults import CASES, WAYS, find_wrong
from support.faults import CONTROLS, FAULTS, crawl_through


def main() -> int:
    """Crawl, and print a table; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS, *CONTROLS], help="all, if none is named")
    parser.add_argument("--times", type=int, default=10, help="each (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first of as many (%(default)s)")
    parser.add_argument(
        "--lock-timeout", type=float, default=2.0, help="AOPIC_REDIS_LOCK_TIMEOUT, seconds (%(default)s)"
    )
    parser.add_argument("--keep", type=Path, help="folder for what there is to see of wrong crawls")
    parser.add_argument("--commands", action="store_true", help="the faults of commands, instead")
    parser.add_argument(
        "--each", type=int, default=1, help="with --commands: every so many touches (%(default)s)"
    )
    options = parser.parse_args()
    if options.commands:
        return commands(options.each)
    out, has_failed = sys.stdout, False
    out.write("| fault | times | wrong | parallel | early | twice | again | most | oldest, s |\n")
    out.write("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
    for name in options.faults or [*FAULTS, *CONTROLS]:
        fault, settings = CONTROLS.get(name) or (FAULTS[name], {})
        wrong = parallel = early = twice = again = most = 0
        oldest = 0.0
        for seed in range(options.seed, options.seed + options.times):
            with TemporaryDirectory() as folder:
                kept = options.keep / f"{name}-{seed}" if options.keep and name not in CONTROLS else None
                try:
                    workers, verdict = crawl_through(
                        Path(folder), fault, seed, lock_timeout=options.lock_timeout, **settings
                    )
                except Exception:  # noqa: BLE001 (that is a result, too)
                    wrong += 1
                    if name not in CONTROLS:
                        sys.stderr.write(f"{name}, seed {seed}:\n{traceback.format_exc()[-6000:]}\n")
                    if kept is not None:
                        shutil.copytree(folder, kept)
                    continue
                if kept is not None and not verdict.holds:
                    shutil.copytree(folder, kept)
                    (kept / "web").write_text("".join(f"{entry}\n" for entry in workers.web.log))
            wrong += bool(verdict.violations or verdict.twice)
            parallel += verdict.n_overlaps
            early += verdict.n_early
            twice += len(verdict.twice)
            again += len(verdict.again)
            most = max(most, len(verdict.again))
            oldest = max([oldest, *verdict.again])
            if name not in CONTROLS and not verdict.holds:
                sys.stderr.write(f"{name}, seed {seed}: {verdict}\n")
        out.write(
            f"| {name} | {options.times} | {wrong} | {parallel} | {early} | {twice} | {again} | {most} | {oldest:.2f} |\n"
        )
        out.flush()
        is_bad = bool(wrong or parallel or early)
        has_failed |= is_bad != (name in CONTROLS)
    return 1 if has_failed else 0


def commands(each: int) -> int:
    """Let the faults of commands happen, and print a table; returns the exit code."""
    sys.stdout.write(
        "| command | " + " | ".join(WAYS) + " | wrong |\n|---|" + "---:|" * (len(WAYS) + 1) + "\n"
    )
    n_wrong = 0
    for name, case in CASES.items():
        cells, wrong = [], list[str]()
        for way in WAYS:
            if way == "cut" and not case.speaks_to_server:
                cells.append("")
                continue
            with TemporaryDirectory() as folder:
                n, found = find_wrong(Path(folder), name, way, each=each)
            cells.append(str(n))
            wrong += found
        sys.stderr.write("".join(f"{line}\n" for line in wrong))
        sys.stdout.write(f"| {name} | {' | '.join(cells)} | {len(wrong)} |\n")
        sys.stdout.flush()
        n_wrong += len(wrong)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    sys.stderr.write(f"{time.monotonic() - started:.0f} s\n")
    sys.exit(code)

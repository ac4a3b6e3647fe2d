"""A page beside an earlier commit, which is installed in an environment of its own.

    python benchmarks since COMMIT             # CPU of a page in whole crawls, by turns
    python benchmarks since COMMIT --parts     # the same, and in whose code it goes
    python benchmarks since COMMIT --count     # instructions of a page, which no load disturbs
    python benchmarks since --check            # the same for the last commit of costs.csv; ends with 1 if they are 2 % more
    python benchmarks since --record           # adds lines for HEAD to costs.csv
    python benchmarks since --revisits         # instructions of a visit in a round, by what it finds
    python benchmarks since --web '{"kilobytes": 100, "settings": {"AOPIC_FAST_DOWNLOADS": false}}'

Instructions are counted by valgrind, in two crawls of which one is longer, so that starting costs nothing. The two commits are
counted on one machine with the same versions of other packages, because another build of Python takes another number; so lines of
costs.csv compare only with each other.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "bench"))

import crawls
from measure import HEAD, Runner

COSTS = HERE / "costs.csv"
KINDS = {"requests": "ours", "Links": "addon-links-alike"}
"""Kinds in the table, and those of the crawls (:data:`crawls.KINDS`) that are counted for them."""

MOST = 1.02
"""Instructions of a page, as a multiple of those at the last commit of the table, from which on the check fails."""

_WEB: dict[str, Any] = {"hosts": 20, "links": 40, "new": 4}
_NEEDED = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def git(*words: str) -> str:
    """What git says about this repository.

    Raises:
        subprocess.CalledProcessError: If it fails.
    """
    return subprocess.run(
        ["git", *words], cwd=HERE, check=True, capture_output=True, text=True
    ).stdout.strip()


def environment(commit: str, folder: Path) -> str:
    """The Python of an environment in *folder* with the package as it was at *commit*, and all else as it is here.

    Raises:
        subprocess.CalledProcessError: If there is no such commit, or it cannot be installed.
    """
    archive = subprocess.run(
        ["git", "archive", commit], cwd=HERE.parent, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder / "tree", filter="data")
    pip = ["-m", "pip", "--disable-pip-version-check"]
    here = subprocess.run(
        [sys.executable, *pip, "freeze", "--exclude-editable"], check=True, capture_output=True
    )
    versions = folder / "versions.txt"
    versions.write_bytes(here.stdout)
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    install = ["install", "--quiet", "--constraint", str(versions), str(folder / "tree")]
    subprocess.run([python, *pip, *install], check=True)
    return python


def count(pythons: list[str], options: argparse.Namespace) -> list[dict[str, float]]:
    """Instructions of a page by kind, with the package of each of the *pythons*."""
    few, many = options.counted
    _WEB.update(options.web)
    runs = [(python, kind, n) for python in pythons for kind in options.kinds for n in (few, many)]
    for python, kind, n in runs[::2]:  # else the first crawl would compile modules, too
        _run(python, "crawl", _what(kind, n))
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        counted = at_once.map(lambda run: _instructions(run[0], "crawl", _what(*run[1:])), runs)
        found = dict(zip(runs, counted, strict=True))
    return [
        {
            kind: (found[python, kind, many] - found[python, kind, few]) / (many - few)
            for kind in options.kinds
        }
        for python in pythons
    ]


REVISITS = {
    "changed": ("new", []),
    "unchanged, 304": ("304", []),
    "unchanged, by bytes": ("bytes", []),
    "unchanged, by text": ("bytes", ["text"]),
}
"""What visits find, how a web answers for that (:class:`webs.Web`), and what is compared."""


def count_revisits(options: argparse.Namespace) -> None:
    """Print the instructions of a visit in a second round with ``--changed-only``, by what it finds."""
    few, many = options.counted
    web = {"hosts": 8, "links": 40, "each": 50, **options.web}
    base = 0.0
    for what, (answers, compared) in REVISITS.items():
        found = []
        for pages in (few, many):
            with tempfile.TemporaryDirectory(prefix="aopic-since-") as folder:
                task = {
                    **web,
                    "answers": answers,
                    "settings": {"AOPIC_RECRAWL": ["once", "changed", *compared]},
                }
                _run(sys.executable, "revisit", {**task, "folder": folder, "pages": 0})
                found.append(
                    _instructions(sys.executable, "revisit", {**task, "folder": folder, "pages": pages})
                )
        each = (found[1] - found[0]) / (many - few)
        base = base or each
        print(f"| {what} | {each:,.0f} | {each / base:.2f} |", flush=True)


def _what(kind: str, pages: int) -> dict[str, Any]:
    return {**_WEB, "pages": pages, "kind": KINDS[kind]}


def _run(python: str, task: str, what: dict[str, Any], *before: str) -> str:
    """What a *task* of :mod:`counted` prints as errors, with the words *before* its command."""
    line = [*before, python, str(HERE / "bench"), "--task", f"counted:{task}", json.dumps(what)]
    # As few variables as it goes with: Scrapy looks at all of them for each request, if one of them is a proxy.
    environ = {name: os.environ[name] for name in _NEEDED if name in os.environ} | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    n = json.loads(done.stdout.partition("\n")[0] or "{}").get("pages", 0)
    if done.returncode or n != (what["pages"] or n):
        raise RuntimeError(f"{' '.join(line)} failed:\n{done.stderr[-3000:]}")
    return done.stderr


def _instructions(python: str, task: str, what: dict[str, Any]) -> int:
    text = _run(python, task, what, *_VALGRIND)
    found = re.search(r"I +refs: +([\d,]+)", text)
    assert found is not None, text[-1000:]
    return int(found[1].replace(",", ""))


def compare(commit: str, options: argparse.Namespace) -> float:
    """Print the instructions of a page now and at *commit*; returns the larger ratio.

    Raises:
        subprocess.CalledProcessError: If there is no such commit, or it cannot be installed.
    """
    with tempfile.TemporaryDirectory(prefix="aopic-since-") as folder:
        now, before = count([sys.executable, environment(commit, Path(folder))], options)
    print(f"| instructions a page | now | {commit} | ratio |\n|---|---:|---:|---:|")
    for kind in now:
        print(f"| {kind} | {now[kind]:,.0f} | {before[kind]:,.0f} | {now[kind] / before[kind]:.3f} |")
    return max(now[kind] / before[kind] for kind in now)


def check(options: argparse.Namespace) -> int:
    """1 if a page takes more instructions than at the last commit of the table; where they cannot be had, that is only said."""
    with COSTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        print(f"{COSTS.name} has no line yet, so nothing is compared.")
        return 0
    commit = rows[-1]["commit"]
    try:
        if not git("diff", "--stat", commit, "--", "../scrapy_aopic"):
            print(f"The package is as it was at {commit}, the last line of {COSTS.name}.")
            return 0
        ratio = compare(commit, options)
    except subprocess.CalledProcessError as error:
        print(f"The commit {commit} cannot be had, so nothing is compared: {error}")
        return 0
    if ratio > MOST:
        print(
            f"A page takes {ratio - 1:.1%} more instructions than at {commit}. Win it back; or say in the message"
        )
        print("of the commit what it is for, and add a line by `python benchmarks since --record`.")
        return 1
    return 0


def record(options: argparse.Namespace) -> None:
    """Add a line of each kind to the table, for HEAD."""
    if git("status", "--porcelain", "--", "../scrapy_aopic"):
        raise SystemExit("The package has changes that are not committed: commit them first.")
    [found] = count([sys.executable], options)
    commit, day = git("rev-parse", "--short=8", "HEAD"), datetime.now(timezone.utc).date().isoformat()
    with COSTS.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [commit, day, kind, round(n)] for kind, n in found.items()
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", nargs="?", help="the earlier one; without it, only this one is counted")
    parser.add_argument("--parts", action="store_true", help="also look in whose code the CPU goes")
    parser.add_argument("--count", action="store_true", help="count instructions")
    parser.add_argument("--check", action="store_true", help="compare with the last commit of costs.csv")
    parser.add_argument("--revisits", action="store_true", help="count visits of a second round")
    parser.add_argument("--record", action="store_true", help="add a line to costs.csv")
    parser.add_argument(
        "--counted",
        type=int,
        nargs=2,
        default=(40, 160),
        metavar=("FEW", "MANY"),
        help="pages of the crawls that are counted",
    )
    parser.add_argument(
        "--web", type=json.loads, default={}, help="JSON: another web that is counted, and settings"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="what is counted")
    parser.add_argument("--pages", type=int, default=600, help="pages of each crawl by turns")
    parser.add_argument("--repeats", type=int, default=5, help="rounds by turns")
    parser.add_argument("--webs", nargs="+", default=["100x40/4"], metavar="HOSTSxLINKS", help="as for crawl")
    options = parser.parse_args()
    if options.commit and not options.count:
        with tempfile.TemporaryDirectory(prefix="aopic-since-") as folder:
            options.most = None
            run = Runner(options.repeats, Path(folder), options)
            print(HEAD)
            crawls.beside(run, options.commit, environment(options.commit, Path(folder)))
        return 0
    if shutil.which(_VALGRIND[0]) is None:
        print("There is no valgrind here, so no instructions are counted.")
        return 0
    if options.revisits:
        count_revisits(options)
        return 0
    if options.check:
        return check(options)
    if options.record:
        record(options)
    elif options.commit:
        compare(options.commit, options)
    else:
        for kind, n in count([sys.executable], options)[0].items():
            print(f"{n:,.0f} instructions a page, {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Run Scrapy's own test suite with our scheduler and duplicate filter in place of the stock ones.

Needs PyPI. Downloads Scrapy's source archive for its tests, installs Scrapy and this package into an environment
of their own, and runs the suite once with the stock classes and once for each way of replacing them. A test that
passes with the stock classes and fails with ours must be named, with the reason, in README.md beside this file.

Exit status: 0 if every such test is named there, 1 if not, 2 if a run did not happen.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]

FILES = [
    "addons", "closespider", "core_downloader", "core_scraper", "crawl", "downloadermiddleware_robotstxt",
    "downloaderslotssettings", "dupefilters", "engine", "engine_close_spider", "engine_download", "engine_loop",
    "extension_throttle", "feedexport", "logstats", "pipeline_crawl", "pipelines", "pqueues",
    "request_attribute_binding", "request_cb_kwargs", "request_left", "scheduler", "scheduler_base", "signals",
    "spider_crawl", "spider_start", "spidermiddleware_output_chain", "spidermiddleware_process_start",
    "spidermiddleware_start", "spiderstate", "stats",
]  # fmt: skip
"""Scrapy's tests that a scheduler or a duplicate filter has a part in, but for those that start processes."""

NEEDED = [
    "aiohttp", "attrs", "pexpect", "psutil", "pyftpdlib", "pygments", "pytest", "pytest-asyncio",
    "pytest-rerunfailures", "pytest-timeout", "pytest-twisted>=1.14.3", "pytest-xdist", "sybil",
]  # fmt: skip
"""What Scrapy's suite needs besides Scrapy."""

OURS = {"CONF_SCHEDULER": "scrapy_aopic.Scheduler", "CONF_DUPEFILTER_CLASS": "scrapy_aopic.DupeFilter"}
SCHEDULER = {"CONF_SCHEDULER": OURS["CONF_SCHEDULER"]}
DUPEFILTER = {"CONF_DUPEFILTER_CLASS": OURS["CONF_DUPEFILTER_CLASS"]}
WITHOUT_REACTOR = ("--reactor=none", "-p", "no:twisted", "-o", "asyncio_default_fixture_loop_scope=function")
WITH_REACTOR = ("-p", "no:asyncio")


@dataclass(frozen=True)
class Way:
    """A way to run the suite.

    Attributes:
        base: The way with the stock classes that it is compared with; ``""`` for such a way itself.
        changes: What the plugin puts in place.
    """

    base: str = ""
    changes: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = WITH_REACTOR
    files: Sequence[str] = tuple(f"tests/test_{name}.py" for name in FILES)


WAYS = {
    "stock": Way(),
    "scheduler": Way("stock", SCHEDULER),
    "dupefilter": Way("stock", DUPEFILTER),
    "both": Way("stock", OURS),
    "both, sqlite": Way("stock", {**OURS, "CONF_STORE": "sqlite"}),
    "both, rocksdb": Way("stock", {**OURS, "CONF_STORE": "rocksdb"}),
    "stock, no reactor": Way(options=WITHOUT_REACTOR),
    "both, no reactor": Way("stock, no reactor", OURS, WITHOUT_REACTOR),
    "unit tests": Way("stock", files=("conf/conf_scheduler.py", "conf/conf_dupefilter.py")),
}


def prepare(folder: Path, version: str) -> Path:
    """Put the suite and an environment into *folder*, if they are not there; returns the interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if not python.exists():
        print(f"Installing into {folder} ...", flush=True)
        venv.create(folder / "venv", with_pip=True)
    wanted = [f"scrapy=={version}", *NEEDED, "--editable", f"{PROJECT}[bloom]"]
    subprocess.run([*pip, "install", *wanted], check=True)
    archive = folder / f"scrapy-{version}.tar.gz"
    if not archive.exists():
        source = ["--no-deps", "--no-binary", "scrapy", "--dest", str(folder), f"scrapy=={version}"]
        subprocess.run([*pip, "download", *source], check=True)
    suite = folder / f"suite-{version}"
    if not suite.exists():
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons have none
            for member in tar.getmembers():
                member.name = member.name.partition("/")[2]
                if member.name.split("/")[0] in {"tests", "conftest.py", "pyproject.toml"}:  # not the package
                    tar.extract(member, suite)
    (suite / "conf").mkdir(exist_ok=True)
    for path in HERE.glob("*conf*.py"):
        target = suite / path.name if path.name == "aopic_conf.py" else suite / "conf" / path.name
        target.write_bytes(path.read_bytes())
    return python


def name_of(case: ET.Element) -> str:
    """Name of a test as README.md has it: file, classes and function,."""
    parts = [part for part in case.get("classname", "").split(".") if part not in ("tests", "conf")]
    return "::".join((*parts, case.get("name", "")))


def run(way: Way, python: Path, suite: Path, jobs: int) -> dict[str, str]:
    """Outcome of each test: passed, skipped or failed."""
    report = suite / "report.xml"
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-p", "aopic_conf", "-q", "--timeout=120", "-n", str(jobs), f"--junitxml={report}",
               "-p", "no:cacheprovider", *way.options, *way.files]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(suite), **way.changes}
    done = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, check=False)
    if not report.exists():
        print(done.stdout, done.stderr, sep="\n")
        sys.exit(2)
    (suite / "last.log").write_text(done.stdout, encoding="utf-8")
    outcomes: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        failed = bool(kinds & {"failure", "error"})
        outcomes[name_of(case)] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scrapy", default="2.19.0", metavar="VERSION", help="version to test with (%(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to work, kept for the next time (a temporary folder)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (%(default)s)")
    parser.add_argument(
        "--way", action="append", choices=WAYS, help="only this one, and what it is compared with"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="conformance-") as temporary:
        return compare((options.folder or Path(temporary)).resolve(), options)


def compare(folder: Path, options: argparse.Namespace) -> int:
    """Run all ways, print a line for each, and what is not explained."""
    python = prepare(folder, options.scrapy)
    explained = (HERE / "README.md").read_text(encoding="utf-8")
    results: dict[str, dict[str, str]] = {}
    unexplained = 0
    wanted = options.way or list(WAYS)
    bases = {WAYS[name].base for name in wanted}
    print(f"{'':20}{'passed':>8}{'failed':>8}{'skipped':>8}", flush=True)
    for name, way in WAYS.items():
        if name not in wanted and name not in bases:
            continue
        outcomes = results[name] = run(way, python, folder / f"suite-{options.scrapy}", options.jobs)
        counts = [list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")]
        print(f"{name:20}{counts[0]:>8}{counts[1]:>8}{counts[2]:>8}", flush=True)
        stock = results.get(way.base, {})
        for test, outcome in sorted(outcomes.items()):
            if outcome == "failed" and stock.get(test) != "failed":
                is_explained = (
                    not way.base or f"`{test.partition('[')[0]}`" in explained or f"`{test}`" in explained
                )
                unexplained += not is_explained
                print(f"    {test}{'' if is_explained else '  <-- not in README.md'}", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())

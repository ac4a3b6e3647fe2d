"""Files that only a host of repositories reads: what they run is there, and what they say twice is the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import scrapy_aopic

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PLACEHOLDER = "https://scrapy-aopic.example"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(path: Path) -> list[str]:
    """What a workflow runs, that of each element of a matrix included."""
    found = []
    for job in load(path)["jobs"].values():
        found += [step["run"] for step in job["steps"] if "run" in step]
        found += [each["command"] for each in job.get("strategy", {}).get("matrix", {}).get("include", ())]
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_is_there(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    groups = set(re.findall(r"^(\w+) = \[", PROJECT.partition("[dependency-groups]")[2], re.MULTILINE))
    text = "\n".join(commands(path))
    assert set(re.findall(r"\bmake ([a-z][\w-]*)", text)) <= targets
    assert set(re.findall(r"--group (\w+)", text)) <= groups
    assert [name for name in re.findall(r"benchmarks/\w+\.py", text) if not (ROOT / name).exists()] == []


def test_every_python_that_is_named_is_tested():
    matrix = load(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", PROJECT)
    assert matrix["python"] == named
    assert f'requires-python = ">={named[0]}"' in PROJECT


def test_the_citation_has_the_version():
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == scrapy_aopic.__version__
    assert citation["url"] == PLACEHOLDER


def test_the_address_that_is_not_chosen_yet_stands_where_the_guide_says():
    """Else the one who publishes this would have to look for it."""
    folders = [ROOT / name for name in ("scrapy_aopic", "example_project", "docs", ".github")]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".md", ".py", ".yml"}
    ]
    named = {
        path.relative_to(ROOT).as_posix()
        for path in (*files, *ROOT.glob("*.*"))
        if path.is_file() and PLACEHOLDER in path.read_text(encoding="utf-8")
    }
    outside = {name for name in named if not name.startswith(".github/")}
    assert outside == {"CITATION.cff", "docs/releasing.md"}


def test_the_lowest_version_of_each_dependency_is_tested():
    """Of those that users get: ``make test-min`` installs exactly the versions that are the least allowed."""
    needed = PROJECT.partition("[dependency-groups]")[0].partition("\ndependencies = ")[2]
    least = dict(re.findall(r'"([a-z][\w-]*)>=([\d.]+)', needed))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tested = dict(re.findall(r"(?<=\s)([a-z][\w-]*)==([\d.]+)", makefile))
    assert len(least) > 15
    wrong = {
        name: (version, tested.get(name))
        for name, version in least.items()
        if not is_same(version, tested.get(name, ""))
    }
    assert wrong == {}


def is_same(version: str, other: str) -> bool:
    """Whether two versions differ by nothing but zeros at the end: 3 is 3.0."""
    return re.sub(r"(\.0)+$", "", version) == re.sub(r"(\.0)+$", "", other)


@pytest.mark.crossed
@pytest.mark.parametrize("letter", ["a", "b"])
@pytest.mark.parametrize(("number", "other"), [(1, 0), (2, 0), (3, 0)])
def test_of_a_crossed_test_every_run_takes_each_value_of_each_parameter(letter, number, other, request):
    is_long = request.node.get_closest_marker("long") is not None
    assert is_long == ((letter == "b") != (number == 2))

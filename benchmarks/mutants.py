"""Put small bugs into a copy of the package, one at a time, and see whether a test notices.

    python benchmarks mutants [part of a file's name ...] [--each 10] [--rng 1] [--tests tests/core ...]

The bugs are drawn by lot from all that can be made of the syntax tree: a comparison turned round or moved by one, a
sum made a difference, ``and`` made ``or``, a number one higher, a condition negated, a statement left out. The same
number is drawn from each file. Only lines that the tests run in their own process count; of the tests, those that run
the line are tried, the fastest first. A test that does not end has noticed the bug, too.

Not every survivor is a gap: a bug that only costs time, or changes nothing at all, cannot be noticed.

Needs coverage (``pip install --editable . --group bench``).
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import options

ROOT = Path(__file__).parents[1]
_PATIENCE = 120.0
"""Seconds for the tests of one bug: several times what those of any line take."""

_NOT_COLLECTED = 4
"""Exit status of pytest that could not find a test."""

_NEVER = ("if TYPE_CHECKING", "logger")
"""Names whose statements do nothing that a test could notice."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip

# Writes for each test which lines of the package it ran, and how long it took.
PLUGIN = """
import coverage, json, pytest, time

seconds = {}

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid)
    begin = time.perf_counter()
    yield
    seconds[item.nodeid] = time.perf_counter() - begin

def pytest_sessionfinish(session):
    with open("seconds.json", "w") as file:
        json.dump(seconds, file)
"""


Place = tuple[ast.AST, str, "int | None"]
"""A node, a field of it, and if that is a list a place there."""


class Bug(NamedTuple):
    """One change of one file.

    Attributes:
        file: Path below the package.
        line: Where it is.
        old, new: What is replaced, and by what.
        lines: Lines of the statement; a test that runs none of them cannot notice.
        function: Name of the function that it is in, with its class.
        make: Makes the file with the bug.
    """

    file: str
    line: int
    old: str
    new: str
    lines: range
    function: str
    make: Callable[[], str]


def instead(node: ast.AST) -> Iterator[ast.AST]:  # noqa: PLR0912 - a case a kind
    """What *node* could be by mistake."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return  # a docstring
        case (
            ast.Expr() | ast.Delete() | ast.Continue() | ast.AugAssign()
            | ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_])
        ):  # fmt: skip
            yield ast.Pass()
    match node:
        case ast.AugAssign(op=op) if type(op) in OPERATORS:
            yield ast.AugAssign(node.target, OPERATORS[type(op)](), node.value)
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
            yield type(node)(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Compare(left=first, ops=kinds, comparators=others):
            for n, kind in enumerate(kinds):
                yield ast.Compare(first, [*kinds[:n], COMPARISONS[type(kind)](), *kinds[n + 1 :]], others)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            if not any(
                isinstance(each, (ast.JoinedStr, ast.List)) or _is_text(each) for each in (left, right)
            ):
                yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.BoolOp(op=both, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(both, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            yield ast.Call(ast.Name("max" if name == "min" else "min"), node.args, node.keywords)


def bugs_of(file: str, source: str) -> Iterator[Bug]:
    """All bugs that can be put into *file*; texts for people, annotations, assertions and errors are not broken."""
    tree = ast.parse(source)

    def broken(place: Place, node: ast.AST, new: ast.AST) -> str:
        _put(place, new)
        found = ast.unparse(ast.fix_missing_locations(tree))
        _put(place, node)
        return found

    def walk(node: ast.AST, path: str, lines: range) -> Iterator[Bug]:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(node, ast.Call):
                continue
            children = value if isinstance(value, list) else [value]
            for n, child in enumerate(children):
                if isinstance(child, ast.AST):
                    place = node, name, n if isinstance(value, list) else None
                    yield from put(place, child, path, lines)

    def put(place: Place, node: ast.AST, path: str, lines: range) -> Iterator[Bug]:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.JoinedStr)):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from walk(node, f"{path}.{node.name}".lstrip("."), lines)
            return
        if isinstance(node, ast.stmt):
            if isinstance(place[0], (ast.Module, ast.ClassDef)) or ast.unparse(node).startswith(_NEVER):
                return
            # Of a compound statement only its head: its body has statements of its own.
            body = getattr(node, "body", None)
            lines = range(
                node.lineno, max(body[0].lineno if body else (node.end_lineno or 0) + 1, node.lineno + 1)
            )
        for new in instead(node):
            old, shown = (ast.unparse(each).partition("\n")[0] for each in (node, new))
            make = partial(broken, place, node, new)
            yield Bug(file, getattr(node, "lineno", lines.start), old, shown, lines, path, make)
        yield from walk(node, path, lines)

    return walk(tree, "", range(0))


def _put(place: Place, node: ast.AST) -> None:
    parent, name, n = place
    if n is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[n] = node


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


class Tests:
    """The tests of a *copy* of the project, and which of them run a line."""

    def __init__(self, copy: Path, tests: list[str]) -> None:
        self._copy = copy
        self._environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "first"}
        (copy / "lines_of_tests.py").write_text(PLUGIN)
        (copy / ".coveragerc").write_text("[run]\nsource = scrapy_aopic\n")
        command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-p", "lines_of_tests"]
        done = self._run([*command, "-p", "no:cacheprovider", *tests], None)
        if done != 0:
            raise SystemExit(f"The tests fail without any bug:\n{(copy / 'output').read_text()[-3000:]}")
        self._seconds: dict[str, float] = json.loads((copy / "seconds.json").read_text())
        self._by_line: dict[str, dict[int, list[str]]] = {}

    def _run(self, command: list[str], patience: float | None) -> int | None:
        with (self._copy / "output").open("w", encoding="utf-8") as output:
            try:
                return subprocess.run(
                    command, cwd=self._copy, env=self._environment, stdout=output, stderr=output, check=False, timeout=patience
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                return None

    def of(self, bug: Bug) -> list[str]:
        """Tests that run a line of *bug*, the fastest first."""
        if bug.file not in self._by_line:
            import coverage

            data = coverage.CoverageData(str(self._copy / ".coverage"))
            data.read()
            self._by_line[bug.file] = data.contexts_by_lineno(str(self._copy / "scrapy_aopic" / bug.file))
        lines = self._by_line[bug.file]
        found = {test for line in bug.lines for test in lines.get(line, ()) if test}
        return sorted(found, key=lambda test: self._seconds.get(test, 0.0))

    def notice(self, bug: Bug, tests: list[str]) -> bool:
        """Whether one of *tests* fails, or does not end, with *bug*."""
        path = self._copy / "scrapy_aopic" / bug.file
        source = path.read_bytes()
        path.write_text(bug.make(), encoding="utf-8")
        (self._copy / "chosen").write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "@chosen"]
        code = self._run(command, _PATIENCE)
        path.write_bytes(source)
        # pytest finds no test where the bug is met by an import; without it, it must.
        if code == _NOT_COLLECTED and self._run([*command, "--collect-only"], _PATIENCE) != 0:
            raise SystemExit(f"pytest could not run:\n{(self._copy / 'output').read_text()[-3000:]}")
        return code != 0


def find_bugs(root: Path, names: list[str]) -> Iterator[tuple[str, list[Bug]]]:
    """All bugs that can be put into each file of the package below *root* whose name holds one of *names*."""
    package = root / "scrapy_aopic"
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        if not names or any(name in file for name in names):
            yield file, list(bugs_of(file, path.read_text("utf-8")))


def main() -> int:
    args = options.read(__doc__, "names*", each=10, rng=1, tests=["tests/core", "tests/golden"])
    survivors: list[Bug] = []
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("scrapy_aopic", "tests", "example_project", "benchmarks", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "crawls"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"):
            shutil.copy(ROOT / name, copy)
        tests = Tests(copy, args.tests)
        for file, bugs in find_bugs(copy, args.names):  # the original may change meanwhile
            lot = random.Random(f"{args.rng} {file}")
            candidates = [(bug, chosen) for bug in bugs if (chosen := tests.of(bug))]
            for bug, chosen in lot.sample(candidates, min(args.each, len(candidates))):
                is_noticed = tests.notice(bug, chosen)
                counts[file][is_noticed] += 1
                if not is_noticed:
                    survivors.append(bug)
                    old, new = (" ".join(text.split())[:70] for text in (bug.old, bug.new))
                    print(f"{bug.file}:{bug.line} {bug.function}: {old}  ->  {new}", flush=True)
    print("\n| file | bugs | not noticed |\n|---|---|---|")
    for file, (lost, noticed) in counts.items():
        print(f"| {file} | {lost + noticed} | {lost} |")
    total = sum(map(sum, counts.values()))
    print(f"{len(survivors)} of {total} not noticed, {time.monotonic() - begin:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

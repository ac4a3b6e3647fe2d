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

import argparse
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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_PATIENCE = 120.0
"""Seconds for the tests of one bug: several times what those of any line take."""

_NOT_COLLECTED = 4
"""Exit status of pytest that could not find a test."""

_NEVER = ("TYPE_CHECKING", "logger", "__slots__", "overload")
"""Names whose statements do nothing that a test could notice."""

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.LShift: ">>",
    ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
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


class Bug(NamedTuple):
    """One change of one file.

    Attributes:
        file: Path below the package.
        begin, end: Bytes that are replaced.
        new: What stands there then.
        lines: Lines of the statement; a test that runs none of them cannot notice.
        function: Name of the function that it is in, with its class.
    """

    file: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    lines: range
    function: str


class Finder(ast.NodeVisitor):
    """Finds what can be broken in *source*."""

    def __init__(self, file: str, source: str) -> None:
        self.bugs: list[Bug] = []
        self._file = file
        self._source = source.encode()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._path: list[str] = []
        self._statement: ast.stmt | None = None
        self.visit(ast.parse(source))

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _add(self, node: ast.expr | ast.stmt, new: str, begin: int = -1, end: int = -1) -> None:
        if self._statement is None or not self._path:
            return
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._offset(node.lineno, node.col_offset) if begin < 0 else begin
        end = self._offset(node.end_lineno, node.end_col_offset) if end < 0 else end
        old = self._source[begin:end].decode()
        statement = self._statement
        # Of a compound statement only its head: its body has statements of its own.
        body = getattr(statement, "body", None)
        stop = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
        lines = range(statement.lineno, max(stop, statement.lineno + 1))
        self.bugs.append(Bug(self._file, node.lineno, begin, end, old, new, lines, ".".join(self._path)))

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace the operator *old* between two operands."""
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        begin = self._offset(left.end_lineno, left.end_col_offset)
        end = self._offset(right.lineno, right.col_offset)
        text = self._source[begin:end].decode()
        if text.count(old) == 1:
            at = begin + len(text[: text.index(old)].encode())
            self._add(right, new, at, at + len(old))

    # -- statements

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._scope(node)
        elif isinstance(node, ast.stmt):
            self._visit_statement(node)
        else:
            super().visit(node)

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._path.append(node.name)
        is_class = isinstance(node, ast.ClassDef)
        for child in node.body:
            if not is_class or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.visit(child)
        self._path.pop()

    def _visit_statement(self, node: ast.stmt) -> None:
        text = (ast.get_source_segment(self._source.decode(), node) or "").lstrip()
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_docstring or isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.Raise)):
            return
        if any(text.startswith((name, f"if {name}")) for name in _NEVER):
            return
        outer, self._statement = self._statement, node
        if isinstance(node, (ast.Expr, ast.AugAssign, ast.Delete, ast.Continue)) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
        ):
            self._add(node, "pass")
        if isinstance(node, (ast.If, ast.While)) and not isinstance(node.test, ast.Compare):
            self._add(node.test, f"not ({ast.unparse(node.test)})")
        if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            new = OPERATORS[type(node.op)]
            self._between(node.target, node.value, f"{_sign(node.op)}=", f"{new}=")
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "msg"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)
        self._statement = outer

    # -- expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            self._between(left, right, _sign(operator), COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(
            isinstance(each, (ast.JoinedStr, ast.List)) or _is_text(each) for each in (node.left, node.right)
        )
        if type(node.op) in OPERATORS and not is_text:
            self._between(node.left, node.right, _sign(node.op), OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            self._add(node, f"({node.value!r} + 1)")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts for people are not broken."""

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self._add(node.func, "max" if node.func.id == "min" else "min")
        self.generic_visit(node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


def _sign(operator: ast.AST) -> str:
    """How *operator* is written."""
    signs = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
             ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
             ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&",
             ast.BitOr: "|"}  # fmt: skip
    return signs.get(type(operator), "?")


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
        path.write_bytes(source[: bug.begin] + bug.new.encode() + source[bug.end :])
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
            yield file, Finder(file, path.read_text("utf-8")).bugs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of the names of files (all)")
    parser.add_argument("--each", type=int, default=10, help="bugs for each file (10)")
    parser.add_argument("--rng", type=int, default=1, help="seed of the lot (1)")
    parser.add_argument("--tests", nargs="+", default=["tests/core", "tests/golden"], help="tests to try")
    parser.add_argument("--json", type=Path, help="write the survivors to this file, too")
    args = parser.parse_args()
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
    if args.json is not None:
        args.json.write_text(
            json.dumps([{**bug._asdict(), "lines": list(bug.lines)} for bug in survivors]) + "\n"
        )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

"""How large the package is, and how much of it a change may touch.

    python docs/size.py               as it is here
    python docs/size.py dd75939 HEAD  as it was at these commits, side by side

*Code lines* have code on them: no blanks, comments or docstrings. Lines of tests and benchmarks are all but empty ones. *Fields from outside* are those that are assigned by another
file than the one that has the class, going by the names of variables.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
PACKAGE = "scrapy_aopic"

BUDGET = 47_717
"""Most code lines of the package. A capability that lands later pays for its lines by what it makes unneeded, or raises the
number in a commit of its own that says why."""

BENCHMARKS = 7_000
"""Most lines of the benchmarks, empty ones aside: a new one takes the place of one that has decided what it was for."""

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class File:
    """A source file: its syntax tree, and the lines that have code on them."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.tree = ast.parse(source)
        self.nodes = list(ast.walk(self.tree))
        strings = {
            line
            for node in self.nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }  # docstrings, and those of attributes
        self.lines = {
            line
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type not in NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        } - strings

    def of(self, *kinds: type[ast.AST]) -> list[ast.AST]:
        """Its nodes of these *kinds*."""
        return [node for node in self.nodes if isinstance(node, kinds)]

    def code_of(self, node: ast.ClassDef) -> int:
        """Code lines of a class."""
        return sum(node.lineno <= line <= (node.end_lineno or 0) for line in self.lines)


def public_names(file: File) -> Iterator[str]:
    """Names at the top of *file* that others may use."""
    for node in file.tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found = [name]
            case ast.Assign(targets=targets):
                found = [each.id for each in targets if isinstance(each, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found = [name]
            case _:
                found = []
        yield from (name for name in found if not name.startswith("_"))


def places(node: ast.AST) -> bool:
    """Whether *node* asks if something is a folder or a server."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(
            isinstance(each, ast.Name) and each.id in {"Path", "Address"} for each in ast.walk(node.args[1])
        )
    )


def either_place(node: ast.AST) -> bool:
    """Whether *node* is the type ``Path | Address``."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and {each.id for each in (node.left, node.right) if isinstance(each, ast.Name)} == {"Path", "Address"}
    )


def fields_of(files: list[File], name: str) -> tuple[str, set[str]]:
    """The file of the class *name*, and the fields that it declares or sets; of several, the one with the most."""
    found = []
    for file in files:
        for node in file.of(ast.ClassDef):
            if isinstance(node, ast.ClassDef) and node.name == name:
                declared = {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                own = {attribute for variable, attribute in assigned(node) if variable == "self"}
                found.append((file.name, declared | own))
    return max(found, key=lambda each: len(each[1]))


def assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Variables and the attributes of theirs that *tree* assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            base = node.value
            yield (
                base.id
                if isinstance(base, ast.Name)
                else base.attr
                if isinstance(base, ast.Attribute)
                else "",
                node.attr,
            )


def writers(files: list[File], name: str, is_one: Callable[[str], bool]) -> list[str]:
    """The other files that assign fields of the class *name* of what has a name of which *is_one* is true."""
    home, fields = fields_of(files, name)
    return sorted(
        file.name
        for file in files
        if file.name != home
        and any(attribute in fields and is_one(variable) for variable, attribute in assigned(file.tree))
    )


def files_in(folder: Path) -> list[File]:
    """The source files of the package in *folder*."""
    return [
        File(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted((folder / PACKAGE).rglob("*.py"))
    ]


def code_lines(files: list[File]) -> int:
    """Code lines of *files*."""
    return sum(len(file.lines) for file in files)


def lines_of(folder: Path) -> int:
    """Lines of the Python files in *folder*, empty ones aside."""
    return sum(
        bool(line.strip()) for path in folder.rglob("*.py") for line in path.read_text("utf-8").splitlines()
    )


def measured(folder: Path) -> dict[str, str]:
    """The figures of the project in *folder*."""
    files = files_in(folder)
    classes = [
        (file, node) for file in files for node in file.of(ast.ClassDef) if isinstance(node, ast.ClassDef)
    ]
    names = Counter(node.name for _, node in classes)
    file_names = Counter(Path(file.name).name for file in files if not file.name.endswith("__init__.py"))
    by_lines = sorted(((file.code_of(node), node.name) for file, node in classes), reverse=True)
    return {
        "code lines": f"{code_lines(files):,}",
        **{f"lines of {name}": f"{lines_of(folder / name):,}" for name in ("tests", "benchmarks")},
        "files": str(len(files)),
        "classes": str(len(classes)),
        "functions": f"{sum(len(file.of(ast.FunctionDef, ast.AsyncFunctionDef)) for file in files):,}",
        "public names": f"{sum(len(list(public_names(file))) for file in files):,}",
        "isinstance of Path or Address": str(sum(places(node) for file in files for node in file.nodes)),
        "types that are a Path or an Address": str(
            sum(either_place(node) for file in files for node in file.nodes)
        ),
        "class names used twice": str(sum(n > 1 for n in names.values())),
        "file names used twice": str(sum(n > 1 for n in file_names.values())),
        "largest classes": ", ".join(f"{name} {n}" for n, name in by_lines[:3]),
        "files that assign a page's fields": str(len(writers(files, "Page", lambda name: "page" in name))),
        "files that assign a visit's fields": str(len(writers(files, "Visit", lambda name: "visit" in name))),
    }


def at(commit: str) -> dict[str, str]:
    """The figures of the project at *commit*."""
    line = ["git", "archive", commit, PACKAGE, "tests", "benchmarks"]
    archive = subprocess.run(line, cwd=ROOT, capture_output=True, check=True)  # noqa: S603 - a commit of this repository
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as file:
            file.extractall(folder, filter="data")
        return measured(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    commits = parser.parse_args().commits
    found = [at(commit) for commit in commits] or [measured(ROOT)]
    print(f"| what | {' | '.join(commits or ['here'])} |\n|---|{'---:|' * len(found)}")
    for what in found[0]:
        print(f"| {what} | {' | '.join(each[what] for each in found)} |")


if __name__ == "__main__":
    main()

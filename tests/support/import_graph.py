"""Which file of the package imports which, read from the source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import scrapy_aopic

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(scrapy_aopic.__file__).parent


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a source file; one for all that read it, so nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules() -> dict[str, ast.Module]:
    """Trees of the modules of the package by file, without those that only document a folder."""
    trees = {path.relative_to(PACKAGE).as_posix(): tree_of(path) for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        name: tree
        for name, tree in trees.items()
        if Path(name).name != "__init__.py"
        or any(
            isinstance(node, (ast.FunctionDef, ast.ImportFrom)) and not _is_future(node) for node in tree.body
        )
    }


def _is_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def imports(name: str, *, for_types: bool = False) -> set[str]:
    """Files of the package that the file *name* imports when it runs, wherever in it; and those *for_types* only."""
    tree = modules()[name]
    here = ["scrapy_aopic", *Path(name).parts[:-1]]
    return {
        found
        for node in (ast.walk(tree) if for_types else _run_nodes(tree))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (found := _file_of(node, here, alias.name)) is not None and found != name
    }


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        is_for_types = (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        )
        if not is_for_types:
            yield child
            yield from _run_nodes(child)


def _file_of(node: ast.ImportFrom, here: list[str], name: str) -> str | None:
    parts = here[: len(here) - node.level + 1] if node.level else []
    parts = parts + (node.module.split(".") if node.module else [])
    if parts[:1] != ["scrapy_aopic"]:
        return None
    folder = "/".join(parts[1:])
    inside = f"{folder}/{name}" if folder else name
    for file in (
        f"{inside}.py",
        f"{inside}/__init__.py",
        f"{folder}.py",
        f"{folder}/__init__.py".lstrip("/"),
    ):
        if file in modules():
            return file
    return None


def room_of(name: str, folder: str) -> str:
    """The file or folder directly in *folder* that the file *name* is, or is in."""
    rest = name.removeprefix(f"{folder}/") if folder else name
    first, _, more = rest.partition("/")
    return f"{first}/" if more else first


def arrows(folder: str) -> dict[str, set[str]]:
    """What each file or folder directly in *folder* (``""`` for the package) imports of the others."""
    prefix = f"{folder}/" if folder else ""
    inside = [name for name in modules() if name.startswith(prefix)]
    found: dict[str, set[str]] = {room_of(name, folder): set() for name in inside}
    for name in inside:
        for other in imports(name):
            if other.startswith(prefix):
                found[room_of(name, folder)].add(room_of(other, folder))
    return {room: others - {room} for room, others in found.items()}

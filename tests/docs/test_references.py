"""Every reference in a docstring (``:class:`Name``` and the like) leads to something."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from support.import_graph import tree_of

import scrapy_aopic

PACKAGE = Path(scrapy_aopic.__file__).parent
REFERENCE = re.compile(r":(?:mod|class|func|meth|data|attr|exc|obj):`~?\.?([^`]*)`")
RELATIVE = re.compile(r":\w+:`~?\.")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def docstrings(node: ast.AST, classes: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The docstrings in *node*, those of attributes and constants included, each with the classes around it."""
    inner = (*classes, node.name) if isinstance(node, ast.ClassDef) else classes
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            if isinstance(child.value.value, str):
                yield inner, child.value.value
        else:
            yield from docstrings(child, inner)


@cache
def names_of(tree: ast.Module) -> set[str]:
    """What is defined or imported anywhere in a module, for type checkers only included, and fields of classes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def imported(name: str, tree: ast.Module, package: str) -> object:
    """What *name* is imported as, if it is for type checkers only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(
            name == (each.asname or each.name) for each in node.names
        ):
            module = importlib.import_module("." * node.level + (node.module or ""), package)
            (real,) = (each.name for each in node.names if name == (each.asname or each.name))
            return getattr(module, real, None)
    return None


def has(found: object, attribute: str) -> bool:
    """Whether *found* has *attribute*; of a class, those of its instances count as well."""
    if hasattr(found, attribute):
        return True
    if not isinstance(found, type):
        return False
    return attribute in found.__annotations__ or f"self.{attribute}" in inspect.getsource(found)


@cache
def module_named(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def leads(
    target: str, module: ModuleType, tree: ast.Module, classes: tuple[str, ...], *, is_relative: bool
) -> bool:
    """Whether *target*, written in *module* inside *classes*, is the name of something."""
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    parts = f"{package}.{target}".split(".") if is_relative else target.split(".")
    for n in range(len(parts), 0, -1):
        found: object = module_named(".".join(parts[:n]))
        if found is None:
            continue
        for part in parts[n:-1]:
            found = getattr(found, part, None)
        if n == len(parts) or has(found, parts[-1]):
            return True
        break
    if is_relative:
        return False
    first, *rest = target.split(".")
    if not rest and (first in names_of(tree) or hasattr(builtins, first)):
        return True
    for name in classes:
        if has(getattr(module, name, None), target):
            return True
    found = getattr(module, first, None) or imported(first, tree, package)
    for part in rest[:-1]:
        found = getattr(found, part, None)
    return bool(rest) and has(found, rest[-1])


def test_references_in_docstrings_lead_somewhere():
    dead = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = tree_of(path)
        module = importlib.import_module(module_of(path))
        dead += [
            f"{path.relative_to(PACKAGE)}: {match[0]}"
            for classes, text in docstrings(tree)
            for match in REFERENCE.finditer(text)
            if not leads(match[1], module, tree, classes, is_relative=bool(RELATIVE.match(match[0])))
        ]
    assert dead == []


def test_a_reference_that_leads_nowhere_is_noticed():
    module = importlib.import_module("scrapy_aopic.core.crawl")
    tree = tree_of(Path(module.__file__ or ""))

    def is_alive(reference: str) -> bool:
        is_relative = reference.startswith(".")
        return leads(reference.removeprefix("."), module, tree, ("Crawl",), is_relative=is_relative)

    alive = [".records", ".records.Page", ".records.Page.cash", "scrapy_aopic.core.crawl.Crawl.lease"]
    alive += ["Crawl", "lease", "Crawl.lease", "KeyError", "struct.unpack"]
    dead = [".records.Page.gold", ".gold", "scrapy_aopic.core.crawl.Crawl.gold", "gold", "Crawl.gold"]
    assert {each: is_alive(each) for each in (*alive, *dead)} == dict.fromkeys(alive, True) | dict.fromkeys(
        dead, False
    )
